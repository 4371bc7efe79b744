// No kernels: windows decompose into ranges and pointwise operators.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::window {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;

}  // namespace pteron::ops::window
