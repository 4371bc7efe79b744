// Sums behind pointwise programs: aten::sum and aten::mean over the last dims become pteron_cpu::pointwise_sum, so that what is added up is never
// written to memory.
#include <string>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "ir/builder.h"

namespace pteron::cpu {
namespace {

using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

constexpr std::string_view kChain = "pteron_cpu::pointwise", kSum = "pteron_cpu::pointwise_sum";

/// How many of the last dims a reduction takes; 0 if it takes others, or numbers of another dtype.
int64_t last_dims(const Graph& graph, const NodeView& node) {
  const ir::TensorType& type = graph[node.value("self")].type;
  if (type.dtype != DType::kFloat32 || node.dtype("dtype", DType::kFloat32) != DType::kFloat32 || node.is_none("dim") || !node.all_const("dim")) return 0;
  const auto rank = static_cast<int64_t>(type.rank());
  std::vector<bool> taken(static_cast<size_t>(rank), false);
  const std::vector<int64_t> dims = node.integers("dim");
  for (const int64_t d : dims) {
    if (d < -rank || d >= rank) return 0;
    taken[static_cast<size_t>(d < 0 ? d + rank : d)] = true;
  }
  const auto count = dims.empty() ? rank : static_cast<int64_t>(dims.size());  // an empty list means all
  for (int64_t d = rank - count; d < rank; ++d) {
    if (!dims.empty() && !taken[static_cast<size_t>(d)]) return 0;
  }
  return count;
}

/// True if no operand lies in another order than the rows that are added up.
bool lies_in_rows(const Graph& graph, const Node& pointwise) {
  bool rows = true;
  ir::for_each_use(pointwise, [&](ValueId id) { rows = rows && (graph[id].type.rank() < 2 || ir::is_contiguous(graph[id].type)); });
  return rows;
}

}  // namespace

Result<bool> fuse_sums(Graph& graph, const ir::Catalog& engine) {
  const std::vector<uint32_t> uses = ir::count_uses(graph);
  return ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) -> Result<Rewrite> {
    const Node& node = graph[id];
    const bool mean = node.op->name == "aten::mean.dim";
    if (!mean && node.op->name != "aten::sum.dim_IntList") return Rewrite::kKeep;
    const NodeView view(graph, *node.op, node.args);
    const ValueId self = view.value("self");
    const Node* made = made_by(graph, self, kChain);
    if (made == nullptr || self.index >= uses.size() || uses[self.index] != 1 || !lies_in_rows(graph, *made)) return Rewrite::kKeep;
    const int64_t dims = last_dims(graph, view);
    if (dims == 0) return Rewrite::kKeep;
    const ValueId sum = builder.op(kSum, {made->args[0], made->args[1], made->args[2], Expr(dims), builder.boolean(mean), builder.boolean(view.boolean("keepdim"))});
    if (!sum.valid() || graph[sum].type.sizes != graph[node.outputs[0]].type.sizes) return Rewrite::kKeep;
    replacements = {sum};
    return Rewrite::kReplace;
  });
}

}  // namespace pteron::cpu
