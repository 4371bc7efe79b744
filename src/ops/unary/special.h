// Scalar functions of unary and binary operators that the C library does not have, and integer-aware ones. Included by their kernels.
#pragma once

#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

#include "ops/math.h"
#include "ops/math_more.h"

namespace pteron::ops::math {
template <typename T>
std::complex<T> exp(std::complex<T> x) { return std::exp(x); }
template <typename T>
std::complex<T> log(std::complex<T> x) { return std::log(x); }
template <typename T>
std::complex<T> tanh(std::complex<T> x) { return std::tanh(x); }
template <typename T>
std::complex<T> sigmoid(std::complex<T> x) { return T(1) / (T(1) + std::exp(-x)); }
}  // namespace pteron::ops::math

namespace pteron::ops::special {

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

double digamma(double x);
double trigamma(double x);
double erfinv(double x);
/// Inverse of erfc on (0, 2).
double erfcinv(double x);
double i0(double x);
double i0e(double x);
double i1(double x);
double i1e(double x);
double lgamma(double x);
double erfcx(double x);
double log_ndtr(double x);
double ndtri(double x);
double bessel_j0(double x);
double bessel_j1(double x);
double bessel_y0(double x);
double bessel_y1(double x);
/// Hurwitz zeta, sum over k >= 0 of (k + q)^-x.
double zeta(double x, double q);
/// n-th derivative of digamma.
double polygamma(int64_t n, double x);
/// Regularised lower and upper incomplete gamma functions.
double igamma(double a, double x);
double igammac(double a, double x);

// Vectorised where there is such a version for the type, else as above or in ops/math.h.
inline float fast_erfinv(float x) { return math::erfinv(x); }
inline double fast_erfinv(double x) { return erfinv(x); }
inline float fast_ndtri(float x) { return math::ndtri(x); }
inline double fast_ndtri(double x) { return ndtri(x); }
inline float fast_i1e(float x) { return math::i1e(x); }
inline double fast_i1e(double x) { return i1e(x); }
inline float fast_i1(float x) {
  const float half = math::exp(0.5f * std::fabs(x));  // in two steps: the whole overflows first
  return math::i1e(x) * half * half;
}
inline double fast_i1(double x) { return i1(x); }
template <typename T>
T fast_exp(T x) {
  if constexpr (std::is_same_v<T, double>) return math::fast_exp(x);
  if constexpr (!std::is_same_v<T, double>) return math::exp(x);
}
template <typename T>
T fast_sigmoid(T x) {
  if constexpr (std::is_same_v<T, double>) return math::fast_sigmoid(x);
  if constexpr (!std::is_same_v<T, double>) return math::sigmoid(x);
}
template <typename T>
T fast_tanh(T x) {
  if constexpr (std::is_same_v<T, double>) return math::fast_tanh(x);
  if constexpr (!std::is_same_v<T, double>) return math::tanh(x);
}

template <typename T>
T entr(T x) {
  if (std::isnan(x)) return x;
  if (x > 0) return -x * std::log(x);
  return x == 0 ? T(0) : -std::numeric_limits<T>::infinity();
}

template <typename T>
T sinc(T x) {
  const T y = static_cast<T>(3.14159265358979323846) * x;
  return x == 0 ? T(1) : std::sin(y) / y;
}

template <typename T>
T conj(T x) {
  if constexpr (kIsComplex<T>) return std::conj(x);
  if constexpr (!kIsComplex<T>) return x;
}

/// -x; integers wrap.
template <typename T>
T neg(T x) {
  if constexpr (std::is_same_v<T, bool>) return x;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0u - static_cast<std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, int, T>>>(x));
  if constexpr (!std::is_integral_v<T>) return -x;
}

template <typename T>
T sign(T x) {
  if constexpr (kIsComplex<T>) {
    const auto size = std::abs(x);
    return size == 0 ? T(0) : x / size;
  } else if constexpr (std::is_same_v<T, bool>) {
    return x;
  } else {
    return static_cast<T>((x > T(0) ? 1 : 0) - (x < T(0) ? 1 : 0));  // NaN gives 0, as ATen
  }
}

template <typename T>
bool is_nan(T x) {
  if constexpr (kIsComplex<T>) return x.real() != x.real() || x.imag() != x.imag();
  if constexpr (!kIsComplex<T>) return x != x;
}
template <typename T>
bool is_inf(T x) {
  if constexpr (kIsComplex<T>) {
    return is_inf(x.real()) || is_inf(x.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x) == std::numeric_limits<T>::infinity();
  } else {
    return false;
  }
}
template <typename T>
bool is_finite(T x) {
  if constexpr (kIsComplex<T>) {
    return is_finite(x.real()) && is_finite(x.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x) < std::numeric_limits<T>::infinity();
  } else {
    return true;
  }
}
template <typename T>
bool is_pos_inf(T x) {
  if constexpr (std::is_floating_point_v<T>) return x == std::numeric_limits<T>::infinity();
  if constexpr (!std::is_floating_point_v<T>) return false;
}
template <typename T>
bool is_neg_inf(T x) {
  if constexpr (std::is_floating_point_v<T>) return x == -std::numeric_limits<T>::infinity();
  if constexpr (!std::is_floating_point_v<T>) return false;
}
template <typename T>
bool sign_bit(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::signbit(x);
  if constexpr (!std::is_floating_point_v<T>) return x < T(0);
}

}  // namespace pteron::ops::special
