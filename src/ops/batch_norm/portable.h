// Batch norms in terms of sums, for dtypes that the official kernels get wrong. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::batch_norm {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_no_stats, portable_no_training;

}  // namespace pteron::ops::batch_norm
