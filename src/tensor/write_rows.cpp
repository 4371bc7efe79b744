// write_row_major: contiguous tensors in one piece, others in slices of the outermost dim.
#include "tensor/write_rows.h"

#include <algorithm>

#include "tensor/shape.h"

namespace pteron {

namespace {

/// Strided tensors are gathered in slices of about this many bytes.
constexpr uint64_t kSliceBytes = uint64_t{4} << 20;

}  // namespace

Status write_row_major(const TensorView& tensor, ByteSink& sink) {
  const uint64_t total = tensor.size_bytes();
  if (total == 0) return ok_status();
  if (tensor.is_contiguous()) return sink.write({tensor.as<const std::byte>(), total});
  const uint64_t row_bytes = total / static_cast<uint64_t>(tensor.size(0));
  const int64_t rows = static_cast<int64_t>(std::clamp<uint64_t>(kSliceBytes / row_bytes, 1, static_cast<uint64_t>(tensor.size(0))));
  PTERON_ASSIGN(Buffer slice, Buffer::create(static_cast<uint64_t>(rows) * row_bytes));
  for (int64_t start = 0; start < tensor.size(0); start += rows) {
    TensorView from = tensor;
    from.size_array[0] = std::min(rows, tensor.size(0) - start);
    from.data = tensor.as<std::byte>() + static_cast<size_t>(start * tensor.stride(0)) * dtype_size(tensor.dtype);
    copy_strided(from, make_contiguous_view(from.dtype, from.sizes(), slice.data()));
    PTERON_TRY(sink.write({slice.data(), from.size_bytes()}));
  }
  return ok_status();
}

}  // namespace pteron
