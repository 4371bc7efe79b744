// No kernels of their own: op.cpp says the operators in terms of those of single tensors.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::foreach {
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;
}  // namespace pteron::ops::foreach
