// Content hashes (XXH3-128): keys of delegate weights and of data file manifests, and checks of payloads. Equal hashes are confirmed by
// comparing bytes where two payloads are merged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_sink.h"
#include "format/payload.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::format {

/// Hashes what is written to it.
/// Errors: kOutOfMemory (reserve).
class HashSink final : public ByteSink {
 public:
  HashSink();
  ~HashSink() override;
  HashSink(const HashSink&) = delete;
  HashSink& operator=(const HashSink&) = delete;
  Status reserve(uint64_t total_bytes) override;
  Status write(std::span<const std::byte> bytes) override;
  /// 32 lower-case hex digits of everything written so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 32 hex digits of the bytes alone.
std::string hash_hex(std::span<const std::byte> bytes);
/// 32 hex digits over dtype, sizes and the payload's bytes. The payload must hold the row-major values for the key to be canonical.
/// Errors: the producer's.
Result<std::string> tensor_hash_hex(DType dtype, std::span<const int64_t> sizes, const Payload& row_major);
/// A tensor to be hashed. Owns: nothing.
struct HashedTensor {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> sizes;
  const Payload* row_major = nullptr;
};
/// tensor_hash_hex of each, in order. Large tensors whose bytes are there are shared out to a few threads, since one thread does not read as fast as
/// memory gives; payloads that are made are made one at a time, by the caller.
/// Errors: the producers'.
Result<std::vector<std::string>> tensor_hashes(std::span<const HashedTensor> tensors);
/// Key of a delegate's weight with this tensor_hash_hex: "pteron/<32 hex>".
std::string weight_key(std::string_view hash);
/// The same of a tensor. Errors: as tensor_hash_hex.
Result<std::string> weight_key(DType dtype, std::span<const int64_t> sizes, const Payload& row_major);

}  // namespace pteron::format
