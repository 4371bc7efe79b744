// The padded copy of an image that convolution passes read: zeros around it, values in the compute type, rows split by the stride's phase so that
// neighbouring outputs read neighbouring values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/geometry.h"
#include "ops/gemm_pack.h"

namespace pteron::ops::conv {

// Packing may read this many bytes past a run of pixels.
inline constexpr int64_t kSlackBytes = 64;

/// Layout of the padded image: where pixel (z, y, x) of output and tap (z, y, x) lie.
struct Image {
  bool channels_last = false;
  int64_t extent[3];    ///< padded sizes
  int64_t phase = 0;    ///< channel-first rows hold x = 0, step, 2*step, ... then 1, 1+step, ...: this many per part
  int64_t channel = 0;  ///< stride of channels
  int64_t stride[3];    ///< stride of padded z, y (and x if channels_last)
  int64_t pixel[3];     ///< stride of output z, y, x
  int64_t elements = 0;
};

/// Layout for `channels` channels; channels-last if the input is and the caller may.
inline Image image_of(const Geometry& g, int64_t channels, bool may_be_last) {
  Image m;
  m.channels_last = may_be_last && g.x_channel == 1 && channels >= 8;
  for (size_t d = 0; d < 3; ++d) m.extent[d] = std::max<int64_t>(g.axis[d].extent(), 1);
  if (m.channels_last) {
    m.channel = 1;
    m.stride[2] = channels;
    m.stride[1] = m.stride[2] * m.extent[2];
    m.stride[0] = m.stride[1] * m.extent[1];
    for (size_t d = 0; d < 3; ++d) m.pixel[d] = m.stride[d] * g.axis[d].step;
    m.elements = m.stride[0] * m.extent[0];
    return m;
  }
  m.phase = ceil_div(m.extent[2], g.axis[2].step);
  m.stride[2] = 1;
  m.stride[1] = m.phase * g.axis[2].step;
  m.stride[0] = m.stride[1] * m.extent[1];
  m.channel = m.stride[0] * m.extent[0];
  m.pixel[0] = m.stride[0] * g.axis[0].step;
  m.pixel[1] = m.stride[1] * g.axis[1].step;
  m.pixel[2] = 1;
  m.elements = m.channel * channels;
  return m;
}

/// Input positions [first, last) of an axis that lie inside, given as padded positions.
inline void inside(const Axis& a, int64_t extent, int64_t* first, int64_t* last) {
  *first = std::clamp<int64_t>(-a.lowest(), 0, extent);
  *last = std::clamp<int64_t>(a.in - a.lowest(), *first, extent);
}

/// Fills one padded row of one channel.
template <typename C, typename T>
void fill_row(const Geometry& g, const Image& m, const T* from, C* to) {
  const Axis& a = g.axis[2];
  int64_t first = 0, last = 0;
  inside(a, m.extent[2], &first, &last);
  const T* source = from + (a.lowest() + first) * a.x_stride;
  if (a.step == 1) {
    std::fill(to, to + first, C{});
    if (a.x_stride == 1) {
      convert_run(source, to + first, last - first);
    } else {
      for (int64_t q = first; q < last; ++q) to[q] = convert_value<C>(source[(q - first) * a.x_stride]);
    }
    std::fill(to + last, to + m.stride[1], C{});
    return;
  }
  std::fill(to, to + m.stride[1], C{});
  for (int64_t part = 0; part < a.step; ++part) {
    const int64_t begin = first + floor_mod(part - first, a.step);
    C* run = to + part * m.phase;
    for (int64_t q = begin; q < last; q += a.step) run[q / a.step] = convert_value<C>(source[(q - first) * a.x_stride]);
  }
}

/// Fills one padded plane (rows of one channel) from the first element of that channel.
template <typename C, typename T>
void fill_plane(const Geometry& g, const Image& m, const T* x, C* to) {
  int64_t first[2], last[2];
  for (size_t d = 0; d < 2; ++d) inside(g.axis[d], m.extent[d], &first[d], &last[d]);
  for (int64_t z = 0; z < m.extent[0]; ++z) {
    for (int64_t y = 0; y < m.extent[1]; ++y) {
      C* row = to + z * m.stride[0] + y * m.stride[1];
      if (z < first[0] || z >= last[0] || y < first[1] || y >= last[1]) {
        std::fill(row, row + m.stride[1], C{});
        continue;
      }
      fill_row<C, T>(g, m, x + (z + g.axis[0].lowest()) * g.axis[0].x_stride + (y + g.axis[1].lowest()) * g.axis[1].x_stride, row);
    }
  }
}

/// Offset of a tap in a channel of a channel-first image.
inline int64_t tap_offset(const Geometry& g, const Image& m, int64_t z, int64_t y, int64_t x) {
  const int64_t sx = g.axis[2].tap_shift(x);
  return g.axis[0].tap_shift(z) * m.stride[0] + g.axis[1].tap_shift(y) * m.stride[1] + sx % g.axis[2].step * m.phase + sx / g.axis[2].step;
}

/// Offset of a tap's weight from the first weight of its channels.
inline int64_t weight_offset(const Geometry& g, int64_t z, int64_t y, int64_t x) {
  const int64_t taps[3] = {z, y, x};
  int64_t offset = 0;
  for (size_t d = 0; d < 3; ++d) offset += (g.axis[d].w0 + taps[d] * g.axis[d].w_step) * g.axis[d].w_stride;
  return offset;
}

}  // namespace pteron::ops::conv
