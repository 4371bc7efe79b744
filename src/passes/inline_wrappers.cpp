// Inlining of wrap_with_set_grad_enabled and wrap_with_autocast bodies into the graph around them.
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/str_cat.h"
#include "passes/autocast.h"
#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Catalog;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

bool is_autocast(const ir::Op& op) { return op.schema.name == "higher_order::wrap_with_autocast"; }
bool is_wrapper(const ir::Op& op) { return is_autocast(op) || op.schema.name == "higher_order::wrap_with_set_grad_enabled"; }

bool has_wrapper(const Graph& graph) {
  for (const NodeId id : graph.order) {
    if (is_wrapper(*graph[id].op)) return true;
    for (const auto& region : graph[id].regions) {
      if (has_wrapper(*region)) return true;
    }
  }
  return false;
}

/// Replacement of values: what a name of the original graph is now.
using ValueMap = std::unordered_map<uint32_t, Arg>;

class Inliner {
 public:
  Inliner(Graph& graph, const Catalog& catalog) : graph_(graph), builder_(graph, catalog, order_) {}

  Status run() {
    const std::vector<NodeId> old_order = std::move(graph_.order);
    for (const NodeId id : old_order) {
      replace_args(graph_[id], replaced_);
      if (is_wrapper(*graph_[id].op)) {
        PTERON_TRY(inline_node(graph_[id], Autocast{}, replaced_));
        continue;
      }
      for (const auto& region : graph_[id].regions) PTERON_TRY(inline_in_region(*region));
      if (stale_) PTERON_TRY(retype(builder_, graph_[id]));
      order_.push_back(id);
    }
    for (Arg& output : graph_.outputs) replace_arg(output, replaced_);
    for (ir::State& state : graph_.states) replace_id(state.result, replaced_);
    for (ir::InputMutation& mutation : graph_.input_mutations) replace_id(mutation.result, replaced_);
    graph_.order = std::move(order_);
    return ok_status();
  }

 private:
  Status inline_in_region(Graph& region) {
    auto changed = inline_wrappers(region, builder_.catalog());
    return changed.ok() ? ok_status() : std::move(changed).status();
  }

  static void replace_id(ValueId& id, const ValueMap& map) {
    if (!id.valid()) return;
    const auto found = map.find(id.index);
    if (found == map.end()) return;
    if (const auto* value = std::get_if<ValueId>(&found->second)) id = *value;
  }

  static void replace_arg(Arg& arg, const ValueMap& map) {
    if (auto* id = std::get_if<ValueId>(&arg)) {
      const auto found = id->valid() ? map.find(id->index) : map.end();
      if (found != map.end()) arg = Arg(found->second);
    } else if (auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      for (ValueId& id : *list) replace_id(id, map);
    }
  }

  static void replace_args(Node& node, const ValueMap& map) {
    for (Arg& arg : node.args) replace_arg(arg, map);
  }

  /// Operands of a wrapper: every value among its arguments, in order.
  static std::vector<Arg> operands_of(const Node& node) {
    std::vector<Arg> operands;
    for (const Arg& arg : node.args) {
      ir::for_each_value(arg, std::function<void(ValueId)>([&](ValueId id) { operands.emplace_back(id); }));
    }
    return operands;
  }

  Result<Autocast> autocast_of(const Node& node, const Autocast& outer) {
    if (!is_autocast(*node.op)) return outer;
    Autocast state = outer;
    bool has_enabled = false;
    std::string device = "cpu";
    for (const Arg& arg : node.args) {
      if (const auto* text = std::get_if<std::string>(&arg)) device = *text;
      if (const auto* dtype = std::get_if<DType>(&arg)) state.dtype = *dtype;
      if (const auto* e = std::get_if<Expr>(&arg); e != nullptr && !has_enabled && ir::is_number(*e)) {
        state.enabled = ir::number_of(*e) != 0;
        has_enabled = true;
      }
    }
    if (device == "cpu") return state;
    if (!state.enabled) return outer;
    return Status(Code::kUnsupported, str_cat("autocast of device '", device, "'; export with autocast of 'cpu'"));
  }

  /// Inlines a wrapper whose arguments are names of graph_; `results` gets what its outputs are now.
  Status inline_node(Node& node, const Autocast& outer, ValueMap& results) {
    if (node.regions.size() != 1) return Status(Code::kInvalidFile, str_cat(node.op->name, ": expected one body, found ", node.regions.size()));
    PTERON_ASSIGN(const Autocast state, autocast_of(node, outer));
    std::vector<Arg> made;
    PTERON_TRY(inline_body(*node.regions[0], operands_of(node), state, node.module, &made));
    if (made.size() < node.outputs.size()) return Status(Code::kInvalidFile, str_cat(node.op->name, ": the body has too few results"));
    for (size_t k = 0; k < node.outputs.size(); ++k) results[node.outputs[k].index] = made[k];
    return ok_status();
  }

  /// Copies the body's nodes to the end of the new order.
  Status inline_body(Graph& body, const std::vector<Arg>& operands, const Autocast& state, const std::string& module, std::vector<Arg>* results) {
    ValueMap map;
    if (operands.size() < body.inputs.size()) return Status(Code::kInvalidFile, "a wrapper passes fewer operands than its body has inputs");
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (body.inputs[i].value.valid()) map[body.inputs[i].value.index] = operands[i];
    }
    for (uint32_t i = 0; i < body.values.size(); ++i) {
      const ir::Value& value = body.values[i];
      if (value.constant.valid()) map[i] = graph_.add_constant(value.constant, value.name);
    }
    for (const NodeId id : body.order) PTERON_TRY(inline_body_node(body, id, state, module, map));
    *results = body.outputs;
    for (Arg& result : *results) replace_arg(result, map);
    return ok_status();
  }

  /// What the export asserts of a value that autocast may have made of another dtype. PyTorch refuses to run such a program as well.
  Status check_metadata(const Node& node) const {
    const auto* value = std::get_if<ValueId>(&node.args[0]);
    for (const Arg& arg : node.args) {
      const auto* dtype = std::get_if<DType>(&arg);
      if (value == nullptr || dtype == nullptr || graph_[*value].type.dtype == *dtype) continue;
      return Status(Code::kUnsupported, str_cat("the export asserts that '", graph_[*value].name, "' is ", dtype_name(*dtype), ", autocast makes it ", dtype_name(graph_[*value].type.dtype),
                                                ": torch.export lost a conversion there, so its own program fails as well; export with strict=False"));
    }
    return ok_status();
  }

  Status inline_body_node(Graph& body, NodeId id, const Autocast& state, const std::string& module, ValueMap& map) {
    Node node = std::move(body[id]);
    replace_args(node, map);
    if (node.op->schema.name == "aten::_assert_tensor_metadata") {
      Status status = check_metadata(node);
      return status.ok() || node.source.empty() ? std::move(status) : std::move(status).with_context(node.source);
    }
    if (node.module.empty()) node.module = module;
    if (is_wrapper(*node.op)) return inline_node(node, state, map);
    builder_.set_origin(node);
    if (state.enabled && is_cast_inside(graph_, node)) return expand_node(body, node, state, map);
    for (ValueId& out : node.outputs) out = copy_value(body[out], out, map);
    if (state.enabled && !node.regions.empty()) return Status(Code::kUnsupported, str_cat("control flow ", node.op->name, " inside an autocast region"));
    for (const auto& region : node.regions) PTERON_TRY(inline_in_region(*region));
    Status status = apply_autocast(builder_, state, node, &stale_);
    if (!status.ok()) return std::move(status).with_context(node.source.empty() ? node.name : node.source);
    order_.push_back(graph_.add_node(std::move(node)));
    return ok_status();
  }

  /// Puts the operators of a composite in its place, with the casts of each.
  Status expand_node(Graph& body, const Node& node, const Autocast& state, ValueMap& map) {
    auto made = expand_in_autocast(builder_, state, node);
    const auto located = [&](Status status) { return std::move(status).with_context(node.source.empty() ? node.name : node.source); };
    if (!made.ok()) return located(std::move(made).status());
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ir::Value& recorded = body[node.outputs[k]];
      const DType dtype = graph_[(*made)[k]].type.dtype;
      map[node.outputs[k].index] = (*made)[k];
      if (stale_ || recorded.kind != ir::ValueKind::kTensor || recorded.type.dtype == dtype) continue;
      if (dtype != state.dtype) {
        return located(Status(Code::kUnsupported, str_cat("autocast of ", node.op->name, ": the archive has ", dtype_name(recorded.type.dtype), ", its casts give ", dtype_name(dtype))));
      }
      stale_ = true;  // a strict export, which records what the region gives without autocast
    }
    return ok_status();
  }

  /// A name of graph_ for a value of a body.
  ValueId copy_value(const ir::Value& old, ValueId old_id, ValueMap& map) {
    ValueId made;
    switch (old.kind) {
      case ir::ValueKind::kTensor: made = graph_.add_tensor(old.type, old.name); break;
      case ir::ValueKind::kScalar: made = graph_.add_scalar(old.scalar, old.name); break;
      case ir::ValueKind::kNone: made = graph_.add_none(old.name); break;
    }
    map[old_id.index] = made;
    return made;
  }

  Graph& graph_;
  std::vector<NodeId> order_;
  Builder builder_;
  ValueMap replaced_;
  bool stale_ = false;  ///< recorded dtypes are those without autocast (see apply_autocast)
};

}  // namespace

Result<bool> inline_wrappers(Graph& graph, const Catalog& catalog) {
  if (!has_wrapper(graph)) return false;
  Inliner inliner(graph, catalog);
  PTERON_TRY(inliner.run());
  return true;
}

}  // namespace pteron::passes
