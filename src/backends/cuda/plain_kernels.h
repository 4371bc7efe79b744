// Kernels that compute any product and any convolution: what cuBLASLt and cuDNN refuse, slowly and always. Compile halves put the text into modules with
// products or convolutions, the runtime half calls it (runtime/plain.cpp) when a library has no way for what a call brings.
#pragma once

#include <string_view>

namespace pteron::cuda {

/// Codes of dtypes, in the parameters: float32, float16, bfloat16, float64.
enum class PlainType : int { kFloat32, kFloat16, kBFloat16, kFloat64 };

inline constexpr std::string_view kPlainProductName = "pteron_plain_product";
inline constexpr std::string_view kPlainConvolutionName = "pteron_plain_convolution";

/// Any grid and blocks of one dim. Every parameter has 8 bytes; units of strides: elements.
/// pteron_plain_product: a, b, a second b or null, c or null, bias or null, d; PlainType, end (0, 1: relu, 2: gelu by tanh); batch, rows, columns, depth;
/// strides of a (batch, row, column), b, c, d; the bits of alpha and beta (double). d = end(alpha a b + beta c + bias), with a second b silu(a second) * (a b).
/// pteron_plain_convolution: x, weight, bias or null, residual or null, y; PlainType, transposed, relu, groups; sizes of y, x and of a weight (N, C, D, H, W);
/// strides of y, x, weight, residual; then stride, padding, dilation of D, H, W. The sums are those of runtime/dnn.h. Needs prelude().
inline constexpr std::string_view kPlainKernelsText = R"(
#ifdef PTERON_EMULATOR
#define P_CALLED static
#else
#define P_CALLED static __device__ __noinline__
#endif
// Functions that are called, loops that are not unrolled, sums in double: little code, which is translated for every model.
P_CALLED double pteron_plain_get(const void* data, i64 i, int type) {
  if (type == 0) return (double)((const float*)data)[i];
  if (type == 1) return (double)p_read(((const f16*)data)[i]);
  if (type == 2) return (double)p_read(((const bf16*)data)[i]);
  return ((const double*)data)[i];
}
P_CALLED void pteron_plain_set(void* data, i64 i, int type, double x) {
  if (type == 0) ((float*)data)[i] = (float)x;
  if (type == 1) ((f16*)data)[i] = p_f16((float)x);
  if (type == 2) ((bf16*)data)[i] = p_bf16((float)x);
  if (type == 3) ((double*)data)[i] = x;
}
P_CALLED double pteron_plain_sum(const void* a, i64 a0, i64 step_a, const void* b, i64 b0, i64 step_b, i64 count, int type) {
  double sum = 0;
#pragma unroll 1
  for (i64 k = 0; k < count; ++k) sum += pteron_plain_get(a, a0 + k * step_a, type) * pteron_plain_get(b, b0 + k * step_b, type);
  return sum;
}
P_DEV float pteron_plain_rounded(double x, int type) { return type == 1 ? p_round_f16((float)x) : type == 2 ? p_round_bf16((float)x) : (float)x; }
PTERON_KERNEL pteron_plain_product(const void* a, const void* b, const void* gate, const void* c, const void* bias, void* d, i64 type_code, i64 end, i64 batch, i64 rows, i64 columns, i64 depth,
    i64 a0, i64 a1, i64 a2, i64 b0, i64 b1, i64 b2, i64 c0, i64 c1, i64 c2, i64 d0, i64 d1, i64 d2, i64 alpha, i64 beta) {
  PTERON_BEGIN();
  const int type = (int)type_code;
  const i64 count = batch * rows * columns;
#pragma unroll 1
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
    const i64 column = i % columns, row = i / columns % rows, n = i / columns / rows;
    double sum = pteron_plain_sum(a, n * a0 + row * a1, a2, b, n * b0 + column * b2, b1, depth, type);
    if (gate != 0) {
      const float open = pteron_plain_rounded(pteron_plain_sum(a, n * a0 + row * a1, a2, gate, n * b0 + column * b2, b1, depth, type), type);
      sum = (double)pteron_plain_rounded((double)(open / (1.0f + m_exp(-open))), type) * (double)pteron_plain_rounded(sum, type);
    }
    sum *= __longlong_as_double(alpha);
    if (c != 0) sum += __longlong_as_double(beta) * pteron_plain_get(c, n * c0 + row * c1 + column * c2, type);
    if (bias != 0) sum += pteron_plain_get(bias, column, type);
    if (end == 1) sum = p_relu(sum);
    if (end == 2) sum = (double)p_gelu_tanh((float)sum);
    pteron_plain_set(d, n * d0 + row * d1 + column * d2, type, sum);
  }
}
// Where an output at `at` meets the input under the kernel's entry k along one dim; -1: nowhere.
P_CALLED i64 pteron_plain_place(i64 transposed, i64 at, i64 k, i64 size, i64 stride, i64 padding, i64 dilation) {
  i64 place = transposed != 0 ? at + padding - k * dilation : at * stride - padding + k * dilation;
  if (place < 0) return -1;
  if (transposed != 0) {
    if (place % stride != 0) return -1;
    place /= stride;
  }
  return place < size ? place : -1;
}
PTERON_KERNEL pteron_plain_convolution(const void* x, const void* weight, const void* bias, const void* residual, void* y, i64 type_code, i64 transposed, i64 relu, i64 groups,
    i64 y0, i64 y1, i64 y2, i64 y3, i64 y4, i64 x0, i64 x1, i64 x2, i64 x3, i64 x4, i64 w0, i64 w1, i64 w2, i64 w3, i64 w4,
    i64 ys0, i64 ys1, i64 ys2, i64 ys3, i64 ys4, i64 xs0, i64 xs1, i64 xs2, i64 xs3, i64 xs4, i64 ws0, i64 ws1, i64 ws2, i64 ws3, i64 ws4, i64 rs0, i64 rs1, i64 rs2, i64 rs3, i64 rs4,
    i64 f0, i64 f1, i64 f2, i64 p0, i64 p1, i64 p2, i64 e0, i64 e1, i64 e2) {
  PTERON_BEGIN();
  const int type = (int)type_code;
  const i64 count = y0 * y1 * y2 * y3 * y4, inputs = x1 / groups, outputs = y1 / groups, taps = w2 * w3 * w4;
#pragma unroll 1
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
    const i64 channel = i % y1, column = i / y1 % y4, row = i / y1 / y4 % y3, plane = i / y1 / y4 / y3 % y2, n = i / y1 / y4 / y3 / y2;
    const i64 group = channel / outputs;
    double sum = 0;
#pragma unroll 1
    for (i64 tap = 0; tap < taps; ++tap) {
      const i64 q = tap / w4 / w3, r = tap / w4 % w3, s = tap % w4;
      const i64 z = pteron_plain_place(transposed, plane, q, x2, f0, p0, e0), v = pteron_plain_place(transposed, row, r, x3, f1, p1, e1);
      const i64 u = pteron_plain_place(transposed, column, s, x4, f2, p2, e2);
      if (z < 0 || v < 0 || u < 0) continue;
      const i64 from = n * xs0 + group * inputs * xs1 + z * xs2 + v * xs3 + u * xs4;
      const i64 with = q * ws2 + r * ws3 + s * ws4 + (transposed != 0 ? group * inputs * ws0 + channel % outputs * ws1 : channel * ws0);
      sum += pteron_plain_sum(x, from, xs1, weight, with, transposed != 0 ? ws0 : ws1, inputs, type);
    }
    if (residual != 0) sum += pteron_plain_get(residual, n * rs0 + channel * rs1 + plane * rs2 + row * rs3 + column * rs4, type);
    if (bias != 0) sum += pteron_plain_get(bias, channel, type);
    if (relu != 0) sum = p_relu(sum);
    pteron_plain_set(y, n * ys0 + channel * ys1 + plane * ys2 + row * ys3 + column * ys4, type, sum);
  }
}
)";

}  // namespace pteron::cuda
