// How two tensors differ, and within which tolerance that counts. Used by pteron compare and its bisection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "pteron/tensor.h"

namespace pteron::cli {

struct Difference {
  std::string problem;  ///< shapes, dtypes, missing outputs; empty if values were compared
  double max_absolute = 0, max_relative = 0, cosine = 1;
  int64_t count = 0, beyond = 0, first_bad = -1, nan_a = 0, nan_b = 0, infinite_a = 0, infinite_b = 0;
  double first_a = 0, first_b = 0;
  bool bad() const { return !problem.empty() || beyond > 0; }
};

/// |a - b| <= atol + rtol * |b|; integers and bools must be equal.
struct Tolerance {
  std::optional<double> rtol;  ///< none: by dtype
  double atol = 1e-5;
};

/// Compares row-major tensors.
Difference compare(const TensorView& a, const TensorView& b, const Tolerance& tolerance);
/// Index of element `flat` of a row-major tensor, as "[1,2]".
std::string index_text(int64_t flat, std::span<const int64_t> sizes);
/// One line: errors, cosine, counts.
std::string difference_text(const Difference& difference);

}  // namespace pteron::cli
