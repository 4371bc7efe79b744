// Compile half of the view rules: symbolic dims, and InferFn and ViewFn made from one function that changes a layout.
// Included by op*.cpp of the rooms that make views.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/infer.h"
#include "ops/view/shape.h"

namespace pteron::ops::view {

template <>
Expr wrapped(Expr index, Expr size);

using Layout = Strided<Expr>;

/// Changes the layout of argument 0 into that of result `result`; *aliases starts true and becomes false if memory must be copied.
using Shaper = Status (*)(const NodeView& node, size_t result, Layout& v, bool* aliases);
/// Number of results of a node.
using Counter = Result<size_t> (*)(const NodeView& node);

/// The layout of a tensor type. Errors: kUnsupported (rank).
Result<Layout> layout_of(const TensorType& type);
/// A type with the layout's sizes and strides.
TensorType type_of(const Layout& v, DType dtype, Device device);
/// Argument 0 of a node.
ValueId first_value(const NodeView& node);
/// Layout of result `result`, starting from the type of argument 0.
Result<Layout> shaped(const NodeView& node, size_t result, Shaper fn);
/// Runs `fn` for a ViewFn.
bool run_view(const NodeView& node, const ir::ViewLayout& input, size_t result, ir::ViewLayout* out, Shaper fn);
/// Runs `fn` for `count` results with the dtype of argument 0; row_major drops the strides (copies).
Status run_infer(InferContext& c, size_t count, Shaper fn, bool row_major_results);
/// Optional int argument.
std::optional<Expr> optional_expr(const NodeView& node, std::string_view name);

template <Shaper fn>
bool view_fn(const NodeView& node, const ir::ViewLayout& input, size_t result, ir::ViewLayout* out) {
  return run_view(node, input, result, out, fn);
}
template <Shaper fn>
Status infer_view(InferContext& c) {
  return run_infer(c, 1, fn, false);
}
template <Shaper fn>
Status infer_copy(InferContext& c) {
  return run_infer(c, 1, fn, true);
}
template <Shaper fn, Counter count>
Status infer_views(InferContext& c) {
  PTERON_ASSIGN(const size_t results, count(c));
  return run_infer(c, results, fn, false);
}
template <Shaper fn, Counter count>
Status infer_copies(InferContext& c) {
  PTERON_ASSIGN(const size_t results, count(c));
  return run_infer(c, results, fn, true);
}

/// Decomposition into one aten::view with the result's sizes.
template <Shaper fn>
std::vector<ValueId> decompose_to_view(ir::Builder& b, const NodeView& node);
/// aten::view of `self`, or self itself if the sizes are the same.
ValueId view_to(ir::Builder& b, ValueId self, std::vector<Expr> sizes);
/// aten::permute of `self`, or self itself if nothing moves.
ValueId permute_to(ir::Builder& b, ValueId self, const std::vector<int64_t>& dims);
/// aten::slice.Tensor with step 1.
ValueId slice_to(ir::Builder& b, ValueId self, int64_t dim, Expr start, Expr end);
/// Decomposition of "aten::X_copy": the view op "aten::X" with the same arguments.
std::vector<ValueId> decompose_copy(ir::Builder& b, const NodeView& node);
/// List argument from ints.
std::vector<Expr> expr_list(std::span<const int64_t> ints);

std::vector<ValueId> view_of_shaped(ir::Builder& b, const NodeView& node, Shaper fn);
template <Shaper fn>
std::vector<ValueId> decompose_to_view(ir::Builder& b, const NodeView& node) {
  return view_of_shaped(b, node, fn);
}

}  // namespace pteron::ops::view
