// Convolution as a matrix product: weights [channels out, channels in x taps] times image columns that are packed straight from a padded copy
// of one image (never the whole column matrix). Table and choice: kernel.cpp.
#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "ops/conv/image.h"
#include "ops/conv/kernels.h"
#include "ops/gemm.h"
#include "ops/gemm_pack.h"

namespace pteron::ops::conv {
namespace {

using runtime::KernelContext;

template <typename C, typename T>
void fill_image(KernelContext& context, const Geometry& g, const Image& m, const T* x, C* to) {
  const int64_t channels = g.groups * g.group_in;
  int64_t first[3], last[3];
  for (size_t d = 0; d < 3; ++d) inside(g.axis[d], m.extent[d], &first[d], &last[d]);
  const int64_t rows = m.extent[0] * m.extent[1];
  const auto source_row = [&](int64_t z, int64_t y) {
    return x + (z + g.axis[0].lowest()) * g.axis[0].x_stride + (y + g.axis[1].lowest()) * g.axis[1].x_stride;
  };
  const auto part = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % rows, channel = i / rows;
      const int64_t z = row / m.extent[1], y = row % m.extent[1];
      C* out = to + z * m.stride[0] + y * m.stride[1] + channel * m.channel;
      if (z < first[0] || z >= last[0] || y < first[1] || y >= last[1]) {
        std::fill(out, out + m.stride[1], C{});
        continue;
      }
      if (!m.channels_last) {
        fill_row<C, T>(g, m, source_row(z, y) + channel * g.x_channel, out);
        continue;
      }
      std::fill(out, out + first[2] * channels, C{});
      const T* from = source_row(z, y);
      for (int64_t q = first[2]; q < last[2]; ++q) {
        convert_run(from + (q + g.axis[2].lowest()) * g.axis[2].x_stride, out + q * channels, channels);
      }
      std::fill(out + last[2] * channels, out + m.stride[1], C{});
    }
  };
  const int64_t count = m.channels_last ? rows : rows * channels;
  context.pool->parallel_for(count, std::max<int64_t>(16384 / std::max<int64_t>(m.stride[1], 1), 1), part);
}

/// What the packing of image columns knows.
template <typename C>
struct Columns {
  const C* image = nullptr;           ///< at the group's first channel
  const int64_t* offsets = nullptr;   ///< of every summed index
  int64_t out[3];
  int64_t pixel[3];
  bool channels_last = false;
  int64_t run = 1;                    ///< channels_last: summed indexes that lie one after the other

  int64_t offset_of(int64_t index, int64_t* left) const {
    const int64_t x = index % out[2], y = index / out[2] % out[1], z = index / out[2] / out[1];
    *left = out[2] - x;
    return z * pixel[0] + y * pixel[1] + x * pixel[2];
  }
};

/// Copies `count` values in 32-byte steps where `room` values may be overwritten, else exactly.
template <typename C>
void copy_run(const C* from, C* to, int64_t count, int64_t room) {
  constexpr int64_t kStep = 32 / static_cast<int64_t>(sizeof(C));
  if (room < count + kStep) {
    std::copy(from, from + count, to);
    return;
  }
  for (int64_t i = 0; i < count; i += kStep) std::memcpy(to + i, from + i, 32);
}

template <typename C>
void pack_columns(const void* context, void* panel_bytes, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth) {
  const auto& columns = *static_cast<const Columns<C>*>(context);
  C* panel = static_cast<C*>(panel_bytes);
  // Pieces of rows of pixels that the panel covers.
  int64_t starts[64], lengths[64];
  int pieces = 0;
  for (int64_t i = 0; i < rows; ++pieces) {
    int64_t left = 0;
    starts[pieces] = columns.offset_of(r0 + i, &left);
    lengths[pieces] = std::min(left, rows - i);
    i += lengths[pieces];
  }
  if (columns.channels_last) {
    for (int64_t k = 0; k < depth;) {
      const int64_t run = std::min(columns.run - (k0 + k) % columns.run, depth - k);
      C* to = panel + k * width;
      for (int p = 0; p < pieces; to += lengths[p++]) {
        pack_block<C, C>(columns.image + starts[p] + columns.offsets[k0 + k], columns.pixel[2], 1, to, width, lengths[p], run);
      }
      k += run;
    }
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      const C* from = columns.image + columns.offsets[k0 + k];
      C* to = panel + k * width;
      int64_t room = (depth - k) * width;
      for (int p = 0; p < pieces; ++p) {
        copy_run(from + starts[p], to, lengths[p], room);
        to += lengths[p];
        room -= lengths[p];
      }
    }
  }
  if (rows == width) return;
  for (int64_t k = 0; k < depth; ++k) std::fill(panel + k * width + rows, panel + (k + 1) * width, C{});
}

template <typename T>
struct Weights {
  const T* data = nullptr;
  const int64_t* offsets = nullptr;
  int64_t row = 0;
};

template <typename T>
void pack_weights(const void* context, void* panel_bytes, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth) {
  const auto& weights = *static_cast<const Weights<T>*>(context);
  auto* panel = static_cast<Compute<T>*>(panel_bytes);
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = weights.data + r0 * weights.row + weights.offsets[k0 + k];
    for (int64_t i = 0; i < rows; ++i) panel[k * width + i] = convert_value<Compute<T>>(from[i * weights.row]);
    std::fill(panel + k * width + rows, panel + (k + 1) * width, Compute<T>{});
  }
}

/// Offsets of every (channel, tap) in the image and in the weights of a group.
void fill_offsets(const Geometry& g, const Image& m, int64_t* image, int64_t* weight) {
  const auto set = [&](int64_t at, int64_t c, int64_t z, int64_t y, int64_t x) {
    const int64_t sx = g.axis[2].tap_shift(x);
    const int64_t in_row = m.channels_last ? sx * m.stride[2] : sx % g.axis[2].step * m.phase + sx / g.axis[2].step;
    image[at] = c * m.channel + g.axis[0].tap_shift(z) * m.stride[0] + g.axis[1].tap_shift(y) * m.stride[1] + in_row;
    const int64_t taps[3] = {z, y, x};
    weight[at] = c * g.w_in;
    for (size_t d = 0; d < 3; ++d) weight[at] += (g.axis[d].w0 + taps[d] * g.axis[d].w_step) * g.axis[d].w_stride;
  };
  const int64_t taps = g.taps();
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t x = t % g.axis[2].taps, y = t / g.axis[2].taps % g.axis[1].taps, z = t / g.axis[2].taps / g.axis[1].taps;
    for (int64_t c = 0; c < g.group_in; ++c) set(m.channels_last ? t * g.group_in + c : c * taps + t, c, z, y, x);
  }
}

/// The common step of the offsets, or 0.
int64_t even_step(const int64_t* offsets, int64_t count) {
  if (count < 2) return 1;
  const int64_t step = offsets[1] - offsets[0];
  for (int64_t i = 2; i < count; ++i) {
    if (offsets[i] - offsets[i - 1] != step) return 0;
  }
  return step;
}

/// Stride of output pixels if one serves all, else 0.
int64_t output_stride(const Geometry& g) {
  int64_t stride = 0, expected = 0;
  for (size_t d = 3; d-- > 0;) {
    const Axis& a = g.axis[d];
    if (a.out == 1) continue;
    if (stride == 0) {
      stride = a.y_stride;
    } else if (a.y_stride != expected) {
      return 0;
    }
    expected = a.y_stride * a.out;
  }
  return stride == 0 ? 1 : stride;
}

/// Parts of the scratch.
struct Layout {
  size_t image, image_offsets, weight_offsets, columns, weights, staging, gemm;
};
Layout layout_of(DType dtype, const Geometry& g, const Image& m) {
  Layout l{};
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t here = at;
    at = align_up(at + bytes, 64);
    return here;
  };
  l.image = place(static_cast<size_t>(m.elements) * compute_size(dtype) + kSlackBytes);
  l.image_offsets = place(static_cast<size_t>(g.depth()) * 8);
  l.weight_offsets = place(static_cast<size_t>(g.depth()) * 8);
  l.columns = place(static_cast<size_t>(g.groups) * sizeof(Columns<double>));
  l.weights = place(static_cast<size_t>(g.groups) * sizeof(Weights<double>));
  // Bounds may join where actual sizes do not, so there is always room for a staged result.
  l.staging = place(static_cast<size_t>(g.groups * g.group_out * g.pixels()) * dtype_size(dtype));
  l.gemm = at;
  return l;
}

/// y = staged [channels, pixels].
template <typename T>
void scatter(KernelContext& context, const Geometry& g, const T* staged, T* y) {
  const int64_t pixels = g.pixels();
  context.pool->parallel_for(g.groups * g.group_out, std::max<int64_t>(16384 / std::max<int64_t>(pixels, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const T* from = staged + c * pixels;
      for (int64_t z = 0; z < g.axis[0].out; ++z) {
        for (int64_t r = 0; r < g.axis[1].out; ++r, from += g.axis[2].out) {
          T* to = y + c * g.y_channel + z * g.axis[0].y_stride + r * g.axis[1].y_stride;
          for (int64_t q = 0; q < g.axis[2].out; ++q) to[q * g.axis[2].y_stride] = from[q];
        }
      }
    }
  });
}

template <typename T>
void run(KernelContext& context, const Geometry& g, const Operands& o) {
  using C = Compute<T>;
  const Image m = image_of(g, g.groups * g.group_in, true);
  const Layout l = layout_of(o.dtype, g, m);
  std::byte* base = context.scratch.data();
  C* image = reinterpret_cast<C*>(base + l.image);
  auto* image_offsets = reinterpret_cast<int64_t*>(base + l.image_offsets);
  auto* weight_offsets = reinterpret_cast<int64_t*>(base + l.weight_offsets);
  auto* columns = reinterpret_cast<Columns<C>*>(base + l.columns);
  auto* weights = reinterpret_cast<Weights<T>*>(base + l.weights);
  T* staging = reinterpret_cast<T*>(base + l.staging);
  fill_offsets(g, m, image_offsets, weight_offsets);
  const int64_t depth = g.depth(), pixels = g.pixels();
  const int64_t weight_step = even_step(weight_offsets, depth);
  const int64_t pixel_stride = output_stride(g);
  for (int64_t group = 0; group < g.groups; ++group) {
    columns[group] = Columns<C>{image + group * g.group_in * m.channel, image_offsets, {g.axis[0].out, g.axis[1].out, g.axis[2].out},
                                {m.pixel[0], m.pixel[1], m.pixel[2]}, m.channels_last, std::max<int64_t>(g.group_in, 1)};
    weights[group] = Weights<T>{static_cast<const T*>(o.w) + group * g.w_group, weight_offsets, g.w_out};
  }
  for (int64_t n = 0; n < g.batch; ++n) {
    T* y = static_cast<T*>(o.y) + n * g.y_batch + g.y_offset();
    if (depth > 0) fill_image<C, T>(context, g, m, static_cast<const T*>(o.x) + n * g.x_batch, image);
    const auto call_of = [&](int64_t group) {
      GemmCall call;
      call.dtype = o.dtype;
      call.m = g.group_out, call.n = pixels, call.k = depth;
      if (weight_step != 0 && depth > 0) {
        call.a = {weights[group].data + weight_offsets[0], g.w_out, weight_step, nullptr, nullptr};
      } else {
        call.a = {nullptr, 0, 0, pack_weights<T>, &weights[group]};
      }
      call.b = {nullptr, 0, 0, pack_columns<C>, &columns[group]};
      if (pixel_stride != 0) {
        call.c = y + group * g.group_out * g.y_channel;
        call.c_m = g.y_channel, call.c_n = pixel_stride;
      } else {
        call.c = staging + group * g.group_out * pixels;
        call.c_m = pixels, call.c_n = 1;
      }
      if (o.bias != nullptr) call.init = static_cast<const T*>(o.bias) + group * g.group_out * g.bias_stride;
      call.init_m = g.bias_stride;
      return call;
    };
    gemm_batched(call_of(0), g.groups, call_of, *context.pool, context.scratch.subspan(l.gemm));
    if (pixel_stride == 0) scatter<T>(context, g, staging, y);
  }
}

}  // namespace

void general_pass(KernelContext& context, const Geometry& g, const Operands& o) {
  dispatch_real(o.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) run<T>(context, g, o);
  });
}

size_t general_workspace(DType dtype, const Geometry& g) {
  const Layout l = layout_of(dtype, g, image_of(g, g.groups * g.group_in, true));
  // A smaller actual size may choose the other image layout; both need at most this.
  Geometry other = g;
  other.x_channel = g.x_channel == 1 ? 0 : 1;
  const Layout k = layout_of(dtype, other, image_of(other, g.groups * g.group_in, true));
  return std::max(l.gemm, k.gemm) + gemm_workspace(dtype, g.group_out, g.pixels(), g.depth());
}

}  // namespace pteron::ops::conv
