// Conversions between all dtypes with a C++ type: one vectorised loop per pair. See elementwise.h.
#include <type_traits>

#include "ops/convert_float8.h"
#include "ops/elementwise.h"

namespace pteron::ops {

namespace {

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <typename T>
inline constexpr bool kIsReduced = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename From, typename To>
To convert_one(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (kIsReduced<From>) {
    return convert_one<float, To>(static_cast<float>(x));
  } else if constexpr (kIsComplex<From> && kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(x.real()), static_cast<typename To::value_type>(x.imag()));
  } else if constexpr (kIsComplex<From> && std::is_same_v<To, bool>) {
    return x.real() != 0 || x.imag() != 0;
  } else if constexpr (kIsComplex<From>) {
    return convert_one<typename From::value_type, To>(x.real());
  } else if constexpr (kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(x), 0);
  } else if constexpr (kIsReduced<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4) {
    // As c10::convert compiles on x86: through a wider signed integer, so that out-of-range values wrap.
    using Wide = std::conditional_t<std::is_same_v<To, uint8_t>, int64_t, int32_t>;
    return static_cast<To>(static_cast<Wide>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void convert_run(int64_t n, const void* from, void* to) {
  const From* source = static_cast<const From*>(from);
  To* target = static_cast<To*>(to);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) target[i] = convert_one<From, To>(source[i]);
}

#if defined(__F16C__)
/// Half and float, eight at a time (the compiler does not vectorise the scalar conversion instruction).
void half_to_float_run(int64_t n, const void* from, void* to) {
  const uint16_t* source = static_cast<const uint16_t*>(from);
  float* target = static_cast<float*>(to);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(target + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  for (; i < n; ++i) target[i] = half_bits_to_float(source[i]);
}
void float_to_half_run(int64_t n, const void* from, void* to) {
  const float* source = static_cast<const float*>(from);
  uint16_t* target = static_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  for (; i < n; ++i) target[i] = float_to_half_bits(source[i]);
}
#endif

template <typename From>
ConvertFn find_to(DType to) {
  ConvertFn found = nullptr;
  dispatch_dtype(to, [&]<typename To>() { found = &convert_run<From, To>; });
  return found;
}

}  // namespace

ConvertFn find_convert(DType from, DType to) {
  if (is_float8(from) || is_float8(to)) return find_float8_convert(from, to);
#if defined(__F16C__)
  if (from == DType::kFloat16 && to == DType::kFloat32) return &half_to_float_run;
  if (from == DType::kFloat32 && to == DType::kFloat16) return &float_to_half_run;
#endif
  ConvertFn found = nullptr;
  dispatch_dtype(from, [&]<typename From>() { found = find_to<From>(to); });
  return found;
}

}  // namespace pteron::ops
