// Writes the elements of a strided tensor in row-major order to a sink; shared by the writers of tensor files.
#pragma once

#include "base/byte_sink.h"
#include "pteron/tensor.h"

namespace pteron {

/// Row-major bytes of all elements, gathered in slices if the tensor is not contiguous.
/// Errors: the sink's; kOutOfMemory.
Status write_row_major(const TensorView& tensor, ByteSink& sink);

}  // namespace pteron
