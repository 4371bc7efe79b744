// ThreadPool for the rooms: the only source of threads in the library. The interface is public (pteron/host.h); the default pool is in thread_pool.cpp.
#pragma once

#include "pteron/host.h"
