// Memory of the host that says it is a device's, for tests of this room. Sanitizers watch it.
#pragma once

#include <cstdlib>
#include <cstring>

#include "pteron/device.h"

namespace pteron::runtime::testing {

/// Counts what it does.
class HostDevice final : public DeviceAllocator {
 public:
  int live = 0, copies = 0, zeroed = 0;
  bool fail = false;
  DeviceType type() const override { return DeviceType::kCuda; }
  Result<void*> allocate(int8_t, size_t bytes, size_t alignment) override {
    if (bytes > size_t{1} << 20) return Status(Code::kOutOfMemory, "the device is small");
    ++live;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void deallocate(int8_t, void* data) override {
    --live;
    std::free(data);
  }
  Status copy_from_host(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes); }
  Status copy_to_host(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes); }
  Status copy_on_device(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes); }
  Status fill_zero(int8_t, void* data, size_t bytes) override {
    ++zeroed;
    std::memset(data, 0, bytes);
    return fail ? Status(Code::kUnavailable, "the device is gone") : ok_status();
  }

 private:
  Status copy(void* to, const void* from, size_t bytes) {
    ++copies;
    std::memmove(to, from, bytes);
    return ok_status();
  }
};

}  // namespace pteron::runtime::testing
