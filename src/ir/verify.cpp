// The verifier.
#include "ir/verify.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_set>

#include "base/str_cat.h"
#include "ir/engine.h"
#include "ir/op.h"

namespace pteron::ir {

namespace {

constexpr int kMaxRegionDepth = 100;

/// Operators whose tensor arguments may be Python numbers (`x + 2` is add.Tensor(x, 2)); sorted, without "aten::". Others ask for the type of
/// their tensors.
constexpr std::string_view kNumberOps[] = {
    "__and__", "__or__", "__xor__", "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "copy", "copysign",
    "div", "divide", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "logical_and",
    "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne", "not_equal", "pow", "remainder", "rsub", "sub", "subtract",
    "true_divide", "where", "xlogy",
};
bool takes_numbers(const Schema& schema) {
  std::string_view name = schema.name;
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return std::binary_search(std::begin(kNumberOps), std::end(kNumberOps), name);
}

std::string_view kind_name(const Arg& arg) {
  constexpr std::string_view kNames[] = {"None",   "a value", "a list of values", "a number", "a list of numbers", "a string",
                                         "a dtype", "a memory format", "a layout", "a device", "a complex number"};
  return kNames[arg.index()];
}

class Verifier {
 public:
  Verifier(const Graph& graph, Dialect dialect, int depth) : graph_(graph), dialect_(dialect), depth_(depth), defined_(graph.values.size(), false) {}

  Status run() {
    if (depth_ > kMaxRegionDepth) return wrong("regions are nested too deeply");
    PTERON_TRY(check_values());
    PTERON_TRY(define_entries());
    for (const NodeId id : graph_.order) {
      if (id.index >= graph_.nodes.size()) return wrong("an unknown node in the order");
      const Node& node = graph_[id];
      if (Status status = check_node(id, node); !status.ok()) {
        const std::string where = node.source.empty() ? std::string() : str_cat(" (", node.source, ")");
        return std::move(status).with_context(str_cat("node ", node.name, where, ": ", node.op == nullptr ? "" : node.op->name));
      }
    }
    return check_results();
  }

  Status check_arguments(const Op& op, std::span<const Arg> args) const {
    const auto& schema = op.schema.args;
    if (args.size() != schema.size()) return wrong(str_cat(args.size(), " arguments, the schema has ", schema.size()));
    const bool numbers = takes_numbers(op.schema);
    for (size_t i = 0; i < schema.size(); ++i) {
      if (!fits(args[i], schema[i].type, numbers)) return wrong(str_cat("argument '", schema[i].name, "' cannot be ", kind_name(args[i])));
    }
    return ok_status();
  }

 private:
  static Status wrong(std::string message) { return Status(Code::kInternal, std::move(message)); }
  bool exists(ValueId id) const { return id.index < graph_.values.size(); }
  bool is_defined(ValueId id) const { return exists(id) && (defined_[id.index] || graph_[id].constant.valid()); }

  Status check_values() const {
    std::unordered_set<std::string_view> names;
    for (const Value& value : graph_.values) {
      if (!names.insert(value.name).second) return wrong(str_cat("two values are named '", value.name, "'"));
      if (value.constant.valid() && value.constant.index >= graph_.program->constants.size()) return wrong(str_cat("value ", value.name, ": no such constant"));
      if (value.kind != ValueKind::kTensor) continue;
      const TensorType& type = value.type;
      if (type.sizes.size() != type.strides.size() || type.sizes.size() > kMaxRank) {
        return wrong(str_cat("value ", value.name, ": ", type.sizes.size(), " sizes, ", type.strides.size(), " strides"));
      }
      for (const std::vector<Expr>* list : {&type.sizes, &type.strides}) {
        for (const Expr& e : *list) {
          if (e.type() != ExprType::kInt || (e.is_const() && e.value() < 0)) return wrong(str_cat("value ", value.name, ": dim ", to_text(e)));
        }
      }
    }
    return ok_status();
  }

  Status define(ValueId id, std::string_view what) {
    if (!exists(id)) return wrong(str_cat(what, ": no such value"));
    if (is_defined(id)) return wrong(str_cat(what, ": value ", graph_[id].name, " is defined twice"));
    defined_[id.index] = true;
    return ok_status();
  }

  Status define_entries() {
    for (const Input& input : graph_.inputs) {
      if (!input.value.valid()) continue;
      PTERON_TRY(define(input.value, "input"));
      if (graph_[input.value].producer.valid()) return wrong(str_cat("input ", input.name, " is produced by a node"));
    }
    for (const State& state : graph_.states) {
      PTERON_TRY(define(state.value, "state"));
      if (graph_[state.value].producer.valid()) return wrong(str_cat("state ", state.name, " is produced by a node"));
      if (state.initial.valid() && state.initial.index >= graph_.program->constants.size()) return wrong(str_cat("state ", state.name, ": no such constant"));
    }
    return ok_status();
  }

  Status check_node(NodeId id, const Node& node) {
    if (node.op == nullptr) return wrong("a node without an operator");
    PTERON_TRY(check_dialect(*node.op, node));
    for (const Arg& arg : node.args) PTERON_TRY(check_uses(arg));
    if (node.op->known) PTERON_TRY(check_signature(*node.op, node));
    if (node.op->has(kRegion) != !node.regions.empty() && node.op->known) return wrong(node.regions.empty() ? "no regions" : "regions at an operator without");
    for (const auto& region : node.regions) {
      if (region->program != graph_.program) return wrong("a region of another program");
      if (Status status = Verifier(*region, dialect_, depth_ + 1).run(); !status.ok()) return std::move(status).with_context("region");
    }
    for (const ValueId out : node.outputs) {
      PTERON_TRY(define(out, "result"));
      if (graph_[out].producer != id) return wrong(str_cat("result ", graph_[out].name, " names another producer"));
    }
    return ok_status();
  }

  Status check_uses(const Arg& arg) const {
    Status status;
    for_each_value(arg, [&](ValueId id) {
      if (!status.ok() || is_defined(id)) return;
      status = wrong(exists(id) ? str_cat("value ", graph_[id].name, " is used before it is produced") : std::string("use of a value that does not exist"));
    });
    return status;
  }

  Status check_dialect(const Op& op, const Node& node) const {
    if (dialect_ == Dialect::kImported) return ok_status();
    if (op.functional != nullptr || std::any_of(op.schema.args.begin(), op.schema.args.end(), [](const SchemaArg& a) { return a.written; })) {
      return wrong("an in-place operator in a functional graph");
    }
    if (dialect_ == Dialect::kFunctional) return ok_status();
    if (!op.known) return wrong("an unknown operator in the profile");
    const bool only_scalars = !node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return exists(id) && graph_[id].kind == ValueKind::kScalar;
    });
    if (op.kernel.empty() && !op.is_view() && !op.has(kRegion) && !op.has(kAlias) && !op.has(kEffect) && !only_scalars && op.name != kEngineOp) {
      return wrong("an operator without a kernel in the profile");
    }
    return ok_status();
  }

  Status check_signature(const Op& op, const Node& node) const {
    PTERON_TRY(check_arguments(op, node.args));
    const auto& returns = op.schema.returns;
    const bool list = std::any_of(returns.begin(), returns.end(), [](const SchemaReturn& r) { return r.type.list; });
    if (!list && node.outputs.size() != returns.size()) return wrong(str_cat(node.outputs.size(), " results, the schema has ", returns.size()));
    return ok_status();
  }

  bool is_tensor(ValueId id) const { return exists(id) && graph_[id].kind != ValueKind::kScalar; }

  static bool is_number_type(const Expr& e, BaseType base) {
    return base == BaseType::kInt ? e.type() == ExprType::kInt : base == BaseType::kFloat || base == BaseType::kScalar || base == BaseType::kBool;
  }

  /// numbers_as_tensors: a Python number may stand for a tensor.
  bool fits(const Arg& arg, const SchemaType& type, bool numbers_as_tensors) const {
    if (std::holds_alternative<std::monostate>(arg)) return type.optional || type.base == BaseType::kGenerator || type.base == BaseType::kOther;
    switch (type.base) {
      case BaseType::kTensor: return fits_tensor(arg, type, numbers_as_tensors);
      case BaseType::kInt:
      case BaseType::kFloat:
      case BaseType::kBool:
      case BaseType::kScalar: return fits_number(arg, type);
      case BaseType::kString: return std::holds_alternative<std::string>(arg);
      case BaseType::kScalarType: return std::holds_alternative<DType>(arg);
      case BaseType::kLayout: return std::holds_alternative<Layout>(arg);
      case BaseType::kDevice: return std::holds_alternative<Device>(arg);
      case BaseType::kMemoryFormat: return std::holds_alternative<MemoryFormat>(arg);
      case BaseType::kGenerator: return false;
      case BaseType::kGraph:
      case BaseType::kOther: return true;
    }
    return false;
  }

  bool fits_tensor(const Arg& arg, const SchemaType& type, bool numbers_as_tensors) const {
    if (!type.list) {
      if (const auto* id = std::get_if<ValueId>(&arg)) return is_tensor(*id);
      return numbers_as_tensors && (std::holds_alternative<Expr>(arg) || std::holds_alternative<std::complex<double>>(arg));
    }
    const auto* ids = std::get_if<std::vector<ValueId>>(&arg);
    return ids != nullptr && std::all_of(ids->begin(), ids->end(), [&](ValueId id) { return id.valid() ? is_tensor(id) : type.optional_elements; });
  }

  bool fits_number(const Arg& arg, const SchemaType& type) const {
    if (type.list) {
      const auto* list = std::get_if<std::vector<Expr>>(&arg);
      return list != nullptr && std::all_of(list->begin(), list->end(), [&](const Expr& e) { return is_number_type(e, type.base); });
    }
    if (const auto* e = std::get_if<Expr>(&arg)) return is_number_type(*e, type.base);
    return type.base == BaseType::kScalar && (std::holds_alternative<ValueId>(arg) || std::holds_alternative<std::complex<double>>(arg));
  }

  Status check_results() const {
    for (const Arg& output : graph_.outputs) {
      if (Status status = check_uses(output); !status.ok()) return std::move(status).with_context("output");
    }
    for (const State& state : graph_.states) {
      if (!is_defined(state.result)) return wrong(str_cat("state ", state.name, ": its result is never produced"));
    }
    for (const InputMutation& mutation : graph_.input_mutations) {
      if (mutation.input >= graph_.inputs.size() || !graph_.inputs[mutation.input].value.valid()) return wrong("mutation of an input that is no tensor");
      if (!is_defined(mutation.result)) return wrong(str_cat("input ", graph_.inputs[mutation.input].name, ": its new value is never produced"));
    }
    return ok_status();
  }

  const Graph& graph_;
  Dialect dialect_;
  int depth_;
  std::vector<bool> defined_;
};

}  // namespace

Status verify(const Graph& graph, Dialect dialect) { return Verifier(graph, dialect, 0).run(); }

Status check_arguments(const Graph& graph, const Op& op, std::span<const Arg> args) { return Verifier(graph, Dialect::kFunctional, 0).check_arguments(op, args); }

Status verify(const Program& program, Dialect dialect) {
  for (const auto& method : program.methods) {
    if (Status status = verify(method->graph, dialect); !status.ok()) return std::move(status).with_context(str_cat("method ", method->name));
  }
  return ok_status();
}

}  // namespace pteron::ir
