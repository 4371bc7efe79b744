// The inverse of each view: what the viewed tensor becomes when the view is overwritten. Called by functionalize.
#include <algorithm>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "passes/alias_ops.h"
#include "passes/names.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Node;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

namespace {

int64_t wrap(int64_t dim, int rank) { return dim < 0 ? dim + std::max(rank, 1) : dim; }

ValueId reshape_back(Builder& b, ValueId parent, ValueId child) {
  const std::vector<Expr> sizes = b.type(parent).sizes;
  return b.op("aten::view", {child, sizes});
}

ValueId unpermute(Builder& b, const NodeView& step, int rank, ValueId child) {
  const std::vector<int64_t> dims = step.integers("dims");
  std::vector<Expr> inverse(static_cast<size_t>(rank), Expr(0));
  for (size_t i = 0; i < dims.size() && i < inverse.size(); ++i) {
    const auto at = static_cast<size_t>(wrap(dims[i], rank));
    if (at < inverse.size()) inverse[at] = Expr(static_cast<int64_t>(i));
  }
  return b.op("aten::permute", {child, inverse});
}

/// One element of every broadcast dim stands for all (ATen refuses writes that disagree).
ValueId unexpand(Builder& b, ValueId parent, ValueId child) {
  const TensorType from = b.type(child);
  const TensorType to = b.type(parent);
  const size_t extra = from.sizes.size() - to.sizes.size();
  for (size_t i = 0; i < extra; ++i) child = b.op("aten::select.int", {child, Expr(0), Expr(0)});
  for (size_t d = 0; d < to.sizes.size(); ++d) {
    if (to.sizes[d] == from.sizes[d + extra]) continue;
    child = b.op("aten::slice.Tensor", {child, Expr(static_cast<int64_t>(d)), Expr(0), Expr(1), Expr(1)});
  }
  return child;
}

/// Members of a split: result k covers [start, start + its size) of the dim.
ValueId unsplit(Builder& b, const Node& step, int64_t dim, size_t result, ValueId parent, ValueId child) {
  const auto at = static_cast<size_t>(wrap(dim, b.type(parent).rank()));
  Expr start = 0;
  for (size_t k = 0; k < result; ++k) start += b.graph()[step.outputs[k]].type.sizes[at];
  const Expr end = start + b.graph()[step.outputs[result]].type.sizes[at];
  return b.op("aten::slice_scatter", {parent, child, Expr(static_cast<int64_t>(at)), start, end, Expr(1)});
}

/// Any other view, by its place in the parent as a row-major tensor.
ValueId scatter_strided(Builder& b, const NodeView& step, size_t result, ValueId parent, ValueId child) {
  if (!ir::is_contiguous(b.type(parent))) parent = b.op("aten::clone", {parent, ir::MemoryFormat::kContiguous});
  const TensorType& type = b.type(parent);
  ir::ViewLayout layout;
  const ir::ViewLayout input{type.sizes, ir::contiguous_strides_of(type.sizes), 0};
  if (b.type(parent).dtype != b.type(child).dtype) {  // positions count elements of one dtype
    b.fail(Status(Code::kUnsupported, str_cat("write through a view made by ", step.op().name, " with another dtype")));
    return {};
  }
  if (step.op().def.view == nullptr || !step.op().def.view(step, input, result, &layout)) {
    b.fail(Status(Code::kUnsupported, str_cat("write through a view made by ", step.op().name)));
    return {};
  }
  return b.op("pteron::as_strided_scatter", {parent, child, layout.sizes, layout.strides, layout.offset});  // positions count row-major elements
}

}  // namespace

ValueId invert_view(Builder& b, const Node& step, size_t result, ValueId parent, ValueId child) {
  const ir::Op& op = view_op(*step.op);
  std::vector<Arg> args = step.args;
  args[0] = parent;
  const NodeView view(b.graph(), op, args);
  std::string_view name = op.schema.name;
  if (name.starts_with("aten::")) name.remove_prefix(6);
  const int rank = b.type(parent).rank();
  if (op.has(ir::kAlias)) return child;
  if (name == "view" && op.schema.overload == "dtype") return b.op("aten::view.dtype", {child, b.type(parent).dtype});
  if (is_one_of(name, {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "resize"})) {
    return reshape_back(b, parent, child);
  }
  if (is_one_of(name, {"t", "T", "H", "numpy_T", "matrix_H", "mT", "mH", "adjoint"})) {
    // Their own inverses. T of more than two dims reverses all of them.
    return rank < 2 ? child : b.op(op.name, {child});
  }
  if (is_one_of(name, {"movedim", "moveaxis"})) return b.op(op.name, {child, view.arg("destination"), view.arg("source")});
  if (is_one_of(name, {"swapaxes", "swapdims"})) return b.op(op.name, {child, args[1], args[2]});
  if (name == "narrow") {
    const Expr start = view.expr("start"), length = view.expr("length");
    const Expr size = b.type(parent).sizes[static_cast<size_t>(wrap(view.integer("dim"), rank))];
    const Expr from = start.is_const() && start.value() < 0 ? start + size : start;
    return b.op("aten::slice_scatter", {parent, child, view.expr("dim"), from, from + length, Expr(1)});
  }
  if (is_one_of(name, {"hsplit", "vsplit", "dsplit", "tensor_split"})) {
    const int64_t dim = name == "tensor_split" ? view.integer("dim") : name == "vsplit" ? 0 : name == "dsplit" ? 2 : rank == 1 ? 0 : 1;
    return unsplit(b, step, dim, result, parent, child);
  }
  if (name == "transpose") return b.op("aten::transpose.int", {child, view.expr("dim0"), view.expr("dim1")});
  if (name == "permute") return unpermute(b, view, rank, child);
  if (is_one_of(name, {"expand", "expand_as", "broadcast_to"})) return unexpand(b, parent, child);
  if (name == "slice") {
    return b.op("aten::slice_scatter", {parent, child, view.expr("dim"), view.arg("start"), view.arg("end"), view.expr("step")});
  }
  if (name == "select") return b.op("aten::select_scatter", {parent, child, view.expr("dim"), view.expr("index")});
  if (name == "diagonal") return b.op("aten::diagonal_scatter", {parent, child, view.expr("offset"), view.expr("dim1"), view.expr("dim2")});
  if (name == "as_strided") {
    return b.op("aten::as_strided_scatter", {parent, child, view.exprs("size"), view.exprs("stride"), view.arg("storage_offset")});
  }
  if (name == "unbind") {
    return b.op("aten::select_scatter", {parent, child, view.expr("dim"), Expr(static_cast<int64_t>(result))});
  }
  if (is_one_of(name, {"split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes"})) {
    return unsplit(b, step, view.integer("dim"), result, parent, child);
  }
  if (is_lazy_view(op)) return is_complex(b.type(parent).dtype) ? b.op(op.name, {child}) : child;
  if (name == "view_as_real") return b.op("aten::view_as_complex", {child});
  if (name == "view_as_complex") return b.op("aten::view_as_real", {child});
  if (name == "real" || name == "imag") {
    if (!is_complex(b.type(parent).dtype)) return child;
    const ValueId parts = b.op("aten::view_as_real", {parent});
    return b.op("aten::view_as_complex", {b.op("aten::select_scatter", {parts, child, Expr(-1), Expr(name == "imag" ? 1 : 0)})});
  }
  return scatter_strided(b, view, result, parent, child);
}

}  // namespace pteron::passes
