// Where a result may be computed in memory that already has a name: a state or loop carry whose old value nobody reads any more, the slot
// that a branch or an iteration ends in, argument 0 of an operator that may overwrite it, or the concatenation that it becomes part of.
// Everything here only decides; calls are made in method_emitter.cpp.
#include <algorithm>
#include <functional>
#include <numeric>

#include "emit/method_emitter.h"
#include "ir/op.h"
#include "ir/view_layout.h"

namespace pteron::emit {

using ir::Arg;
using ir::Expr;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

namespace {

/// The view whose inverse a scatter is: slice_scatter writes what aten::slice shows.
std::string_view view_of_scatter(std::string_view scatter) {
  if (scatter == "aten::slice_scatter") return "aten::slice.Tensor";
  if (scatter == "aten::select_scatter") return "aten::select.int";
  if (scatter == "aten::diagonal_scatter") return "aten::diagonal";
  return {};
}

constexpr std::string_view kAnyStrides[] = {
#define ANY_STRIDES(name) name,
#include "emit/any_strides.inc"
#undef ANY_STRIDES
};
bool has_any_strides(const ir::Op& op) { return std::ranges::find(kAnyStrides, op.name) != std::end(kAnyStrides); }

/// A value and, for every dim of it, the dim of another tensor that it stands for.
struct Turned {
  ValueId value;
  std::vector<size_t> dims;
};

/// The value that `part` shows with its dims in another order, with dims of `part`; `part` itself in its own order if it is no such view.
Turned turned_value(const ir::Graph& graph, ValueId part) {
  Turned own{part, std::vector<size_t>(graph[part].type.sizes.size())};
  std::iota(own.dims.begin(), own.dims.end(), size_t{0});
  if (!graph[part].producer.valid()) return own;
  const ir::Node& node = graph[graph[part].producer];
  const auto* base = node.op->is_view() && node.outputs.size() == 1 && !node.args.empty() ? std::get_if<ValueId>(&node.args[0]) : nullptr;
  if (base == nullptr || !base->valid()) return own;
  const TensorType& from = graph[*base].type;
  if (!from.is_static() || from.dtype != graph[part].type.dtype || from.sizes.size() != graph[part].type.sizes.size()) return own;
  // Strides by which every dim is known again.
  ViewLayout probe{from.sizes, {}, 0}, shown;
  for (size_t d = 0; d < from.sizes.size(); ++d) probe.strides.push_back(Expr(int64_t{1} << (20 + 2 * d)));
  if (!node.op->def.view(ir::NodeView(graph, *node.op, node.args), probe, 0, &shown) || !(shown.offset == Expr(0))) return own;
  Turned turned{*base, {}};
  for (size_t d = 0; d < from.sizes.size(); ++d) {
    const auto at = std::ranges::find(shown.strides, probe.strides[d]);
    if (at == shown.strides.end()) return own;
    turned.dims.push_back(static_cast<size_t>(at - shown.strides.begin()));
    if (!(shown.sizes[turned.dims[d]] == from.sizes[d])) return own;
  }
  return turned;
}

bool same_layout(const ViewLayout& a, const ViewLayout& b) {
  if (a.sizes != b.sizes || !(a.offset == b.offset)) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (!dim_is(a.sizes[d], 1) && !(a.strides[d] == b.strides[d])) return false;
  }
  return true;
}

}  // namespace

bool same_place(const Placement& a, const Placement& b) { return a.root != kNoRoot && a.root == b.root && same_layout(a.layout, b.layout); }

void MethodEmitter::enter_frame(const ir::Graph& graph) {
  Frame frame;
  frame.first_root = static_cast<uint32_t>(roots_.size());
  for (uint32_t i = 0; i < graph.order.size(); ++i) {
    ir::for_each_use(graph[graph.order[i]], [&](ValueId id) {
      std::vector<uint32_t>& uses = frame.uses[id.index];
      if (uses.empty() || uses.back() != i) uses.push_back(i);
    });
  }
  const auto result = [&](ValueId id) {
    if (id.valid()) frame.uses[id.index].push_back(static_cast<uint32_t>(graph.order.size()));
  };
  for (const Arg& output : graph.outputs) {
    if (const auto* id = std::get_if<ValueId>(&output)) result(*id);
  }
  for (const ir::State& state : graph.states) result(state.result);
  for (const ir::InputMutation& mutation : graph.input_mutations) result(mutation.result);
  frames_.push_back(std::move(frame));
  if (options_.is_payload) find_joins(graph);
}

bool MethodEmitter::takes_any_strides(const ir::Graph& graph, ValueId id) const {
  const Frame& frame = frames_.back();
  const auto uses = frame.uses.find(id.index);
  if (uses == frame.uses.end()) return true;
  return std::ranges::all_of(uses->second, [&](uint32_t use) {
    if (use >= graph.order.size()) return false;  // results of the graph are memory of their own
    const ir::Node& user = graph[graph.order[use]];
    if (!user.op->is_view() && !user.op->has(ir::kAlias)) return has_any_strides(*user.op);
    return std::ranges::all_of(user.outputs, [&](ValueId view) { return takes_any_strides(graph, view); });
  });
}

bool MethodEmitter::may_join(const ir::Graph& graph, ValueId made, const Join& join) const {
  if (!made.valid() || graph[made].kind != ir::ValueKind::kTensor || !graph[made].producer.valid()) return false;
  const TensorType &type = graph[made].type, &whole = graph[join.whole].type;
  if (type.dtype != whole.dtype || !type.is_static() || type.sizes.size() != whole.sizes.size()) return false;
  // A view with a kernel may turn out to be a copy; otherwise it stays where it is.
  const ir::Node& node = graph[graph[made].producer];
  if (node.op->kernel.empty() || node.op->has(ir::kAlias) || node.op->has(ir::kRegion) || node.outputs.size() != 1) return false;
  if (node.op->schema.returns.size() != 1 || node.op->schema.returns[0].type.list) return false;
  const auto uses = frames_.back().uses.find(made.index);
  if (uses == frames_.back().uses.end() || uses->second.back() >= graph.order.size()) return false;
  bool has_gaps = false;  // dims outside of the joined one
  for (size_t d = 0; d < whole.sizes.size(); ++d) has_gaps = has_gaps || (whole.sizes[d].value() != 1 && whole.strides[d].value() > whole.strides[join.dim].value());
  return !has_gaps || (has_any_strides(*node.op) && takes_any_strides(graph, made));
}

void MethodEmitter::find_joins(const ir::Graph& graph) {
  Frame& frame = frames_.back();
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    if (node.op->name != "aten::cat" || node.outputs.size() != 1) continue;
    const ir::NodeView view(graph, *node.op, node.args);
    const TensorType& whole = graph[node.outputs[0]].type;
    const bool is_known = whole.is_static() && whole.strides.size() == whole.sizes.size() && std::ranges::all_of(whole.strides, [](Expr e) { return e.is_const(); });
    if (!is_known || !view.expr("dim").is_const()) continue;
    const auto rank = static_cast<int64_t>(whole.sizes.size());
    const int64_t dim = view.integer("dim") < 0 ? view.integer("dim") + rank : view.integer("dim");
    if (dim < 0 || dim >= rank) continue;
    Join join{node.outputs[0], static_cast<size_t>(dim), 0, {}};
    for (const ValueId part : view.values("tensors")) {
      const TensorType& type = graph[part].type;
      if (type.sizes.size() != whole.sizes.size()) continue;  // an empty list of rank 1
      Turned made = turned_value(graph, part);
      join.dims = std::move(made.dims);
      if (may_join(graph, made.value, join)) frame.joins.try_emplace(made.value.index, join);
      join.start = join.start + type.sizes[join.dim];
    }
  }
}

Result<Placement> MethodEmitter::join_memory(const ir::Graph& graph, ValueId whole) {
  const auto found = frames_.back().joined.find(whole.index);
  if (found != frames_.back().joined.end()) return found->second;
  PTERON_ASSIGN(std::optional<Placement> place, place_in_join(graph, whole));
  if (!place) {
    PTERON_ASSIGN(place, new_planned(graph[whole].type, "its result"));
  }
  frames_.back().joined.emplace(whole.index, *place);
  return *std::move(place);
}

Result<std::optional<Placement>> MethodEmitter::place_in_join(const ir::Graph& graph, ValueId part) {
  Frame& frame = frames_.back();
  const auto own = frame.joined.find(part.index);
  if (own != frame.joined.end()) return std::optional(own->second);
  const auto found = frame.joins.find(part.index);
  if (found == frame.joins.end()) return std::optional<Placement>();
  const Join join = found->second;
  if (frame.wanted.contains(part.index) || frame.wanted.contains(join.whole.index)) return std::optional<Placement>();
  PTERON_ASSIGN(const Placement whole, join_memory(graph, join.whole));
  ViewLayout layout{graph[part].type.sizes, {}, whole.layout.offset + join.start * whole.layout.strides[join.dim]};
  for (const size_t d : join.dims) layout.strides.push_back(whole.layout.strides[d]);
  // Memory with planned parts would not be the caller's, as that of a payload's results is.
  ValueId outermost = join.whole;
  for (auto next = frame.joins.find(outermost.index); next != frame.joins.end(); next = frame.joins.find(outermost.index)) outermost = next->second.whole;
  const bool is_result = frame.uses.contains(outermost.index) && frame.uses.at(outermost.index).back() >= graph.order.size();
  PTERON_ASSIGN(const std::optional<int32_t> value, view_value(whole, layout, graph[part].type, !is_result));
  if (!value) return std::optional<Placement>();
  return std::optional(Placement{whole.root, std::move(layout), *value});
}

void MethodEmitter::bind(ValueId id, Placement place) {
  if (place.root != kNoRoot) frames_.back().members[place.root].push_back(id);
  scopes_.back()[id.index] = std::move(place);
}

bool MethodEmitter::may_overwrite(uint32_t root) const {
  const Frame& frame = frames_.back();
  if (root == kNoRoot || !(roots_[root].planned || roots_[root].lent)) return false;
  if (frame.owned.contains(root)) return true;
  if (roots_[root].writable_input) return frames_.size() == 1;
  return root >= frame.first_root && !roots_[root].persistent && !roots_[root].before_call;  // callers may keep an input set
}

std::optional<ViewLayout> MethodEmitter::scatter_layout(const ir::Graph& graph, const ir::Node& node, const ViewLayout& parent) const {
  const ir::Op* view = options_.catalog == nullptr ? nullptr : options_.catalog->find(view_of_scatter(node.op->name));
  if (view == nullptr || !view->is_view()) return std::nullopt;
  std::vector<Arg> args = node.args;
  args.erase(args.begin() + 1);
  if (args.size() != view->schema.args.size()) return std::nullopt;
  ViewLayout layout;
  if (!view->def.view(ir::NodeView(graph, *view, args), parent, 0, &layout)) return std::nullopt;
  return layout;
}

bool MethodEmitter::is_dead_after(const ir::Graph& graph, uint32_t root, ValueId made, const ViewLayout& where) const {
  const Frame& frame = frames_.back();
  const auto found = frame.members.find(root);
  if (found == frame.members.end()) return true;
  std::vector<uint32_t> pending;
  for (const ValueId member : found->second) {
    const auto at = scopes_.back().find(member.index);
    if (at == scopes_.back().end() || at->second.root != root) continue;  // it has a copy of its own now
    const auto uses = frame.uses.find(member.index);
    if (uses == frame.uses.end()) continue;
    for (const uint32_t use : uses->second) {
      if (use > frame.position) pending.push_back(use);
    }
  }
  if (pending.empty()) return true;
  std::sort(pending.begin(), pending.end());
  if (pending.back() >= graph.order.size() || !made.valid()) return false;
  // What is left may only put the new value back into the place that it already has: slice_scatter(old, made, ...).
  std::unordered_map<uint32_t, ViewLayout> fresh = {{made.index, where}};
  size_t next = 0;
  for (uint32_t i = frame.position + 1; i <= pending.back(); ++i) {
    const ir::Node& node = graph[graph.order[i]];
    const bool is_use = next < pending.size() && pending[next] == i;
    while (next < pending.size() && pending[next] == i) ++next;
    const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (self == nullptr) {
      if (is_use) return false;
      continue;
    }
    if (!is_use) {
      const auto from = fresh.find(self->index);
      ViewLayout layout;
      const bool passes_on = from != fresh.end() && node.op->is_view() && node.outputs.size() == 1 &&
                             graph[node.outputs[0]].type.dtype == graph[*self].type.dtype &&
                             node.op->def.view(ir::NodeView(graph, *node.op, node.args), from->second, 0, &layout);
      if (passes_on) fresh.emplace(node.outputs[0].index, std::move(layout));
      continue;
    }
    const auto place = scopes_.back().find(self->index);
    const auto* child = node.args.size() < 2 ? nullptr : std::get_if<ValueId>(&node.args[1]);
    const auto from = child == nullptr ? fresh.end() : fresh.find(child->index);
    if (place == scopes_.back().end() || place->second.root != root || from == fresh.end()) return false;
    const std::optional<ViewLayout> layout = scatter_layout(graph, node, place->second.layout);
    if (!layout || !same_layout(*layout, from->second)) return false;
    fresh.emplace(node.outputs[0].index, place->second.layout);
  }
  return true;
}

std::optional<Placement> MethodEmitter::joined_already(const ir::Graph& graph, const ir::Node& node) const {
  const Frame& frame = frames_.back();
  const auto whole = node.outputs.empty() ? frame.joined.end() : frame.joined.find(node.outputs[0].index);
  const auto* parts = node.args.empty() ? nullptr : std::get_if<std::vector<ValueId>>(&node.args[0]);
  if (whole == frame.joined.end() || parts == nullptr) return std::nullopt;
  const Placement& place = whole->second;
  const auto rank = static_cast<int64_t>(place.layout.sizes.size());
  const int64_t dim = ir::NodeView(graph, *node.op, node.args).integer("dim");
  const auto d = static_cast<size_t>(dim < 0 ? dim + rank : dim);
  Expr start = 0;
  for (const ValueId part : *parts) {
    const auto at = scopes_.back().find(part.index);
    if (at == scopes_.back().end() || at->second.root != place.root) return std::nullopt;
    const ViewLayout wanted{graph[part].type.sizes, place.layout.strides, place.layout.offset + start * place.layout.strides[d]};
    if (wanted.sizes.size() != wanted.strides.size() || !same_layout(at->second.layout, wanted)) return std::nullopt;
    start = start + wanted.sizes[d];
  }
  return place;
}

bool MethodEmitter::reads_root(const ir::Graph& graph, const ir::Node& node, uint32_t root, size_t first_arg) const {
  bool reads = false;
  for (size_t i = first_arg; i < node.args.size(); ++i) {
    ir::for_each_value(node.args[i], std::function<void(ValueId)>([&](ValueId id) {
                         const auto at = scopes_.back().find(id.index);
                         reads = reads || (at != scopes_.back().end() && graph[id].kind == ir::ValueKind::kTensor && at->second.root == root);
                       }));
  }
  return reads;
}

std::optional<Placement> MethodEmitter::place_in_argument(const ir::Graph& graph, const ir::Node& node) const {
  // The official kernels are not made for it; their one in-place kernel, aten::index_put_, refuses values that broadcast.
  if (!node.op->has(ir::kInPlace) || node.outputs.size() != 1 || options_.profile != Profile::kPteron) return std::nullopt;
  const auto* self = std::get_if<ValueId>(&node.args[0]);
  if (self == nullptr || !self->valid()) return std::nullopt;
  const auto at = scopes_.back().find(self->index);
  if (at == scopes_.back().end() || !may_overwrite(at->second.root)) return std::nullopt;
  const Placement& place = at->second;
  const TensorType& from = graph[*self].type;
  const TensorType& to = graph[node.outputs[0]].type;
  if (from.dtype != to.dtype || from.sizes != to.sizes || !ir::is_one_to_one(place.layout)) return std::nullopt;
  if (reads_root(graph, node, place.root, 1) || !is_dead_after(graph, place.root, node.outputs[0], place.layout)) return std::nullopt;
  return place;
}

std::optional<Placement> MethodEmitter::place_in_target(const ir::Graph& graph, const ir::Node& node, ValueId out) const {
  const auto wanted = frames_.back().wanted.find(out.index);
  if (wanted == frames_.back().wanted.end()) return std::nullopt;
  const Placement& place = wanted->second;
  const TensorType& type = graph[out].type;
  const auto& spec = std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(place.value)]);
  if (type.dtype != spec.dtype || type.sizes != place.layout.sizes || !(type.device == spec.device)) return std::nullopt;
  if (reads_root(graph, node, place.root, 0) || !is_dead_after(graph, place.root)) return std::nullopt;
  return place;
}

std::optional<Placement> MethodEmitter::scattered_already(const ir::Graph& graph, const ir::Node& node) const {
  if (view_of_scatter(node.op->name).empty()) return std::nullopt;
  const auto* parent = std::get_if<ValueId>(&node.args[0]);
  const auto* child = std::get_if<ValueId>(&node.args[1]);
  if (parent == nullptr || child == nullptr) return std::nullopt;
  const auto p = scopes_.back().find(parent->index), c = scopes_.back().find(child->index);
  if (p == scopes_.back().end() || c == scopes_.back().end() || p->second.root == kNoRoot || p->second.root != c->second.root) return std::nullopt;
  const std::optional<ViewLayout> layout = scatter_layout(graph, node, p->second.layout);
  if (!layout || !same_layout(*layout, c->second.layout)) return std::nullopt;
  return p->second;
}

void MethodEmitter::want(const Arg& result, const Placement& target) {
  const auto* id = std::get_if<ValueId>(&result);
  if (id == nullptr || !id->valid() || target.root == kNoRoot) return;
  frames_.back().wanted.try_emplace(id->index, target);
}

}  // namespace pteron::emit
