// Pools that the official runtime lacks in terms of those that it has. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::pool {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_adaptive_avg_pool3d, portable_adaptive_max_pool, portable_avg_pool3d,
    portable_max_pool3d, portable_max_unpool;

}  // namespace pteron::ops::pool
