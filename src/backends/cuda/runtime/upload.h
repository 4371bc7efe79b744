// Weights on their way to a device: read by several threads into page-locked memory, from there copied by the device while the next are read.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backends/cuda/runtime/device.h"
#include "pteron/host.h"

namespace pteron::cuda {

/// Page-locked memory of a few chunks, which are used in turn; what bounds the memory of a load. One a device, while something is loaded.
/// Requires: the context is current in all members.
class Uploader {
 public:
  /// Owns: nothing of the device, which outlives it.
  explicit Uploader(const Device& device) : device_(device) {}
  /// Waits for the copies that are under way.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  /// Puts the copy on the device's stream; `from` was read when it returns. Gives a hash of the bytes, which depends on nothing else.
  /// Errors: kOutOfMemory (page-locked memory), kUnavailable.
  /// Threads: one call at a time; it reads with those of `pool`.
  Result<std::string> upload(Address to, std::span<const std::byte> from, ThreadPool& pool);
  /// The hash alone.
  static std::string hash(std::span<const std::byte> bytes, ThreadPool& pool);

  /// What one thread reads at a time. Units: bytes.
  static constexpr size_t kChunk = size_t{4} << 20;
  /// Page-locked memory at most, where no more threads read. Units: bytes.
  static constexpr size_t kMost = size_t{64} << 20;

 private:
  struct Slot {
    PinnedBlock memory;
    Event copied = nullptr;  ///< set when the device has read it
  };
  Result<std::unique_ptr<Slot>> take();
  Status upload_chunk(Address to, std::span<const std::byte> from);

  const Device& device_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Slot>> free_;  ///< those whose copy was put on the stream first in front
  size_t count_ = 0;                        ///< of all slots
};

}  // namespace pteron::cuda
