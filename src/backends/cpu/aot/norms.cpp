// Root-mean-square norms that arrive spelled out, x * rsqrt(mean(x^2) + eps) and its weight, become pteron_cpu::rms_norm.
#include <string>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "ir/builder.h"

namespace pteron::cpu {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

constexpr std::string_view kNorm = "pteron_cpu::rms_norm";

class NormMatcher {
 public:
  explicit NormMatcher(Graph& graph) : graph_(graph), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& builder, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    if (node.op->name != "aten::mul.Tensor") return Rewrite::kKeep;
    const NodeView n(graph_, *node.op, node.args);
    if (!n.is_value("self") || !n.is_value("other")) return Rewrite::kKeep;
    const ValueId a = n.value("self"), b = n.value("other");
    ValueId made = norm(builder, a, b, node);
    if (!made.valid()) made = norm(builder, b, a, node);
    if (!made.valid()) made = weighted(builder, a, b);
    if (!made.valid()) made = weighted(builder, b, a);
    if (!made.valid()) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] = uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const Node* made_by(ValueId id, std::string_view op) const { return cpu::made_by(graph_, id, op); }
  NodeView view(const Node& node) const { return {graph_, *node.op, node.args}; }

  /// x squared?
  bool is_square(ValueId id, ValueId x) const {
    if (const Node* pow = made_by(id, "aten::pow.Tensor_Scalar")) {
      const Expr exponent = view(*pow).expr("exponent");
      return view(*pow).value("self") == x && ir::is_number(exponent) && ir::number_of(exponent) == 2;
    }
    const Node* mul = made_by(id, "aten::mul.Tensor");
    return mul != nullptr && view(*mul).is_value("other") && view(*mul).value("self") == x && view(*mul).value("other") == x;
  }

  /// x * rsqrt(mean(x^2, -1, keepdim) + eps)
  ValueId norm(Builder& b, ValueId x, ValueId factor, const Node& self) {
    const TensorType& type = graph_[x].type;
    if (type.dtype != DType::kFloat32 || type.rank() < 1 || graph_[self.outputs[0]].type.sizes != type.sizes) return {};
    const Node* root = made_by(factor, "aten::rsqrt");
    if (root == nullptr) return {};
    const ValueId sum = view(*root).value("self");
    const Node* add = made_by(sum, "aten::add.Scalar");
    if (add == nullptr) add = made_by(sum, "aten::add.Tensor");
    if (add == nullptr || view(*add).is_value("other") || !ir::is_number(view(*add).expr("other")) || !ir::is_number(view(*add).expr("alpha"))) return {};
    const Node* mean = made_by(view(*add).value("self"), "aten::mean.dim");
    if (mean == nullptr || !view(*mean).boolean("keepdim") || !is_square(view(*mean).value("self"), x)) return {};
    const std::vector<Expr> dims = view(*mean).exprs("dim");
    if (dims.size() != 1 || !dims[0].is_const() || (dims[0].value() != -1 && dims[0].value() != type.rank() - 1)) return {};
    if (view(*mean).dtype("dtype", DType::kFloat32) != DType::kFloat32) return {};
    return b.op(kNorm, {x, std::monostate(), b.floating(ir::number_of(view(*add).expr("other")) * ir::number_of(view(*add).expr("alpha")))});
  }

  /// A norm without a weight times a vector.
  ValueId weighted(Builder& b, ValueId normed, ValueId weight) {
    const Node* norm = made_by(normed, kNorm);
    if (norm == nullptr || normed.index >= uses_.size() || uses_[normed.index] != 1 || view(*norm).value("weight").valid()) return {};
    const TensorType& type = graph_[weight].type;
    if (type.dtype != DType::kFloat32 || type.rank() != 1 || !(type.sizes[0] == graph_[normed].type.sizes.back())) return {};
    std::vector<Arg> args = norm->args;
    args[1] = weight;
    return b.op(kNorm, std::move(args));
  }

  Graph& graph_;
  std::vector<uint32_t> uses_;
};

}  // namespace

Result<bool> fuse_norms(Graph& graph, const ir::Catalog& engine) {
  NormMatcher matcher(graph);
  return ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(builder, id, replacements); });
}

}  // namespace pteron::cpu
