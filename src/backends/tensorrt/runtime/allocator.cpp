// Allocations and copies on the device that the file names, each on the caller's stream and waited for.
#include "backends/tensorrt/runtime/allocator.h"

#include <algorithm>
#include <vector>

#include "backends/tensorrt/runtime/delegate.h"
#include "base/str_cat.h"

namespace pteron::tensorrt {

namespace {

/// What the library gives without being asked.
constexpr size_t kLibraryAlignment = 256;

}  // namespace

Result<void*> LibraryAllocator::allocate(int8_t index, size_t bytes, size_t alignment_bytes) {
  if (alignment_bytes > kLibraryAlignment) {
    return Status(Code::kInvalidInput, str_cat("memory of a device at multiples of ", alignment_bytes, " bytes: at most ", kLibraryAlignment));
  }
  PTERON_ASSIGN(const int device, device_of(index));
  DeviceScope scope(library_, device);
  PTERON_TRY(scope.status());
  void* const made = library_.allocate(bytes);
  if (made == nullptr) return Status(Code::kOutOfMemory, str_cat("cuda:", device, " has no ", bytes, " bytes"));
  return made;
}

void LibraryAllocator::deallocate(int8_t index, void* data) {
  const auto device = device_of(index);
  if (!device.ok()) return;
  DeviceScope scope(library_, *device);
  library_.free(data);
}

Status LibraryAllocator::copy(int8_t index, void* to, const void* from, size_t bytes) const {
  PTERON_ASSIGN(const int device, device_of(index));
  DeviceScope scope(library_, device);
  PTERON_TRY(scope.status());
  const Stream stream = caller_stream().value_or(library_.own_stream());
  PTERON_TRY(library_.copy(to, from, bytes, stream));
  return library_.wait(stream);
}

Status LibraryAllocator::fill_zero(int8_t index, void* data, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 20;
  const std::vector<std::byte> zeros(std::min(bytes, kPiece));
  for (size_t done = 0; done < bytes; done += kPiece) PTERON_TRY(copy(index, static_cast<std::byte*>(data) + done, zeros.data(), std::min(kPiece, bytes - done)));
  return ok_status();
}

}  // namespace pteron::tensorrt
