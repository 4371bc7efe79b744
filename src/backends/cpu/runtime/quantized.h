// What the engine's products of quantized operands share: how a sum becomes a result, and rows of 8-bit and 4-bit weights. Used by
// quantized_linear.cpp and quantized_conv.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

/// Sums of products of 8-bit numbers up to this depth fit into 32 bits.
inline constexpr int64_t kMaxDepth = 65536;
inline bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUInt8; }
/// A dense float32 constant of `count` elements. Errors: kInvalidFile.
Status check_vector(const char* op, const char* name, const runtime::Tensor& t, int64_t count);

/// Quantizing and dequantizing in the middle of what follows a sum: clamp, round to levels, and back.
struct QuantizedMiddle {
  bool exists = false;
  float low = 0, high = 0, inverse = 1, zero = 0, least = 0, most = 0;
  float back_zero = 0, scale = 1;
};

/// From a sum in float to memory: the middle, + residual, clamp, and for 8-bit results round(y * inverse) + zero between least and most.
struct QuantizedEnd {
  QuantizedMiddle middle;
  float low = -__builtin_huge_valf(), high = __builtin_huge_valf();
  float residual_scale = 1, residual_zero = 0;  ///< of an 8-bit residual
  float inverse = 1, zero = 0, least = 0, most = 0;
  DType dtype = DType::kFloat32;  ///< of the result: float32, int8 or uint8
  /// What becomes of the middle's level middle.least + 128 + i (i: the index as int8), if there is no residual: bytes of results. See make_table().
  std::array<std::byte, 256> table{};
  bool has_table = false;

  /// Arguments as the operators list them: middle, activation, low, high, inverse, zero, least, most, dtype. Errors: kInvalidFile.
  Status read(std::span<runtime::Value* const> args);
  /// Fills the table, if there is a middle of at most 256 levels and the result is in bytes.
  void make_table();
  /// y[j] + residual (null: none) to `out`, for one row of `count` results. y is overwritten.
  void finish(float* y, const void* residual, DType residual_dtype, int64_t count, void* out) const;
};
/// A block of integer sums and where it ends: result (i, j) is sums[i * sum_row + j] * factors[j] + bias[j], finished.
struct SumBlock {
  const int32_t* sums = nullptr;            ///< readable up to the next multiple of 16 columns
  int64_t sum_row = 0;
  int64_t rows = 0, columns = 0;            ///< at most 64 columns
  const float* factors = nullptr;
  const float* bias = nullptr;              ///< may be null
  const std::byte* residual = nullptr;      ///< may be null
  DType residual_dtype = DType::kFloat32;
  std::byte* out = nullptr;
  int64_t row = 0;                          ///< elements from one row of results, and of the residual, to the next
};
void finish_block(const QuantizedEnd& end, const SumBlock& block);
/// The same for results in bytes. False, and nothing done, where it does not apply: a residual in float, or numbers that may lead to NaN.
/// Requires: has_wide_bytes(), an end in bytes.
bool finish_bytes(const QuantizedEnd& end, const SumBlock& block);

/// Channels that depthwise_bytes() takes at once. Their place in sums, factors and bias: sixteens of 4 channels each of all four 16-channel parts,
/// so that channel c is at c / 4 % 4 * 16 + c / 16 * 4 + c % 4.
inline constexpr int64_t kDepthwiseChannels = 64;
inline int64_t depthwise_place(int64_t channel) { return channel / 4 % 4 * 16 + channel / 16 * 4 + channel % 4; }
/// A run of pixels of a depthwise sum of bytes for up to kDepthwiseChannels channels, finished to bytes.
struct DepthwiseBytes {
  const uint8_t* window = nullptr;   ///< of the first pixel
  int64_t step = 0;                  ///< bytes from one pixel's window to the next
  int64_t pixels = 0;
  int64_t channels = 0;              ///< that exist
  const int64_t* offsets = nullptr;  ///< bytes from a window to its taps
  int64_t taps = 0;                  ///< a multiple of 4; some may be any taps with weights of zero
  /// Not 0: windows are three columns of three taps (each a quad with one more, of weight zero) with a stride of so many columns, 1 or 2.
  int64_t column_stride = 0;
  const int8_t* weights = nullptr;   ///< [taps / 4][place][4 taps]
  const int32_t* start = nullptr;    ///< [place] what the sums begin with; signed bytes count as 128 more than they are
  const float* factors = nullptr;    ///< [place]
  const float* bias = nullptr;       ///< [place]
  std::byte* out = nullptr;
  int64_t out_step = 0;              ///< bytes
};
/// Whether this processor has the instructions for finish_bytes() and depthwise_bytes().
bool has_wide_bytes();
/// False, and nothing done, where factors, bias or bounds may lead to NaN. Requires: has_wide_bytes(), an end in bytes, no residual.
bool depthwise_bytes(const QuantizedEnd& end, const DepthwiseBytes& d, bool is_signed);

/// Reads the residual's parameters. Errors: kInvalidFile.
Status read_residual(const runtime::Value& scale, const runtime::Value& zero, QuantizedEnd* end);

/// True for float32, int8, uint8.
bool is_result_dtype(DType d);

/// Sums over `depth` of x * w in integers. Requires: depth < 2^16 (127 * 255 * depth fits).
int32_t dot(const int8_t* x, const int8_t* w, int64_t depth);
int32_t dot(const uint8_t* x, const int8_t* w, int64_t depth);
/// `count` (even) weights of 4 bits, the first in the low half of each byte, as value + 8.
void unpack_nibbles(const uint8_t* from, int64_t count, int8_t* to);
/// One row of weights: 8 or 4 bits, with a scale for every group of columns.
struct WeightRow {
  const std::byte* weights = nullptr;
  const float* scales = nullptr;
  int64_t depth = 0, group = 0, bits = 8;
};
/// Sum of x * w * scale in float.
float grouped_dot(const float* x, const WeightRow& row);

/// Columns that byte_rows() takes at once.
inline constexpr int64_t kByteBlock = 64;
/// Bytes of `rows` rows of x for byte_rows(): as uint8 (int8 + 128), each block's even columns before its odd ones.
/// Requires: depth is a multiple of kByteBlock.
void arrange_bytes(const uint8_t* x, bool is_signed, int64_t rows, int64_t depth, uint8_t* to);
/// out[i * out_step] = sum of x_i * w * scale for arranged rows of x. Requires: 4 bits, whole blocks, groups of whole halves of blocks.
void byte_rows(const uint8_t* x, int64_t rows, const WeightRow& row, float* out, int64_t out_step);

}  // namespace pteron::cpu
