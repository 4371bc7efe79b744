// Register-blocked inner loops of the CPU engine in float: products of unpacked rows with packed weight panels, and depthwise sums. Chosen
// once for the processor (Highway: AVX2, AVX-512). Called by product.cpp, conv.cpp, winograd.cpp and quantized_linear.cpp.
#pragma once

#include <cstdint>

namespace pteron::cpu {

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxTileColumns = 32;

/// One tile of c: c[i, j] = clamp(start + sum over taps t and k < run of rows[i][starts(t) + k] * panel[(t * run + k) * width + j] +
/// residual[i, j]), where starts(0) = 0, starts(t + 1) = starts(t) + steps[t], and start is bias[j] or, without a bias, c[i, j] itself.
struct Tile {
  const float* const* rows = nullptr;  ///< as many as the function's rows
  int64_t taps = 1;
  const int64_t* steps = nullptr;      ///< elements from each tap to the next, `taps` entries
  int64_t run = 0;                     ///< contiguous elements of a tap
  const float* panel = nullptr;        ///< width is that of the function
  const float* next = nullptr;         ///< memory to bring near while the tile runs
  int next_lines = 0;                  ///< lines of it for every kPrefetchSteps elements
  float* c = nullptr;
  int64_t c_row = 0;                   ///< elements from one row of c to the next
  const float* bias = nullptr;         ///< width values, or null: go on from what c has
  const float* residual = nullptr;     ///< may be null
  int64_t residual_row = 0;
  float low = 0, high = 0;
  int columns = 0;                     ///< columns that exist, at most the width
};
inline constexpr int kPrefetchSteps = 8;
inline constexpr int kLineFloats = 16;
using TileFn = void (*)(const Tile&);

/// One output run of a depthwise sum: out[p, c] = clamp(sum over taps t of x[p * x_step + offsets[t] + c] * weights[weight_offsets[t] + c] +
/// bias[c]).
struct DepthwiseRun {
  const float* x = nullptr;
  int64_t x_step = 0;
  const int64_t* offsets = nullptr;
  const float* weights = nullptr;
  const int64_t* weight_offsets = nullptr;
  int64_t taps = 0;
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t out_pixel = 0;  ///< elements from one pixel of `out` to the next
  int64_t pixels = 0;
  int64_t channels = 0;
  float low = 0, high = 0;
};

/// Up to kDepthwisePixels neighbouring outputs of a depthwise sum, for kernels of a fixed width and horizontal stride: out[p, c] = clamp(bias[c] +
/// sum over kernel rows r and taps k of columns[r][p * stride + k][c] * weights[(r * width + k) * channels + c]).
struct DepthwiseBlock {
  const float* const* columns = nullptr;  ///< [row][(kDepthwisePixels - 1) * stride + width] pointers; outside of the image to zeros
  int64_t rows = 0;
  const float* weights = nullptr;         ///< of the first row that is read
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t out_pixel = 0;                  ///< elements from one pixel of `out` to the next
  int64_t pixels = 0;                     ///< that exist
  int64_t channels = 0;
  float low = 0, high = 0;
};
inline constexpr int kDepthwisePixels = 7;
inline constexpr int kMaxDepthwiseWidth = 7;
using DepthwiseFn = void (*)(const DepthwiseBlock&);

/// One row times `panels` whole panels that lie panel_step elements apart: as Tile with one row and one tap.
struct RowRun {
  const float* x = nullptr;
  int64_t depth = 0;
  const float* panel = nullptr;
  int64_t panel_step = 0;
  int64_t panels = 0;
  float* c = nullptr;
  const float* bias = nullptr;
  const float* residual = nullptr;  ///< may be null
  float low = 0, high = 0;
  int64_t columns = 0;              ///< columns that exist, at most panels * width
};

/// The loops for this processor.
struct TileSet {
  int rows = 0;     ///< of a full tile
  int columns = 0;  ///< of a full panel; a last panel of at most half of it is half as wide
  TileFn full[kMaxTileRows + 1] = {};  ///< by number of rows, 1 to `rows`
  TileFn half[kMaxTileRows + 1] = {};
  void (*row)(const RowRun&) = nullptr;
  /// to[3 * i + k] = the i-th of the k-th plane.
  void (*interleave3)(const float* a, const float* b, const float* c, float* to, int64_t count) = nullptr;
  void (*depthwise)(const DepthwiseRun&) = nullptr;              ///< any kernel, stride and dilation
  DepthwiseFn depthwise_blocks[3][kMaxDepthwiseWidth + 1] = {};  ///< by horizontal stride (1, 2) and kernel width (3, 5, 7), without dilation
};
const TileSet& tile_set();

}  // namespace pteron::cpu
