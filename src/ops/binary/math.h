// Scalar functions of two operands with ATen's semantics: integers wrap, NaN propagates where ATen says so. Included by kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>

#include "ops/unary/special.h"

namespace pteron::ops::binary {

using special::kIsComplex;

/// Unsigned type in which T's sums and products wrap without undefined behaviour.
template <typename T>
struct WrapType {
  using Type = std::conditional_t<(sizeof(T) < 4), uint32_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
};
template <typename T>
using Wrap = typename WrapType<T>::Type;

template <typename T>
T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
  if constexpr (!std::is_integral_v<T>) return a + b;
}
template <typename T>
T sub(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a != b;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
  if constexpr (!std::is_integral_v<T>) return a - b;
}
template <typename T>
T mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a && b;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
  if constexpr (!std::is_integral_v<T>) return a * b;
}

template <typename T>
T atan2(T a, T b) {
  return math::atan2(a, b);
}
template <typename T>
T maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T larger = a > b ? a : b;  // b if either is NaN
    return a != a ? a : larger;
  } else {
    return a > b ? a : b;
  }
}
template <typename T>
T minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  } else {
    return a < b ? a : b;
  }
}
template <typename T>
T fmax(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T larger = a > b ? a : b;
    return b != b ? a : larger;
  } else {
    return a > b ? a : b;
  }
}
template <typename T>
T fmin(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T smaller = a < b ? a : b;
    return b != b ? a : smaller;
  } else {
    return a < b ? a : b;
  }
}

template <typename T>
auto magnitude(T x) {
  using U = std::make_unsigned_t<T>;
  return x < 0 ? static_cast<U>(U(0) - static_cast<U>(x)) : static_cast<U>(x);
}
template <typename T>
T gcd(T a, T b) {
  auto x = magnitude(a), y = magnitude(b);
  while (x != 0) {
    const auto rest = static_cast<decltype(x)>(y % x);
    y = x;
    x = rest;
  }
  return static_cast<T>(y);
}
template <typename T>
T lcm(T a, T b) {
  const T g = gcd(a, b);
  if (g == 0) return 0;
  // ATen takes the product in int for narrower types, then its magnitude.
  using Signed = std::make_signed_t<Wrap<T>>;
  const Wrap<T> product = static_cast<Wrap<T>>(magnitude(a)) / static_cast<Wrap<T>>(magnitude(g)) * static_cast<Wrap<T>>(magnitude(b));
  return static_cast<T>(static_cast<Signed>(product) < 0 ? Wrap<T>(0) - product : product);
}

template <typename T>
T hypot(T a, T b) {
  return math::hypot(a, b);
}
template <typename T>
T igamma(T a, T b) {
  return static_cast<T>(special::igamma(a, b));
}
template <typename T>
T igammac(T a, T b) {
  return static_cast<T>(special::igammac(a, b));
}
template <typename T>
T logaddexp(T a, T b) {
  if (std::isinf(a) && a == b) return a;
  const T larger = maximum(a, b);
  return larger + math::log1p(math::exp(-std::fabs(a - b)));
}
template <typename T>
T logaddexp2(T a, T b) {
  if (std::isinf(a) && a == b) return a;
  const T larger = maximum(a, b);
  return larger + math::log1p(math::exp2(-std::fabs(a - b))) * static_cast<T>(1.44269504088896340736);
}
template <typename T>
T nextafter(T a, T b) {
  return math::nextafter(a, b);
}
template <typename T>
T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
T copysign(T a, T b) {
  return std::copysign(a, b);
}
template <typename T>
T xlogy(T a, T b) {
  if (b != b) return b;
  return a == 0 ? T(0) : a * std::log(b);
}
template <typename T>
T xlog1py(T a, T b) {
  if (b != b) return b;
  return a == 0 ? T(0) : a * std::log1p(b);
}
template <typename T>
T zeta(T a, T b) {
  return static_cast<T>(special::zeta(a, b));
}
template <typename T>
T heaviside(T a, T b) {
  return a == 0 ? b : static_cast<T>(a > 0);
}

/// ATen: negative or too large amounts shift everything out.
template <typename T>
T shift_left(T a, T b) {
  using U = std::make_unsigned_t<T>;
  constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
  const bool outside = static_cast<std::make_signed_t<T>>(b) < 0 || b >= static_cast<T>(kBits);
  const auto amount = static_cast<unsigned>(outside ? 0 : b);
  const T shifted = static_cast<T>(static_cast<Wrap<T>>(static_cast<U>(a)) << amount);
  return outside ? T(0) : shifted;
}
template <typename T>
T shift_right(T a, T b) {
  constexpr int kMost = static_cast<int>(sizeof(T)) * 8 - (std::is_signed_v<T> ? 1 : 0);
  const bool outside = static_cast<std::make_signed_t<T>>(b) < 0 || b >= static_cast<T>(kMost);
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (outside ? kMost : static_cast<int>(b)));
  return outside ? T(0) : static_cast<T>(a >> static_cast<unsigned>(outside ? 0 : b));
}

template <typename T>
bool equal(T a, T b) {
  return a == b;
}
template <typename T>
bool not_equal(T a, T b) {
  return a != b;
}
template <typename T>
bool less(T a, T b) {
  return a < b;
}
template <typename T>
bool less_equal(T a, T b) {
  return a <= b;
}
template <typename T>
bool greater(T a, T b) {
  return a > b;
}
template <typename T>
bool greater_equal(T a, T b) {
  return a >= b;
}
template <typename T>
bool logical_and(T a, T b) {
  return a && b;
}
template <typename T>
bool logical_or(T a, T b) {
  return a || b;
}
template <typename T>
bool logical_xor(T a, T b) {
  return a != b;
}

/// True if fast_fmod takes the operands: finite, b not 0, a small quotient.
template <typename T>
bool is_easy_fmod(T a, T b) {
  constexpr T kMost = sizeof(T) == 4 ? T(4194304) : T(1125899906842624);
  return std::fabs(b) < std::numeric_limits<T>::infinity() && std::fabs(a) < std::fabs(b) * kMost;
}
/// fmod without a loop: exact, as the quotient has few bits. Requires: is_easy_fmod(a, b).
template <typename T>
T fast_fmod(T a, T b) {
  const T rest = std::fma(-std::trunc(a / b), b, a);
  // The rounded quotient may have reached the next integer: the rest is then on the other side of zero.
  const T fixed = (rest < 0) != (a < 0) && rest != 0 ? rest + std::copysign(b, a) : rest;
  return std::copysign(fixed, a);
}

/// Python's float floor division, as ATen's div_floor_floating; mod = fmod(a, b), b is not 0.
template <typename T>
T floor_quotient_of(T a, T b, T mod) {
  T quotient = (a - mod) / b;
  quotient -= mod != 0 && (b < 0) != (mod < 0) ? T(1) : T(0);
  const T floored = std::floor(quotient);
  const T rounded = quotient - floored > T(0.5) ? floored + T(1) : floored;
  return quotient == 0 ? std::copysign(T(0), a / b) : rounded;
}
template <typename T>
T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  return floor_quotient_of(a, b, std::fmod(a, b));
}
template <typename T>
T remainder_of(T b, T mod) {
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

/// a to the power b >= 0, wrapping.
template <typename T>
T integer_power(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b < 0) {
      if (a == 1) return 1;
      if (a == -1) return b % 2 == 0 ? 1 : -1;
      return 0;
    }
  }
  Wrap<T> base = static_cast<Wrap<T>>(a), result = 1;
  for (auto exponent = static_cast<std::make_unsigned_t<T>>(b); exponent != 0; exponent = static_cast<std::make_unsigned_t<T>>(exponent >> 1)) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

}  // namespace pteron::ops::binary
