// What the engine's products of quantized operands share: how a sum becomes a result, and rows of 8-bit and 4-bit weights. Used by
// quantized_linear.cpp and quantized_conv.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

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

  /// Arguments as the operators list them: middle, activation, low, high, inverse, zero, least, most, dtype. Errors: kInvalidFile.
  Status read(std::span<runtime::Value* const> args);
  /// y[j] + residual (null: none) to `out`, for one row of `count` results. y is overwritten.
  /// The same for y[j] = sums[j] * factors[j] + bias[j]; the bias may be null. Requires: count <= 64.
  void finish_sums(const int32_t* sums, const float* factors, const float* bias, const void* residual, DType residual_dtype, int64_t count, void* out) const;
  void finish(float* y, const void* residual, DType residual_dtype, int64_t count, void* out) const;
};
/// Reads the residual's parameters. Errors: kInvalidFile.
Status read_residual(const runtime::Value& scale, const runtime::Value& zero, QuantizedEnd* end);

/// True for float32, int8, uint8.
bool is_result_dtype(DType d);

/// Sums over `depth` of x * w in integers. Requires: depth < 2^16 (127 * 255 * depth fits).
int32_t dot(const int8_t* x, const int8_t* w, int64_t depth);
int32_t dot(const uint8_t* x, const int8_t* w, int64_t depth);
/// Sum of x * w in float.
float dot(const float* x, const int8_t* w, int64_t depth);
/// `count` (even) weights of 4 bits, the first in the low half of each byte, as value + 8.
void unpack_nibbles(const uint8_t* from, int64_t count, int8_t* to);
/// Sum of x * (w + 8) in float for weights stored in this way. Requires: an even depth.
float dot_nibbles(const float* x, const uint8_t* w, int64_t depth);

}  // namespace pteron::cpu
