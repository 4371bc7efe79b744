// Which copies of MaybeAlias and their arguments show a write of each other, and the checks that keep the sizes away from one there.
#include "passes/size_checks.h"

#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/str_cat.h"
#include "ir/builder.h"
#include "ir/places.h"
#include "passes/alias_ops.h"

namespace pteron::passes {

using ir::Builder;
using ir::Catalog;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

class SizeChecks {
 public:
  SizeChecks(Graph& graph, const Catalog& catalog, std::span<const MaybeAlias> pairs) : graph_(graph), catalog_(catalog), pairs_(pairs) {}

  Status run() {
    scan();
    std::vector<std::pair<size_t, Expr>> checks;  // position of the copy, symbol
    for (const MaybeAlias& pair : pairs_) {
      const ir::NodeId node = graph_[pair.copy].producer;
      const auto at = position_.find(node.index);
      if (at == position_.end() || !shows_write(group_of(pair.copy))) continue;
      for (const Expr symbol : pair.sizes) checks.emplace_back(at->second, symbol);
    }
    return insert(checks);
  }

 private:
  struct Tensor {
    size_t made = 0;       ///< position + 1 of its node; 0: there from the start
    size_t last_use = 0;   ///< position + 1
    std::vector<size_t> writes;
  };

  void scan() {
    root_.resize(graph_.values.size());
    for (uint32_t i = 0; i < root_.size(); ++i) root_[i] = i;
    for (size_t p = 0; p < graph_.order.size(); ++p) {
      const Node& node = graph_[graph_.order[p]];
      position_.emplace(graph_.order[p].index, p);
      ir::for_each_use(node, [&](ValueId id) { tensors_[root_[id.index]].last_use = p + 1; });
      const Effect effect = effect_of(node);
      const size_t target_at = node.op->functional != nullptr ? written_argument(*node.op) : 0;
      const auto* target = target_at < node.args.size() ? std::get_if<ValueId>(&node.args[target_at]) : nullptr;
      for (const ValueId out : node.outputs) {
        if (target != nullptr && (effect == Effect::kView || effect == Effect::kWrite)) root_[out.index] = root_[target->index];
        if (root_[out.index] == out.index) tensors_[out.index].made = p + 1;
      }
      if (target != nullptr && effect == Effect::kWrite) tensors_[root_[target->index]].writes.push_back(p + 1);
    }
    ir::for_each_result(graph_, [&](ValueId& id) {
      if (id.valid()) tensors_[root_[id.index]].last_use = graph_.order.size() + 1;
    });
    group_.resize(root_.size());
    for (uint32_t i = 0; i < group_.size(); ++i) group_[i] = i;
    for (const MaybeAlias& pair : pairs_) {
      const ir::NodeId producer = graph_[pair.copy].producer;
      if (position_.count(producer.index) == 0) continue;
      group_[find(root_[pair.copy.index])] = find(root_[std::get<ValueId>(graph_[producer].args[0]).index]);
    }
  }

  uint32_t find(uint32_t i) const {
    while (group_[i] != i) i = group_[i];
    return i;
  }
  uint32_t group_of(ValueId id) const { return find(root_[id.index]); }

  /// Some tensor of the group is written, and another one that is there already is seen later.
  bool shows_write(uint32_t group) const {
    for (const auto& [written, tensor] : tensors_) {
      if (find(written) != group) continue;
      for (const size_t at : tensor.writes) {
        for (const auto& [other, seen] : tensors_) {
          if (other == written || find(other) != group || seen.made > at) continue;
          if (seen.last_use > at || seen.made == 0) return true;
        }
      }
    }
    return false;
  }

  Status insert(std::vector<std::pair<size_t, Expr>>& checks) {
    if (checks.empty()) return ok_status();
    std::vector<NodeId> order;
    Builder b(graph_, catalog_, order);
    std::set<const ir::ExprNode*> checked;
    for (size_t p = 0; p < graph_.order.size(); ++p) {
      for (const auto& [at, symbol] : checks) {
        if (at != p || !checked.insert(symbol.node()).second) continue;
        b.set_origin(graph_[graph_.order[p]]);
        const std::string text = str_cat(place_of_symbol(symbol), " is below two: PyTorch makes a tensor there that shares memory with one that is written, the compiled program has a copy; export without that size, or with .clone()");
        const std::array<Expr, 2> args = {Expr(2), symbol};
        b.ops("aten::_assert_scalar", {graph_.program->exprs.make(ir::ExprOp::kLe, args), text});
      }
      order.push_back(graph_.order[p]);
    }
    PTERON_TRY(b.take_status());
    graph_.order = std::move(order);
    return ok_status();
  }

  /// The input's name and dim, in whichever method has it.
  std::string place_of_symbol(Expr symbol) const {
    for (const auto& method : graph_.program->methods) {
      if (std::string place = ir::place_of(symbol, method->graph); !place.empty()) return str_cat(place, " (", ir::to_text(symbol), ")");
    }
    return str_cat("a size (", ir::to_text(symbol), ")");
  }

  Graph& graph_;
  const Catalog& catalog_;
  std::span<const MaybeAlias> pairs_;
  std::unordered_map<uint32_t, size_t> position_;
  std::map<uint32_t, Tensor> tensors_;
  std::vector<uint32_t> root_, group_;
};

}  // namespace

Status check_sizes(Graph& graph, const Catalog& catalog, std::span<const MaybeAlias> pairs) {
  return pairs.empty() ? ok_status() : SizeChecks(graph, catalog, pairs).run();
}

}  // namespace pteron::passes
