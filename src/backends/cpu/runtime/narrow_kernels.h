// Inner loops of products in bfloat16, float16 and 8-bit integers, by units of the processor. Called by narrow_product.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/processor.h"

namespace pteron::cpu {

enum class NarrowKind : uint8_t {
  kBf16,  ///< bfloat16 x bfloat16, sums in float
  kHalf,  ///< float16 x float16, widened: sums in float
  kInt8,  ///< uint8 or int8 x int8, sums in int32 that wrap around
};

/// Columns of a panel: [quad of the depth][column][4 bytes], so that a quad is one line: 2 bfloat16 or 4 int8 for each column.
/// float16: of each line 8 columns' first, then their second halves, and so the other 8 columns.
inline constexpr int64_t kNarrowColumns = 16;
/// Panels have whole chunks of quads, the rest zeros.
inline constexpr int64_t kQuadChunk = 16;
inline constexpr int64_t kQuadLine = 64;
/// Values from one row of a result to the next; rows of a result that have memory.
inline constexpr int64_t kNarrowResultRow = 32;
inline constexpr int64_t kNarrowResultRows = 32;

/// out[i, j] = start[j] + sum over the depth of a[i] * panel[j], for one or two neighbouring panels.
struct NarrowRun {
  const std::byte* a = nullptr;     ///< rows in the form that the kernels want
  int64_t a_row = 0;                ///< bytes
  int64_t quads = 0;                ///< of the depth; units without tiles read no further
  // Tiles only.
  const std::byte* second = nullptr;       ///< the rows of the second tile
  const int64_t* chunk_offsets = nullptr;  ///< bytes from a row's begin to each chunk
  int64_t rows = 0;
  int64_t tile_rows = 0;            ///< what begin() was told
  int64_t chunks = 0;               ///< of kQuadChunk quads, the last may be filled up with zeros
  const std::byte* b = nullptr;
  int64_t panel_bytes = 0;          ///< from a panel to the next
  int panels = 0;                   ///< 1 or 2
  const void* start = nullptr;      ///< panels * kNarrowColumns values
  void* out = nullptr;              ///< kNarrowResultRows rows of kNarrowResultRow values: float or int32
  const std::byte* next = nullptr;  ///< memory to bring near, next_lines for each chunk
  int64_t next_lines = 0;
};

/// Bytes of rows that lie anywhere, one row after the other: to[i * to_row + t * run + k] = rows[i][starts(t) + k] ^ flip, where starts(0) = 0 and
/// starts(t + 1) = starts(t) + steps[t].
struct ByteRows {
  const std::byte* const* rows = nullptr;
  int64_t count = 0;
  int64_t taps = 1;
  const int64_t* steps = nullptr;  ///< `taps` entries
  int64_t run = 0;                 ///< bytes of a tap
  uint8_t flip = 0;
  std::byte* to = nullptr;
  int64_t to_row = 0;              ///< bytes
};

/// The loops for one kind on some units.
struct NarrowKernels {
  int rows = 0;       ///< most rows of a run
  int height = 0;     ///< rows that are summed at once; a run has rows / height such groups at most. Without tiles only
  bool wide = false;  ///< rows are float for bfloat16 and float16, int16 for 8-bit ones (of each quad elements 0, 2, 1, 3); else bfloat16, uint8
  void (*run)(const NarrowRun&) = nullptr;
  bool is_signed = false;  ///< rows of int8 are read as such, not as 128 more
  // Tiles only. Their height for a block of rows: rows are rounded up to it, and rows that do not exist are read and written (in `a` and `out`).
  int64_t (*rows_of_tile)(int64_t rows) = nullptr;
  void (*begin)(int64_t tile_rows) = nullptr;  ///< before runs of at most two tiles on this thread
  void (*end)() = nullptr;
  // Conversions of `count` elements.
  void (*float_to_bf16)(const float* from, uint16_t* to, int64_t count) = nullptr;   ///< rounded as ATen does it
  void (*float_to_rounded)(const float* from, float* to, int64_t count) = nullptr;   ///< the same, as float
  void (*bf16_to_float)(const uint16_t* from, float* to, int64_t count) = nullptr;
  void (*int8_to_wide)(const int8_t* from, int16_t* to, int64_t quads) = nullptr;
  void (*uint8_to_wide)(const uint8_t* from, int16_t* to, int64_t quads) = nullptr;
  void (*copy_rows)(const ByteRows& rows) = nullptr;  ///< null where `wide`
};
/// `is_signed`: rows are int8, not uint8.
const NarrowKernels& narrow_kernels(NarrowKind kind, Units units, bool is_signed = false);

}  // namespace pteron::cpu
