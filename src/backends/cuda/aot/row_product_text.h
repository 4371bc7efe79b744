// The kernel for a few rows times a weight: batch-1 decoding, where the time is that of reading the weight. Called by products.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "pteron/tensor.h"

namespace pteron::cuda {

/// y[r][n] = sum over k of x[r][k] w[n][k], + bias[n], + residual[r][n]; with `gate`, y = silu(x g) * (x w) for two weights.
struct RowProductForm {
  int64_t rows = 1, depth = 0, columns = 0;
  DType dtype = DType::kFloat32;
  bool bias = false, residual = false, gate = false;
  int64_t warps = 4;            ///< of a block
  int64_t columns_a_group = 1;  ///< columns that a group of warps computes at once
  int64_t warps_a_column = 1;   ///< warps that share the depth of a column
  int64_t columns_a_block() const { return warps / warps_a_column * columns_a_group; }
};

/// Fills the last three so that there are enough blocks for a large device, and enough loads in flight in each.
void choose_row_product(RowProductForm* form);

/// y[r][n] = sum over k of x[r][k] w[n][k] scale[n][k / group], + bias[n], + residual[r][n], for weights of 8 bits, or of 4 as value + 8, two to a byte, the
/// first in the low half. The numbers of warps are those of the other form.
struct NarrowRowForm {
  RowProductForm rows;
  int64_t bits = 8;
  int64_t group = 0;       ///< columns that share a scale: a multiple of 32, or the depth
  std::string activation = "none";  ///< behind everything: relu or gelu_tanh
  bool one_scale = false;  ///< one scale for the whole weight
  DType scale_dtype = DType::kFloat32;
};

/// Fills the numbers of warps.
void choose_narrow_rows(NarrowRowForm* form);
/// Parameters, grid and requirements of row_product_text(), with the scales or null in place of the gate's weight.
std::string narrow_rows_text(const NarrowRowForm& form);

/// Parameters of the kernel: x, weight, gate weight or null, bias or null, residual or null, y; grid: columns / columns_a_block() rounded up, block: 32 *
/// warps. The text needs element_text(). Requires: rows of x and of the weights lie one behind the other, the weights start at multiples of 16 bytes; depth is
/// a multiple of 32.
std::string row_product_text(const RowProductForm& form);

}  // namespace pteron::cuda
