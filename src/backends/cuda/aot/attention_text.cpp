// Texts of the attention kernels. A block has some rows of queries of one head (or of heads that share keys) and walks over the keys; tiles of keys and values
// come into shared memory while the former ones are used.
#include "backends/cuda/aot/attention_text.h"

#include <algorithm>

#include "backends/cuda/aot/element_text.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

/// Blocks of 64 rows that leave most of a large device idle.
constexpr int64_t kFewBlocks = 100;

constexpr std::string_view kParameters =
    R"(const @T@* q, const @T@* k, const @T@* v, @T@* o, const void* m0, const void* m1, float* parts,
    long long queries, long long keys, long long heads, long long group, long long ratio,
    long long qb, long long qh, long long ql, long long kb, long long kh, long long kl, long long vb, long long vh, long long vl, long long ob, long long oh, long long ol,
    long long m0b, long long m0h, long long m0q, long long m0k, long long m1b, long long m1h, long long m1q, long long m1k,
    long long splits, long long chunk, long long whole, long long scale_bits)";

// Where the block and its rows stand; shared by both kernels.
constexpr std::string_view kPlace = R"(
  PTERON_BEGIN();
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
// Rows first .. first + KEYS * GROUPS of a matrix into a tile; rows from `end` on, and columns behind the matrix's width, are zero.
template <int padded>
__device__ __forceinline__ void @NAME@_fetch(unsigned short* tile, const unsigned short* from, long long stride, long long first, long long end, int width, int pitch, bool whole) {
  const int kVectors = padded / 8, left = end - first < @KEYS@ * @GROUPS@ ? (int)(end - first) : @KEYS@ * @GROUPS@;
  from += first * stride;
#pragma unroll 4
  for (int i = threadIdx.x; i < @KEYS@ * @GROUPS@ * kVectors; i += @THREADS@) {
    const int row = i / kVectors, column = i % kVectors * 8;
    unsigned short* to = tile + row * pitch + column;
    const bool inside = row < left;
    const unsigned short* p = from + (inside ? row : 0) * stride + column;
    if (whole && column + 8 <= width) {
      pteron_fetch16(to, p, inside);
    } else {
      for (int j = 0; j < 8; ++j) to[j] = inside && column + j < width ? p[j] : (unsigned short)0;
    }
  }
}
)";

constexpr std::string_view kTensorBody = R"({
  extern __shared__ uint4 @NAME@_shared[];
  unsigned short* const tiles = (unsigned short*)@NAME@_shared;
  const int kPitch = @WP@ + 8, vPitch = @VP@ + 8, kRows = @KEYS@ * @GROUPS@;
  const int vTile = @STAGES@ * kRows * kPitch;  // tiles of keys, then of values
)";

constexpr std::string_view kTensorRest = R"(
  const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const int rowwarp = warp % @WARPS@, group_of_keys = warp / @WARPS@;
  const float factor = (float)(scale * 1.4426950408889634);
  const bool active = row0 + rowwarp * (16 * @EACH@) < rows;
  if (begin < end) {
    @NAME@_fetch<@WP@>(tiles, kp, kl, begin, end, @W@, kPitch, whole != 0);
    @NAME@_fetch<@VP@>(tiles + vTile, vp, vl, begin, end, @V@, vPitch, whole != 0);
    pteron_fetch_end();
  }
  long long at[@EACH@][2], head[@EACH@][2], query[@EACH@][2];
#pragma unroll
  for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      at[e][i] = row0 + rowwarp * (16 * @EACH@) + e * 16 + g + 8 * i;
      const unsigned r = (unsigned)(at[e][i] < rows ? at[e][i] : rows - 1);
      head[e][i] = head0 + r % (unsigned)group;
      query[e][i] = r / (unsigned)group;
    }
  }
  unsigned qf[@EACH@][@WP@ / 16][4];
#pragma unroll
  for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
    for (int s = 0; s < @WP@ / 16; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = s * 16 + (i >> 1) * 8 + 2 * t;
        const unsigned short* p = q + batch * qb + head[e][i & 1] * qh + query[e][i & 1] * ql + c;
        if (@W@ == @WP@ && whole) {
          qf[e][s][i] = *(const unsigned*)p;
        } else {
          qf[e][s][i] = (c < @W@ ? p[0] : 0u) | ((c + 1 < @W@ ? (unsigned)p[1] : 0u) << 16);
        }
      }
    }
  }
  float acc[@EACH@][@VP@ / 8][4];
  const float kLow = -__int_as_float(0x7f800000);
  float top[@EACH@][2], sum[@EACH@][2];
#pragma unroll
  for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
    for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[e][n][i] = 0.0f;
    top[e][0] = top[e][1] = kLow;
    sum[e][0] = sum[e][1] = 0.0f;
  }
  int buffer = 0;
  for (long long step = begin; step < end; step += kRows) {
    const long long first = step + group_of_keys * @KEYS@;
    if (@STAGES@ > 1 && step + kRows < end) {
      @NAME@_fetch<@WP@>(tiles + (buffer ^ 1) * kRows * kPitch, kp, kl, step + kRows, end, @W@, kPitch, whole != 0);
      @NAME@_fetch<@VP@>(tiles + vTile + (buffer ^ 1) * kRows * vPitch, vp, vl, step + kRows, end, @V@, vPitch, whole != 0);
    }
    pteron_fetch_end();
    // What is added to the scores is on its way while the tile comes.
    float added[@MASKS@ != 0 ? @EACH@ : 1][@MASKS@ != 0 ? @KEYS@ / 8 : 1][4];
    if (@MASKS@ != 0 && active && first < end) {
#pragma unroll
      for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
        for (int n = 0; n < @KEYS@ / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const long long key = first + n * 8 + 2 * t + (i & 1), seen = key < keys ? key : keys - 1;
            (void)seen;
            float x = 0.0f;
            @MASK_LINES@
            added[@MASKS@ != 0 ? e : 0][@MASKS@ != 0 ? n : 0][i] = x;
          }
        }
      }
    }
    if (@STAGES@ > 1) {
      pteron_fetch_wait<1>();
    } else {
      pteron_fetch_wait<0>();
    }
    __syncthreads();
    if (active && first < end) {
      const unsigned short* kt = tiles + (buffer * kRows + group_of_keys * @KEYS@) * kPitch;
      const unsigned short* vt = tiles + vTile + (buffer * kRows + group_of_keys * @KEYS@) * vPitch;
      float s[@EACH@][@KEYS@ / 8][4];
#pragma unroll
      for (int n = 0; n < @KEYS@ / 8; n += 2) {
#pragma unroll
        for (int e = 0; e < @EACH@; ++e)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[e][n][i] = s[e][n + 1][i] = 0.0f;
#pragma unroll
        for (int d = 0; d < @WP@ / 16; ++d) {
          unsigned b[4];
          pteron_tile_rows(kt, kPitch, n * 8, d * 16, b);
#pragma unroll
          for (int e = 0; e < @EACH@; ++e) {
            pteron_mma_@TNAME@(s[e][n], qf[e][d], b[0], b[1]);
            pteron_mma_@TNAME@(s[e][n + 1], qf[e][d], b[2], b[3]);
          }
        }
      }
      const int left = end - first < @KEYS@ ? (int)(end - first) : @KEYS@;
#pragma unroll
      for (int e = 0; e < @EACH@; ++e) {
        const int limit[2] = {@CAUSAL@ && query[e][0] - first + 1 < left ? (int)(query[e][0] - first + 1) : left,
                              @CAUSAL@ && query[e][1] - first + 1 < left ? (int)(query[e][1] - first + 1) : left};
        const bool edge = limit[0] < @KEYS@ || limit[1] < @KEYS@;
#pragma unroll
        for (int n = 0; n < @KEYS@ / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (@EARLY@) s[e][n][i] *= factor;
            if (@MASKS@ != 0) s[e][n][i] += added[@MASKS@ != 0 ? e : 0][@MASKS@ != 0 ? n : 0][i];
          }
        }
        if (edge) {
#pragma unroll
          for (int n = 0; n < @KEYS@ / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (n * 8 + 2 * t + (i & 1) >= limit[i >> 1]) s[e][n][i] = kLow;
        }
        float now[2] = {kLow, kLow};
#pragma unroll
        for (int n = 0; n < @KEYS@ / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) now[i >> 1] = fmaxf(now[i >> 1], s[e][n][i]);
        float shift[2], rescale[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 1));
          now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 2));
          if (!@EARLY@) now[r] *= factor;  // of a factor above zero: the order of the scores is the same
          now[r] = fmaxf(now[r], top[e][r]);
          shift[r] = now[r] == kLow ? 0.0f : now[r];
          rescale[r] = pteron_exp2(top[e][r] - shift[r]);
          top[e][r] = now[r];
          sum[e][r] *= rescale[r];
        }
#pragma unroll
        for (int n = 0; n < @KEYS@ / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[e][n][i] = @EARLY@ ? pteron_exp2(s[e][n][i] - shift[i >> 1]) : pteron_exp2(s[e][n][i] * factor - shift[i >> 1]);
            sum[e][i >> 1] += s[e][n][i];
          }
        }
#pragma unroll
        for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[e][n][i] *= rescale[i >> 1];
      }
#pragma unroll
      for (int d = 0; d < @KEYS@ / 16; ++d) {
        unsigned p[@EACH@][4];
#pragma unroll
        for (int e = 0; e < @EACH@; ++e) {
          p[e][0] = pteron_pack2_@TNAME@(s[e][2 * d][0], s[e][2 * d][1]);
          p[e][1] = pteron_pack2_@TNAME@(s[e][2 * d][2], s[e][2 * d][3]);
          p[e][2] = pteron_pack2_@TNAME@(s[e][2 * d + 1][0], s[e][2 * d + 1][1]);
          p[e][3] = pteron_pack2_@TNAME@(s[e][2 * d + 1][2], s[e][2 * d + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < @VP@ / 8; n += 2) {
          unsigned b[4];
          pteron_tile_columns(vt, vPitch, n * 8, d * 16, b);
#pragma unroll
          for (int e = 0; e < @EACH@; ++e) {
            pteron_mma_@TNAME@(acc[e][n], p[e], b[0], b[1]);
            pteron_mma_@TNAME@(acc[e][n + 1], p[e], b[2], b[3]);
          }
        }
      }
    }
    __syncthreads();
    buffer ^= @STAGES@ - 1;
    if (@STAGES@ == 1 && step + kRows < end) {
      @NAME@_fetch<@WP@>(tiles, kp, kl, step + kRows, end, @W@, kPitch, whole != 0);
      @NAME@_fetch<@VP@>(tiles + vTile, vp, vl, step + kRows, end, @V@, vPitch, whole != 0);
    }
  }
#pragma unroll
  for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[e][r] += __shfl_xor_sync(0xffffffffu, sum[e][r], 1);
      sum[e][r] += __shfl_xor_sync(0xffffffffu, sum[e][r], 2);
    }
  }
  if (@GROUPS@ > 1) {
    // The groups of keys are joined by way of shared memory, and the first group goes on with all.
    float* const shares = (float*)@NAME@_shared;
    const int kShare = 2 * @EACH@ * (@VP@ / 8 * 2 + 2);  // of a thread
    float* const mine = shares + ((group_of_keys * @WARPS@ + rowwarp) * kShare) * 32 + lane;
    pteron_fetch_wait<0>();
    __syncthreads();
    if (group_of_keys > 0) {
#pragma unroll
      for (int e = 0; e < @EACH@; ++e) {
        for (int r = 0; r < 2; ++r) {
          mine[(e * 2 + r) * 64] = top[e][r];
          mine[(e * 2 + r) * 64 + 32] = sum[e][r];
        }
#pragma unroll
        for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) mine[@EACH@ * 128 + ((e * @VP@ / 8 + n) * 4 + i) * 32] = acc[e][n][i];
      }
    }
    __syncthreads();
    if (group_of_keys > 0) return;
    for (int other = 1; other < @GROUPS@; ++other) {
      const float* const from = mine + other * @WARPS@ * kShare * 32;
#pragma unroll
      for (int e = 0; e < @EACH@; ++e) {
        float own[2], theirs[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float his = from[(e * 2 + r) * 64], now = fmaxf(top[e][r], his), shift = now == kLow ? 0.0f : now;
          own[r] = pteron_exp2(top[e][r] - shift);
          theirs[r] = pteron_exp2(his - shift);
          sum[e][r] = sum[e][r] * own[r] + from[(e * 2 + r) * 64 + 32] * theirs[r];
          top[e][r] = now;
        }
#pragma unroll
        for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            acc[e][n][i] = acc[e][n][i] * own[i >> 1] + from[@EACH@ * 128 + ((e * @VP@ / 8 + n) * 4 + i) * 32] * theirs[i >> 1];
      }
    }
  }
  if (!active) return;
#pragma unroll
  for (int e = 0; e < @EACH@; ++e) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (at[e][r] >= rows) continue;
      if (splits > 1) {
        float* part = parts + (((batch * heads + head[e][r]) * queries + query[e][r]) * splits + split) * (@V@ + 2);
#pragma unroll
        for (int n = 0; n < @VP@ / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (n * 8 + 2 * t + i < @V@) part[n * 8 + 2 * t + i] = acc[e][n][2 * r + i];
        if (t == 0) {
          part[@V@] = top[e][r];
          part[@V@ + 1] = sum[e][r];
        }
        continue;
      }
      const float inverse = @ZERO@ && sum[e][r] == 0.0f ? 0.0f : 1.0f / sum[e][r];
      unsigned short* to = o + batch * ob + head[e][r] * oh + query[e][r] * ol;
#pragma unroll
      for (int n = 0; n < @VP@ / 8; ++n) {
        const int c = n * 8 + 2 * t;
        const unsigned two = pteron_pack2_@TNAME@(acc[e][n][2 * r] * inverse, acc[e][n][2 * r + 1] * inverse);
        if (@V@ == @VP@ && whole) {
          *(unsigned*)(to + c) = two;
        } else {
          if (c < @V@) to[c] = (unsigned short)two;
          if (c + 1 < @V@) to[c + 1] = (unsigned short)(two >> 16);
        }
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
  PTERON_BEGIN();
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
  return str_cat("x += 1.4426950408889634f * pteron_widen_", element_name(form.masks[i]), "((const ", element_type(form.masks[i]), "*)m", i, ", ", at,
                 ");\n            ");
}

bool is_plain(const AttentionForm& form) { return form.dtype == DType::kFloat32; }

int64_t padded(const AttentionForm& form, int64_t width) { return round_up(width, is_plain(form) ? 32 : 16); }

/// Few queries have few blocks, each with all their keys at once; many have blocks of more rows, which read each key less often.
AttentionTiles choose_tiles(const AttentionForm& form, bool wide) {
  AttentionTiles tiles;
  if (wide) {
    tiles.keys_a_group = 32;
    return tiles;
  }
  const int64_t width = std::max(form.width, form.value_width);
  if (form.likely_rows == 0 || form.likely_keys == 0) return tiles;
  const int64_t blocks = (form.likely_rows + 63) / 64 * form.likely_units;
  if (blocks < kFewBlocks && form.likely_keys > 64) {
    tiles.warps = form.likely_rows <= 64 ? 1 : 2;
    tiles.keys_a_group = form.likely_rows <= 64 ? 48 : 64;
    tiles.groups = std::min<int64_t>((form.likely_keys + tiles.keys_a_group - 1) / tiles.keys_a_group, width > 64 ? 3 : 7);
    tiles.stages = form.likely_keys <= tiles.keys_a_group * tiles.groups ? 1 : 2;
    if (tiles.stages == 2) {  // many keys: the call splits them among blocks
      tiles.keys_a_group = 16;
      tiles.groups = 4;
    }
  } else if (blocks < 3 * kFewBlocks && form.masks.empty() && width <= 64 && form.likely_keys >= 512) {
    tiles.each = 2;
    tiles.groups = 2;
  }
  return tiles;
}

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
  if (form.how.has_value()) {
    static_cast<AttentionTiles&>(shape) = *form.how;
  } else {
    static_cast<AttentionTiles&>(shape) = choose_tiles(form, wide);
  }
  shape.rows = 16 * shape.each * shape.warps;
  shape.keys = shape.keys_a_group * shape.groups;
  shape.threads = 32 * shape.warps * shape.groups;
  const int64_t tiles = 2 * shape.stages * shape.keys * (width + 8 + value + 8),
                shares = 4 * 32 * shape.warps * shape.groups * 2 * shape.each * (value / 4 + 2);
  shape.shared_bytes = shape.groups > 1 ? std::max(tiles, shares) : tiles;
  return shape;
}

std::string attention_text(const AttentionForm& form) {
  const AttentionShape shape = attention_shape(form);
  const bool plain = is_plain(form);
  std::string masks;
  for (size_t i = 0; i < form.masks.size(); ++i) masks += mask_line(form, i, plain ? "head_r" : "head[e][i >> 1]", plain ? "query_r" : "query[e][i >> 1]");
  const std::string text = str_cat(plain ? "" : kTensorCores, "PTERON_KERNEL __launch_bounds__(@THREADS@) @NAME@(", kParameters, ") ",
                                   plain ? kPlainBody : kTensorBody, kPlace, plain ? kPlainRest : kTensorRest);
  return fill_text(text, {{"T", element_type(form.dtype)},
                          {"TNAME", element_name(form.dtype)},
                          {"ROWS", std::to_string(shape.rows)},
                          {"KEYS", std::to_string(plain ? shape.keys : shape.keys_a_group)},
                          {"GROUPS", std::to_string(shape.groups)},
                          {"EACH", std::to_string(shape.each)},
                          {"WARPS", std::to_string(shape.warps)},
                          {"STAGES", std::to_string(shape.stages)},
                          {"THREADS", std::to_string(shape.threads)},
                          {"TR", std::to_string(shape.rows / 16)},
                          {"W", std::to_string(form.width)},
                          {"WP", std::to_string(padded(form, form.width))},
                          {"V", std::to_string(form.value_width)},
                          {"VP", std::to_string(padded(form, form.value_width))},
                          {"CAUSAL", form.causal ? "1" : "0"},
                          {"ZERO", form.zero_rows ? "1" : "0"},
                          {"MASKS", std::to_string(form.masks.size())},
                          {"EARLY", form.any_scale || !form.masks.empty() ? "1" : "0"},
                          {"MASK_LINES", masks}});
}

std::string attention_merge_text(const AttentionForm& form) {
  return fill_text(
      kMerge,
      {{"T", element_type(form.dtype)}, {"TNAME", element_name(form.dtype)}, {"V", std::to_string(form.value_width)}, {"ZERO", form.zero_rows ? "1" : "0"}});
}

}  // namespace pteron::cuda
