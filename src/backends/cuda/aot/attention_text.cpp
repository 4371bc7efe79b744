// Texts of the attention kernels. A block has some rows of queries of one head (or of heads that share keys) and walks over the keys; tiles of keys and values
// come into shared memory while the former ones are used.
#include "backends/cuda/aot/attention_text.h"

#include <algorithm>

#include "backends/cuda/aot/element_text.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kParameters =
    R"(const @T@* q, const @T@* k, const @T@* v, @T@* o, const void* m0, const void* m1, float* parts,
    long long queries, long long keys, long long heads, long long group, long long ratio,
    long long qb, long long qh, long long ql, long long kb, long long kh, long long kl, long long vb, long long vh, long long vl, long long ob, long long oh, long long ol,
    long long m0b, long long m0h, long long m0q, long long m0k, long long m1b, long long m1h, long long m1q, long long m1k,
    long long splits, long long chunk, long long whole, long long scale_bits)";

// Where the block and its rows stand; shared by both kernels.
constexpr std::string_view kPlace = R"(
  const int tid = threadIdx.x;
  const double scale = pteron_bits_to_double(scale_bits);
  const long long batch = blockIdx.z / splits, split = blockIdx.z % splits, head0 = (long long)blockIdx.y * group, keyhead = head0 / ratio;
  const long long row0 = (long long)blockIdx.x * @ROWS@, rows = queries * group;
  const @T@* kp = k + batch * kb + keyhead * kh;
  const @T@* vp = v + batch * vb + keyhead * vh;
  const long long begin = split * chunk;
  long long end = begin + chunk < keys ? begin + chunk : keys;
  if (@CAUSAL@) {
    const long long last = (row0 + @ROWS@ - 1 < rows ? row0 + @ROWS@ - 1 : rows - 1) / group + 1;
    end = end < last ? end : last;
  }
)";

constexpr std::string_view kTensorCores = R"(
__device__ __forceinline__ void @NAME@_mma(float* d, const unsigned* a, unsigned b0, unsigned b1) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.@TNAME@.@TNAME@.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  // The same by words from the other threads: row g of a lies in the four threads of group g, column n of b in those of group n.
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  for (int s = 0; s < 4; ++s) {
    unsigned x[4];
    for (int i = 0; i < 4; ++i) x[i] = __shfl_sync(0xffffffffu, a[i], g * 4 + s);
    for (int c = 0; c < 2; ++c) {
      const unsigned y0 = __shfl_sync(0xffffffffu, b0, (2 * t + c) * 4 + s), y1 = __shfl_sync(0xffffffffu, b1, (2 * t + c) * 4 + s);
      for (int half = 0; half < 2; ++half) {
        const unsigned shift = 16u * (unsigned)half;
        const unsigned short w0 = (unsigned short)(y0 >> shift), w1 = (unsigned short)(y1 >> shift);
        unsigned short xs[4];
        for (int i = 0; i < 4; ++i) xs[i] = (unsigned short)(x[i] >> shift);
        d[c] += pteron_widen_@TNAME@(&xs[0], 0) * pteron_widen_@TNAME@(&w0, 0) + pteron_widen_@TNAME@(&xs[2], 0) * pteron_widen_@TNAME@(&w1, 0);
        d[2 + c] += pteron_widen_@TNAME@(&xs[1], 0) * pteron_widen_@TNAME@(&w0, 0) + pteron_widen_@TNAME@(&xs[3], 0) * pteron_widen_@TNAME@(&w1, 0);
      }
    }
  }
#endif
}
// Two fragments of b from a tile whose rows are columns of b: columns n..n+15, depth k..k+15.
__device__ __forceinline__ void @NAME@_rows(const unsigned short* tile, int pitch, int n, int k, unsigned* r) {
  const int lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
  const unsigned short* p = tile + (n + (lane & 7) + (lane >> 4) * 8) * pitch + k + ((lane >> 3) & 1) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)) : "memory");
#else
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; ++i) {
    const unsigned short* p = tile + (n + (i >> 1) * 8 + g) * pitch + k + (i & 1) * 8 + 2 * t;
    r[i] = p[0] | ((unsigned)p[1] << 16);
  }
#endif
}
// The same from a tile whose columns are columns of b.
__device__ __forceinline__ void @NAME@_columns(const unsigned short* tile, int pitch, int n, int k, unsigned* r) {
  const int lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
  const unsigned short* p = tile + (k + (lane & 7) + ((lane >> 3) & 1) * 8) * pitch + n + (lane >> 4) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)) : "memory");
#else
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; ++i) {
    const unsigned short* p = tile + (k + (i & 1) * 8 + 2 * t) * pitch + n + (i >> 1) * 8 + g;
    r[i] = p[0] | ((unsigned)p[pitch] << 16);
  }
#endif
}
// Rows first .. first + KEYS of a matrix into a tile; rows from `end` on, and columns behind the matrix's width, are zero.
__device__ __forceinline__ void @NAME@_fetch(unsigned short* tile, const unsigned short* from, long long stride, long long first, long long end, int width, int padded, int pitch, bool whole) {
  const int vectors = padded / 8;
  for (int i = threadIdx.x; i < @KEYS@ * vectors; i += 128) {
    const int row = i / vectors, column = i % vectors * 8;
    unsigned short* to = tile + row * pitch + column;
    const bool inside = first + row < end;
    const unsigned short* p = from + (inside ? first + row : 0) * stride + column;
    if (whole && column + 8 <= width) {
#ifdef __CUDA_ARCH__
      const int bytes = inside ? 16 : 0;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(p), "r"(bytes) : "memory");
#else
      for (int j = 0; j < 8; ++j) to[j] = inside ? p[j] : (unsigned short)0;
#endif
    } else {
      for (int j = 0; j < 8; ++j) to[j] = inside && column + j < width ? p[j] : (unsigned short)0;
    }
  }
}
__device__ __forceinline__ void @NAME@_commit() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `left` of the groups of copies are under way.
template <int left>
__device__ __forceinline__ void @NAME@_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}
)";

constexpr std::string_view kTensorBody = R"({
  extern __shared__ uint4 @NAME@_shared[];
  unsigned short* const tiles = (unsigned short*)@NAME@_shared;
  const int kPitch = @WP@ + 8, vPitch = @VP@ + 8;
  const int vTile = 2 * @KEYS@ * kPitch;  // two tiles of keys, then two of values
)";

constexpr std::string_view kTensorRest = R"(
  const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const float factor = (float)(scale * 1.4426950408889634);
  const bool active = row0 + warp * 16 < rows;
  long long at[2], head[2], query[2];
  for (int i = 0; i < 2; ++i) {
    at[i] = row0 + warp * 16 + g + 8 * i;
    const long long r = at[i] < rows ? at[i] : rows - 1;
    head[i] = head0 + r % group;
    query[i] = r / group;
  }
  unsigned qf[@WP@ / 16][4];
#pragma unroll
  for (int s = 0; s < @WP@ / 16; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = s * 16 + (i >> 1) * 8 + 2 * t;
      const unsigned short* p = q + batch * qb + head[i & 1] * qh + query[i & 1] * ql + c;
      if (@W@ == @WP@ && whole) {
        qf[s][i] = *(const unsigned*)p;
      } else {
        qf[s][i] = (c < @W@ ? p[0] : 0u) | ((c + 1 < @W@ ? (unsigned)p[1] : 0u) << 16);
      }
    }
  }
  float acc[@VP@ / 8][4];
#pragma unroll
  for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
  const float kLow = -__int_as_float(0x7f800000);
  float top[2] = {kLow, kLow}, sum[2] = {0.0f, 0.0f};

  if (begin < end) {
    @NAME@_fetch(tiles, kp, kl, begin, end, @W@, @WP@, kPitch, whole != 0);
    @NAME@_fetch(tiles + vTile, vp, vl, begin, end, @V@, @VP@, vPitch, whole != 0);
    @NAME@_commit();
  }
  int buffer = 0;
  for (long long first = begin; first < end; first += @KEYS@) {
    if (first + @KEYS@ < end) {
      @NAME@_fetch(tiles + (buffer ^ 1) * @KEYS@ * kPitch, kp, kl, first + @KEYS@, end, @W@, @WP@, kPitch, whole != 0);
      @NAME@_fetch(tiles + vTile + (buffer ^ 1) * @KEYS@ * vPitch, vp, vl, first + @KEYS@, end, @V@, @VP@, vPitch, whole != 0);
      @NAME@_commit();
      @NAME@_wait<1>();
    } else {
      @NAME@_wait<0>();
    }
    __syncthreads();
    if (active) {
      const unsigned short* kt = tiles + buffer * @KEYS@ * kPitch;
      const unsigned short* vt = tiles + vTile + buffer * @KEYS@ * vPitch;
      float s[@KEYS@ / 8][4];
#pragma unroll
      for (int n = 0; n < @KEYS@ / 8; n += 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] = s[n + 1][i] = 0.0f;
#pragma unroll
        for (int d = 0; d < @WP@ / 16; ++d) {
          unsigned b[4];
          @NAME@_rows(kt, kPitch, n * 8, d * 16, b);
          @NAME@_mma(s[n], qf[d], b[0], b[1]);
          @NAME@_mma(s[n + 1], qf[d], b[2], b[3]);
        }
      }
      const bool edge = first + @KEYS@ > end || @CAUSAL@ != 0;
#pragma unroll
      for (int n = 0; n < @KEYS@ / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const long long key = first + n * 8 + 2 * t + (i & 1);
          float x = s[n][i] * factor;
          if (@MASKS@ != 0) {
            const long long seen = key < keys ? key : keys - 1;
            (void)seen;
            @MASK_LINES@
          }
          if (edge && (key >= end || (@CAUSAL@ && key > query[i >> 1]))) x = kLow;
          s[n][i] = x;
        }
      }
      float now[2] = {top[0], top[1]};
#pragma unroll
      for (int n = 0; n < @KEYS@ / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) now[i >> 1] = fmaxf(now[i >> 1], s[n][i]);
      float shift[2], rescale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 1));
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 2));
        shift[r] = now[r] == kLow ? 0.0f : now[r];
        rescale[r] = exp2f(top[r] - shift[r]);
        top[r] = now[r];
        sum[r] *= rescale[r];
      }
#pragma unroll
      for (int n = 0; n < @KEYS@ / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[n][i] = exp2f(s[n][i] - shift[i >> 1]);
          sum[i >> 1] += s[n][i];
        }
      }
#pragma unroll
      for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[n][i] *= rescale[i >> 1];
#pragma unroll
      for (int d = 0; d < @KEYS@ / 16; ++d) {
        unsigned p[4];
        p[0] = pteron_pack2_@TNAME@(s[2 * d][0], s[2 * d][1]);
        p[1] = pteron_pack2_@TNAME@(s[2 * d][2], s[2 * d][3]);
        p[2] = pteron_pack2_@TNAME@(s[2 * d + 1][0], s[2 * d + 1][1]);
        p[3] = pteron_pack2_@TNAME@(s[2 * d + 1][2], s[2 * d + 1][3]);
#pragma unroll
        for (int n = 0; n < @VP@ / 8; n += 2) {
          unsigned b[4];
          @NAME@_columns(vt, vPitch, n * 8, d * 16, b);
          @NAME@_mma(acc[n], p, b[0], b[1]);
          @NAME@_mma(acc[n + 1], p, b[2], b[3]);
        }
      }
    }
    __syncthreads();
    buffer ^= 1;
  }
  if (!active) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    if (at[r] >= rows) continue;
    if (splits > 1) {
      float* part = parts + (((batch * heads + head[r]) * queries + query[r]) * splits + split) * (@V@ + 2);
#pragma unroll
      for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (n * 8 + 2 * t + i < @V@) part[n * 8 + 2 * t + i] = acc[n][2 * r + i];
      if (t == 0) {
        part[@V@] = top[r];
        part[@V@ + 1] = sum[r];
      }
      continue;
    }
    const float inverse = @ZERO@ && sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    unsigned short* to = o + batch * ob + head[r] * oh + query[r] * ol;
#pragma unroll
    for (int n = 0; n < @VP@ / 8; ++n) {
      const int c = n * 8 + 2 * t;
      const unsigned two = pteron_pack2_@TNAME@(acc[n][2 * r] * inverse, acc[n][2 * r + 1] * inverse);
      if (@V@ == @VP@ && whole) {
        *(unsigned*)(to + c) = two;
      } else {
        if (c < @V@) to[c] = (unsigned short)two;
        if (c + 1 < @V@) to[c + 1] = (unsigned short)(two >> 16);
      }
    }
  }
}
)";

// float32: 16 rows of threads by 8, each with some rows and four keys, then the same rows and a share of the value's columns.
constexpr std::string_view kPlainBody = R"({
  extern __shared__ float4 @NAME@_shared[];
  float* const qs = (float*)@NAME@_shared;
  float* const ks = qs + @ROWS@ * (@WP@ + 4);
  float* const vs = ks + @KEYS@ * (@WP@ + 4);
  float* const ps = vs + @KEYS@ * @VP@;
)";

constexpr std::string_view kPlainRest = R"(
  const int ty = tid >> 3, tx = tid & 7;
  const float factor = (float)(scale * 1.4426950408889634);
  const float kLow = -__int_as_float(0x7f800000);
  for (int i = tid; i < @ROWS@ * @WP@; i += 128) {
    const int r = i / @WP@, c = i % @WP@;
    const long long row = row0 + r;
    qs[r * (@WP@ + 4) + c] = row < rows && c < @W@ ? q[batch * qb + (head0 + row % group) * qh + row / group * ql + c] : 0.0f;
  }
  const bool active = row0 + (tid >> 5) * (@ROWS@ / 4) < rows;
  float acc[@TR@][@VP@ / 8], top[@TR@], sum[@TR@];
#pragma unroll
  for (int r = 0; r < @TR@; ++r) {
    top[r] = kLow;
    sum[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < @VP@ / 8; ++c) acc[r][c] = 0.0f;
  }
  for (long long first = begin; first < end; first += @KEYS@) {
    __syncthreads();
    for (int i = tid; i < @KEYS@ * @WP@; i += 128) {
      const int r = i / @WP@, c = i % @WP@;
      ks[r * (@WP@ + 4) + c] = first + r < end && c < @W@ ? kp[(first + r) * kl + c] : 0.0f;
    }
    for (int i = tid; i < @KEYS@ * @VP@; i += 128) {
      const int r = i / @VP@, c = i % @VP@;
      vs[r * @VP@ + c] = first + r < end && c < @V@ ? vp[(first + r) * vl + c] : 0.0f;
    }
    __syncthreads();
    if (active) {
      float s[@TR@][4];
#pragma unroll
      for (int r = 0; r < @TR@; ++r)
#pragma unroll
        for (int j = 0; j < 4; ++j) s[r][j] = 0.0f;
#pragma unroll 4
      for (int d = 0; d < @WP@; d += 4) {
        float4 a[@TR@], b[4];
#pragma unroll
        for (int r = 0; r < @TR@; ++r) a[r] = *(const float4*)(qs + (ty * @TR@ + r) * (@WP@ + 4) + d);
#pragma unroll
        for (int j = 0; j < 4; ++j) b[j] = *(const float4*)(ks + (tx + 8 * j) * (@WP@ + 4) + d);
#pragma unroll
        for (int r = 0; r < @TR@; ++r)
#pragma unroll
          for (int j = 0; j < 4; ++j) s[r][j] += a[r].x * b[j].x + a[r].y * b[j].y + a[r].z * b[j].z + a[r].w * b[j].w;
      }
#pragma unroll
      for (int r = 0; r < @TR@; ++r) {
        const long long row = row0 + ty * @TR@ + r < rows ? row0 + ty * @TR@ + r : rows - 1;
        const long long head_r = head0 + row % group, query_r = row / group;
        (void)head_r;
        float now = top[r];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const long long key = first + tx + 8 * j;
          float x = s[r][j] * factor;
          if (@MASKS@ != 0) {
            const long long seen = key < keys ? key : keys - 1;
            (void)seen;
            @MASK_LINES@
          }
          if (key >= end || (@CAUSAL@ && key > query_r)) x = kLow;
          s[r][j] = x;
          now = fmaxf(now, x);
        }
        for (int step = 1; step < 8; step <<= 1) now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, step));
        const float shift = now == kLow ? 0.0f : now, rescale = exp2f(top[r] - shift);
        top[r] = now;
        sum[r] *= rescale;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float e = exp2f(s[r][j] - shift);
          sum[r] += e;
          ps[(ty * @TR@ + r) * (@KEYS@ + 1) + tx + 8 * j] = e;
        }
#pragma unroll
        for (int c = 0; c < @VP@ / 8; ++c) acc[r][c] *= rescale;
      }
      __syncwarp();
#pragma unroll 4
      for (int j = 0; j < @KEYS@; ++j) {
        float p[@TR@];
#pragma unroll
        for (int r = 0; r < @TR@; ++r) p[r] = ps[(ty * @TR@ + r) * (@KEYS@ + 1) + j];
#pragma unroll
        for (int c = 0; c < @VP@ / 32; ++c) {
          const float4 x = *(const float4*)(vs + j * @VP@ + c * 32 + tx * 4);
#pragma unroll
          for (int r = 0; r < @TR@; ++r) {
            acc[r][c * 4] += p[r] * x.x;
            acc[r][c * 4 + 1] += p[r] * x.y;
            acc[r][c * 4 + 2] += p[r] * x.z;
            acc[r][c * 4 + 3] += p[r] * x.w;
          }
        }
      }
    }
  }
  if (!active) return;
#pragma unroll
  for (int r = 0; r < @TR@; ++r) {
    for (int step = 1; step < 8; step <<= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], step);
    const long long row = row0 + ty * @TR@ + r;
    if (row >= rows) continue;
    const long long head_r = head0 + row % group, query_r = row / group;
    const float inverse = @ZERO@ && sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    float* to = splits > 1 ? parts + (((batch * heads + head_r) * queries + query_r) * splits + split) * (@V@ + 2) : o + batch * ob + head_r * oh + query_r * ol;
#pragma unroll
    for (int c = 0; c < @VP@ / 8; ++c) {
      const int column = c / 4 * 32 + tx * 4 + c % 4;
      if (column < @V@) to[column] = splits > 1 ? acc[r][c] : acc[r][c] * inverse;
    }
    if (splits > 1 && tx == 0) {
      to[@V@] = top[r];
      to[@V@ + 1] = sum[r];
    }
  }
}
)";

constexpr std::string_view kMerge = R"(
PTERON_KERNEL __launch_bounds__(128) @NAME@(const float* parts, @T@* o, long long queries, long long heads, long long ob, long long oh, long long ol, long long splits) {
  const float kLow = -__int_as_float(0x7f800000);
  const float* from = parts + ((blockIdx.z * heads + blockIdx.y) * queries + blockIdx.x) * splits * (@V@ + 2);
  float top = kLow;
  for (long long s = 0; s < splits; ++s) top = fmaxf(top, from[s * (@V@ + 2) + @V@]);
  const float shift = top == kLow ? 0.0f : top;
  float sum = 0.0f;
  for (long long s = 0; s < splits; ++s) sum += exp2f(from[s * (@V@ + 2) + @V@] - shift) * from[s * (@V@ + 2) + @V@ + 1];
  const float inverse = @ZERO@ && sum == 0.0f ? 0.0f : 1.0f / sum;
  @T@* to = o + blockIdx.z * ob + blockIdx.y * oh + blockIdx.x * ol;
  for (int c = threadIdx.x; c < @V@; c += 128) {
    float x = 0.0f;
    for (long long s = 0; s < splits; ++s) x += exp2f(from[s * (@V@ + 2) + @V@] - shift) * from[s * (@V@ + 2) + c];
    pteron_narrow_@TNAME@(to, c, x * inverse);
  }
}
)";

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// What adds mask i to the score x of a query and a key.
std::string mask_line(const AttentionForm& form, size_t i, std::string_view head, std::string_view query) {
  const std::string at = str_cat("batch * m", i, "b + ", head, " * m", i, "h + ", query, " * m", i, "q + seen * m", i, "k");
  if (form.masks[i] == DType::kBool) return str_cat("if (((const unsigned char*)m", i, ")[", at, "] == 0) x = kLow;\n            ");
  return str_cat("x += 1.4426950408889634f * pteron_widen_", element_name(form.masks[i]), "((const ", element_type(form.masks[i]), "*)m", i, ", ", at, ");\n            ");
}

bool is_plain(const AttentionForm& form) { return form.dtype == DType::kFloat32; }

int64_t padded(const AttentionForm& form, int64_t width) { return round_up(width, is_plain(form) ? 32 : 16); }

}  // namespace

AttentionShape attention_shape(const AttentionForm& form) {
  const int64_t width = padded(form, form.width), value = padded(form, form.value_width);
  const bool wide = std::max(width, value) > 128;
  AttentionShape shape;
  if (is_plain(form)) {
    shape.rows = wide ? 32 : 64;
    shape.keys = 32;
    shape.shared_bytes = 4 * (shape.rows * (width + 4) + shape.keys * (width + 4) + shape.keys * value + shape.rows * (shape.keys + 1));
    shape.shared_bytes = round_up(shape.shared_bytes, 16);
    return shape;
  }
  shape.rows = 64;
  shape.keys = wide ? 32 : 64;
  shape.shared_bytes = 2 * 2 * shape.keys * (width + 8 + value + 8);
  return shape;
}

std::string attention_text(const AttentionForm& form) {
  const AttentionShape shape = attention_shape(form);
  const bool plain = is_plain(form);
  std::string masks;
  for (size_t i = 0; i < form.masks.size(); ++i) masks += mask_line(form, i, plain ? "head_r" : "head[i >> 1]", plain ? "query_r" : "query[i >> 1]");
  const std::string text = str_cat(plain ? "" : kTensorCores, "PTERON_KERNEL __launch_bounds__(128) @NAME@(", kParameters, ") ", plain ? kPlainBody : kTensorBody, kPlace,
                                   plain ? kPlainRest : kTensorRest);
  return fill_text(text, {{"T", element_type(form.dtype)},
                          {"TNAME", element_name(form.dtype)},
                          {"ROWS", std::to_string(shape.rows)},
                          {"KEYS", std::to_string(shape.keys)},
                          {"TR", std::to_string(shape.rows / 16)},
                          {"W", std::to_string(form.width)},
                          {"WP", std::to_string(padded(form, form.width))},
                          {"V", std::to_string(form.value_width)},
                          {"VP", std::to_string(padded(form, form.value_width))},
                          {"CAUSAL", form.causal ? "1" : "0"},
                          {"ZERO", form.zero_rows ? "1" : "0"},
                          {"MASKS", std::to_string(form.masks.size())},
                          {"MASK_LINES", masks}});
}

std::string attention_merge_text(const AttentionForm& form) {
  return fill_text(kMerge, {{"T", element_type(form.dtype)}, {"TNAME", element_name(form.dtype)}, {"V", std::to_string(form.value_width)}, {"ZERO", form.zero_rows ? "1" : "0"}});
}

}  // namespace pteron::cuda
