// The trial of one node, and the pass over a group.
#include "backends/cuda/aot/spelled.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/aot/spellings.h"
#include "base/str_cat.h"
#include "passes/passes.h"

namespace pteron::cuda {
namespace {

using backends::Support;
using ir::Arg;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// A decomposition may make values of so many elements, or so many times those of the largest operand or result.
constexpr int64_t kSmallElements = int64_t{1} << 22;
constexpr int64_t kMostGrowth = 16;

int64_t most_elements(const Graph& graph, ValueId id) {
  const ir::Value& value = graph[id];
  return value.kind == ir::ValueKind::kTensor ? ir::bounds(ir::numel_of(value.type.sizes)).max : 1;
}

/// A graph with a copy of one node; its operands are inputs or constants.
class Trial {
 public:
  Trial(const Graph& graph, const Node& node) : trial_(*graph.program) {
    Node copy;
    copy.op = node.op;
    copy.args = node.args;
    copy.name = node.name;
    for (Arg& arg : copy.args) ir::for_each_value(arg, std::function<void(ValueId&)>([&](ValueId& id) { id = operand(graph, id); }));
    for (const ValueId id : node.outputs) {
      largest_ = std::max(largest_, most_elements(graph, id));
      copy.outputs.push_back(trial_.add_tensor(graph[id].type, graph[id].name));
    }
    const std::vector<ValueId> outputs = copy.outputs;
    const NodeId made = trial_.add_node(std::move(copy));
    trial_.order = {made};
    for (const ValueId id : outputs) {
      trial_[id].producer = made;
      trial_.outputs.emplace_back(id);
    }
  }
  Graph& graph() { return trial_; }
  /// Elements of the largest operand or result.
  int64_t largest() const { return largest_; }

 private:
  ValueId operand(const Graph& graph, ValueId id) {
    if (!id.valid()) return id;
    if (const auto found = known_.find(id.index); found != known_.end()) return found->second;
    const ir::Value& value = graph[id];
    largest_ = std::max(largest_, most_elements(graph, id));
    ValueId made;
    if (value.kind == ir::ValueKind::kScalar) {
      made = trial_.add_scalar(value.scalar, value.name);
    } else if (value.constant.valid()) {
      made = trial_.add_constant(value.constant, value.name);
    } else {
      made = trial_.add_tensor(value.type, value.name);
      trial_.inputs.push_back({value.name, made, {}});
    }
    known_[id.index] = made;
    return made;
  }

  Graph trial_;
  std::unordered_map<uint32_t, ValueId> known_;
  int64_t largest_ = 1;
};

}  // namespace

Support Speller::supports(const Graph& graph, const Node& node) const {
  if ((node.op->def.decompose == nullptr && own_spelling(node) == nullptr) || !node.regions.empty() || node.op->has(ir::kRandom))
    return Support::no("no kernel");
  Trial trial(graph, node);
  if (const Status spelled = spell(trial.graph()); !spelled.ok()) return Support::no(str_cat("no kernel, and its decomposition says: ", spelled.message()));
  const int64_t most = trial.largest() > INT64_MAX / kMostGrowth ? trial.largest() : std::max(kMostGrowth * trial.largest(), kSmallElements);
  for (const NodeId id : trial.graph().order) {
    const Node& part = trial.graph()[id];
    std::string why;
    if (!has_kernel_(trial.graph(), part, &why)) {
      return Support::no(part.op == node.op ? std::string("no kernel") : str_cat("no kernel, and its part ", part.op->name, " has none: ", why));
    }
    for (const ValueId made : part.outputs) {
      if (most_elements(trial.graph(), made) > most) return Support::no(str_cat("no kernel, and values of its part ", part.op->name, " may be too large"));
    }
  }
  return {};
}

Status Speller::spell(Graph& graph) const {
  const auto keep = [&](const Graph& inside, const Node& node) {
    std::string ignored;
    return has_kernel_(inside, node, &ignored);
  };
  // A spelling of ours may need a decomposition, and the other way round.
  for (int turn = 0; turn < 3; ++turn) {
    PTERON_ASSIGN(const bool changed, spell_own(graph, catalog_, keep));
    PTERON_TRY(passes::decompose(graph, catalog_, keep).status());
    if (!changed && turn > 0) break;
  }
  return ok_status();
}

}  // namespace pteron::cuda
