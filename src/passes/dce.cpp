// Dead code elimination, backwards over the order. Nodes that define a symbol (item, nonzero) live while the symbol is used.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "passes/alias_ops.h"
#include "passes/passes.h"

namespace pteron::passes {

using ir::Arg;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

class Liveness {
 public:
  explicit Liveness(const Graph& graph) : graph_(graph), live_(graph.values.size(), false) {}

  void use(const Arg& arg) {
    ir::for_each_value(arg, std::function<void(ValueId)>([&](ValueId id) { use(id); }));
    if (const auto* e = std::get_if<Expr>(&arg)) use(*e);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      for (const Expr& e : *list) use(e);
    }
  }

  void use(ValueId id) {
    if (!id.valid() || live_[id.index]) return;
    live_[id.index] = true;
    const ir::Value& value = graph_[id];
    if (value.kind == ir::ValueKind::kScalar) use(value.scalar);
    for (const Expr& size : value.type.sizes) use(size);
  }

  void use(Expr e) {
    if (e.is_const()) return;
    for (const Expr& symbol : ir::symbols_in(e)) symbols_.insert(symbol.node());
  }

  /// Everything a region needs from outside: symbols of its arguments.
  void use_region(const Graph& region) {
    for (const NodeId id : region.order) {
      for (const Arg& arg : region[id].args) use_exprs(arg);
      for (const auto& inner : region[id].regions) use_region(*inner);
    }
    for (const Arg& output : region.outputs) use_exprs(output);
  }

  bool needs(const Node& node) const {
    if (node.op->has(ir::kEffect)) return true;
    if (!node.op->known && node.op->functional == nullptr) return true;  // it may write or check something; it is refused by name later
    const Effect effect = effect_of(node);
    if (effect == Effect::kWrite || effect == Effect::kUnknownWrite) return true;
    for (const ValueId out : node.outputs) {
      if (is_checked_number(node, graph_[out])) return true;
      if (live_[out.index] || defines_live_symbol(node, graph_[out])) return true;
    }
    return false;
  }

 private:
  /// A number read from a tensor whose range or value the export has assumed: the program checks it even if nobody uses it.
  static bool is_checked_number(const Node& node, const ir::Value& out) {
    if (out.kind != ir::ValueKind::kScalar || (node.op->schema.name != "aten::item" && node.op->schema.name != "aten::_local_scalar_dense")) return false;
    if (out.scalar.type() == ir::ExprType::kFloat) return false;
    if (ir::is_number(out.scalar)) return true;
    const ir::Range range = out.scalar.is_symbol() ? ir::bounds(out.scalar) : ir::Range{};
    return range.min != ir::Range::kMin || range.max != ir::Range::kMax;
  }

  void use_exprs(const Arg& arg) {
    if (const auto* e = std::get_if<Expr>(&arg)) use(*e);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      for (const Expr& e : *list) use(e);
    }
  }

  bool is_needed(Expr e) const {
    if (e.is_const()) return false;
    const std::vector<Expr> symbols = ir::symbols_in(e);
    return std::any_of(symbols.begin(), symbols.end(), [&](const Expr& s) { return symbols_.contains(s.node()); });
  }

  bool defines_live_symbol(const Node& node, const ir::Value& out) const {
    if (symbols_.empty()) return false;
    if (out.kind == ir::ValueKind::kScalar) return is_needed(out.scalar);
    if (!node.op->has(ir::kDataDependent)) return false;
    return std::any_of(out.type.sizes.begin(), out.type.sizes.end(), [&](const Expr& e) { return is_needed(e); });
  }

  const Graph& graph_;
  std::vector<bool> live_;
  std::unordered_set<const ir::ExprNode*> symbols_;
};

}  // namespace

Result<bool> dce(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  Liveness liveness(graph);
  for (const Arg& output : graph.outputs) liveness.use(output);
  for (const ir::State& state : graph.states) liveness.use(state.result);
  for (const ir::InputMutation& mutation : graph.input_mutations) liveness.use(mutation.result);
  std::vector<NodeId> kept;
  kept.reserve(graph.order.size());
  for (size_t i = graph.order.size(); i-- > 0;) {
    const NodeId id = graph.order[i];
    const Node& node = graph[id];
    if (!liveness.needs(node)) {
      changed = true;
      continue;
    }
    kept.push_back(id);
    for (const Arg& arg : node.args) liveness.use(arg);
    for (const ValueId out : node.outputs) {
      for (const Expr& size : graph[out].type.sizes) liveness.use(size);
    }
    for (const auto& region : node.regions) {
      PTERON_ASSIGN(const bool region_changed, dce(*region, catalog));
      changed = changed || region_changed;
      liveness.use_region(*region);
    }
  }
  std::reverse(kept.begin(), kept.end());
  graph.order = std::move(kept);
  return changed;
}

}  // namespace pteron::passes
