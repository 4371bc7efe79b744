// Allocation behind Buffer.
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/checked_math.h"

namespace pteron {

namespace {
constexpr uint64_t kLargest = uint64_t{1} << 47;  // the address space of a process
constexpr uint64_t kLargePage = 2 << 20;

/// Asks for large pages where they fit: a tenth of the time to touch memory first, and fewer misses of the address cache later.
void prefer_large_pages(void* data, uint64_t size_bytes) {
  if (size_bytes < 2 * kLargePage) return;
  const uint64_t address = reinterpret_cast<uintptr_t>(data), begin = (address + kLargePage - 1) / kLargePage * kLargePage;
  const uint64_t end = (address + size_bytes) / kLargePage * kLargePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a wish: errors do not matter
}
}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, false);
  return *this;
}

Buffer::~Buffer() { release(); }

void Buffer::release() {
  if (mapped_) {
    ::munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

Result<Buffer> Buffer::create(uint64_t size_bytes, size_t alignment) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  uint64_t padded = 0;
  if (!checked_align(size_bytes, alignment, &padded) || padded > kLargest) return Status::out_of_memory();
  buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  if (buffer.data_ == nullptr) return Status::out_of_memory();
  buffer.size_ = size_bytes;
  prefer_large_pages(buffer.data_, padded);
  return buffer;
}

Result<Buffer> Buffer::create_zeroed(uint64_t size_bytes, size_t alignment) {
  constexpr uint64_t kMapFrom = 256 * 1024;
  constexpr size_t kSmallestPage = 4096;
  if (size_bytes >= kMapFrom && size_bytes <= kLargest && alignment <= kSmallestPage) {
    void* pages = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return Status::out_of_memory();
    Buffer buffer;
    buffer.data_ = static_cast<std::byte*>(pages);
    buffer.size_ = size_bytes;
    buffer.mapped_ = true;
    prefer_large_pages(pages, size_bytes);
    return buffer;
  }
  PTERON_ASSIGN(Buffer buffer, create(size_bytes, alignment));
  if (!buffer.empty()) std::memset(buffer.data(), 0, buffer.size());
  return buffer;
}

}  // namespace pteron
