// Chains of views, permutations and casts become one node.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

namespace {

bool is_reshape(const ir::Op& op) {
  constexpr std::string_view kNames[] = {"aten::view", "aten::_unsafe_view", "aten::reshape", "aten::unsqueeze", "aten::squeeze", "aten::flatten", "aten::unflatten"};
  return op.known && op.schema.overload != "dtype" && std::find(std::begin(kNames), std::end(kNames), op.schema.name) != std::end(kNames);
}

bool is_cast(const ir::Op& op) { return op.schema.name == "aten::_to_copy"; }

/// Output dim i takes input dim result[i]; nothing if the node is no permutation.
std::optional<std::vector<int64_t>> permutation_of(const Graph& graph, const Node& node) {
  const std::string_view name = node.op->schema.name;
  const NodeView view(graph, *node.op, node.args);
  const auto rank = static_cast<int64_t>(graph[node.outputs[0]].type.sizes.size());
  const auto wrapped = [&](int64_t dim) { return static_cast<size_t>(dim < 0 ? dim + rank : dim); };
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = i;
  if (name == "aten::permute") {
    const std::vector<int64_t> given = view.integers("dims");
    if (given.size() != dims.size()) return std::nullopt;
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(wrapped(given[i]));
    return dims;
  }
  if (name == "aten::transpose" && rank > 0) {
    const size_t a = wrapped(view.integer("dim0")), b = wrapped(view.integer("dim1"));
    if (a >= dims.size() || b >= dims.size()) return std::nullopt;
    std::swap(dims[a], dims[b]);
    return dims;
  }
  if (name == "aten::t") {
    std::reverse(dims.begin(), dims.end());
    return dims;
  }
  return std::nullopt;
}

/// True if every value of `from` is a value of `to`.
bool is_lossless(DType from, DType to) {
  if (from == to) return true;
  if (is_complex(from) || is_complex(to) || is_float8(from) || is_float8(to)) return false;
  if (from == DType::kBool) return is_integral(to, false) || is_floating(to);
  if (is_floating(from)) return to == DType::kFloat64 || (to == DType::kFloat32 && from != DType::kFloat64);
  const size_t bytes = dtype_size(from);
  const bool is_unsigned = from == DType::kUInt8 || (from >= DType::kUInt16 && from <= DType::kUInt64);
  if (to == DType::kFloat64) return bytes <= 4;
  if (to == DType::kFloat32) return bytes <= 2;
  if (is_floating(to) || to == DType::kBool) return false;
  const bool to_unsigned = to == DType::kUInt8 || (to >= DType::kUInt16 && to <= DType::kUInt64);
  if (is_unsigned == to_unsigned) return dtype_size(to) >= bytes;
  return is_unsigned && dtype_size(to) > bytes;
}

const Node* producer_of(const Graph& graph, const Node& node, ValueId* input) {
  const auto* id = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
  if (id == nullptr || !id->valid() || !graph[*id].producer.valid()) return nullptr;
  const Node& producer = graph[graph[*id].producer];
  const auto* source = producer.args.empty() ? nullptr : std::get_if<ValueId>(&producer.args[0]);
  if (source == nullptr || !source->valid() || producer.outputs.size() != 1) return nullptr;
  *input = *source;
  return &producer;
}

Result<Rewrite> join(Builder& b, const Graph& graph, const Node& node, const Node& producer, ValueId source, std::vector<ValueId>& made) {
  const ir::TensorType to = graph[node.outputs[0]].type;
  const ir::TensorType from = graph[source].type;
  if (is_reshape(*node.op) && is_reshape(*producer.op)) {
    made = {from.sizes == to.sizes ? source : b.op("aten::view", {source, to.sizes})};
    return Rewrite::kReplace;
  }
  if (is_cast(*node.op) && is_cast(*producer.op)) {
    if (!is_lossless(from.dtype, graph[producer.outputs[0]].type.dtype)) return Rewrite::kKeep;
    made = {from.dtype == to.dtype ? source : b.op("aten::_to_copy", {source, to.dtype})};
    return Rewrite::kReplace;
  }
  const auto outer = permutation_of(graph, node);
  const auto inner = outer ? permutation_of(graph, producer) : std::nullopt;
  if (!inner || inner->size() != outer->size()) return Rewrite::kKeep;
  std::vector<Expr> dims;
  bool identity = true;
  for (size_t i = 0; i < outer->size(); ++i) {
    const int64_t dim = (*inner)[static_cast<size_t>((*outer)[i])];
    dims.emplace_back(dim);
    identity = identity && dim == static_cast<int64_t>(i);
  }
  made = {identity ? source : b.op("aten::permute", {source, dims})};
  return Rewrite::kReplace;
}

}  // namespace

Result<bool> fold_casts_views(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, fold_casts_views(*region, catalog));
      changed = changed || region_changed;
    }
  }
  PTERON_ASSIGN(const bool joined, ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) -> Result<Rewrite> {
    const Node& node = graph[id];
    if (node.outputs.size() != 1 || graph[node.outputs[0]].kind != ir::ValueKind::kTensor) return Rewrite::kKeep;
    ValueId source;
    const Node* producer = producer_of(graph, node, &source);
    if (producer == nullptr) return Rewrite::kKeep;
    return join(b, graph, node, *producer, source, made);
  }));
  return changed || joined;
}

}  // namespace pteron::passes
