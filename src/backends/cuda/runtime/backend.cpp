// Devices by number, opened when the first payload needs them and closed with the last; payloads by version.
#include "backends/cuda/runtime/backend.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/allocator.h"
#include "backends/cuda/runtime/delegate.h"
#include "backends/cuda/runtime/library_call.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

/// The device that the payload was compiled for ("cuda:1"), else the first.
Result<int> wanted_device(std::span<const DelegateSetting> settings) {
  const auto found = std::ranges::find(settings, "target_device", &DelegateSetting::key);
  if (found == settings.end()) return 0;
  const std::string_view text(reinterpret_cast<const char*>(found->value.data()), found->value.size());
  constexpr std::string_view kPrefix = "cuda:";
  if (text == "cuda") return 0;
  int index = 0;
  const char* end = text.data() + text.size();
  if (text.starts_with(kPrefix)) {
    const auto parsed = std::from_chars(text.data() + kPrefix.size(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index >= 0) return index;
  }
  return Status(Code::kInvalidFile, str_cat("the payload's device is \"", text, "\", expected \"cuda:\" and a number"));
}

Status check_version(std::span<const DelegateSetting> settings) {
  const auto version = std::ranges::find(settings, kVersionKey, &DelegateSetting::key);
  if (version == settings.end() || version->value.size() != 1) return Status(Code::kInvalidFile, "the payload does not say its version");
  if (version->value[0] == std::byte{kVersion}) return ok_status();
  return Status(Code::kIncompatible, str_cat("the payload has version ", static_cast<int>(version->value[0]), ", this engine runs version ", int{kVersion},
                                             "; compile the model anew"));
}

class CudaBackend final : public DelegateBackend {
 public:
  CudaBackend() : allocator_([this](int index) { return open_device(index); }) {}
  std::string_view id() const override { return kBackendId; }
  DeviceAllocator* device_allocator() const override { return &allocator_; }

  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    PTERON_TRY(check_version(request.settings));
    PTERON_ASSIGN(const int index, wanted_device(request.settings));
    PTERON_ASSIGN(std::shared_ptr<Device> device, open_device(index));
    return load_delegate(request, std::move(device));
  }

 private:
  Result<std::shared_ptr<Device>> open_device(int index) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::weak_ptr<Device>& known = devices_[index];
    if (std::shared_ptr<Device> device = known.lock()) return device;
    PTERON_ASSIGN(std::shared_ptr<const Driver> driver, Driver::open());
    PTERON_ASSIGN(std::shared_ptr<Device> device, Device::open(std::move(driver), index));
    known = device;
    return device;
  }

  mutable std::mutex mutex_;
  mutable std::map<int, std::weak_ptr<Device>> devices_;
  mutable Allocator allocator_;
};

/// version_symbol: a function without arguments that gives 10000 * major + 100 * minor + patch.
LibraryFacts probe_library(std::string name, const LibraryName& library, const char* version_symbol) {
  LibraryFacts facts;
  facts.name = std::move(name);
  Result<void*> opened = open_cuda_library(library);
  Result<void*> symbol = opened.ok() ? library_symbol(*opened, version_symbol) : std::move(opened);
  if (!symbol.ok()) {
    facts.why_not = symbol.status().message();
    return facts;
  }
  facts.path = file_of(*symbol);
  const size_t version = reinterpret_cast<size_t (*)()>(*symbol)();
  facts.version = str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  return facts;
}

}  // namespace

const DelegateBackend& backend() {
  static const CudaBackend instance;
  return instance;
}

Result<std::vector<DeviceFacts>> probe_devices(int* driver_version) {
  PTERON_ASSIGN(const std::shared_ptr<const Driver> driver, Driver::open());
  const Driver& d = *driver;
  int count = 0;
  PTERON_TRY(d.check(d.driver_version(driver_version), "asking for the driver's version"));
  PTERON_TRY(d.check(d.device_count(&count), "counting CUDA devices"));
  std::vector<DeviceFacts> found;
  for (int i = 0; i < count; ++i) {
    DeviceFacts facts;
    char name[256] = {};
    int handle = 0, major = 0, minor = 0;
    size_t bytes = 0;
    PTERON_TRY(d.check(d.device_get(&handle, i), "finding a device"));
    PTERON_TRY(d.check(d.device_name(name, sizeof name - 1, handle), "reading a device's name"));
    PTERON_TRY(d.check(d.device_attribute(&major, kAttributeMajor, handle), "reading a device's facts"));
    PTERON_TRY(d.check(d.device_attribute(&minor, kAttributeMinor, handle), "reading a device's facts"));
    PTERON_TRY(d.check(d.device_attribute(&facts.multiprocessors, kAttributeMultiprocessors, handle), "reading a device's facts"));
    PTERON_TRY(d.check(d.device_memory(&bytes, handle), "reading a device's memory"));
    facts.name = name;
    facts.sm = major * 10 + minor;
    facts.memory_bytes = bytes;
    found.push_back(std::move(facts));
  }
  if (found.empty()) return Status(Code::kUnavailable, "there is no CUDA device");
  return found;
}

std::vector<LibraryFacts> probe_libraries() {
  std::vector<LibraryFacts> found(3);
  found[0].name = "driver";
  int version = 0;
  Result<std::shared_ptr<const Driver>> driver = Driver::open();
  Status status = driver.ok() ? (*driver)->check((*driver)->driver_version(&version), "asking for the driver's version") : driver.status();
  if (driver.ok()) found[0].path = file_of(reinterpret_cast<const void*>((*driver)->init));
  if (status.ok()) {
    found[0].version = str_cat(version / 1000, ".", version % 1000 / 10);
  } else {
    found[0].why_not = status.message();
  }
  found[1] = probe_library("cuBLASLt", kBlasLibrary, "cublasLtGetVersion");
  found[2] = probe_library("cuDNN", kDnnLibrary, "cudnnGetVersion");
  return found;
}

}  // namespace pteron::cuda
