// The CPU engine's delegate: payloads are programs that run on the portable kernels and the engine's own.
#include "backends/cpu/runtime/backend.h"

#include <algorithm>

#include "backends/cpu/payload.h"
#include "backends/cpu/runtime/kernels.h"
#include "base/str_cat.h"
#include "ops/kernels.h"
#include "runtime/program_delegate.h"

namespace pteron::cpu {
namespace {

runtime::KernelTable make_table() {
  runtime::KernelTable table = ops::portable_kernels();
  table.add(linear_kernels());
  table.add(conv_kernels());
  table.add(attention_kernels());
  table.add(product16_kernels());
  table.add(image_kernels());
  table.add(norm_kernels());
  table.add(pointwise_kernels());
  table.add(quantized_conv_kernels());
  table.add(quantized_linear_kernels());
  table.add(recurrent_kernels());
  return table;
}

class CpuBackend final : public DelegateBackend {
 public:
  CpuBackend() : kernels_(make_table()) {}
  std::string_view id() const override { return kBackendId; }

  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    const auto version = std::ranges::find(request.settings, kVersionKey, &DelegateSetting::key);
    if (version == request.settings.end() || version->value.size() != 1) return Status(Code::kInvalidFile, "the payload does not say its version");
    if (version->value[0] != std::byte{kVersion}) {
      return Status(Code::kIncompatible, str_cat("the payload has version ", static_cast<int>(version->value[0]), ", this engine runs version ", int{kVersion},
                                                 "; compile the model anew"));
    }
    return runtime::load_program_delegate(request, kernels_, states_);
  }

 private:
  runtime::KernelTable kernels_;
  mutable runtime::StateCache states_;
};

}  // namespace

const DelegateBackend& backend() {
  static const CpuBackend instance;
  return instance;
}

}  // namespace pteron::cpu
