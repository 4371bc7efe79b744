// Elementary functions as branch-free inline code that -O3 vectorises inside plain loops: float versions with about 1-2 ulp error,
// double versions from the C library. Used by kernels of all rooms. Subnormals, infinities and NaN are kept.
//
// Polynomials: our own weighted least-squares fits with Lawson iteration (minimax) of the function named beside them, on Chebyshev nodes,
// in double, rounded to float. Reductions are the classic ones (n*ln2 in two parts, 2*atanh(s) for the logarithm).
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>

namespace pteron::ops::math {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// 2^n for n in [-126, 127].
inline float pow2_int(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

namespace detail {
/// Rounds to the nearest integer by adding 1.5 * 2^23; the low bits of `shifted` are then the integer. |x| < 2^22.
inline float round_shift(float x, float* shifted) {
  *shifted = x + 12582912.0f;
  return *shifted - 12582912.0f;
}
inline int32_t shifted_int(float shifted) { return std::bit_cast<int32_t>(shifted) - 0x4b400000; }
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693145751953125f;         // 0x1.62e4p-1: products with |n| < 2^10 are exact
inline constexpr float kLn2Low = 1.42860682030941723e-6f;
/// (exp(r) - 1 - r) / r^2 on |r| <= ln2/2, error 2e-10.
inline float exp_tail(float r) {
  float p = 0.0001990761811612174f;
  p = std::fma(p, r, 0.0013933676527813077f);
  p = std::fma(p, r, 0.00833328627049923f);
  p = std::fma(p, r, 0.041666463017463684f);
  p = std::fma(p, r, 0.1666666716337204f);
  return std::fma(p, r, 0.5f);
}
/// mantissa - 1 in [sqrt(1/2) - 1, sqrt(2) - 1] and the exponent of x > 0, subnormals included.
inline float split_log(float x, float* exponent) {
  const bool tiny = x < 1.17549435e-38f;
  const float y = tiny ? x * 8388608.0f : x;
  const int32_t bits = std::bit_cast<int32_t>(y);
  const int32_t e = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 = sqrt(1/2)
  *exponent = static_cast<float>(e) - (tiny ? 23.0f : 0.0f);
  return std::bit_cast<float>(bits - (e << 23)) - 1.0f;
}
/// f - log(1 + f), accurately, for f of split_log.
inline float log_rest(float f) {
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 0.2952421009540558f;  // (2*atanh(s)/s - 2) / s^2, error 6e-9
  p = std::fma(p, z, 0.3999083340167999f);
  p = std::fma(p, z, 0.6666666865348816f);
  const float half_square = 0.5f * f * f;
  return half_square - s * (half_square + p * z);
}
/// The special results of logarithms: -inf at 0, NaN below, inf at inf, NaN at NaN.
inline float log_special(float x, float result) {
  result = x == 0.0f ? -kInf : result;
  result = x < 0.0f ? kNaN : result;
  return x < kInf ? result : x + x;  // inf and NaN; x below infinity keeps the result
}
}  // namespace detail

inline float exp(float x) {
  x = x > 90.0f ? 90.0f : x;
  x = x < -110.0f ? -110.0f : x;
  float shifted;
  const float n = detail::round_shift(x * detail::kLog2E, &shifted);
  float r = std::fma(-n, detail::kLn2High, x);
  r = std::fma(-n, detail::kLn2Low, r);
  const float p = std::fma(r * r, detail::exp_tail(r), r) + 1.0f;
  const int32_t k = detail::shifted_int(shifted);
  const int32_t half = k >> 1;
  return p * pow2_int(half) * pow2_int(k - half);
}

inline float exp2(float x) {
  x = x > 130.0f ? 130.0f : x;
  x = x < -160.0f ? -160.0f : x;
  float shifted;
  const float n = detail::round_shift(x, &shifted);
  const float r = (x - n) * 0.693147180559945309f;
  const float p = std::fma(r * r, detail::exp_tail(r), r) + 1.0f;
  const int32_t k = detail::shifted_int(shifted);
  const int32_t half = k >> 1;
  return p * pow2_int(half) * pow2_int(k - half);
}

inline float expm1(float x) {
  float y = x > 89.0f ? 89.0f : x;
  y = y < -20.0f ? -20.0f : y;
  float shifted;
  const float n = detail::round_shift(y * detail::kLog2E, &shifted);
  float r = std::fma(-n, detail::kLn2High, y);
  r = std::fma(-n, detail::kLn2Low, r);
  const float p = std::fma(r * r, detail::exp_tail(r), r);
  const float half_scale = pow2_int(detail::shifted_int(shifted) - 1);
  return 2.0f * std::fma(half_scale, p, half_scale - 0.5f);
}

inline float log(float x) {
  float e;
  const float f = detail::split_log(x, &e);
  const float rest = std::fma(-e, detail::kLn2Low, detail::log_rest(f));
  return detail::log_special(x, std::fma(e, detail::kLn2High, f - rest));
}

inline float log2(float x) {
  float e;
  const float f = detail::split_log(x, &e);
  const float m = f - detail::log_rest(f);
  return detail::log_special(x, std::fma(m, detail::kLog2E, e));
}

inline float log1p(float x) {
  const float u = 1.0f + x;
  const float correction = (x - (u - 1.0f)) / u;
  const float l = log(u);
  const bool special = !(u > 0.0f) || u == kInf;  // x <= -1, NaN, inf: the logarithm of u is the answer
  return special ? l : (x == 0.0f ? x : l + correction);
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

inline float tanh(float x) {
  const float a = std::fabs(x);
  const float t = expm1(2.0f * (a > 10.0f ? 10.0f : a));
  return std::copysign(t / (t + 2.0f), x);
}

inline float erf(float x) {
  const float a = std::fabs(x);
  const float z = x * x;
  float small = 8.409920701524243e-05f;  // erf(x)/x in x^2 on [0, 0.92], error 5e-10
  small = std::fma(small, z, -0.0008152627851814032f);
  small = std::fma(small, z, 0.005201960448175669f);
  small = std::fma(small, z, -0.026859799399971962f);
  small = std::fma(small, z, 0.11283703148365021f);
  small = std::fma(small, z, -0.37612634897232056f);
  small = std::fma(small, z, 1.128379225730896f);
  const float y = a > 3.95f ? 3.95f : a;  // erf(3.95) rounds to 1
  float big = 2.1038995328126475e-05f;    // -log(erfc(x)) on [0.91, 3.95], error 5e-11 / erfc(x)
  big = std::fma(big, y, -0.00043379643466323614f);
  big = std::fma(big, y, 0.0041677444241940975f);
  big = std::fma(big, y, -0.02511044405400753f);
  big = std::fma(big, y, 0.10826580971479416f);
  big = std::fma(big, y, 0.6333602070808411f);
  big = std::fma(big, y, 1.129508137702942f);
  big = std::fma(big, y, -0.00017324122018180788f);
  const float large = std::copysign(1.0f - exp(-big), x);
  return a > 0.92f ? large : x * small;
}

namespace detail {
/// x - n*pi/2 for the nearest n; its low bits into *quadrant. Accurate for |x| up to kMaxTrig.
inline float reduce_trig(float x, int32_t* quadrant) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  const double wide = x;
  const double shifted = wide * 0.63661977236758134308 + kShift;
  const double n = shifted - kShift;
  *quadrant = static_cast<int32_t>(static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted)));
  return static_cast<float>(std::fma(-n, 6.123233995736766e-17, std::fma(-n, 1.5707963267948966, wide)));
}
inline float trig_of(float r, int32_t quadrant) {
  const float z = r * r;
  float s = 2.7249393497186247e-06f;  // (sin(x)-x)/x^3 in x^2 on [0, pi/4], error 1e-11
  s = std::fma(s, z, -0.00019840082677546889f);
  s = std::fma(s, z, 0.008333331905305386f);
  s = std::fma(s, z, -0.1666666716337204f);
  s = std::fma(s * z, r, r);
  float c = -2.661868734321615e-07f;  // (cos(x)-1+x^2/2)/x^4 in x^2
  c = std::fma(c, z, 2.479473732819315e-05f);
  c = std::fma(c, z, -0.0013888876419514418f);
  c = std::fma(c, z, 0.0416666679084301f);
  c = std::fma(c * z, z, std::fma(-0.5f, z, 1.0f));
  const float value = (quadrant & 1) != 0 ? c : s;
  return (quadrant & 2) != 0 ? -value : value;
}
}  // namespace detail

/// Largest |x| that sin, cos and tan here reduce accurately; beyond it use the C library in double.
inline constexpr float kMaxTrig = 1e9f;

inline float sin(float x) {
  int32_t q;
  const float r = detail::reduce_trig(x, &q);
  return detail::trig_of(r, q);
}
inline float cos(float x) {
  int32_t q;
  const float r = detail::reduce_trig(x, &q);
  return detail::trig_of(r, q + 1);
}

inline float tan(float x) {
  int32_t q;
  const float r = detail::reduce_trig(x, &q);
  const float s = detail::trig_of(r, 0), c = detail::trig_of(r, 1);
  return (q & 1) != 0 ? -c / s : s / c;
}

inline double exp(double x) { return std::exp(x); }
inline double exp2(double x) { return std::exp2(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double log(double x) { return std::log(x); }
inline double log2(double x) { return std::log2(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double erf(double x) { return std::erf(x); }
inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }

}  // namespace pteron::ops::math
