// Allocation behind Buffer.
#include "base/buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/checked_math.h"

namespace pteron {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  std::free(data_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Buffer::~Buffer() { std::free(data_); }

Result<Buffer> Buffer::create(uint64_t size_bytes, size_t alignment) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  uint64_t padded = 0;
  if (!checked_align(size_bytes, alignment, &padded) || padded > (uint64_t{1} << 47)) return Status::out_of_memory();
  buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  if (buffer.data_ == nullptr) return Status::out_of_memory();
  buffer.size_ = size_bytes;
  return buffer;
}

Result<Buffer> Buffer::create_zeroed(uint64_t size_bytes, size_t alignment) {
  PTERON_ASSIGN(Buffer buffer, create(size_bytes, alignment));
  if (!buffer.empty()) std::memset(buffer.data(), 0, buffer.size());
  return buffer;
}

}  // namespace pteron
