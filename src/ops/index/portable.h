// Indexing along one dim in terms of index and index_put. Defined in op_portable.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::index {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_index_add, portable_index_copy, portable_index_fill, portable_index_reduce, portable_put, portable_take;

}  // namespace pteron::ops::index
