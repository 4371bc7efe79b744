// Fourier transforms in terms of the one-sided real ones that the official runtime has. Defined in op_portable.cpp, named by the rows of op.cpp.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace pteron::ops::fft {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_c2c, portable_r2c;

}  // namespace pteron::ops::fft
