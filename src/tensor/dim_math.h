// Arithmetic on dims that shape.h templates use for both dim types: int64_t here, ir::Expr in ir/expr.h (same names, found by ADL).
#pragma once

#include <algorithm>
#include <cstdint>

namespace pteron {

/// Python's a // b. Requires: b != 0.
constexpr int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
/// Python's a % b. Requires: b != 0.
constexpr int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }
/// Smallest integer not below a / b.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
constexpr int64_t dim_max(int64_t a, int64_t b) { return std::max(a, b); }
constexpr int64_t dim_min(int64_t a, int64_t b) { return std::min(a, b); }
/// True if the dim is known to equal `value`.
constexpr bool dim_is(int64_t dim, int64_t value) { return dim == value; }
/// True if both dims are known to be equal.
constexpr bool dim_same(int64_t a, int64_t b) { return a == b; }
/// True if the dims are known to differ.
constexpr bool dim_differ(int64_t a, int64_t b) { return a != b; }
/// The value if it is a constant. Requires: dim_is_const(dim).
constexpr bool dim_is_const(int64_t) { return true; }
constexpr int64_t dim_value(int64_t dim) { return dim; }

}  // namespace pteron
