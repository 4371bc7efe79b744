// diagonal_scatter in terms of the kernels that the official runtime has. Defined in op_portable.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::view_scatter {

std::vector<ir::ValueId> portable_diagonal_scatter(ir::Builder& b, const ir::NodeView& n);

}  // namespace pteron::ops::view_scatter
