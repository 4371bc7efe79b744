// Layout functions of the view ops with one result (symbolic.h says what a Shaper is). Defined in op_shapers.cpp; used by op*.cpp of this room.
#pragma once

#include "ops/view/symbolic.h"

namespace pteron::ops::view {

Status shape_view(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_reshape(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_like_other(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_flatten(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_unflatten(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_ravel(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_atleast_1d(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_atleast_2d(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_atleast_3d(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_squeeze(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_squeeze_dims(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_unsqueeze(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_expand(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_expand_as(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_select(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_slice(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_narrow(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_diagonal(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_unfold(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_as_strided(const NodeView& n, size_t, Layout& v, bool* aliases);
Status shape_reshape_alias(const NodeView& n, size_t, Layout& v, bool* aliases);

/// The permutation that an op applies to the dims of argument 0.
using Permutation = Result<std::vector<int64_t>> (*)(const NodeView& n);
Result<std::vector<int64_t>> dims_of_permute(const NodeView& n);
Result<std::vector<int64_t>> dims_of_transpose(const NodeView& n);
Result<std::vector<int64_t>> dims_of_t(const NodeView& n);
Result<std::vector<int64_t>> dims_reversed(const NodeView& n);
Result<std::vector<int64_t>> dims_last_swapped(const NodeView& n);
Result<std::vector<int64_t>> dims_of_movedim(const NodeView& n);

template <Permutation dims>
Status shape_permuted(const NodeView& n, size_t, Layout& v, bool*) {
  PTERON_ASSIGN(const std::vector<int64_t> order, dims(n));
  return permute(v, std::span<const int64_t>(order));
}

/// Sizes after flattening [start, end]. Errors: kInvalidInput.
Result<std::vector<Expr>> flattened(std::span<const Expr> sizes, int64_t start, int64_t end);

}  // namespace pteron::ops::view
