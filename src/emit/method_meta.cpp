// Pteron's own facts about a method (format/meta.h): names, dims as expressions over named sizes, ranges, state, source lines.
#include "base/str_cat.h"
#include "emit/method_emitter.h"

namespace pteron::emit {

using format::DimExpr;
using format::DimOp;
using ir::Expr;
using ir::ExprOp;

namespace {

struct OpPair {
  ExprOp from;
  DimOp to;
};

constexpr OpPair kOps[] = {
    {ExprOp::kAdd, DimOp::kAdd}, {ExprOp::kMul, DimOp::kMul}, {ExprOp::kFloorDiv, DimOp::kFloorDiv}, {ExprOp::kMod, DimOp::kMod},
    {ExprOp::kMax, DimOp::kMax}, {ExprOp::kMin, DimOp::kMin}, {ExprOp::kEq, DimOp::kEq},             {ExprOp::kNe, DimOp::kNe},
    {ExprOp::kLt, DimOp::kLt},   {ExprOp::kLe, DimOp::kLe},   {ExprOp::kAnd, DimOp::kAnd},           {ExprOp::kOr, DimOp::kOr},
    {ExprOp::kNot, DimOp::kNot}, {ExprOp::kIte, DimOp::kIte}, {ExprOp::kPow, DimOp::kPow},
};

/// Turns graph expressions into the file's postfix form; symbols get indices at first sight.
class Describer {
 public:
  explicit Describer(format::MethodMeta& meta) : meta_(meta) {}

  int64_t symbol(Expr e) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (known_[i] == e) return static_cast<int64_t>(i);
    }
    const ir::Range range = ir::bounds(e);
    format::SymbolMeta made;
    made.name = e.node()->name;
    made.min = range.min;
    made.max = range.max;
    meta_.symbols.push_back(std::move(made));
    known_.push_back(e);
    return static_cast<int64_t>(known_.size() - 1);
  }

  /// Nothing for expressions that the file cannot hold (floats).
  std::optional<DimExpr> describe(Expr e) {
    DimExpr out;
    if (!append(e, out)) return std::nullopt;
    if (!e.is_const()) out.text = ir::to_text(e);
    return out;
  }

 private:
  bool append(Expr e, DimExpr& out) {
    if (e.is_const()) {
      out.steps.push_back({DimOp::kConst, e.value()});
      return true;
    }
    const ir::ExprNode& node = *e.node();
    if (node.op == ExprOp::kSymbol) {
      if (node.type != ir::ExprType::kInt) return false;
      out.steps.push_back({DimOp::kSymbol, symbol(e)});
      return true;
    }
    for (const OpPair& pair : kOps) {
      if (pair.from != node.op) continue;
      if (!append(node.args[0], out)) return false;
      const bool chain = node.op != ExprOp::kIte && node.op != ExprOp::kNot;
      for (size_t i = 1; i < node.args.size(); ++i) {
        if (!append(node.args[i], out)) return false;
        if (chain) out.steps.push_back({pair.to, 0});
      }
      if (!chain) out.steps.push_back({pair.to, 0});
      return true;
    }
    return false;
  }

  format::MethodMeta& meta_;
  std::vector<Expr> known_;
};

format::PortKind kind_of(Expr e) {
  if (e.type() == ir::ExprType::kFloat) return format::PortKind::kFloat;
  return e.type() == ir::ExprType::kBool ? format::PortKind::kBool : format::PortKind::kInt;
}

format::PortKind literal_kind(const ir::Arg& literal) {
  if (const auto* e = std::get_if<Expr>(&literal)) return kind_of(*e);
  return std::holds_alternative<std::string>(literal) ? format::PortKind::kString : format::PortKind::kNone;
}

/// A copy from a device has the name of what it copies.
std::string name_of_output(const ir::Graph& graph, ir::ValueId id) {
  const ir::NodeId maker = graph[id].producer;
  const bool is_copy = maker.valid() && graph[maker].op->name == "et_copy::_d2h_copy";
  const auto* from = is_copy ? std::get_if<ir::ValueId>(&graph[maker].args[0]) : nullptr;
  return graph[from == nullptr ? id : *from].name;
}

}  // namespace

format::MethodMeta MethodEmitter::describe() {
  const ir::Graph& graph = method_.graph;
  format::MethodMeta meta;
  meta.name = method_.name;
  meta.input_spec = method_.in_spec;
  meta.output_spec = method_.out_spec;
  Describer describer(meta);
  const auto tensor_port = [&](format::PortMeta& port, const ir::TensorType& type, int32_t value) {
    port.dtype = type.dtype;
    port.dim_order = std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(value)]).dim_order;
    for (const Expr& size : type.sizes) {
      auto dim = describer.describe(size);
      port.dims.push_back(dim ? std::move(*dim) : DimExpr::symbol(describer.symbol(graph.program->exprs.fresh_symbol("d", ir::bounds(size))), ""));
    }
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::Input& input = graph.inputs[i];
    format::PortMeta port;
    port.name = input.name;
    if (!input.value.valid()) {
      port.kind = literal_kind(input.literal);
    } else if (graph[input.value].kind == ir::ValueKind::kScalar) {
      const Expr scalar = graph[input.value].scalar;
      port.kind = kind_of(scalar);
      if (scalar.is_symbol() && port.kind == format::PortKind::kInt) {
        const ir::Range range = ir::bounds(scalar);
        port.int_min = range.min;
        port.int_max = range.max;
        port.symbol = static_cast<int32_t>(describer.symbol(scalar));
      }
      port.varies = scalar.is_symbol() && port.kind != format::PortKind::kInt;
    } else {
      tensor_port(port, graph[input.value].type, plan_.inputs[i]);
    }
    for (const ir::InputMutation& mutation : graph.input_mutations) port.mutated = port.mutated || mutation.input == i;
    meta.inputs.push_back(std::move(port));
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    format::PortMeta port;
    port.name = str_cat("output_", i);
    if (const auto* id = std::get_if<ir::ValueId>(&graph.outputs[i]); id != nullptr && id->valid()) {
      port.name = name_of_output(graph, *id);
      if (graph[*id].kind == ir::ValueKind::kTensor) {
        tensor_port(port, graph[*id].type, plan_.outputs[i]);
      } else {
        port.kind = graph[*id].kind == ir::ValueKind::kScalar ? kind_of(graph[*id].scalar) : format::PortKind::kNone;
      }
    } else {
      port.kind = literal_kind(graph.outputs[i]);
    }
    meta.outputs.push_back(std::move(port));
  }
  const auto guards = options_.guards == nullptr ? ir::Guards::const_iterator() : options_.guards->find(method_.name);
  if (options_.guards != nullptr && guards != options_.guards->end()) {
    for (const Expr guard : guards->second) {
      auto condition = describer.describe(guard);
      if (!condition) continue;
      std::string text = condition->text;
      meta.constraints.push_back({std::move(*condition), std::move(text)});
    }
  }
  for (size_t i = 0; i < plan_.arenas.size(); ++i) {
    meta.arenas.push_back({static_cast<uint32_t>(options_.alignment_bytes), i + 1 == shared_arena_ ? std::string(kSharedArena) : std::string()});
  }
  for (const ir::State& state : graph.states) {
    const int32_t value = scopes_.front().at(state.value.index).value;
    const bool initialized = std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(value)]).data_index != 0;
    std::vector<format::InPlaceArgument> in_place;
    for (const InPlaceCall& call : in_place_calls_) {
      if (call.root == scopes_.front().at(state.value.index).root) in_place.push_back(call.argument);
    }
    meta.mutable_buffers.push_back({state.name, value, initialized, std::move(in_place)});
  }
  meta.source_lines = std::move(source_lines_);
  return meta;
}

}  // namespace pteron::emit
