// 3x3 convolutions of stride 1 as 36 products: Winograd's F(4x4, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2015), over channels-last images. Used by conv.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/runtime/product.h"

namespace pteron::cpu {

/// One 6x6 tile of the input to its 36 transformed values, for all channels: out[i * out_step + c].
struct WinogradInput {
  const float* pixels[36];  ///< channel 0 of every pixel; pixels outside point to zeros
  float* out = nullptr;
  int64_t out_step = 0;
  int64_t channels = 0;
};
/// False if a transformed value is infinite or NaN: sums over the tile would spread it to outputs that do not read it.
using WinogradInputFn = bool (*)(const WinogradInput&);

/// 36 products to a 4x4 tile of the output: pixels[i][c] = clamp(transform(in)[i][c] + bias[c] + residuals[i][c]) for c < channels.
struct WinogradOutput {
  const float* in = nullptr;
  int64_t in_step = 0;
  float* pixels[16];            ///< null: not a pixel of the output
  const float* residuals[16];   ///< read if has_residual
  bool has_residual = false;
  const float* bias = nullptr;
  int64_t channels = 0;
  float low = 0, high = 0;
};

/// The transforms for this processor.
struct WinogradTransforms {
  WinogradInputFn input = nullptr;
  void (*output)(const WinogradOutput&) = nullptr;
};
const WinogradTransforms& winograd_transforms();

/// Transformed weights as 36 packed matrices [out_channels, channels], and the bias (zeros without one).
class WinogradWeights final : public runtime::KernelState {
 public:
  /// Element (o, c, y, x) is data[o * strides[0] + c * strides[1] + y * strides[2] + x * strides[3]]; bias may be null.
  /// `data` must stay valid: tiles with infinities or NaN are summed directly. Errors: kOutOfMemory.
  static Result<std::shared_ptr<const runtime::KernelState>> make(const float* data, int64_t out_channels, int64_t channels, const int64_t strides[4], const float* bias,
                                                                  int64_t bias_stride, ThreadPool& pool);
  uint64_t memory_bytes() const override {
    uint64_t sum = bias.size();
    for (const auto& matrix : matrices) sum += matrix->memory_bytes();
    return sum;
  }
  std::vector<std::shared_ptr<const PackedMatrix>> matrices;
  Buffer bias;
  const float* data = nullptr;
  int64_t strides[4] = {};
};

/// A convolution over `count` images; positions outside an image are zeros.
struct WinogradConv {
  const WinogradWeights* weights = nullptr;
  const float* x = nullptr;           ///< strides in elements; channels are neighbours
  int64_t batch = 0, row = 0, pixel = 0;
  int64_t count = 0, height = 0, width = 0, channels = 0;
  int64_t padding[2] = {0, 0};
  float* y = nullptr;                 ///< channels-last, pixels at even distances
  const float* residual = nullptr;    ///< the same, or null
  int64_t out_pixel = 0, residual_pixel = 0;  ///< elements from one pixel to the next
  int64_t out_height = 0, out_width = 0, out_channels = 0;
  Epilogue epilogue;
  const WorkBuffers* work = nullptr;
};
/// Errors: kOutOfMemory.
Status run_winograd(const WinogradConv& conv, ThreadPool& pool);

/// Whether this way is worth it for such images: otherwise few rows stand against four times the weights.
bool winograd_pays(int64_t count, int64_t out_height, int64_t out_width, int64_t channels, int64_t out_channels);

}  // namespace pteron::cpu
