// Control flow has no kernels: it is executed as jumps between instructions.
#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::control {

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = {};

}  // namespace pteron::ops::control
