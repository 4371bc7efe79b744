// Choosing and mixing in terms of the kernels that the official runtime has. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::blend {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_addcdiv, portable_addcmul, portable_clamp_limit, portable_lerp, portable_masked_fill, portable_where;

}  // namespace pteron::ops::blend
