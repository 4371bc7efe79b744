// Nodes of the graph's own operators, for rewrites whose builder makes the engine's.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace pteron::cpu {

/// The dtypes of quantized values.
inline bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUInt8; }

/// The result of a node of `catalog` at the builder's place; missing trailing arguments take their defaults. Invalid if it cannot be made.
inline ir::ValueId add_node(ir::Builder& builder, const ir::Catalog& catalog, std::string_view name, std::vector<ir::Arg> args) {
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

}  // namespace pteron::cpu
