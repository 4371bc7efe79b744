// Buffer: owned, aligned bytes whose size comes from outside. The only way to allocate a size that a file, an input or a shape asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "pteron/status.h"

namespace pteron {

/// Owned, aligned, uninitialised or zeroed bytes. Move-only.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), mapped_(std::exchange(other.mapped_, false)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// `size_bytes` uninitialised bytes at a multiple of `alignment` (a power of two).
  /// Errors: kOutOfMemory.
  static Result<Buffer> create(uint64_t size_bytes, size_t alignment = kAlignment);
  /// The same, filled with zeros. Large ones come as untouched pages of the system: no time is spent until they are used.
  static Result<Buffer> create_zeroed(uint64_t size_bytes, size_t alignment = kAlignment);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<std::byte> span() { return {data_, size_}; }
  std::span<const std::byte> span() const { return {data_, size_}; }

 private:
  void release();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;  ///< data_ is an anonymous mapping of size_ bytes
};

}  // namespace pteron
