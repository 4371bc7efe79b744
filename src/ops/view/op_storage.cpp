// as_strided, as_strided_scatter and resize in terms of row-major tensors that stand for the storage.
#include <algorithm>
#include <numeric>
#include <optional>

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

/// The value whose memory the results of a node share, and the op that computes its view (null: the result is that value itself).
struct Shared {
  ValueId source;
  const ir::Op* view = nullptr;
};

/// Views, aliases, and what in-place operators return; nothing for other nodes.
std::optional<Shared> shared_of(const ir::Node& node) {
  const ir::Op& op = node.op->functional != nullptr ? *node.op->functional : *node.op;
  const auto written = std::find_if(node.op->schema.args.begin(), node.op->schema.args.end(), [](const ir::SchemaArg& arg) { return arg.written; });
  const size_t at = node.op->functional != nullptr && written != node.op->schema.args.end() ? static_cast<size_t>(written - node.op->schema.args.begin()) : 0;
  const auto* source = at < node.args.size() ? std::get_if<ValueId>(&node.args[at]) : nullptr;
  if (source == nullptr || !source->valid()) return std::nullopt;
  if (op.is_view()) return Shared{*source, &op};
  if (op.has(ir::kAlias) || node.op->functional != nullptr) return Shared{*source, nullptr};
  return std::nullopt;
}

/// Follows view ops up from `value` to the tensor whose memory PyTorch shares with it.
Origin origin_of(const ir::Graph& graph, ValueId value) {
  std::vector<std::pair<const ir::Node*, size_t>> chain;
  ValueId at = value;
  for (;;) {
    const ir::NodeId producer = graph[at].producer;
    if (!producer.valid()) break;
    const ir::Node& node = graph[producer];
    const std::optional<Shared> shared = shared_of(node);
    if (!shared || graph[shared->source].type.dtype != graph[at].type.dtype) break;
    const auto position = std::find(node.outputs.begin(), node.outputs.end(), at);
    if (shared->view != nullptr) chain.emplace_back(&node, static_cast<size_t>(position - node.outputs.begin()));
    at = shared->source;
  }
  Origin origin{at, 0};
  ir::ViewLayout layout{graph[at].type.sizes, graph[at].type.strides, 0};
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const auto& [node, result] = *it;
    const ir::Op& op = *shared_of(*node)->view;
    ir::ViewLayout out;
    if (op.def.view(NodeView(graph, op, node->args), layout, result, &out)) {
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

/// The dims of a tensor that covers its memory without gaps, outermost first; nullopt if it has gaps or overlaps.
std::optional<std::vector<int64_t>> dense_order(const TensorType& type) {
  std::vector<int64_t> order(type.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto stride = [&](int64_t d) { return type.strides[static_cast<size_t>(d)]; };
  for (const Expr& s : type.strides) {
    if (!s.is_const()) return std::nullopt;
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return stride(a).value() > stride(b).value(); });
  Expr expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const Expr size = type.sizes[static_cast<size_t>(order[i])];
    if (dim_is(size, 1)) continue;
    if (!(stride(order[i]) == expected)) return std::nullopt;
    expected = expected * size;
  }
  return order;
}

/// The storage behind a tensor as a tensor whose row-major elements it is: a view of it, or, where it has gaps, a copy with 0 in them.
ValueId storage_of(Builder& b, ValueId tensor) {
  const TensorType type = b.type(tensor);
  if (has_row_major_type(type)) return tensor;
  if (const auto order = dense_order(type)) return permute_to(b, tensor, *order);
  Expr extent = 1;
  for (size_t d = 0; d < type.sizes.size(); ++d) extent = extent + (type.sizes[d] - Expr(1)) * type.strides[d];
  const ValueId zeros = b.op("aten::full", {std::vector<Expr>{extent}, Expr(0), type.dtype, {}, {}, {}});
  return b.op("pteron::as_strided_scatter", {zeros, tensor, type.sizes, type.strides, Expr(0)});
}

}  // namespace

namespace {

/// A copy stands for memory with gaps: what is written there must not be lost.
bool loses_writes(Builder& b, const TensorType& origin) {
  if (has_row_major_type(origin) || dense_order(origin)) return false;
  const auto& nodes = b.graph().order;
  return std::any_of(nodes.begin(), nodes.end(), [&](ir::NodeId id) { return b.graph()[id].op->functional != nullptr; });
}

}  // namespace

Status shape_as_strided_elements(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const std::vector<Expr> sizes = n.exprs("size"), strides = n.exprs("stride");
  if (sizes.size() != strides.size() || sizes.size() > kMaxRank) {
    return Status(Code::kInvalidInput, str_cat("as_strided with ", sizes.size(), " sizes and ", strides.size(), " strides"));
  }
  const Expr offset = n.expr("storage_offset", 0), have = ir::numel_of(v.sizes);
  Expr last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) last = last + (sizes[d] - Expr(1)) * strides[d];
  const bool fits = !last.is_const() || !have.is_const() || last.value() < have.value();
  const TensorType actual = type_of(v, DType::kFloat32, {});
  *aliases = ir::is_contiguous(actual) && fits;
  v.sizes = RankList<Expr>(std::span<const Expr>(sizes));
  v.strides = RankList<Expr>(std::span<const Expr>(strides));
  v.offset = v.offset + offset;
  return ok_status();
}

Ids decompose_as_strided(Builder& b, const NodeView& n) {
  const Origin origin = origin_of(b.graph(), n.value("self"));
  if (loses_writes(b, b.type(origin.value))) {
    b.fail(Status(Code::kUnsupported, "as_strided of memory with gaps, in a program that writes in place"));
    return {};
  }
  const ValueId storage = storage_of(b, origin.value);
  return {b.op("pteron::as_strided", {storage, n.exprs("size"), n.exprs("stride"), n.expr("storage_offset", origin.offset)})};
}

Status infer_as_strided_scatter(InferContext& c) {
  c.add(c.type("self"));
  return ok_status();
}

Ids decompose_as_strided_scatter(Builder& b, const NodeView& n) {
  // The offset counts in the memory that PyTorch gave self, which may be a view that starts later.
  const Expr begin = origin_of(b.graph(), n.value("self")).offset;
  const Expr offset = n.is_none("storage_offset") ? Expr(0) : n.expr("storage_offset") - begin;
  const TensorType self = n.type("self");
  const ValueId storage = storage_of(b, n.value("self"));
  const ValueId written = b.op("pteron::as_strided_scatter", {storage, n.value("src"), n.exprs("size"), n.exprs("stride"), offset});
  if (has_row_major_type(self)) return {written};
  if (const auto order = dense_order(self)) {
    std::vector<int64_t> inverse(order->size());
    for (size_t i = 0; i < order->size(); ++i) inverse[static_cast<size_t>((*order)[i])] = static_cast<int64_t>(i);
    return {permute_to(b, written, inverse)};
  }
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
