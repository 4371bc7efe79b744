// Activations in terms of the kernels that the official runtime has. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::activation {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_hardshrink, portable_hardsigmoid, portable_hardswish, portable_log_sigmoid, portable_mish, portable_prelu, portable_silu,
    portable_softplus, portable_softshrink, portable_threshold;

}  // namespace pteron::ops::activation
