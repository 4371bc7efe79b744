// Casts between element types as ATen's c10::convert does them, and loads and stores that convert whole runs. Runtime half only:
// kernels of reductions, scans, norms and orderings compute in a few types and read or write any dtype through these.
#pragma once

#include <complex>
#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif
#include <type_traits>

#include "tensor/dtype.h"

namespace pteron::ops {

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <typename T>
inline constexpr bool kIsReduced = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// Value of `from` as a To: 16-bit floats go through float, complex to real keeps the real part, anything to bool asks for != 0.
template <typename To, typename From>
inline To convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (kIsReduced<From>) {
    return convert<To>(static_cast<float>(from));
  } else if constexpr (kIsReduced<To>) {
    return To(convert<float>(from));
  } else if constexpr (kIsComplex<To> && kIsComplex<From>) {
    return To(static_cast<typename To::value_type>(from.real()), static_cast<typename To::value_type>(from.imag()));
  } else if constexpr (kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (kIsComplex<From>) {
    return convert<To>(from.real());
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Through int64 as ATen does on x86; values outside are the processor's "integer indefinite", without undefined behaviour.
    if (!(from >= From(-9223372036854775808.0) && from < From(9223372036854775808.0))) return static_cast<To>(INT64_MIN);
    return static_cast<To>(static_cast<int64_t>(from));
  } else {
    return static_cast<To>(from);
  }
}

#if defined(__F16C__)
/// Half to float and back for dense runs, eight at a time: the compiler does not vectorise the scalar conversions.
inline void widen_halves(const Half* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
inline void narrow_to_halves(const float* from, int64_t n, Half* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  for (; i < n; ++i) to[i] = Half(from[i]);
}
#endif

/// Reads n elements at data + offset, `stride` elements apart, as Part. Returns n contiguous Parts: the data itself if it has that
/// type and stride 1, else `buffer`.
template <typename Part>
using LoadFn = const Part* (*)(const void* data, int64_t offset, int64_t stride, int64_t n, Part* buffer);

template <typename Part, typename T>
const Part* load_run(const void* data, int64_t offset, int64_t stride, int64_t n, Part* buffer) {
  const T* from = static_cast<const T*>(data) + offset;
  if (stride == 1) {
    if constexpr (std::is_same_v<Part, T>) return from;
#if defined(__F16C__)
    if constexpr (std::is_same_v<Part, float> && std::is_same_v<T, Half>) {
      widen_halves(from, n, buffer);
      return buffer;
    }
#endif
    for (int64_t i = 0; i < n; ++i) buffer[i] = convert<Part>(from[i]);
    return buffer;
  }
  for (int64_t i = 0; i < n; ++i) buffer[i] = convert<Part>(from[i * stride]);
  return buffer;
}

/// The load for a dtype; null if there is none (complex into real Part included).
template <typename Part>
LoadFn<Part> load_fn(DType dtype) {
  LoadFn<Part> fn = nullptr;
  if constexpr (kIsComplex<Part>) {
    dispatch_dtype(dtype, [&]<typename T>() { fn = &load_run<Part, T>; });
  } else {
    dispatch_real(dtype, [&]<typename T>() { fn = &load_run<Part, T>; });
  }
  return fn;
}

/// The same with 1 for elements that are not zero (NaN is not) and 0 for others.
template <typename Part, typename T>
const Part* load_truth_run(const void* data, int64_t offset, int64_t stride, int64_t n, Part* buffer) {
  const T* from = static_cast<const T*>(data) + offset;
  for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<Part>(convert<bool>(from[i * stride]));
  return buffer;
}
template <typename Part>
LoadFn<Part> load_truth_fn(DType dtype) {
  LoadFn<Part> fn = nullptr;
  dispatch_dtype(dtype, [&]<typename T>() { fn = &load_truth_run<Part, T>; });
  return fn;
}

/// Writes one value at data + offset.
template <typename Part>
using StoreFn = void (*)(void* data, int64_t offset, Part value);

template <typename Part, typename T>
void store_one(void* data, int64_t offset, Part value) {
  static_cast<T*>(data)[offset] = convert<T>(value);
}
template <typename Part>
StoreFn<Part> store_fn(DType dtype) {
  StoreFn<Part> fn = nullptr;
  dispatch_dtype(dtype, [&]<typename T>() { fn = &store_one<Part, T>; });
  return fn;
}

/// Writes n contiguous Parts to data + offset, `stride` elements apart.
template <typename Part>
using StoreRunFn = void (*)(void* data, int64_t offset, int64_t stride, int64_t n, const Part* values);

template <typename Part, typename T>
void store_run(void* data, int64_t offset, int64_t stride, int64_t n, const Part* values) {
  T* to = static_cast<T*>(data) + offset;
  if (stride == 1) {
#if defined(__F16C__)
    if constexpr (std::is_same_v<Part, float> && std::is_same_v<T, Half>) return narrow_to_halves(values, n, to);
#endif
    for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(values[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i * stride] = convert<T>(values[i]);
}
template <typename Part>
StoreRunFn<Part> store_run_fn(DType dtype) {
  StoreRunFn<Part> fn = nullptr;
  dispatch_dtype(dtype, [&]<typename T>() { fn = &store_run<Part, T>; });
  return fn;
}

}  // namespace pteron::ops
