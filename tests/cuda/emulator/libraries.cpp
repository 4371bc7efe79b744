// What stands in for cuBLASLt and cuDNN: plain loops over the host's memory, in double, queued in the stream's order.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backends/cuda/runtime/blas.h"
#include "backends/cuda/runtime/dnn.h"
#include "emulator.h"
#include "tensor/half.h"

namespace pteron::emulator {
namespace {

using cuda::Convolution;
using cuda::Image;
using cuda::Product;
using cuda::ProductEnd;

double get(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat64: return static_cast<const double*>(data)[i];
    case DType::kFloat16: return half_bits_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kBFloat16: return bfloat16_bits_to_float(static_cast<const uint16_t*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

void set(void* data, DType dtype, int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat64: static_cast<double*>(data)[i] = value; break;
    case DType::kFloat16: static_cast<uint16_t*>(data)[i] = float_to_half_bits(narrow); break;
    case DType::kBFloat16: static_cast<uint16_t*>(data)[i] = float_to_bfloat16_bits(narrow); break;
    default: static_cast<float*>(data)[i] = narrow;
  }
}

/// `count` elements along a line, widened once: the loops below read each many times.
void widen(const void* data, DType dtype, int64_t at, int64_t step, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = get(data, dtype, at + i * step);
}

double end_of(ProductEnd end, double x) {
  if (end == ProductEnd::kRelu) return x < 0 ? 0 : x;
  if (end == ProductEnd::kGeluTanh) return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

void multiply(const Product& p) {
  std::vector<double> b(static_cast<size_t>(p.columns * p.depth)), a(static_cast<size_t>(p.depth));
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    for (int64_t j = 0; j < p.columns && (batch == 0 || p.b.batch != 0); ++j) {
      widen(p.b.data, p.dtype, batch * p.b.batch + j * p.b.column, p.b.row, p.depth, &b[static_cast<size_t>(j * p.depth)]);
    }
    for (int64_t i = 0; i < p.rows; ++i) {
      widen(p.a.data, p.dtype, batch * p.a.batch + i * p.a.row, p.a.column, p.depth, a.data());
      for (int64_t j = 0; j < p.columns; ++j) {
        const double* column = &b[static_cast<size_t>(j * p.depth)];
        double sum = 0;
        for (int64_t k = 0; k < p.depth; ++k) sum += a[static_cast<size_t>(k)] * column[k];
        sum *= p.alpha;
        if (p.c.data != nullptr) sum += p.beta * get(p.c.data, p.dtype, batch * p.c.batch + i * p.c.row + j * p.c.column);
        if (p.bias != nullptr) sum += get(p.bias, p.dtype, j);
        set(const_cast<void*>(p.d.data), p.dtype, batch * p.d.batch + i * p.d.row + j * p.d.column, end_of(p.end, sum));
      }
    }
  }
}

int64_t offset(const Image& image, int64_t n, int64_t c, int64_t y, int64_t x) {
  return n * image.strides[0] + c * image.strides[1] + y * image.strides[2] + x * image.strides[3];
}

/// The whole of an image or weight as doubles, [n][y][x][c].
std::vector<double> whole(const Image& image, DType dtype) {
  std::vector<double> out;
  const auto& s = image.sizes;
  out.reserve(static_cast<size_t>(s[0] * s[1] * s[2] * s[3]));
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t y = 0; y < s[2]; ++y) {
      for (int64_t x = 0; x < s[3]; ++x) {
        for (int64_t c = 0; c < s[1]; ++c) out.push_back(get(image.data, dtype, offset(image, n, c, y, x)));
      }
    }
  }
  return out;
}

/// Sums of a convolution, [n][y][x][outputs].
std::vector<double> sums_of(const Convolution& c) {
  const std::vector<double> x = whole(c.x, c.dtype), w = whole(c.weight, c.dtype);
  const auto &xs = c.x.sizes, &ws = c.weight.sizes, &ys = c.y.sizes;
  std::vector<double> sums(static_cast<size_t>(ys[0] * ys[1] * ys[2] * ys[3]), 0.0);
  // Image `in` of the forward convolution is x; of a transposed one it is y, and the sums run the other way.
  const auto &in = c.transposed ? ys : xs, &out = c.transposed ? xs : ys;
  const int64_t out_each = ws[0] / c.groups, in_each = ws[1];
  for (int64_t n = 0; n < in[0]; ++n) {
    for (int64_t oy = 0; oy < out[2]; ++oy) {
      for (int64_t ox = 0; ox < out[3]; ++ox) {
        for (int64_t r = 0; r < ws[2]; ++r) {
          for (int64_t s = 0; s < ws[3]; ++s) {
            const int64_t iy = oy * c.stride[0] - c.padding[0] + r * c.dilation[0], ix = ox * c.stride[1] - c.padding[1] + s * c.dilation[1];
            if (iy < 0 || ix < 0 || iy >= in[2] || ix >= in[3]) continue;
            for (int64_t k = 0; k < ws[0]; ++k) {
              const double* weight = &w[static_cast<size_t>(((k * ws[2] + r) * ws[3] + s) * in_each)];
              const auto at_in = static_cast<size_t>(((n * in[2] + iy) * in[3] + ix) * in[1] + k / out_each * in_each);
              const auto at_out = static_cast<size_t>(((n * out[2] + oy) * out[3] + ox) * out[1] + k);
              double sum = 0;
              for (int64_t i = 0; i < in_each; ++i) {
                if (c.transposed) {
                  sums[at_in + static_cast<size_t>(i)] += x[at_out] * weight[i];
                } else {
                  sum += x[at_in + static_cast<size_t>(i)] * weight[i];
                }
              }
              if (!c.transposed) sums[at_out] += sum;
            }
          }
        }
      }
    }
  }
  return sums;
}

void convolve(const Convolution& c) {
  const std::vector<double> sums = sums_of(c);
  const auto& s = c.y.sizes;
  size_t i = 0;
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t y = 0; y < s[2]; ++y) {
      for (int64_t x = 0; x < s[3]; ++x) {
        for (int64_t k = 0; k < s[1]; ++k) {
          double sum = sums[i++];
          if (c.residual.data != nullptr) sum += get(c.residual.data, c.dtype, offset(c.residual, n, k, y, x));
          if (c.bias != nullptr) sum += get(c.bias, c.dtype, k);
          if (c.relu && sum < 0) sum = 0;
          set(const_cast<void*>(c.y.data), c.dtype, offset(c.y, n, k, y, x), sum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pteron::emulator

extern "C" {
__attribute__((visibility("default"))) int pteron_emulated_product(const void* product, void* stream) {
  const pteron::cuda::Product copy = *static_cast<const pteron::cuda::Product*>(product);
  return pteron::emulator::enqueue(stream, [copy] { pteron::emulator::multiply(copy); });
}

__attribute__((visibility("default"))) int pteron_emulated_convolution(const void* convolution, void* stream) {
  const pteron::cuda::Convolution copy = *static_cast<const pteron::cuda::Convolution*>(convolution);
  return pteron::emulator::enqueue(stream, [copy] { pteron::emulator::convolve(copy); });
}
}
