// Products of bytes that were made unsigned for one processor become signed ones again: what torchao writes where the exporting machine has VNNI but
// no AMX, mm(levels + 128 as unsigned bytes, w) - 128 * sums of w's columns, is mm(levels, w). Exact: both are integers modulo 2^32.
#include <vector>

#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Builder;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

namespace {

constexpr int64_t kShift = 128;

class ProductSigner {
 public:
  explicit ProductSigner(Graph& graph) : graph_(graph) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const Node* difference = &graph_[id];
    if (!is(difference, "aten::sub.Tensor") || !has_number(difference, "alpha", 1)) return Rewrite::kKeep;
    const Node* product = maker(difference, "self", "aten::_int_mm");
    const Node* correction = maker(difference, "other", "aten::mul.Tensor");
    if (product == nullptr || correction == nullptr || !has_number(correction, "other", kShift)) return Rewrite::kKeep;
    const ValueId weight = value(product, "mat2"), levels = shifted_levels(value(product, "self"));
    const Node* sums = maker(correction, "self", "aten::sum.dim_IntList");
    if (!levels.valid() || sums == nullptr || value(sums, "self") != weight || !sums_columns(sums)) return Rewrite::kKeep;
    made = {b.op("aten::_int_mm", {levels, weight})};
    return Rewrite::kReplace;
  }

 private:
  static bool is(const Node* node, std::string_view op) { return node != nullptr && node->op->known && node->op->name == op; }
  NodeView view(const Node* node) const { return NodeView(graph_, *node->op, node->args); }
  ValueId value(const Node* node, std::string_view argument) const {
    const NodeView v = view(node);
    return v.is_value(argument) ? v.value(argument) : ValueId{};
  }
  bool has_number(const Node* node, std::string_view argument, int64_t number) const {
    const ir::Arg& arg = view(node).arg(argument);
    const auto* expr = std::get_if<ir::Expr>(&arg);
    return expr != nullptr && expr->is_const() && ir::number_of(*expr) == static_cast<double>(number);
  }
  const Node* producer(ValueId id, std::string_view op) const {
    if (!id.valid() || !graph_[id].producer.valid()) return nullptr;
    const Node* node = &graph_[graph_[id].producer];
    return is(node, op) ? node : nullptr;
  }
  const Node* maker(const Node* node, std::string_view argument, std::string_view op) const { return producer(value(node, argument), op); }

  /// The signed bytes q of a value that is (q as int32 + 128) as unsigned bytes; invalid if it is none.
  ValueId shifted_levels(ValueId shifted) const {
    if (!shifted.valid() || graph_[shifted].type.dtype != DType::kUInt8) return {};
    const Node* narrow = producer(shifted, "aten::to.dtype");
    const Node* plus = narrow == nullptr ? nullptr : maker(narrow, "self", "aten::add.Tensor");
    if (plus == nullptr || !has_number(plus, "other", kShift) || !has_number(plus, "alpha", 1)) return {};
    const ValueId wide = value(plus, "self");
    const Node* widen = producer(wide, "aten::to.dtype");
    if (widen == nullptr || graph_[wide].type.dtype != DType::kInt32) return {};
    const ValueId levels = value(widen, "self");
    return levels.valid() && graph_[levels].type.dtype == DType::kInt8 ? levels : ValueId{};
  }
  bool sums_columns(const Node* sums) const {
    const NodeView v = view(sums);
    return v.type("self").dtype == DType::kInt8 && v.boolean("keepdim") && v.integers("dim") == std::vector<int64_t>{0} && graph_[sums->outputs[0]].type.dtype == DType::kInt32;
  }

  Graph& graph_;
};

}  // namespace

Result<bool> signed_products(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, signed_products(*region, catalog));
      changed = changed || region_changed;
    }
  }
  ProductSigner signer(graph);
  PTERON_ASSIGN(const bool here, ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return signer(b, id, made); }));
  return changed || here;
}

}  // namespace pteron::passes
