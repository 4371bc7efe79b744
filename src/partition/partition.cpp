// Levels, groups, extraction. A node's level counts the changes of backend on the longest path to it; nodes of one backend on one level form
// a group. Edges between groups go to higher levels only, so no cycle can arise.
#include "partition/partition.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/str_cat.h"
#include "emit/emit.h"
#include "ir/op.h"
#include "partition/cost.h"

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

/// A backend's already: a prebuilt engine.
bool is_claimed(const Node& node) { return node.op->name == emit::kDelegateOp; }

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
    return extract_all();
  }

  Result<std::vector<Group>> run_given(std::span<const GivenGroup> given) {
    find_needs();
    PTERON_TRY(take_given(given));
    drop_constant_groups();
    PTERON_TRY(check_order(given));
    return extract_all();
  }

 private:
  Result<std::vector<Group>> extract_all() {
    report_refusals();
    find_results();
    find_versions();
    std::vector<Group> groups;
    std::vector<NodeId> calls(members_.size());
    PTERON_ASSIGN(const ir::Op* op, emit::delegate_op(*graph_.program));
    for (size_t g = 0; g < members_.size(); ++g) {
      if (members_[g].empty()) continue;
      BackendShare& share = report_.shares[static_cast<size_t>(owner_[members_[g][0]])];
      share.nodes += static_cast<uint32_t>(members_[g].size());
      ++share.groups;
      for (const uint32_t position : members_[g]) share.seconds += cost_of(graph_, node_at(position)).seconds();
      Node call;
      call.op = op;
      groups.push_back(extract(static_cast<int32_t>(g), first_index_ + static_cast<uint32_t>(groups.size()), &call));
      calls[g] = graph_.add_node(std::move(call));
    }
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      if (group_[i] >= 0 || node_at(i).op->is_view() || node_at(i).op->has(ir::kAlias) || is_claimed(node_at(i))) continue;
      ++report_.nodes_outside;
      report_.seconds_outside += cost_of(graph_, node_at(i)).seconds();
    }
    std::vector<NodeId> order;
    for (const uint32_t unit : unit_order()) order.push_back(group_[unit] < 0 ? graph_.order[unit] : calls[static_cast<size_t>(group_[unit])]);
    graph_.order = std::move(order);
    return groups;
  }

  /// Owners and groups as the caller gives them.
  Status take_given(std::span<const GivenGroup> given) {
    owner_.assign(graph_.order.size(), kOutside);
    group_.assign(graph_.order.size(), -1);
    members_.resize(given.size());
    for (size_t g = 0; g < given.size(); ++g) {
      report_.shares.push_back({std::string(given[g].backend->name())});
      for (const NodeId id : given[g].nodes) {
        const auto found = position_of_.find(id.index);
        if (found == position_of_.end()) return Status(Code::kInvalidInput, str_cat("group ", given[g].name, ": node ", id.index, " is not in the method's order"));
        const Node& node = node_at(found->second);
        if (owner_[found->second] != kOutside) {
          return Status(Code::kInvalidInput, str_cat("node ", node.name, " is in group ", given[static_cast<size_t>(owner_[found->second])].name, " and in group ", given[g].name));
        }
        const Support support = ask(*backends_[g], graph_, node);
        if (!support.yes) return Status(Code::kUnsupported, str_cat("group ", given[g].name, ": node ", node.name, ": backend ", backends_[g]->name(), ": ", support.reason));
        owner_[found->second] = static_cast<int>(g);
        group_[found->second] = static_cast<int32_t>(g);
        members_[g].push_back(found->second);
      }
      std::sort(members_[g].begin(), members_[g].end());
    }
    return ok_status();
  }

  /// Errors: kInvalidInput if groups wait for each other.
  Status check_order(std::span<const GivenGroup> given) const {
    std::vector<bool> done(graph_.order.size(), false);
    for (const uint32_t unit : unit_order()) done[unit] = true;
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      if (group_[i] >= 0 && !done[unit_of(i)]) return cycle_of(i, done, given);
    }
    return ok_status();
  }

  /// Something unfinished that an unfinished unit waits for.
  uint32_t waits_for(uint32_t unit, const std::vector<bool>& done) const {
    const std::vector<uint32_t> alone = {unit};
    for (const uint32_t position : group_[unit] < 0 ? alone : members_[static_cast<size_t>(group_[unit])]) {
      for (const uint32_t before : needs_[position]) {
        if (unit_of(before) != unit && !done[unit_of(before)]) return unit_of(before);
      }
    }
    return unit;
  }

  /// Walks backwards through what waits until something comes again: a cycle.
  Status cycle_of(uint32_t start, const std::vector<bool>& done, std::span<const GivenGroup> given) const {
    std::vector<uint32_t> path;
    auto seen = path.end();
    uint32_t unit = unit_of(start);
    while ((seen = std::find(path.begin(), path.end(), unit)) == path.end()) {
      path.push_back(unit);
      unit = waits_for(unit, done);
    }
    path.erase(path.begin(), seen);
    std::vector<std::string> groups, nodes;
    for (const uint32_t u : path) {
      if (group_[u] < 0) {
        nodes.push_back(node_at(u).name);
      } else {
        groups.push_back(given[static_cast<size_t>(group_[u])].name);
      }
    }
    if (groups.size() == 1) return Status(Code::kInvalidInput, str_cat("group ", groups[0], " would wait for itself through ", str_list(nodes)));
    return Status(Code::kInvalidInput, str_cat("groups ", groups[0], " and ", groups[1], " would wait for each other"));
  }

  const Node& node_at(uint32_t position) const { return graph_[graph_.order[position]]; }

  void choose_owners() {
    for (const Backend* backend : backends_) report_.shares.push_back({std::string(backend->name())});
    owner_.assign(graph_.order.size(), kOutside);
    std::vector<std::string> reasons;
    for (uint32_t i = 0; i < graph_.order.size(); ++i) {
      reasons.clear();
      for (size_t b = 0; b < backends_.size() && owner_[i] == kOutside && !is_claimed(node_at(i)); ++b) {
        Support answer = ask(*backends_[b], graph_, node_at(i));
        if (answer.yes) owner_[i] = static_cast<int>(b);
        if (!answer.yes) reasons.push_back(std::move(answer.reason));
      }
      for (size_t b = 0; b < reasons.size(); ++b) note_refusal(b, node_at(i), reasons[b], owner_[i] == kOutside);
    }
  }

  void note_refusal(size_t backend, const Node& node, const std::string& reason, bool outside) {
    Refusal& refusal = refusals_[{backend, node.op->name, reason}];
    if (refusal.count == 0 || (outside && refusal.outside == 0)) refusal.first = node.name;
    ++refusal.count;
    if (outside) ++refusal.outside;
  }

  /// Moves the refusals to the report, by backend and frequency.
  void report_refusals() {
    for (auto& [key, refusal] : refusals_) {
      refusal.backend = std::string(backends_[std::get<0>(key)]->name());
      refusal.op = std::get<1>(key);
      refusal.reason = std::get<2>(key);
    }
    for (size_t b = 0; b < backends_.size(); ++b) {
      const auto begin = static_cast<std::ptrdiff_t>(report_.refusals.size());
      for (auto& [key, refusal] : refusals_) {
        if (std::get<0>(key) == b) report_.refusals.push_back(std::move(refusal));
      }
      std::stable_sort(report_.refusals.begin() + begin, report_.refusals.end(), [](const Refusal& x, const Refusal& y) { return x.count > y.count; });
    }
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
        ++report_.steps;
        if (const uint32_t* made = maker(id)) before.insert(*made);
        if (graph_[id].kind == ValueKind::kTensor) for_each_symbol(graph_[id].type, symbol);
      });
      for (const Arg& arg : node.args) for_each_symbol(arg, symbol);
      for (const ValueId id : node.outputs) {
        const ir::Value& value = graph_[id];
        if (value.kind == ValueKind::kScalar) for_each_symbol(Arg(value.scalar), define);  // a flag is `u0 == 1`, and gives u0
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
      report_.steps += needs_[i].size();
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
    drop_constant_groups();
  }

  void drop_constant_groups() {
    for (std::vector<uint32_t>& positions : members_) {
      if (reads_something(positions)) continue;
      for (const uint32_t position : positions) {
        group_[position] = -1;
        note_refusal(static_cast<size_t>(owner_[position]), node_at(position), "nothing but constants is read: folding makes a constant of it", true);
      }
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

  /// For buffers and mutated inputs: the values that may follow each other in its memory, from the one at the start of a call to the one at
  /// the end, each the in-place operand of the operator that makes the next.
  void find_versions() {
    const auto follow = [&](uint32_t target, ValueId start, ValueId result) {
      if (!result.valid() || start == result) return;
      std::vector<ValueId> chain = {result};
      while (chain.back() != start && graph_[chain.back()].producer.valid()) {
        const Node& node = graph_[graph_[chain.back()].producer];
        const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
        if (self == nullptr || !self->valid() || !(node.op->has(ir::kInPlace) || node.op->has(ir::kAlias)) || !same_type(*self, result)) break;
        chain.push_back(*self);
      }
      if (chain.back() != start) chain = {result, start};
      if (!same_type(start, result)) return;
      for (const ValueId id : chain) {
        if (versions_.contains(id.index)) return;  // buffers that change places
      }
      for (uint32_t i = 0; i < chain.size(); ++i) versions_[chain[i].index] = {target, static_cast<uint32_t>(chain.size()) - i};
    };
    uint32_t target = 0;
    for (const ir::State& state : graph_.states) follow(target++, state.value, state.result);
    for (const ir::InputMutation& mutation : graph_.input_mutations) follow(target++, graph_.inputs[mutation.input].value, mutation.result);
  }

  bool same_type(ValueId a, ValueId b) const {
    const ir::TensorType &x = graph_[a].type, &y = graph_[b].type;
    return x.dtype == y.dtype && x.sizes == y.sizes && ir::is_contiguous(x) && ir::is_contiguous(y);
  }

  /// Results of the group that are later values of something it reads: the group writes them where the old value lies.
  std::vector<Expr> find_updates(const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs, Graph& inner) const {
    struct Ends {
      size_t input = SIZE_MAX, output = SIZE_MAX;
      uint32_t first = 0, last = 0;
    };
    std::map<uint32_t, Ends> ends;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto found = versions_.find(inputs[i].index);
      if (found == versions_.end()) continue;
      Ends& e = ends[found->second.target];
      if (e.input == SIZE_MAX || found->second.age > e.first) e.input = i, e.first = found->second.age;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto found = versions_.find(outputs[i].index);
      if (found == versions_.end()) continue;
      Ends& e = ends[found->second.target];
      if (e.output == SIZE_MAX || found->second.age > e.last) e.output = i, e.last = found->second.age;
    }
    std::vector<Expr> pairs;
    for (const auto& [target, e] : ends) {
      if (e.input == SIZE_MAX || e.output == SIZE_MAX || e.first >= e.last) continue;
      inner.input_mutations.push_back({static_cast<uint32_t>(e.input), std::get<ValueId>(inner.outputs[e.output])});
      pairs.emplace_back(static_cast<int64_t>(e.input));
      pairs.emplace_back(static_cast<int64_t>(e.output));
    }
    return pairs;
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
    std::vector<Expr> used;
    std::unordered_set<const ir::ExprNode*> defined;
    const auto note = [&](Expr s) { used.push_back(s); };
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
    std::sort(used.begin(), used.end(), [](Expr a, Expr b) { return a.node()->id < b.node()->id; });  // in order of creation: the same on every run
    used.erase(std::unique(used.begin(), used.end(), [](Expr a, Expr b) { return a.node() == b.node(); }), used.end());
    report_.steps += used.size() + positions.size();
    for (const Expr symbol : used) {
      if (defined.contains(symbol.node())) continue;
      const auto found = definer_.find(symbol.node());
      if (found != definer_.end() && group_[found->second] == index) continue;
      const ValueId to = inner.add_scalar(symbol, ir::to_text(symbol));
      add_input(inner, ir::to_text(symbol), to);
      numbers.push_back(symbol);
    }
    std::vector<Expr> in_place = find_updates(call_inputs, call->outputs, inner);
    call->args.emplace_back(std::move(call_inputs));
    call->args.emplace_back(std::move(numbers));
    call->args.emplace_back(Expr(static_cast<int64_t>(call_index)));
    call->args.emplace_back(std::move(in_place));
    call->name = str_cat("delegate_", call_index);
    return made;
  }

  /// A node outside, or the last node of a group.
  uint32_t unit_of(uint32_t position) const { return group_[position] < 0 ? position : members_[static_cast<size_t>(group_[position])].back(); }

  /// Order of what is left: every unit after what it waits for, else by the last position in it. Units that wait for each other are missing.
  std::vector<uint32_t> unit_order() const {
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
    std::vector<uint32_t> out;
    while (!ready.empty()) {
      const uint32_t unit = ready.top();
      ready.pop();
      out.push_back(unit);
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
  std::map<std::tuple<size_t, std::string, std::string>, Refusal> refusals_;  // by backend, operator, reason
  // By position in the graph's order:
  std::vector<int> owner_;                       // index of the backend, or kOutside
  std::vector<uint32_t> level_;
  std::vector<int32_t> group_;                   // index in members_, -1: outside
  std::vector<std::vector<uint32_t>> needs_;     // positions it waits for
  std::vector<std::vector<uint32_t>> members_;
  std::unordered_map<uint32_t, uint32_t> position_of_;           // NodeId -> position
  std::unordered_map<const ir::ExprNode*, uint32_t> definer_;    // symbol -> position of the node whose results give it
  std::unordered_set<uint32_t> leaves_;                          // ValueIds
  /// A value of a buffer or mutated input: which one, and how many writes lie before it.
  struct Version {
    uint32_t target = 0, age = 0;
  };
  std::unordered_map<uint32_t, Version> versions_;               // by ValueId
};

}  // namespace

Result<std::vector<Group>> partition(Method& method, std::span<const Backend* const> backends, uint32_t first_index, PartitionReport* report) {
  return Partitioner(method, backends, first_index, *report).run();
}

Result<std::vector<Group>> partition_given(Method& method, std::span<const GivenGroup> given, uint32_t first_index, PartitionReport* report) {
  std::vector<const Backend*> backends;
  for (const GivenGroup& group : given) backends.push_back(group.backend);
  return Partitioner(method, backends, first_index, *report).run_given(given);
}

}  // namespace pteron::partition
