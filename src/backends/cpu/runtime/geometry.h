// Sizes and places of rows and images that products and convolutions of all element types share. Used by linear.cpp, conv.cpp, products16.cpp,
// quantized_linear.cpp, quantized_conv.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/payload.h"
#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

/// A two-dimensional convolution with constant weights; pairs are (vertical, horizontal).
struct ConvGeometry {
  int64_t channels = 0, out_channels = 0, groups = 1;
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {}, dilation[2] = {};

  int64_t taps() const { return kernel[0] * kernel[1]; }
  int64_t depth() const { return channels / groups * taps(); }
  /// Output size for an input of `in`, d = 0 (height) or 1 (width).
  int64_t out_size(size_t d, int64_t in) const;
  /// Reads the lists and groups of operator `op` and the sizes of its weight: [out, in, y, x], or [out, y, x, in] if `channels_last`.
  /// Errors: kInvalidFile.
  Status read(const char* op, const runtime::Tensor& weight, bool channels_last, const runtime::Value& stride, const runtime::Value& padding,
              const runtime::Value& dilation, const runtime::Value& groups);
  /// Elements of one image with the padding around it.
  int64_t padded_elements(const runtime::Tensor& x) const;
};

/// Advances over windows of images, output pixel by output pixel: calls put(i, n, y, x) for `count` of them from `first` on.
template <typename Put>
void for_windows(int64_t height, int64_t width, int64_t first, int64_t count, const Put& put) {
  int64_t x = first % width, y = first / width % height, n = first / width / height;
  for (int64_t i = 0; i < count; ++i) {
    put(i, n, y, x);
    if (++x < width) continue;
    x = 0;
    if (++y < height) continue;
    y = 0;
    ++n;
  }
}

/// True if the elements of [n, c, h, w] lie as [n, h, w, c] without gaps.
bool is_dense_channels_last(const runtime::Tensor& t);

/// One distance between neighbouring pixels of [n, c, h, w] in the order [n, h, w], channels side by side; false if there is none. Without
/// neighbours: the channels.
bool pixel_stride(const runtime::Tensor& t, int64_t* out);

/// [n, c, h, w] at `data` as [n, h, w, c] without gaps.
TensorView channels_last_view(DType dtype, std::span<const int64_t> sizes, void* data);

/// Bytes of `count` elements (none if negative) of `element_bytes`, up to the next multiple of 64.
size_t line_bytes(int64_t count, size_t element_bytes);

/// Nothing, or a float32 constant of `count` elements, as operator `op` takes it. Errors: kInvalidFile.
Status check_bias(const char* op, const runtime::Tensor* bias, int64_t count);

/// One stride for all rows (the last dim is not counted); false if there is none.
bool row_stride(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t* out);

}  // namespace pteron::cpu
