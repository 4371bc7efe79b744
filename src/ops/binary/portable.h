// Two-operand arithmetic in terms of the kernels that the official runtime has. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace pteron::ops::binary {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_bitwise_number, portable_copysign, portable_hypot, portable_fmax, portable_fmin, portable_heaviside, portable_logaddexp, portable_logaddexp2, portable_rsub,
    portable_shift_number, portable_xlog1py, portable_xlogy;

/// The decomposition of a PLAIN row of rows.inc; null if there is none.
constexpr ir::DecomposeFn portable_row(std::string_view name) {
  if (name == "fmax") return portable_fmax;
  if (name == "fmin") return portable_fmin;
  if (name == "hypot") return portable_hypot;
  if (name == "logaddexp") return portable_logaddexp;
  return name == "logaddexp2" ? portable_logaddexp2 : nullptr;
}

}  // namespace pteron::ops::binary
