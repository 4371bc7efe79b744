// Text of the kernel behind convolutions.
#include "backends/cuda/aot/convolution_text.h"

#include "backends/cuda/aot/element_text.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kTail = R"(
PTERON_KERNEL @NAME@(@T@* y, const @T@* bias, const @T@* residual, long long count, long long channels) {
  PTERON_BEGIN();
  for (int k = 0; k < 4; ++k) {
    const long long i = (long long)blockIdx.x * 1024 + k * 256 + threadIdx.x;
    if (i >= count) return;
    float v = pteron_widen_@TNAME@(y, i);
    if (@RESIDUAL@) v += pteron_widen_@TNAME@(residual, i);
    if (@BIAS@) v += pteron_widen_@TNAME@(bias, i % channels);
    if (@RELU@) v = v < 0.0f ? 0.0f : v;
    pteron_narrow_@TNAME@(y, i, v);
  }
}
)";

}  // namespace

std::string tail_text(const TailForm& form) {
  return fill_text(kTail, {{"T", element_type(form.dtype)},
                           {"TNAME", element_name(form.dtype)},
                           {"BIAS", form.bias ? "1" : "0"},
                           {"RESIDUAL", form.residual ? "1" : "0"},
                           {"RELU", form.relu ? "1" : "0"}});
}

}  // namespace pteron::cuda
