// Runtime half of the view rules: copies out of a layout of a tensor. Included by kernel*.cpp of the rooms that move data.
#pragma once

#include <algorithm>

#include "ops/copy.h"
#include "ops/view/shape.h"
#include "runtime/kernel.h"

namespace pteron::ops::view {

using Placed = Strided<int64_t>;

inline Placed placed(const TensorView& tensor) {
  Placed v;
  v.sizes = Sizes(tensor.sizes());
  v.strides = Sizes(tensor.strides());
  return v;
}

/// The elements of `tensor` that the layout names.
inline TensorView view_of(const TensorView& tensor, const Placed& v) {
  TensorView view = tensor;
  view.rank = static_cast<uint8_t>(v.sizes.size());
  std::copy(v.sizes.begin(), v.sizes.end(), view.size_array.begin());
  std::copy(v.strides.begin(), v.strides.end(), view.stride_array.begin());
  view.data = static_cast<std::byte*>(tensor.data) + v.offset * static_cast<int64_t>(dtype_size(tensor.dtype));
  return view;
}

/// Resizes `out` to the layout's sizes and copies the elements there.
inline Status write_view(runtime::KernelContext& context, const runtime::Tensor& self, const Placed& v, runtime::Tensor& out) {
  PTERON_TRY(runtime::resize(out, v.sizes));
  return copy_tensor(context, view_of(self.view, v), out.view);
}

/// Copies all elements in row-major order between tensors of the same number of elements and element size, whatever their shapes.
Status copy_reshaped(runtime::KernelContext& context, const TensorView& from, const TensorView& to);

/// Offset (elements) of the row-major element `linear` of a tensor.
inline int64_t offset_of(const TensorView& tensor, int64_t linear) {
  int64_t offset = 0;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    offset += linear % tensor.size(d) * tensor.stride(d);
    linear /= tensor.size(d);
  }
  return offset;
}

}  // namespace pteron::ops::view
