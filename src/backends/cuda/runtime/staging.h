// Memory that stands in, on the device and page-locked on the host, for tensors of a call that the payload cannot use where they lie.
#pragma once

#include "backends/cuda/runtime/device.h"

namespace pteron::cuda {

/// One argument's. Grows when it is too small; addresses stay while it does not. Requires: the context is current; no work on it is under way when it grows.
class Staging {
 public:
  /// At least `bytes` on the device; `bound`: what it may ever need. Errors: kOutOfMemory, kUnavailable.
  Result<Address> on_device(const Device& device, uint64_t bytes, uint64_t bound);
  /// The same of the host. Units: bytes.
  Result<std::byte*> on_host(const Device& device, uint64_t bytes, uint64_t bound);
  uint64_t device_bytes() const { return device_.size(); }
  uint64_t size_bytes() const { return device_.size() + host_.size(); }
  /// How often an address changed.
  uint64_t growths() const { return growths_; }

 private:
  Block device_;
  PinnedBlock host_;
  uint64_t growths_ = 0;
};

}  // namespace pteron::cuda
