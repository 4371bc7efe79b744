// Memory formats of results.
#include "ops/layout.h"

#include "base/str_cat.h"

namespace pteron::ops {

using ir::MemoryFormat;

Result<std::vector<Expr>> strides_of_format(std::span<const Expr> sizes, MemoryFormat format) {
  if (format == MemoryFormat::kContiguous || format == MemoryFormat::kPreserve) return ir::contiguous_strides_of(sizes);
  const size_t rank = format == MemoryFormat::kChannelsLast ? 4 : 5;
  if (sizes.size() != rank) return Status(Code::kInvalidInput, str_cat("channels_last needs rank ", rank, ", found ", shape_text(sizes)));
  std::vector<Expr> strides(rank, Expr(1));
  Expr stride = dim_max(sizes[1], 1);
  for (size_t d = rank; d-- > 2;) {
    strides[d] = stride;
    stride = stride * dim_max(sizes[d], 1);
  }
  strides[0] = stride;
  return strides;
}

Result<TensorType> formatted_type(const NodeView& node, DType dtype, std::string_view name) {
  const TensorType& self = node.type(name);
  const auto* format = node.has("memory_format") ? std::get_if<MemoryFormat>(&node.arg("memory_format")) : nullptr;
  if (format == nullptr || *format == MemoryFormat::kPreserve) return elementwise_type(node, dtype, self.sizes, {name});
  TensorType type = ir::contiguous_type(dtype, self.sizes, self.device);
  PTERON_ASSIGN(type.strides, strides_of_format(type.sizes, *format));
  return type;
}

}  // namespace pteron::ops
