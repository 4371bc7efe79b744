// Decomposition to a fixed point: each node that has one and is not kept is replaced by its decomposition, whose nodes are visited too.
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/str_cat.h"
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
      PTERON_TRY(fit_scalar_args(builder, node, graph_[node.outputs[0]].type.dtype));
    }
    if (node.op->def.decompose == nullptr || keep_(*node.op, node)) {
      order_.push_back(id);
      return ok_status();
    }
    if (depth == kMaxDepth) return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " does not end"));
    std::vector<NodeId> made;
    Builder builder(graph_, catalog_, made);
    builder.has_kernel = has_kernel_;
    builder.set_origin(node);
    const std::vector<ValueId> results = node.op->def.decompose(builder, NodeView(graph_, *node.op, node.args));
    if (!builder.status().ok()) return builder.take_status().with_context(graph_[id].op->name);
    if (results.empty()) {
      order_.push_back(id);
      return ok_status();
    }
    changed_ = true;
    PTERON_TRY(replace(graph_[id], results));
    for (const NodeId inner : made) PTERON_TRY(visit(inner, depth + 1));
    return ok_status();
  }

  Status replace(const Node& node, const std::vector<ValueId>& results) {
    if (results.size() != node.outputs.size()) {
      return Status(Code::kInternal, str_cat("the decomposition of ", node.op->name, " gives ", results.size(), " results, expected ", node.outputs.size()));
    }
    for (size_t k = 0; k < results.size(); ++k) {
      const ValueId old = node.outputs[k];
      if (!results[k].valid() || results[k] == old) continue;
      PTERON_TRY(check_same(node, k, graph_[old], graph_[results[k]]));
      replaced_[old.index] = results[k];
    }
    return ok_status();
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
