// Memory of devices other than the host: what the runtime asks of a backend that computes there. Implemented by backends, or by the caller
// (LoadOptions::device_allocators); docs/devices.md says where programs have such memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron {

/// Memory of the devices of one type. Addresses that it gives are never read or written by the runtime itself.
/// index: of a device; -1 means the current one, as the file says it.
/// Threads: all members may be called from several threads at once. Copies are in order with the work that delegates of the same backend have given to the
/// device (DelegateLoad::may_queue): all of them, or those of one session.
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

  /// An allocator for the methods of one session (Program::load_method): its copies are in order with the work of the delegates that are loaded with it
  /// (DelegateLoad::session), and sessions do not wait for each other. Memory may be given back to it or to this one, which outlives it. Null: all sessions are
  /// in one order.
  virtual std::unique_ptr<DeviceAllocator> make_session() { return nullptr; }
  /// Whose memory an address is, so that the host's is refused where that of device `index` belongs; none where that is not known.
  virtual std::optional<Device> owner_of(int8_t /*index*/, const void* /*data*/) { return std::nullopt; }
  /// Of an allocator from make_session(): its work and that of its delegates goes on the caller's stream from now on; null: on one of its own again
  /// (Method::set_stream). Errors: kUnsupported (a device without streams), kUnavailable.
  virtual Status set_stream(int8_t /*index*/, void* /*stream*/) { return Status(Code::kUnsupported, "its backend has no streams of callers"); }
};

}  // namespace pteron
