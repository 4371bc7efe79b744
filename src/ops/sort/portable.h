// sort by counting who comes before, and what is picked from sorted slices. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::sort {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_sort, portable_kthvalue, portable_median, portable_nanmedian, portable_median_dim, portable_mode;

}  // namespace pteron::ops::sort
