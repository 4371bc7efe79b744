// Group and layer norm in terms of means, for dtypes that the official kernel gets wrong. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::layer_norm {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_group_norm, portable_layer_norm;

}  // namespace pteron::ops::layer_norm
