// Payloads: checks, gathering of strided tensors in slices, producers.
#include "format/payload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/shape.h"
#include "tensor/write_rows.h"

namespace pteron::format {

namespace {

bool is_permutation(std::span<const uint8_t> order, size_t rank) {
  if (order.size() != rank) return false;
  std::array<bool, kMaxRank> seen{};
  for (const uint8_t d : order) {
    if (d >= rank || seen[d]) return false;
    seen[d] = true;
  }
  return true;
}

/// The tensor with its dims in storage order, so that row-major over it is the order of bytes in the file.
TensorView in_storage_order(const StridedBytes& tensor) {
  TensorView view;
  view.dtype = tensor.dtype;
  view.rank = static_cast<uint8_t>(tensor.sizes.size());
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const size_t d = tensor.dim_order.empty() ? i : tensor.dim_order[i];
    view.size_array[i] = tensor.sizes[d];
    view.stride_array[i] = tensor.strides[d];
  }
  view.data = const_cast<std::byte*>(tensor.data);  // NOLINT: copied from, never written
  return view;
}

Status write_produced(const Payload& payload, ByteSink& sink) {
  PTERON_ASSIGN(const Buffer made, std::get<PayloadProducer>(payload.source)());
  if (made.size() != payload.size_bytes) {
    return Status(Code::kInternal, str_cat("a payload of ", payload.size_bytes, " bytes was announced, its producer made ", made.size()));
  }
  return sink.write(made.span());
}

}  // namespace

Payload Payload::borrow(std::span<const std::byte> bytes) { return Payload{bytes.size(), bytes}; }

Result<Payload> Payload::gather(StridedBytes tensor) {
  const size_t rank = tensor.sizes.size();
  if (rank > static_cast<size_t>(kMaxRank)) {
    return Status(Code::kInvalidInput, str_cat("a tensor of rank ", rank, " cannot be stored, the limit is ", kMaxRank));
  }
  uint64_t extent = 0;
  int64_t numel = 0, bytes = 0;
  if (tensor.strides.size() != rank || !(tensor.dim_order.empty() || is_permutation(tensor.dim_order, rank)) ||
      !strided_extent_bytes(tensor.sizes, tensor.strides, dtype_size(tensor.dtype), &extent) || !checked_numel(tensor.sizes, &numel) ||
      !checked_mul(numel, static_cast<int64_t>(dtype_size(tensor.dtype)), &bytes)) {
    return Status(Code::kInvalidInput, str_cat("sizes ", str_list(tensor.sizes), ", strides ", str_list(tensor.strides), " and dim order of ",
                                               tensor.dim_order.size(), " dims do not describe a tensor"));
  }
  return Payload{static_cast<uint64_t>(bytes), std::move(tensor)};
}

Payload Payload::join(std::span<const std::byte> head, std::span<const std::byte> tail) { return Payload{head.size() + tail.size(), JoinedBytes{head, tail}}; }

Payload Payload::produce(uint64_t size_bytes, PayloadProducer producer) { return Payload{size_bytes, std::move(producer)}; }

Status write_payload(const Payload& payload, ByteSink& sink) {
  if (const auto* bytes = std::get_if<std::span<const std::byte>>(&payload.source)) {
    if (bytes->size() != payload.size_bytes) {
      return Status(Code::kInternal, str_cat("a payload of ", payload.size_bytes, " bytes was announced, ", bytes->size(), " are there"));
    }
    return sink.write(*bytes);
  }
  if (const auto* tensor = std::get_if<StridedBytes>(&payload.source)) return write_row_major(in_storage_order(*tensor), sink);
  if (const auto* joined = std::get_if<JoinedBytes>(&payload.source)) {
    PTERON_TRY(sink.write(joined->head));
    return sink.write(joined->tail);
  }
  return write_produced(payload, sink);
}

Result<Buffer> payload_bytes(const Payload& payload) {
  if (const auto* producer = std::get_if<PayloadProducer>(&payload.source)) {
    auto made = (*producer)();
    if (made.ok() && made->size() != payload.size_bytes) {
      return Status(Code::kInternal, str_cat("a payload of ", payload.size_bytes, " bytes was announced, its producer made ", made->size()));
    }
    return made;
  }
  PTERON_ASSIGN(Buffer out, Buffer::create(payload.size_bytes));
  if (const auto* bytes = std::get_if<std::span<const std::byte>>(&payload.source)) {
    if (!bytes->empty()) std::memcpy(out.data(), bytes->data(), std::min(bytes->size(), out.size()));
    return out;
  }
  if (const auto* joined = std::get_if<JoinedBytes>(&payload.source)) {
    std::copy(joined->head.begin(), joined->head.end(), out.data());
    std::copy(joined->tail.begin(), joined->tail.end(), out.data() + joined->head.size());
    return out;
  }
  const TensorView from = in_storage_order(std::get<StridedBytes>(payload.source));
  if (from.numel() > 0) copy_strided(from, make_contiguous_view(from.dtype, from.sizes(), out.data()));
  return out;
}

Status write_zeros(uint64_t count, ByteSink& sink) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (count > 0) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(count, kZeros.size()));
    PTERON_TRY(sink.write({kZeros.data(), n}));
    count -= n;
  }
  return ok_status();
}

}  // namespace pteron::format
