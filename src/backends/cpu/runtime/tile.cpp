// The inner loops in Highway: compiled for the baseline and for AVX-512, chosen at run time.
#include "backends/cpu/runtime/tile.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/runtime/tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/runtime/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
// Two vectors a row: 6 x 2 registers of 16, or 12 x 2 of 32.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
inline constexpr int kRows = 6;
#else
inline constexpr int kRows = 12;
#endif

/// Lanes of vector `v` among `columns` columns.
inline auto lanes_of(int v, int64_t columns) { return hn::FirstN(D(), static_cast<size_t>(std::clamp<int64_t>(columns - v * kLanes, 0, kLanes))); }

template <int kHeight, int kVectors>
inline void add_products(const Tile& t, V (&acc)[kHeight][kVectors]) {
  const D d;
  const float* HWY_RESTRICT b = t.panel;
  const float* rows[kHeight];
  PTERON_UNROLL
  for (int i = 0; i < kHeight; ++i) rows[i] = t.rows[i];
  const auto step = [&](int64_t k) HWY_ATTR {
    V w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, b + v * kLanes);
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) {
      const V x = hn::Set(d, rows[i][k]);
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::MulAdd(x, w[v], acc[i][v]);
    }
    b += kVectors * kLanes;
  };
  const int64_t run = t.run;
  const float* next = t.next;
  const int lines = t.next_lines;
  for (int64_t tap = 0; tap < t.taps; ++tap) {
    int64_t k = 0;
    for (; k + kPrefetchSteps <= run; k += kPrefetchSteps) {
      for (int line = 0; line < lines; ++line, next += kLineFloats) __builtin_prefetch(next, 0, 2);
      PTERON_UNROLL
      for (int u = 0; u < kPrefetchSteps; ++u) step(k + u);
    }
    for (; k < run; ++k) step(k);
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) rows[i] += t.steps[tap];
  }
}

template <int kHeight, int kVectors>
void tile(const Tile& t) {
  const D d;
  V acc[kHeight][kVectors];
  const bool whole = t.columns == kVectors * kLanes;
  if (t.bias != nullptr) {
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::LoadU(d, t.bias + v * kLanes);
    }
  } else if (whole) {
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::LoadU(d, t.c + i * t.c_row + v * kLanes);
    }
  } else {
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::MaskedLoad(lanes_of(v, t.columns), d, t.c + i * t.c_row + v * kLanes);
    }
  }
  add_products<kHeight, kVectors>(t, acc);
  const V low = hn::Set(d, t.low), high = hn::Set(d, t.high);
  if (whole) {
    PTERON_UNROLL
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        V y = acc[i][v];
        if (t.residual != nullptr) y = hn::Add(y, hn::LoadU(d, t.residual + i * t.residual_row + v * kLanes));
        hn::StoreU(clamp(y, low, high), d, t.c + i * t.c_row + v * kLanes);
      }
    }
    return;
  }
  PTERON_UNROLL
  for (int i = 0; i < kHeight; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const auto mask = lanes_of(v, t.columns);
      V y = acc[i][v];
      if (t.residual != nullptr) y = hn::Add(y, hn::MaskedLoad(mask, d, t.residual + i * t.residual_row + v * kLanes));
      hn::BlendedStore(clamp(y, low, high), mask, d, t.c + i * t.c_row + v * kLanes);
    }
  }
}

/// One row times kPanels panels at once, so that enough sums are under way.
template <int kPanels>
inline void row_block(const RowRun& r, int64_t panel, int64_t depth) {
  const D d;
  V acc[kPanels][2];
  const float* b[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    b[p] = r.panel + (panel + p) * r.panel_step;
    for (int v = 0; v < 2; ++v) acc[p][v] = hn::LoadU(d, r.bias + ((panel + p) * 2 + v) * kLanes);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const V x = hn::Set(d, r.x[k]);
    PTERON_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < 2; ++v) acc[p][v] = hn::MulAdd(x, hn::LoadU(d, b[p] + (k * 2 + v) * kLanes), acc[p][v]);
    }
  }
  const V low = hn::Set(d, r.low), high = hn::Set(d, r.high);
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < 2; ++v) {
      const int64_t column = ((panel + p) * 2 + v) * kLanes;
      V y = acc[p][v];
      if (column + kLanes <= r.columns) {
        if (r.residual != nullptr) y = hn::Add(y, hn::LoadU(d, r.residual + column));
        hn::StoreU(clamp(y, low, high), d, r.c + column);
        continue;
      }
      const auto mask = lanes_of(0, r.columns - column);
      if (r.residual != nullptr) y = hn::Add(y, hn::MaskedLoad(mask, d, r.residual + column));
      hn::BlendedStore(clamp(y, low, high), mask, d, r.c + column);
    }
  }
}

void row(const RowRun& r) {
  int64_t panel = 0;
  for (; panel + 4 <= r.panels; panel += 4) row_block<4>(r, panel, r.depth);
  if (panel + 2 <= r.panels) row_block<2>(r, panel, r.depth), panel += 2;
  if (panel < r.panels) row_block<1>(r, panel, r.depth);
}

/// kPixels neighbouring outputs of kVectors vectors of channels.
template <int kPixels, int kVectors>
inline void depthwise_pixels(const DepthwiseRun& r, int64_t pixel, int64_t channel) {
  const D d;
  V acc[kPixels][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const V bias = hn::LoadU(d, r.bias + channel + v * kLanes);
    for (int p = 0; p < kPixels; ++p) acc[p][v] = bias;
  }
  const float* x = r.x + pixel * r.x_step + channel;
  const float* weights = r.weights + channel;
  for (int64_t tap = 0; tap < r.taps; ++tap) {
    const float* from = x + r.offsets[tap];
    for (int v = 0; v < kVectors; ++v) {
      const V w = hn::LoadU(d, weights + r.weight_offsets[tap] + v * kLanes);
      PTERON_UNROLL
      for (int p = 0; p < kPixels; ++p) acc[p][v] = hn::MulAdd(hn::LoadU(d, from + p * r.x_step + v * kLanes), w, acc[p][v]);
    }
  }
  const V low = hn::Set(d, r.low), high = hn::Set(d, r.high);
  for (int p = 0; p < kPixels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(clamp(acc[p][v], low, high), d, r.out + (pixel + p) * r.out_pixel + channel + v * kLanes);
    }
  }
}

inline void depthwise_scalar(const DepthwiseRun& r, int64_t pixel, int64_t first) {
  for (int64_t c = first; c < r.channels; ++c) {
    float y = r.bias[c];
    for (int64_t tap = 0; tap < r.taps; ++tap) y += r.x[pixel * r.x_step + r.offsets[tap] + c] * r.weights[r.weight_offsets[tap] + c];
    y = y < r.low ? r.low : y;
    r.out[pixel * r.out_pixel + c] = y > r.high ? r.high : y;
  }
}

void depthwise(const DepthwiseRun& r) {
  constexpr int64_t kStep = 2 * kLanes;
  int64_t pixel = 0;
  for (; pixel + 4 <= r.pixels; pixel += 4) {
    int64_t channel = 0;
    for (; channel + kStep <= r.channels; channel += kStep) depthwise_pixels<4, 2>(r, pixel, channel);
    for (; channel + kLanes <= r.channels; channel += kLanes) depthwise_pixels<4, 1>(r, pixel, channel);
    for (int64_t p = 0; p < 4 && channel < r.channels; ++p) depthwise_scalar(r, pixel + p, channel);
  }
  for (; pixel < r.pixels; ++pixel) {
    int64_t channel = 0;
    for (; channel + kStep <= r.channels; channel += kStep) depthwise_pixels<1, 2>(r, pixel, channel);
    for (; channel + kLanes <= r.channels; channel += kLanes) depthwise_pixels<1, 1>(r, pixel, channel);
    depthwise_scalar(r, pixel, channel);
  }
}

/// One vector of channels from `c` on; with `left`, only so many channels exist.
template <int kStride, int kWidth>
inline void depthwise_vector(const DepthwiseBlock& b, int64_t c, int64_t left) {
  constexpr int kColumns = (kDepthwisePixels - 1) * kStride + kWidth;
  const D d;
  const bool whole = left >= kLanes;
  const auto mask = hn::FirstN(d, static_cast<size_t>(whole ? kLanes : left));
  const auto load = [&](const float* from) HWY_ATTR { return whole ? hn::LoadU(d, from) : hn::MaskedLoad(mask, d, from); };
  V acc[kDepthwisePixels];
  const V bias = load(b.bias + c);
  PTERON_UNROLL
  for (int p = 0; p < kDepthwisePixels; ++p) acc[p] = bias;
  const float* weights = b.weights + c;
  const float* const* columns = b.columns;
  for (int64_t row = 0; row < b.rows; ++row) {
    V w[kWidth];
    PTERON_UNROLL
    for (int k = 0; k < kWidth; ++k) w[k] = load(weights + k * b.channels);
    PTERON_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const V x = load(columns[i] + c);
      PTERON_UNROLL
      for (int p = 0; p < kDepthwisePixels; ++p) {
        const int k = i - p * kStride;
        if (k >= 0 && k < kWidth) acc[p] = hn::MulAdd(x, w[k], acc[p]);
      }
    }
    weights += kWidth * b.channels;
    columns += kColumns;
  }
  const V low = hn::Set(d, b.low), high = hn::Set(d, b.high);
  for (int p = 0; p < b.pixels; ++p) {
    float* to = b.out + p * b.out_pixel + c;
    if (whole) {
      hn::StoreU(clamp(acc[p], low, high), d, to);
    } else {
      hn::BlendedStore(clamp(acc[p], low, high), mask, d, to);
    }
  }
}

template <int kStride, int kWidth>
void depthwise_block(const DepthwiseBlock& b) {
  int64_t c = 0;
  for (; c + kLanes <= b.channels; c += kLanes) depthwise_vector<kStride, kWidth>(b, c, kLanes);
  if (c < b.channels) depthwise_vector<kStride, kWidth>(b, c, b.channels - c);
}

template <int kStride>
void fill_depthwise(DepthwiseFn* by_width) {
  by_width[3] = depthwise_block<kStride, 3>;
  by_width[5] = depthwise_block<kStride, 5>;
  by_width[7] = depthwise_block<kStride, 7>;
}

void interleave3(const float* a, const float* b, const float* c, float* to, int64_t count) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreInterleaved3(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i), d, to + 3 * i);
  for (; i < count; ++i) {
    to[3 * i] = a[i];
    to[3 * i + 1] = b[i];
    to[3 * i + 2] = c[i];
  }
}

template <int kHeight>
void fill(TileSet* set) {
  set->full[kHeight] = tile<kHeight, 2>;
  set->half[kHeight] = tile<kHeight, 1>;
  if constexpr (kHeight > 1) fill<kHeight - 1>(set);
}

TileSet make_tiles() {
  TileSet set;
  set.rows = kRows;
  set.columns = 2 * kLanes;
  fill<kRows>(&set);
  set.row = row;
  set.interleave3 = interleave3;
  set.depthwise = depthwise;
  fill_depthwise<1>(set.depthwise_blocks[1]);
  fill_depthwise<2>(set.depthwise_blocks[2]);
  return set;
}

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::cpu {
const TileSet& tile_set() {
  static const TileSet set = PTERON_HWY_CALL(make_tiles);
  return set;
}
}  // namespace pteron::cpu
#endif
