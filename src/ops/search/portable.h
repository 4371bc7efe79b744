// Searches as comparisons with every boundary. Defined in op_portable.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::search {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_bucketize, portable_isin, portable_searchsorted;

}  // namespace pteron::ops::search
