// Decomposition to a fixed point: each node that has one and is not kept is replaced by its decomposition, whose nodes are visited too.
#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "passes/alias_ops.h"
#include "passes/names.h"
#include "passes/passes.h"
#include "passes/scalar_args.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Builder;
using ir::Catalog;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::ValueId;

namespace {

constexpr int kMaxDepth = 64;  // deeper means that decompositions lead to each other

class Decomposer {
 public:
  Decomposer(Graph& graph, const Catalog& catalog, const Keep& keep, const HasKernel& has_kernel)
      : graph_(graph), catalog_(catalog), keep_(keep), has_kernel_(has_kernel), follow_([this](ValueId& id) { follow(id); }) {}

  Result<bool> run() {
    const std::vector<NodeId> old_order = std::move(graph_.order);
    order_.reserve(old_order.size());
    for (const NodeId id : old_order) {
      if (Status status = visit(id, 0); !status.ok()) {
        const Node& node = graph_[id];
        return std::move(status).with_context(node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")"));
      }
    }
    graph_.order = std::move(order_);
    ir::for_each_result(graph_, follow_);
    return changed_;
  }

 private:
  void follow(ValueId& id) const {
    for (auto found = replaced_.find(id.index); found != replaced_.end(); found = replaced_.find(id.index)) id = found->second;
  }

  Status visit(NodeId id, int depth) {
    Node& node = graph_[id];
    if (!replaced_.empty()) {
      for (ir::Arg& arg : node.args) ir::for_each_value(arg, follow_);
    }
    for (const auto& region : node.regions) {
      Decomposer inner(*region, catalog_, keep_, has_kernel_);
      PTERON_ASSIGN(const bool changed, inner.run());
      changed_ = changed_ || changed;
    }
    if (node.op->known && !node.outputs.empty()) {
      Builder builder(graph_, catalog_, order_);
      builder.set_origin(node);
      Status status = fit_scalar_args(builder, node, graph_[node.outputs[0]].type.dtype);
      if (!status.ok()) return refuse(id, std::move(status));
    }
    if (node.op->has(ir::kDataDependent)) narrow_symbols(node);
    if (node.op->def.decompose == nullptr || keep_(graph_, node)) {
      order_.push_back(id);
      return ok_status();
    }
    if (depth == kMaxDepth) return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " does not end"));
    std::vector<NodeId> made;
    Builder builder(graph_, catalog_, made);
    builder.has_kernel = has_kernel_;
    builder.set_origin(node);
    std::vector<ValueId> results = pieces_as_exported(builder, node);
    if (results.empty()) results = node.op->def.decompose(builder, NodeView(graph_, *node.op, node.args));
    if (!builder.status().ok()) return refuse(id, builder.take_status());
    if (results.empty()) {
      order_.push_back(id);
      return ok_status();
    }
    changed_ = true;
    PTERON_TRY(replace(graph_[id], results));
    unify_symbols(graph_[id], results, made);
    for (const NodeId inner : made) PTERON_TRY(visit(inner, depth + 1));
    return ok_status();
  }

  /// A form that a decomposition refuses stays, so that check_supported can say all such forms at once.
  Status refuse(NodeId id, Status status) {
    if (status.code() != Code::kUnsupported) return std::move(status).with_context(graph_[id].op->name);
    graph_[id].refusal = std::string(status.message());
    order_.push_back(id);
    return ok_status();
  }

  Status replace(const Node& node, const std::vector<ValueId>& results) {
    if (results.size() != node.outputs.size()) {
      return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " gives ", results.size(), " results, expected ", node.outputs.size()));
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId old = node.outputs[k];
      if (!results[k].valid() || results[k] == old) continue;
      if (Status same = check_same(node, k, graph_[old], graph_[results[k]]); !same.ok()) {
        if (!inference_says(node, k, graph_[results[k]].type)) return same;
      }
      replaced_[old.index] = results[k];
    }
    return ok_status();
  }

  /// Sizes that depend on data: the archive's symbol gets the bounds that inference knows (at most so many elements).
  void narrow_symbols(const Node& node) {
    if (node.op->def.infer == nullptr) return;
    ir::InferContext context(graph_, *node.op, node.args);
    if (!node.op->def.infer(context).ok() || context.results.size() != node.outputs.size()) return;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ir::TensorType& old = graph_[node.outputs[k]].type;
      const ir::TensorType& inferred = context.results[k].type;
      for (size_t d = 0; d < old.sizes.size() && d < inferred.sizes.size(); ++d) narrow(old.sizes[d], ir::bounds(inferred.sizes[d]));
    }
  }

  void narrow(ir::Expr symbol, ir::Range range) {
    if (!symbol.is_symbol()) return;
    ir::ExprContext& exprs = graph_.program->exprs;
    const ir::Range own = exprs.range_of(symbol);
    const ir::Range both{std::max(own.min, range.min), std::min(own.max, range.max)};
    if (both.min <= both.max) exprs.set_range(symbol, both);
  }

  /// A size symbol that the decomposition made new stands for the expression that the graph has for it: nodes behind it use that one.
  void unify_symbols(const Node& node, const std::vector<ValueId>& results, const std::vector<NodeId>& made) {
    std::unordered_map<const ir::ExprNode*, ir::Expr> known;
    for (size_t k = 0; k < std::min(results.size(), node.outputs.size()); ++k) {
      const ir::Value& old = graph_[node.outputs[k]];
      if (!results[k].valid() || old.kind != ir::ValueKind::kTensor) continue;
      const ir::TensorType& type = graph_[results[k]].type;
      for (size_t d = 0; d < type.sizes.size() && d < old.type.sizes.size(); ++d) {
        const ir::Expr from = type.sizes[d], to = old.type.sizes[d];
        if (!from.is_symbol() || from == to) continue;
        narrow(to, graph_.program->exprs.range_of(from));
        known.emplace(from.node(), to);
      }
    }
    if (known.empty()) return;
    const auto replacement = [&](ir::Expr symbol) {
      const auto found = known.find(symbol.node());
      return found == known.end() ? symbol : found->second;
    };
    const auto apply = [&](ir::Expr& e) { e = ir::substitute(e, replacement); };
    for (const NodeId id : made) {
      Node& inner = graph_[id];
      for (ir::Arg& arg : inner.args) {
        if (auto* e = std::get_if<ir::Expr>(&arg)) apply(*e);
        if (auto* list = std::get_if<std::vector<ir::Expr>>(&arg)) std::for_each(list->begin(), list->end(), apply);
      }
      for (const ValueId out : inner.outputs) {
        ir::Value& value = graph_[out];
        if (value.kind == ir::ValueKind::kScalar) apply(value.scalar);
        std::for_each(value.type.sizes.begin(), value.type.sizes.end(), apply);
        std::for_each(value.type.strides.begin(), value.type.strides.end(), apply);
      }
    }
  }

  /// The export of these states another shape than their kernel gives (a loss of one sample, the buffer of a sigmoid); inference follows the kernel. For all other
  /// operators a difference is our mistake, and told.
  bool inference_says(const Node& node, size_t k, const ir::TensorType& made) {
    if (!is_one_of(node.op->schema.name, {"aten::log_sigmoid_forward", "aten::multi_margin_loss", "aten::multilabel_margin_loss"}) || node.op->def.infer == nullptr) return false;
    ir::InferContext context(graph_, *node.op, node.args);
    if (!node.op->def.infer(context).ok() || context.results.size() != node.outputs.size()) return false;
    return context.results[k].type.dtype == made.dtype && context.results[k].type.sizes == made.sizes;
  }

  static Status check_same(const Node& node, size_t k, const ir::Value& old, const ir::Value& made) {
    if (old.kind != ir::ValueKind::kTensor || made.kind != ir::ValueKind::kTensor) return ok_status();
    if (old.type.dtype != made.type.dtype) {
      return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " gives dtype ", dtype_name(made.type.dtype), " for result ", k, ", expected ",
                                             dtype_name(old.type.dtype)));
    }
    bool differ = old.type.rank() != made.type.rank();
    for (size_t d = 0; !differ && d < old.type.sizes.size(); ++d) {
      const ir::Expr a = old.type.sizes[d], b = made.type.sizes[d];
      differ = a.is_const() && b.is_const() && a.value() != b.value();
    }
    if (!differ) return ok_status();
    return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " gives another shape for result ", k));
  }

  Graph& graph_;
  const Catalog& catalog_;
  const Keep& keep_;
  const HasKernel& has_kernel_;
  std::function<void(ValueId&)> follow_;
  std::vector<NodeId> order_;
  std::unordered_map<uint32_t, ValueId> replaced_;
  bool changed_ = false;
};

}  // namespace

Result<bool> decompose(Graph& graph, const Catalog& catalog, const Keep& keep, const HasKernel& has_kernel) {
  Decomposer decomposer(graph, catalog, keep, has_kernel);
  return decomposer.run();
}

}  // namespace pteron::passes
