// Memory of CUDA devices for the programs around delegates (include/pteron/device.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "backends/cuda/runtime/device.h"
#include "pteron/device.h"

namespace pteron::cuda {

/// Copies are over when they return; those of sessions are in order with their delegates' work (queue.h). Threads: as DeviceAllocator.
class Allocator final : public DeviceAllocator {
 public:
  /// Opens a device by its number, or gives the open one. Errors: kUnavailable, kOutOfMemory.
  using Open = std::function<Result<std::shared_ptr<Device>>(int)>;
  explicit Allocator(Open open) : open_(std::move(open)) {}

  DeviceType type() const override { return DeviceType::kCuda; }
  Result<void*> allocate(int8_t index, size_t bytes, size_t alignment_bytes) override;
  void deallocate(int8_t index, void* data) override;
  Status copy_from_host(int8_t index, void* to, const void* from, size_t bytes) override;
  Status copy_to_host(int8_t index, void* to, const void* from, size_t bytes) override;
  Status copy_on_device(int8_t index, void* to, const void* from, size_t bytes) override;
  Status fill_zero(int8_t index, void* data, size_t bytes) override;
  std::unique_ptr<DeviceAllocator> make_session() override;
  std::optional<pteron::Device> owner_of(int8_t index, const void* data) override;

 private:
  template <typename Work>
  Status on_stream(int8_t index, size_t bytes, const Work& work) const;
  /// -1, the current device, is the first.
  Result<std::shared_ptr<Device>> device(int8_t index) const { return open_(index < 0 ? 0 : index); }

  Open open_;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;  // by the address that was given
};

}  // namespace pteron::cuda
