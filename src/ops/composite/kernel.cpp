// Rare composite operators have no kernels of their own: op.cpp says them in terms of others.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::composite {
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels;
}  // namespace pteron::ops::composite
