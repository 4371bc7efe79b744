// More elementary functions like those of ops/math.h: branch-free inline code that -O3 vectorises inside plain loops. Float versions of inverse,
// hyperbolic and error functions (about 1-3 ulp), and double versions of the exponential family (1-2 ulp). Used by unary, binary, activation, softmax.
//
// Polynomials: our own weighted least-squares fits with Lawson iteration (minimax) of the function named beside them.
#pragma once

#include "ops/math.h"

namespace pteron::ops::math {

/// c[i] + c[i + 1]*x + ... Unrolled by its types: with a loop here gcc 12 gives up on vectorising the loop around it.
template <size_t i = 0, typename T, size_t n>
[[gnu::always_inline]] inline T polynomial(T x, const T (&c)[n]) {
  if constexpr (i + 1 == n) {
    return c[i];
  } else {
    return std::fma(polynomial<i + 1>(x, c), x, c[i]);
  }
}

namespace detail {
inline constexpr float kHalfPi = 1.57079632679489662f, kQuarterPi = 0.78539816339744831f;
inline constexpr float kHalfPiLow = -4.37113900018624283e-8f;  // pi/2 - kHalfPi
/// atan(a) for a >= 0.
inline float atan_of_positive(float a) {
  const bool far = a > 2.414213562373095f, middle = a > 0.4142135623730950f;
  const float above = far ? -1.0f : (middle ? a - 1.0f : a);
  const float below = far ? a : (middle ? a + 1.0f : 1.0f);
  const float r = above / below;
  const float z = r * r;
  constexpr float kTail[] = {-0.333332896232605f, 0.19991548359394073f, -0.14028944075107574f, 0.08539095520973206f};  // (atan(x)/x - 1)/x^2, error 4e-7
  const float small = std::fma(r * z, polynomial(z, kTail), r);
  return far ? kHalfPi + (small + kHalfPiLow) : (middle ? kQuarterPi + (small + 0.5f * kHalfPiLow) : small);
}
/// asin(x) - x for |x| <= 1/2, z = x^2.
inline float asin_rest(float x, float z) {
  constexpr float kTail[] = {0.16666673123836517f, 0.07498762011528015f, 0.0450202114880085f, 0.026433395221829414f, 0.03832824155688286f};  // error 6e-8
  return x * z * polynomial(z, kTail);
}
/// exp(-x*x) to full relative accuracy, x >= 0.
inline float exp_of_minus_square(float x) {
  const float square = x * x;
  const float rest = std::fma(x, x, -square);
  const float e = exp(-square);
  return std::fma(-rest, e, e);
}
/// erfinv(x) of x in [-1, 1] with w = -log(1 - x*x).
inline float erfinv_of(float x, float w) {
  constexpr float kNear[] = {1.5014094114303589f, 0.24664072692394257f, -0.004177707713097334f, -0.001253707567229867f, 0.00021860218839719892f,
                             -4.396781605464639e-06f, -3.5288589970150497e-06f, 3.4372709478702745e-07f, 2.8534747897879242e-08f};  // erfinv(x)/x in w - 2.5, error 9e-8
  constexpr float kFar[] = {2.832976818084717f, 1.001674771308899f, 0.00944356806576252f, -0.007633996661752462f, 0.005700848530977964f,
                            -0.003612847300246358f, 0.0014502700651064515f, -2.543652954045683e-05f, -0.00028237205697223544f, 9.225523535860702e-05f};  // in sqrt(w) - 3
  const float near = polynomial(w - 2.5f, kNear);
  const float far = polynomial(std::sqrt(w) - 3.0f, kFar);
  const float value = x * (w < 5.0f ? near : far);
  return w < kInf ? value : (w == w ? std::copysign(kInf, x) : w);
}
}  // namespace detail

inline float atan(float x) { return std::copysign(detail::atan_of_positive(std::fabs(x)), x); }

inline float atan2(float y, float x) {
  const float a = std::fabs(y), b = std::fabs(x);
  const float low = a < b ? a : b, high = a < b ? b : a;
  float ratio = low / high;
  ratio = high == 0.0f ? 0.0f : ratio;
  ratio = low == kInf ? 1.0f : ratio;
  float angle = detail::atan_of_positive(ratio);
  angle = a > b ? detail::kHalfPi - (angle - detail::kHalfPiLow) : angle;
  angle = std::bit_cast<int32_t>(x) < 0 ? 2.0f * detail::kHalfPi - (angle - 2.0f * detail::kHalfPiLow) : angle;
  const float value = std::copysign(angle, y);
  return x == x && y == y ? value : x + y;
}

inline float asin(float x) {
  const float a = std::fabs(x);
  const bool large = a > 0.5f;
  const float z = large ? 0.5f * (1.0f - a) : a * a;
  const float s = large ? std::sqrt(z) : a;
  const float inner = s + detail::asin_rest(s, z);
  return std::copysign(large ? detail::kHalfPi - (2.0f * inner - detail::kHalfPiLow) : inner, x);
}
inline float acos(float x) {
  const float a = std::fabs(x);
  const bool large = a > 0.5f;
  const float z = large ? 0.5f * (1.0f - a) : a * a;
  const float s = large ? std::sqrt(z) : x;
  const float inner = s + detail::asin_rest(s, z);
  const float outside = x < 0.0f ? 2.0f * detail::kHalfPi - (2.0f * inner - 2.0f * detail::kHalfPiLow) : 2.0f * inner;
  return large ? outside : detail::kHalfPi - (inner - detail::kHalfPiLow);
}

inline float sinh(float x) {
  const float a = std::fabs(x), z = x * x;
  constexpr float kTail[] = {0.1666666716337204f, 0.008333339355885983f, 0.00019838099251501262f, 2.806300699376152e-06f};  // (sinh(x)/x - 1)/x^2, error 2e-10
  const float small = std::fma(x * z, polynomial(z, kTail), x);
  const float e = exp(a), half = exp(0.5f * a);
  const float middle = 0.5f * e - 0.5f / e, large = 0.5f * half * half;
  const float value = std::copysign(a > 20.0f ? large : middle, x);
  return a > 1.0f ? value : small;  // NaN takes the polynomial
}
inline float cosh(float x) {
  const float a = std::fabs(x);
  const float e = exp(a), half = exp(0.5f * a);
  return a > 20.0f ? 0.5f * half * half : 0.5f * e + 0.5f / e;
}
inline float atanh(float x) {
  const float a = std::fabs(x);
  return std::copysign(0.5f * log1p(2.0f * a / (1.0f - a)), x);
}

inline float log10(float x) {
  float e;
  const float f = detail::split_log(x, &e);
  const float m = f - detail::log_rest(f);
  // log10(2) in two parts: e times the first is exact.
  return detail::log_special(x, std::fma(e, 0.30102920532226562f, std::fma(e, 7.9034171557e-7f, m * 0.43429448190325182f)));
}

inline float erfc(float x) {
  const float a = std::fabs(x);
  const float b = a < 12.0f ? a : 12.0f;  // 0 behind it; NaN too, below
  const float t = (b - 2.0f) / (b + 2.0f);
  constexpr float kScaled[] = {1.2769783735275269f, -0.09276382625102997f, -0.16603045165538788f, 0.16405129432678223f, -0.05421885475516319f,
                               -0.00803384743630886f, 0.00871433224529028f, 0.0012673435267060995f, -0.0014294952852651477f, -0.0004330164520069957f,
                               0.00016681298438925296f, 0.0001056095861713402f, 1.2837696885981131e-05f};  // erfc(x)*exp(x^2)*(1 + 2x), error 4e-10
  const float tail = detail::exp_of_minus_square(b) * (polynomial(t, kScaled) / std::fma(2.0f, b, 1.0f));
  const float value = x < 0.0f ? 2.0f - tail : tail;
  return x == x ? value : x;
}

inline float erfinv(float x) {
  const float a = std::fabs(x);
  const float near = log1p(-x * x), far = log((1.0f - a) * (1.0f + a));  // 1 - x^2 loses nothing in either
  return detail::erfinv_of(x, -(a > 0.5f ? far : near));
}
/// Quantile of the normal distribution.
inline float ndtri(float p) { return 1.41421356237309505f * detail::erfinv_of(2.0f * p - 1.0f, -log(4.0f * p * (1.0f - p))); }

/// exp(-|x|) * I1(x).
inline float i1e(float x) {
  const float a = std::fabs(x);
  constexpr float kNear[] = {0.04468771070241928f, -0.06112433597445488f, 0.068057581782341f, -0.06848277151584625f, 0.06376802176237106f, -0.05527757853269577f,
                              0.04466693475842476f, -0.033686865121126175f, 0.023731427267193794f, -0.015522543340921402f, 0.00943735707551241f, -0.005612208042293787f,
                              0.0032751590479165316f, -0.0014884177362546325f, 0.0004665197338908911f, -0.0003286037826910615f, 0.00029319303575903177f,
                              -9.276738273911178e-05f};  // i1e(x)/x in x/4 - 1, error 5e-9
  constexpr float kFar[] = {0.3989422917366028f, -0.01870042458176613f, -0.000730360858142376f, -8.092739153653383e-05f, -9.92863715509884e-06f,
                            -1.1978130714851432e-05f, 8.18733315099962e-06f, -4.5810847950633615e-06f};  // i1e(x)*sqrt(x) in 8/x, error 4e-11
  const float near = a * polynomial(std::fma(0.25f, a, -1.0f), kNear);
  const float far = polynomial(8.0f / a, kFar) / std::sqrt(a);
  return std::copysign(a > 8.0f ? far : near, x);
}

inline float hypot(float a, float b) {
  const double x = a, y = b;
  const auto value = static_cast<float>(std::sqrt(x * x + y * y));
  return std::fabs(a) == kInf || std::fabs(b) == kInf ? kInf : value;
}

inline float nextafter(float a, float b) {
  const int32_t bits = std::bit_cast<int32_t>(a);
  const bool away = (a < b) == (bits >= 0);
  const float step = std::bit_cast<float>(bits + (away ? 1 : -1));
  const float from_zero = std::bit_cast<float>(1 | (std::bit_cast<int32_t>(b) & static_cast<int32_t>(0x80000000)));
  const float moved = a == 0.0f ? from_zero : step;
  return a == b ? b : (a == a && b == b ? moved : a + b);
}

namespace detail {
/// exp(r)-1 pieces in double: n and r = x - n*ln2 with |r| <= ln2/2. |x| < 1100.
inline double exp_reduce(double x, double* shifted) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the low bits are then the integer
  *shifted = std::fma(x, 1.4426950408889634074, kShift);
  const double n = *shifted - kShift;
  return std::fma(-n, 1.90821492927058770002e-10, std::fma(-n, 6.93147180369123816490e-01, x));
}
/// 2^n from the shifted number, n in [-1022, 1023].
inline double pow2_shifted(double shifted) { return std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52); }
/// exp(r) - 1 - r for |r| <= ln2/2, error 1e-16 of r^2.
inline double exp_rest(double r) {
  constexpr double kTail[] = {0.4999999999999999, 0.16666666666666732, 0.04166666666664959, 0.008333333333343742, 0.0013888888909026264, 0.00019841269789072107,
                              2.4801530556424297e-05, 2.7557361845525087e-06, 2.7616531396860124e-07, 2.5062562324101792e-08};
  return r * r * polynomial(r, kTail);
}
}  // namespace detail

/// exp in double, within 3 ulp.
inline double fast_exp(double x) {
  double y = x > 720.0 ? 720.0 : x;
  y = y < -720.0 ? -720.0 : y;
  double shifted;
  const double r = detail::exp_reduce(0.5 * y, &shifted);  // half of it squared: one scale never overflows
  const double scale = detail::pow2_shifted(shifted);
  const double half = scale * (1.0 + (r + detail::exp_rest(r)));
  return x < -745.2 ? 0.0 : half * half;
}
inline double fast_sigmoid(double x) { return 1.0 / (1.0 + fast_exp(-x)); }
inline double fast_tanh(double x) {
  const double a = std::fabs(x);
  double y = a > 22.0 ? 22.0 : a;
  double shifted;
  const double r = detail::exp_reduce(-2.0 * y, &shifted);
  const double scale = detail::pow2_shifted(shifted);
  const double m = std::fma(scale, r + detail::exp_rest(r), scale - 1.0);  // exp(-2a) - 1
  const double value = std::copysign(-m / (2.0 + m), x);
  return x == x ? value : x;
}

/// The types that have no version above: the C library.
template <typename T>
T atan(T x) { return std::atan(x); }
template <typename T>
T asin(T x) { return std::asin(x); }
template <typename T>
T acos(T x) { return std::acos(x); }
template <typename T>
T sinh(T x) { return std::sinh(x); }
template <typename T>
T cosh(T x) { return std::cosh(x); }
template <typename T>
T atanh(T x) { return std::atanh(x); }
template <typename T>
T log10(T x) { return std::log10(x); }
inline double erfc(double x) { return std::erfc(x); }
inline double atan2(double a, double b) { return std::atan2(a, b); }
inline double hypot(double a, double b) { return std::hypot(a, b); }
inline double nextafter(double a, double b) { return std::nextafter(a, b); }

}  // namespace pteron::ops::math
