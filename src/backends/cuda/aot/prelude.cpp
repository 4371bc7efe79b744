// The text in front of every program of kernels: what generated expressions call. Rules (NaN, division, powers, integer overflow) are those of the portable
// kernels in src/ops.
#include "backends/cuda/aot/kernel_sources.h"

namespace pteron::cuda {

namespace {

constexpr std::string_view kTypes = R"cuda(
#define PTERON_KERNEL extern "C" __global__ void
// Kernels start while the one before them in the stream still runs (programmatic dependent launch). Each of them has PTERON_BEGIN(), or its two halves, before it
// touches what other kernels write: so whatever was queued before is done, however many kernels lie between.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PTERON_NEXT_MAY_START() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define PTERON_WAIT_FOR_BEFORE() asm volatile("griddepcontrol.wait;" ::: "memory")
#define PTERON_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define PTERON_NEXT_MAY_START() ((void)0)
#define PTERON_WAIT_FOR_BEFORE() ((void)0)
#define PTERON_CLUSTER(blocks)
#endif
#define PTERON_BEGIN() do { PTERON_NEXT_MAY_START(); PTERON_WAIT_FOR_BEFORE(); } while (0)
#ifdef PTERON_EMULATOR
#define P_DEV static inline
#else
#define P_DEV static __device__ __forceinline__
#endif
typedef long long i64;
typedef unsigned long long u64;
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned int u32;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };
#define P_INF __int_as_float(0x7f800000)
#define P_NAN __int_as_float(0x7fffffff)
#define P_DINF __longlong_as_double(0x7ff0000000000000ll)
#define P_DNAN __longlong_as_double(0x7ff8000000000000ll)
P_DEV float p_float(bf16 x) { return __int_as_float((int)((u32)x.bits << 16)); }
#ifdef __CUDA_ARCH__
P_DEV float p_float(f16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
P_DEV f16 p_f16(float x) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
P_DEV bf16 p_bf16(float x) { bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
#else
P_DEV float p_float(f16 x) {
  const u32 s = (u32)(x.bits & 0x8000) << 16, e = (x.bits >> 10) & 31, m = x.bits & 1023;
  if (e == 31) return __int_as_float((int)(s | 0x7f800000u | (m << 13)));
  if (e == 0) { const float v = (float)m * 5.9604644775390625e-8f; return s ? -v : v; }
  return __int_as_float((int)(s | ((e + 112) << 23) | (m << 13)));
}
P_DEV f16 p_f16(float x) {
  const u32 b = (u32)__float_as_int(x), s = (b >> 16) & 0x8000, a = b & 0x7fffffff;
  f16 r;
  if (a > 0x7f800000u) { r.bits = (unsigned short)(s | 0x7fff); return r; }
  if (a >= 0x477ff000u) { r.bits = (unsigned short)(s | 0x7c00); return r; }
  if (a < 0x38800000u) {
    const float v = __int_as_float((int)a) * 16777216.0f;
    u32 n = (u32)v;
    const float rest = v - (float)n;
    if (rest > 0.5f || (rest == 0.5f && (n & 1))) ++n;
    r.bits = (unsigned short)(s | n);
    return r;
  }
  const u32 t = a - 0x38000000u;
  r.bits = (unsigned short)(s | ((t + 0xfff + ((t >> 13) & 1)) >> 13));
  return r;
}
P_DEV bf16 p_bf16(float x) {
  const u32 b = (u32)__float_as_int(x);
  bf16 r;
  r.bits = (unsigned short)((b & 0x7fffffff) > 0x7f800000u ? 0x7fff : (b + 0x7fff + ((b >> 16) & 1)) >> 16);
  return r;
}
#endif
// 8-bit floats: MANTISSA bits and the bias of the exponent; ties go to even, what is too large becomes `most`.
template <int MANTISSA, int BIAS> P_DEV u8 p_narrow8(float x, u32 most) {
  const u32 b = (u32)__float_as_int(x), s = (b >> 24) & 0x80, a = b & 0x7fffffff;
  if (a > 0x7f800000u) return (u8)(s | 0x7f);
  u32 code;
  if (a < (u32)(128 - BIAS) << 23) {
    code = (u32)rintf(__int_as_float((int)a) * (float)(1 << (BIAS - 1 + MANTISSA)));
  } else {
    const u32 r = a - ((u32)(127 - BIAS) << 23);
    code = (r + (1u << (22 - MANTISSA)) - 1 + ((r >> (23 - MANTISSA)) & 1)) >> (23 - MANTISSA);
  }
  return (u8)(s | (code > most ? most : code));
}
P_DEV f8e5m2 p_f8e5m2(float x) { f8e5m2 r; r.bits = p_narrow8<2, 15>(x, 0x7c); return r; }
P_DEV float p_float(f8e5m2 x) { f16 wide; wide.bits = (unsigned short)(x.bits << 8); return p_float(wide); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
P_DEV f8e4m3 p_f8e4m3(float x) {
  unsigned short two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
  f8e4m3 r;
  r.bits = (u8)two;
  return r;
}
P_DEV float p_float(f8e4m3 x) {
  u32 two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((unsigned short)x.bits));
  f16 wide;
  wide.bits = (unsigned short)two;
  return p_float(wide);
}
#else
P_DEV f8e4m3 p_f8e4m3(float x) { f8e4m3 r; r.bits = p_narrow8<3, 7>(x, 0x7e); return r; }
P_DEV float p_float(f8e4m3 x) {
  if ((x.bits & 0x7f) == 0x7f) return P_NAN;
  const float v = __int_as_float((x.bits & 0x7f) << 20) * 1.329227995784916e36f;
  return (x.bits & 0x80) != 0 ? -v : v;
}
#endif
template <typename T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };
P_DEV float p_round_f8e4m3(float x) { return p_float(p_f8e4m3(x)); }
P_DEV float p_round_f8e5m2(float x) { return p_float(p_f8e5m2(x)); }
P_DEV float p_round_f16(float x) { return p_float(p_f16(x)); }
P_DEV float p_round_bf16(float x) { return p_float(p_bf16(x)); }
template <typename T> P_DEV T p_read(T x) { return x; }
P_DEV float p_read(f16 x) { return p_float(x); }
P_DEV float p_read(bf16 x) { return p_float(x); }
P_DEV float p_read(f8e4m3 x) { return p_float(x); }
P_DEV float p_read(f8e5m2 x) { return p_float(x); }
#define P_STORE(T, x) PStore<T>::of(x)
template <typename T> struct PStore { template <typename S> P_DEV T of(S x) { return (T)x; } };
template <> struct PStore<f16> { P_DEV f16 of(float x) { return p_f16(x); } };
template <> struct PStore<bf16> { P_DEV bf16 of(float x) { return p_bf16(x); } };
template <> struct PStore<f8e4m3> { P_DEV f8e4m3 of(float x) { return p_f8e4m3(x); } };
template <> struct PStore<f8e5m2> { P_DEV f8e5m2 of(float x) { return p_f8e5m2(x); } };
// A float becomes an integer as a host's conversion does it: by way of 64 bits, what does not fit there is its least number.
P_DEV i64 p_trunc64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (i64)x : (i64)0x8000000000000000ull; }
template <typename T> struct Unsigned { typedef u32 type; };
template <> struct Unsigned<i64> { typedef u64 type; };
template <typename T> struct Bits { typedef unsigned int type; static const int count = 32; static const bool is_signed = true; };
template <> struct Bits<i8> { typedef u8 type; static const int count = 8; static const bool is_signed = true; };
template <> struct Bits<u8> { typedef u8 type; static const int count = 8; static const bool is_signed = false; };
template <> struct Bits<short> { typedef unsigned short type; static const int count = 16; static const bool is_signed = true; };
template <> struct Bits<i64> { typedef u64 type; static const int count = 64; static const bool is_signed = true; };
)cuda";

constexpr std::string_view kMath = R"cuda(
#define P_MATH1(name, single, twice) \
  P_DEV float name(float x) { return single(x); } \
  P_DEV double name(double x) { return twice(x); }
P_MATH1(m_exp, expf, exp) P_MATH1(m_exp2, exp2f, exp2) P_MATH1(m_expm1, expm1f, expm1) P_MATH1(m_log, logf, log) P_MATH1(m_log2, log2f, log2)
P_MATH1(m_log10, log10f, log10) P_MATH1(m_log1p, log1pf, log1p) P_MATH1(m_sqrt, sqrtf, sqrt) P_MATH1(m_sin, sinf, sin) P_MATH1(m_cos, cosf, cos)
P_MATH1(m_tan, tanf, tan) P_MATH1(m_asin, asinf, asin) P_MATH1(m_acos, acosf, acos) P_MATH1(m_atan, atanf, atan) P_MATH1(m_sinh, sinhf, sinh)
P_MATH1(m_cosh, coshf, cosh) P_MATH1(m_tanh, tanhf, tanh) P_MATH1(m_asinh, asinhf, asinh) P_MATH1(m_acosh, acoshf, acosh) P_MATH1(m_atanh, atanhf, atanh)
P_MATH1(m_erf, erff, erf) P_MATH1(m_erfc, erfcf, erfc) P_MATH1(m_floor, floorf, floor) P_MATH1(m_ceil, ceilf, ceil) P_MATH1(m_trunc, truncf, trunc)
P_MATH1(m_round, rintf, rint) P_MATH1(m_abs, fabsf, fabs) P_MATH1(m_lgamma, lgammaf, lgamma)
P_DEV float m_pow(float a, float b) { return powf(a, b); }
P_DEV double m_pow(double a, double b) { return pow(a, b); }
P_DEV float m_fmod(float a, float b) { return fmodf(a, b); }
P_DEV double m_fmod(double a, double b) { return fmod(a, b); }
P_DEV float m_atan2(float a, float b) { return atan2f(a, b); }
P_DEV double m_atan2(double a, double b) { return atan2(a, b); }
P_DEV float m_hypot(float a, float b) { return hypotf(a, b); }
P_DEV double m_hypot(double a, double b) { return hypot(a, b); }
P_DEV float m_copysign(float a, float b) { return copysignf(a, b); }
P_DEV double m_copysign(double a, double b) { return copysign(a, b); }
P_DEV float m_nextafter(float a, float b) { return nextafterf(a, b); }
P_DEV double m_nextafter(double a, double b) { return nextafter(a, b); }
P_DEV float p_inf(float) { return P_INF; }
P_DEV double p_inf(double) { return P_DINF; }
template <typename T> P_DEV T p_add(T a, T b) { return (T)((typename Unsigned<T>::type)a + (typename Unsigned<T>::type)b); }
template <typename T> P_DEV T p_sub(T a, T b) { return (T)((typename Unsigned<T>::type)a - (typename Unsigned<T>::type)b); }
template <typename T> P_DEV T p_mul(T a, T b) { return (T)((typename Unsigned<T>::type)a * (typename Unsigned<T>::type)b); }
P_DEV float p_add(float a, float b) { return a + b; }
P_DEV float p_sub(float a, float b) { return a - b; }
P_DEV float p_mul(float a, float b) { return a * b; }
P_DEV double p_add(double a, double b) { return a + b; }
P_DEV double p_sub(double a, double b) { return a - b; }
P_DEV double p_mul(double a, double b) { return a * b; }
P_DEV bool p_add(bool a, bool b) { return a || b; }
P_DEV bool p_sub(bool a, bool b) { return a != b; }
P_DEV bool p_mul(bool a, bool b) { return a && b; }
template <typename T> P_DEV T p_neg(T x) { return (T)((typename Unsigned<T>::type)0 - (typename Unsigned<T>::type)x); }
P_DEV float p_neg(float x) { return -x; }
P_DEV double p_neg(double x) { return -x; }
P_DEV bool p_neg(bool x) { return x; }
template <typename T> P_DEV T p_abs(T x) { return x < (T)0 ? p_neg(x) : x; }
P_DEV float p_abs(float x) { return fabsf(x); }
P_DEV double p_abs(double x) { return fabs(x); }
P_DEV bool p_abs(bool x) { return x; }
template <typename T> P_DEV T p_sign(T x) { return (T)((x > (T)0 ? 1 : 0) - (x < (T)0 ? 1 : 0)); }
P_DEV bool p_sign(bool x) { return x; }
template <typename T> P_DEV bool p_isnan(T x) { return x != x; }
template <typename T> P_DEV bool p_isinf(T) { return false; }
P_DEV bool p_isinf(float x) { return fabsf(x) == P_INF; }
P_DEV bool p_isinf(double x) { return fabs(x) == P_DINF; }
template <typename T> P_DEV bool p_isfinite(T) { return true; }
P_DEV bool p_isfinite(float x) { return fabsf(x) < P_INF; }
P_DEV bool p_isfinite(double x) { return fabs(x) < P_DINF; }
template <typename T> P_DEV bool p_isposinf(T x) { return p_isinf(x) && x > (T)0; }
template <typename T> P_DEV bool p_isneginf(T x) { return p_isinf(x) && x < (T)0; }
template <typename T> P_DEV bool p_signbit(T x) { return x < (T)0; }
P_DEV bool p_signbit(float x) { return __float_as_int(x) < 0; }
P_DEV bool p_signbit(double x) { return __double_as_longlong(x) < 0; }
P_DEV bool p_signbit(bool) { return false; }
template <typename T> P_DEV T p_max(T a, T b) { return a != a ? a : (a > b ? a : b); }
template <typename T> P_DEV T p_min(T a, T b) { return a != a ? a : (a < b ? a : b); }
template <typename T> P_DEV T p_fmax(T a, T b) { return b != b ? a : (a > b ? a : b); }
template <typename T> P_DEV T p_fmin(T a, T b) { return b != b ? a : (a < b ? a : b); }
template <typename T> P_DEV T p_relu(T x) { return x < (T)0 ? (T)0 : x; }
template <typename T> P_DEV T p_clamp(T x, T low, T high) { return p_min(p_max(x, low), high); }
template <typename T> P_DEV T p_sigmoid(T x) { return (T)1 / ((T)1 + m_exp(-x)); }
template <typename T> P_DEV T p_gelu(T x) { return x * (T)0.5 * ((T)1 + m_erf(x * (T)0.70710678118654752440)); }
template <typename T> P_DEV T p_gelu_tanh(T x) {
  return (T)0.5 * x * ((T)1 + m_tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)));
}
template <typename T> P_DEV T p_softplus(T x, T beta, T threshold) { return x * beta > threshold ? x : m_log1p(m_exp(x * beta)) / beta; }
template <typename T> P_DEV T p_mish(T x) { return x * m_tanh(m_log1p(m_exp(x))); }
template <typename T> P_DEV T p_log_sigmoid(T x) { return p_min(x, (T)0) - m_log1p(m_exp(-m_abs(x))); }
template <typename T> P_DEV T p_elu(T x, T alpha, T scale, T input_scale) { return x <= (T)0 ? m_expm1(x * input_scale) * (alpha * scale) : x * scale; }
template <typename T> P_DEV T p_hardsigmoid(T x) { return p_min(p_max(x + (T)3, (T)0), (T)6) / (T)6; }
template <typename T> P_DEV T p_hardswish(T x) { return x * p_min(p_max(x + (T)3, (T)0), (T)6) / (T)6; }
template <typename T> P_DEV T p_logaddexp(T a, T b) {
  if (p_isinf(a) && a == b) return a;
  return p_max(a, b) + m_log1p(m_exp(-m_abs(a - b)));
}
template <typename T> P_DEV T p_logaddexp2(T a, T b) {
  if (p_isinf(a) && a == b) return a;
  return p_max(a, b) + m_log1p(m_exp2(-m_abs(a - b))) * (T)1.44269504088896340736;
}
template <typename T> P_DEV T p_xlogy(T a, T b) { return b != b ? b : a == (T)0 ? (T)0 : a * m_log(b); }
template <typename T> P_DEV T p_xlog1py(T a, T b) { return b != b ? b : a == (T)0 ? (T)0 : a * m_log1p(b); }
template <typename T> P_DEV T p_sinc(T x) { const T y = (T)3.14159265358979323846 * x; return x == (T)0 ? (T)1 : m_sin(y) / y; }
template <typename T> P_DEV T p_heaviside(T a, T b) { return a == (T)0 ? b : (T)(a > (T)0); }
template <typename T> P_DEV T p_lerp(T a, T b, T w) { return m_abs(w) < (T)0.5 ? a + w * (b - a) : b - (b - a) * ((T)1 - w); }
template <typename T> P_DEV T p_logit(T x) { return m_log(x / ((T)1 - x)); }
// Python's and C's division; integers by zero give zero here, as no portable kernel computes them.
template <typename T> P_DEV T p_divtrunc(T a, T b) { return b == (T)0 ? (T)0 : b == (T)-1 ? p_neg(a) : (T)(a / b); }
template <typename T> P_DEV T p_modtrunc(T a, T b) { return b == (T)0 || b == (T)-1 ? (T)0 : (T)(a % b); }
P_DEV u8 p_divtrunc(u8 a, u8 b) { return b == 0 ? (u8)0 : (u8)(a / b); }
P_DEV u8 p_modtrunc(u8 a, u8 b) { return b == 0 ? (u8)0 : (u8)(a % b); }
P_DEV float p_divtrunc(float a, float b) { return truncf(a / b); }
P_DEV double p_divtrunc(double a, double b) { return trunc(a / b); }
P_DEV float p_modtrunc(float a, float b) { return fmodf(a, b); }
P_DEV double p_modtrunc(double a, double b) { return fmod(a, b); }
template <typename T> P_DEV T p_divfloor(T a, T b) {
  const T q = p_divtrunc(a, b), m = p_modtrunc(a, b);
  return m != (T)0 && (m < (T)0) != (b < (T)0) ? (T)(q - 1) : q;
}
template <typename T> P_DEV T p_floorreal(T a, T b) {
  if (b == (T)0) return a / b;
  const T mod = m_fmod(a, b);
  T quotient = (a - mod) / b;
  quotient -= mod != (T)0 && (b < (T)0) != (mod < (T)0) ? (T)1 : (T)0;
  if (quotient == (T)0) return m_copysign((T)0, a / b);
  const T floored = m_floor(quotient);
  return quotient - floored > (T)0.5 ? floored + (T)1 : floored;
}
P_DEV float p_divfloor(float a, float b) { return p_floorreal(a, b); }
P_DEV double p_divfloor(double a, double b) { return p_floorreal(a, b); }
template <typename T> P_DEV T p_remainder(T a, T b) {
  const T m = p_modtrunc(a, b);
  return m != (T)0 && (b < (T)0) != (m < (T)0) ? (T)(m + b) : m;
}
template <typename T> P_DEV T p_pow(T a, T b) {
  if (b < (T)0) return a == (T)1 ? (T)1 : Bits<T>::is_signed && a == (T)-1 ? (b % 2 == 0 ? (T)1 : (T)-1) : (T)0;
  typename Unsigned<T>::type base = (typename Unsigned<T>::type)a, result = 1;
  for (u64 exponent = (u64)b; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return (T)result;
}
P_DEV float p_pow(float a, float b) { return powf(a, b); }
P_DEV double p_pow(double a, double b) { return pow(a, b); }
template <typename T> P_DEV T p_shl(T a, T b) {
  if ((i64)b < 0 || (i64)b >= Bits<T>::count) return (T)0;
  return (T)((typename Unsigned<T>::type)(typename Bits<T>::type)a << (int)b);
}
template <typename T> P_DEV T p_shr(T a, T b) {
  const int most = Bits<T>::count - (Bits<T>::is_signed ? 1 : 0);
  const bool outside = (i64)b < 0 || (i64)b >= most;
  if (Bits<T>::is_signed) return (T)(a >> (outside ? most : (int)b));
  return outside ? (T)0 : (T)(a >> (int)b);
}
template <typename T> P_DEV T p_gcd(T a, T b) {
  a = p_abs(a), b = p_abs(b);
  while (a != (T)0) { const T rest = p_modtrunc(b, a); b = a; a = rest; }
  return b;
}
// Levels: products and sums that are rounded one after the other, as PyTorch computes them.
template <bool late> P_DEV float p_level(float x, float inverse, float zero, float low, float high) {
  const float scaled = __fmul_rn(x, inverse), level = late ? __fadd_rn(rintf(scaled), zero) : rintf(__fadd_rn(scaled, zero));
  return level < low ? low : level > high ? high : level;
}
P_DEV float p_unlevel(float level, float scale, float zero) { return __fmul_rn(level - zero, scale); }
P_DEV i64 p_wrap(i64 i, i64 n) { return i < 0 ? i + n : i; }
P_DEV i64 p_within(i64 i, i64 n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
P_DEV i64 p_reflect(i64 i, i64 n) { i = i < 0 ? -i : i; return i >= n ? 2 * (n - 1) - i : i; }
P_DEV int p_floordiv(int a, int b) { const int q = a / b; return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q; }
P_DEV i64 p_floordiv(i64 a, i64 b) { const i64 q = a / b; return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q; }
P_DEV int p_floormod(int a, int b) { const int m = a % b; return m != 0 && (m < 0) != (b < 0) ? m + b : m; }
P_DEV i64 p_floormod(i64 a, i64 b) { const i64 m = a % b; return m != 0 && (m < 0) != (b < 0) ? m + b : m; }
template <typename T> P_DEV T p_larger(T a, T b) { return a > b ? a : b; }
template <typename T> P_DEV T p_smaller(T a, T b) { return a < b ? a : b; }
)cuda";

constexpr std::string_view kReduce = R"cuda(
P_DEV float p_shuffle(float x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
P_DEV int p_shuffle(int x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
P_DEV i64 p_shuffle(i64 x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
P_DEV double p_shuffle(double x, int m) { return __longlong_as_double(__shfl_xor_sync(0xffffffffu, (i64)__double_as_longlong(x), m)); }
P_DEV short p_shuffle(short x, int m) { return (short)p_shuffle((int)x, m); }
P_DEV i8 p_shuffle(i8 x, int m) { return (i8)p_shuffle((int)x, m); }
P_DEV u8 p_shuffle(u8 x, int m) { return (u8)p_shuffle((int)x, m); }
P_DEV bool p_shuffle(bool x, int m) { return p_shuffle((int)x, m) != 0; }
template <typename T> P_DEV T p_numbers_only(T x) { return x == x ? x : (T)0; }
template <typename T> struct Place { T value; i64 at; };
template <typename T> P_DEV Place<T> p_shuffle(Place<T> x, int m) { Place<T> r; r.value = p_shuffle(x.value, m); r.at = p_shuffle(x.at, m); return r; }
#define P_FOLD(name, expression) struct name { template <typename T> P_DEV T of(T a, T b) { return expression; } };
P_FOLD(FoldSum, p_add(a, b)) P_FOLD(FoldProd, p_mul(a, b)) P_FOLD(FoldMax, p_max(a, b)) P_FOLD(FoldMin, p_min(a, b))
P_FOLD(FoldAny, (T)(a || b)) P_FOLD(FoldAll, (T)(a && b))
// The fold of what the lanes of a warp have, up to each of them.
P_DEV float p_up(float x, int by) { return __shfl_up_sync(0xffffffffu, x, by); }
P_DEV i64 p_up(i64 x, int by) { return __shfl_up_sync(0xffffffffu, x, by); }
P_DEV double p_up(double x, int by) { return __longlong_as_double(__shfl_up_sync(0xffffffffu, (i64)__double_as_longlong(x), by)); }
template <typename F, typename T> P_DEV T p_scan_warp(T x) {
  for (int by = 1; by < 32; by <<= 1) {
    const T before = p_up(x, by);
    if ((int)(threadIdx.x & 31) >= by) x = F::of(before, x);
  }
  return x;
}
P_DEV float p_last(float x) { return __shfl_sync(0xffffffffu, x, 31); }
P_DEV i64 p_last(i64 x) { return __shfl_sync(0xffffffffu, x, 31); }
P_DEV double p_last(double x) { return __longlong_as_double(__shfl_sync(0xffffffffu, (i64)__double_as_longlong(x), 31)); }
// Whether element a at place i stands before b at j in the order; NaN is larger than every number, equal ones keep their places.
template <bool descending, typename T> P_DEV bool p_before(T a, i64 i, T b, i64 j) {
  const bool an = a != a, bn = b != b;
  if (an != bn) return descending ? an : bn;
  if (an || a == b) return i < j;
  return descending ? a > b : a < b;
}
// NaN is first among the largest and the smallest; of equals the first element; at < 0: nothing yet.
#define P_ARG(name, better) \
  struct name { template <typename T> P_DEV Place<T> of(Place<T> a, Place<T> b) { \
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a; \
    const bool an = a.value != a.value, bn = b.value != b.value; \
    if (an || bn) return an && (!bn || a.at < b.at) ? a : b; \
    if (a.value == b.value) return a.at < b.at ? a : b; \
    return better ? a : b; } };
P_ARG(FoldArgMax, a.value > b.value) P_ARG(FoldArgMin, a.value < b.value)
template <typename T> P_DEV Place<T> p_place(T value, i64 at) { Place<T> r; r.value = value; r.at = at; return r; }
// Every thread of the block gets the fold of all; THREADS is a multiple of 32. `room` has an entry a warp and may be used again after a barrier.
template <typename F, int THREADS, typename T> P_DEV T p_fold_block(T x, T* room) {
  for (int m = 16; m > 0; m >>= 1) x = F::of(x, p_shuffle(x, m));
  if (THREADS == 32) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = x;
  __syncthreads();
  x = room[0];
  for (int w = 1; w < THREADS / 32; ++w) x = F::of(x, room[w]);
  return x;
}
// Every lane of all WARPS warps gets the fold of what its warps have; `room` has an entry a thread.
template <typename F, int WARPS, typename T> P_DEV T p_fold_beside(T x, T* room) {
  room[threadIdx.x] = x;
  __syncthreads();
  x = room[threadIdx.x & 31];
  for (int w = 1; w < WARPS; ++w) x = F::of(x, room[w * 32 + (threadIdx.x & 31)]);
  return x;
}
)cuda";

constexpr std::string_view kMore = R"cuda(
struct alignas(8) c64 { float re, im; };
struct alignas(16) c128 { double re, im; };
P_DEV c64 p_c64(float re, float im = 0) { c64 r; r.re = re; r.im = im; return r; }
P_DEV c128 p_c128(double re, double im = 0) { c128 r; r.re = re; r.im = im; return r; }
P_DEV c64 p_c64(c128 x) { return p_c64((float)x.re, (float)x.im); }
P_DEV c128 p_c128(c64 x) { return p_c128((double)x.re, (double)x.im); }
#define P_COMPLEX(T, make) \
  P_DEV T p_add(T a, T b) { return make(a.re + b.re, a.im + b.im); } \
  P_DEV T p_sub(T a, T b) { return make(a.re - b.re, a.im - b.im); } \
  P_DEV T p_mul(T a, T b) { return make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); } \
  P_DEV T p_neg(T x) { return make(-x.re, -x.im); } \
  P_DEV T p_conj(T x) { return make(x.re, -x.im); }
P_COMPLEX(c64, p_c64) P_COMPLEX(c128, p_c128)
template <typename T> P_DEV T p_conj(T x) { return x; }
// Sine and cosine of pi times x.
#ifdef PTERON_EMULATOR
P_DEV void m_sincospi(double x, double* s, double* c) { *s = sin(3.14159265358979323846 * x); *c = cos(3.14159265358979323846 * x); }
P_DEV void m_sincospi(float x, float* s, float* c) { *s = (float)sin(3.14159265358979323846 * x); *c = (float)cos(3.14159265358979323846 * x); }
#else
P_DEV void m_sincospi(double x, double* s, double* c) { sincospi(x, s, c); }
P_DEV void m_sincospi(float x, float* s, float* c) { sincospif(x, s, c); }
#endif
template <typename T> P_DEV T p_lcm(T a, T b) { const T g = p_gcd(a, b); return g == (T)0 ? (T)0 : p_abs(p_mul(p_divtrunc(a, g), b)); }
// Folds x into an element that several threads may change, of any type: the word around it is replaced when nobody else has.
template <typename F, typename T, typename S> P_DEV void p_atomic(T* at, S x) {
#ifdef PTERON_EMULATOR
  *at = P_STORE(T, F::of(p_read(*at), x));
#else
  if constexpr (sizeof(T) == 8) {
    u64 *word = (u64*)at, old = *word, seen;
    do {
      union { u64 bits; T value; } u;
      u.bits = seen = old;
      u.value = P_STORE(T, F::of(p_read(u.value), x));
      old = atomicCAS(word, seen, u.bits);
    } while (old != seen);
  } else if constexpr (sizeof(T) == 4) {
    u32 *word = (u32*)at, old = *word, seen;
    do {
      union { u32 bits; T value; } u;
      u.bits = seen = old;
      u.value = P_STORE(T, F::of(p_read(u.value), x));
      old = atomicCAS(word, seen, u.bits);
    } while (old != seen);
  } else {
    u32 *word = (u32*)((u64)at & ~3ull), old = *word, seen;
    const u32 shift = (u32)((u64)at & 3) * 8, mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
    do {
      seen = old;
      union { unsigned short bits; T value; } u;
      u.bits = (unsigned short)((seen & mask) >> shift);
      u.value = P_STORE(T, F::of(p_read(u.value), x));
      old = atomicCAS(word, seen, (seen & ~mask) | (((u32)u.bits << shift) & mask));
    } while (old != seen);
  }
#endif
}
// Positions of grid samplers in the order of operations of ATen's kernels: that for planes, and that for volumes.
template <typename T> P_DEV T p_grid_pixel(T v, i64 size, bool corners, bool plane) {
  if (plane) return corners ? (v + (T)1) * ((T)(size - 1) / (T)2) : (v + (T)1) * ((T)size / (T)2) - (T)0.5;
  return corners ? (v + (T)1) / (T)2 * (T)(size - 1) : ((v + (T)1) * (T)size - (T)1) / (T)2;
}
template <typename T> P_DEV T p_grid_clip(T v, i64 size) { v = v > (T)0 ? v : (T)0; return v < (T)(size - 1) ? v : (T)(size - 1); }
template <typename T> P_DEV T p_grid_pad(T v, i64 size, int padding, bool corners) {
  if (padding == 0) return v;
  if (padding == 2) {
    const i64 span = corners ? size - 1 : size;
    if (span == 0) return (T)0;
    const T low = corners ? (T)0 : (T)-0.5, twice = (T)span * (T)2;
    v = m_abs(v - low);
    const T rest = v - m_trunc(v / twice) * twice;
    v = (rest < twice - rest ? rest : twice - rest) + low;
  }
  return p_grid_clip(v, size);
}
template <typename T> P_DEV i64 p_grid_index(T v) { return v > (T)-1e9 && v < (T)1e9 ? (i64)v : -100; }
template <typename T> P_DEV T p_cubic_near(T x) { const T a = (T)-0.75; return ((a + (T)2) * x - (a + (T)3)) * x * x + (T)1; }
template <typename T> P_DEV T p_cubic_far(T x) { const T a = (T)-0.75; return ((a * x - (T)5 * a) * x + (T)8 * a) * x - (T)4 * a; }
)cuda";

std::string make_prelude() {
  std::string out(kTypes);
  out += kMath;
  out += kReduce;
  out += kMore;
  return out;
}

}  // namespace

std::string_view prelude() {
  static const std::string text = make_prelude();
  return text;
}

}  // namespace pteron::cuda
