// Chunks of weights through page-locked memory.
#include "backends/cuda/runtime/upload.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "format/content_hash.h"

namespace pteron::cuda {
namespace {

/// Calls of a pool's parts end with the first error of any of them.
class FirstError {
 public:
  void note(Status status) {
    if (status.ok()) return;
    const std::lock_guard guard(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  Status take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  Status status_;
};

std::span<const std::byte> chunk_of(std::span<const std::byte> bytes, size_t index) {
  const size_t begin = index * Uploader::kChunk;
  return bytes.subspan(begin, std::min(Uploader::kChunk, bytes.size() - begin));
}

size_t chunk_count(std::span<const std::byte> bytes) { return (bytes.size() + Uploader::kChunk - 1) / Uploader::kChunk; }

/// Of the chunks' hashes in order: one chunk's is its own.
std::string joined(const std::vector<std::string>& hashes) {
  if (hashes.size() == 1) return hashes[0];
  std::string all;
  for (const std::string& hash : hashes) all += hash;
  return format::hash_hex(std::as_bytes(std::span(all)));
}

}  // namespace

Uploader::~Uploader() {
  if (count_ == 0) return;
  static_cast<void>(device_.wait().ok());
  for (const std::unique_ptr<Slot>& slot : free_) {
    if (slot->copied != nullptr) device_.driver().event_destroy(slot->copied);
  }
}

Result<std::unique_ptr<Uploader::Slot>> Uploader::take() {
  const Driver& d = device_.driver();
  std::unique_ptr<Slot> slot;
  {
    const std::lock_guard guard(mutex_);
    const bool may_grow = count_ * kChunk < kMost;
    // One that the device still reads is waited for only if there is no room for another.
    if (!free_.empty() && (!may_grow || d.event_query(free_.front()->copied) == kSuccess)) {
      slot = std::move(free_.front());
      free_.pop_front();
    } else {
      ++count_;
    }
  }
  if (slot != nullptr) {
    Status status = d.check(d.event_wait(slot->copied), "copying weights to the device");
    if (status.ok()) return slot;
    const std::lock_guard guard(mutex_);
    free_.push_back(std::move(slot));
    return status;
  }
  slot = std::make_unique<Slot>();
  PTERON_ASSIGN(slot->memory, device_.allocate_pinned(kChunk));
  PTERON_TRY(d.check(d.event_create(&slot->copied, kEventWithoutTime), "making an event"));
  return slot;
}

Status Uploader::upload_chunk(Address to, std::span<const std::byte> from) {
  const Driver& d = device_.driver();
  PTERON_ASSIGN(std::unique_ptr<Slot> slot, take());
  std::memcpy(slot->memory.data(), from.data(), from.size());
  Status status = d.check(d.copy_to_device(to, slot->memory.data(), from.size(), device_.stream()), "copying weights to the device");
  if (status.ok()) status = d.check(d.event_record(slot->copied, device_.stream()), "recording an event");
  const std::lock_guard guard(mutex_);
  free_.push_back(std::move(slot));
  return status;
}

Result<std::string> Uploader::upload(Address to, std::span<const std::byte> from, ThreadPool& pool) {
  std::vector<std::string> hashes(chunk_count(from));
  FirstError error;
  pool.parallel_for(static_cast<int64_t>(hashes.size()), 1, [&](int64_t begin, int64_t end) {
    ContextScope scope(device_);
    Status status = scope.status();
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end) && status.ok(); ++i) {
      const std::span<const std::byte> chunk = chunk_of(from, i);
      status = upload_chunk(to + i * kChunk, chunk);
      hashes[i] = format::hash_hex(chunk);  // while the device copies it
    }
    error.note(std::move(status));
  });
  PTERON_TRY(error.take());
  return joined(hashes);
}

std::string Uploader::hash(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::vector<std::string> hashes(chunk_count(bytes));
  pool.parallel_for(static_cast<int64_t>(hashes.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) hashes[i] = format::hash_hex(chunk_of(bytes, i));
  });
  return joined(hashes);
}

}  // namespace pteron::cuda
