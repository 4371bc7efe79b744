// Result types in a memory format: what clone, _to_copy, contiguous and the factories give. Compile half only.
#pragma once

#include "ops/infer.h"

namespace pteron::ops {

/// Strides of a dense tensor in a memory format; kPreserve counts as contiguous.
/// Errors: kInvalidInput for channels_last of a tensor that has not four (five) dims.
Result<std::vector<Expr>> strides_of_format(std::span<const Expr> sizes, ir::MemoryFormat format);

/// The type of a copy of the named tensor with that dtype: in its own dim order if `memory_format` is None or preserve_format, else in that format.
Result<TensorType> formatted_type(const NodeView& node, DType dtype, std::string_view name);

}  // namespace pteron::ops
