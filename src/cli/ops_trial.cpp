// Coverage by dtype and backend: every core operator is called with small made-up arguments, compiled as the pipeline does it and run.
#include "cli/ops_trial.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/str_cat.h"
#include "compiler/profile.h"
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
const std::vector<std::vector<int64_t>> kShapes = {{2, 2}, {1, 2, 4, 4}, {2, 2, 2}, {4}, {1, 2, 4}, {1, 2, 4, 4, 4}, {}};

bool named(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// Made-up arguments of an operator for one dtype and shape.
class Trial {
 public:
  Trial(const ir::Op& op, const DTypeRow& dtype, const std::vector<int64_t>& shape, const ir::Catalog& catalog) : op_(op), dtype_(dtype), shape_(shape), catalog_(catalog) {}

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
    if (!node.ok()) return false;
    graph.order = {*node};
    graph.outputs.clear();
    for (const ir::ValueId out : graph[*node].outputs) {
      if (graph[out].kind == ir::ValueKind::kTensor) graph.outputs.emplace_back(out);
    }
    return true;
  }

  ir::Program& program() { return program_; }
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
      case BaseType::kString: return args_.emplace_back(std::string("none")), true;
      case BaseType::kScalarType: return args_.emplace_back(dtype_.dtype), true;
      default: return false;
    }
  }

  const ir::Op& op_;
  const DTypeRow& dtype_;
  const std::vector<int64_t>& shape_;
  const ir::Catalog& catalog_;
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

}  // namespace pteron::cli
