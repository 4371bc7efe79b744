// 8-bit floats to and from float, bit by bit as PyTorch converts them. Used by convert_float8.cpp and tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/dtype.h"

namespace pteron::ops {

/// A layout of 8 bits: sign, exponent, mantissa. fnuz: no infinities, no negative zero, 0x80 is NaN, the bias is one more.
struct Float8Format {
  int mantissa_bits;
  int bias;
  bool fnuz;
  bool infinite;  ///< has infinities (e5m2)
};
constexpr Float8Format float8_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E5M2: return {2, 15, false, true};
    case DType::kFloat8E4M3FN: return {3, 7, false, false};
    case DType::kFloat8E5M2FNUZ: return {2, 16, true, false};
    default: return {3, 8, true, false};
  }
}

inline float float8_to_float(uint8_t bits, Float8Format f) {
  const int magnitude = bits & 0x7f, exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << (7 - f.mantissa_bits)) - 1;
  if (f.fnuz ? bits == 0x80 : f.infinite ? exponent == top && mantissa != 0 : magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  float value = 0;
  if (f.infinite && exponent == top) {
    value = std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + (1 << f.mantissa_bits)), exponent - f.bias - f.mantissa_bits);
  }
  return (bits & 0x80) != 0 ? -value : value;
}

/// Rounds to nearest, ties to even; too large values become infinite (e5m2), the largest number (e4m3fn) or NaN.
inline uint8_t float_to_float8(float value, Float8Format f) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint8_t>(bits >> 31 << 7);
  if (magnitude > 0x7f800000u) return f.fnuz ? 0x80 : static_cast<uint8_t>(sign | 0x7f);
  uint32_t code = 0;
  if (magnitude < static_cast<uint32_t>(128 - f.bias) << 23) {  // below the smallest normal number
    code = static_cast<uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), f.bias - 1 + f.mantissa_bits)));
  } else {
    const int drop = 23 - f.mantissa_bits;
    const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - f.bias) << 23);
    code = (rebased + (1u << (drop - 1)) - 1 + (rebased >> drop & 1)) >> drop;
  }
  if (f.fnuz) return code > 0x7f ? uint8_t{0x80} : code == 0 ? uint8_t{0} : static_cast<uint8_t>(sign | code);
  const uint32_t most = f.infinite ? 0x7c : 0x7e;
  return static_cast<uint8_t>(sign | (code > most ? most : code));
}

/// A conversion from or to an 8-bit float; null if neither is one or the other has no C++ type.
void (*find_float8_convert(DType from, DType to))(int64_t n, const void* from_data, void* to_data);

}  // namespace pteron::ops
