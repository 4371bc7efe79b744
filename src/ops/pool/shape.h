// Output sizes of pools, for symbolic and run-time dims.
#pragma once

#include "tensor/dim_math.h"

namespace pteron::ops::pool {

/// One dim of a max or average pool (ATen's pooling_output_shape).
template <typename Dim>
Dim window_size(Dim in, Dim kernel, Dim stride, Dim padding, Dim dilation, bool ceil_mode) {
  const Dim reach = in + padding * Dim(2) - dilation * (kernel - Dim(1)) - Dim(1);
  if (!ceil_mode) return floor_div(reach, stride) + Dim(1);
  // The last window must start inside the input or its padding at the start.
  return dim_min(floor_div(reach + stride - Dim(1), stride) + Dim(1), floor_div(in + padding - Dim(1), stride) + Dim(1));
}

}  // namespace pteron::ops::pool
