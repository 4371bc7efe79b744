// What a pass changes: the writing half of GraphEditor. Every edit is checked before the graph is touched, so that a refused one changes nothing.
#include "facade/graph_editor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_set>
#include <utility>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron {

namespace {

using ir::NodeId;
using ir::ValueId;

constexpr size_t kEnd = static_cast<size_t>(-1);

/// The checks that edits of one graph share.
class Edit {
 public:
  explicit Edit(GraphEditor::State& state) : session_(*state.session), graph_(state.graph) {}

  /// The first error of a pass is what its compilation says.
  Status refuse(Status status) {
    if (session_.first_error.ok()) session_.first_error = status;
    return status;
  }
  Status invalid(std::string message) { return refuse(Status(Code::kInvalidInput, std::move(message))); }

  Status check_open() {
    if (session_.open) return ok_status();
    return Status(Code::kInvalidInput, "the graph belongs to a pass that has ended, or to a branch that does not exist");
  }

  std::string name_of(NodeId id) const {
    const ir::Node& node = graph()[id];
    return node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")");
  }

  /// Where the node stands in the order; kEnd if it does not.
  size_t position_of(NodeId id) const {
    const auto at = std::ranges::find(graph().order, id);
    return at == graph().order.end() ? kEnd : static_cast<size_t>(at - graph().order.begin());
  }

  Status find(GraphNode node, size_t* position) {
    *position = node.index < graph().nodes.size() ? position_of(NodeId{node.index}) : kEnd;
    return *position == kEnd ? invalid("a node that the graph does not have, or no longer has") : ok_status();
  }

  /// True if the value can be read by the node at `position`.
  bool is_readable(ValueId id, size_t position) const {
    if (id.index >= graph().values.size()) return false;
    const ir::Value& value = graph()[id];
    if (value.constant.valid()) return true;
    if (value.producer.valid()) return position_of(value.producer) < position;
    const bool is_input = std::ranges::any_of(graph().inputs, [&](const ir::Input& input) { return input.value == id; });
    return is_input || std::ranges::any_of(graph().states, [&](const ir::State& state) { return state.value == id; });
  }

  /// True if the value is computed from a result of `node`.
  bool depends_on(ValueId value, NodeId node) const {
    std::unordered_set<uint32_t> seen;
    std::vector<ValueId> left = {value};
    while (!left.empty()) {
      const NodeId producer = graph()[left.back()].producer;
      left.pop_back();
      if (producer == node) return true;
      if (!producer.valid() || !seen.insert(producer.index).second) continue;
      ir::for_each_use(graph()[producer], [&](ValueId use) { left.push_back(use); });
    }
    return false;
  }

  /// The operator and its arguments, completed and checked against its schema; `who` says which call it is.
  Status prepare(const std::string& who, std::string_view name, std::vector<GraphArgument>& given, size_t position, const ir::Op** op,
                 std::vector<ir::Arg>* args) {
    *op = session_.catalog->find(name);
    if (*op == nullptr) return refuse(Status(Code::kUnsupported, str_cat(who, ": operator ", name, " is not known (pteron ops lists those that are)")));
    const auto& schema = (*op)->schema.args;
    if ((*op)->has(ir::kRegion)) return refuse(Status(Code::kUnsupported, str_cat(who, ": ", name, " is control flow, which a pass cannot make")));
    if (given.size() > schema.size()) {
      return invalid(str_cat(who, ": ", name, " takes ", schema.size(), schema.size() == 1 ? " argument" : " arguments", ", found ", given.size()));
    }
    ir::ExprContext& exprs = graph().program->exprs;
    for (const GraphArgument& argument : given) {
      args->push_back(facade::to_ir(argument, exprs));
      ir::coerce_argument(&args->back(), schema[args->size() - 1].type, exprs);
      PTERON_TRY(check_readable(who, args->back(), position));
    }
    auto completed = ir::complete_args(**op, std::move(*args), exprs);
    if (!completed.ok()) return refuse(std::move(completed).status().with_context(who));
    *args = std::move(completed).value();
    if (Status status = ir::check_arguments(graph(), **op, *args); !status.ok()) return invalid(str_cat(who, ": ", name, ": ", status.message()));
    return ok_status();
  }

  Status check_readable(const std::string& who, const ir::Arg& arg, size_t position) {
    Status status;
    ir::for_each_value(
        arg, std::function<void(ValueId)>([&](ValueId id) {
          if (!status.ok() || is_readable(id, position)) return;
          const bool exists = id.index < graph().values.size();
          const bool later = exists && graph()[id].producer.valid() && position_of(graph()[id].producer) != kEnd;
          status = invalid(later ? str_cat(who, " would read value ", graph()[id].name, ", which ", name_of(graph()[id].producer),
                                           " makes there or later: a cycle, or the wrong place")
                                 : str_cat(who, " would read ",
                                           exists ? str_cat("value ", graph()[id].name, ", whose node is gone") : "a value that the graph does not have"));
        }));
    return status;
  }

  /// Errors: kInvalidInput if `to` cannot stand for `from`.
  Status check_same_type(const std::string& who, ValueId from, const ir::TensorType& to, ir::ValueKind kind) {
    const ir::Value& old = graph()[from];
    if (old.kind == kind && (kind != ir::ValueKind::kTensor || (old.type.dtype == to.dtype && old.type.sizes == to.sizes && old.type.device == to.device)))
      return ok_status();
    const auto say = [](ir::ValueKind k, const ir::TensorType& type) {
      return k == ir::ValueKind::kTensor ? ir::print_type(ir::contiguous_type(type.dtype, type.sizes, type.device))
                                         : std::string(k == ir::ValueKind::kScalar ? "a number" : "nothing");
    };
    return invalid(str_cat(who, ": value ", old.name, " is ", say(old.kind, old.type), ", found ", say(kind, to), " for it"));
  }

  void changed() { session_.changed = true; }
  ir::Graph& graph() const { return *graph_; }
  facade::EditSession& session() { return session_; }

 private:
  facade::EditSession& session_;
  ir::Graph* graph_;
};

}  // namespace

Result<GraphValue> GraphEditor::add_constant(std::string_view name, DType dtype, std::vector<int64_t> sizes, SharedBytes bytes) {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  int64_t numel = 0, total = 0;
  const bool fits = sizes.size() <= static_cast<size_t>(kMaxRank) && is_known_dtype(static_cast<int>(dtype)) && checked_numel(sizes, &numel) &&
                    checked_mul(numel, static_cast<int64_t>(dtype_size(dtype)), &total);
  if (!fits || static_cast<uint64_t>(total) != bytes.bytes.size()) {
    return edit.invalid(str_cat("constant ", name, ": ", bytes.bytes.size(), " bytes are given for sizes ", str_list(sizes), " of ", dtype_name(dtype)));
  }
  if (bytes.owner == nullptr) {
    auto copy = Buffer::create(bytes.bytes.size());
    if (!copy.ok()) return edit.refuse(std::move(copy).status());
    if (!bytes.bytes.empty()) std::memcpy(copy->data(), bytes.bytes.data(), bytes.bytes.size());
    const auto owner = std::make_shared<Buffer>(std::move(copy).value());  // shared: with the constant
    bytes = {owner, owner->span()};
  }
  ir::Constant made;
  made.name = std::string(name);
  made.dtype = dtype;
  for (const ir::Expr stride : ir::contiguous_strides_of(std::vector<ir::Expr>(sizes.begin(), sizes.end()))) made.strides.push_back(stride.value());
  made.sizes = std::move(sizes);
  made.data = bytes.bytes.data();
  made.owner = std::move(bytes.owner);
  ir::Graph& graph = edit.graph();
  return GraphValue{graph.add_constant(graph.program->add(std::move(made)), name).index};
}

Result<std::vector<GraphValue>> GraphEditor::insert(GraphNode before, std::string_view op, std::vector<GraphArgument> arguments, std::string_view name) {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  ir::Graph& graph = edit.graph();
  size_t position = graph.order.size();
  if (before.valid()) PTERON_TRY(edit.find(before, &position));
  const std::string who = str_cat("new node ", name.empty() ? op : name);
  const ir::Op* found = nullptr;
  std::vector<ir::Arg> args;
  PTERON_TRY(edit.prepare(who, op, arguments, position, &found, &args));
  std::string_view short_name = name.empty() ? std::string_view(found->schema.name) : name;
  if (const size_t colon = short_name.rfind(':'); name.empty() && colon != std::string_view::npos) short_name.remove_prefix(colon + 1);
  auto made = ir::make_node(graph, *found, std::move(args), short_name);
  if (!made.ok()) return edit.refuse(std::move(made).status().with_context(who));
  if (position < graph.order.size()) {
    graph[*made].source = graph[graph.order[position]].source;
    graph[*made].module = graph[graph.order[position]].module;
  }
  graph.order.insert(graph.order.begin() + static_cast<std::ptrdiff_t>(position), *made);
  edit.changed();
  std::vector<GraphValue> results;
  for (const ValueId id : graph[*made].outputs) results.push_back(GraphValue(id.index));
  return results;
}

Status GraphEditor::replace(GraphNode node, std::string_view op, std::vector<GraphArgument> arguments) {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  ir::Graph& graph = edit.graph();
  size_t position = 0;
  PTERON_TRY(edit.find(node, &position));
  const NodeId id{node.index};
  const std::string who = edit.name_of(id);
  if (!graph[id].regions.empty()) return edit.invalid(str_cat(who, " is control flow, which a pass cannot replace"));
  const ir::Op* found = nullptr;
  std::vector<ir::Arg> args;
  PTERON_TRY(edit.prepare(who, op, arguments, position, &found, &args));
  if (found == graph[id].op && args == graph[id].args) return ok_status();
  if (found->def.infer == nullptr) return edit.refuse(Status(Code::kUnsupported, str_cat(who, ": ", op, " has no shape inference")));
  ir::InferContext context(graph, *found, args);
  if (Status status = found->def.infer(context); !status.ok()) return edit.refuse(std::move(status).with_context(str_cat(who, ": ", op)));
  const std::vector<ValueId>& outputs = graph[id].outputs;
  if (context.results.size() != outputs.size()) {
    return edit.invalid(str_cat(who, ": ", op, " gives ", context.results.size(), " results, expected ", outputs.size(), " as before"));
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    PTERON_TRY(edit.check_same_type(str_cat(who, ": ", op), outputs[i], context.results[i].type, context.results[i].kind));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (context.results[i].kind == ir::ValueKind::kTensor) graph[outputs[i]].type = std::move(context.results[i].type);
  }
  graph[id].op = found;
  graph[id].args = std::move(args);
  graph[id].refusal.clear();
  edit.changed();
  return ok_status();
}

Status GraphEditor::replace_uses(GraphValue from, GraphValue to, std::span<const GraphNode> except) {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  ir::Graph& graph = edit.graph();
  const ValueId old{from.index}, now{to.index};
  for (const ValueId id : {old, now}) {
    if (!edit.is_readable(id, graph.order.size())) return edit.invalid("replace_uses: a value that the graph does not have, or whose node is gone");
  }
  if (old == now) return ok_status();
  PTERON_TRY(edit.check_same_type(str_cat("replace_uses: value ", graph[now].name), old, graph[now].type, graph[now].kind));
  const auto is_kept = [&](NodeId id) { return std::ranges::find(except, GraphNode{id.index}) != except.end(); };
  std::vector<NodeId> users;
  for (size_t i = 0; i < graph.order.size(); ++i) {
    const NodeId id = graph.order[i];
    bool reads = false;
    ir::for_each_use(graph[id], [&](ValueId use) { reads = reads || use == old; });
    if (!reads || is_kept(id)) continue;
    if (!edit.is_readable(now, i)) {
      const bool cycle = edit.depends_on(now, id);
      return edit.invalid(
          str_cat(edit.name_of(id), " would read value ", graph[now].name, cycle ? ", which is computed from it: a cycle" : ", which is made after it"));
    }
    users.push_back(id);
  }
  const std::function<void(ValueId&)> change = [&](ValueId& use) {
    if (use != old) return;
    use = now;
    edit.changed();
  };
  for (const NodeId id : users) {
    for (ir::Arg& arg : graph[id].args) ir::for_each_value(arg, change);
  }
  ir::for_each_result(graph, change);
  return ok_status();
}

Status GraphEditor::erase(GraphNode node) {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  ir::Graph& graph = edit.graph();
  size_t position = 0;
  PTERON_TRY(edit.find(node, &position));
  const NodeId id{node.index};
  const std::vector<uint32_t> uses = ir::count_uses(graph);
  for (const ValueId out : graph[id].outputs) {
    if (uses[out.index] > 0) {
      const std::vector<GraphNode> readers = users(GraphValue(out.index));
      return edit.invalid(str_cat(edit.name_of(id), " is not erased: its result ", graph[out].name, " is read by ",
                                  readers.empty() ? std::string("the method's results") : edit.name_of({readers[0].index})));
    }
    const bool counts = graph[out].kind == ir::ValueKind::kScalar || graph[id].op->has(ir::kDataDependent);
    if (counts) return edit.invalid(str_cat(edit.name_of(id), " is not erased: sizes or numbers of the program may come from it; erase_dead knows"));
  }
  if (graph[id].op->has(ir::kEffect) || !graph[id].regions.empty())
    return edit.invalid(str_cat(edit.name_of(id), " is not erased: it checks something, or is control flow"));
  graph.order.erase(graph.order.begin() + static_cast<std::ptrdiff_t>(position));
  edit.changed();
  return ok_status();
}

Result<size_t> GraphEditor::erase_dead() {
  Edit edit(*state_);
  PTERON_TRY(edit.check_open());
  const size_t before = edit.graph().order.size();
  auto done = passes::dce(edit.graph(), *edit.session().catalog);
  if (!done.ok()) return edit.refuse(std::move(done).status());
  if (*done) edit.changed();
  return before - edit.graph().order.size();
}

namespace facade {

std::vector<compiler::Transform> transforms_of(std::span<const TransformPass> passes) {
  std::vector<compiler::Transform> out;
  for (const TransformPass& pass : passes) {
    out.push_back({pass.name, pass.method, [run = pass.run](ir::Method& method, const ir::Catalog& catalog) -> Result<bool> {
                     const auto session = std::make_shared<EditSession>();  // shared: by all editors of the pass
                     session->catalog = &catalog;
                     session->method = method.name;
                     GraphEditor editor(std::make_shared<GraphEditor::State>(GraphEditor::State{session, &method.graph}));
                     Status status = run(editor);
                     session->open = false;  // an editor that the pass has kept
                     PTERON_TRY(std::move(session->first_error));
                     PTERON_TRY(std::move(status));
                     return session->changed;
                   }});
  }
  return out;
}

}  // namespace facade

}  // namespace pteron
