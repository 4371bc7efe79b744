// Evaluation batch norm behind a convolution becomes part of the convolution's weights:
// W' = W * gamma / sqrt(var + eps) per output channel, b' = (b - mean) * gamma / sqrt(var + eps) + beta.
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interp/evaluator.h"
#include "passes/passes.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::passes {

using interp::HostTensor;
using ir::Builder;
using ir::Constant;
using ir::ConstantId;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Program;
using ir::Rewrite;
using ir::ValueId;

namespace {

/// Constants of the pair; invalid ids for absent ones.
struct Pair {
  ConstantId weight, bias, gamma, beta, mean, var;
  double eps = 0;
  int64_t channels = 0;
  int64_t groups = 1;
  bool transposed = false;
};

bool is_convolution(const ir::Op& op) {
  const std::string_view name = op.schema.name;
  return name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d" || name == "aten::convolution";
}

/// Statistics and gamma/beta of a node that is batch norm in evaluation form.
bool is_batch_norm(const Graph& graph, const Node& node) {
  if (node.op->schema.name == "aten::_native_batch_norm_legit_no_training") return true;
  if (node.op->schema.name != "aten::batch_norm" || !node.op->known) return false;
  const NodeView view(graph, *node.op, node.args);
  return !view.boolean("training");
}

/// A constant argument that nobody writes. False if there is a tensor of another kind.
bool constant_arg(const Graph& graph, const NodeView& view, std::string_view name, ConstantId* out) {
  if (view.is_none(name)) return true;
  const ValueId id = view.value(name);
  if (!id.valid() || !graph[id].constant.valid()) return false;
  const Constant& constant = (*graph.program)[graph[id].constant];
  *out = graph[id].constant;
  return !constant.mutable_elsewhere && (constant.data != nullptr || constant.lazy);
}

std::optional<Pair> pair_of(const Graph& graph, const Node& conv, const Node& norm) {
  Pair pair;
  const NodeView c(graph, *conv.op, conv.args), n(graph, *norm.op, norm.args);
  if (!constant_arg(graph, c, "weight", &pair.weight) || !constant_arg(graph, c, "bias", &pair.bias)) return std::nullopt;
  if (!constant_arg(graph, n, "weight", &pair.gamma) || !constant_arg(graph, n, "bias", &pair.beta)) return std::nullopt;
  if (!constant_arg(graph, n, "running_mean", &pair.mean) || !constant_arg(graph, n, "running_var", &pair.var)) return std::nullopt;
  if (!pair.weight.valid() || !pair.mean.valid() || !pair.var.valid()) return std::nullopt;
  pair.eps = n.number("eps", 1e-5);
  pair.groups = c.has("groups") ? c.integer("groups", 1) : 1;
  pair.transposed = c.has("transposed") && c.boolean("transposed");
  pair.channels = (*graph.program)[pair.mean].numel();
  const Constant& weight = (*graph.program)[pair.weight];
  const int64_t channels = weight.sizes.size() < 3 ? -1 : pair.transposed ? weight.sizes[1] * pair.groups : weight.sizes[0];
  if (channels != pair.channels || pair.groups < 1) return std::nullopt;
  for (const ConstantId id : {pair.weight, pair.bias, pair.gamma, pair.beta, pair.mean, pair.var}) {
    const bool fits = !id.valid() || (*graph.program)[id].dtype == DType::kFloat32 || (*graph.program)[id].dtype == DType::kFloat64;
    if (!fits || (id.valid() && id != pair.weight && (*graph.program)[id].numel() != channels)) return std::nullopt;
  }
  return pair;
}

/// A vector of floats as doubles; `missing` everywhere if there is no such constant.
Result<std::vector<double>> numbers(const Program& program, ConstantId id, int64_t count, double missing) {
  std::vector<double> out(static_cast<size_t>(count), missing);
  if (!id.valid()) return out;
  PTERON_ASSIGN(const HostTensor strided, interp::tensor_of(program[id]));
  PTERON_ASSIGN(const HostTensor tensor, interp::make_contiguous(strided));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = tensor.view.dtype == DType::kFloat64 ? tensor.view.as<double>()[i] : static_cast<double>(tensor.view.as<float>()[i]);
  }
  return out;
}

Result<std::vector<double>> scales(const Program& program, const Pair& pair) {
  PTERON_ASSIGN(std::vector<double> scale, numbers(program, pair.gamma, pair.channels, 1));
  PTERON_ASSIGN(const std::vector<double> var, numbers(program, pair.var, pair.channels, 1));
  for (size_t i = 0; i < scale.size(); ++i) scale[i] /= std::sqrt(var[i] + pair.eps);
  return scale;
}

template <typename T>
void scale_rows(const T* from, T* to, const std::vector<double>& scale, const Pair& pair, std::span<const int64_t> sizes) {
  const int64_t outer = sizes[0], second = sizes[1];
  int64_t inner = 1;
  for (size_t d = 2; d < sizes.size(); ++d) inner *= sizes[d];
  const int64_t per_group = outer / pair.groups;
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < second; ++j) {
      const int64_t channel = pair.transposed ? i / per_group * second + j : i;
      const double factor = scale[static_cast<size_t>(channel)];
      const int64_t at = (i * second + j) * inner;
      for (int64_t k = 0; k < inner; ++k) to[at + k] = static_cast<T>(from[at + k] * factor);
    }
  }
}

Result<Buffer> folded_weight(const Program& program, const Pair& pair) {
  PTERON_ASSIGN(const std::vector<double> scale, scales(program, pair));
  PTERON_ASSIGN(const HostTensor strided, interp::tensor_of(program[pair.weight]));
  PTERON_ASSIGN(const HostTensor weight, interp::make_contiguous(strided));
  PTERON_ASSIGN(Buffer out, Buffer::create(weight.view.size_bytes()));
  if (weight.view.dtype == DType::kFloat64) {
    scale_rows(weight.view.as<double>(), reinterpret_cast<double*>(out.data()), scale, pair, weight.view.sizes());
  } else {
    scale_rows(weight.view.as<float>(), reinterpret_cast<float*>(out.data()), scale, pair, weight.view.sizes());
  }
  return out;
}

Result<Buffer> folded_bias(const Program& program, const Pair& pair, DType dtype) {
  PTERON_ASSIGN(const std::vector<double> scale, scales(program, pair));
  PTERON_ASSIGN(const std::vector<double> bias, numbers(program, pair.bias, pair.channels, 0));
  PTERON_ASSIGN(const std::vector<double> mean, numbers(program, pair.mean, pair.channels, 0));
  PTERON_ASSIGN(const std::vector<double> beta, numbers(program, pair.beta, pair.channels, 0));
  PTERON_ASSIGN(Buffer out, Buffer::create(scale.size() * dtype_size(dtype)));
  for (size_t i = 0; i < scale.size(); ++i) {
    const double value = (bias[i] - mean[i]) * scale[i] + beta[i];
    if (dtype == DType::kFloat64) {
      reinterpret_cast<double*>(out.data())[i] = value;
    } else {
      reinterpret_cast<float*>(out.data())[i] = static_cast<float>(value);
    }
  }
  return out;
}

ValueId add_lazy(Graph& graph, std::string name, DType dtype, std::vector<int64_t> sizes, std::function<Result<Buffer>()> lazy) {
  Constant constant;
  constant.name = std::move(name);
  constant.dtype = dtype;
  const Sizes strides = contiguous_strides(sizes);
  constant.sizes = std::move(sizes);
  constant.strides.assign(strides.begin(), strides.end());
  constant.lazy = std::move(lazy);
  const std::string shown = constant.name;
  return graph.add_constant(graph.program->add(std::move(constant)), shown);
}

class ConvBnFolder {
 public:
  explicit ConvBnFolder(Graph& graph) : graph_(graph), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const Node& norm = graph_[id];
    if (!is_batch_norm(graph_, norm)) return Rewrite::kKeep;
    for (size_t k = 1; k < norm.outputs.size(); ++k) {
      if (uses_[norm.outputs[k].index] != 0) return Rewrite::kKeep;
    }
    const auto* input = std::get_if<ValueId>(&norm.args[0]);
    if (input == nullptr || input->index >= uses_.size() || uses_[input->index] != 1 || !graph_[*input].producer.valid()) return Rewrite::kKeep;
    const Node& conv = graph_[graph_[*input].producer];
    if (!is_convolution(*conv.op) || !conv.op->known) return Rewrite::kKeep;
    const auto pair = pair_of(graph_, conv, norm);
    if (!pair) return Rewrite::kKeep;
    made = {folded(b, conv, *pair)};
    made.resize(norm.outputs.size());  // the unused statistics have no replacement
    return Rewrite::kReplace;
  }

 private:
  ValueId folded(Builder& b, const Node& conv, const Pair& pair) {
    const Program* program = graph_.program;
    const Constant& weight = (*program)[pair.weight];
    const DType dtype = weight.dtype;
    const std::string name = weight.name;
    std::vector<ir::Arg> args = conv.args;
    const auto at = [&](std::string_view arg) { return static_cast<size_t>(conv.op->schema.find(arg)); };
    args[at("weight")] = add_lazy(graph_, name + ".folded", dtype, weight.sizes, [program, pair] { return folded_weight(*program, pair); });
    args[at("bias")] = add_lazy(graph_, name + ".folded_bias", dtype, {pair.channels}, [program, pair, dtype] { return folded_bias(*program, pair, dtype); });
    return b.op(conv.op->name, std::move(args));
  }

  Graph& graph_;
  std::vector<uint32_t> uses_;
};

}  // namespace

Result<bool> fold_conv_bn(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, fold_conv_bn(*region, catalog));
      changed = changed || region_changed;
    }
  }
  ConvBnFolder folder(graph);
  PTERON_ASSIGN(const bool folded, ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return folder(b, id, made); }));
  if (folded) PTERON_TRY([&]() -> Status {
    auto swept = dce(graph, catalog);
    return swept.ok() ? ok_status() : std::move(swept).status();
  }());
  return changed || folded;
}

}  // namespace pteron::passes
