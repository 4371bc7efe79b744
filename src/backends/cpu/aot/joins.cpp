// Concatenations of neighbouring parts: what split or chunk took apart and aten::cat puts together again, with more behind it, is the tensor itself.
// Its producer can then write straight into the result (src/emit/in_place.cpp).
#include <algorithm>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"

namespace pteron::cpu {
namespace {

using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::ValueId;
using ir::ViewLayout;

/// The value that `part` is a view of, and where it lies in it if that is row-major; invalid if it is no such view.
ValueId base_of(const Graph& graph, ValueId part, ViewLayout* layout) {
  const Node* node = producer_of(graph, part);
  if (node == nullptr || !node->op->is_view() || node->args.empty()) return {};
  const auto* base = std::get_if<ValueId>(&node->args[0]);
  if (base == nullptr || !base->valid()) return {};
  const ir::TensorType &from = graph[*base].type, &to = graph[part].type;
  if (!from.is_static() || !to.is_static() || from.dtype != to.dtype || from.sizes.size() != to.sizes.size()) return {};
  const ViewLayout whole{from.sizes, ir::contiguous_type(from.dtype, from.sizes).strides, 0};
  size_t result = 0;
  while (node->outputs[result] != part) ++result;
  return node->op->def.view(ir::NodeView(graph, *node->op, node->args), whole, result, layout) ? *base : ValueId();
}

/// How many of `parts` from `first` on are, one behind the other along `dim`, one tensor; that tensor. 0 if they are none.
size_t whole_tensor(const Graph& graph, std::span<const ValueId> parts, size_t first, size_t dim, ValueId* whole) {
  ViewLayout layout;
  *whole = base_of(graph, parts[first], &layout);
  if (!whole->valid()) return 0;
  const ir::TensorType& type = graph[*whole].type;
  const std::vector<Expr> strides = ir::contiguous_type(type.dtype, type.sizes).strides;
  int64_t joined = 0;
  for (size_t i = first; i < parts.size(); ++i) {
    if (i != first && base_of(graph, parts[i], &layout) != *whole) return 0;
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      if (!(layout.strides[d] == strides[d]) || (d != dim && !(layout.sizes[d] == type.sizes[d]))) return 0;
    }
    if (!(layout.offset == Expr(joined) * strides[dim])) return 0;
    joined += layout.sizes[dim].value();
    if (joined == type.sizes[dim].value()) return i + 1 - first;
  }
  return 0;
}

}  // namespace

Result<bool> join_parts(Graph& graph, const ir::Catalog& catalog) {
  return ir::rewrite(graph, catalog, [&](ir::Builder& builder, ir::NodeId id, std::vector<ValueId>& replacements) -> Result<ir::Rewrite> {
    const Node& node = graph[id];
    if (node.op->name != "aten::cat") return ir::Rewrite::kKeep;
    const ir::NodeView view(graph, *node.op, node.args);
    const std::vector<ValueId> parts = view.values("tensors");
    const ir::TensorType type = graph[node.outputs[0]].type;
    if (!view.expr("dim").is_const()) return ir::Rewrite::kKeep;
    const auto rank = static_cast<int64_t>(type.sizes.size());
    const int64_t dim = view.integer("dim") < 0 ? view.integer("dim") + rank : view.integer("dim");
    if (dim < 0 || dim >= rank) return ir::Rewrite::kKeep;
    std::vector<ValueId> joined;
    for (size_t i = 0; i < parts.size();) {
      ValueId whole;
      const bool alike = graph[parts[i]].type.dtype == type.dtype && graph[parts[i]].type.rank() == type.rank();
      const size_t count = alike ? whole_tensor(graph, parts, i, static_cast<size_t>(dim), &whole) : 0;
      joined.push_back(count != 0 ? whole : parts[i]);
      i += std::max<size_t>(count, 1);
    }
    if (joined.size() == parts.size()) return ir::Rewrite::kKeep;
    ValueId made = joined[0];
    if (joined.size() > 1) made = add_node(builder, catalog, "aten::cat", {std::move(joined), Expr(dim)});
    if (!made.valid() || graph[made].type.sizes != type.sizes || graph[made].type.dtype != type.dtype) return ir::Rewrite::kKeep;
    replacements = {made};
    return ir::Rewrite::kReplace;
  });
}

}  // namespace pteron::cpu
