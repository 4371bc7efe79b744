// eye of sizes known at run time. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::factory {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_eye;

}  // namespace pteron::ops::factory
