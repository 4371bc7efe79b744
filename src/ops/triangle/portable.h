// Triangles and diagonals in terms of the kernels that the official runtime has. Defined in op_portable.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::triangle {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_diag_embed, portable_triu;

}  // namespace pteron::ops::triangle
