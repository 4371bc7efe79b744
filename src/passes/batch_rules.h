// How operators are computed on many slices at once: rows of batch_rules.cpp, read by batch_vmap.cpp.
#pragma once

#include <cstdint>
#include <string_view>

namespace pteron::passes {

enum class BatchRule : uint8_t {
  kLoop,         ///< no rule: the operator is computed slice by slice
  kElementwise,  ///< operands broadcast; one operand may have any layout
  kDims,         ///< arguments that name dims count from the first dim of a slice; tensors need all batch dims
  kReduceDims,   ///< kDims, where no dims mean all of them
  kReshape,      ///< the elements of a slice in other sizes
  kExpand,       ///< a broadcast to other sizes
  kLeading,      ///< dims before the last ones are batch dims anyway; only argument 0 varies from slice to slice
  kProduct,      ///< products of matrices and vectors
  kLinear,       ///< linear: a product whose weight may vary from slice to slice
  kReduceAll,    ///< a reduction of all elements that has a form with a dim
  kNewSizes,     ///< a new tensor with the sizes given
  kPermute,      ///< permute: its dims are a list of all of them
  kIndex,        ///< index.Tensor
};

/// The rule for an operator: its name without "aten::", overload and in-place underscore.
BatchRule batch_rule(std::string_view base);

/// For kReduceAll: the operator that reduces one dim ("sum" -> "aten::sum.dim_IntList").
std::string_view reduce_one_dim(std::string_view base);

/// True for schema arguments that hold dims of argument 0.
bool names_dims(std::string_view argument);

}  // namespace pteron::passes
