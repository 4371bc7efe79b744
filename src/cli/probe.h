// What this machine can do, measured in a fraction of a second: what profiles are compared with.
#pragma once

#include "base/thread_pool.h"

namespace pteron::cli {

/// With all threads of the pool.
struct Machine {
  double flops_per_second = 0;  ///< fused multiply-adds of float32 in registers, counted twice
  double bytes_per_second = 0;  ///< read and written by a copy that fits no cache
};

Machine probe_machine(ThreadPool& pool);

}  // namespace pteron::cli
