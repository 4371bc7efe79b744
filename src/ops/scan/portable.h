// Running results by doubling steps, for profiles without the kernels. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::scan {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_cumprod, portable_cummax, portable_cummin, portable_logcumsumexp;

}  // namespace pteron::ops::scan
