// Resizes in terms of index_select and weighted sums. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::resize {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_resize;

}  // namespace pteron::ops::resize
