// Inference helpers of reductions (compile half): which dims go, what is left. Used by the rooms of reductions, norms and orderings.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::ops {

/// Bit d is set for every dim to reduce. The argument is one dim or a list; None and an empty list mean all dims.
/// Errors: kInvalidInput (out of range, twice).
inline Result<uint32_t> dims_mask(const NodeView& node, std::string_view name, int rank) {
  const std::vector<int64_t> dims = node.integers(name);
  const uint32_t all = (uint32_t{1} << rank) - 1u;
  if (dims.empty()) return all;
  uint32_t mask = 0;
  for (const int64_t dim : dims) {
    PTERON_ASSIGN(const int d, wrap_dim_of(dim, rank));
    if ((mask >> d & 1u) != 0) return Status(Code::kInvalidInput, str_cat("dim ", d, " appears twice"));
    mask |= uint32_t{1} << d;
  }
  return rank == 0 ? 0u : mask;
}

/// Sizes without the reduced dims, or with 1 in their place.
inline std::vector<Expr> reduced_exprs(const std::vector<Expr>& sizes, uint32_t mask, bool keepdim) {
  std::vector<Expr> out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if ((mask >> d & 1u) == 0) {
      out.push_back(sizes[d]);
    } else if (keepdim) {
      out.emplace_back(1);
    }
  }
  return out;
}

/// The dims of a mask as a list argument.
inline std::vector<Expr> mask_dims(uint32_t mask, int rank) {
  std::vector<Expr> out;
  for (int d = 0; d < rank; ++d) {
    if ((mask >> d & 1u) != 0) out.emplace_back(d);
  }
  return out;
}

/// Number of elements that one result stands for.
inline Expr reduced_count(const std::vector<Expr>& sizes, uint32_t mask) {
  Expr count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if ((mask >> d & 1u) != 0) count = count * sizes[d];
  }
  return count;
}

/// Adds one result of `self` reduced over the argument `dim` (all dims if the op has none), keepdim as the op says.
inline Status add_reduced(InferContext& c, DType dtype) {
  const TensorType& self = c.type("self");
  uint32_t mask = (uint32_t{1} << self.rank()) - 1u;
  if (c.has("dim")) {
    PTERON_ASSIGN(mask, dims_mask(c, "dim", self.rank()));
  }
  const bool keepdim = c.has("keepdim") && c.boolean("keepdim");
  c.add(dtype, reduced_exprs(self.sizes, mask, keepdim));
  return ok_status();
}

/// The same for ops with results of several dtypes.
inline Status add_reduced(InferContext& c, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) PTERON_TRY(add_reduced(c, dtype));
  return ok_status();
}

/// Errors: kInvalidInput unless self has elements to choose from along every reduced dim.
inline Status check_not_empty(const InferContext& c, std::string_view what) {
  const TensorType& self = c.type("self");
  uint32_t mask = (uint32_t{1} << self.rank()) - 1u;
  if (c.has("dim")) {
    PTERON_ASSIGN(mask, dims_mask(c, "dim", self.rank()));
  }
  for (int d = 0; d < self.rank(); ++d) {
    if ((mask >> d & 1u) != 0 && dim_is(self.sizes[static_cast<size_t>(d)], 0)) {
      return Status(Code::kInvalidInput, str_cat(what, " over dim ", d, ", which is empty in ", shape_text(self.sizes)));
    }
  }
  return ok_status();
}

/// self as it is, or cast to `dtype`.
inline ValueId cast_to(ir::Builder& b, ValueId self, DType dtype) {
  return b.type(self).dtype == dtype ? self : b.op("aten::_to_copy", {self, dtype});
}

/// Rank of an argument's dims as a list with one item.
inline std::vector<Expr> one_dim(int64_t dim) { return {Expr(dim)}; }

}  // namespace pteron::ops
