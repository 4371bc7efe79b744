// Coverage by trial: operators are called with small made-up arguments, compiled as the pipeline does it and run. Core ATen by dtype and backend;
// the whole catalog for what the executorch profile refuses, and for what complex numbers are refused by.
#include "cli/ops_trial.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "cli/ops_report.h"
#include "compiler/profile.h"
#include "emit/emit.h"
#include "interp/evaluator.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/registry.h"
#include "tensor/dtype.h"

namespace pteron::cli {

namespace {

using ir::Arg;
using ir::BaseType;
using ir::Expr;

struct DTypeRow {
  DType dtype;
  std::string_view short_name;  ///< in the text form
};
constexpr DTypeRow kDTypes[] = {
    {DType::kFloat32, "f32"}, {DType::kFloat64, "f64"}, {DType::kFloat16, "f16"}, {DType::kBFloat16, "bf16"}, {DType::kInt64, "i64"}, {DType::kInt32, "i32"},
    {DType::kInt16, "i16"},   {DType::kInt8, "i8"},     {DType::kUInt8, "u8"},    {DType::kBool, "bool"},     {DType::kFloat8E4M3FN, "f8e4m3fn"}, {DType::kComplexFloat, "c64"},
};
/// Sizes of all tensors of a trial, tried in order until inference takes one.
/// Words for arguments that choose a reduction: those of scatter_reduce and index_reduce, those of scatter.
constexpr std::string_view kReductions[] = {"amax", "sum", "mean", "prod"}, kAccumulations[] = {"add", "multiply"};
const std::vector<std::vector<int64_t>> kShapes = {{2, 2}, {1, 2, 4, 4}, {2, 2, 2}, {4}, {1, 2, 4}, {1, 2, 4, 4, 4}, {}};

bool named(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// Made-up arguments of an operator for one dtype and shape.
class Trial {
 public:
  Trial(const ir::Op& op, const DTypeRow& dtype, const std::vector<int64_t>& shape, const ir::Catalog& catalog, std::string_view reduction = "none")
      : op_(op), dtype_(dtype), shape_(shape), catalog_(catalog), reduction_(reduction) {}

  /// Builds the graph with the operator as its only node. False if the operator does not take such arguments.
  bool build() {
    for (const ir::SchemaArg& arg : op_.schema.args) {
      if (!add(arg)) return false;
    }
    std::string text = "graph(";
    for (size_t i = 0; i < inputs_.size(); ++i) str_append(text, i == 0 ? "" : ", ", "a", i, ": ", inputs_[i]);
    if (inputs_.empty()) text += "a0: f32[1]";
    text += ") {\n  return a0\n}\n";
    if (!ir::parse(text, catalog_, program_).ok()) return false;
    ir::Graph& graph = program_.methods[0]->graph;
    const auto resolve = [&](ir::ValueId& id) { id = graph.inputs[id.index].value; };
    for (Arg& arg : args_) ir::for_each_value(arg, resolve);
    auto complete = ir::complete_args(op_, std::move(args_), program_.exprs);
    if (!complete.ok()) return false;
    auto node = ir::make_node(graph, op_, std::move(complete).value(), "y");
    if (!node.ok()) refusal_ = node.status();
    if (!node.ok()) return false;
    graph.order = {*node};
    graph.outputs.clear();
    for (const ir::ValueId out : graph[*node].outputs) {
      if (graph[out].kind == ir::ValueKind::kTensor) graph.outputs.emplace_back(out);
    }
    return true;
  }

  ir::Program& program() { return program_; }
  /// What inference said if it took no such arguments.
  const Status& refusal() const { return refusal_; }
  size_t input_count() const { return std::max<size_t>(inputs_.size(), 1); }

 private:
  std::string sized(std::string_view dtype) const {
    std::string text = str_cat(dtype, "[");
    for (size_t d = 0; d < shape_.size(); ++d) str_append(text, d == 0 ? "" : ",", shape_[d]);
    return text + "]";
  }
  ir::ValueId tensor(std::string_view name) {
    const bool index = named(name, {"ind", "offset", "target", "bag"}) && name != "binding";
    const bool mask = named(name, {"mask", "condition"});
    std::string type = sized(index ? "i64" : mask ? "bool" : dtype_.short_name);
    if (op_.def.schema.find("index_") != std::string_view::npos && index) type = "i64[1]";
    if (named(name, {"running", "mean", "var", "rstd"}) || (named(name, {"weight", "bias"}) && named(op_.name, {"norm"}))) type = str_cat(dtype_.short_name, "[2]");
    if (named(op_.name, {"embedding"}) && named(name, {"weight"})) type = str_cat(dtype_.short_name, "[2,2]");
    inputs_.push_back(std::move(type));
    return ir::ValueId{static_cast<uint32_t>(inputs_.size() - 1)};
  }
  std::vector<Expr> repeated(int64_t value, size_t count) const { return std::vector<Expr>(count, Expr(value)); }
  std::vector<Expr> ints(std::string_view name) const {
    const size_t spatial = named(op_.name, {"1d"}) ? 1 : named(op_.name, {"3d"}) ? 3 : shape_.size() > 2 ? shape_.size() - 2 : 2;
    if (name == "size" || name == "sizes" || name == "input_sizes" || name == "repeats" || name == "stride_") {
      std::vector<Expr> out;
      for (const int64_t s : shape_) out.emplace_back(name == "repeats" ? 1 : s);
      return out;
    }
    if (name == "dims" || (name == "dim" && named(op_.name, {"permute"}))) {
      std::vector<Expr> out;
      for (size_t d = 0; d < shape_.size(); ++d) out.emplace_back(static_cast<int64_t>(d));
      return out;
    }
    if (name == "dim" || name == "dimension" || name == "axis") return {Expr(0)};
    if (name == "pad" || name == "padding") return repeated(0, named(op_.name, {"pad1d", "pad2d", "pad3d", "pad_nd"}) ? 2 * spatial : spatial);
    if (name == "normalized_shape") return shape_.empty() ? std::vector<Expr>{} : std::vector<Expr>{Expr(shape_.back())};
    if (name == "output_size") return repeated(2, spatial);
    if (name == "output_padding") return repeated(0, spatial);
    if (name == "split_sizes") return {Expr(1), Expr(1)};
    return repeated(1, spatial);
  }
  int64_t integer(std::string_view name) const {
    if (named(name, {"dim", "index", "start", "offset", "padding_idx", "reduction"})) return name == "dim1" || name == "dim2" ? 1 : 0;
    if (name == "num_weights" || name == "C" || name == "high" || name == "end") return 2;
    return 1;
  }
  bool add(const ir::SchemaArg& arg) {
    if (arg.has_default && !(arg.type.base == BaseType::kScalarType)) return args_.push_back(ir::default_argument(arg, program_.exprs)), true;
    if (arg.type.base == BaseType::kTensor) {
      if (arg.type.list) {
        std::vector<ir::ValueId> items{tensor(arg.name)};
        if (!arg.type.optional_elements) items.push_back(tensor(arg.name));
        return args_.emplace_back(std::move(items)), true;
      }
      if (arg.type.optional && !named(op_.name, {"norm"})) return args_.emplace_back(), true;
      return args_.emplace_back(tensor(arg.name)), true;
    }
    if (arg.type.optional) return args_.emplace_back(), true;
    switch (arg.type.base) {
      case BaseType::kInt: return arg.type.list ? args_.emplace_back(ints(arg.name)) : args_.emplace_back(Expr(integer(arg.name))), true;
      case BaseType::kFloat: return args_.emplace_back(program_.exprs.floating(0.5)), true;
      case BaseType::kBool: {
        const Expr no = program_.exprs.boolean(false);
        if (!arg.type.list) return args_.emplace_back(no), true;
        return args_.emplace_back(std::vector<Expr>(named(op_.name, {"rms"}) ? 2 : 3, program_.exprs.boolean(true))), true;
      }
      case BaseType::kScalar: return args_.emplace_back(Expr(1)), true;
      case BaseType::kString: return args_.emplace_back(std::string(arg.name == "reduce" ? reduction_ : "none")), true;
      case BaseType::kScalarType: return args_.emplace_back(dtype_.dtype), true;
      default: return false;
    }
  }

  const ir::Op& op_;
  const DTypeRow& dtype_;
  const std::vector<int64_t>& shape_;
  const ir::Catalog& catalog_;
  std::string_view reduction_;
  Status refusal_;
  ir::Program program_;
  std::vector<std::string> inputs_;
  std::vector<Arg> args_;
};

/// Inputs of zeros (ones would leave the range of indices).
std::optional<std::vector<interp::HostTensor>> make_inputs(const ir::Graph& graph) {
  std::vector<interp::HostTensor> out;
  for (const ir::Input& input : graph.inputs) {
    const ir::TensorType& type = graph[input.value].type;
    std::vector<int64_t> sizes;
    for (const Expr& size : type.sizes) sizes.push_back(size.value());
    auto tensor = interp::make_tensor(type.dtype, sizes);
    if (!tensor.ok()) return std::nullopt;
    std::fill_n(static_cast<std::byte*>(tensor.value().view.data), tensor.value().view.size_bytes(), std::byte{0});
    out.push_back(std::move(tensor).value());
  }
  return out;
}

struct Outcome {
  bool compiled = false;
  bool ran = false;
  std::vector<bool> taken;  ///< by backend
};

Outcome try_trial(Trial& trial, const ir::Catalog& catalog, const compiler::Environment& environment, std::span<const backends::Backend* const> backends) {
  Outcome outcome;
  ir::Program& program = trial.program();
  ir::Graph& graph = program.methods[0]->graph;
  passes::PassContext context;
  context.catalog = &catalog;
  context.has_kernel = environment.has_kernel;
  context.allow_random = true;
  if (!passes::find_pass("decompose")->run(graph, context).ok() || !passes::check_supported(program, environment.has_kernel, true).ok()) return outcome;
  outcome.compiled = true;
  const auto inputs = make_inputs(graph);
  bool random = false;
  for (const ir::NodeId id : graph.order) random = random || graph[id].op->has(ir::kRandom);
  if (!inputs) return outcome;
  interp::StateTensors states;
  outcome.ran = random || interp::run_graph(*environment.evaluator, graph, *inputs, &states).ok();  // random kernels run in loaded methods only
  for (const backends::Backend* backend : backends) {
    bool all = outcome.ran && !graph.order.empty();
    for (const ir::NodeId id : graph.order) all = all && !graph[id].op->has(ir::kEffect) && backend->supports(graph, graph[id]).yes;
    outcome.taken.push_back(all);
  }
  return outcome;
}

/// A shape whose call runs on our kernels with some dtype; if none runs on zeros (a solution of equations), one that compiles.
struct Shape {
  const ir::Op* op;
  const std::vector<int64_t>* sizes;
  bool runs;
  bool fits(const Outcome& outcome) const { return runs ? outcome.ran : outcome.compiled; }
};

/// The words for an operator; one that nobody reads if it has no such argument.
std::span<const std::string_view> reductions_of(const ir::Op& op) {
  if (op.schema.find("reduce") < 0) return std::span(kReductions).first(1);
  if (op.schema.name == "aten::scatter") return kAccumulations;
  return kReductions;
}

void find_shape(const DTypeRow& dtype, const ir::Catalog& catalog, const compiler::Environment& environment, Shape* found) {
  for (const auto& shape : kShapes) {
    for (const std::string_view reduction : reductions_of(*found->op)) {
      Trial trial(*found->op, dtype, shape, catalog, reduction);
      if (found->runs || !trial.build()) continue;
      const Outcome outcome = try_trial(trial, catalog, environment, {});
      if (outcome.ran || (outcome.compiled && found->sizes == nullptr)) found->sizes = &shape;
      found->runs = outcome.ran;
    }
  }
}

std::vector<Shape> shapes_of(const ir::Catalog& catalog, const compiler::Environment& environment, size_t* untried) {
  std::vector<Shape> out;
  for (const ir::Op* op : catalog.all()) {
    const bool plain = op->def.infer != nullptr && !op->name.starts_with("pteron::") && !op->has(ir::kRegion) && !op->has(ir::kDrop) && !op->has(ir::kEffect);
    if (!plain || op->has(ir::kRandom)) continue;
    Shape found{op, nullptr, false};
    for (const DTypeRow& dtype : kDTypes) {
      if (!found.runs) find_shape(dtype, catalog, environment, &found);
    }
    if (found.sizes == nullptr) ++*untried;
    if (found.sizes != nullptr) out.push_back(found);
  }
  return out;
}

/// What stands behind the last colon; lists of names in backquotes.
std::string after_colon(std::string_view message) {
  const size_t colon = message.rfind(": ");
  std::string text(message.substr(colon == std::string_view::npos ? 0 : colon + 2));
  if (text.starts_with('[') && text.ends_with(']')) text.front() = text.back() = '`';
  return text;
}

/// Names of operators in a refusal ("  aten::sort.stable  x1 ..."), else the end of its message.
std::set<std::string> names_in(std::string_view message) {
  std::set<std::string> names;
  if (message.find('\n') == std::string_view::npos) names.insert(after_colon(message));
  for (size_t at = message.find("\n  "); at != std::string_view::npos; at = message.find("\n  ", at + 1)) {
    const std::string_view line = message.substr(at + 3);
    names.insert(str_cat("`", line.substr(0, line.find_first_of(" \n")), "`"));
  }
  return names;
}

/// The pipeline of the executorch profile, from functional graph to emission.
Status try_executorch(Trial& trial, const ir::Catalog& catalog, const compiler::Environment& environment) {
  ir::Program& program = trial.program();
  passes::PassContext context;
  context.catalog = &catalog;
  context.evaluator = environment.evaluator;
  context.has_kernel = [](std::string_view kernel) { return emit::is_control_flow(kernel) || compiler::executorch_has_kernel(kernel); };
  context.avoid = compiler::executorch_avoids;
  for (const std::string_view pass : {"decompose", "fit_executorch", "fold_constants", "dce"}) PTERON_TRY(passes::find_pass(pass)->run(program.methods[0]->graph, context).status());
  PTERON_TRY(passes::check_supported(program, context.has_kernel));
  PTERON_TRY(compiler::check_executorch_limits(program));
  for (const std::string_view pass : {"remove_noops", "fold_casts_views", "dce"}) PTERON_TRY(passes::find_pass(pass)->run(program.methods[0]->graph, context).status());
  emit::EmitOptions options;
  options.profile = emit::Profile::kExecutorch;
  options.has_kernel = context.has_kernel;
  options.catalog = &catalog;
  return emit::emit_program(program, options).status();
}

/// Whether a complex call is refused although such a call with floats runs; errors of inference that say "invalid" are PyTorch's own.
bool refuses_complex(const ir::Op& op, const std::vector<int64_t>& shape, const ir::Catalog& catalog, const compiler::Environment& environment) {
  Trial trial(op, kDTypes[std::size(kDTypes) - 1], shape, catalog);
  if (!trial.build()) return trial.refusal().code() == Code::kUnsupported;
  passes::PassContext context;
  context.catalog = &catalog;
  context.has_kernel = environment.has_kernel;
  ir::Graph& graph = trial.program().methods[0]->graph;
  const Status decomposed = passes::find_pass("decompose")->run(graph, context).status();
  if (!decomposed.ok()) return decomposed.code() == Code::kUnsupported;
  if (!passes::check_supported(trial.program(), environment.has_kernel).ok()) return true;
  const auto inputs = make_inputs(graph);
  interp::StateTensors states;
  return inputs && interp::run_graph(*environment.evaluator, graph, *inputs, &states).status().code() == Code::kUnsupported;
}

/// Names of dtypes for people: all of them in one word.
std::string dtypes_text(const std::vector<std::string_view>& refused, size_t tried) {
  if (refused.size() == tried) return "every dtype";
  std::string out;
  for (const std::string_view name : refused) str_append(out, out.empty() ? "" : ", ", name);
  return out;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}
std::string number(size_t n) {
  const std::string text = std::to_string(n);
  return std::string(text.size() < 12 ? 12 - text.size() : 1, ' ') + text;
}

}  // namespace

std::string trial_text(const ir::Catalog& catalog, const compiler::Environment& environment, std::span<const backends::Backend* const> backends) {
  std::string out = "\nby dtype, small arguments                  runs     refused     untried";
  for (const backends::Backend* backend : backends) {
    const std::string name = str_cat("on ", backend->name());
    out += std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') + name;
  }
  out += "\n";
  std::map<std::string_view, const std::vector<int64_t>*> shape_of;  // an operator's shape, found with float32
  for (const DTypeRow& dtype : kDTypes) {
    size_t ran = 0, refused = 0, untried = 0;
    std::vector<size_t> taken(backends.size(), 0);
    for (const std::string_view name : compiler::core_aten()) {
      const ir::Op* op = catalog.find(name);
      if (op == nullptr || op->def.infer == nullptr || name.starts_with("aten::sym_") || op->has(ir::kRegion)) continue;
      std::optional<Outcome> best;
      for (const auto& shape : kShapes) {
        if (const auto known = shape_of.find(name); known != shape_of.end() && known->second != &shape) continue;
        Trial trial(*op, dtype, shape, catalog);
        if (!trial.build()) continue;
        best = try_trial(trial, catalog, environment, backends);
        if (best->ran && dtype.dtype == DType::kFloat32) shape_of.emplace(name, &shape);
        if (best->ran) break;
      }
      const bool tried = best || shape_of.contains(name);
      if (best && best->ran) {
        ++ran;
        for (size_t b = 0; b < backends.size(); ++b) taken[b] += best->taken[b] ? 1 : 0;
      } else {
        ++(tried ? refused : untried);
      }
    }
    out += padded(str_cat("core ATen, ", dtype_name(dtype.dtype)), 34) + number(ran) + number(refused) + number(untried);
    for (const size_t n : taken) out += number(n);
    out += "\n";
  }
  return out;
}

std::string executorch_trial_text(const ir::Catalog& catalog, const compiler::Environment& environment) {
  size_t untried = 0, calls = 0;
  std::map<std::pair<std::string, std::string>, std::vector<std::string_view>> rows;  // (dtypes, what they lead to) -> operators
  for (const Shape& shape : shapes_of(catalog, environment, &untried)) {
    const ir::Op* const op = shape.op;
    if (how_of(*op, environment, true) == How::kUnsupported) continue;
    std::vector<std::string_view> refused;
    std::set<std::string> names;
    size_t tried = 0;
    for (const DTypeRow& dtype : kDTypes) {
      if (is_complex(dtype.dtype) || is_float8(dtype.dtype)) continue;
      bool ran = false, bad = false;
      for (const std::string_view reduction : reductions_of(*op)) {
        Trial ours(*op, dtype, *shape.sizes, catalog, reduction), theirs(*op, dtype, *shape.sizes, catalog, reduction);
        if (!ours.build() || !shape.fits(try_trial(ours, catalog, environment, {})) || !theirs.build()) continue;
        const Status status = try_executorch(theirs, catalog, environment);
        ran = ran || status.ok() || status.code() == Code::kUnsupported;
        if (status.code() != Code::kUnsupported) continue;  // also calls that only our kernels let through
        bad = true;
        for (const std::string& name : names_in(status.message())) names.insert(name);
      }
      tried += ran;
      calls += ran;
      if (bad) refused.push_back(dtype_name(dtype.dtype));
    }
    const bool only_itself = names.size() == 1 && *names.begin() == str_cat("`", op->name, "`");
    if (refused.empty() || (only_itself && !shape.runs)) continue;  // arguments that do not run on our kernels either may be wrong
    std::string leads;
    for (const std::string& name : names) str_append(leads, leads.empty() ? "" : ", ", name);
    rows[{dtypes_text(refused, tried), leads}].push_back(op->name);
  }
  std::string out = str_cat("Operators whose small call leads to operators or forms without an official kernel (", calls, " calls of all operators were tried; for ", untried,
                            " operators none could be made up):\n\n| operators | dtypes | what the call needs |\n|---|---|---|\n");
  for (const auto& [key, operators] : rows) {
    std::string names;
    for (const std::string_view name : operators) str_append(names, names.empty() ? "" : ", ", "`", name, "`");
    str_append(out, "| ", names, " | ", key.first, " | ", key.second, " |\n");
  }
  return out;
}

std::string complex_trial_text(const ir::Catalog& catalog, const compiler::Environment& environment) {
  size_t untried = 0;
  std::string out;
  for (const Shape& shape : shapes_of(catalog, environment, &untried)) {
    if (refuses_complex(*shape.op, *shape.sizes, catalog, environment)) str_append(out, out.empty() ? "" : ", ", "`", shape.op->name, "`");
  }
  return out.empty() ? "none" : out;
}

}  // namespace pteron::cli
