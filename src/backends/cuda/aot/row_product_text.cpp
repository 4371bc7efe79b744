// Text of the kernel for a few rows. One group of warps reads some columns' weights 16 bytes a thread, all loads of a step before the first use.
#include "backends/cuda/aot/row_product_text.h"

#include <algorithm>

#include "backends/cuda/aot/element_text.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kBody = R"(
PTERON_KERNEL __launch_bounds__(@THREADS@) @NAME@(const @T@* x, const @T@* w, const @T@* g, const @T@* bias, const @T@* residual, @T@* y) {
  PTERON_BEGIN();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const bool whole = ((unsigned long long)x & 15ull) == 0ull;
  const int group = warp / @SHARE@, part = warp % @SHARE@;
  const long long first = ((long long)blockIdx.x * (@WARPS@ / @SHARE@) + group) * @COLUMNS@;
  float sum[@WEIGHTS@][@COLUMNS@][@ROWS@];
  for (int m = 0; m < @WEIGHTS@; ++m)
    for (int c = 0; c < @COLUMNS@; ++c)
      for (int r = 0; r < @ROWS@; ++r) sum[m][c][r] = 0.0f;
  for (int base = part * 32 + lane; base < @DEPTH@ / @LANES@; base += 32 * @SHARE@ * @STEPS@) {
    pteron_vector16 wv[@WEIGHTS@][@COLUMNS@][@STEPS@];
#pragma unroll
    for (int s = 0; s < @STEPS@; ++s) {
      const int at = base + s * 32 * @SHARE@;
#pragma unroll
      for (int c = 0; c < @COLUMNS@; ++c) {
        const bool inside = at < @DEPTH@ / @LANES@ && first + c < @N@;
        const long long row = (first + c) * (@DEPTH@ / @LANES@) + at;
        wv[0][c][s] = inside ? pteron_stream16(w, row) : pteron_zero16();
        if (@WEIGHTS@ == 2) wv[@WEIGHTS@ - 1][c][s] = inside ? pteron_stream16(g, row) : pteron_zero16();
      }
    }
#pragma unroll
    for (int s = 0; s < @STEPS@; ++s) {
      const int at = base + s * 32 * @SHARE@;
      if (at >= @DEPTH@ / @LANES@) break;
#pragma unroll
      for (int r = 0; r < @ROWS@; ++r) {
        float xf[@LANES@];
        if (whole) {
          pteron_unpack_@TNAME@(pteron_load16(x, (long long)r * (@DEPTH@ / @LANES@) + at), xf);
        } else {
          for (int i = 0; i < @LANES@; ++i) xf[i] = pteron_widen_@TNAME@(x, ((long long)r * (@DEPTH@ / @LANES@) + at) * @LANES@ + i);
        }
#pragma unroll
        for (int m = 0; m < @WEIGHTS@; ++m) {
#pragma unroll
          for (int c = 0; c < @COLUMNS@; ++c) {
            float wf[@LANES@];
            pteron_unpack_@TNAME@(wv[m][c][s], wf);
#pragma unroll
            for (int i = 0; i < @LANES@; ++i) sum[m][c][r] += wf[i] * xf[i];
          }
        }
      }
    }
  }
  __shared__ float parts[@WARPS@][@WEIGHTS@ * @COLUMNS@ * @ROWS@];
#pragma unroll
  for (int m = 0; m < @WEIGHTS@; ++m) {
#pragma unroll
    for (int c = 0; c < @COLUMNS@; ++c) {
#pragma unroll
      for (int r = 0; r < @ROWS@; ++r) {
        float v = sum[m][c][r];
        for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
        if (lane == 0) parts[warp][(m * @COLUMNS@ + c) * @ROWS@ + r] = v;
      }
    }
  }
  __syncthreads();
  const int results = @WARPS@ / @SHARE@ * @COLUMNS@ * @ROWS@;
  for (int i = threadIdx.x; i < results; i += @THREADS@) {
    const int r = i % @ROWS@, c = i / @ROWS@ % @COLUMNS@, from = i / (@ROWS@ * @COLUMNS@);
    const long long column = ((long long)blockIdx.x * (@WARPS@ / @SHARE@) + from) * @COLUMNS@ + c;
    if (column >= @N@) continue;
    float total[@WEIGHTS@];
    for (int m = 0; m < @WEIGHTS@; ++m) {
      total[m] = 0.0f;
      for (int p = 0; p < @SHARE@; ++p) total[m] += parts[from * @SHARE@ + p][(m * @COLUMNS@ + c) * @ROWS@ + r];
    }
    float v = total[0];
    if (@WEIGHTS@ == 2) v = v * (total[@WEIGHTS@ - 1] / (1.0f + expf(-total[@WEIGHTS@ - 1])));
    if (@BIAS@) v += pteron_widen_@TNAME@(bias, column);
    if (@RESIDUAL@) v += pteron_widen_@TNAME@(residual, r * (long long)@N@ + column);
    pteron_narrow_@TNAME@(y, r * (long long)@N@ + column, v);
  }
}
)";

constexpr std::string_view kNarrow = R"(
__device__ __forceinline__ void @NAME@_unpack(const pteron_vector16& v, float* out) {
#pragma unroll
  for (int i = 0; i < @LANES@; ++i) {
    const unsigned word = v.word[i * @BITS@ / 32] >> (i * @BITS@ % 32);
    // 2^23 and a number below it are a float whose last bits are the number.
    out[i] = pteron_bits_to_float(0x4b000000u | ((word @FLIP@) & @MASK@u)) - @OFFSET@;
  }
}
PTERON_KERNEL __launch_bounds__(@THREADS@) @NAME@(const @T@* x, const void* w, const @S@* scale, const @T@* bias, const @T@* residual, @T@* y) {
  PTERON_BEGIN();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const bool whole = ((unsigned long long)x & 15ull) == 0ull;
  const int group = warp / @SHARE@, part = warp % @SHARE@;
  const long long column = (long long)blockIdx.x * (@WARPS@ / @SHARE@) + group;
  float sum[@ROWS@];
  for (int r = 0; r < @ROWS@; ++r) sum[r] = 0.0f;
  for (int base = part * 32 + lane; base < @DEPTH@ / @LANES@; base += 32 * @SHARE@ * @STEPS@) {
    pteron_vector16 wv[@STEPS@];
    float by[@STEPS@];
#pragma unroll
    for (int s = 0; s < @STEPS@; ++s) {
      const int at = base + s * 32 * @SHARE@;
      const bool inside = at < @DEPTH@ / @LANES@ && column < @N@;
      wv[s] = inside ? pteron_stream16(w, column * (@DEPTH@ / @LANES@) + at) : pteron_zero16();
      by[s] = @GROUPED@ && inside ? pteron_widen_@SNAME@(scale, column * (@DEPTH@ / @GROUP@) + at * @LANES@ / @GROUP@) : 1.0f;
    }
#pragma unroll
    for (int s = 0; s < @STEPS@; ++s) {
      const int at = base + s * 32 * @SHARE@;
      if (at >= @DEPTH@ / @LANES@) break;
      float wf[@LANES@];
      @NAME@_unpack(wv[s], wf);
#pragma unroll
      for (int r = 0; r < @ROWS@; ++r) {
        float part_sum = 0.0f;
#pragma unroll
        for (int v = 0; v < @LANES@ / @VALUES@; ++v) {
          float xf[@VALUES@];
          const long long place = ((long long)r * @DEPTH@ + (long long)at * @LANES@) / @VALUES@ + v;
          if (whole) {
            pteron_unpack_@TNAME@(pteron_load16(x, place), xf);
          } else {
            for (int i = 0; i < @VALUES@; ++i) xf[i] = pteron_widen_@TNAME@(x, place * @VALUES@ + i);
          }
#pragma unroll
          for (int i = 0; i < @VALUES@; ++i) part_sum += wf[v * @VALUES@ + i] * xf[i];
        }
        sum[r] += part_sum * by[s];
      }
    }
  }
  __shared__ float parts[@WARPS@][@ROWS@];
#pragma unroll
  for (int r = 0; r < @ROWS@; ++r) {
    float v = sum[r];
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    if (lane == 0) parts[warp][r] = v;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < @WARPS@ / @SHARE@ * @ROWS@; i += @THREADS@) {
    const int r = i % @ROWS@, from = i / @ROWS@;
    const long long c = (long long)blockIdx.x * (@WARPS@ / @SHARE@) + from;
    if (c >= @N@) continue;
    float v = 0.0f;
    for (int p = 0; p < @SHARE@; ++p) v += parts[from * @SHARE@ + p][r];
    if (@SCALED@) v *= pteron_widen_@SNAME@(scale, @ONE@ ? 0 : c);
    if (@BIAS@) v += pteron_widen_@TNAME@(bias, c);
    if (@RESIDUAL@) v += pteron_widen_@TNAME@(residual, r * (long long)@N@ + c);
    if (@RELU@) v = v < 0.0f ? 0.0f : v;
    if (@GELU@) v = 0.5f * v * (1.0f + tanhf(0.79788456080286535588f * (v + 0.044715f * v * v * v)));
    pteron_narrow_@TNAME@(y, r * (long long)@N@ + c, v);
  }
}
)";

}  // namespace

void choose_narrow_rows(NarrowRowForm* form) {
  // A warp reads as many bytes a step as one of the other form; so the depth counts in bytes.
  RowProductForm like = form->rows;
  like.depth = like.depth * form->bits / 8 / static_cast<int64_t>(dtype_size(like.dtype));
  like.gate = true;  // one column a group
  choose_row_product(&like);
  form->rows.warps = like.warps;
  form->rows.warps_a_column = like.warps_a_column;
  form->rows.columns_a_group = 1;
}

std::string narrow_rows_text(const NarrowRowForm& form) {
  const RowProductForm& r = form.rows;
  const int64_t lanes = 128 / form.bits, values = 16 / static_cast<int64_t>(dtype_size(r.dtype));
  const int64_t steps = std::clamp<int64_t>(r.depth / lanes / 32 / r.warps_a_column, 1, 4);
  const bool grouped = form.group != 0 && form.group < r.depth, scaled = form.group != 0 && !grouped;
  return fill_text(kNarrow, {{"T", element_type(r.dtype)},
                             {"TNAME", element_name(r.dtype)},
                             {"S", element_type(form.scale_dtype)},
                             {"SNAME", element_name(form.scale_dtype)},
                             {"THREADS", std::to_string(r.warps * 32)},
                             {"WARPS", std::to_string(r.warps)},
                             {"SHARE", std::to_string(r.warps_a_column)},
                             {"ROWS", std::to_string(r.rows)},
                             {"DEPTH", std::to_string(r.depth)},
                             {"N", std::to_string(r.columns)},
                             {"LANES", std::to_string(lanes)},
                             {"VALUES", std::to_string(values)},
                             {"STEPS", std::to_string(steps)},
                             {"BITS", std::to_string(form.bits)},
                             {"MASK", form.bits == 8 ? "255" : "15"},
                             {"FLIP", form.bits == 8 ? "^ 128u" : ""},
                             {"OFFSET", form.bits == 8 ? "8388736.0f" : "8388616.0f"},
                             {"GROUP", std::to_string(grouped ? form.group : r.depth)},
                             {"GROUPED", grouped ? "1" : "0"},
                             {"SCALED", scaled ? "1" : "0"},
                             {"RELU", form.activation == "relu" ? "1" : "0"},
                             {"GELU", form.activation == "gelu_tanh" ? "1" : "0"},
                             {"ONE", form.one_scale ? "1" : "0"},
                             {"BIAS", r.bias ? "1" : "0"},
                             {"RESIDUAL", r.residual ? "1" : "0"}});
}

void choose_row_product(RowProductForm* form) {
  constexpr int64_t kWarpsWanted = 132 * 16;  // of an H200: a quarter of what it can hold, each with several loads in flight
  const int64_t lanes = 16 / static_cast<int64_t>(dtype_size(form->dtype)), steps = (form->depth / lanes + 31) / 32;
  form->warps = 4;
  form->columns_a_group = 1;
  form->warps_a_column = 1;
  while (form->warps_a_column < form->warps && form->columns * form->warps_a_column < kWarpsWanted && steps / form->warps_a_column >= 4)
    form->warps_a_column *= 2;
  if (!form->gate && form->columns >= 4 * kWarpsWanted) form->columns_a_group = 2;
}

std::string row_product_text(const RowProductForm& form) {
  const int64_t lanes = 16 / static_cast<int64_t>(dtype_size(form.dtype));
  const int64_t steps = std::min<int64_t>(form.gate || form.columns_a_group > 1 ? 4 : 8, std::max<int64_t>(1, form.depth / lanes / 32 / form.warps_a_column));
  return fill_text(kBody, {{"T", element_type(form.dtype)},
                           {"TNAME", element_name(form.dtype)},
                           {"THREADS", std::to_string(form.warps * 32)},
                           {"WARPS", std::to_string(form.warps)},
                           {"SHARE", std::to_string(form.warps_a_column)},
                           {"COLUMNS", std::to_string(form.columns_a_group)},
                           {"WEIGHTS", form.gate ? "2" : "1"},
                           {"ROWS", std::to_string(form.rows)},
                           {"DEPTH", std::to_string(form.depth)},
                           {"N", std::to_string(form.columns)},
                           {"LANES", std::to_string(lanes)},
                           {"STEPS", std::to_string(steps)},
                           {"BIAS", form.bias ? "1" : "0"},
                           {"RESIDUAL", form.residual ? "1" : "0"}});
}

}  // namespace pteron::cuda
