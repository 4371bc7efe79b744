// Resizing of out tensors.
#include "runtime/value.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/str_cat.h"

namespace pteron::runtime {

Status resize(Tensor& tensor, std::span<const int64_t> sizes) {
  TensorView& view = tensor.view;
  if (std::equal(sizes.begin(), sizes.end(), view.sizes().begin(), view.sizes().end())) return ok_status();
  if (sizes.size() != view.rank) {
    return Status(Code::kInvalidInput, str_cat("result of rank ", sizes.size(), " for a tensor of rank ", static_cast<int>(view.rank)));
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool fits = tensor.dynamic ? sizes[d] >= 0 && sizes[d] <= tensor.bound[d] : sizes[d] == view.size_array[d];
    if (!fits) {
      return Status(Code::kInvalidInput, str_cat("result of shape ", shape_text(sizes), " for a tensor ", tensor.dynamic ? "bounded by " : "of fixed shape ",
                                                 shape_text({tensor.bound.data(), sizes.size()}),
                                                 tensor.dynamic && sizes[d] > tensor.bound[d] ? "; compile with a larger --max-size to allow more" : ""));
    }
  }
  if (tensor.capacity_bytes != UINT64_MAX) {  // memory of its own holds the bound; what a view points to may hold less
    int64_t count = 0;
    uint64_t needed = 0;
    if (!checked_numel(sizes, &count) || !checked_mul(static_cast<uint64_t>(count), uint64_t{dtype_size(view.dtype)}, &needed) ||
        needed > tensor.capacity_bytes) {
      return Status(Code::kInvalidInput, str_cat("result of shape ", shape_text(sizes), " for a tensor with ", tensor.capacity_bytes, " bytes"));
    }
  }
  std::copy(sizes.begin(), sizes.end(), view.size_array.begin());
  const Sizes strides = strides_of_dim_order(sizes, {tensor.dim_order.data(), sizes.size()});
  std::copy(strides.begin(), strides.end(), view.stride_array.begin());
  return ok_status();
}

}  // namespace pteron::runtime
