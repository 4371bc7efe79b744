// Staging memory grows to twice its size, and never beyond what the argument may need.
#include "backends/cuda/runtime/staging.h"

#include <algorithm>

namespace pteron::cuda {
namespace {

uint64_t grown(uint64_t old, uint64_t bytes, uint64_t bound) { return std::max(bytes, std::min(bound, 2 * old)); }

}  // namespace

Result<Address> Staging::on_device(const Device& device, uint64_t bytes, uint64_t bound) {
  if (device_.size() < bytes) {
    ++growths_;
    PTERON_ASSIGN(device_, device.allocate(grown(device_.size(), bytes, bound)));
  }
  return device_.address();
}

Result<std::byte*> Staging::on_host(const Device& device, uint64_t bytes, uint64_t bound) {
  if (host_.size() < bytes) {
    ++growths_;
    PTERON_ASSIGN(host_, device.allocate_pinned(grown(host_.size(), bytes, bound)));
  }
  return host_.data();
}

}  // namespace pteron::cuda
