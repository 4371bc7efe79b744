// Text of the depthwise kernel. Threads side by side have neighbouring pairs of channels; each computes some neighbouring results of a row, whose windows
// overlap, so that an element is read once for several of them. The block's filters lie in shared memory as floats.
#include "backends/cuda/aot/depthwise_text.h"

#include <algorithm>

#include "backends/cuda/aot/element_text.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kBody = R"(
PTERON_KERNEL __launch_bounds__(@THREADS@) @NAME@(const unsigned short* x, const unsigned short* w, const unsigned short* bias, const unsigned short* residual, unsigned short* y,
    long long rows, long long columns, long long result_rows, long long result_columns, long long strips) {
  extern __shared__ uint4 @NAME@_shared[];
  float* const filters = (float*)@NAME@_shared;
  PTERON_NEXT_MAY_START();
  const int tid = threadIdx.x, pair = tid % @PAIRS@, channel0 = blockIdx.y * (2 * @PAIRS@), channel = channel0 + 2 * pair;
  for (int i = tid; i < 2 * @PAIRS@ * (@R@ * @S@); i += @THREADS@) {
    filters[i % (@R@ * @S@) * (2 * @PAIRS@) + i / (@R@ * @S@)] = pteron_widen_@TNAME@(w, (long long)channel0 * (@R@ * @S@) + i);
  }
  float start[2] = {0.0f, 0.0f};
  if (@BIAS@) {
    start[0] = pteron_widen_@TNAME@(bias, channel);
    start[1] = pteron_widen_@TNAME@(bias, channel + 1);
  }
  PTERON_WAIT_FOR_BEFORE();
  __syncthreads();
  const long long strip = (long long)blockIdx.x * @STRIPS@ + tid / @PAIRS@;
  if (strip >= strips) return;
  const int per_row = ((int)result_columns + @STRIP@ - 1) / @STRIP@;
  const int q0 = (int)(strip % per_row) * @STRIP@;
  const long long row = strip / per_row, image = row / result_rows;
  const int top = (int)(row % result_rows) * @STRIDEY@ - @PADY@, left = q0 * @STRIDEX@ - @PADX@;
  const unsigned short* const from = x + image * rows * columns * @C@ + channel;
  float sum[@STRIP@][2];
#pragma unroll
  for (int i = 0; i < @STRIP@; ++i) {
    sum[i][0] = start[0];
    sum[i][1] = start[1];
  }
#pragma unroll
  for (int r = 0; r < @R@; ++r) {
    const int p = top + r;
    const bool row_inside = p >= 0 && p < (int)rows;
    const unsigned short* const line = from + (long long)(row_inside ? p : 0) * columns * @C@;
    unsigned two[(@STRIP@ - 1) * @STRIDEX@ + @S@];
#pragma unroll
    for (int i = 0; i < (@STRIP@ - 1) * @STRIDEX@ + @S@; ++i) {
      const int q = left + i;
      two[i] = row_inside && q >= 0 && q < (int)columns ? *(const unsigned*)(line + q * @C@) : 0u;
    }
#pragma unroll
    for (int i = 0; i < (@STRIP@ - 1) * @STRIDEX@ + @S@; ++i) {
      const unsigned short parts[2] = {(unsigned short)two[i], (unsigned short)(two[i] >> 16)};
      const float low = pteron_widen_@TNAME@(parts, 0), high = pteron_widen_@TNAME@(parts, 1);
#pragma unroll
      for (int s = 0; s < @S@; ++s) {
        const int at = i - s;
        if (at < 0 || at % @STRIDEX@ != 0 || at / @STRIDEX@ >= @STRIP@) continue;
        const float2 f = *(const float2*)(filters + (r * @S@ + s) * (2 * @PAIRS@) + 2 * pair);
        sum[at / @STRIDEX@][0] += low * f.x;
        sum[at / @STRIDEX@][1] += high * f.y;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < @STRIP@; ++i) {
    if (q0 + i >= (int)result_columns) continue;
    const long long to = (row * result_columns + q0 + i) * @C@ + channel;
    if (@RESIDUAL@) {
      sum[i][0] += pteron_widen_@TNAME@(residual, to);
      sum[i][1] += pteron_widen_@TNAME@(residual, to + 1);
    }
    if (@RELU@) {
      sum[i][0] = sum[i][0] < 0.0f ? 0.0f : sum[i][0];
      sum[i][1] = sum[i][1] < 0.0f ? 0.0f : sum[i][1];
    }
    *(unsigned*)(y + to) = pteron_pack2_@TNAME@(sum[i][0], sum[i][1]);
  }
}
)";

}  // namespace

void choose_depthwise(DepthwiseForm* form, int64_t result_rows, int64_t result_columns) {
  constexpr int64_t kMostPairs = 64, kThreads = 256, kThreadsWanted = 132 * 64;
  const int64_t all = form->channels / 2;
  for (form->pairs = std::min(all, kMostPairs); all % form->pairs != 0;) --form->pairs;
  form->strips = std::max<int64_t>(1, kThreads / form->pairs);
  form->strip = 8;
  while (form->strip > 2 && result_rows * ((result_columns + form->strip - 1) / form->strip) * all < kThreadsWanted) form->strip /= 2;
}

std::string depthwise_text(const DepthwiseForm& form) {
  return fill_text(kBody, {{"TNAME", element_name(form.dtype)},
                           {"THREADS", std::to_string(form.threads())},
                           {"PAIRS", std::to_string(form.pairs)},
                           {"STRIPS", std::to_string(form.strips)},
                           {"STRIP", std::to_string(form.strip)},
                           {"C", std::to_string(form.channels)},
                           {"R", std::to_string(form.height)},
                           {"S", std::to_string(form.width)},
                           {"STRIDEY", std::to_string(form.stride_y)},
                           {"STRIDEX", std::to_string(form.stride_x)},
                           {"PADY", std::to_string(form.padding_y)},
                           {"PADX", std::to_string(form.padding_x)},
                           {"BIAS", form.bias ? "1" : "0"},
                           {"RESIDUAL", form.residual ? "1" : "0"},
                           {"RELU", form.relu ? "1" : "0"}});
}

}  // namespace pteron::cuda
