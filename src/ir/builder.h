// Reading a node by argument name (NodeView), inferring result types (InferContext), building nodes (Builder), rewriting graphs (rewrite).
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::ir {

/// Access to the arguments of a node by schema name. A name that the schema lacks is our own bug (PTERON_CHECK).
/// Owns: nothing.
class NodeView {
 public:
  NodeView(const Graph& graph, const Op& op, std::span<const Arg> args) : graph_(&graph), op_(&op), args_(args) {}

  const Graph& graph() const { return *graph_; }
  const Op& op() const { return *op_; }
  std::span<const Arg> args() const { return args_; }
  const Arg& arg(std::string_view name) const;
  bool has(std::string_view name) const { return op_->schema.find(name) >= 0; }
  bool is_none(std::string_view name) const { return std::holds_alternative<std::monostate>(arg(name)); }
  bool is_value(std::string_view name) const { return std::holds_alternative<ValueId>(arg(name)); }

  /// A tensor (or run-time scalar) argument; invalid if None.
  ValueId value(std::string_view name) const;
  std::vector<ValueId> values(std::string_view name) const;
  /// Type of a tensor argument; of a Python number in its place: rank 0, kInt64, kFloat32, kBool or kComplexFloat (kFloat32 also for None).
  const TensorType& type(std::string_view name) const;
  const TensorType& type(ValueId id) const { return (*graph_)[id].type; }
  /// A scalar argument as expression; `missing` if None.
  Expr expr(std::string_view name, Expr missing = 0) const;
  /// A list of ints; empty if None.
  std::vector<Expr> exprs(std::string_view name) const;
  /// A constant int. Requires: constant (use expr() where symbols may come).
  int64_t integer(std::string_view name, int64_t missing = 0) const;
  std::vector<int64_t> integers(std::string_view name) const;
  /// True if a list of ints holds constants only.
  bool all_const(std::string_view name) const;
  double number(std::string_view name, double missing = 0) const;
  bool boolean(std::string_view name, bool missing = false) const;
  std::string_view text(std::string_view name) const;
  /// dtype argument; `missing` if None.
  DType dtype(std::string_view name, DType missing) const;

 private:
  const Graph* graph_;
  const Op* op_;
  std::span<const Arg> args_;
};

struct InferredValue {
  ValueKind kind = ValueKind::kTensor;
  TensorType type;
  Expr scalar;
};

/// What an InferFn gets: the node's arguments and a place for results.
class InferContext : public NodeView {
 public:
  InferContext(Graph& graph, const Op& op, std::span<const Arg> args) : NodeView(graph, op, args), exprs_(&graph.program->exprs) {}
  using NodeView::exprs;
  ExprContext& exprs() { return *exprs_; }
  /// Appends a row-major tensor result.
  void add(DType dtype, std::vector<Expr> sizes) { results.push_back({ValueKind::kTensor, contiguous_type(dtype, std::move(sizes)), 0}); }
  void add(TensorType type) { results.push_back({ValueKind::kTensor, std::move(type), 0}); }
  void add_scalar(Expr scalar) { results.push_back({ValueKind::kScalar, {}, scalar}); }
  void add_none() { results.push_back({ValueKind::kNone, {}, 0}); }

  std::vector<InferredValue> results;

 private:
  ExprContext* exprs_;
};

/// Appends nodes to a list of a graph. Errors are sticky: after the first one every call returns invalid ids and status() has it.
class Builder {
 public:
  /// New nodes go to the end of `sink` (usually graph.order or a rewrite's new order) and take source and module from `origin`.
  Builder(Graph& graph, const Catalog& catalog, std::vector<NodeId>& sink) : graph_(&graph), catalog_(&catalog), sink_(&sink) {}

  Graph& graph() { return *graph_; }
  const Catalog& catalog() const { return *catalog_; }
  ExprContext& exprs() { return graph_->program->exprs; }
  const TensorType& type(ValueId id) const;
  void set_origin(const Node& node) { origin_source_ = node.source, origin_module_ = node.module; }
  /// The kernels that the profile of this compile has; decompositions may ask before they choose a form. Null: all.
  std::function<bool(std::string_view kernel)> has_kernel;
  /// Sees the arguments of every node before it is made and may replace them, also by nodes that it makes itself. Null: nothing.
  std::function<void(const Op& op, std::vector<Arg>& args)> before;

  /// The single result of an op by full name; missing trailing arguments take their defaults.
  ValueId op(std::string_view name, std::vector<Arg> args);
  /// All results.
  std::vector<ValueId> ops(std::string_view name, std::vector<Arg> args);
  /// A constant tensor of rank 0 holding `value` (float, int or bool by dtype).
  ValueId scalar_tensor(double value, DType dtype);
  /// A constant from bytes in row-major order. Requires: bytes fit dtype and sizes.
  ValueId constant(DType dtype, std::vector<int64_t> sizes, std::span<const std::byte> bytes, std::string_view name = "literal");
  Expr floating(double value) { return exprs().floating(value); }
  Expr boolean(bool value) { return exprs().boolean(value); }

  /// Puts a node that was made elsewhere at the end of the list.
  void append(NodeId node) { sink_->push_back(node); }

  /// Records an error if there is none yet.
  void fail(Status status);
  const Status& status() const { return status_; }
  Status take_status() { return std::move(status_); }

 private:
  Graph* graph_;
  const Catalog* catalog_;
  std::vector<NodeId>* sink_;
  std::string origin_source_, origin_module_;
  Status status_;
};

/// The default of a schema argument. Requires: has_default.
Arg default_argument(const SchemaArg& arg, ExprContext& exprs);

/// Makes an argument what the schema says: numbers of its type, a list where a list is expected.
void coerce_argument(Arg* arg, const SchemaType& type, ExprContext& exprs);

/// Arguments of `op` completed with schema defaults. Errors: kInvalidInput if a required one is missing.
Result<std::vector<Arg>> complete_args(const Op& op, std::vector<Arg> args, ExprContext& exprs);

/// Runs the op's inference and appends the node and its results to the graph (not to `order`).
/// Errors: what infer says, with the op's name in front; kInternal if the op has no inference.
Result<NodeId> make_node(Graph& graph, const Op& op, std::vector<Arg> args, std::string_view name);

/// What a rewrite callback says about the node it was shown.
enum class Rewrite : uint8_t {
  kKeep,     ///< the node stays, after whatever the builder made
  kReplace,  ///< the node goes; `replacements` stand for its results
  kRemove,   ///< the node goes; its results are not used any more
};

/// Walks `order` once, showing each node with its arguments already replaced; the callback builds new nodes before it.
/// Results, states and input mutations are replaced at the end. Regions are not entered.
/// Returns whether anything changed. Errors: from the callback or the builder.
using RewriteFn = std::function<Result<Rewrite>(Builder& builder, NodeId node, std::vector<ValueId>& replacements)>;
Result<bool> rewrite(Graph& graph, const Catalog& catalog, const RewriteFn& fn);

/// fn on the graph and every region below it, innermost first.
Status for_each_graph(Graph& graph, const std::function<Status(Graph&)>& fn);

}  // namespace pteron::ir
