// Text of the kernel for some rows. A block has its part of a few columns' weights in shared memory as a whole: they are asked for before the kernel waits for
// the one in front of it, so that the weights' way from memory is hidden; then the rows come, and all warps multiply.
#include "backends/cuda/aot/few_rows_text.h"

#include <algorithm>

#include "backends/cuda/aot/element_text.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kBody = R"(
PTERON_KERNEL @CLUSTER@__launch_bounds__(@THREADS@) @NAME@(const unsigned short* x, const unsigned short* w0, const unsigned short* w1, const unsigned short* w2,
    const unsigned short* factors, const unsigned short* bias, const unsigned short* residual, unsigned short* y0, unsigned short* y1, unsigned short* y2, long long eps_bits) {
  extern __shared__ uint4 @NAME@_shared[];
  const int kPitch = @DEPTH@ / @PARTS@ + 8, kVectors = @DEPTH@ / @PARTS@ / 8, kWide = @TILE@ * @WIDE@, kSumPitch = kWide + 8;
  unsigned short* const wt = (unsigned short*)@NAME@_shared;
  unsigned short* const xt = wt + kWide * kPitch;
  float* const sums = (float*)xt;  // the rows are not needed any more when sums are exchanged
  __shared__ unsigned long long arrived[2];
  __shared__ float squares[16 * @ROWTILES@];
  PTERON_NEXT_MAY_START();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const int first_part = blockIdx.x % @PARTS@, my_parts = 1, share = @PARTS@;
#else
  // No clusters: one of the blocks does the parts of all.
  if (blockIdx.x % @PARTS@ != 0) return;
  const int first_part = 0, my_parts = @PARTS@, share = 1;
#endif
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const bool whole = ((unsigned long long)x & 15ull) == 0ull;
  const int mt = warp % @ROWTILES@, group = warp / @ROWTILES@;
  const int row0 = blockIdx.y * (16 * @ROWTILES@), rows = @ROWS@ - row0 < 16 * @ROWTILES@ ? @ROWS@ - row0 : 16 * @ROWTILES@;
  int tile = blockIdx.x / @PARTS@;
  const unsigned short* w = w0;
  unsigned short* y = y0;
  int columns = @N0@;
  if (@MANY@ && tile >= (@N0@ + @TILE@ - 1) / @TILE@) {
    tile -= (@N0@ + @TILE@ - 1) / @TILE@;
    w = w1;
    y = y1;
    columns = @N1@;
    if (tile >= (@N1@ + @TILE@ - 1) / @TILE@) {
      tile -= (@N1@ + @TILE@ - 1) / @TILE@;
      w = w2;
      y = y2;
      columns = @N2@;
    }
  }
  const int column0 = tile * @TILE@;
  float acc[@TILE@ * @WIDE@ / 8][4];
#pragma unroll
  for (int n = 0; n < @TILE@ * @WIDE@ / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
  if (tid == 0) {
    pteron_bulk_open(&arrived[0]);
    pteron_bulk_open(&arrived[1]);
  }
  for (int p = 0; p < my_parts; ++p) {
    const int from = (first_part + p) * (@DEPTH@ / @PARTS@);
    __syncthreads();
    if (tid < kWide) {
      const int column = column0 + (@WIDE@ == 2 && tid >= @TILE@ ? tid - @TILE@ : tid);
      const unsigned short* matrix = @WIDE@ == 2 && tid >= @TILE@ ? w1 : w;
      if (column < columns) pteron_bulk_fetch(wt + tid * kPitch, matrix + (long long)column * @DEPTH@ + from, 16 * kVectors, &arrived[0]);
    }
    if (tid == 0) pteron_bulk_expect(&arrived[0], 16 * kVectors * @WIDE@ * (columns - column0 < @TILE@ ? columns - column0 : @TILE@));
    if (@NORM@) {
      // The norm's factors go into the weights, and its scales of rows to the sums.
      pteron_bulk_wait(&arrived[0]);
      for (int i = tid; i < kWide * kVectors; i += @THREADS@) {
        pteron_vector16 v = pteron_load16(wt + i / kVectors * kPitch, i % kVectors);
        float a[8], f[8];
        pteron_unpack_@TNAME@(v, a);
        pteron_unpack_@TNAME@(pteron_load16(factors + from, i % kVectors), f);
        uint4 r;
        r.x = pteron_pack2_@TNAME@(a[0] * f[0], a[1] * f[1]);
        r.y = pteron_pack2_@TNAME@(a[2] * f[2], a[3] * f[3]);
        r.z = pteron_pack2_@TNAME@(a[4] * f[4], a[5] * f[5]);
        r.w = pteron_pack2_@TNAME@(a[6] * f[6], a[7] * f[7]);
        ((uint4*)(wt + i / kVectors * kPitch))[i % kVectors] = r;
      }
    }
    if (p == 0) PTERON_WAIT_FOR_BEFORE();
    if (whole) {
      if (tid < rows) pteron_bulk_fetch(xt + tid * kPitch, x + (long long)(row0 + tid) * @DEPTH@ + from, 16 * kVectors, &arrived[1]);
      if (tid == 0) pteron_bulk_expect(&arrived[1], 16 * kVectors * rows);
      if (!@NORM@) pteron_bulk_wait(&arrived[0]);
      pteron_bulk_wait(&arrived[1]);
      if (@NORM@) __syncthreads();
    } else {
      for (int i = tid; i < rows * kVectors * 8; i += @THREADS@) xt[i / (kVectors * 8) * kPitch + i % (kVectors * 8)] = x[(long long)(row0 + i / (kVectors * 8)) * @DEPTH@ + from + i % (kVectors * 8)];
      if (!@NORM@) pteron_bulk_wait(&arrived[0]);
      __syncthreads();
    }
    if (@NORM@) {
      // Eight threads a row.
      for (int r = tid / 8; r < rows; r += @THREADS@ / 8) {
        float sum = 0.0f;
#pragma unroll 4
        for (int i = tid % 8; i < kVectors; i += 8) {
          float a[8];
          pteron_unpack_@TNAME@(pteron_load16(xt + r * kPitch, i), a);
#pragma unroll
          for (int j = 0; j < 8; ++j) sum += a[j] * a[j];
        }
        const unsigned mask = 0xffu << (lane & 24);
        for (int step = 4; step > 0; step >>= 1) sum += __shfl_xor_sync(mask, sum, step);
        if (tid % 8 == 0) squares[r] = p == 0 ? sum : squares[r] + sum;
      }
    }
    if (mt * 16 < rows) {
#pragma unroll 4
      for (int k = group; k < @DEPTH@ / @PARTS@ / 16; k += @GROUPS@) {
        unsigned a[4];
        pteron_tile_left(xt, kPitch, mt * 16, k * 16, a);
#pragma unroll
        for (int n = 0; n < @TILE@ * @WIDE@ / 8; n += 2) {
          unsigned b[4];
          pteron_tile_rows(wt, kPitch, n * 8, k * 16, b);
          pteron_mma_@TNAME@(acc[n], a, b[0], b[1]);
          pteron_mma_@TNAME@(acc[n + 1], a, b[2], b[3]);
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < @TILE@ * @WIDE@ / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2* const to = (float2*)(sums + (group * 16 * @ROWTILES@ + mt * 16 + half * 8 + (lane >> 2)) * kSumPitch + n * 8 + 2 * (lane & 3));
      *to = make_float2(acc[n][2 * half], acc[n][2 * half + 1]);
    }
  }
  if (share > 1) {
    pteron_cluster_wait();
  } else {
    __syncthreads();
  }
  for (int i = first_part * @THREADS@ + tid; i < rows * (@TILE@ / 2); i += share * @THREADS@) {
    const int r = i / (@TILE@ / 2), c = i % (@TILE@ / 2) * 2;
    float v[2] = {0.0f, 0.0f}, u[2] = {0.0f, 0.0f};
    for (int p = 0; p < share; ++p) {
#pragma unroll
      for (int s = 0; s < @GROUPS@; ++s) {
        const float* const at = sums + (s * 16 * @ROWTILES@ + r) * kSumPitch + c;
        const float2 one = share > 1 ? pteron_cluster_read2(at, p) : *(const float2*)at;
        v[0] += one.x;
        v[1] += one.y;
        if (@WIDE@ == 2) {
          const float2 other = share > 1 ? pteron_cluster_read2(at + @TILE@ * (@WIDE@ - 1), p) : *(const float2*)(at + @TILE@ * (@WIDE@ - 1));
          u[0] += other.x;
          u[1] += other.y;
        }
      }
    }
    const int column = column0 + c;
    if (column >= columns) continue;
    if (@NORM@) {
      float square = 0.0f;
      for (int p = 0; p < share; ++p) square += share > 1 ? pteron_cluster_read(squares + r, p) : squares[r];
      const float scale = 1.0f / sqrtf(square / (float)@DEPTH@ + (float)pteron_bits_to_double(eps_bits));
      for (int j = 0; j < 2; ++j) {
        v[j] *= scale;
        u[j] *= scale;
      }
    }
    const long long to = (long long)(row0 + r) * columns + column;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (@WIDE@ == 2) v[j] = v[j] / (1.0f + expf(-v[j])) * u[j];
      if (@BIAS@) v[j] += pteron_widen_@TNAME@(bias, column + j);
      if (@RESIDUAL@) v[j] += pteron_widen_@TNAME@(residual, to + j);
      if (@END@ == 1) v[j] = v[j] < 0.0f ? 0.0f : v[j];
      if (@END@ == 2) v[j] = 0.5f * v[j] * (1.0f + tanhf(0.7978845608028654f * (v[j] + 0.044715f * v[j] * v[j] * v[j])));
      if (@END@ == 3) v[j] = v[j] / (1.0f + expf(-v[j]));
    }
    *(unsigned*)(y + to) = pteron_pack2_@TNAME@(v[0], v[1]);
  }
  if (share > 1) pteron_cluster_wait();  // others still read this block's sums
}
)";

constexpr int64_t kMostShared = 200 * 1024;

}  // namespace

int64_t FewRowsForm::blocks() const {
  int64_t tiles = 0;
  for (size_t i = 0; i < (gate ? 1 : columns.size()); ++i) tiles += (columns[i] + tile - 1) / tile;
  return tiles * parts;
}

int64_t FewRowsForm::shared_bytes() const {
  const int64_t wide = tile * (gate ? 2 : 1), pitch = depth / parts + 8, all_rows = 16 * row_tiles;
  return 2 * wide * pitch + std::max(2 * all_rows * pitch, 4 * depth_groups * all_rows * (wide + 8));
}

std::string few_rows_text(const FewRowsForm& form) {
  const auto columns = [&](size_t i) { return std::to_string(i < form.columns.size() ? form.columns[i] : 0); };
  return fill_text(kBody, {{"TNAME", element_name(form.dtype)},
                           {"THREADS", std::to_string(form.threads())},
                           {"PARTS", std::to_string(form.parts)},
                           {"CLUSTER", form.parts > 1 ? str_cat("PTERON_CLUSTER(", form.parts, ") ") : std::string()},
                           {"DEPTH", std::to_string(form.depth)},
                           {"TILE", std::to_string(form.tile)},
                           {"WIDE", form.gate ? "2" : "1"},
                           {"MANY", !form.gate && form.columns.size() > 1 ? "1" : "0"},
                           {"ROWS", std::to_string(form.rows)},
                           {"ROWTILES", std::to_string(form.row_tiles)},
                           {"GROUPS", std::to_string(form.depth_groups)},
                           {"N0", columns(0)},
                           {"N1", columns(1)},
                           {"N2", columns(2)},
                           {"NORM", form.norm ? "1" : "0"},
                           {"BIAS", form.bias ? "1" : "0"},
                           {"RESIDUAL", form.residual ? "1" : "0"},
                           {"END", std::to_string(static_cast<int>(form.end))}});
}

bool choose_few_rows(FewRowsForm* form) {
  form->row_tiles = std::min<int64_t>(4, (form->rows + 15) / 16);
  // Measured on an H200 with 50 rows, 720 to 2048 deep: a block that has the whole depth needs no cluster; half as many blocks as there are multiprocessors
  // leave the others to the next kernel, which starts early.
  constexpr int64_t kFewBlocks = 66, kMostBlocks = 132;
  for (const int64_t parts : {1, 2, 4, 8}) {
    if (form->depth % (16 * parts) != 0 || (parts > 1 && form->depth / parts > 512)) continue;
    form->parts = parts;
    form->depth_groups = parts == 1 ? 4 : 2;
    for (const int64_t most : {kFewBlocks, kMostBlocks}) {
      for (const int64_t tile : {16, 32, 48}) {
        form->tile = tile;
        if (form->shared_bytes() <= kMostShared && form->blocks() * form->row_blocks() <= most) return true;
      }
    }
  }
  return false;
}

}  // namespace pteron::cuda
