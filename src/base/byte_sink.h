// ByteSink: where writers of files put their bytes, front to back. Implemented by FileWriter (base/file_writer.h) and MemorySink here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "pteron/status.h"

namespace pteron {

/// Receives the bytes of one file in order.
/// Threads: one thread at a time.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// Called once before the first write when the whole size is known; a sink may allocate or check space.
  /// Errors: kOutOfMemory, kIo.
  virtual Status reserve(uint64_t total_bytes) = 0;
  /// Appends bytes.
  /// Errors: kIo, kOutOfMemory.
  virtual Status write(std::span<const std::byte> bytes) = 0;
};

/// Collects the bytes in memory.
class MemorySink final : public ByteSink {
 public:
  Status reserve(uint64_t total_bytes) override;
  Status write(std::span<const std::byte> bytes) override;
  std::span<const std::byte> bytes() const { return {buffer_.data(), used_}; }

 private:
  Buffer buffer_;
  size_t used_ = 0;
};

}  // namespace pteron
