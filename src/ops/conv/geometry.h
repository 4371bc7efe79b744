// The numbers of one convolution pass, three spatial dims always. A transposed convolution is one pass per phase of its stride.
// Runtime half; used by the kernels of this room.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "runtime/kernel.h"
#include "tensor/dim_math.h"

namespace pteron::ops::conv {

/// One spatial dim: output o, tap t reads input o * step + shift0 + t * shift_step with weight w0 + t * w_step.
struct Axis {
  int64_t in = 1, out = 1;
  int64_t step = 1;
  int64_t taps = 1;
  int64_t w0 = 0, w_step = 1;
  int64_t shift0 = 0, shift_step = 0;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;  ///< elements; y_stride is per output of this pass
  int64_t y_offset = 0;

  int64_t lowest() const { return std::min(shift0, shift0 + (taps - 1) * shift_step); }
  /// Input positions from the lowest to the highest one that is read.
  int64_t extent() const { return (out - 1) * step + std::max<int64_t>(taps - 1, 0) * (shift_step < 0 ? -shift_step : shift_step) + 1; }
  /// Position of a tap relative to lowest().
  int64_t tap_shift(int64_t t) const { return shift0 + t * shift_step - lowest(); }
};

struct Geometry {
  int64_t batch = 1, groups = 1;
  int64_t group_in = 1, group_out = 1;  ///< channels of a group
  std::array<Axis, 3> axis;             ///< depth, height, width
  int64_t x_batch = 0, x_channel = 0, y_batch = 0, y_channel = 0;
  int64_t w_group = 0, w_out = 0, w_in = 0;
  int64_t bias_stride = 0;

  int64_t pixels() const { return axis[0].out * axis[1].out * axis[2].out; }
  int64_t taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
  int64_t depth() const { return group_in * taps(); }
  /// Offset of the first tap's weight.
  int64_t w_offset() const { return axis[0].w0 * axis[0].w_stride + axis[1].w0 * axis[1].w_stride + axis[2].w0 * axis[2].w_stride; }
  int64_t y_offset() const { return axis[0].y_offset + axis[1].y_offset + axis[2].y_offset; }
};

/// Arguments of aten::convolution with lists of one entry per spatial dim.
struct Params {
  Sizes stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

}  // namespace pteron::ops::conv
