// Nodes and constants for rewrites: what an argument is, and the graph's own operators where the builder makes the engine's.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace pteron::cpu {

/// The dtypes of quantized values.
inline bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUInt8; }

/// The result of a node of `catalog` at the builder's place; missing trailing arguments take their defaults. Invalid if it cannot be made.
ir::ValueId add_node(ir::Builder& builder, const ir::Catalog& catalog, std::string_view name, std::vector<ir::Arg> args);

/// The node that makes a value; null if none does.
const ir::Node* producer_of(const ir::Graph& graph, ir::ValueId id);
/// The same if it is an `op`.
const ir::Node* made_by(const ir::Graph& graph, ir::ValueId id, std::string_view op);

/// The constant behind a value; null if it is none, or is written anywhere.
const ir::Constant* constant_of(const ir::Graph& graph, ir::ValueId id);
/// The same if it has the dtype, the rank, and elements whose bytes are there or can be made.
const ir::Constant* weight_of(const ir::Graph& graph, ir::ValueId id, DType dtype, size_t rank);
/// A constant of the program as a value of the graph, by the constant's name.
ir::ValueId add_constant(ir::Graph& graph, ir::Constant constant);
/// A matrix [k, n] seen as [n, k]. Requires: rank 2.
ir::Constant turned(ir::Constant matrix);
/// A float32, bfloat16 or float16 constant as `to` (one of them), row-major with its dims in `order`; made when the bytes are asked for.
ir::Constant reordered(const ir::Constant& from, std::vector<size_t> order, DType to);

/// True if the scalar argument is the number 1.
bool is_one(const ir::NodeView& node, std::string_view name);
/// A list with one entry for both dims as two.
std::vector<ir::Expr> pair_of(std::vector<ir::Expr> list);
/// An argument that may be missing.
ir::Arg optional_arg(ir::ValueId id);
/// Replaces an argument of `node` in `args`.
void set_arg(const ir::Node& node, std::vector<ir::Arg>& args, std::string_view name, ir::Arg value);

/// What relu, hardtanh or clamp keep values between.
struct Bounds {
  double low = 0, high = 0;
};
/// Nothing for other nodes, bounds that are no numbers, are NaN, or stand the wrong way round (which follow rules of their own).
std::optional<Bounds> clamp_bounds(const ir::NodeView& node);

}  // namespace pteron::cpu
