// calculus has no kernels: its operators are composites (op.cpp).
#include "runtime/kernel.h"

namespace pteron::ops::calculus {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = {};

}  // namespace pteron::ops::calculus
