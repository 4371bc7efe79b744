// unique by sorting, for profiles without the kernel. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::unique {

std::vector<ir::ValueId> portable_unique(ir::Builder& b, const ir::NodeView& n);

}  // namespace pteron::ops::unique
