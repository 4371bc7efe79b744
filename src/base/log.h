// LogSink for the rooms; the interface itself is public (pteron/host.h), because callers implement it.
#pragma once

#include "pteron/host.h"
