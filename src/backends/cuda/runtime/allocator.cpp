// Blocks by address, and copies that belong to no session.
#include "backends/cuda/runtime/allocator.h"

#include <algorithm>

#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/queue.h"
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

std::unique_ptr<DeviceAllocator> Allocator::make_session() { return std::make_unique<SessionAllocator>(*this, open_); }

std::optional<pteron::Device> Allocator::owner_of(int8_t index, const void* data) {
  const Result<std::shared_ptr<Device>> any = device(index);
  if (!any.ok()) return std::nullopt;
  const ContextScope scope(**any);
  unsigned kind = 0;
  int owner = 0;
  const Driver& d = (*any)->driver();
  // The driver knows nothing of memory that is the host's alone.
  const bool is_devices = d.pointer_attribute(&kind, kPointerMemoryType, address_of(data)) == kSuccess && kind == kMemoryOfDevice &&
                          d.pointer_attribute(&owner, kPointerDevice, address_of(data)) == kSuccess;
  return is_devices ? pteron::Device{DeviceType::kCuda, static_cast<int8_t>(owner)} : pteron::Device{};
}

template <typename Work>
Status Allocator::on_stream(int8_t index, size_t bytes, const Work& work) const {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Device> owner, device(index));
  ContextScope scope(*owner);
  PTERON_TRY(scope.status());
  PTERON_TRY(work(owner->driver(), owner->stream()));
  return owner->wait();
}

// Nothing orders these with the work of sessions but waiting: they are over when they return.

Status Allocator::copy_from_host(int8_t index, void* to, const void* from, size_t bytes) {
  return on_stream(index, bytes, [&](const Driver& d, Stream stream) { return d.check(d.copy_to_device(address_of(to), from, bytes, stream), "copying to the device"); });
}

Status Allocator::copy_to_host(int8_t index, void* to, const void* from, size_t bytes) {
  return on_stream(index, bytes, [&](const Driver& d, Stream stream) { return d.check(d.copy_to_host(to, address_of(from), bytes, stream), "copying to the host"); });
}

Status Allocator::copy_on_device(int8_t index, void* to, const void* from, size_t bytes) {
  return on_stream(index, bytes, [&](const Driver& d, Stream stream) { return d.check(d.copy_on_device(address_of(to), address_of(from), bytes, stream), "copying on the device"); });
}

Status Allocator::fill_zero(int8_t index, void* data, size_t bytes) {
  return on_stream(index, bytes, [&](const Driver& d, Stream stream) { return d.check(d.fill_bytes(address_of(data), 0, bytes, stream), "clearing device memory"); });
}

}  // namespace pteron::cuda
