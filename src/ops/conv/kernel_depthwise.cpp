// Convolution with one input channel per group: channel-first as sums of shifted rows of a padded plane, channels-last as sums over taps of
// channel vectors. Table and choice: kernel.cpp.
#include <hwy/highway.h>

#include <algorithm>

#include "base/checked_math.h"
#include "ops/conv/image.h"
#include "ops/conv/kernels.h"
#include "ops/gemm.h"

namespace pteron::ops::conv {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using runtime::KernelContext;

template <typename C>
inline constexpr bool kVector = std::is_same_v<C, float> || std::is_same_v<C, double>;

/// to[i] = bias + sum_t weights[t] * from[offsets[t] + i] for i < count. May read a vector past the end.
template <typename C>
void sum_rows(const C* from, const int64_t* offsets, const C* weights, int64_t taps, C bias, C* to, int64_t count) {
  if constexpr (kVector<C>) {
    const hn::CappedTag<C, 32 / sizeof(C)> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      auto s0 = hn::Set(d, bias), s1 = s0, s2 = s0, s3 = s0;
      for (int64_t t = 0; t < taps; ++t) {
        const auto w = hn::Set(d, weights[t]);
        const C* p = from + offsets[t] + i;
        s0 = hn::MulAdd(w, hn::LoadU(d, p), s0);
        s1 = hn::MulAdd(w, hn::LoadU(d, p + lanes), s1);
        s2 = hn::MulAdd(w, hn::LoadU(d, p + 2 * lanes), s2);
        s3 = hn::MulAdd(w, hn::LoadU(d, p + 3 * lanes), s3);
      }
      hn::StoreU(s0, d, to + i);
      hn::StoreU(s1, d, to + i + lanes);
      hn::StoreU(s2, d, to + i + 2 * lanes);
      hn::StoreU(s3, d, to + i + 3 * lanes);
    }
    for (; i < count; i += lanes) {
      auto s = hn::Set(d, bias);
      for (int64_t t = 0; t < taps; ++t) s = hn::MulAdd(hn::Set(d, weights[t]), hn::LoadU(d, from + offsets[t] + i), s);
      if (i + lanes <= count) {
        hn::StoreU(s, d, to + i);
        continue;
      }
      C last[32 / sizeof(C)];
      hn::StoreU(s, d, last);
      std::copy(last, last + (count - i), to + i);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      C sum = bias;
      for (int64_t t = 0; t < taps; ++t) sum += weights[t] * from[offsets[t] + i];
      to[i] = sum;
    }
  }
}

/// Scratch of one thread.
struct Slot {
  size_t plane, offsets, weights, row, bytes;
};
Slot slot_of(DType dtype, const Geometry& g, const Image& m) {
  Slot s{};
  const size_t element = compute_size(dtype);
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t here = at;
    at = align_up(at + bytes, 64);
    return here;
  };
  s.plane = place(static_cast<size_t>(m.elements) * element + kSlackBytes);
  s.offsets = place(static_cast<size_t>(g.taps()) * 8);
  s.weights = place(static_cast<size_t>(g.taps()) * element);
  s.row = place(static_cast<size_t>(g.axis[2].out) * element + kSlackBytes);
  s.bytes = at;
  return s;
}

template <typename T>
struct Planes {
  using C = Compute<T>;
  const Geometry& g;
  const Operands& o;
  const Image& m;

  /// All outputs of one input channel of one image.
  void run(int64_t image, int64_t channel, const Slot& slot, std::byte* scratch) const {
    C* plane = reinterpret_cast<C*>(scratch + slot.plane);
    auto* offsets = reinterpret_cast<int64_t*>(scratch + slot.offsets);
    C* weights = reinterpret_cast<C*>(scratch + slot.weights);
    fill_plane<C, T>(g, m, static_cast<const T*>(o.x) + image * g.x_batch + channel * g.x_channel, plane);
    for (int64_t k = 0; k < g.group_out; ++k) {
      const T* w = static_cast<const T*>(o.w) + channel * g.w_group + k * g.w_out;
      int64_t t = 0;
      for (int64_t z = 0; z < g.axis[0].taps; ++z) {
        for (int64_t y = 0; y < g.axis[1].taps; ++y) {
          for (int64_t x = 0; x < g.axis[2].taps; ++x, ++t) {
            offsets[t] = tap_offset(g, m, z, y, x);
            weights[t] = convert_value<C>(w[weight_offset(g, z, y, x)]);
          }
        }
      }
      const int64_t out = channel * g.group_out + k;
      const C bias = o.bias == nullptr ? C{} : convert_value<C>(static_cast<const T*>(o.bias)[out * g.bias_stride]);
      T* y = static_cast<T*>(o.y) + image * g.y_batch + out * g.y_channel + g.y_offset();
      rows(plane, offsets, weights, bias, y, reinterpret_cast<C*>(scratch + slot.row));
    }
  }

  void rows(const C* plane, const int64_t* offsets, const C* weights, C bias, T* y, C* row) const {
    const int64_t count = g.axis[2].out, step = g.axis[2].y_stride;
    for (int64_t z = 0; z < g.axis[0].out; ++z) {
      for (int64_t r = 0; r < g.axis[1].out; ++r) {
        T* to = y + z * g.axis[0].y_stride + r * g.axis[1].y_stride;
        const C* from = plane + z * m.pixel[0] + r * m.pixel[1];
        if constexpr (std::is_same_v<T, C>) {
          if (step == 1) {
            sum_rows(from, offsets, weights, g.taps(), bias, to, count);
            continue;
          }
        }
        sum_rows(from, offsets, weights, g.taps(), bias, row, count);
        for (int64_t i = 0; i < count; ++i) to[i * step] = store_value<T>(row[i]);
      }
    }
  }
};

template <typename T>
void run_planes(KernelContext& context, const Geometry& g, const Operands& o) {
  const Image m = image_of(g, 1, false);
  const Slot slot = slot_of(o.dtype, g, m);
  const Planes<T> planes{g, o, m};
  const int64_t count = g.batch * g.groups;
  const int64_t slots = std::clamp<int64_t>(static_cast<int64_t>(context.scratch.size() / slot.bytes), 1, context.pool->thread_count());
  const int64_t work = count * g.pixels() * g.group_out * g.taps();
  const int64_t parts = std::clamp<int64_t>(work / 65536, 1, std::min(slots, count));
  const int64_t each = ceil_div(count, parts);
  context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = part * each; i < std::min(count, (part + 1) * each); ++i) {
        planes.run(i / g.groups, i % g.groups, slot, context.scratch.data() + static_cast<size_t>(part) * slot.bytes);
      }
    }
  });
}

// Taps of one output that lie inside the image, for the channels-last form.
constexpr int64_t kMaxTaps = 64;

template <typename C>
struct Inside {
  const C* x[kMaxTaps];
  const C* w[kMaxTaps];
  int64_t count = 0;
};

template <typename C>
void sum_channels(const Inside<C>& taps, const C* bias, C* to, int64_t channels) {
  const hn::CappedTag<C, 32 / sizeof(C)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    auto s0 = hn::LoadU(d, bias + c), s1 = hn::LoadU(d, bias + c + lanes), s2 = hn::LoadU(d, bias + c + 2 * lanes), s3 = hn::LoadU(d, bias + c + 3 * lanes);
    for (int64_t t = 0; t < taps.count; ++t) {
      const C* x = taps.x[t] + c;
      const C* w = taps.w[t] + c;
      s0 = hn::MulAdd(hn::LoadU(d, x), hn::LoadU(d, w), s0);
      s1 = hn::MulAdd(hn::LoadU(d, x + lanes), hn::LoadU(d, w + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, x + 2 * lanes), hn::LoadU(d, w + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, x + 3 * lanes), hn::LoadU(d, w + 3 * lanes), s3);
    }
    hn::StoreU(s0, d, to + c);
    hn::StoreU(s1, d, to + c + lanes);
    hn::StoreU(s2, d, to + c + 2 * lanes);
    hn::StoreU(s3, d, to + c + 3 * lanes);
  }
  for (; c + lanes <= channels; c += lanes) {
    auto s = hn::LoadU(d, bias + c);
    for (int64_t t = 0; t < taps.count; ++t) s = hn::MulAdd(hn::LoadU(d, taps.x[t] + c), hn::LoadU(d, taps.w[t] + c), s);
    hn::StoreU(s, d, to + c);
  }
  for (; c < channels; ++c) {
    C s = bias[c];
    for (int64_t t = 0; t < taps.count; ++t) s += taps.x[t][c] * taps.w[t][c];
    to[c] = s;
  }
}

template <typename C>
bool run_channels_last(KernelContext& context, const Geometry& g, const Operands& o) {
  const bool fits = g.group_out == 1 && g.groups >= 8 && g.x_channel == 1 && g.y_channel == 1 && g.taps() <= kMaxTaps;
  if (!fits) return false;
  const int64_t channels = g.groups, taps = g.taps();
  C* weights = reinterpret_cast<C*>(context.scratch.data());  // [taps, channels], then the bias
  C* bias = weights + taps * channels;
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t x = t % g.axis[2].taps, y = t / g.axis[2].taps % g.axis[1].taps, z = t / g.axis[2].taps / g.axis[1].taps;
    const C* from = static_cast<const C*>(o.w) + weight_offset(g, z, y, x);
    for (int64_t c = 0; c < channels; ++c) weights[t * channels + c] = from[c * g.w_group];
  }
  for (int64_t c = 0; c < channels; ++c) bias[c] = o.bias == nullptr ? C{} : static_cast<const C*>(o.bias)[c * g.bias_stride];
  const auto rows = [&](int64_t begin, int64_t end) {
    Inside<C> inside_taps;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t r = row % g.axis[1].out, z = row / g.axis[1].out % g.axis[0].out, image = row / g.axis[1].out / g.axis[0].out;
      const C* x = static_cast<const C*>(o.x) + image * g.x_batch;
      C* to = static_cast<C*>(o.y) + image * g.y_batch + g.y_offset() + z * g.axis[0].y_stride + r * g.axis[1].y_stride;
      const int64_t at[2] = {z, r};
      for (int64_t q = 0; q < g.axis[2].out; ++q, to += g.axis[2].y_stride) {
        inside_taps.count = 0;
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t tap[3] = {t / g.axis[2].taps / g.axis[1].taps, t / g.axis[2].taps % g.axis[1].taps, t % g.axis[2].taps};
          int64_t offset = 0;
          bool in = true;
          for (size_t d = 0; d < 3; ++d) {
            const Axis& a = g.axis[d];
            const int64_t pos = (d < 2 ? at[d] : q) * a.step + a.shift0 + tap[d] * a.shift_step;
            in = in && pos >= 0 && pos < a.in;
            offset += pos * a.x_stride;
          }
          if (!in) continue;
          inside_taps.x[inside_taps.count] = x + offset;
          inside_taps.w[inside_taps.count++] = weights + t * channels;
        }
        sum_channels(inside_taps, bias, to, channels);
      }
    }
  };
  const int64_t row_work = std::max<int64_t>(g.axis[2].out * taps * channels, 1);
  context.pool->parallel_for(g.batch * g.axis[0].out * g.axis[1].out, std::max<int64_t>(65536 / row_work, 1), rows);
  return true;
}

}  // namespace

void depthwise_pass(KernelContext& context, const Geometry& g, const Operands& o) {
  if (o.dtype == DType::kFloat32 && run_channels_last<float>(context, g, o)) return;
  if (o.dtype == DType::kFloat64 && run_channels_last<double>(context, g, o)) return;
  dispatch_real(o.dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) run_planes<T>(context, g, o);
  });
}

size_t depthwise_workspace(DType dtype, const Geometry& g) {
  const size_t slots = slot_of(dtype, g, image_of(g, 1, false)).bytes * static_cast<size_t>(std::clamp(usable_cpu_count(), 1, 64));
  const size_t weights = static_cast<size_t>((g.taps() + 1) * g.groups) * compute_size(dtype);
  return std::max(slots, weights);
}

}  // namespace pteron::ops::conv
