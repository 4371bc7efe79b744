// Memory of devices other than the host: what the runtime asks of a backend that computes there. Implemented by backends, or by the caller
// (LoadOptions::device_allocators); docs/devices.md says where programs have such memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron {

/// Memory of the devices of one type. Addresses that it gives are never read or written by the runtime itself.
/// index: of a device; -1 means the current one, as the file says it.
/// Threads: all members may be called from several threads at once. Copies are in order with the work that delegates of the same backend have given to the
/// device (DelegateLoad::may_queue).
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  virtual DeviceType type() const = 0;
  /// Memory at a multiple of `alignment_bytes`, a power of two up to 4096. Its bytes are undefined.
  /// Errors: kOutOfMemory, kUnavailable (no such device), kInvalidInput (an alignment that the device does not have).
  virtual Result<void*> allocate(int8_t index, size_t bytes, size_t alignment_bytes) = 0;
  virtual void deallocate(int8_t index, void* data) = 0;
  /// The host's bytes may change when it returns.
  virtual Status copy_from_host(int8_t index, void* to, const void* from, size_t bytes) = 0;
  /// The bytes are there when it returns.
  virtual Status copy_to_host(int8_t index, void* to, const void* from, size_t bytes) = 0;
  virtual Status copy_on_device(int8_t index, void* to, const void* from, size_t bytes) = 0;
  virtual Status fill_zero(int8_t index, void* data, size_t bytes) = 0;
};

}  // namespace pteron
