// Blocks by address, and copies on the device's stream.
#include "backends/cuda/runtime/allocator.h"

#include <algorithm>

#include "backends/cuda/payload.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

}  // namespace

Result<void*> Allocator::allocate(int8_t index, size_t bytes, size_t alignment_bytes) {
  constexpr size_t kMost = 4096;
  if (alignment_bytes == 0 || (alignment_bytes & (alignment_bytes - 1)) != 0 || alignment_bytes > kMost) {
    return Status(Code::kInvalidInput, str_cat("memory at a multiple of ", alignment_bytes, " bytes is asked for; expected a power of two up to ", kMost));
  }
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  const size_t more = alignment_bytes > kAlignment ? alignment_bytes : 0;
  PTERON_ASSIGN(Block block, owner->allocate(std::max<size_t>(bytes, 1) + more));
  const Address aligned = (block.address() + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  void* const given = reinterpret_cast<void*>(aligned);
  const std::lock_guard<std::mutex> guard(mutex_);
  blocks_.emplace(given, std::move(block));
  return given;
}

void Allocator::deallocate(int8_t /*index*/, void* data) {
  Block block;  // goes when the lock is free again
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  block = std::move(found->second);
  blocks_.erase(found);
}

Status Allocator::copy_from_host(int8_t index, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  PTERON_TRY(owner->driver().check(owner->driver().copy_to_device(address_of(to), from, bytes, owner->stream()), "copying to the device"));
  return owner->wait();  // page-locked memory would still be read
}

Status Allocator::copy_to_host(int8_t index, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  PTERON_TRY(owner->driver().check(owner->driver().copy_to_host(to, address_of(from), bytes, owner->stream()), "copying to the host"));
  return owner->wait();
}

Status Allocator::copy_on_device(int8_t index, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  return owner->driver().check(owner->driver().copy_on_device(address_of(to), address_of(from), bytes, owner->stream()), "copying on the device");
}

Status Allocator::fill_zero(int8_t index, void* data, size_t bytes) {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  return owner->driver().check(owner->driver().fill_bytes(address_of(data), 0, bytes, owner->stream()), "clearing device memory");
}

}  // namespace pteron::cuda
