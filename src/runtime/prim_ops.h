// Kernels that belong to the runtime itself: arithmetic on scalars (executorch_prim::*, aten::sym_size.int, ...) and instructions
// that make one tensor a view of another. Looked up before the caller's kernel table; also used by the evaluator of the compiler.
#pragma once

#include "runtime/kernel.h"

namespace pteron::runtime {

/// The 28 primitive operators of the public runtime, pteron::view_strided.out, and pteron::device_copy.out.
const KernelTable& prim_kernels();

/// How an instruction with one of these kernels changes its last argument.
enum class PrimEffect : uint8_t {
  kNone,    ///< writes bytes (et_copy_index, copies)
  kScalar,  ///< sets a number
  kView,    ///< points a tensor at another one's bytes
};
/// Effect of a kernel of prim_kernels().
PrimEffect prim_effect(std::string_view name);

}  // namespace pteron::runtime
