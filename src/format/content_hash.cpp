// Content hashes through xxhash, compiled in (XXH_INLINE_ALL): the run-time library needs no shared libxxhash.
#include "format/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/background.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"

namespace pteron::format {

namespace {

/// A thread hashes about 15 GB/s: four read as fast as memory gives.
constexpr uint64_t kHashThreads = 4;
/// Bytes that are worth a thread.
constexpr uint64_t kHashGrain = uint64_t{4} << 20;

std::string hex_of(XXH128_hash_t hash) {
  static constexpr char kHex[] = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string out;
  for (const unsigned char byte : canonical.digest) {
    out.push_back(kHex[byte >> 4]);
    out.push_back(kHex[byte & 15]);
  }
  return out;
}

}  // namespace

struct HashSink::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

HashSink::HashSink() : state_(std::make_unique<State>()) {
  if (state_->xxh != nullptr) XXH3_128bits_reset(state_->xxh);
}

HashSink::~HashSink() = default;

Status HashSink::reserve(uint64_t) { return state_->xxh != nullptr ? ok_status() : Status::out_of_memory(); }

Status HashSink::write(std::span<const std::byte> bytes) {
  if (state_->xxh == nullptr) return Status::out_of_memory();
  if (!bytes.empty()) XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
  return ok_status();
}

std::string HashSink::hex() const { return state_->xxh == nullptr ? std::string() : hex_of(XXH3_128bits_digest(state_->xxh)); }

std::string hash_hex(std::span<const std::byte> bytes) { return hex_of(XXH3_128bits(bytes.data(), bytes.size())); }

Result<std::string> tensor_hash_hex(DType dtype, std::span<const int64_t> sizes, const Payload& row_major) {
  HashSink sink;
  const uint8_t head[2] = {static_cast<uint8_t>(dtype), static_cast<uint8_t>(sizes.size())};
  PTERON_TRY(sink.write(std::as_bytes(std::span(head))));
  PTERON_TRY(sink.write(std::as_bytes(sizes)));
  PTERON_TRY(write_payload(row_major, sink));
  return sink.hex();
}

Result<std::vector<std::string>> tensor_hashes(std::span<const HashedTensor> tensors) {
  std::vector<std::string> hashes(tensors.size());
  std::vector<Status> found(tensors.size());
  const auto is_made = [&](size_t i) { return std::holds_alternative<PayloadProducer>(tensors[i].row_major->source); };
  const auto hash = [&](size_t i) {
    Result<std::string> hex = tensor_hash_hex(tensors[i].dtype, tensors[i].sizes, *tensors[i].row_major);
    if (hex.ok()) {
      hashes[i] = std::move(hex).value();
    } else {
      found[i] = std::move(hex).status();
    }
  };
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) bytes += is_made(i) ? 0 : tensors[i].row_major->size_bytes;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < tensors.size(); i = next.fetch_add(1)) {
      if (!is_made(i)) hash(i);
    }
  };
  std::vector<std::unique_ptr<Background>> beside;
  while (beside.size() + 1 < std::min({kHashThreads, bytes / kHashGrain, uint64_t(usable_cpu_count())})) beside.push_back(std::make_unique<Background>(work));
  work();
  beside.clear();  // ends when they have
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (is_made(i)) hash(i);
    PTERON_TRY(std::move(found[i]));
  }
  return hashes;
}

std::string weight_key(std::string_view hash) { return str_cat("pteron/", hash); }

Result<std::string> weight_key(DType dtype, std::span<const int64_t> sizes, const Payload& row_major) {
  PTERON_ASSIGN(const std::string hex, tensor_hash_hex(dtype, sizes, row_major));
  return weight_key(hex);
}

}  // namespace pteron::format
