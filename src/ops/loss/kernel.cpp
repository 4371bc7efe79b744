// No kernels: losses decompose into other rooms' operators.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::loss {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;

}  // namespace pteron::ops::loss
