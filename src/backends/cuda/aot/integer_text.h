// Kernels that sum products of 8-bit integers over windows of channels-last images; a product of matrices is one over images of a pixel. Called by
// quantized.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace pteron::cuda {

/// y[n][oy][ox][k] = sum over r, s, c of x[n][iy][ix][c] w[k][r][s][c] in int32, with pixels outside of the image read as `zero`.
struct IntegerForm {
  bool is_signed = true;  ///< of x; weights are signed
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t inputs = 1;   ///< channels of a group in x
  int64_t outputs = 1;  ///< channels of a group in y
  int64_t groups = 1;
  int64_t zero = 0;

  /// Tensor cores by tiles of pixels and channels, or a thread an element, where groups are too small for tiles.
  bool tiled() const { return inputs * kernel[0] * kernel[1] >= 16 && outputs >= 8; }
  /// Pixels and channels of a block, threads.
  std::array<int64_t, 3> block() const;
};

/// Parameters of the kernel, all of 8 bytes: x, w, y, images, height and width of x, height and width of y. Grid: pixels of y / block()[0], channels of a
/// group / block()[1], both rounded up, groups. x and w start at multiples of 16 bytes.
std::string integer_text(const IntegerForm& form);

}  // namespace pteron::cuda
