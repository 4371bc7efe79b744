// Memory of CUDA devices through the engine library, for programs whose engines take tensors of the device (docs/devices.md).
#pragma once

#include "backends/tensorrt/runtime/engine_library.h"
#include "pteron/device.h"

namespace pteron::tensorrt {

/// Every call is over when it returns. The device that was current stays so.
/// Owns: nothing; `library` outlives it.
class LibraryAllocator final : public DeviceAllocator {
 public:
  explicit LibraryAllocator(const EngineLibrary& library) : library_(library) {}
  DeviceType type() const override { return DeviceType::kCuda; }
  Result<void*> allocate(int8_t index, size_t bytes, size_t alignment_bytes) override;
  void deallocate(int8_t index, void* data) override;
  Status copy_from_host(int8_t index, void* to, const void* from, size_t bytes) override { return copy(index, to, from, bytes); }
  Status copy_to_host(int8_t index, void* to, const void* from, size_t bytes) override { return copy(index, to, from, bytes); }
  Status copy_on_device(int8_t index, void* to, const void* from, size_t bytes) override { return copy(index, to, from, bytes); }
  Status fill_zero(int8_t index, void* data, size_t bytes) override;

 private:
  Result<int> device_of(int8_t index) const { return index < 0 ? library_.device() : Result<int>(index); }
  Status copy(int8_t index, void* to, const void* from, size_t bytes) const;
  const EngineLibrary& library_;
};

}  // namespace pteron::tensorrt
