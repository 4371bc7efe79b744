// The instructions of pointwise programs as loops over contiguous floats, for this processor (Highway: AVX2, AVX-512). Called by pointwise.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pteron::cpu {

enum class PointwiseOp : uint8_t {
#define POINTWISE(name, operands) k_##name,
#include "backends/cpu/pointwise_ops.inc"
#undef POINTWISE
  kCount
};
inline constexpr size_t kPointwiseOps = static_cast<size_t>(PointwiseOp::kCount);

/// out[i] = op(a[i], b[i], c[i]) for i < n; operands that the instruction lacks are not read. out may be an operand.
using PointwiseFn = void (*)(const float* a, const float* b, const float* c, float value, float* out, size_t n);

/// Instructions of this processor. Two operands have further versions in which `value` stands for one of them.
struct PointwiseSet {
  PointwiseFn plain[kPointwiseOps] = {};
  PointwiseFn right_value[kPointwiseOps] = {};  ///< op(a[i], value)
  PointwiseFn left_value[kPointwiseOps] = {};   ///< op(value, b[i])
  /// Functions of one to three vectors of `lanes` floats, given and returned in vector registers.
  const void* vector[kPointwiseOps] = {};
  int lanes = 0;
  /// to[r][c] = from[r * row + c] for rows of `columns` floats; `to` has no gaps.
  void (*gather_rows)(const float* from, int64_t row, int64_t rows, int64_t columns, float* to) = nullptr;
  /// Sum of n floats.
  float (*sum)(const float* x, int64_t n) = nullptr;
  /// Copies n floats past the caches; other threads see them after flush().
  void (*stream)(const float* from, float* to, size_t n) = nullptr;
  void (*flush)() = nullptr;
};
const PointwiseSet& pointwise_set();

}  // namespace pteron::cpu
