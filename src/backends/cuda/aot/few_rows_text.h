// The kernel for products of up to some hundred rows with constant weights, on tensor cores: what a decoder of a few tokens or a policy's action expert
// consists of, where the time is that of starting, of reading the weights and of the operators between the products. Called by few_rows.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pteron/tensor.h"

namespace pteron::cuda {

/// y_i[r][n] = end(sum over k of x'[r][k] w_i[n][k], + bias[n], + residual[r][n]) for up to three weights; with `gate` there are two and one result,
/// silu(x' w_0) * (x' w_1). x' is x, or with `norm` x / sqrt(mean of x^2 of the row + eps) times a vector of `depth` factors (rounded once, as weights
/// times factors).
struct FewRowsForm {
  enum class End : uint8_t { kNone, kRelu, kGeluTanh, kSilu };
  DType dtype = DType::kBFloat16;  ///< 16 bits
  int64_t rows = 1, depth = 0;
  std::vector<int64_t> columns;  ///< of each weight
  bool gate = false, norm = false;
  bool bias = false, residual = false;  ///< of the first weight; there is only one then
  End end = End::kNone;
  // How it is computed:
  int64_t tile = 16;         ///< columns a block, of each weight with `gate`; a multiple of 16
  int64_t parts = 1;         ///< blocks (a cluster) that share the depth
  int64_t row_tiles = 4;     ///< groups of 16 rows a block
  int64_t depth_groups = 4;  ///< warps that share the depth of a block's part
  int64_t threads() const { return 32 * row_tiles * depth_groups; }
  int64_t shared_bytes() const;
  int64_t blocks() const;  ///< of a row of the grid
  int64_t row_blocks() const { return (rows + 16 * row_tiles - 1) / (16 * row_tiles); }
};

/// True if there is a way to compute it; fills it in. Requires: the depth is a multiple of 16.
bool choose_few_rows(FewRowsForm* form);

/// Parameters: x, weights 0 to 2, norm's factors, bias, residual, results 0 to 2 (null: none), the bits of eps as a double. Grid: blocks(), row_blocks();
/// threads() a block. Requires: rows lie one behind the other; weights and factors start at multiples of 16 bytes, results at multiples of 4; weights, factors
/// and bias are constants. The text needs element_text() and tile_text().
std::string few_rows_text(const FewRowsForm& form);

}  // namespace pteron::cuda
