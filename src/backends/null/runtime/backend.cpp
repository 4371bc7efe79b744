// Loads payloads and runs them. A backend of another kind keeps what it needs of DelegateLoad and gives back a Delegate of its own.
#include "backends/null/runtime/backend.h"

#include <algorithm>

#include "backends/null/payload.h"
#include "base/str_cat.h"
#include "ops/kernels.h"
#include "runtime/program_delegate.h"

namespace pteron::null {
namespace {

class NullBackend final : public DelegateBackend {
 public:
  std::string_view id() const override { return kBackendId; }

  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    const auto version = std::ranges::find(request.settings, kVersionKey, &DelegateSetting::key);
    if (version == request.settings.end() || version->value.size() != 1) return Status(Code::kInvalidFile, "the payload does not say its version");
    if (version->value[0] != std::byte{kVersion}) {
      return Status(Code::kIncompatible, str_cat("the payload has version ", static_cast<int>(version->value[0]), ", expected ", int{kVersion}));
    }
    return runtime::load_program_delegate(request, ops::portable_kernels(), states_);
  }

 private:
  mutable runtime::StateCache states_;  // mutable: load() is const, the cache has a lock of its own
};

}  // namespace

const DelegateBackend& backend() {
  static const NullBackend instance;
  return instance;
}

}  // namespace pteron::null
