// The order in which the work of one session runs on a device, and the session's allocator (include/pteron/device.h), which has one such order a device.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "backends/cuda/runtime/device.h"
#include "pteron/device.h"

namespace pteron::cuda {

/// A stream of the session's own, or the caller's. Shared by the session's delegates and its copies.
/// Threads: one at a time, as the methods of a session.
class Queue {
 public:
  /// Errors: kUnavailable, kOutOfMemory. Requires: the context is current.
  static Result<std::shared_ptr<Queue>> create(std::shared_ptr<Device> device);
  explicit Queue(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const std::shared_ptr<Device>& device() const { return device_; }
  /// Where work goes from now on: the caller's stream, as long as there is one.
  Stream stream() const { return callers_ != nullptr ? callers_ : own_; }
  bool is_callers() const { return callers_ != nullptr; }
  void use(Stream callers) {
    callers_ = callers;
    was_callers_ = was_callers_ || callers != nullptr;
  }
  /// True while the caller records what is put on its stream: nothing may be waited for, read back or allocated. Errors: kUnavailable (a stream that is none).
  Result<bool> is_captured() const;
  /// Waits for the work on stream(). Errors: what went wrong in it.
  Status wait() const { return device_->driver().check(device_->driver().stream_wait(stream()), "the work on the device"); }
  /// Waits for everything that this session ever put on the device; its callers' streams may be gone.
  void finish() const;

 private:
  std::shared_ptr<Device> device_;
  Stream own_ = nullptr, callers_ = nullptr;
  bool was_callers_ = false;
};

/// Memory of all devices, copies in the order of one session. Outlived by the allocator that made it.
class SessionAllocator final : public DeviceAllocator {
 public:
  using Open = std::function<Result<std::shared_ptr<Device>>(int)>;
  SessionAllocator(DeviceAllocator& parent, Open open) : parent_(parent), open_(std::move(open)) {}

  /// The session's queue on a device, made at the first use. Errors: as Queue::create.
  Result<std::shared_ptr<Queue>> queue(int index);

  DeviceType type() const override { return DeviceType::kCuda; }
  Result<void*> allocate(int8_t index, size_t bytes, size_t alignment_bytes) override { return parent_.allocate(index, bytes, alignment_bytes); }
  void deallocate(int8_t index, void* data) override { parent_.deallocate(index, data); }
  Status copy_from_host(int8_t index, void* to, const void* from, size_t bytes) override;
  Status copy_to_host(int8_t index, void* to, const void* from, size_t bytes) override;
  Status copy_on_device(int8_t index, void* to, const void* from, size_t bytes) override;
  Status fill_zero(int8_t index, void* data, size_t bytes) override;
  std::optional<pteron::Device> owner_of(int8_t index, const void* data) override { return parent_.owner_of(index, data); }
  Status set_stream(int8_t index, void* stream) override;

 private:
  /// with_host: the host's bytes are read or written, and that is over when it returns.
  template <typename Work>
  Status put(int8_t index, size_t bytes, bool with_host, const Work& work);

  DeviceAllocator& parent_;
  Open open_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Queue>> queues_;
};

}  // namespace pteron::cuda
