// Inner loops of attention in float, for this processor (Highway: AVX2, AVX-512). Queries stand in the lanes: a block of `queries` of them is
// multiplied with keys row by row, so that the softmax over keys needs no sums across lanes. Called by attention.cpp.
#pragma once

#include <cstdint>

namespace pteron::cpu {

inline constexpr int kMaxAttentionQueries = 32;

/// One block of queries against some keys. Rows of `scores` are keys, `queries` floats each.
struct AttentionBlock {
  const float* panel = nullptr;   ///< [width][queries], scaled
  int64_t width = 0;
  const float* keys = nullptr;    ///< rows of `width` contiguous floats
  int64_t key_row = 0;
  int64_t count = 0;              ///< keys
  float* scores = nullptr;        ///< [count][queries]
  int vectors = 0;                ///< of the block that hold queries: 1 or 2
  float* top = nullptr;           ///< [queries] largest score so far
  float* sum = nullptr;           ///< [queries] sum of exponentials so far
  float* factor = nullptr;        ///< [queries] what earlier results are multiplied with now
  const float* values = nullptr;  ///< [panels][count][queries]: columns in panels as wide as a block
  int64_t panels = 0;
  float* out = nullptr;           ///< [queries][panels * queries]
  int rows = 0;                   ///< queries that exist
  bool first = false;             ///< no keys before these
};

struct AttentionSet {
  int queries = 0;  ///< of a block: two vectors
  /// scores = keys x panel.
  void (*scores)(const AttentionBlock&) = nullptr;
  /// scores[j][q] += row_mask[j] (if given) + block_mask[j][q] (if given).
  void (*add_masks)(const AttentionBlock&, const float* row_mask, const float* block_mask) = nullptr;
  /// scores[j][q] = -infinity where j > q + last; `last` is the last key that query 0 sees, in this block's numbers.
  void (*hide_later)(const AttentionBlock&, int64_t last) = nullptr;
  /// scores become exponentials; top, sum and factor are updated.
  void (*exponentials)(const AttentionBlock&) = nullptr;
  /// out = out * factor + scores^T x values.
  void (*values)(const AttentionBlock&) = nullptr;
  /// Panels as `values` wants them: columns of `count` rows in groups of `queries`, missing ones 0. Rows lie `row` elements apart.
  void (*pack)(const float* from, int64_t row, int64_t count, int64_t columns, float* to) = nullptr;
  /// One query: scores[j] = query . key j for `count` keys.
  void (*dots)(const float* query, int64_t width, const float* keys, int64_t key_row, int64_t count, float* scores) = nullptr;
  /// One query: scores become exp(score - the largest so far); *top and *sum are updated. Returns what earlier results are multiplied with.
  float (*exponentials_row)(float* scores, int64_t count, float* top, float* sum) = nullptr;
  /// One query: out[c] = out[c] * factor + sum over j of weights[j] * row j [c].
  void (*sum_rows)(const float* weights, int64_t count, const float* rows, int64_t row, int64_t columns, float factor, float* out) = nullptr;
  /// to[c * to_row + r] = from[r * from_row + c] * scale for r < rows, c < columns.
  void (*transpose)(const float* from, int64_t from_row, int64_t rows, int64_t columns, float scale, float* to, int64_t to_row) = nullptr;
};
const AttentionSet& attention_set();

}  // namespace pteron::cpu
