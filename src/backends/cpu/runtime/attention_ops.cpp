// The inner loops of attention in Highway: compiled for the baseline and for AVX-512, chosen at run time.
#include "backends/cpu/runtime/attention_ops.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/runtime/attention_ops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/runtime/math-inl.h"
#include "backends/cpu/runtime/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
inline constexpr int kQueries = 2 * kLanes;

// Two vectors a row: 6 keys or 4 queries in 16 registers, twice as many in 32.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
inline constexpr int kKeyRows = 6;
inline constexpr int kValueRows = 4;
#else
inline constexpr int kKeyRows = 12;
inline constexpr int kValueRows = 8;
#endif

template <int kRows, int kVectors>
void score_tile(const AttentionBlock& b, int64_t key) {
  const D d;
  V acc[kRows][kVectors];
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::Zero(d);
  }
  const float* rows[kRows];
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) rows[i] = b.keys + (key + i) * b.key_row;
  const float* HWY_RESTRICT panel = b.panel;
  for (int64_t k = 0; k < b.width; ++k, panel += kQueries) {
    V q[kVectors];
    for (int v = 0; v < kVectors; ++v) q[v] = hn::LoadU(d, panel + v * kLanes);
    PTERON_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, rows[i][k]);
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::MulAdd(x, q[v], acc[i][v]);
    }
  }
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[i][v], d, b.scores + (key + i) * kQueries + v * kLanes);
  }
}

template <int kRows, int kVectors>
void score_rest(const AttentionBlock& b, int64_t key, int64_t rows) {
  if (rows == kRows) return score_tile<kRows, kVectors>(b, key);
  if constexpr (kRows > 1) score_rest<kRows - 1, kVectors>(b, key, rows);
}

template <int kVectors>
void scores_of(const AttentionBlock& b) {
  int64_t key = 0;
  for (; key + kKeyRows <= b.count; key += kKeyRows) score_tile<kKeyRows, kVectors>(b, key);
  if (key < b.count) score_rest<kKeyRows - 1, kVectors>(b, key, b.count - key);
}
void scores(const AttentionBlock& b) { b.vectors == 1 ? scores_of<1>(b) : scores_of<2>(b); }

void add_masks(const AttentionBlock& b, const float* row_mask, const float* block_mask) {
  const D d;
  for (int64_t j = 0; j < b.count; ++j) {
    for (int v = 0; v < b.vectors; ++v) {
      float* at = b.scores + j * kQueries + v * kLanes;
      V s = hn::LoadU(d, at);
      if (row_mask != nullptr) s = hn::Add(s, hn::Set(d, row_mask[j]));
      if (block_mask != nullptr) s = hn::Add(s, hn::LoadU(d, block_mask + j * kQueries + v * kLanes));
      hn::StoreU(s, d, at);
    }
  }
}

void hide_later(const AttentionBlock& b, int64_t last) {
  for (int64_t j = std::max<int64_t>(0, last + 1); j < b.count; ++j) {
    // Queries below j - last do not see key j.
    const int64_t end = std::min<int64_t>(j - last, kQueries);
    for (int64_t q = 0; q < end; ++q) b.scores[j * kQueries + q] = -HUGE_VALF;
  }
}

void exponentials(const AttentionBlock& b) {
  const D d;
  const V low = hn::Neg(hn::Inf(d));
  for (int v = 0; v < b.vectors; ++v) {
    float* s = b.scores + v * kLanes;
    const V before = b.first ? low : hn::LoadU(d, b.top + v * kLanes);
    // The larger of two with the old one last: NaN scores leave it, and make the exponentials NaN.
    V tops[4] = {before, before, before, before};
    int64_t j = 0;
    for (; j + 4 <= b.count; j += 4) {
      PTERON_UNROLL
      for (int u = 0; u < 4; ++u) tops[u] = hn::Max(hn::LoadU(d, s + (j + u) * kQueries), tops[u]);
    }
    for (; j < b.count; ++j) tops[0] = hn::Max(hn::LoadU(d, s + j * kQueries), tops[0]);
    const V top = hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]));
    // Nothing seen yet: -inf - 0 still gives 0.
    const V shift = hn::IfThenElse(hn::Eq(top, low), hn::Zero(d), top);
    V sums[2] = {hn::Zero(d), hn::Zero(d)};
    for (j = 0; j + 2 <= b.count; j += 2) {
      PTERON_UNROLL
      for (int u = 0; u < 2; ++u) {
        const V e = vm::exp_small(d, hn::Sub(hn::LoadU(d, s + (j + u) * kQueries), shift));
        hn::StoreU(e, d, s + (j + u) * kQueries);
        sums[u] = hn::Add(sums[u], e);
      }
    }
    if (j < b.count) {
      const V e = vm::exp_small(d, hn::Sub(hn::LoadU(d, s + j * kQueries), shift));
      hn::StoreU(e, d, s + j * kQueries);
      sums[0] = hn::Add(sums[0], e);
    }
    const V factor = vm::exp_small(d, hn::Sub(before, shift));
    const V sum = hn::Add(sums[0], sums[1]);
    hn::StoreU(top, d, b.top + v * kLanes);
    hn::StoreU(factor, d, b.factor + v * kLanes);
    hn::StoreU(b.first ? sum : hn::MulAdd(hn::LoadU(d, b.sum + v * kLanes), factor, sum), d, b.sum + v * kLanes);
  }
}

template <int kRows>
void value_tile(const AttentionBlock& b, int64_t query, int64_t panel) {
  const D d;
  V acc[kRows][2];
  float* out = b.out + query * b.panels * kQueries + panel * kQueries;
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const V factor = hn::Set(d, b.first ? 0.0f : b.factor[query + i]);
    for (int v = 0; v < 2; ++v) {
      const float* at = out + i * b.panels * kQueries + v * kLanes;
      acc[i][v] = b.first ? hn::Zero(d) : hn::Mul(hn::LoadU(d, at), factor);
    }
  }
  const float* HWY_RESTRICT weights = b.scores + query;
  const float* HWY_RESTRICT values = b.values + panel * b.count * kQueries;
  for (int64_t j = 0; j < b.count; ++j, weights += kQueries, values += kQueries) {
    const V v0 = hn::LoadU(d, values), v1 = hn::LoadU(d, values + kLanes);
    PTERON_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V w = hn::Set(d, weights[i]);
      acc[i][0] = hn::MulAdd(w, v0, acc[i][0]);
      acc[i][1] = hn::MulAdd(w, v1, acc[i][1]);
    }
  }
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < 2; ++v) hn::StoreU(acc[i][v], d, out + i * b.panels * kQueries + v * kLanes);
  }
}

template <int kRows>
void value_rest(const AttentionBlock& b, int64_t query, int64_t rows, int64_t panel) {
  if (rows == kRows) return value_tile<kRows>(b, query, panel);
  if constexpr (kRows > 1) value_rest<kRows - 1>(b, query, rows, panel);
}

void values(const AttentionBlock& b) {
  for (int64_t panel = 0; panel < b.panels; ++panel) {
    int64_t query = 0;
    for (; query + kValueRows <= b.rows; query += kValueRows) value_tile<kValueRows>(b, query, panel);
    if (query < b.rows) value_rest<kValueRows - 1>(b, query, b.rows - query, panel);
  }
}

using D8 = hn::CappedTag<float, 8>;
using V8 = hn::Vec<D8>;

/// Rows 0..3 and 4..7 of one half: columns k and k + 4 side by side in out[k].
void transpose_half(V8 r0, V8 r1, V8 r2, V8 r3, V8* out) {
  const D8 d;
  const hn::Repartition<double, D8> wide;
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)), b = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
  const auto e = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3)), f = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
  out[0] = hn::BitCast(d, hn::InterleaveLower(wide, a, e));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, e));
  out[2] = hn::BitCast(d, hn::InterleaveLower(wide, b, f));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(wide, b, f));
}

void transpose8(const float* from, int64_t from_row, float scale, float* to, int64_t to_row) {
  const D8 d;
  const V8 s = hn::Set(d, scale);
  V8 r[8], low[4], high[4];
  PTERON_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = hn::Mul(hn::LoadU(d, from + i * from_row), s);
  transpose_half(r[0], r[1], r[2], r[3], low);
  transpose_half(r[4], r[5], r[6], r[7], high);
  PTERON_UNROLL
  for (int i = 0; i < 4; ++i) {
    hn::StoreU(hn::ConcatLowerLower(d, high[i], low[i]), d, to + i * to_row);
    hn::StoreU(hn::ConcatUpperUpper(d, high[i], low[i]), d, to + (i + 4) * to_row);
  }
}

void transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float scale, float* to, int64_t to_row) {
  int64_t r = 0;
  if constexpr (hn::MaxLanes(D8()) == 8) {
    for (; r + 8 <= rows; r += 8) {
      int64_t c = 0;
      for (; c + 8 <= columns; c += 8) transpose8(from + r * from_row + c, from_row, scale, to + c * to_row + r, to_row);
      for (; c < columns; ++c) {
        for (int64_t i = r; i < r + 8; ++i) to[c * to_row + i] = from[i * from_row + c] * scale;
      }
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_row + r] = from[r * from_row + c] * scale;
  }
}

void pack(const float* from, int64_t row, int64_t count, int64_t columns, float* to) {
  const D d;
  int64_t c = 0;
  for (; c + kQueries <= columns; c += kQueries) {
    for (int64_t j = 0; j < count; ++j, to += kQueries) {
      hn::StoreU(hn::LoadU(d, from + j * row + c), d, to);
      hn::StoreU(hn::LoadU(d, from + j * row + c + kLanes), d, to + kLanes);
    }
  }
  if (c == columns) return;
  const auto first = static_cast<size_t>(std::min<int64_t>(columns - c, kLanes)), second = static_cast<size_t>(columns - c) - first;
  const auto mask = hn::FirstN(d, first), rest = hn::FirstN(d, second);
  for (int64_t j = 0; j < count; ++j, to += kQueries) {
    hn::StoreU(hn::MaskedLoad(mask, d, from + j * row + c), d, to);
    hn::StoreU(second > 0 ? hn::MaskedLoad(rest, d, from + j * row + c + kLanes) : hn::Zero(d), d, to + kLanes);
  }
}

template <int kRows>
void dot_rows(const float* query, int64_t width, const float* keys, int64_t key_row, float* scores) {
  const D d;
  V acc[kRows];
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) acc[i] = hn::Zero(d);
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    const V q = hn::LoadU(d, query + k);
    PTERON_UNROLL
    for (int i = 0; i < kRows; ++i) acc[i] = hn::MulAdd(q, hn::LoadU(d, keys + i * key_row + k), acc[i]);
  }
  if (k < width) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(width - k));
    const V q = hn::MaskedLoad(mask, d, query + k);
    PTERON_UNROLL
    for (int i = 0; i < kRows; ++i) acc[i] = hn::MulAdd(q, hn::MaskedLoad(mask, d, keys + i * key_row + k), acc[i]);
  }
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) scores[i] = hn::GetLane(hn::SumOfLanes(d, acc[i]));
}

void dots(const float* query, int64_t width, const float* keys, int64_t key_row, int64_t count, float* scores) {
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) dot_rows<8>(query, width, keys + j * key_row, key_row, scores + j);
  for (; j < count; ++j) dot_rows<1>(query, width, keys + j * key_row, key_row, scores + j);
}

float exponentials_row(float* scores, int64_t count, float* top, float* sum) {
  const D d;
  const float before = *top;
  V tops = hn::Set(d, before);
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) tops = hn::Max(hn::LoadU(d, scores + j), tops);
  float now = hn::GetLane(hn::MaxOfLanes(d, tops));
  for (int64_t i = j; i < count; ++i) now = scores[i] > now ? scores[i] : now;
  const float shift = now == -HUGE_VALF ? 0.0f : now;
  const V s = hn::Set(d, shift);
  V sums = hn::Zero(d);
  for (j = 0; j + kLanes <= count; j += kLanes) {
    const V e = vm::exp_small(d, hn::Sub(hn::LoadU(d, scores + j), s));
    hn::StoreU(e, d, scores + j);
    sums = hn::Add(sums, e);
  }
  if (j < count) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(count - j));
    const V e = hn::IfThenElseZero(mask, vm::exp_small(d, hn::Sub(hn::MaskedLoad(mask, d, scores + j), s)));
    hn::BlendedStore(e, mask, d, scores + j);
    sums = hn::Add(sums, e);
  }
  const float factor = hn::GetLane(vm::exp_small(d, hn::Set(d, before - shift)));
  *top = now;
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(d, sums));
  return factor;
}

template <int kVectors>
void sum_columns(const float* weights, int64_t count, const float* rows, int64_t row, float factor, float* out) {
  const D d;
  V acc[kVectors];
  PTERON_UNROLL
  for (int v = 0; v < kVectors; ++v) acc[v] = factor == 0.0f ? hn::Zero(d) : hn::Mul(hn::LoadU(d, out + v * kLanes), hn::Set(d, factor));
  for (int64_t j = 0; j < count; ++j, rows += row) {
    const V w = hn::Set(d, weights[j]);
    PTERON_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[v] = hn::MulAdd(w, hn::LoadU(d, rows + v * kLanes), acc[v]);
  }
  PTERON_UNROLL
  for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[v], d, out + v * kLanes);
}

void sum_rows(const float* weights, int64_t count, const float* rows, int64_t row, int64_t columns, float factor, float* out) {
  int64_t c = 0;
  for (; c + 8 * kLanes <= columns; c += 8 * kLanes) sum_columns<8>(weights, count, rows + c, row, factor, out + c);
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) sum_columns<4>(weights, count, rows + c, row, factor, out + c);
  for (; c + kLanes <= columns; c += kLanes) sum_columns<1>(weights, count, rows + c, row, factor, out + c);
  for (; c < columns; ++c) {
    float sum = factor == 0.0f ? 0.0f : out[c] * factor;
    for (int64_t j = 0; j < count; ++j) sum += weights[j] * rows[j * row + c];
    out[c] = sum;
  }
}

AttentionSet make_attention() {
  return {kQueries, scores, add_masks, hide_later, exponentials, values, pack, dots, exponentials_row, sum_rows, transpose};
}

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::cpu {
const AttentionSet& attention_set() {
  static const AttentionSet set = PTERON_HWY_CALL(make_attention);
  return set;
}
}  // namespace pteron::cpu
#endif
