// im2col and col2im in terms of index and index_put. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::pixel {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_col2im, portable_im2col;

}  // namespace pteron::ops::pixel
