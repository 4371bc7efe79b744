// The kernels of attention: one pass over the keys with a running maximum and sum (online softmax), on tensor cores for 16-bit floats. Called by attention.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pteron/tensor.h"

namespace pteron::cuda {

/// How a block of the kernel on tensor cores shares its work.
struct AttentionTiles {
  int64_t each = 1;           ///< groups of 16 rows a warp
  int64_t warps = 4;          ///< side by side along the rows
  int64_t groups = 1;         ///< of such warps; each has keys of its own, and what they find is joined at the end
  int64_t keys_a_group = 64;  ///< a step; a multiple of 16
  int64_t stages = 2;         ///< 1: all keys of a block are one step; 2: the next step's keys come during this one
};

/// What a kernel is made for; sizes of the batch, the heads and the sequences come with the call.
struct AttentionForm {
  DType dtype = DType::kFloat32;
  int64_t width = 0;  ///< of a query and a key
  int64_t value_width = 0;
  std::vector<DType> masks;  ///< bool, float32 or dtype; at most kMostAttentionMasks
  bool causal = false;       ///< query i sees the keys up to i
  bool zero_rows = false;    ///< a query that sees no key gives zeros, not NaN
  bool any_scale = true;     ///< false: the scale is above zero
  // What calls will look like, to choose the tiles by; 0 if that is not known. Calls may differ.
  int64_t likely_rows = 0;  ///< queries times the heads that share a block
  int64_t likely_keys = 0;
  int64_t likely_units = 0;                ///< heads and batches apart
  std::optional<AttentionTiles> how = {};  ///< not chosen
};
inline constexpr size_t kMostAttentionMasks = 2;

/// Rows of queries a block, keys a step, bytes of dynamic shared memory and threads.
struct AttentionShape : AttentionTiles {
  int64_t rows = 64, keys = 64, shared_bytes = 0, threads = 128;
};
AttentionShape attention_shape(const AttentionForm& form);

/// The kernel. Parameters, all of 8 bytes: query, key, value, out, mask 0, mask 1, parts; queries, keys, heads, group, ratio; strides (batch, head,
/// row) of query, key, value, out; strides (batch, head, query, key) of mask 0 and 1; splits, keys a split; whether rows start at multiples of 16 bytes; the
/// bits of the scale as a double. `group` heads that read the same keys are rows of one block; `ratio` heads share keys. Grid: queries * group / rows rounded
/// up, heads / group, batch * splits. With more than one split the result goes to `parts`: for each query of each head and split value_width sums, the maximum
/// and the sum. The text needs element_text() and tile_text().
std::string attention_text(const AttentionForm& form);
/// The kernel that joins `parts`; parameters: parts, out; queries, heads; strides (batch, head, row) of out; splits. Grid: queries, heads, batch; 128 threads.
std::string attention_merge_text(const AttentionForm& form);

}  // namespace pteron::cuda
