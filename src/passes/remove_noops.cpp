// Removal of nodes that compute their argument.
#include <algorithm>
#include <string_view>
#include <vector>

#include "passes/alias_ops.h"
#include "passes/names.h"
#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

namespace {


/// The argument `name` is the constant number `value`.
bool is_constant(const NodeView& view, std::string_view name, double value) {
  if (!view.has(name)) return false;
  const auto* e = std::get_if<Expr>(&view.arg(name));
  return e != nullptr && ir::is_number(*e) && ir::number_of(*e) == value;
}

bool is_identity_permutation(const NodeView& view) {
  const std::vector<int64_t> dims = view.integers("dims");
  const auto rank = static_cast<int64_t>(dims.size());
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t dim = dims[static_cast<size_t>(i)];
    if ((dim < 0 ? dim + rank : dim) != i) return false;
  }
  return true;
}

/// x + 0 is not exact for -0.0; x - 0, x * 1, x / 1 and x ** 1 are.
bool is_exact_identity(std::string_view name, const NodeView& view, DType dtype) {
  const bool integer = is_integral(dtype, false);
  if (name == "sub") return is_constant(view, "other", 0);
  if (name == "add") return integer && is_constant(view, "other", 0);
  if (name == "mul") return is_constant(view, "other", 1);
  if (name == "div") return !integer && is_constant(view, "other", 1) && !view.has("rounding_mode");
  if (name == "pow") return is_constant(view, "exponent", 1);
  if (is_one_of(name, {"floor", "ceil", "round", "trunc"})) return integer;
  if (is_one_of(name, {"real", "conj", "conj_physical", "resolve_conj", "resolve_neg", "positive"})) return !is_complex(dtype);
  return false;
}

bool same_type(const TensorType& a, const TensorType& b) { return a.dtype == b.dtype && a.sizes == b.sizes; }

/// True if result 0 of the node is its argument 0, whose type it shares.
bool is_noop(const Node& node, const NodeView& view, DType dtype) {
  std::string_view name = node.op->schema.name;
  if (node.op->has(ir::kAlias)) return true;
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name == "permute") return is_identity_permutation(view);
  if (name == "slice") return is_constant(view, "step", 1);  // equal sizes: the whole dim
  if (name == "view") return node.op->schema.overload != "dtype";
  if (is_one_of(name, {"clone", "contiguous", "lift_fresh", "lift_fresh_copy", "detach", "alias", "_to_copy", "to", "type_as", "reshape", "_unsafe_view", "expand",
                       "expand_as", "view_as", "reshape_as", "squeeze", "flatten", "broadcast_to", "narrow", "ravel"})) {
    return true;
  }
  if (is_one_of(name, {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})) return !view.boolean("train") || view.number("p", 0.5) == 0;
  if (name == "copy") return false;
  return is_exact_identity(name, view, dtype);
}

/// The tensor that a node may give back: argument 0, or the only part of a cat; null if there is none.
const ValueId* argument_of(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.args.empty() || node.op->functional != nullptr || !node.op->known) return nullptr;
  if (graph[node.outputs[0]].kind != ir::ValueKind::kTensor) return nullptr;
  const auto* id = std::get_if<ValueId>(&node.args[0]);
  if (id != nullptr && id->valid() && graph[*id].kind == ir::ValueKind::kTensor) return id;
  const auto* list = std::get_if<std::vector<ValueId>>(&node.args[0]);
  const bool single_cat = list != nullptr && list->size() == 1 && node.op->schema.name == "aten::cat";
  return single_cat ? &(*list)[0] : nullptr;
}

}  // namespace

Result<bool> remove_noops(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, remove_noops(*region, catalog));
      changed = changed || region_changed;
    }
  }
  PTERON_ASSIGN(const bool removed, ir::rewrite(graph, catalog, [&](Builder&, NodeId id, std::vector<ValueId>& made) -> Result<Rewrite> {
    const Node& node = graph[id];
    const ValueId* argument = argument_of(graph, node);
    if (argument == nullptr) return Rewrite::kKeep;
    const TensorType& from = graph[*argument].type;
    if (!same_type(from, graph[node.outputs[0]].type) || from.device != graph[node.outputs[0]].type.device) return Rewrite::kKeep;
    if (node.op->schema.name != "aten::cat" && !is_noop(node, NodeView(graph, *node.op, node.args), from.dtype)) return Rewrite::kKeep;
    made = {*argument};
    return Rewrite::kReplace;
  }));
  return changed || removed;
}

}  // namespace pteron::passes
