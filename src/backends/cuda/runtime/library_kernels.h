// The kernels that call cuBLASLt, cuDNN or hand-written device code, and what they share. Rows are added in delegate.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backends/cuda/runtime/blas.h"
#include "backends/cuda/runtime/dnn.h"
#include "backends/cuda/runtime/session.h"
#include "runtime/kernel.h"

namespace pteron::cuda {

/// pteron_cuda::product.out, row_product.out, narrow_rows.out.
std::span<const runtime::Kernel> product_kernels();
/// pteron_cuda::integer_sums.out.
std::span<const runtime::Kernel> integer_kernels();
/// pteron_cuda::convolution.out.
std::span<const runtime::Kernel> convolution_kernels();
/// pteron_cuda::attention.out.
std::span<const runtime::Kernel> attention_kernels();

/// Something that computes descriptions of one kind on a device: the library, or what a stand-in for the driver brings in its place (tests). One a device.
template <typename Library, typename Description>
class DeviceLibrary final : public runtime::KernelState {
 public:
  /// A function of the stand-in: 0, kRefused, or a failure.
  using Emulated = int (*)(const void* description, void* stream);
  static constexpr int kRefused = -1;

  /// The device's; made at the first use. Errors: those of Library::create().
  static Result<std::shared_ptr<const runtime::KernelState>> of(Session& session, const char* key, const char* emulated) {
    return session.device().states().find_or_make(key, [&]() -> Result<std::shared_ptr<const runtime::KernelState>> {
      auto made = std::make_shared<DeviceLibrary>();
      made->emulated_ = reinterpret_cast<Emulated>(session.driver().optional_symbol(emulated));
      if (made->emulated_ == nullptr) {
        PTERON_ASSIGN(made->library_, Library::create(&session.device().choices()));
      }
      return std::shared_ptr<const runtime::KernelState>(std::move(made));
    });
  }

  Status run(const Description& description, const LibraryCall& call) const {
    if (emulated_ == nullptr) return library_->run(description, call);
    const int result = emulated_(&description, call.stream);
    if (result == 0) return ok_status();
    return result == kRefused ? Status(Code::kUnsupported, "the stand-in of a library refuses") : Status(Code::kInternal, "the stand-in of a library fails");
  }

 private:
  Emulated emulated_ = nullptr;
  std::unique_ptr<Library> library_;
};

/// Times with two events of the session's driver. Owns them.
class EventTimer final : public Timer {
 public:
  explicit EventTimer(Session& session) : session_(session) {}
  ~EventTimer() override;
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;
  Result<float> measure(const std::function<Status()>& work) override;

 private:
  Session& session_;
  Event begin_ = nullptr, end_ = nullptr;
};

/// The call that a kernel makes of a library; `timer` is used if nothing is recorded.
LibraryCall library_call(const runtime::KernelContext& context, Timer& timer);

}  // namespace pteron::cuda
