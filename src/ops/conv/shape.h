// Output sizes of convolutions, for symbolic and run-time dims.
#pragma once

#include <cstdint>

#include "tensor/dim_math.h"

namespace pteron::ops::conv {

/// One spatial dim of a convolution.
template <typename Dim>
Dim forward_size(Dim in, Dim kernel, Dim stride, Dim padding, Dim dilation) {
  return floor_div(in + padding * Dim(2) - dilation * (kernel - Dim(1)) - Dim(1), stride) + Dim(1);
}

/// One spatial dim of a transposed convolution.
template <typename Dim>
Dim transposed_size(Dim in, Dim kernel, Dim stride, Dim padding, Dim dilation, Dim output_padding) {
  return (in - Dim(1)) * stride - padding * Dim(2) + dilation * (kernel - Dim(1)) + output_padding + Dim(1);
}

}  // namespace pteron::ops::conv
