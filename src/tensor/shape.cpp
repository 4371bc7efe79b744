// Shape helpers and the shape functions of pteron/tensor.h. copy_strided is in copy_strided.cpp.
#include "tensor/shape.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/str_cat.h"

namespace pteron {

int64_t TensorView::numel() const {
  int64_t n = 1;
  for (const int64_t s : sizes()) n *= s;
  return n;
}

size_t TensorView::size_bytes() const { return static_cast<size_t>(numel()) * dtype_size(dtype); }

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (size(d) == 0) return true;
    if (size(d) == 1) continue;
    if (stride(d) != expected) return numel() == 0;
    expected *= size(d);
  }
  return true;
}

TensorView make_contiguous_view(DType dtype, std::span<const int64_t> sizes, void* data) {
  TensorView view;
  view.dtype = dtype;
  view.rank = static_cast<uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), view.size_array.begin());
  const Sizes strides = contiguous_strides(sizes);
  std::copy(strides.begin(), strides.end(), view.stride_array.begin());
  view.data = data;
  return view;
}

Sizes contiguous_strides(std::span<const int64_t> sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

Sizes strides_of_dim_order(std::span<const int64_t> sizes, std::span<const uint8_t> dim_order) {
  Sizes strides(sizes.size(), 1);
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[dim_order[i]] = stride;
    stride *= std::max<int64_t>(sizes[dim_order[i]], 1);
  }
  return strides;
}

bool dim_order_of_strides(std::span<const int64_t> sizes, std::span<const int64_t> strides, std::span<uint8_t> dim_order) {
  const size_t rank = sizes.size();
  for (size_t i = 0; i < rank; ++i) dim_order[i] = static_cast<uint8_t>(i);
  // Dims of size 1 have arbitrary strides: they stay where index order puts them, so sort only the others among their places.
  std::array<uint8_t, kMaxRank> real{};
  size_t count = 0;
  bool empty = false;
  for (size_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) empty = true;
    if (sizes[i] != 1) real[count++] = static_cast<uint8_t>(i);
  }
  if (empty) return true;
  std::array<uint8_t, kMaxRank> sorted = real;
  std::stable_sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count),
                   [&](uint8_t a, uint8_t b) { return strides[a] > strides[b]; });
  for (size_t i = 0; i < count; ++i) dim_order[real[i]] = sorted[i];
  int64_t expected = 1;
  for (size_t i = count; i-- > 0;) {
    if (strides[sorted[i]] != expected) return false;
    expected *= sizes[sorted[i]];
  }
  return true;
}

Status broadcast_sizes(std::span<const int64_t> a, std::span<const int64_t> b, Sizes* out) {
  const size_t rank = std::max(a.size(), b.size());
  Sizes result(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return Status(Code::kInvalidInput, str_cat("shapes ", shape_text(a), " and ", shape_text(b), " do not broadcast"));
    }
    result[rank - 1 - i] = x == 1 ? y : x;
  }
  *out = result;
  return ok_status();
}

Result<int> wrap_dim(int64_t dim, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);
  if (dim < -limit || dim >= limit) {
    return Status(Code::kInvalidInput, str_cat("dim ", dim, " is outside [", -limit, ",", limit - 1, "]"));
  }
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

std::string shape_text(std::span<const int64_t> sizes) { return str_list(sizes); }

bool strided_extent_bytes(std::span<const int64_t> sizes, std::span<const int64_t> strides, size_t element_bytes, uint64_t* out) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0) return false;
    if (sizes[d] == 0) {
      *out = 0;
      return true;
    }
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t step = 0;
    if (!checked_mul(sizes[d] - 1, strides[d], &step) || !checked_add(last, step, &last)) return false;
  }
  return checked_add(static_cast<uint64_t>(last), uint64_t{1}, out) && checked_mul(*out, static_cast<uint64_t>(element_bytes), out);
}

}  // namespace pteron
