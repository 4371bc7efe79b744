// The real and the imaginary parts of a complex tensor as tensors of their own, without moving bytes. For kernels.
#pragma once

#include <cstddef>

#include "pteron/tensor.h"
#include "tensor/dtype.h"

namespace pteron::ops {

/// Part 0 (real) or 1 (imaginary). Requires: complex64 or complex128.
inline TensorView complex_part(const TensorView& tensor, int which) {
  TensorView part = tensor;
  part.dtype = real_dtype(tensor.dtype);
  for (size_t d = 0; d < tensor.rank; ++d) part.stride_array[d] *= 2;
  if (tensor.data != nullptr) part.data = static_cast<std::byte*>(tensor.data) + static_cast<size_t>(which) * dtype_size(part.dtype);
  return part;
}

}  // namespace pteron::ops
