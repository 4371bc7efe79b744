// Powers of integers in expressions: their values (expr.cpp) and bounds (expr_bounds.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "base/checked_math.h"

namespace pteron::ir {

/// base to the power of exponent; nothing below zero or beyond 64 bits.
inline std::optional<int64_t> int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (!checked_mul(result, base, &result)) return std::nullopt;
  }
  return result;
}

}  // namespace pteron::ir
