// No kernels: every name of this room becomes another operator.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::alias_names {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;

}  // namespace pteron::ops::alias_names
