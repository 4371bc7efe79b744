// The loops over rows in Highway: compiled for the baseline and for AVX-512, chosen at run time.
#include "backends/cpu/runtime/row_ops.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/runtime/row_ops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/runtime/math-inl.h"
#include "backends/cpu/runtime/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
/// Calls f(i, load, store) for every vector of a row: load(p) reads at p + i, store(v, p) writes there, both only what exists.
template <class F>
HWY_INLINE void each_vector(int64_t n, F f) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    f(i, [&](const float* p) { return hn::LoadU(d, p + i); }, [&](V v, float* p) { hn::StoreU(v, d, p + i); });
  }
  if (i == n) return;
  const auto left = static_cast<size_t>(n - i);
  f(i, [&](const float* p) { return vm::load_first(d, p + i, left); }, [&](V v, float* p) { vm::store_first(v, d, p + i, left); });
}

/// Sum over a row of term(x); missing elements count as `term` of nothing.
template <class F>
HWY_INLINE float sum_of(const float* x, int64_t n, F term) {
  const D d;
  V acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    PTERON_UNROLL
    for (int u = 0; u < 4; ++u) acc[u] = term(hn::LoadU(d, x + i + u * kLanes), acc[u]);
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = term(hn::LoadU(d, x + i), acc[0]);
  if (i < n) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    acc[1] = hn::IfThenElse(mask, term(hn::MaskedLoad(mask, d, x + i), acc[1]), acc[1]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3]))));
}

float top_of(const float* x, int64_t n) {
  const D d;
  const V low = hn::Neg(hn::Inf(d));
  V top[4] = {low, low, low, low};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    PTERON_UNROLL
    for (int u = 0; u < 4; ++u) top[u] = hn::Max(hn::LoadU(d, x + i + u * kLanes), top[u]);
  }
  for (; i + kLanes <= n; i += kLanes) top[0] = hn::Max(hn::LoadU(d, x + i), top[0]);
  if (i < n) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    top[1] = hn::Max(hn::IfThenElse(mask, hn::MaskedLoad(mask, d, x + i), low), top[1]);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3]))));
}

void softmax(const float* x, float* y, int64_t n, bool log) {
  const D d;
  // NaN is not found here; it comes back through the exponentials.
  const V top = hn::Set(d, top_of(x, n));
  if (log) {
    const float sum = sum_of(x, n, [&](V v, V acc) { return hn::Add(acc, vm::exp_of_negative(d, hn::Sub(v, top))); });
    const V rest = hn::Set(d, std::log(sum));
    each_vector(n, [&](int64_t, auto load, auto store) { store(hn::Sub(hn::Sub(load(x), top), rest), y); });
    return;
  }
  V sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V e = vm::exp_of_negative(d, hn::Sub(hn::LoadU(d, x + i), top));
    hn::StoreU(e, d, y + i);
    sums = hn::Add(sums, e);
  }
  if (i < n) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
    const V e = hn::IfThenElseZero(mask, vm::exp_of_negative(d, hn::Sub(hn::MaskedLoad(mask, d, x + i), top)));
    hn::BlendedStore(e, mask, d, y + i);
    sums = hn::Add(sums, e);
  }
  const V scale = hn::Div(hn::Set(d, 1.0f), hn::SumOfLanes(d, sums));
  each_vector(n, [&](int64_t, auto load, auto store) { store(hn::Mul(load(y), scale), y); });
}

void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t n, float eps, float* mean_out, float* rstd_out) {
  const D d;
  const float count = static_cast<float>(n);
  const float mean = sum_of(x, n, [](V v, V acc) { return hn::Add(acc, v); }) / count;
  const V m = hn::Set(d, mean);
  const float spread = sum_of(x, n, [&](V v, V acc) {
    const V t = hn::Sub(v, m);
    return hn::MulAdd(t, t, acc);
  });
  const float rstd = 1.0f / std::sqrt(spread / count + eps);
  const V s = hn::Set(d, rstd);
  *mean_out = mean;
  *rstd_out = rstd;
  if (weight != nullptr && bias != nullptr) {
    each_vector(n, [&](int64_t, auto load, auto store) { store(hn::MulAdd(hn::Mul(hn::Sub(load(x), m), s), load(weight), load(bias)), y); });
    return;
  }
  each_vector(n, [&](int64_t, auto load, auto store) {
    V v = hn::Mul(hn::Sub(load(x), m), s);
    if (weight != nullptr) v = hn::Mul(v, load(weight));
    if (bias != nullptr) v = hn::Add(v, load(bias));
    store(v, y);
  });
}

void rms_norm(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const D d;
  const float square = sum_of(x, n, [](V v, V acc) { return hn::MulAdd(v, v, acc); });
  const V s = hn::Set(d, 1.0f / std::sqrt(square / static_cast<float>(n) + eps));
  each_vector(n, [&](int64_t, auto load, auto store) {
    V v = hn::Mul(load(x), s);
    if (weight != nullptr) v = hn::Mul(v, load(weight));
    store(v, y);
  });
}

/// In blocks that stay in the first-level cache: each is read twice there, and joined to those before in double.
void moments(const float* x, int64_t n, double* mean, double* spread) {
  constexpr int64_t kBlock = 4096;
  const D d;
  double center = 0, squares = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = n - i < kBlock ? n - i : kBlock;
    const float own = sum_of(x + i, m, [](V v, V acc) { return hn::Add(acc, v); }) / static_cast<float>(m);
    const V c = hn::Set(d, own);
    const float own_squares = sum_of(x + i, m, [&](V v, V acc) {
      const V t = hn::Sub(v, c);
      return hn::MulAdd(t, t, acc);
    });
    const double step = static_cast<double>(own) - center, share = static_cast<double>(m) / static_cast<double>(i + m);
    squares += static_cast<double>(own_squares) + step * step * static_cast<double>(i) * share;
    center += step * share;
  }
  *mean = center;
  *spread = squares;
}

void affine(const float* x, float* y, int64_t n, float center, float factor, float shift) {
  const D d;
  const V c = hn::Set(d, center), f = hn::Set(d, factor), s = hn::Set(d, shift);
  each_vector(n, [&](int64_t, auto load, auto store) { store(hn::MulAdd(hn::Sub(load(x), c), f, s), y); });
}

void column_sums(const float* x, int64_t row, int64_t rows, int64_t n, const float* center, float* out) {
  const D d;
  each_vector(n, [&](int64_t, auto load, auto store) {
    V a = hn::Zero(d), b = hn::Zero(d);
    const V c = center != nullptr ? load(center) : hn::Zero(d);
    const auto term = [&](int64_t r, V acc) {
      const V v = hn::Sub(load(x + r * row), c);
      return center != nullptr ? hn::MulAdd(v, v, acc) : hn::Add(v, acc);
    };
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2) {
      a = term(r, a);
      b = term(r + 1, b);
    }
    if (r < rows) a = term(r, a);
    store(hn::Add(a, b), out);
  });
}

void column_affine(const float* x, float* y, int64_t n, const float* center, const float* factor, const float* shift) {
  each_vector(n, [&](int64_t, auto load, auto store) { store(hn::MulAdd(hn::Sub(load(x), load(center)), load(factor), load(shift)), y); });
}

inline constexpr int kPanelVectors = 8;

void product(const float* panels, int64_t count, int64_t depth, const float* x, const float* init, float* out) {
  const D d;
  constexpr int64_t kWidth = kPanelVectors * kLanes;
  for (int64_t p = 0; p < count; ++p, panels += depth * kWidth, out += kWidth) {
    V acc[kPanelVectors];
    PTERON_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) acc[v] = init != nullptr ? hn::LoadU(d, init + p * kWidth + v * kLanes) : hn::Zero(d);
    const float* row = panels;
    for (int64_t k = 0; k < depth; ++k, row += kWidth) {
      const V s = hn::Set(d, x[k]);
      PTERON_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) acc[v] = hn::MulAdd(s, hn::LoadU(d, row + v * kLanes), acc[v]);
    }
    PTERON_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) hn::StoreU(acc[v], d, out + v * kLanes);
  }
}

void lstm(const float* gates, float* cell, float* hidden, int64_t n) {
  const D d;
  each_vector(n, [&](int64_t, auto load, auto store) {
    const V in = vm::sigmoid(d, load(gates)), forget = vm::sigmoid(d, load(gates + n));
    const V fresh = vm::tanh(d, load(gates + 2 * n)), shown = vm::sigmoid(d, load(gates + 3 * n));
    const V c = hn::MulAdd(forget, load(cell), hn::Mul(in, fresh));
    store(c, cell);
    store(hn::Mul(shown, vm::tanh(d, c)), hidden);
  });
}

void gru(const float* x, const float* h, const float* before, float* hidden, int64_t n) {
  const D d;
  each_vector(n, [&](int64_t, auto load, auto store) {
    const V reset = vm::sigmoid(d, hn::Add(load(x), load(h)));
    const V keep = vm::sigmoid(d, hn::Add(load(x + n), load(h + n)));
    const V fresh = vm::tanh(d, hn::MulAdd(reset, load(h + 2 * n), load(x + 2 * n)));
    store(hn::MulAdd(hn::Sub(load(before), fresh), keep, fresh), hidden);
  });
}

RowSet make_rows() { return {softmax, layer_norm, rms_norm, moments, affine, column_sums, column_affine, kPanelVectors * kLanes, product, lstm, gru}; }

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::cpu {
const RowSet& row_set() {
  static const RowSet set = PTERON_HWY_CALL(make_rows);
  return set;
}
}  // namespace pteron::cpu
#endif
