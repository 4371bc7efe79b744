// Builds the table of portable kernels from all.inc.
#include "ops/kernels.h"

#include <span>

#define PTERON_OP(room)                                     \
  namespace pteron::ops::room {                             \
  extern const std::span<const runtime::Kernel> kKernels;   \
  }
#include "ops/all.inc"
#undef PTERON_OP

namespace pteron::ops {

const runtime::KernelTable& portable_kernels() {
  static const runtime::KernelTable table = [] {
    runtime::KernelTable made;
#define PTERON_OP(room) made.add(room::kKernels);
#include "ops/all.inc"
#undef PTERON_OP
    return made;
  }();
  return table;
}

}  // namespace pteron::ops
