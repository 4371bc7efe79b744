// Reducing scatters in terms of scatter_add, choices and reductions. Defined in op_portable.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::gather {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_scatter_reduce, portable_scatter_reduce_two;

}  // namespace pteron::ops::gather
