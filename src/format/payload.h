// Payload: bytes that a file will hold, either borrowed, gathered from a strided tensor, or made on demand. Writers ask for one payload at a
// time and drop it, so that writing a large program needs little more memory than its largest made payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "base/buffer.h"
#include "base/byte_sink.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::format {

/// A borrowed tensor that is written without gaps in `dim_order` (outermost first; empty = row-major).
/// Units:   strides in elements.
/// Owns:    its lists; borrows `data`.
struct StridedBytes {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  std::vector<uint8_t> dim_order;
  const std::byte* data = nullptr;
};

/// Two borrowed pieces, one right behind the other.
struct JoinedBytes {
  std::span<const std::byte> head, tail;
};

/// Makes the bytes when they are needed; must give exactly the size that the payload declares, and the same bytes each time.
using PayloadProducer = std::function<Result<Buffer>()>;

/// Bytes of a known size.
struct Payload {
  uint64_t size_bytes = 0;
  std::variant<std::span<const std::byte>, StridedBytes, PayloadProducer, JoinedBytes> source;

  static Payload borrow(std::span<const std::byte> bytes);
  static Payload join(std::span<const std::byte> head, std::span<const std::byte> tail);
  /// Errors: kInvalidInput (rank over kMaxRank, negative sizes, dim_order not a permutation, size overflow).
  static Result<Payload> gather(StridedBytes tensor);
  static Payload produce(uint64_t size_bytes, PayloadProducer producer);
};

/// Writes the payload's bytes.
/// Errors: the producer's, the sink's; kInternal if a producer gave another size than declared.
Status write_payload(const Payload& payload, ByteSink& sink);
/// The payload's bytes in memory.
/// Errors: as write_payload, kOutOfMemory.
Result<Buffer> payload_bytes(const Payload& payload);
/// Writes `count` zero bytes.
Status write_zeros(uint64_t count, ByteSink& sink);

}  // namespace pteron::format
