// Allocation behind Buffer.
#include "base/buffer.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/checked_math.h"
#include "base/no_memory.h"
#include "base/str_cat.h"

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

/// "1.5 GiB"; bytes below a MiB.
std::string in_units(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < (1 << 20)) return str_cat(bytes, " bytes");
  size_t unit = 0;
  uint64_t tenths = bytes / ((1 << 20) / 10);
  for (; tenths >= 10240 && unit + 1 < std::size(kUnits); ++unit) tenths /= 1024;
  return str_cat(tenths / 10, ".", tenths % 10, " ", kUnits[unit]);
}

/// Physical memory, swap, and the limit on the process' address space if there is one.
std::string what_there_is() {
  std::string text;
  struct sysinfo machine;
  if (::sysinfo(&machine) == 0) {
    str_append(text, "; the machine has ", in_units(uint64_t{machine.totalram} * machine.mem_unit), " of memory");
    if (machine.totalswap > 0) str_append(text, " and ", in_units(uint64_t{machine.totalswap} * machine.mem_unit), " of swap");
  }
  struct rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) str_append(text, "; the process may have ", in_units(limit.rlim_cur));
  return text;
}
}  // namespace

Status no_memory(uint64_t size_bytes) {
  constexpr uint64_t kWorthWords = 1 << 20;
  if (size_bytes < kWorthWords) return Status::out_of_memory();
  return Status(Code::kOutOfMemory, str_cat("out of memory: ", size_bytes, " bytes (", in_units(size_bytes), ") were asked for, the system gave none", what_there_is()));
}

Result<Buffer> buffer_for(std::string_view what, Result<Buffer> made) {
  if (made.ok()) return made;
  return std::move(made).status().with_context(what);
}

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
  if (!checked_align(size_bytes, alignment, &padded) || padded > kLargest) return no_memory(size_bytes);
  buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  if (buffer.data_ == nullptr) return no_memory(size_bytes);
  buffer.size_ = size_bytes;
  prefer_large_pages(buffer.data_, padded);
  return buffer;
}

Result<Buffer> Buffer::create_zeroed(uint64_t size_bytes, size_t alignment) {
  constexpr uint64_t kMapFrom = 256 * 1024;
  constexpr size_t kSmallestPage = 4096;
  if (size_bytes >= kMapFrom && size_bytes <= kLargest && alignment <= kSmallestPage) {
    void* pages = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return no_memory(size_bytes);
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
