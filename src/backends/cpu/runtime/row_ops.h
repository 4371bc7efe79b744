// Loops over rows of contiguous floats for this processor (Highway: AVX2, AVX-512): softmax, norms, and the steps of recurrent networks. Called by
// norms.cpp and recurrent.cpp.
#pragma once

#include <cstdint>

namespace pteron::cpu {

struct RowSet {
  /// y = softmax(x), or its logarithm. y may be x. Requires: n > 0.
  void (*softmax)(const float* x, float* y, int64_t n, bool log) = nullptr;
  /// y = (x - mean) / sqrt(variance + eps) * weight + bias; weight and bias may be null. y may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float* y, int64_t n, float eps, float* mean, float* rstd) = nullptr;
  /// y = x / sqrt(mean(x^2) + eps) * weight; weight may be null. y may be x.
  void (*rms_norm)(const float* x, const float* weight, float* y, int64_t n, float eps) = nullptr;
  /// Mean of n numbers, and the sum of the squares of their distances to it. Requires: n > 0.
  void (*moments)(const float* x, int64_t n, double* mean, double* spread) = nullptr;
  /// y = (x - center) * factor + shift.
  void (*affine)(const float* x, float* y, int64_t n, float center, float factor, float shift) = nullptr;
  /// Rows of n neighbours, `row` elements apart: out[j] = sum over the rows of x[j], or of (x[j] - center[j])^2 if there are centers.
  void (*column_sums)(const float* x, int64_t row, int64_t rows, int64_t n, const float* center, float* out) = nullptr;
  /// y[j] = (x[j] - center[j]) * factor[j] + shift[j].
  void (*column_affine)(const float* x, float* y, int64_t n, const float* center, const float* factor, const float* shift) = nullptr;
  /// Columns of a panel of product().
  int64_t panel = 0;
  /// out[j] = init[j] + sum over k of x[k] * panels[j / panel][k][j % panel] for whole panels; init may be null.
  void (*product)(const float* panels, int64_t count, int64_t depth, const float* x, const float* init, float* out) = nullptr;
  /// One step of n LSTM units: gates [4][n] in the order input, forget, cell, output; cell is updated.
  void (*lstm)(const float* gates, float* cell, float* hidden, int64_t n) = nullptr;
  /// One step of n GRU units: x and h [3][n] in the order reset, update, new.
  void (*gru)(const float* x, const float* h, const float* before, float* hidden, int64_t n) = nullptr;
};
const RowSet& row_set();

}  // namespace pteron::cpu
