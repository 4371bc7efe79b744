// Graph, value and constant bookkeeping.
#include "ir/graph.h"

#include <algorithm>
#include <type_traits>

#include "base/str_cat.h"
#include "ir/op.h"

namespace pteron::ir {

bool TensorType::is_static() const {
  return std::all_of(sizes.begin(), sizes.end(), [](const Expr& e) { return e.is_const(); });
}

std::vector<Expr> contiguous_strides_of(std::span<const Expr> sizes) {
  std::vector<Expr> strides(sizes.size(), Expr(1));
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * dim_max(sizes[d], 1);
  return strides;
}

TensorType contiguous_type(DType dtype, std::vector<Expr> sizes, Device device) {
  TensorType type{dtype, std::move(sizes), {}, device};
  type.strides = contiguous_strides_of(type.sizes);
  return type;
}

bool is_contiguous(const TensorType& type) {
  Expr expected = 1;
  for (size_t d = type.sizes.size(); d-- > 0;) {
    if (dim_is(type.sizes[d], 1)) continue;
    if (!(type.strides[d] == expected)) return false;
    expected = expected * dim_max(type.sizes[d], 1);
  }
  return true;
}

Expr numel_of(std::span<const Expr> sizes) {
  Expr n = 1;
  for (const Expr& s : sizes) n = n * s;
  return n;
}

std::string Graph::unique_name(std::string_view name) {
  std::string wanted(name.empty() ? "v" : name);
  const auto value_index = static_cast<uint32_t>(values.size());
  if (names_.emplace(wanted, value_index).second) return wanted;
  uint32_t& suffix = suffixes_[wanted];
  for (;;) {
    std::string candidate = str_cat(wanted, "_", ++suffix);
    if (names_.emplace(candidate, value_index).second) return candidate;
  }
}

ValueId Graph::add_tensor(TensorType type, std::string_view name) {
  Value value;
  value.type = std::move(type);
  value.name = unique_name(name);
  values.push_back(std::move(value));
  return ValueId{static_cast<uint32_t>(values.size() - 1)};
}

ValueId Graph::add_scalar(Expr scalar, std::string_view name) {
  const ValueId id = add_tensor({}, name);
  values[id.index].kind = ValueKind::kScalar;
  values[id.index].scalar = scalar;
  return id;
}

ValueId Graph::add_none(std::string_view name) {
  const ValueId id = add_tensor({}, name);
  values[id.index].kind = ValueKind::kNone;
  return id;
}

ValueId Graph::add_constant(ConstantId constant, std::string_view name) {
  const auto found = constant_values_.find(constant.index);
  if (found != constant_values_.end()) return found->second;
  const Constant& c = (*program)[constant];
  TensorType type{c.dtype, {c.sizes.begin(), c.sizes.end()}, {c.strides.begin(), c.strides.end()}, {}};
  const ValueId id = add_tensor(std::move(type), name);
  values[id.index].constant = constant;
  constant_values_.emplace(constant.index, id);
  return id;
}

NodeId Graph::add_node(Node node) {
  const NodeId id{static_cast<uint32_t>(nodes.size())};
  for (const ValueId out : node.outputs) values[out.index].producer = id;
  nodes.push_back(std::move(node));
  return id;
}

ValueId Graph::find(std::string_view name) const {
  const auto found = names_.find(std::string(name));
  return found == names_.end() ? ValueId{} : ValueId{found->second};
}

int64_t Constant::numel() const {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

size_t Constant::size_bytes() const { return static_cast<size_t>(numel()) * dtype_size(dtype); }

Program::~Program() = default;

ConstantId Program::add(Constant constant) {
  constants.push_back(std::move(constant));
  return ConstantId{static_cast<uint32_t>(constants.size() - 1)};
}

void for_each_value(Arg& arg, const std::function<void(ValueId&)>& fn) {
  if (auto* one = std::get_if<ValueId>(&arg)) {
    if (one->valid()) fn(*one);
  } else if (auto* many = std::get_if<std::vector<ValueId>>(&arg)) {
    for (ValueId& id : *many) {
      if (id.valid()) fn(id);
    }
  }
}

void for_each_value(const Arg& arg, const std::function<void(ValueId)>& fn) {
  if (const auto* one = std::get_if<ValueId>(&arg)) {
    if (one->valid()) fn(*one);
  } else if (const auto* many = std::get_if<std::vector<ValueId>>(&arg)) {
    for (const ValueId id : *many) {
      if (id.valid()) fn(id);
    }
  }
}

void for_each_use(const Node& node, const std::function<void(ValueId)>& fn) {
  for (const Arg& arg : node.args) for_each_value(arg, fn);
}

void for_each_result(Graph& graph, const std::function<void(ValueId&)>& fn) {
  for (Arg& output : graph.outputs) for_each_value(output, fn);
  for (State& state : graph.states) {
    if (state.result.valid()) fn(state.result);
  }
  for (InputMutation& mutation : graph.input_mutations) fn(mutation.result);
}

std::vector<uint32_t> count_uses(Graph& graph) {
  std::vector<uint32_t> uses(graph.values.size(), 0);
  for (const NodeId id : graph.order) {
    for_each_use(graph[id], [&](ValueId v) { ++uses[v.index]; });
  }
  for_each_result(graph, [&](ValueId& v) { ++uses[v.index]; });
  return uses;
}

}  // namespace pteron::ir
