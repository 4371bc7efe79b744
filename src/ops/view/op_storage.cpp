// as_strided, as_strided_scatter and resize in terms of row-major tensors that stand for the storage.
#include <algorithm>

#include "ops/view/storage.h"

namespace pteron::ops::view {

namespace {

using ir::Builder;
using Ids = std::vector<ValueId>;

/// A value that owns its storage, and where a view of it starts.
struct Origin {
  ValueId value;
  Expr offset = 0;
};

/// Follows view ops up from `value` to the tensor whose memory PyTorch shares with it.
Origin origin_of(const ir::Graph& graph, ValueId value) {
  std::vector<std::pair<const ir::Node*, size_t>> chain;
  ValueId at = value;
  for (;;) {
    const ir::NodeId producer = graph[at].producer;
    if (!producer.valid()) break;
    const ir::Node& node = graph[producer];
    const auto* source = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (!node.op->is_view() || source == nullptr || graph[*source].type.dtype != graph[at].type.dtype) break;
    const auto position = std::find(node.outputs.begin(), node.outputs.end(), at);
    chain.emplace_back(&node, static_cast<size_t>(position - node.outputs.begin()));
    at = *source;
  }
  Origin origin{at, 0};
  ir::ViewLayout layout{graph[at].type.sizes, graph[at].type.strides, 0};
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const auto& [node, result] = *it;
    const NodeView view(graph, *node->op, node->args);
    ir::ViewLayout out;
    if (node->op->def.view(view, layout, result, &out)) {
      layout = std::move(out);
      continue;
    }
    origin.value = node->outputs[result];
    layout = {graph[origin.value].type.sizes, graph[origin.value].type.strides, 0};
  }
  origin.offset = layout.offset;
  return origin;
}

bool has_row_major_type(const TensorType& type) { return ir::is_contiguous(type); }

/// The storage behind a tensor as a row-major tensor of rank 1 (elements that the tensor does not cover are 0).
ValueId storage_of(Builder& b, ValueId tensor) {
  const TensorType type = b.type(tensor);
  if (has_row_major_type(type)) return tensor;
  Expr extent = 1;
  for (size_t d = 0; d < type.sizes.size(); ++d) extent = extent + (type.sizes[d] - Expr(1)) * type.strides[d];
  const ValueId zeros = b.op("aten::full", {std::vector<Expr>{extent}, Expr(0), type.dtype, {}, {}, {}});
  return b.op("pteron::as_strided_scatter", {zeros, tensor, type.sizes, type.strides, Expr(0)});
}

}  // namespace

Ids decompose_as_strided(Builder& b, const NodeView& n) {
  const Origin origin = origin_of(b.graph(), n.value("self"));
  const ValueId storage = storage_of(b, origin.value);
  return {b.op("pteron::as_strided", {storage, n.exprs("size"), n.exprs("stride"), n.expr("storage_offset", origin.offset)})};
}

Status infer_as_strided_scatter(InferContext& c) {
  c.add(c.type("self"));
  return ok_status();
}

Ids decompose_as_strided_scatter(Builder& b, const NodeView& n) {
  const TensorType self = n.type("self");
  const ValueId storage = storage_of(b, n.value("self"));
  const ValueId written = b.op("pteron::as_strided_scatter", {storage, n.value("src"), n.exprs("size"), n.exprs("stride"), n.expr("storage_offset", 0)});
  if (has_row_major_type(self)) return {written};
  return {b.op("pteron::as_strided", {written, self.sizes, self.strides, Expr(0)})};
}

Status infer_resize(InferContext& c) {
  c.add(c.type("self").dtype, c.NodeView::exprs("size"));
  return ok_status();
}

Status infer_resize_as(InferContext& c) {
  c.add(c.type("self").dtype, c.type("the_template").sizes);
  return ok_status();
}

namespace {

/// The first elements of the storage in a new shape; elements beyond the old ones are undefined in PyTorch and 0 here.
Ids resized(Builder& b, ValueId self, std::vector<Expr> sizes) {
  const TensorType type = b.type(self);
  if (type.sizes == sizes) return {self};
  const Expr have = ir::numel_of(type.sizes), want = ir::numel_of(sizes);
  if (!b.status().ok()) return {};
  ValueId flat = view_to(b, storage_of(b, self), {has_row_major_type(type) ? have : Expr(-1)});
  if (!has_row_major_type(type) || !(have == want)) {
    if (!b.status().ok()) return {};
    const Expr rest = dim_max(want - b.type(flat).sizes.at(0), Expr(0));
    if (!dim_is(rest, 0)) {
      const ValueId zeros = b.op("aten::full", {std::vector<Expr>{rest}, Expr(0), type.dtype, {}, {}, {}});
      flat = b.op("aten::cat", {std::vector<ValueId>{flat, zeros}, Expr(0)});
    }
    flat = slice_to(b, flat, 0, 0, want);
  }
  return {view_to(b, flat, std::move(sizes))};
}

}  // namespace

Ids decompose_resize(Builder& b, const NodeView& n) { return resized(b, n.value("self"), n.exprs("size")); }
Ids decompose_resize_as(Builder& b, const NodeView& n) { return resized(b, n.value("self"), n.type("the_template").sizes); }

}  // namespace pteron::ops::view
