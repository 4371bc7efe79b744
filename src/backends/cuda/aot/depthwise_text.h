// The kernel for convolutions of each channel with a filter of its own, over channels-last images. Called by convolutions.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "pteron/tensor.h"

namespace pteron::cuda {

/// y[n][p][q][c] = end(bias[c] + sum over r, s of x[n][p * stride - padding + r][q * stride - padding + s][c] w[c][r][s]), x is 0 outside of the image.
struct DepthwiseForm {
  DType dtype = DType::kBFloat16;  ///< 16 bits
  int64_t channels = 0;            ///< even
  int64_t height = 3, width = 3;   ///< of a filter
  int64_t stride_y = 1, stride_x = 1, padding_y = 0, padding_x = 0;
  bool bias = false, residual = false, relu = false;
  int64_t strip = 4;   ///< neighbouring results of a row that a thread computes
  int64_t pairs = 32;  ///< pairs of channels a block; divides half the channels
  int64_t strips = 4;  ///< strips a block
  int64_t threads() const { return pairs * strips; }
  int64_t shared_bytes() const { return 8 * pairs * height * width; }
};

/// Fills in the last three. Results: rows times columns of all images.
void choose_depthwise(DepthwiseForm* form, int64_t result_rows, int64_t result_columns);

/// Parameters: x, weight, bias, residual, y; rows and columns of an image and of a result, number of strips. Grid: strips over form.strips rounded up, channels
/// / 2 / pairs. Requires: x, residual and y are channels-last without gaps at multiples of 4 bytes; weight and bias are constants. The text needs
/// element_text().
std::string depthwise_text(const DepthwiseForm& form);

}  // namespace pteron::cuda
