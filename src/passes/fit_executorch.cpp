// Calls in the form that the kernels of the official runtime take: what they refuse at run time, or what ends their process, although the
// operator has an official kernel. Found with the 1.5.1 package; forms that they compute wrongly stand in compiler/profile.cpp.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

namespace {

bool listed(std::span<const std::string_view> names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

/// Their dim arguments refer to dims that a 0-d operand does not have.
constexpr std::string_view kAlongDims[] = {
    "aten::_log_softmax", "aten::_softmax", "aten::amax", "aten::amin", "aten::any.dim", "aten::any.dims", "aten::all.dim", "aten::argmax", "aten::argmin",
    "aten::cat", "aten::cumsum", "aten::gather", "aten::index_select", "aten::max.dim", "aten::mean.dim", "aten::min.dim", "aten::prod.dim_int", "aten::roll",
    "aten::scatter.src", "aten::scatter.value", "aten::scatter_add", "aten::sum.dim_IntList", "aten::topk", "aten::var.correction", "aten::var.dim",
    "aten::var_mean.correction", "aten::flip",
};

/// Arguments that must be int64.
struct IndexArgument {
  std::string_view op, argument;
};
constexpr IndexArgument kIndexes[] = {
    {"aten::gather", "index"}, {"aten::index_select", "index"}, {"aten::scatter.src", "index"}, {"aten::scatter.value", "index"}, {"aten::scatter_add", "index"},
};

/// Operators of a tensor and a number whose kernels want the tensor in the dtype of the result.
constexpr std::string_view kScalarArithmetic[] = {"aten::add.Scalar", "aten::sub.Scalar", "aten::rsub.Scalar", "aten::mul.Scalar"};

bool is_tensor(const Graph& graph, ValueId id) { return id.valid() && graph[id].kind == ir::ValueKind::kTensor; }

class Fitter {
 public:
  explicit Fitter(Graph& graph) : graph_(graph) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    if (!graph_[id].op->known || graph_[id].outputs.empty() || !graph_[id].regions.empty()) return Rewrite::kKeep;
    if (give_empty(b, id, made)) return Rewrite::kReplace;
    const std::string op = graph_[id].op->name;
    std::vector<Arg> args = graph_[id].args;
    bool changed = widen_indexes(b, id, args);
    changed = widen_operand(b, id, args) || changed;
    changed = widen_item(b, id, args) || changed;
    const bool scalar = lift_scalars(b, id, args);
    if (!changed && !scalar) return Rewrite::kKeep;
    if (graph_[graph_[id].outputs[0]].kind != ir::ValueKind::kTensor) {
      graph_[id].args = std::move(args);  // a scalar result keeps its symbol
      return Rewrite::kKeep;
    }
    const std::vector<ValueId> old = graph_[id].outputs;
    for (const ValueId v : b.ops(op, std::move(args))) made.push_back(v);
    for (size_t k = 0; scalar && k < made.size(); ++k) {
      if (!b.status().ok()) break;
      if (!(b.type(made[k]).sizes == graph_[old[k]].type.sizes)) made[k] = b.op("aten::view", {made[k], graph_[old[k]].type.sizes});
    }
    return Rewrite::kReplace;
  }

 private:
  ValueId cast(Builder& b, ValueId x, DType to) { return b.type(x).dtype == to ? x : b.op("aten::_to_copy", {x, to}); }

  /// Static results without elements are made by full.
  bool give_empty(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const Node& node = graph_[id];
    if (node.op->has(ir::kEffect) || node.op->is_view() || node.op->schema.name == "aten::full") return false;
    for (const ValueId out : node.outputs) {
      const ir::Value& value = graph_[out];
      if (value.kind != ir::ValueKind::kTensor || !value.type.is_static() || is_complex(value.type.dtype)) return false;
      const auto& sizes = value.type.sizes;
      if (std::none_of(sizes.begin(), sizes.end(), [](const Expr& e) { return dim_is(e, 0); })) return false;
    }
    const std::vector<ValueId> outputs = node.outputs;
    for (const ValueId out : outputs) made.push_back(b.op("aten::full", {graph_[out].type.sizes, Expr(0), graph_[out].type.dtype}));
    return true;
  }

  bool widen_indexes(Builder& b, NodeId id, std::vector<Arg>& args) {
    const ir::Op& op = *graph_[id].op;
    bool changed = false;
    for (const IndexArgument& row : kIndexes) {
      if (row.op != op.name) continue;
      Arg& arg = args[static_cast<size_t>(op.schema.find(row.argument))];
      const auto* value = std::get_if<ValueId>(&arg);
      if (value == nullptr || b.type(*value).dtype == DType::kInt64) continue;
      arg = cast(b, *value, DType::kInt64);
      changed = true;
    }
    return changed;
  }

  bool widen_operand(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (!listed(kScalarArithmetic, graph_[id].op->name)) return false;
    const auto* self = std::get_if<ValueId>(&args[0]);
    const DType to = graph_[graph_[id].outputs[0]].type.dtype;
    if (self == nullptr || b.type(*self).dtype == to) return false;
    args[0] = cast(b, *self, to);
    return true;
  }

  /// The official reader of a scalar knows no half and bfloat16.
  bool widen_item(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (graph_[id].op->kernel != "aten::_local_scalar_dense") return false;
    const auto* self = std::get_if<ValueId>(&args[0]);
    if (self == nullptr || !is_reduced_float(b.type(*self).dtype)) return false;
    args[0] = cast(b, *self, DType::kFloat32);
    return true;
  }

  /// 0-d operands become one element of one dim.
  bool lift_scalars(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (!listed(kAlongDims, graph_[id].op->name)) return false;
    const auto* first = std::get_if<ValueId>(&args[0]);
    if (first == nullptr || !is_tensor(graph_, *first) || !b.type(*first).sizes.empty()) return false;
    for (Arg& arg : args) {
      auto* value = std::get_if<ValueId>(&arg);
      if (value != nullptr && is_tensor(graph_, *value) && b.type(*value).sizes.empty()) *value = b.op("aten::view", {*value, std::vector<Expr>{Expr(1)}});
    }
    return true;
  }

  Graph& graph_;
};

}  // namespace

Result<bool> fit_executorch(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  Status status = ir::for_each_graph(graph, [&](Graph& inner) -> Status {
    Fitter fitter(inner);
    PTERON_ASSIGN(const bool one, ir::rewrite(inner, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return fitter(b, id, made); }));
    changed = changed || one;
    return ok_status();
  });
  if (!status.ok()) return status;
  return changed;
}

}  // namespace pteron::passes
