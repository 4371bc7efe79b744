// A method's stream of random numbers, which kernels that draw some get as their state. Read by build_method.cpp and by those kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/kernel.h"

namespace pteron::runtime {

/// Where a method stands in its stream: the same seed gives the same numbers, in the order of the calls.
/// Threads: those of the method that owns it, one at a time.
class RandomStream : public KernelState {
 public:
  uint64_t seed = 0;
  mutable uint64_t position = 0;  ///< advanced by the calls; kernels see their state as const
};

/// The prepare of kernels that draw random numbers: the runtime sees it in a row and gives the kernel the method's own stream as its state.
/// Where nobody does that (constant folding), a kernel has no stream and must refuse.
inline Result<std::shared_ptr<const KernelState>> uses_random_stream(const KernelLoad&, std::span<Value* const>) { return std::shared_ptr<const KernelState>(); }

}  // namespace pteron::runtime
