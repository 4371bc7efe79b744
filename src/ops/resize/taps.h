// Where each output of a resized dim reads: indexes and weights per output, for every method, with ATen's arithmetic.
// Used by both halves of this room: the kernels and op_portable.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace pteron::ops::resize {

enum class Method : uint8_t { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };

constexpr bool is_antialias(Method m) { return m == Method::kLinearAntialias || m == Method::kCubicAntialias; }

/// One resized dim. R is float, or double for double tensors.
template <typename R>
struct Dim {
  int64_t in = 1, out = 1;
  bool align_corners = false;
  std::optional<double> scale;

  /// Input steps per output step.
  R ratio() const {
    if (align_corners) return out > 1 ? static_cast<R>(in - 1) / static_cast<R>(out - 1) : R{0};
    if (scale.has_value() && *scale > 0) return static_cast<R>(1.0 / *scale);
    return static_cast<R>(in) / static_cast<R>(out);
  }
  R source(R step, int64_t o, bool cubic) const {
    if (align_corners) return step * static_cast<R>(o);
    const R s = step * (static_cast<R>(o) + static_cast<R>(0.5)) - static_cast<R>(0.5);
    return !cubic && s < 0 ? R{0} : s;
  }
};

/// Cubic convolution with the parameter a, at distances |x| <= 1 and 1 < |x| < 2.
template <typename R>
R cubic_near(R x, R a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <typename R>
R cubic_far(R x, R a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

template <typename R>
R antialias_filter(Method m, R x) {
  x = std::abs(x);
  if (m == Method::kLinearAntialias) return x < 1 ? 1 - x : R{0};
  constexpr R kA = static_cast<R>(-0.5);  // the filter that antialiased cubic resizes use; plain ones use -0.75
  if (x < 1) return cubic_near(x, kA);
  return x < 2 ? cubic_far(x, kA) : R{0};
}

/// Most indexes that one output reads.
template <typename R>
int64_t tap_count(const Dim<R>& d, Method m) {
  if (m == Method::kNearest || m == Method::kNearestExact) return 1;
  if (m == Method::kLinear) return 2;
  if (m == Method::kCubic) return 4;
  const R half = (m == Method::kLinearAntialias ? R{2} : R{4}) * static_cast<R>(0.5);
  const R ratio = d.ratio();
  return static_cast<int64_t>(std::ceil(ratio >= 1 ? half * ratio : half)) * 2 + 1;
}

/// Index read by output `o` of a nearest resize.
template <typename R>
int64_t nearest_index(const Dim<R>& d, Method m, R ratio, int64_t o) {
  // floorf on purpose, also for double: ATen rounds the position to float first.
  const float at = m == Method::kNearest ? static_cast<float>(ratio * static_cast<R>(o))
                                         : static_cast<float>(static_cast<double>(d.source(ratio, o, false)) + 0.5);
  return std::min(static_cast<int64_t>(std::floor(at)), d.in - 1);
}

/// Indexes and weights of every output: taps of output o at [o * count, (o + 1) * count). Unused taps repeat an index with weight 0.
template <typename R>
void fill_taps(const Dim<R>& d, Method m, int64_t count, int64_t* index, R* weight) {
  const R ratio = d.ratio();
  for (int64_t o = 0; o < d.out; ++o, index += count, weight += count) {
    if (m == Method::kLinear) {
      if (d.in == d.out) {
        index[0] = index[1] = o;
        weight[0] = 1, weight[1] = 0;
        continue;
      }
      const R s = d.source(ratio, o, false);
      index[0] = std::min(static_cast<int64_t>(std::floor(static_cast<float>(s))), d.in - 1);
      index[1] = index[0] + (index[0] < d.in - 1 ? 1 : 0);
      weight[1] = std::clamp(s - static_cast<R>(index[0]), R{0}, R{1});
      weight[0] = 1 - weight[1];
    } else if (m == Method::kCubic) {
      const R s = d.source(ratio, o, true);
      const int64_t first = std::min(static_cast<int64_t>(std::floor(static_cast<float>(s))), d.in - 1);
      const R t = std::clamp(s - static_cast<R>(first), R{0}, R{1}), u = 1 - t;
      constexpr R kA = static_cast<R>(-0.75);
      weight[0] = cubic_far(t + 1, kA), weight[1] = cubic_near(t, kA), weight[2] = cubic_near(u, kA), weight[3] = cubic_far(u + 1, kA);
      for (int64_t j = 0; j < 4; ++j) index[j] = std::clamp<int64_t>(first - 1 + j, 0, d.in - 1);
    } else if (is_antialias(m)) {
      const R half = (m == Method::kLinearAntialias ? R{2} : R{4}) * static_cast<R>(0.5);
      const R support = ratio >= 1 ? half * ratio : half, inverse = ratio >= 1 ? 1 / ratio : R{1};
      const R center = ratio * (static_cast<R>(o) + static_cast<R>(0.5));
      const int64_t first = std::max(static_cast<int64_t>(center - support + static_cast<R>(0.5)), int64_t{0});
      const int64_t last = std::min(static_cast<int64_t>(center + support + static_cast<R>(0.5)), d.in);
      const int64_t used = std::clamp(last - first, int64_t{0}, count);
      R total = 0;
      for (int64_t j = 0; j < used; ++j) {
        index[j] = first + j;
        weight[j] = antialias_filter(m, (static_cast<R>(j + first) - center + static_cast<R>(0.5)) * inverse);
        total += weight[j];
      }
      for (int64_t j = 0; j < used && total != 0; ++j) weight[j] /= total;
      for (int64_t j = used; j < count; ++j) index[j] = std::min(first, d.in - 1), weight[j] = 0;
    } else {
      index[0] = nearest_index(d, m, ratio, o);
      weight[0] = 1;
    }
  }
}

}  // namespace pteron::ops::resize
