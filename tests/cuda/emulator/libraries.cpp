// What stands in for cuBLASLt and cuDNN: plain loops over the host's memory, in double, queued in the stream's order. They refuse what the libraries refuse, and with
// PTERON_EMULATED_LIBRARIES=plain in the environment what follows a sum, with =none everything.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "backends/cuda/runtime/blas.h"
#include "backends/cuda/runtime/dnn.h"
#include "emulator.h"
#include "ops/convert_float8.h"
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
    case DType::kInt8: return static_cast<const int8_t*>(data)[i];
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2: return ops::float8_to_float(static_cast<const uint8_t*>(data)[i], ops::float8_format(dtype));
    default: return static_cast<const float*>(data)[i];
  }
}

void set(void* data, DType dtype, int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat64: static_cast<double*>(data)[i] = value; break;
    case DType::kFloat16: static_cast<uint16_t*>(data)[i] = float_to_half_bits(narrow); break;
    case DType::kBFloat16: static_cast<uint16_t*>(data)[i] = float_to_bfloat16_bits(narrow); break;
    case DType::kInt32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value); break;
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
      widen(p.b.data, p.b_dtype, batch * p.b.batch + j * p.b.column, p.b.row, p.depth, &b[static_cast<size_t>(j * p.depth)]);
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
        set(const_cast<void*>(p.d.data), cuda::result_of(p.dtype), batch * p.d.batch + i * p.d.row + j * p.d.column, end_of(p.end, sum));
      }
    }
  }
}

int64_t offset(const Image& image, int64_t n, int64_t c, int64_t z, int64_t y, int64_t x) {
  return n * image.strides[0] + c * image.strides[1] + z * image.strides[2] + y * image.strides[3] + x * image.strides[4];
}

/// The whole of an image or weight as doubles, [n][z][y][x][c].
std::vector<double> whole(const Image& image, DType dtype) {
  std::vector<double> out;
  const auto& s = image.sizes;
  out.reserve(static_cast<size_t>(s[0] * s[1] * s[2] * s[3] * s[4]));
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t z = 0; z < s[2]; ++z) {
      for (int64_t y = 0; y < s[3]; ++y) {
        for (int64_t x = 0; x < s[4]; ++x) {
          for (int64_t c = 0; c < s[1]; ++c) out.push_back(get(image.data, dtype, offset(image, n, c, z, y, x)));
        }
      }
    }
  }
  return out;
}

/// Sums of a convolution, [n][z][y][x][outputs].
std::vector<double> sums_of(const Convolution& c) {
  const std::vector<double> x = whole(c.x, c.dtype), w = whole(c.weight, c.dtype);
  const auto &xs = c.x.sizes, &ws = c.weight.sizes, &ys = c.y.sizes;
  std::vector<double> sums(static_cast<size_t>(ys[0] * ys[1] * ys[2] * ys[3] * ys[4]), 0.0);
  // Image `in` of the forward convolution is x; of a transposed one it is y, and the sums run the other way.
  const auto &in = c.transposed ? ys : xs, &out = c.transposed ? xs : ys;
  const int64_t out_each = ws[0] / c.groups, in_each = ws[1], pixels = out[2] * out[3] * out[4], taps = ws[2] * ws[3] * ws[4];
  for (int64_t at = 0; at < in[0] * pixels * taps; ++at) {
    const int64_t n = at / taps / pixels, pixel = at / taps % pixels, tap = at % taps;
    const std::array<int64_t, 3> o{pixel / out[4] / out[3], pixel / out[4] % out[3], pixel % out[4]}, k{tap / ws[4] / ws[3], tap / ws[4] % ws[3], tap % ws[4]};
    std::array<int64_t, 3> i{};
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      i[d] = o[d] * c.stride[d] - c.padding[d] + k[d] * c.dilation[d];
      inside = inside && i[d] >= 0 && i[d] < in[d + 2];
    }
    if (!inside) continue;
    for (int64_t channel = 0; channel < ws[0]; ++channel) {
      const double* weight = &w[static_cast<size_t>((channel * taps + tap) * in_each)];
      const auto at_in = static_cast<size_t>((((n * in[2] + i[0]) * in[3] + i[1]) * in[4] + i[2]) * in[1] + channel / out_each * in_each);
      const auto at_out = static_cast<size_t>((n * pixels + pixel) * out[1] + channel);
      for (int64_t j = 0; j < in_each; ++j) {
        if (c.transposed) {
          sums[at_in + static_cast<size_t>(j)] += x[at_out] * weight[j];
        } else {
          sums[at_out] += x[at_in + static_cast<size_t>(j)] * weight[j];
        }
      }
    }
  }
  return sums;
}

void convolve(const Convolution& c) {
  const std::vector<double> sums = sums_of(c);
  const auto& s = c.y.sizes;
  for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i) {
    const int64_t k = i % s[1], x = i / s[1] % s[4], y = i / s[1] / s[4] % s[3], z = i / s[1] / s[4] / s[3] % s[2], n = i / s[1] / s[4] / s[3] / s[2];
    double sum = sums[static_cast<size_t>(i)];
    if (c.residual.data != nullptr) sum += get(c.residual.data, c.dtype, offset(c.residual, n, k, z, y, x));
    if (c.bias != nullptr) sum += get(c.bias, c.dtype, k);
    if (c.relu && sum < 0) sum = 0;
    set(const_cast<void*>(c.y.data), c.dtype, offset(c.y, n, k, z, y, x), sum);
  }
}

constexpr int kRefused = -1;

/// What the environment says that the libraries lack.
bool lacks(bool has_end) {
  const char* set = std::getenv("PTERON_EMULATED_LIBRARIES");
  const std::string_view what = set == nullptr ? std::string_view() : std::string_view(set);
  return what == "none" || (what == "plain" && has_end);
}

/// cuDNN takes a transposed convolution for the gradient of one from y to x, so the sizes must be those of such a one: an output padding of a whole stride gives others.
bool is_gradient(const Convolution& c) {
  for (size_t d = 0; d < 3; ++d) {
    const int64_t reach = c.y.sizes[d + 2] + 2 * c.padding[d] - (c.weight.sizes[d + 2] - 1) * c.dilation[d] - 1;
    if (reach < 0 || reach / c.stride[d] + 1 != c.x.sizes[d + 2]) return false;
  }
  return true;
}

}  // namespace
}  // namespace pteron::emulator

extern "C" {
__attribute__((visibility("default"))) int pteron_emulated_product(const void* product, void* stream) {
  using namespace pteron::cuda;
  const Product copy = *static_cast<const Product*>(product);
  if (pteron::emulator::lacks(copy.end != ProductEnd::kNone) || !is_operand(copy.rows, copy.depth, copy.a.row, copy.a.column) ||
      !is_operand(copy.depth, copy.columns, copy.b.row, copy.b.column)) {
    return pteron::emulator::kRefused;
  }
  return pteron::emulator::enqueue(stream, [copy] { pteron::emulator::multiply(copy); });
}

__attribute__((visibility("default"))) int pteron_emulated_convolution(const void* convolution, void* stream) {
  const pteron::cuda::Convolution copy = *static_cast<const pteron::cuda::Convolution*>(convolution);
  const bool has_end = copy.bias != nullptr || copy.residual.data != nullptr || copy.relu;
  if (pteron::emulator::lacks(has_end) || (copy.transposed && !pteron::emulator::is_gradient(copy))) return pteron::emulator::kRefused;
  return pteron::emulator::enqueue(stream, [copy] { pteron::emulator::convolve(copy); });
}
}
