// A whole graph: symbols from the inputs' shapes, nodes in order, control flow by recursion, states carried from call to call.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/str_cat.h"
#include "interp/evaluator.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::interp {

using ir::Arg;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

Result<HostTensor> scalar_tensor(const Number& number) {
  const DType dtype = number.type == ir::ExprType::kFloat ? DType::kFloat64 : number.type == ir::ExprType::kBool ? DType::kBool : DType::kInt64;
  PTERON_ASSIGN(HostTensor tensor, make_tensor(dtype, {}));
  if (dtype == DType::kFloat64) {
    *tensor.view.as<double>() = number.floating;
  } else if (dtype == DType::kBool) {
    *tensor.view.as<bool>() = number.integer != 0;
  } else {
    *tensor.view.as<int64_t>() = number.integer;
  }
  return tensor;
}

Result<Number> number_in(const HostTensor& tensor) {
  if (tensor.view.numel() != 1) return Status(Code::kInvalidInput, str_cat("expected one number, found shape ", shape_text(tensor.view.sizes())));
  Number number;
  const bool known = dispatch_real(tensor.view.dtype, [&]<typename T>() {
    T value{};
    std::memcpy(&value, tensor.view.data, sizeof value);
    if constexpr (std::is_same_v<T, bool>) {
      number = Number::of(value);
    } else if constexpr (std::is_integral_v<T>) {
      number = Number::of(static_cast<int64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      number = Number::of(static_cast<double>(value));
    } else {
      number = Number::of(static_cast<double>(static_cast<float>(value)));
    }
  });
  if (!known) return Status(Code::kUnsupported, str_cat("a number of dtype ", dtype_name(tensor.view.dtype)));
  return number;
}

/// Item `index` of the outermost dim, without copying.
HostTensor item_of(const HostTensor& tensor, int64_t index) {
  HostTensor out = tensor;
  out.view.rank = static_cast<uint8_t>(tensor.view.rank - 1);
  for (int d = 0; d + 1 < tensor.view.rank; ++d) {
    out.view.size_array[static_cast<size_t>(d)] = tensor.view.size(d + 1);
    out.view.stride_array[static_cast<size_t>(d)] = tensor.view.stride(d + 1);
  }
  out.view.data = tensor.view.as<std::byte>() + static_cast<uint64_t>(index * tensor.view.stride(0)) * dtype_size(tensor.view.dtype);
  return out;
}

/// Tensors of one shape along a new outermost dim.
Result<HostTensor> stacked(const std::vector<HostTensor>& items) {
  std::vector<int64_t> sizes = {static_cast<int64_t>(items.size())};
  sizes.insert(sizes.end(), items[0].view.sizes().begin(), items[0].view.sizes().end());
  PTERON_ASSIGN(HostTensor out, make_tensor(items[0].view.dtype, sizes));
  for (size_t i = 0; i < items.size(); ++i) copy_strided(items[i].view, item_of(out, static_cast<int64_t>(i)).view);
  return out;
}

/// One graph or region being run.
class Frame {
 public:
  Frame(const Evaluator& evaluator, const Graph& graph, Symbols& symbols, const NodeObserver& observe)
      : evaluator_(evaluator), graph_(graph), symbols_(symbols), observe_(observe), values_(graph.values.size()) {
    for (const NodeId id : graph.order) ir::for_each_use(graph[id], [&](ValueId v) { last_use_[v.index] = id; });
  }

  void bind(ValueId id, HostTensor tensor) { values_[id.index] = std::move(tensor); }

  Status run_nodes() {
    keep_results();
    for (const NodeId id : graph_.order) {
      const Node& node = graph_[id];
      Status status = run_node(node);
      if (!status.ok()) return std::move(status).with_context(node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")"));
      ir::for_each_use(node, [&](ValueId v) {
        const auto last = last_use_.find(v.index);
        if (last != last_use_.end() && last->second == id && !kept_[v.index]) values_[v.index].reset();
      });
    }
    return ok_status();
  }

  Result<HostTensor> tensor(ValueId id) const {
    if (id.index < values_.size() && values_[id.index]) return *values_[id.index];
    const ir::Value& value = graph_[id];
    if (value.constant.valid()) return tensor_of((*graph_.program)[value.constant]);
    if (value.kind == ir::ValueKind::kScalar) {
      const auto number = evaluate_number(value.scalar, symbols_);
      if (number) return scalar_tensor(*number);
    }
    return Status(Code::kInternal, str_cat("value ", value.name, " is not computed"));
  }

  Result<std::vector<std::optional<HostTensor>>> outputs() const {
    std::vector<std::optional<HostTensor>> out;
    for (const Arg& output : graph_.outputs) {
      if (const auto* id = std::get_if<ValueId>(&output); id != nullptr && id->valid() && graph_[*id].kind != ir::ValueKind::kNone) {
        PTERON_ASSIGN(HostTensor made, tensor(*id));
        out.emplace_back(std::move(made));
      } else if (const auto* e = std::get_if<Expr>(&output)) {
        const auto number = evaluate_number(*e, symbols_);
        if (!number) return Status(Code::kInternal, str_cat("no value for output ", ir::to_text(*e)));
        PTERON_ASSIGN(HostTensor made, scalar_tensor(*number));
        out.emplace_back(std::move(made));
      } else {
        out.emplace_back(std::nullopt);
      }
    }
    return out;
  }

 private:
  void keep_results() {
    kept_.assign(graph_.values.size(), false);
    for (const Arg& output : graph_.outputs) ir::for_each_value(output, std::function<void(ValueId)>([&](ValueId v) { kept_[v.index] = true; }));
    for (const ir::State& state : graph_.states) {
      if (state.result.valid()) kept_[state.result.index] = true;
    }
    for (const ir::InputMutation& mutation : graph_.input_mutations) kept_[mutation.result.index] = true;
  }

  Status run_node(const Node& node) {
    if (node.op->has(ir::kRegion)) return run_control(node);
    const Lookup lookup = [this](ValueId id) { return tensor(id); };
    PTERON_ASSIGN(std::vector<NodeValue> results, evaluator_.run(graph_, node, lookup, &symbols_));
    if (observe_) PTERON_TRY(observe_(node, results));
    for (size_t k = 0; k < results.size(); ++k) {
      if (auto* made = std::get_if<HostTensor>(&results[k])) values_[node.outputs[k].index] = std::move(*made);
    }
    return ok_status();
  }

  Result<std::vector<HostTensor>> tensors(const Node& node, std::string_view name) const {
    std::vector<HostTensor> out;
    for (const ValueId id : ir::NodeView(graph_, *node.op, node.args).values(name)) {
      PTERON_ASSIGN(HostTensor made, tensor(id));
      out.push_back(std::move(made));
    }
    return out;
  }

  Result<std::vector<HostTensor>> run_region(const Graph& region, const std::vector<HostTensor>& operands) {
    Frame frame(evaluator_, region, symbols_, observe_);
    size_t next = 0;
    for (const ir::Input& input : region.inputs) {
      if (!input.value.valid()) continue;
      if (next == operands.size()) return Status(Code::kInternal, "a region has more inputs than operands");
      frame.bind(input.value, operands[next++]);
    }
    PTERON_TRY(frame.run_nodes());
    PTERON_ASSIGN(auto made, frame.outputs());
    std::vector<HostTensor> out;
    for (auto& item : made) {
      if (!item) return Status(Code::kUnsupported, "a region returns None");
      PTERON_ASSIGN(HostTensor whole, make_contiguous(*item));
      out.push_back(std::move(whole));
    }
    return out;
  }

  Status run_control(const Node& node) {
    const std::string& name = node.op->schema.name;
    Result<std::vector<HostTensor>> made = Status(Code::kUnsupported, str_cat("the evaluator cannot run ", name));
    if (name == "higher_order::cond") made = run_cond(node);
    if (name == "higher_order::while_loop") made = run_while(node);
    if (name == "higher_order::scan") made = run_scan(node, "init");
    if (name == "higher_order::map_impl") made = run_scan(node, {});
    if (!made.ok()) return std::move(made).status();
    for (size_t k = 0; k < node.outputs.size() && k < made->size(); ++k) values_[node.outputs[k].index] = std::move((*made)[k]);
    return ok_status();
  }

  Result<std::vector<HostTensor>> run_cond(const Node& node) {
    bool taken = false;
    if (const auto* e = std::get_if<Expr>(&node.args[0])) {
      const auto number = evaluate_number(*e, symbols_);
      if (!number) return Status(Code::kInternal, str_cat("no value for ", ir::to_text(*e)));
      taken = number->to_bool();
    } else {
      PTERON_ASSIGN(const HostTensor pred, tensor(std::get<ValueId>(node.args[0])));
      PTERON_ASSIGN(const Number number, number_in(pred));
      taken = number.to_bool();
    }
    PTERON_ASSIGN(const auto operands, tensors(node, "operands"));
    return run_region(*node.regions[taken ? 0 : 1], operands);
  }

  Result<std::vector<HostTensor>> run_while(const Node& node) {
    PTERON_ASSIGN(std::vector<HostTensor> carried, tensors(node, "carried"));
    PTERON_ASSIGN(const std::vector<HostTensor> additional, tensors(node, "additional"));
    for (;;) {
      std::vector<HostTensor> operands = carried;
      operands.insert(operands.end(), additional.begin(), additional.end());
      PTERON_ASSIGN(const auto condition, run_region(*node.regions[0], operands));
      if (condition.size() != 1) return Status(Code::kInternal, "a loop condition gives no single value");
      PTERON_ASSIGN(const Number again, number_in(condition[0]));
      if (!again.to_bool()) return carried;
      PTERON_ASSIGN(carried, run_region(*node.regions[1], operands));
    }
  }

  /// scan, and map (without carries).
  Result<std::vector<HostTensor>> run_scan(const Node& node, std::string_view init) {
    std::vector<HostTensor> carried;
    if (!init.empty()) {
      PTERON_ASSIGN(carried, tensors(node, init));
    }
    PTERON_ASSIGN(const std::vector<HostTensor> xs, tensors(node, "xs"));
    PTERON_ASSIGN(const std::vector<HostTensor> additional, tensors(node, "additional"));
    const size_t carries = carried.size();
    const int64_t steps = xs.empty() ? 0 : xs[0].view.size(0);
    if (steps == 0) return Status(Code::kUnsupported, "a scan over nothing");
    std::vector<std::vector<HostTensor>> ys;
    for (int64_t i = 0; i < steps; ++i) {
      std::vector<HostTensor> operands = carried;
      for (const HostTensor& x : xs) operands.push_back(item_of(x, i));
      operands.insert(operands.end(), additional.begin(), additional.end());
      PTERON_ASSIGN(std::vector<HostTensor> made, run_region(*node.regions[0], operands));
      if (made.size() < carries) return Status(Code::kInternal, "a scan body gives too few values");
      ys.resize(made.size() - carries);
      for (size_t k = carries; k < made.size(); ++k) ys[k - carries].push_back(made[k]);
      made.resize(carries);
      carried = std::move(made);
    }
    for (const auto& items : ys) {
      PTERON_ASSIGN(HostTensor whole, stacked(items));
      carried.push_back(std::move(whole));
    }
    return carried;
  }

  const Evaluator& evaluator_;
  const Graph& graph_;
  Symbols& symbols_;
  const NodeObserver& observe_;
  std::vector<std::optional<HostTensor>> values_;
  std::unordered_map<uint32_t, NodeId> last_use_;
  std::vector<bool> kept_;
};

Status bind_input(const Graph& graph, const ir::Input& input, const HostTensor& tensor, Symbols* symbols) {
  const ir::Value& value = graph[input.value];
  if (value.kind == ir::ValueKind::kScalar) {
    PTERON_ASSIGN(const Number number, number_in(tensor));
    if (value.scalar.is_symbol()) (*symbols)[value.scalar.node()] = number;
    return ok_status();
  }
  const auto mismatch = [&] {
    return Status(Code::kInvalidInput, str_cat("input '", input.name, "': expected ", dtype_name(value.type.dtype), " of rank ", value.type.rank(), ", found ",
                                               dtype_name(tensor.view.dtype), " ", shape_text(tensor.view.sizes())));
  };
  if (tensor.view.dtype != value.type.dtype || tensor.view.rank != value.type.rank()) return mismatch();
  for (size_t d = 0; d < value.type.sizes.size(); ++d) {
    if (!learn_size(value.type.sizes[d], tensor.view.size_array[d], symbols)) return mismatch();
  }
  return ok_status();
}

}  // namespace

Result<std::vector<std::optional<HostTensor>>> run_graph(const Evaluator& evaluator, const Graph& graph, std::span<const HostTensor> inputs, StateTensors* states,
                                                         const NodeObserver& observe) {
  if (inputs.size() != graph.inputs.size()) return Status(Code::kInvalidInput, str_cat("expected ", graph.inputs.size(), " inputs, found ", inputs.size()));
  Symbols symbols;
  Frame frame(evaluator, graph, symbols, observe);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!graph.inputs[i].value.valid()) continue;
    PTERON_TRY(bind_input(graph, graph.inputs[i], inputs[i], &symbols));
    if (graph[graph.inputs[i].value].kind == ir::ValueKind::kTensor) frame.bind(graph.inputs[i].value, inputs[i]);
  }
  for (size_t i = states->size(); i < graph.states.size(); ++i) {
    PTERON_ASSIGN(HostTensor initial, tensor_of((*graph.program)[graph.states[i].initial]));
    states->push_back(std::move(initial));
  }
  for (size_t i = 0; i < graph.states.size(); ++i) frame.bind(graph.states[i].value, (*states)[i]);
  PTERON_TRY(frame.run_nodes());
  PTERON_ASSIGN(auto outputs, frame.outputs());
  StateTensors next;
  for (const ir::State& state : graph.states) {
    PTERON_ASSIGN(HostTensor made, frame.tensor(state.result.valid() ? state.result : state.value));
    next.push_back(std::move(made));
  }
  *states = std::move(next);
  return outputs;
}

}  // namespace pteron::interp
