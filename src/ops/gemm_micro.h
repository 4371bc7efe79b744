// Register-blocked inner kernels of the matrix product, chosen once for the processor at hand (Highway). Called by gemm.cpp only.
// Operands are packed panels: element (i, k) of A at a[k * mr + i], element (k, j) of B at b[k * nr + j].
#pragma once

#include <cstdint>

namespace pteron::ops {

template <typename T>
struct GemmMicro {
  int mr = 0;  ///< rows of a tile
  int nr = 0;  ///< columns of a tile
  /// c[i * ldc + j] = sum_k a(i, k) * b(k, j) + init[i * init_m + j * init_n]; init may be null, init_n is 0 or 1. Whole tiles only.
  void (*tile)(int64_t k, const T* a, const T* b, T* c, int64_t ldc, const T* init, int64_t init_m, int64_t init_n) = nullptr;
  /// sum_i x[i] * y[i]
  T (*dot)(const T* x, const T* y, int64_t n) = nullptr;
  /// y[i] += alpha * x[i]
  void (*axpy)(T alpha, const T* x, T* y, int64_t n) = nullptr;
};

inline constexpr int kGemmMaxMr = 12;
inline constexpr int kGemmMaxNr = 32;

/// The kernels for this processor. T is float or double.
template <typename T>
GemmMicro<T> gemm_micro();
template <>
GemmMicro<float> gemm_micro<float>();
template <>
GemmMicro<double> gemm_micro<double>();

}  // namespace pteron::ops
