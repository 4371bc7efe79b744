// Levels, groups, extraction. A node's level counts the changes of backend on the longest path to it; nodes of one backend on one level form
// a group. Edges between groups go to higher levels only, so no cycle can arise.
#include "partition/partition.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/str_cat.h"
#include "emit/emit.h"
#include "ir/op.h"

namespace pteron::partition {

using backends::Backend;
using backends::Support;
using ir::Arg;
using ir::Expr;
using ir::Graph;
using ir::Method;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using ir::ValueKind;

Support ask(const Backend& backend, const Graph& graph, const Node& node) {
  if (node.op->has(ir::kRegion)) return Support::no("control flow");
  if (node.op->has(ir::kEffect)) return Support::no("a run-time check");
  if (node.outputs.empty()) return Support::no("no result");
  for (const ValueId id : node.outputs) {
    if (graph[id].kind != ValueKind::kTensor) return Support::no("a result that is no tensor");
  }
  return backend.supports(graph, node);
}

namespace {

constexpr int kOutside = -1;

/// Calls fn(symbol) for every symbol that a scalar or list argument uses.
template <typename Fn>
void for_each_symbol(const Arg& arg, Fn&& fn) {
  const auto visit = [&](Expr e) {
    if (e.is_const()) return;
    for (const Expr symbol : ir::symbols_in(e)) fn(symbol);
  };
  if (const auto* e = std::get_if<Expr>(&arg)) visit(*e);
  if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
    for (const Expr e : *list) visit(e);
  }
}

template <typename Fn>
void for_each_symbol(const ir::TensorType& type, Fn&& fn) {
  for (const Expr size : type.sizes) {
    if (size.is_const()) continue;
    for (const Expr symbol : ir::symbols_in(size)) fn(symbol);
  }
}

class Partitioner {
 public:
  Partitioner(Method& method, std::span<const Backend* const> backends, uint32_t first_index, PartitionReport& report)
      : graph_(method.graph), backends_(backends), first_index_(first_index), report_(report) {}

  Result<std::vector<Group>> run() {
    choose_owners();
    find_needs();
    find_levels();
    make_groups();
    find_results();
    std::vector<Group> groups;
    std::vector<NodeId> calls(members_.size());
    PTERON_ASSIGN(const ir::Op* op, emit::delegate_op(*graph_.program));
    for (size_t g = 0; g < members_.size(); ++g) {
      if (members_[g].empty()) continue;
      BackendShare& share = report_.shares[static_cast<size_t>(owner_[members_[g][0]])];
      share.nodes += static_cast<uint32_t>(members_[g].size());
      ++share.groups;
      Node call;
      call.op = op;
      groups.push_back(extract(static_cast<int32_t>(g), first_index_ + static_cast<uint32_t>(groups.size()), &call));
      calls[g] = graph_.add_node(std::move(call));
    }
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      if (group_[i] < 0 && !node_at(i).op->is_view() && !node_at(i).op->has(ir::kAlias)) ++report_.nodes_outside;
    }
    graph_.order = sorted(calls);
    return groups;
  }

 private:
  const Node& node_at(uint32_t position) const { return graph_[graph_.order[position]]; }

  void choose_owners() {
    for (const Backend* backend : backends_) report_.shares.push_back({std::string(backend->name()), 0, 0});
    std::map<std::pair<std::string, std::string>, uint32_t> refusals;
    owner_.assign(graph_.order.size(), kOutside);
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      Support last = Support::no("no backend");
      for (size_t b = 0; b < backends_.size() && owner_[i] == kOutside; ++b) {
        last = ask(*backends_[b], graph_, node_at(i));
        if (last.yes) owner_[i] = static_cast<int>(b);
      }
      if (!last.yes) ++refusals[{node_at(i).op->name, last.reason}];
    }
    for (const auto& [key, count] : refusals) report_.refusals.push_back({key.first, key.second, count});
    std::stable_sort(report_.refusals.begin(), report_.refusals.end(), [](const Refusal& a, const Refusal& b) { return a.count > b.count; });
  }

  /// Position of the node that makes a value; nothing for inputs, states and constants.
  const uint32_t* maker(ValueId id) const {
    if (!graph_[id].producer.valid()) return nullptr;
    const auto found = position_of_.find(graph_[id].producer.index);
    return found == position_of_.end() ? nullptr : &found->second;
  }

  /// What each node waits for: makers of its operands, and of the run-time numbers in its arguments and sizes.
  void find_needs() {
    for (uint32_t i = 0; i < graph_.order.size(); ++i) position_of_.emplace(graph_.order[i].index, i);
    std::unordered_set<const ir::ExprNode*> given;
    for (const ir::Input& input : graph_.inputs) {
      if (!input.value.valid()) continue;
      const ir::Value& value = graph_[input.value];
      if (value.kind == ValueKind::kScalar && value.scalar.is_symbol()) given.insert(value.scalar.node());
      if (value.kind == ValueKind::kTensor) for_each_symbol(value.type, [&](Expr s) { given.insert(s.node()); });
    }
    needs_.resize(graph_.order.size());
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      const Node& node = node_at(i);
      std::set<uint32_t> before;
      const auto symbol = [&](Expr s) {
        const auto found = definer_.find(s.node());
        if (found != definer_.end() && found->second != i) before.insert(found->second);
      };
      const auto define = [&](Expr s) {
        if (!given.contains(s.node())) definer_.try_emplace(s.node(), i);
      };
      ir::for_each_use(node, [&](ValueId id) {
        if (const uint32_t* made = maker(id)) before.insert(*made);
        if (graph_[id].kind == ValueKind::kTensor) for_each_symbol(graph_[id].type, symbol);
      });
      for (const Arg& arg : node.args) for_each_symbol(arg, symbol);
      for (const ValueId id : node.outputs) {
        const ir::Value& value = graph_[id];
        if (value.kind == ValueKind::kScalar && value.scalar.is_symbol()) define(value.scalar);
        if (value.kind == ValueKind::kTensor) {
          for_each_symbol(value.type, symbol);
          for_each_symbol(value.type, define);
        }
      }
      needs_[i].assign(before.begin(), before.end());
    }
  }

  void find_levels() {
    level_.assign(graph_.order.size(), 0);
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      for (const uint32_t before : needs_[i]) level_[i] = std::max(level_[i], level_[before] + (owner_[before] == owner_[i] ? 0u : 1u));
    }
  }

  bool reads_something(const std::vector<uint32_t>& positions) const {
    for (const uint32_t position : positions) {
      bool found = false;
      ir::for_each_use(node_at(position), [&](ValueId id) {
        const uint32_t* made = maker(id);
        found = found || (!graph_[id].constant.valid() && (made == nullptr || group_[*made] != group_[position]));
      });
      if (found) return true;
    }
    return false;
  }

  void make_groups() {
    std::map<std::pair<int, uint32_t>, int32_t> index;
    group_.assign(graph_.order.size(), -1);
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      if (owner_[i] == kOutside) continue;
      const auto [found, fresh] = index.emplace(std::pair(owner_[i], level_[i]), static_cast<int32_t>(members_.size()));
      if (fresh) members_.emplace_back();
      group_[i] = found->second;
      members_[static_cast<size_t>(found->second)].push_back(i);
    }
    for (std::vector<uint32_t>& positions : members_) {
      if (reads_something(positions)) continue;
      for (const uint32_t position : positions) group_[position] = -1;
      positions.clear();
    }
  }

  /// Values that leave their group.
  void find_results() {
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      ir::for_each_use(node_at(i), [&](ValueId id) {
        const uint32_t* made = maker(id);
        if (made != nullptr && group_[*made] != group_[i]) leaves_.insert(id.index);
      });
    }
    ir::for_each_result(graph_, [&](ValueId& id) { leaves_.insert(id.index); });
  }

  static void add_input(Graph& graph, std::string name, ValueId value) {
    graph.inputs.emplace_back();
    graph.inputs.back().name = std::move(name);
    graph.inputs.back().value = value;
  }

  Group extract(int32_t index, uint32_t call_index, Node* call) {
    const std::vector<uint32_t>& positions = members_[static_cast<size_t>(index)];
    Group made;
    made.backend = backends_[static_cast<size_t>(owner_[positions[0]])];
    made.method = std::make_unique<Method>(*graph_.program);
    made.method->name = "forward";
    Graph& inner = made.method->graph;
    std::unordered_map<uint32_t, ValueId> inner_of;
    std::vector<ValueId> call_inputs;
    std::unordered_set<const ir::ExprNode*> used, defined;
    const auto note = [&](Expr s) { used.insert(s.node()); };
    const auto map = [&](ValueId id) {
      const auto found = inner_of.find(id.index);
      if (found != inner_of.end()) return found->second;
      const ir::Value& value = graph_[id];
      ValueId to;
      if (value.constant.valid()) {
        to = inner.add_constant(value.constant, value.name);
      } else {
        to = inner.add_tensor(value.type, value.name);
        add_input(inner, value.name, to);
        call_inputs.push_back(id);
        for_each_symbol(value.type, note);
        for (const Expr size : value.type.sizes) {
          if (size.is_symbol()) defined.insert(size.node());
        }
      }
      inner_of.emplace(id.index, to);
      return to;
    };
    for (const uint32_t position : positions) {
      const Node& node = node_at(position);
      Node copy;
      copy.op = node.op;
      copy.args = node.args;
      copy.name = node.name;
      copy.source = node.source;
      copy.module = node.module;
      for (Arg& arg : copy.args) {
        if (const auto* id = std::get_if<ValueId>(&arg); id != nullptr && id->valid() && graph_[*id].kind == ValueKind::kScalar) arg.emplace<Expr>(graph_[*id].scalar);
        ir::for_each_value(arg, std::function<void(ValueId&)>([&](ValueId& id) { id = map(id); }));
        for_each_symbol(arg, note);
      }
      for (const ValueId id : node.outputs) {
        const ValueId to = inner.add_tensor(graph_[id].type, graph_[id].name);
        copy.outputs.push_back(to);
        inner_of.emplace(id.index, to);
        for_each_symbol(graph_[id].type, note);
        if (!leaves_.contains(id.index)) continue;
        inner.outputs.emplace_back(std::in_place_type<ValueId>, to);
        call->outputs.push_back(id);
      }
      inner.order.push_back(inner.add_node(std::move(copy)));
    }
    std::vector<Expr> numbers;
    for (const Expr symbol : graph_.program->exprs.symbols()) {  // in order of creation: the same on every run
      if (!used.contains(symbol.node()) || defined.contains(symbol.node())) continue;
      const auto found = definer_.find(symbol.node());
      if (found != definer_.end() && group_[found->second] == index) continue;
      const ValueId to = inner.add_scalar(symbol, ir::to_text(symbol));
      add_input(inner, ir::to_text(symbol), to);
      numbers.push_back(symbol);
    }
    call->args.emplace_back(std::move(call_inputs));
    call->args.emplace_back(std::move(numbers));
    call->args.emplace_back(Expr(static_cast<int64_t>(call_index)));
    call->name = str_cat("delegate_", call_index);
    return made;
  }

  /// Order of what is left: every unit after what it waits for, else by the last position in it.
  std::vector<NodeId> sorted(const std::vector<NodeId>& calls) const {
    const auto unit_of = [&](uint32_t position) { return group_[position] < 0 ? position : members_[static_cast<size_t>(group_[position])].back(); };
    std::vector<uint32_t> waiting(graph_.order.size(), 0);
    std::vector<std::set<uint32_t>> after(graph_.order.size());
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      for (const uint32_t before : needs_[i]) {
        if (unit_of(before) != unit_of(i) && after[unit_of(before)].insert(unit_of(i)).second) ++waiting[unit_of(i)];
      }
    }
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      if (unit_of(i) == i && waiting[i] == 0) ready.push(i);
    }
    std::vector<NodeId> out;
    while (!ready.empty()) {
      const uint32_t unit = ready.top();
      ready.pop();
      out.push_back(group_[unit] < 0 ? graph_.order[unit] : calls[static_cast<size_t>(group_[unit])]);
      for (const uint32_t next : after[unit]) {
        if (--waiting[next] == 0) ready.push(next);
      }
    }
    return out;
  }

  Graph& graph_;
  std::span<const Backend* const> backends_;
  uint32_t first_index_;
  PartitionReport& report_;
  // By position in the graph's order:
  std::vector<int> owner_;                       // index of the backend, or kOutside
  std::vector<uint32_t> level_;
  std::vector<int32_t> group_;                   // index in members_, -1: outside
  std::vector<std::vector<uint32_t>> needs_;     // positions it waits for
  std::vector<std::vector<uint32_t>> members_;
  std::unordered_map<uint32_t, uint32_t> position_of_;           // NodeId -> position
  std::unordered_map<const ir::ExprNode*, uint32_t> definer_;    // symbol -> position of the node whose results give it
  std::unordered_set<uint32_t> leaves_;                          // ValueIds
};

}  // namespace

Result<std::vector<Group>> partition(Method& method, std::span<const Backend* const> backends, uint32_t first_index, PartitionReport* report) {
  return Partitioner(method, backends, first_index, *report).run();
}

}  // namespace pteron::partition
