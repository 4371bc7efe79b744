// Texts of the integer kernels. A block of the tiled one has 64 pixels and 64 channels; its four warps 32 of each. While one part of the depth is multiplied,
// the next is on its way in registers. Fragments are those of mma.m16n8k32 (PTX ISA, "Matrix Fragments for mma.m16n8k32").
#include "backends/cuda/aot/integer_text.h"

#include "backends/cuda/aot/element_text.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kTiled = R"(
struct @NAME@_chunk { unsigned word[4]; };
__device__ __forceinline__ void @NAME@_mma(int* d, const unsigned* a, const unsigned* b) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k32.row.col.s32.@XTYPE@.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
// 16 bytes of the window at a pixel: elements `depth` .. `depth` + 15 of the window.
__device__ __forceinline__ @NAME@_chunk @NAME@_window(const @X@* image, int iy, int ix, int height, int width, int depth) {
  @NAME@_chunk v;
  for (int i = 0; i < 4; ++i) v.word[i] = 0u;
  if (depth >= @DEPTH@) return v;
#if @VECTORS@
  const int tap = depth / @CHANNELS@, c = depth % @CHANNELS@, y = iy + tap / @WIDTH@ * @DY@, x = ix + tap % @WIDTH@ * @DX@;
  if (y >= 0 && y < height && x >= 0 && x < width) {
    const uint4 from = *(const uint4*)(image + ((long long)y * width + x) * @ALL@ + c);
    v.word[0] = from.x; v.word[1] = from.y; v.word[2] = from.z; v.word[3] = from.w;
  } else {
    for (int i = 0; i < 4; ++i) v.word[i] = @ZEROS@u;
  }
#else
  for (int i = 0; i < 16; ++i) {
    const int at = depth + i, tap = at / @CHANNELS@, c = at % @CHANNELS@, y = iy + tap / @WIDTH@ * @DY@, x = ix + tap % @WIDTH@ * @DX@;
    if (at >= @DEPTH@) break;
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    const unsigned byte = inside ? (unsigned char)image[((long long)y * width + x) * @ALL@ + c] : @ZEROS@u & 255u;
    v.word[i / 4] |= byte << (8 * (i % 4));
  }
#endif
  return v;
}
__device__ __forceinline__ @NAME@_chunk @NAME@_weights(const signed char* row, bool inside, int depth) {
  @NAME@_chunk v;
  for (int i = 0; i < 4; ++i) v.word[i] = 0u;
  if (!inside || depth >= @DEPTH@) return v;
#if @VECTORS@
  const uint4 from = *(const uint4*)(row + depth);
  v.word[0] = from.x; v.word[1] = from.y; v.word[2] = from.z; v.word[3] = from.w;
#else
  for (int i = 0; i < 16 && depth + i < @DEPTH@; ++i) v.word[i / 4] |= (unsigned)(unsigned char)row[depth + i] << (8 * (i % 4));
#endif
  return v;
}
PTERON_KERNEL __launch_bounds__(128) @NAME@(const @X@* x, const signed char* w, int* y, long long images, long long height, long long width, long long out_height, long long out_width) {
  PTERON_BEGIN();
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
  const long long pixels = images * out_height * out_width, first = (long long)blockIdx.x * 64;
  const int channel0 = blockIdx.y * 64, group = blockIdx.z, column = (tid & 3) * 16;
  // Rows of 80 bytes: the 32 words that a warp reads at once lie in different banks.
  __shared__ __align__(16) unsigned tile_x[2][64 * 20];
  __shared__ __align__(16) unsigned tile_w[2][64 * 20];
  const @X@* image[2];
  int iy[2], ix[2];
  bool has_row[2], has_weight[2];
  const signed char* row[2];
  for (int i = 0; i < 2; ++i) {
    const long long pixel = first + (tid >> 2) + i * 32;
    has_row[i] = pixel < pixels;
    const long long at = has_row[i] ? pixel : 0, rest = at % (out_height * out_width);
    image[i] = x + at / (out_height * out_width) * height * width * @ALL@ + group * @CHANNELS@;
    iy[i] = (int)(rest / out_width) * @SY@ - @PY@;
    ix[i] = (int)(rest % out_width) * @SX@ - @PX@;
    const int channel = channel0 + (tid >> 2) + i * 32;
    has_weight[i] = channel < @OUTPUTS@;
    row[i] = w + ((long long)group * @OUTPUTS@ + (has_weight[i] ? channel : 0)) * @DEPTH@;
  }
  int sum[2][4][4];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 4; ++k) sum[i][j][k] = 0;
  @NAME@_chunk nx[2], nw[2];
  for (int i = 0; i < 2; ++i) {
    nx[i] = @NAME@_window(image[i], iy[i], ix[i], (int)height, (int)width, column);
    nw[i] = @NAME@_weights(row[i], has_weight[i], column);
  }
  const int m0 = (warp & 1) * 32, n0 = (warp >> 1) * 32;
  for (int depth = 0, turn = 0; depth < @DEPTH@; depth += 64, turn ^= 1) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 4; ++k) tile_x[turn][((tid >> 2) + i * 32) * 20 + (tid & 3) * 4 + k] = nx[i].word[k];
      for (int k = 0; k < 4; ++k) tile_w[turn][((tid >> 2) + i * 32) * 20 + (tid & 3) * 4 + k] = nw[i].word[k];
    }
    __syncthreads();
    if (depth + 64 < @DEPTH@) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        nx[i] = @NAME@_window(image[i], iy[i], ix[i], (int)height, (int)width, depth + 64 + column);
        nw[i] = @NAME@_weights(row[i], has_weight[i], depth + 64 + column);
      }
    }
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int part = 0; part < 16; part += 8) {
      unsigned a[2][4], b[4][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned* p = &tile_x[turn][(m0 + i * 16 + g) * 20 + part + t];
        a[i][0] = p[0]; a[i][1] = p[8 * 20]; a[i][2] = p[4]; a[i][3] = p[8 * 20 + 4];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned* p = &tile_w[turn][(n0 + j * 8 + g) * 20 + part + t];
        b[j][0] = p[0]; b[j][1] = p[4];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) @NAME@_mma(sum[i][j], a[i], b[j]);
    }
#else
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 4; ++j) {
        for (int k = 0; k < 4; ++k) {
          const @X@* p = (const @X@*)&tile_x[turn][(m0 + i * 16 + g + (k >> 1) * 8) * 20];
          const signed char* q = (const signed char*)&tile_w[turn][(n0 + j * 8 + 2 * t + (k & 1)) * 20];
          for (int d = 0; d < 64; ++d) sum[i][j][k] += (int)p[d] * (int)q[d];
        }
      }
    }
#endif
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const long long pixel = first + m0 + i * 16 + g + (k >> 1) * 8;
        const int channel = channel0 + n0 + j * 8 + 2 * t + (k & 1);
        if (pixel < pixels && channel < @OUTPUTS@) y[pixel * @ALLOUT@ + (long long)group * @OUTPUTS@ + channel] = sum[i][j][k];
      }
    }
  }
}
)";

constexpr std::string_view kDirect = R"(
PTERON_KERNEL __launch_bounds__(256) @NAME@(const @X@* x, const signed char* w, int* y, long long images, long long height, long long width, long long out_height, long long out_width) {
  PTERON_BEGIN();
  const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= images * out_height * out_width * @ALLOUT@) return;
  const int channel = (int)(i % @ALLOUT@);
  const long long pixel = i / @ALLOUT@, rest = pixel % (out_height * out_width);
  const @X@* image = x + pixel / (out_height * out_width) * height * width * @ALL@ + channel / @OUTPUTS@ * @CHANNELS@;
  const signed char* row = w + (long long)channel * @DEPTH@;
  const int iy = (int)(rest / out_width) * @SY@ - @PY@, ix = (int)(rest % out_width) * @SX@ - @PX@;
  int sum = 0;
  for (int r = 0; r < @HEIGHT@; ++r) {
    for (int s = 0; s < @WIDTH@; ++s) {
      const int py = iy + r * @DY@, px = ix + s * @DX@;
      const bool inside = py >= 0 && py < height && px >= 0 && px < width;
      const @X@* from = image + (inside ? ((long long)py * width + px) * @ALL@ : 0);
      for (int c = 0; c < @CHANNELS@; ++c) sum += (inside ? (int)from[c] : @ZERO@) * (int)row[(r * @WIDTH@ + s) * @CHANNELS@ + c];
    }
  }
  y[i] = sum;
}
)";

}  // namespace

std::array<int64_t, 3> IntegerForm::block() const {
  if (tiled()) return {64, 64, 128};
  return {256, 0, 256};  // elements of y
}

std::string integer_text(const IntegerForm& form) {
  const auto byte = static_cast<uint64_t>(form.zero & 255);
  return fill_text(form.tiled() ? kTiled : kDirect, {{"X", form.is_signed ? "signed char" : "unsigned char"},
                                                     {"XTYPE", form.is_signed ? "s8" : "u8"},
                                                     {"DEPTH", std::to_string(form.inputs * form.kernel[0] * form.kernel[1])},
                                                     {"CHANNELS", std::to_string(form.inputs)},
                                                     {"ALL", std::to_string(form.inputs * form.groups)},
                                                     {"OUTPUTS", std::to_string(form.outputs)},
                                                     {"ALLOUT", std::to_string(form.outputs * form.groups)},
                                                     {"VECTORS", form.inputs % 16 == 0 ? "1" : "0"},
                                                     {"HEIGHT", std::to_string(form.kernel[0])},
                                                     {"WIDTH", std::to_string(form.kernel[1])},
                                                     {"SY", std::to_string(form.stride[0])},
                                                     {"SX", std::to_string(form.stride[1])},
                                                     {"PY", std::to_string(form.padding[0])},
                                                     {"PX", std::to_string(form.padding[1])},
                                                     {"DY", std::to_string(form.dilation[0])},
                                                     {"DX", std::to_string(form.dilation[1])},
                                                     {"ZERO", "(" + std::to_string(form.zero) + ")"},
                                                     {"ZEROS", std::to_string(byte * 0x01010101u)}});
}

}  // namespace pteron::cuda
