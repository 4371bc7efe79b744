// Reading and making nodes and constants. Used by every rewrite of this folder.
#include "backends/cpu/aot/nodes.h"

#include <limits>
#include <string>

#include "base/buffer.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/shape.h"

namespace pteron::cpu {

namespace {

/// One element from a float dtype to another; the same bits if they are equal.
void move_element(const std::byte* from, int64_t at, DType from_type, std::byte* to, int64_t index, DType to_type) {
  const auto* floats = reinterpret_cast<const float*>(from) + at;
  const auto* halves = reinterpret_cast<const uint16_t*>(from) + at;
  if (from_type == to_type && from_type != DType::kFloat32) {
    reinterpret_cast<uint16_t*>(to)[index] = *halves;
    return;
  }
  const float value = from_type == DType::kFloat32 ? *floats : from_type == DType::kFloat16 ? half_bits_to_float(*halves) : bfloat16_bits_to_float(*halves);
  if (to_type == DType::kFloat32) {
    reinterpret_cast<float*>(to)[index] = value;
  } else {
    reinterpret_cast<uint16_t*>(to)[index] = to_type == DType::kFloat16 ? float_to_half_bits(value) : float_to_bfloat16_bits(value);
  }
}

/// Bytes of reordered().
Result<Buffer> reordered_bytes(const ir::Constant& from, const std::vector<size_t>& order, DType to) {
  Buffer made;
  const std::byte* data = from.data;
  std::vector<int64_t> strides = from.strides;
  if (data == nullptr) {
    PTERON_ASSIGN(made, from.lazy());
    data = made.data();
    const Sizes dense = contiguous_strides(from.sizes);
    strides.assign(dense.begin(), dense.end());
  }
  PTERON_ASSIGN(Buffer out, Buffer::create(static_cast<uint64_t>(from.numel()) * dtype_size(to)));
  std::vector<int64_t> index(order.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < from.numel(); ++i) {
    move_element(data, at, from.dtype, out.data(), i, to);
    for (size_t d = order.size(); d-- > 0;) {
      at += strides[order[d]];
      if (++index[d] < from.sizes[order[d]]) break;
      at -= index[d] * strides[order[d]];
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

ir::ValueId add_node(ir::Builder& builder, const ir::Catalog& catalog, std::string_view name, std::vector<ir::Arg> args) {
  const ir::Op* op = catalog.find(name);
  if (op == nullptr) return {};
  Result<std::vector<ir::Arg>> completed = ir::complete_args(*op, std::move(args), builder.exprs());
  if (!completed.ok()) return {};
  ir::Graph& graph = builder.graph();
  const Result<ir::NodeId> made = ir::make_node(graph, *op, std::move(completed).value(), name.substr(name.find("::") + 2));
  if (!made.ok()) return {};
  builder.append(made.value());
  return graph[made.value()].outputs[0];
}

const ir::Node* producer_of(const ir::Graph& graph, ir::ValueId id) {
  return id.valid() && graph[id].producer.valid() ? &graph[graph[id].producer] : nullptr;
}

const ir::Node* made_by(const ir::Graph& graph, ir::ValueId id, std::string_view op) {
  const ir::Node* node = producer_of(graph, id);
  return node != nullptr && node->op->name == op ? node : nullptr;
}

const ir::Constant* constant_of(const ir::Graph& graph, ir::ValueId id) {
  if (!id.valid() || !graph[id].constant.valid()) return nullptr;
  const ir::Constant& c = (*graph.program)[graph[id].constant];
  return c.mutable_elsewhere ? nullptr : &c;
}

const ir::Constant* weight_of(const ir::Graph& graph, ir::ValueId id, DType dtype, size_t rank) {
  const ir::Constant* c = constant_of(graph, id);
  const bool fits = c != nullptr && c->dtype == dtype && c->sizes.size() == rank && c->numel() > 0 && (c->data != nullptr || c->lazy != nullptr);
  return fits ? c : nullptr;
}

ir::ValueId add_constant(ir::Graph& graph, ir::Constant constant) {
  const std::string name = constant.name;
  return graph.add_constant(graph.program->add(std::move(constant)), name);
}

ir::Constant turned(ir::Constant matrix) {
  std::swap(matrix.sizes[0], matrix.sizes[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  matrix.name += ".T";
  return matrix;
}

ir::Constant reordered(const ir::Constant& from, std::vector<size_t> order, DType to) {
  ir::Constant made;
  made.dtype = to;
  for (const size_t d : order) made.sizes.push_back(from.sizes[d]);
  const Sizes strides = contiguous_strides(made.sizes);
  made.strides.assign(strides.begin(), strides.end());
  made.lazy = [from, order = std::move(order), to] { return reordered_bytes(from, order, to); };
  return made;
}

bool is_one(const ir::NodeView& node, std::string_view name) { return ir::is_number(node.expr(name)) && ir::number_of(node.expr(name)) == 1; }

std::vector<ir::Expr> pair_of(std::vector<ir::Expr> list) {
  if (list.size() == 1) list.push_back(list[0]);
  return list;
}

ir::Arg optional_arg(ir::ValueId id) { return id.valid() ? ir::Arg(id) : ir::Arg(std::monostate()); }

void set_arg(const ir::Node& node, std::vector<ir::Arg>& args, std::string_view name, ir::Arg value) {
  args[static_cast<size_t>(node.op->schema.find(name))] = std::move(value);
}

std::optional<Bounds> clamp_bounds(const ir::NodeView& node) {
  const std::string& op = node.op().name;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (op == "aten::relu") return Bounds{0, kInfinity};
  Bounds bounds{-kInfinity, kInfinity};
  if (op == "aten::hardtanh") {
    bounds = {node.number("min_val"), node.number("max_val")};
  } else if (op == "aten::clamp") {
    for (const char* bound : {"min", "max"}) {
      if (!node.is_none(bound) && !ir::is_number(node.expr(bound))) return std::nullopt;
    }
    if (!node.is_none("min")) bounds.low = ir::number_of(node.expr("min"));
    if (!node.is_none("max")) bounds.high = ir::number_of(node.expr("max"));
  } else {
    return std::nullopt;
  }
  return bounds.low <= bounds.high ? std::optional(bounds) : std::nullopt;
}

}  // namespace pteron::cpu
