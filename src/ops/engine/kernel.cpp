// No kernels: engines run in their delegate.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::engine {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;

}  // namespace pteron::ops::engine
