// Where a payload that is a program keeps its bytes when that is not the host's memory. Implemented by the runtime halves of backends for devices;
// called by build_method.cpp. Addresses of such a program's tensors are the device's: nothing in this room looks behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pteron/status.h"

namespace pteron::runtime {

/// Memory of one method of such a program. Owns: everything that it gives, as long as it lives; it outlives the method.
/// Threads: one at a time.
class PayloadMemory {
 public:
  virtual ~PayloadMemory() = default;
  /// `bytes` > 0 bytes of zeros. what: for messages. Errors: kOutOfMemory, kUnavailable.
  virtual Result<void*> allocate(uint64_t bytes, std::string_view what) = 0;
  /// Bytes that are never written, `bytes` not empty; equal ones may be there once for several methods. Errors: as above.
  virtual Result<const void*> constant(std::span<const std::byte> bytes) = 0;
  /// Writes initial bytes of what allocate() gave. Errors: kUnavailable.
  virtual Status initialise(void* to, std::span<const std::byte> bytes) = 0;
};

}  // namespace pteron::runtime
