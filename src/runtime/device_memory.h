// Memory on devices, and the instructions that copy between it and the host. Internal to the runtime room.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/buffer.h"
#include "pteron/device.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Memory from a DeviceAllocator, which outlives it.
/// Owns: the memory.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  /// Bytes are undefined. Errors: the allocator's.
  static Result<DeviceBlock> create(DeviceAllocator& allocator, int8_t index, size_t bytes, size_t alignment_bytes);
  /// The same with zeros.
  static Result<DeviceBlock> create_zeroed(DeviceAllocator& allocator, int8_t index, size_t bytes, size_t alignment_bytes);
  DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBlock();

  /// Never to be read or written here.
  std::span<std::byte> span() const { return {static_cast<std::byte*>(data_), size_}; }
  size_t size() const { return size_; }
  DeviceAllocator* allocator() const { return allocator_; }
  int8_t index() const { return index_; }

 private:
  void swap(DeviceBlock& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(index_, other.index_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  DeviceAllocator* allocator_ = nullptr;
  int8_t index_ = 0;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// Planned memory: on the host, or on a device.
struct Arena {
  std::span<std::byte> bytes;
  DeviceAllocator* allocator = nullptr;  ///< null: the host's
  int8_t index = 0;
  Device device() const { return allocator == nullptr ? Device() : Device{allocator->type(), index}; }
};

/// "cuda:1", "cuda" for the current one, "cpu".
std::string device_text(Device device);

/// True for the kernels that copy a tensor between memories: et_copy::_h2d_copy.out, et_copy::_d2h_copy.out, pteron::device_copy.out. Their arguments are
/// the tensor and the out, which may stand there again.
bool is_device_copy(std::string_view kernel);
/// True for kernels that take tensors of any memory: they read sizes, or make views.
bool touches_no_bytes(std::string_view kernel);

/// A copy instruction, with what it needs found beforehand.
struct DeviceCopy {
  DeviceAllocator* allocator = nullptr;  ///< null: both are the host's
  Buffer staging;                        ///< for host tensors that are not laid out like the device's; made at the first one
};

/// Gives `to` the sizes of `from` and copies it.
/// Errors: kInvalidInput (sizes that do not fit), kOutOfMemory, the allocator's.
Status run_device_copy(DeviceCopy& copy, const Tensor& from, Tensor& to);

}  // namespace pteron::runtime
