// Streams of sessions, and copies on them.
#include "backends/cuda/runtime/queue.h"

#include <algorithm>

namespace pteron::cuda {
namespace {

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// A copy with memory of the host cannot be recorded: its bytes are read or written at once. Errors: kInvalidInput.
Status check_not_captured(const Queue& queue) {
  PTERON_ASSIGN(const bool captured, queue.is_captured());
  if (!captured) return ok_status();
  return Status(Code::kInvalidInput, "the caller's stream is being captured, and the call copies between host and device: expected inputs and outputs on the device "
                                     "(compile --device-inputs --device-outputs)");
}

}  // namespace

Result<std::shared_ptr<Queue>> Queue::create(std::shared_ptr<Device> device) {
  auto made = std::make_shared<Queue>(std::move(device));
  const Driver& d = made->device_->driver();
  PTERON_TRY(d.check(d.stream_create(&made->own_, kStreamNonBlocking), "making a stream"));
  return made;
}

Queue::~Queue() {
  if (own_ == nullptr) return;
  const ContextScope scope(*device_);
  device_->driver().stream_destroy(own_);
}

Result<bool> Queue::is_captured() const {
  if (callers_ == nullptr) return false;
  int status = 0;
  PTERON_TRY(device_->driver().check(device_->driver().stream_capturing(callers_, &status), "looking at the caller's stream"));
  return status != 0;
}

void Queue::finish() const {
  const Driver& d = device_->driver();
  if (was_callers_) {
    d.context_wait();
  } else {
    d.stream_wait(own_);
  }
}

Result<std::shared_ptr<Queue>> SessionAllocator::queue(int index) {
  const int real = std::max(index, 0);  // -1, the current device, is the first
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Queue>& known = queues_[real];
  if (known != nullptr) return known;
  PTERON_ASSIGN(std::shared_ptr<Device> device, open_(real));
  ContextScope scope(*device);
  PTERON_TRY(scope.status());
  PTERON_ASSIGN(known, Queue::create(std::move(device)));
  return known;
}

template <typename Work>
Status SessionAllocator::put(int8_t index, size_t bytes, bool with_host, const Work& work) {
  if (bytes == 0) return ok_status();
  PTERON_ASSIGN(const std::shared_ptr<Queue> on, queue(index));
  ContextScope scope(*on->device());
  PTERON_TRY(scope.status());
  if (with_host) PTERON_TRY(check_not_captured(*on));
  PTERON_TRY(work(on->device()->driver(), on->stream()));
  return with_host ? on->wait() : ok_status();  // page-locked memory would still be read
}

Status SessionAllocator::copy_from_host(int8_t index, void* to, const void* from, size_t bytes) {
  return put(index, bytes, true, [&](const Driver& d, Stream stream) { return d.check(d.copy_to_device(address_of(to), from, bytes, stream), "copying to the device"); });
}

Status SessionAllocator::copy_to_host(int8_t index, void* to, const void* from, size_t bytes) {
  return put(index, bytes, true, [&](const Driver& d, Stream stream) { return d.check(d.copy_to_host(to, address_of(from), bytes, stream), "copying to the host"); });
}

Status SessionAllocator::copy_on_device(int8_t index, void* to, const void* from, size_t bytes) {
  return put(index, bytes, false, [&](const Driver& d, Stream stream) { return d.check(d.copy_on_device(address_of(to), address_of(from), bytes, stream), "copying on the device"); });
}

Status SessionAllocator::fill_zero(int8_t index, void* data, size_t bytes) {
  return put(index, bytes, false, [&](const Driver& d, Stream stream) { return d.check(d.fill_bytes(address_of(data), 0, bytes, stream), "clearing device memory"); });
}

Status SessionAllocator::set_stream(int8_t index, void* stream) {
  PTERON_ASSIGN(const std::shared_ptr<Queue> on, queue(index));
  on->use(static_cast<Stream>(stream));
  return ok_status();
}

}  // namespace pteron::cuda
