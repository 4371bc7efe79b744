// What op.cpp's table takes from op_einsum.cpp, and the matmul that other rooms' decompositions use.
#pragma once

#include "ops/compose.h"

namespace pteron::ops::matmul {

/// matmul(x, y) by ATen's rank rules, in mm and bmm.
ValueId compose_matmul(Compose& f, ValueId x, ValueId y);

Status infer_einsum(InferContext& c);
std::vector<ValueId> decompose_einsum(ir::Builder& b, const NodeView& n);

}  // namespace pteron::ops::matmul
