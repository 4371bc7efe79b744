// Quantiles by sorting, for profiles without the kernel. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::quantile {

std::vector<ir::ValueId> portable_quantile(ir::Builder& b, const ir::NodeView& n);

}  // namespace pteron::ops::quantile
