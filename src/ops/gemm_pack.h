// Packing of strided blocks into the panels of the matrix product. Used by gemm.cpp and by operands with their own packing (conv).
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "tensor/half.h"

namespace pteron::ops {

/// Value of a storage type in its compute type.
template <typename C, typename T>
inline C convert_value(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return static_cast<C>(static_cast<float>(v));
  } else {
    return static_cast<C>(v);
  }
}
/// And back, rounded.
template <typename T, typename C>
inline T store_value(C v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(v));
  } else {
    return static_cast<T>(v);
  }
}

/// count values of T to C; both contiguous.
template <typename C, typename T>
inline void convert_run(const T* from, C* to, int64_t count) {
  int64_t i = 0;
#if defined(__AVX2__) && defined(__F16C__)
  if constexpr (std::is_same_v<T, Half> && std::is_same_v<C, float>) {
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
  }
#endif
  for (; i < count; ++i) to[i] = convert_value<C>(from[i]);
}

#if defined(__AVX2__)
/// to[k * width + i] = from[i * stride + k] for 8 rows and 8 columns.
inline void transpose_8x8(const float* from, int64_t stride, float* to, int64_t width) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * stride);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#endif

/// panel[k * width + i] = from[i * stride_r + k * stride_k] for i < rows, k < depth; writes nothing else.
template <typename C, typename T>
inline void pack_block(const T* from, int64_t stride_r, int64_t stride_k, C* panel, int64_t width, int64_t rows, int64_t depth) {
  if (stride_r == 1) {
    for (int64_t k = 0; k < depth; ++k) convert_run(from + k * stride_k, panel + k * width, rows);
    return;
  }
  int64_t done = 0;
#if defined(__AVX2__)
  if constexpr (std::is_same_v<C, float> && std::is_same_v<T, float>) {
    if (stride_k == 1) {
      for (; done + 8 <= rows; done += 8) {
        int64_t k = 0;
        for (; k + 8 <= depth; k += 8) transpose_8x8(from + done * stride_r + k, stride_r, panel + k * width + done, width);
        for (; k < depth; ++k) {
          for (int64_t i = 0; i < 8; ++i) panel[k * width + done + i] = from[(done + i) * stride_r + k];
        }
      }
    }
  }
#endif
  for (; done < rows; ++done) {
    const T* row = from + done * stride_r;
    for (int64_t k = 0; k < depth; ++k) panel[k * width + done] = convert_value<C>(row[k * stride_k]);
  }
}

}  // namespace pteron::ops
