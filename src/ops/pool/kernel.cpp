// Pools for the runtime: windows of one to three dims over every plane (batch, channel). Compile half: op.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/str_cat.h"
#include "ops/gemm_pack.h"
#include "ops/pool/shape.h"
#include "runtime/kernel.h"
#include "tensor/dtype.h"

namespace pteron::ops::pool {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;

/// One spatial dim of a pool.
struct Axis {
  int64_t in = 1, out = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t x_stride = 0, y_stride = 0, i_stride = 0;
};

/// Planes and axes (depth, height, width) of input, output and indices.
struct Pool {
  int64_t batch = 1, channels = 1;
  int64_t x_batch = 0, x_channel = 0, y_batch = 0, y_channel = 0, i_batch = 0, i_channel = 0;
  Axis axis[3];
  bool adaptive = false;

  int64_t window_begin(int d, int64_t o) const {
    const Axis& a = axis[d];
    return adaptive ? o * a.in / a.out : o * a.stride - a.padding;
  }
  int64_t window_end(int d, int64_t o) const {
    const Axis& a = axis[d];
    return adaptive ? ceil_div((o + 1) * a.in, a.out) : o * a.stride - a.padding + a.dilation * (a.kernel - 1) + 1;
  }
};

Status bad_rank(const Tensor& x, int spatial) {
  return Status(Code::kInvalidInput, str_cat("expected an input of rank ", spatial + 1, " or ", spatial + 2, ", found ", shape_text(x.sizes())));
}

/// Planes of tensors whose last `spatial` dims are pooled.
void set_planes(Pool* p, const Tensor& x, const Tensor& y, const Tensor* indices, int spatial) {
  const int first = x.rank() - spatial;
  p->channels = first >= 1 ? x.size(first - 1) : 1;
  p->batch = first >= 2 ? x.size(first - 2) : 1;
  const auto stride_of = [&](const Tensor& t, int d) { return d >= 0 ? t.stride(d) : 0; };
  p->x_channel = stride_of(x, first - 1), p->x_batch = stride_of(x, first - 2);
  p->y_channel = stride_of(y, first - 1), p->y_batch = stride_of(y, first - 2);
  if (indices != nullptr) p->i_channel = stride_of(*indices, first - 1), p->i_batch = stride_of(*indices, first - 2);
  for (int d = 0; d < spatial; ++d) {
    Axis& a = p->axis[3 - spatial + d];
    a.in = x.size(first + d), a.out = y.size(first + d);
    a.x_stride = x.stride(first + d), a.y_stride = y.stride(first + d);
    if (indices != nullptr) a.i_stride = indices->stride(first + d);
  }
}

/// Calls fn(batch, channel) for all planes on the pool's threads.
template <typename Fn>
void for_planes(KernelContext& context, const Pool& p, Fn&& fn) {
  int64_t work = 1;
  for (const Axis& a : p.axis) work *= p.adaptive ? std::max(a.in, a.out) : a.out * a.kernel;
  context.pool->parallel_for(p.batch * p.channels, std::max<int64_t>(32768 / std::max<int64_t>(work, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i / p.channels, i % p.channels);
  });
}

/// Channels that are neighbours in input and output, as in channels-last images: loops run along them.
bool channels_last(const Pool& p) { return p.channels >= 8 && p.x_channel == 1 && p.y_channel == 1; }

constexpr int64_t kChannelBlock = 64;
/// Fewer outputs than this share out their channels as well.
constexpr int64_t kManyPixels = 64;

/// Calls fn(batch, z, y, x, first channel, past the last) for all outputs of a plane, and for all batches, on the pool's threads.
template <typename Fn>
void for_pixels(KernelContext& context, const Pool& p, Fn&& fn) {
  const int64_t plane = p.axis[0].out * p.axis[1].out * p.axis[2].out, across = p.axis[2].out, down = p.axis[1].out;
  int64_t work = p.channels;
  for (const Axis& a : p.axis) work *= p.adaptive ? ceil_div(a.in, std::max<int64_t>(a.out, 1)) : a.kernel;
  const int64_t parts = p.batch * plane < kManyPixels ? ceil_div(p.channels, kChannelBlock) : 1;
  const int64_t channels = ceil_div(ceil_div(p.channels, parts), kChannelBlock) * kChannelBlock;
  context.pool->parallel_for(p.batch * plane * parts, std::max<int64_t>(32768 / std::max<int64_t>(work / parts, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t i = part / parts, first = part % parts * channels;
      fn(i / plane, i % plane / (across * down), i / across % down, i % across, first, std::min(p.channels, first + channels));
    }
  });
}

template <typename T>
bool is_nan(T v) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(v);
  }
}

template <typename T>
using Value = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

/// Taps of a max pool's window that lie inside of the input, for the output at (z, y, x).
struct MaxWindow {
  int64_t begin[3], end[3], step[3];

  MaxWindow() = default;
  MaxWindow(const Pool& p, const int64_t* at) {
    for (int d = 0; d < 3; ++d) {
      step[d] = p.adaptive ? 1 : p.axis[d].dilation;
      begin[d] = p.window_begin(d, at[d]);
      end[d] = std::min(p.window_end(d, at[d]), p.axis[d].in);
      if (begin[d] < 0) begin[d] += ceil_div(-begin[d], step[d]) * step[d];
    }
  }
};

/// Largest value of a window and its position in the plane.
template <typename T>
Value<T> window_max(const Pool& p, const T* plane, const MaxWindow& w, int64_t* where) {
  using V = Value<T>;
  V best = std::numeric_limits<V>::has_infinity ? -std::numeric_limits<V>::infinity() : std::numeric_limits<V>::lowest();
  *where = (w.begin[0] * p.axis[1].in + w.begin[1]) * p.axis[2].in + w.begin[2];
  for (int64_t i = w.begin[0]; i < w.end[0]; i += w.step[0]) {
    for (int64_t j = w.begin[1]; j < w.end[1]; j += w.step[1]) {
      const T* row = plane + i * p.axis[0].x_stride + j * p.axis[1].x_stride;
      for (int64_t k = w.begin[2]; k < w.end[2]; k += w.step[2]) {
        const V v = convert_value<V>(row[k * p.axis[2].x_stride]);
        if (!(v > best) && !is_nan(v)) continue;
        best = v;
        *where = (i * p.axis[1].in + j) * p.axis[2].in + k;
      }
    }
  }
  return best;
}

/// Maxima of channels-last images, without positions.
template <typename T>
void max_pixels(KernelContext& context, const Pool& p, const T* x, T* y) {
  using V = Value<T>;
  for_pixels(context, p, [&](int64_t n, int64_t z, int64_t row, int64_t column, int64_t first, int64_t last) {
    const int64_t at[3] = {z, row, column};
    const MaxWindow w(p, at);
    T* const to = y + n * p.y_batch + z * p.axis[0].y_stride + row * p.axis[1].y_stride + column * p.axis[2].y_stride;
    for (int64_t c0 = first; c0 < last; c0 += kChannelBlock) {
      const int64_t count = std::min(kChannelBlock, last - c0);
      V best[kChannelBlock];
      std::fill(best, best + count, std::numeric_limits<V>::has_infinity ? -std::numeric_limits<V>::infinity() : std::numeric_limits<V>::lowest());
      for (int64_t i = w.begin[0]; i < w.end[0]; i += w.step[0]) {
        for (int64_t j = w.begin[1]; j < w.end[1]; j += w.step[1]) {
          for (int64_t k = w.begin[2]; k < w.end[2]; k += w.step[2]) {
            const T* from = x + n * p.x_batch + i * p.axis[0].x_stride + j * p.axis[1].x_stride + k * p.axis[2].x_stride + c0;
            for (int64_t c = 0; c < count; ++c) {
              const V v = convert_value<V>(from[c]);
              best[c] = v > best[c] || is_nan(v) ? v : best[c];
            }
          }
        }
      }
      for (int64_t c = 0; c < count; ++c) to[c0 + c] = store_value<T>(best[c]);
    }
  });
}

/// Outputs [begin, end) of a row whose tap k lies inside the image.
void tap_range(const Axis& a, int64_t k, int64_t* begin, int64_t* end) {
  const int64_t shift = k * a.dilation - a.padding;  // output o reads o * stride + shift
  *begin = std::clamp<int64_t>(ceil_div(-shift, a.stride), 0, a.out);
  *end = std::clamp<int64_t>(ceil_div(a.in - shift, a.stride), *begin, a.out);
}

constexpr int64_t kRowPart = 256;  // outputs of a row that are worked on at once

/// Calls fn(row of the input, tap) for every row of the image that the windows of output row (z, y) see, outermost first.
template <typename T, typename Fn>
void for_window_rows(const Pool& p, const T* plane, int64_t z, int64_t y, Fn&& fn) {
  for (int64_t i = 0; i < p.axis[0].kernel; ++i) {
    const int64_t from_z = z * p.axis[0].stride - p.axis[0].padding + i * p.axis[0].dilation;
    if (from_z < 0 || from_z >= p.axis[0].in) continue;
    for (int64_t j = 0; j < p.axis[1].kernel; ++j) {
      const int64_t from_y = y * p.axis[1].stride - p.axis[1].padding + j * p.axis[1].dilation;
      if (from_y >= 0 && from_y < p.axis[1].in) fn(plane + from_z * p.axis[0].x_stride + from_y * p.axis[1].x_stride);
    }
  }
}

/// into[o - first] = take(into[o - first], value) for outputs [first, first + count) and every tap of the window in that row.
template <typename T, typename V, typename Take>
void fold_row(const Axis& a, const T* row, int64_t first, int64_t count, V* into, const Take& take) {
  for (int64_t k = 0; k < a.kernel; ++k) {
    int64_t begin = 0, end = 0;
    tap_range(a, k, &begin, &end);
    begin = std::max(begin, first), end = std::min(end, first + count);
    const T* from = row + (k * a.dilation - a.padding) * a.x_stride;
    const int64_t step = a.stride * a.x_stride;
    if (step == 1) {
      for (int64_t o = begin; o < end; ++o) into[o - first] = take(into[o - first], convert_value<V>(from[o]));
    } else if (step == 2) {
      for (int64_t o = begin; o < end; ++o) into[o - first] = take(into[o - first], convert_value<V>(from[2 * o]));
    } else {
      for (int64_t o = begin; o < end; ++o) into[o - first] = take(into[o - first], convert_value<V>(from[o * step]));
    }
  }
}

/// Maxima of row-major images by rows of outputs, without positions. Requires: not adaptive.
template <typename T>
void max_rows(KernelContext& context, const Pool& p, const T* x, T* y) {
  using V = Value<T>;
  for_planes(context, p, [&](int64_t n, int64_t c) {
    V best[kRowPart];
    for (int64_t i = 0; i < p.axis[0].out * p.axis[1].out; ++i) {
      const int64_t z = i / p.axis[1].out, row = i % p.axis[1].out;
      T* to = y + n * p.y_batch + c * p.y_channel + z * p.axis[0].y_stride + row * p.axis[1].y_stride;
      for (int64_t first = 0; first < p.axis[2].out; first += kRowPart) {
        const int64_t count = std::min(kRowPart, p.axis[2].out - first);
        std::fill(best, best + count, std::numeric_limits<V>::has_infinity ? -std::numeric_limits<V>::infinity() : std::numeric_limits<V>::lowest());
        for_window_rows(p, x + n * p.x_batch + c * p.x_channel, z, row, [&](const T* from) {
          fold_row(p.axis[2], from, first, count, best, [](V a, V b) { return b > a || is_nan(b) ? b : a; });
        });
        for (int64_t o = 0; o < count; ++o) to[(first + o) * p.axis[2].y_stride] = store_value<T>(best[o]);
      }
    }
  });
}

template <typename T>
void max_planes(KernelContext& context, const Pool& p, const T* x, T* y, int64_t* indices) {
  if (indices == nullptr && !p.adaptive) return max_rows(context, p, x, y);
  for_planes(context, p, [&](int64_t n, int64_t c) {
    const T* from = x + n * p.x_batch + c * p.x_channel;
    T* to = y + n * p.y_batch + c * p.y_channel;
    for (int64_t i = 0; i < p.axis[0].out; ++i) {
      for (int64_t j = 0; j < p.axis[1].out; ++j) {
        for (int64_t k = 0; k < p.axis[2].out; ++k) {
          int64_t where = 0;
          const int64_t at[3] = {i, j, k};
          to[i * p.axis[0].y_stride + j * p.axis[1].y_stride + k * p.axis[2].y_stride] = store_value<T>(window_max<T>(p, from, MaxWindow(p, at), &where));
          if (indices == nullptr) continue;
          indices[n * p.i_batch + c * p.i_channel + i * p.axis[0].i_stride + j * p.axis[1].i_stride + k * p.axis[2].i_stride] = where;
        }
      }
    }
  });
}

/// Average pools: what the sum is divided by.
struct Divisor {
  bool include_padding = true;
  int64_t fixed = 0;  ///< 0: the size of the window
};

struct AverageWindow {
  int64_t begin[3], end[3];
  int64_t divisor = 0;
  bool empty = false;
};
AverageWindow average_window(const Pool& p, const Divisor& divisor, const int64_t* at) {
  AverageWindow w;
  int64_t full = 1, clipped = 1;
  for (int d = 0; d < 3; ++d) {
    w.begin[d] = p.window_begin(d, at[d]);
    w.end[d] = std::min(p.window_end(d, at[d]), p.axis[d].in + p.axis[d].padding);
    full *= w.end[d] - w.begin[d];
    w.begin[d] = std::max<int64_t>(w.begin[d], 0);
    w.end[d] = std::min(w.end[d], p.axis[d].in);
    clipped *= std::max<int64_t>(w.end[d] - w.begin[d], 0);
  }
  w.divisor = divisor.fixed != 0 ? divisor.fixed : divisor.include_padding ? full : clipped;
  w.empty = clipped == 0;
  return w;
}
/// Of a window with the sum 0 if it is empty.
template <typename S>
S average_of(const Pool& p, const AverageWindow& w, S sum) {
  return w.empty && (w.divisor == 0 || !p.adaptive) ? S{} : sum / static_cast<S>(w.divisor);
}

// ATen sums float in float; a part a row keeps windows of a whole image exact enough.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// Means of row-major images by rows of outputs: sums in the same order as one by one. Requires: not adaptive.
template <typename T>
void average_rows(KernelContext& context, const Pool& p, Divisor divisor, const T* x, T* y) {
  using S = Sum<T>;
  for_planes(context, p, [&](int64_t n, int64_t c) {
    S sum[kRowPart], part[kRowPart];
    for (int64_t i = 0; i < p.axis[0].out * p.axis[1].out; ++i) {
      const int64_t z = i / p.axis[1].out, row = i % p.axis[1].out;
      T* to = y + n * p.y_batch + c * p.y_channel + z * p.axis[0].y_stride + row * p.axis[1].y_stride;
      for (int64_t first = 0; first < p.axis[2].out; first += kRowPart) {
        const int64_t count = std::min(kRowPart, p.axis[2].out - first);
        std::fill(sum, sum + count, S{});
        for_window_rows(p, x + n * p.x_batch + c * p.x_channel, z, row, [&](const T* from) {
          std::fill(part, part + count, S{});
          fold_row(p.axis[2], from, first, count, part, [](S a, S b) { return a + b; });
          for (int64_t o = 0; o < count; ++o) sum[o] += part[o];
        });
        // Windows inside the image in this row have one divisor.
        int64_t begin = 0, end = 0, last = 0, unused = 0;
        tap_range(p.axis[2], 0, &begin, &unused);
        tap_range(p.axis[2], p.axis[2].kernel - 1, &unused, &end);
        begin = std::max(begin, first), end = std::min(end, first + count);
        for (int64_t o = first; o < first + count; o = last) {
          const int64_t at[3] = {z, row, o};
          const AverageWindow w = average_window(p, divisor, at);
          last = o == begin && begin < end ? end : o + 1;
          for (int64_t k = o; k < last; ++k) to[k * p.axis[2].y_stride] = store_value<T>(average_of(p, w, sum[k - first]));
        }
      }
    }
  });
}

/// Adaptive means of row-major images: windows of a row of outputs are the same for all rows.
template <typename T>
void adaptive_rows(KernelContext& context, const Pool& p, const T* x, T* y) {
  using S = Sum<T>;
  const Axis& across = p.axis[2];
  for_planes(context, p, [&](int64_t n, int64_t c) {
    const T* plane = x + n * p.x_batch + c * p.x_channel;
    int64_t begins[kRowPart], widths[kRowPart];
    S sum[kRowPart];
    for (int64_t first = 0; first < across.out; first += kRowPart) {
      const int64_t count = std::min(kRowPart, across.out - first);
      for (int64_t o = 0; o < count; ++o) {
        begins[o] = p.window_begin(2, first + o);
        widths[o] = p.window_end(2, first + o) - begins[o];
      }
      for (int64_t i = 0; i < p.axis[0].out * p.axis[1].out; ++i) {
        const int64_t z = i / p.axis[1].out, row = i % p.axis[1].out;
        const int64_t z_begin = p.window_begin(0, z), z_end = p.window_end(0, z), row_begin = p.window_begin(1, row), row_end = p.window_end(1, row);
        std::fill(sum, sum + count, S{});
        for (int64_t j = z_begin; j < z_end; ++j) {
          for (int64_t k = row_begin; k < row_end; ++k) {
            const T* line = plane + j * p.axis[0].x_stride + k * p.axis[1].x_stride;
            for (int64_t o = 0; o < count; ++o) {
              const T* from = line + begins[o] * across.x_stride;
              S part{};
              for (int64_t w = 0; w < widths[o]; ++w) part += convert_value<S>(from[w * across.x_stride]);
              sum[o] += part;
            }
          }
        }
        T* to = y + n * p.y_batch + c * p.y_channel + z * p.axis[0].y_stride + row * p.axis[1].y_stride;
        const int64_t rows = (z_end - z_begin) * (row_end - row_begin);
        for (int64_t o = 0; o < count; ++o) {
          const int64_t divisor = rows * widths[o];
          to[(first + o) * across.y_stride] = store_value<T>(divisor == 0 ? S{} : sum[o] / static_cast<S>(divisor));
        }
      }
    }
  });
}

template <typename T>
void average_planes(KernelContext& context, const Pool& p, Divisor divisor, const T* x, T* y) {
  return p.adaptive ? adaptive_rows(context, p, x, y) : average_rows(context, p, divisor, x, y);
}

/// Means of channels-last images.
template <typename T>
void average_pixels(KernelContext& context, const Pool& p, Divisor divisor, const T* x, T* y) {
  using S = Sum<T>;
  for_pixels(context, p, [&](int64_t n, int64_t z, int64_t row, int64_t column, int64_t first, int64_t last) {
    const int64_t at[3] = {z, row, column};
    const AverageWindow w = average_window(p, divisor, at);
    T* const to = y + n * p.y_batch + z * p.axis[0].y_stride + row * p.axis[1].y_stride + column * p.axis[2].y_stride;
    for (int64_t c0 = first; c0 < last; c0 += kChannelBlock) {
      const int64_t count = std::min(kChannelBlock, last - c0);
      S sum[kChannelBlock] = {};
      for (int64_t i = w.begin[0]; i < w.end[0]; ++i) {
        for (int64_t j = w.begin[1]; j < w.end[1]; ++j) {
          S part[kChannelBlock] = {};
          for (int64_t k = w.begin[2]; k < w.end[2]; ++k) {
            const T* from = x + n * p.x_batch + i * p.axis[0].x_stride + j * p.axis[1].x_stride + k * p.axis[2].x_stride + c0;
            for (int64_t c = 0; c < count; ++c) part[c] += convert_value<S>(from[c]);
          }
          for (int64_t c = 0; c < count; ++c) sum[c] += part[c];
        }
      }
      for (int64_t c = 0; c < count; ++c) to[c0 + c] = store_value<T>(average_of(p, w, sum[c]));
    }
  });
}

Status spread(std::string_view name, const IntList& list, int spatial, int64_t lowest, Sizes* out) {
  if (list.size() != 1 && list.size() != static_cast<size_t>(spatial)) {
    return Status(Code::kInvalidInput, str_cat("pool: ", name, " has ", list.size(), " entries for ", spatial, " dims"));
  }
  for (int d = 0; d < spatial; ++d) {
    out->push_back(list[list.size() == 1 ? 0 : static_cast<size_t>(d)]);
    if (out->back() < lowest) return Status(Code::kInvalidInput, str_cat("pool: ", name, " is ", out->back()));
  }
  return ok_status();
}

/// Arguments of a windowed pool; resizes the outs.
Status set_windows(Pool* p, const Tensor& x, const IntList& kernel, const IntList& stride, const IntList& padding, const IntList& dilation, bool ceil_mode,
                   int spatial, Tensor& out, Tensor* indices) {
  if (x.rank() != spatial + 1 && x.rank() != spatial + 2) return bad_rank(x, spatial);
  if (out.dtype() != x.dtype()) return Status(Code::kInvalidInput, str_cat("pool of ", dtype_name(x.dtype()), " into ", dtype_name(out.dtype())));
  Sizes k, s, pad, dil;
  PTERON_TRY(spread("kernel_size", kernel, spatial, 1, &k));
  PTERON_TRY(spread("stride", stride.empty() ? kernel : stride, spatial, 1, &s));
  PTERON_TRY(spread("padding", padding, spatial, 0, &pad));
  PTERON_TRY(spread("dilation", dilation, spatial, 1, &dil));
  const int first = x.rank() - spatial;
  Sizes sizes(x.sizes());
  for (int d = 0; d < spatial; ++d) {
    const auto i = static_cast<size_t>(d);
    int64_t& size = sizes[static_cast<size_t>(first + d)];
    size = window_size(size, k[i], s[i], pad[i], dil[i], ceil_mode);
    if (size < 0) return Status(Code::kInvalidInput, str_cat("pool: input ", shape_text(x.sizes()), " is smaller than the window"));
  }
  PTERON_TRY(resize(out, sizes));
  if (indices != nullptr) PTERON_TRY(resize(*indices, sizes));
  set_planes(p, x, out, indices, spatial);
  for (int d = 0; d < spatial; ++d) {
    const auto i = static_cast<size_t>(d);
    Axis& a = p->axis[3 - spatial + d];
    a.kernel = k[i], a.stride = s[i], a.padding = pad[i], a.dilation = dil[i];
  }
  return ok_status();
}

Status run_max(KernelContext& context, const Pool& p, const Tensor& x, Tensor& out, Tensor* indices) {
  if (indices != nullptr && indices->dtype() != DType::kInt64) return Status(Code::kInvalidInput, "max pool: indices must be int64");
  const bool known = dispatch_real(x.dtype(), [&]<typename T>() {
    if constexpr (std::is_same_v<T, bool>) {
      return;
    } else {
      if (indices == nullptr && channels_last(p)) return max_pixels<T>(context, p, x.as<T>(), out.as<T>());
      max_planes<T>(context, p, x.as<T>(), out.as<T>(), indices != nullptr ? indices->as<int64_t>() : nullptr);
    }
  });
  if (!known || x.dtype() == DType::kBool) return Status(Code::kUnsupported, str_cat("max pool of ", dtype_name(x.dtype())));
  return ok_status();
}

Status run_average(KernelContext& context, const Pool& p, Divisor divisor, const Tensor& x, Tensor& out) {
  bool known = dispatch_floating(x.dtype(), [&]<typename T>() {
    if (channels_last(p)) return average_pixels<T>(context, p, divisor, x.as<T>(), out.as<T>());
    average_planes<T>(context, p, divisor, x.as<T>(), out.as<T>());
  });
  if (!known && is_integral(x.dtype(), false)) {
    known = dispatch_real(x.dtype(), [&]<typename T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) average_planes<T>(context, p, divisor, x.as<T>(), out.as<T>());
    });
  }
  return known ? ok_status() : Status(Code::kUnsupported, str_cat("average pool of ", dtype_name(x.dtype())));
}

template <int spatial>
Status max_pool(KernelContext& context, const Tensor& x, IntList kernel, IntList stride, IntList padding, IntList dilation, bool ceil_mode, Tensor& out) {
  Pool p;
  PTERON_TRY(set_windows(&p, x, kernel, stride, padding, dilation, ceil_mode, spatial, out, nullptr));
  return run_max(context, p, x, out, nullptr);
}

template <int spatial>
Status max_pool_with_indices(KernelContext& context, const Tensor& x, IntList kernel, IntList stride, IntList padding, IntList dilation, bool ceil_mode,
                             Tensor& out, Tensor& indices) {
  Pool p;
  PTERON_TRY(set_windows(&p, x, kernel, stride, padding, dilation, ceil_mode, spatial, out, &indices));
  return run_max(context, p, x, out, &indices);
}

template <int spatial>
Status avg_pool(KernelContext& context, const Tensor& x, IntList kernel, IntList stride, IntList padding, bool ceil_mode, bool count_include_pad,
                std::optional<int64_t> divisor, Tensor& out) {
  if (divisor.has_value() && *divisor == 0) return Status(Code::kInvalidInput, "avg_pool: divisor_override must not be zero");
  Pool p;
  PTERON_TRY(set_windows(&p, x, kernel, stride, padding, IntList{1}, ceil_mode, spatial, out, nullptr));
  return run_average(context, p, {count_include_pad, divisor.value_or(0)}, x, out);
}

Status set_adaptive(Pool* p, const Tensor& x, const IntList& output_size, int spatial, Tensor& out, Tensor* indices) {
  if (out.dtype() != x.dtype()) return Status(Code::kInvalidInput, str_cat("pool of ", dtype_name(x.dtype()), " into ", dtype_name(out.dtype())));
  if (indices != nullptr && indices->dtype() != DType::kInt64) return Status(Code::kInvalidInput, "max pool: indices must be int64");
  if (x.rank() != spatial + 1 && x.rank() != spatial + 2) return bad_rank(x, spatial);
  Sizes to;
  PTERON_TRY(spread("output_size", output_size, spatial, 0, &to));
  Sizes sizes(x.sizes());
  for (int d = 0; d < spatial; ++d) sizes[static_cast<size_t>(x.rank() - spatial + d)] = to[static_cast<size_t>(d)];
  PTERON_TRY(resize(out, sizes));
  if (indices != nullptr) PTERON_TRY(resize(*indices, sizes));
  set_planes(p, x, out, indices, spatial);
  p->adaptive = true;
  return ok_status();
}

template <int spatial>
Status adaptive_avg_pool(KernelContext& context, const Tensor& x, IntList output_size, Tensor& out) {
  Pool p;
  PTERON_TRY(set_adaptive(&p, x, output_size, spatial, out, nullptr));
  return run_average(context, p, {true, 0}, x, out);
}

template <int spatial>
Status adaptive_max_pool(KernelContext& context, const Tensor& x, IntList output_size, Tensor& out, Tensor& indices) {
  Pool p;
  PTERON_TRY(set_adaptive(&p, x, output_size, spatial, out, &indices));
  return run_max(context, p, x, out, &indices);
}

/// Where the window of output o begins on an axis (ATen's generate_intervals); every step rounds to T, as there.
template <typename T>
int64_t fractional_begin(const Axis& a, Value<T> sample, int64_t o) {
  using V = Value<T>;
  if (o + 1 == a.out) return a.in - a.kernel;
  const auto round = [](V v) { return convert_value<V>(store_value<T>(v)); };
  const V alpha = round(round(static_cast<V>(a.in - a.kernel)) / round(static_cast<V>(a.out - 1)));
  return static_cast<int64_t>(round(round(round(static_cast<V>(o)) + sample) * alpha)) - static_cast<int64_t>(round(sample * alpha));
}

/// Samples: [N, C, spatial], for every plane one of each axis. Depth, height, width in volumes; width, then height in images.
template <typename T>
Status fractional_planes(const Pool& p, int spatial, const Tensor& samples, const T* x, T* y, int64_t* indices) {
  using V = Value<T>;
  for (int64_t plane = 0; plane < p.batch * p.channels; ++plane) {
    const int64_t n = plane / p.channels, c = plane % p.channels;
    V sample[3] = {0, 0, 0};
    for (int d = 0; d < spatial; ++d) {
      const int at = spatial == 2 ? 1 - d : d;
      const V v = convert_value<V>(samples.as<T>()[n * samples.stride(0) + c * samples.stride(1) + at * samples.stride(2)]);
      if (!(v >= 0 && v <= 1)) return Status(Code::kInvalidInput, str_cat("fractional_max_pool", spatial, "d: a random sample of ", static_cast<double>(v), ", expected 0 to 1"));
      sample[3 - spatial + d] = v;
    }
    MaxWindow w;
    const auto place = [&](int d, int64_t o) {
      w.begin[d] = fractional_begin<T>(p.axis[d], sample[d], o);
      w.end[d] = w.begin[d] + p.axis[d].kernel;
      w.step[d] = 1;
      return w.begin[d] >= 0 && w.end[d] <= p.axis[d].in;
    };
    bool inside = true;
    for (int64_t i = 0; i < p.axis[0].out; ++i) {
      inside = inside && place(0, i);
      for (int64_t j = 0; j < p.axis[1].out; ++j) {
        inside = inside && place(1, j);
        for (int64_t k = 0; k < p.axis[2].out; ++k) {
          if (!inside || !place(2, k)) return Status(Code::kInvalidInput, str_cat("fractional_max_pool", spatial, "d: a window leaves the input"));
          int64_t where = 0;
          y[n * p.y_batch + c * p.y_channel + i * p.axis[0].y_stride + j * p.axis[1].y_stride + k * p.axis[2].y_stride] =
              store_value<T>(window_max<T>(p, x + n * p.x_batch + c * p.x_channel, w, &where));
          indices[n * p.i_batch + c * p.i_channel + i * p.axis[0].i_stride + j * p.axis[1].i_stride + k * p.axis[2].i_stride] = where;
        }
      }
    }
  }
  return ok_status();
}

template <int spatial>
Status fractional_max_pool(KernelContext&, const Tensor& x, IntList kernel_size, IntList output_size, const Tensor& samples, Tensor& out, Tensor& indices) {
  Pool p;
  PTERON_TRY(set_adaptive(&p, x, output_size, spatial, out, &indices));
  Sizes kernel;
  PTERON_TRY(spread("kernel_size", kernel_size, spatial, 1, &kernel));
  for (int d = 0; d < spatial; ++d) {
    Axis& a = p.axis[3 - spatial + d];
    a.kernel = kernel[static_cast<size_t>(d)];
    if (a.kernel < 1 || a.out < 0 || a.out + a.kernel - 1 > a.in) {
      return Status(Code::kInvalidInput, str_cat("fractional_max_pool", spatial, "d: ", a.out, " windows of ", a.kernel, " in an input of ", a.in));
    }
  }
  if (samples.dtype() != x.dtype() || samples.rank() != 3 || samples.size(0) < p.batch || samples.size(1) != p.channels || samples.size(2) != spatial) {
    return Status(Code::kInvalidInput, str_cat("fractional_max_pool", spatial, "d: random samples ", dtype_name(samples.dtype()), " ", shape_text(samples.sizes())));
  }
  if (out.dtype() != x.dtype() || indices.dtype() != DType::kInt64) {
    return Status(Code::kInvalidInput, str_cat("fractional_max_pool", spatial, "d of ", dtype_name(x.dtype()), ": results of ", dtype_name(out.dtype()), " and ", dtype_name(indices.dtype())));
  }
  Status status;
  const bool known = dispatch_floating(
      x.dtype(), [&]<typename T>() { status = fractional_planes<T>(p, spatial, samples, x.as<T>(), out.as<T>(), indices.as<int64_t>()); });
  return known ? std::move(status) : Status(Code::kUnsupported, str_cat("fractional_max_pool", spatial, "d of ", dtype_name(x.dtype())));
}

/// y = 0, then y[indices] = x in every plane.
template <typename T>
Status unpool(const Pool& p, const T* x, const int64_t* indices, T* y) {
  const int64_t outs = p.axis[0].out * p.axis[1].out * p.axis[2].out;
  const auto out_offset = [&](int64_t o) {
    return o / (p.axis[1].out * p.axis[2].out) * p.axis[0].y_stride + o / p.axis[2].out % p.axis[1].out * p.axis[1].y_stride + o % p.axis[2].out * p.axis[2].y_stride;
  };
  const auto is_dense = [&](int64_t z, int64_t row, int64_t column, bool out) {
    const int64_t across = out ? p.axis[2].out : p.axis[2].in, down = out ? p.axis[1].out : p.axis[1].in, deep = out ? p.axis[0].out : p.axis[0].in;
    return (column == 1 || across == 1) && (row == across || down == 1) && (z == across * down || deep == 1);
  };
  const bool dense = is_dense(p.axis[0].y_stride, p.axis[1].y_stride, p.axis[2].y_stride, true);
  const bool dense_in = is_dense(p.axis[0].x_stride, p.axis[1].x_stride, p.axis[2].x_stride, false) && is_dense(p.axis[0].i_stride, p.axis[1].i_stride, p.axis[2].i_stride, false);
  for (int64_t plane = 0; plane < p.batch * p.channels; ++plane) {
    const int64_t n = plane / p.channels, c = plane % p.channels;
    T* to = y + n * p.y_batch + c * p.y_channel;
    if (dense) std::fill(to, to + outs, T{});
    for (int64_t o = 0; o < outs && !dense; ++o) to[out_offset(o)] = T{};
    if (dense && dense_in) {
      const int64_t* places = indices + n * p.i_batch + c * p.i_channel;
      const T* from = x + n * p.x_batch + c * p.x_channel;
      const int64_t count = p.axis[0].in * p.axis[1].in * p.axis[2].in;
      for (int64_t i = 0; i < count; ++i) {
        if (places[i] < 0 || places[i] >= outs) return Status(Code::kInvalidInput, str_cat("max_unpool: index ", places[i], " is outside [0,", outs, ")"));
        to[places[i]] = from[i];
      }
      continue;
    }
    for (int64_t i = 0; i < p.axis[0].in * p.axis[1].in * p.axis[2].in; ++i) {
      const int64_t z = i / (p.axis[1].in * p.axis[2].in), r = i / p.axis[2].in % p.axis[1].in, q = i % p.axis[2].in;
      const int64_t where =
          indices[n * p.i_batch + c * p.i_channel + z * p.axis[0].i_stride + r * p.axis[1].i_stride + q * p.axis[2].i_stride];
      if (where < 0 || where >= outs) return Status(Code::kInvalidInput, str_cat("max_unpool: index ", where, " is outside [0,", outs, ")"));
      to[out_offset(where)] = x[n * p.x_batch + c * p.x_channel + z * p.axis[0].x_stride + r * p.axis[1].x_stride + q * p.axis[2].x_stride];
    }
  }
  return ok_status();
}

Status run_unpool(const Tensor& x, const Tensor& indices, const IntList& output_size, int spatial, Tensor& out) {
  if (x.rank() != spatial + 1 && x.rank() != spatial + 2) return bad_rank(x, spatial);
  if (indices.dtype() != DType::kInt64 || !std::equal(x.sizes().begin(), x.sizes().end(), indices.sizes().begin(), indices.sizes().end())) {
    return Status(Code::kInvalidInput, str_cat("max_unpool: indices ", shape_text(indices.sizes()), " for input ", shape_text(x.sizes())));
  }
  Pool p;
  PTERON_TRY(set_adaptive(&p, x, output_size, spatial, out, nullptr));
  set_planes(&p, x, out, &indices, spatial);
  Status status;
  const bool known = dispatch_size(dtype_size(x.dtype()), [&]<typename T>() { status = unpool<T>(p, x.as<T>(), indices.as<int64_t>(), out.as<T>()); });
  return known ? std::move(status) : Status(Code::kUnsupported, str_cat("max_unpool of ", dtype_name(x.dtype())));
}

Status max_unpool2d(KernelContext&, const Tensor& x, const Tensor& indices, IntList output_size, Tensor& out) {
  return run_unpool(x, indices, output_size, 2, out);
}
Status max_unpool3d(KernelContext&, const Tensor& x, const Tensor& indices, IntList output_size, IntList, IntList, Tensor& out) {
  return run_unpool(x, indices, output_size, 3, out);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_adaptive_avg_pool2d.out", PTERON_KERNEL(adaptive_avg_pool<2>)},
    {"aten::_adaptive_avg_pool3d.out", PTERON_KERNEL(adaptive_avg_pool<3>)},
    {"aten::adaptive_max_pool2d.out", PTERON_KERNEL(adaptive_max_pool<2>)},
    {"aten::adaptive_max_pool3d.out", PTERON_KERNEL(adaptive_max_pool<3>)},
    {"aten::avg_pool2d.out", PTERON_KERNEL(avg_pool<2>)},
    {"aten::avg_pool3d.out", PTERON_KERNEL(avg_pool<3>)},
    {"aten::fractional_max_pool2d.output", PTERON_KERNEL(fractional_max_pool<2>)},
    {"aten::fractional_max_pool3d.output", PTERON_KERNEL(fractional_max_pool<3>)},
    {"aten::max_pool2d_with_indices.out", PTERON_KERNEL(max_pool_with_indices<2>)},
    {"aten::max_pool3d_with_indices.out", PTERON_KERNEL(max_pool_with_indices<3>)},
    {"aten::max_unpool2d.out", PTERON_KERNEL(max_unpool2d)},
    {"aten::max_unpool3d.out", PTERON_KERNEL(max_unpool3d)},
    {"pteron::max_pool1d.out", PTERON_KERNEL(max_pool<1>)},
    {"pteron::max_pool2d.out", PTERON_KERNEL(max_pool<2>)},
    {"pteron::max_pool3d.out", PTERON_KERNEL(max_pool<3>)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::pool
