// The list of operators that nothing can run, with counts and the first source line of each.
#include <map>
#include <string>

#include "base/str_cat.h"
#include "ir/builder.h"
#include "ir/engine.h"
#include "ir/scalar_kernels.h"
#include "passes/alias_ops.h"
#include "passes/passes.h"
#include "passes/probe_dtypes.h"

namespace pteron::passes {

using ir::Graph;
using ir::Node;

namespace {

struct Missing {
  uint32_t count = 0;
  std::string first;  ///< where it is met first
  std::string why;
};

constexpr std::string_view kRandomWhy = "draws random numbers; compile with --allow-random";

/// Counts a node that cannot run; `why` is empty for those that can.
void note(const Node& node, std::string why, std::map<std::string, Missing>* missing) {
  if (why.empty()) return;
  Missing& entry = (*missing)[node.op->name];
  if (entry.count++ > 0) return;
  entry.first = node.source.empty() ? str_cat("node ", node.name) : node.source;
  entry.why = std::move(why);
}

/// What the operator's own room says against this form of it; empty if nothing.
std::string refusal_of_inference(Graph& graph, const Node& node) {
  if (node.op->def.infer == nullptr) return {};
  ir::InferContext context(graph, *node.op, node.args);
  const Status status = node.op->def.infer(context);
  return status.code() == Code::kUnsupported ? std::string(status.message()) : std::string();
}

/// Why a node cannot run; empty if it can.
std::string problem_of(Graph& graph, const Node& node, const HasKernel& has_kernel, bool allow_random, const interp::Evaluator* evaluator) {
  const ir::Op& op = *node.op;
  if (!node.refusal.empty()) return node.refusal;
  if (op.name.starts_with("torch._functorch.")) return "part of a torch.func transform; export.run_decompositions() makes plain operators of it";
  if (!op.known && op.functional == nullptr) return "unknown operator";
  if (op.functional != nullptr) return "writes in place";
  if (const ir::ExprNode* scalar = ir::scalar_without_kernel(node, has_kernel)) {
    return str_cat("shape arithmetic ", ir::to_text(ir::Expr(scalar)), " has no instruction in this profile");
  }
  if (op.is_view() || op.has(ir::kAlias)) return {};
  if (op.has(ir::kRegion)) return has_kernel(op.name) ? std::string() : "control flow";
  if (!allow_random && draws_random(graph, node)) return std::string(kRandomWhy);
  if (op.name == ir::kEngineOp) return {};  // its backend claims it
  if (op.kernel.empty()) return "no kernel";
  if (std::string why = refusal_of_inference(graph, node); !why.empty()) return why;
  if (!has_kernel(op.kernel)) return str_cat("no kernel ", op.kernel);
  return evaluator == nullptr ? std::string() : probe_dtypes(graph, node, *evaluator);
}

void collect(Graph& graph, const HasKernel& has_kernel, bool allow_random, const interp::Evaluator* evaluator, std::map<std::string, Missing>* missing) {
  for (const ir::NodeId id : graph.order) {
    const Node& node = graph[id];
    note(node, problem_of(graph, node, has_kernel, allow_random, evaluator), missing);
    for (const auto& region : node.regions) collect(*region, has_kernel, allow_random, evaluator, missing);
  }
}

/// Nodes that no later pass could make anything of.
void collect_hopeless(Graph& graph, bool allow_random, std::map<std::string, Missing>* missing) {
  for (const ir::NodeId id : graph.order) {
    const Node& node = graph[id];
    std::string why = node.refusal;
    const bool transform = node.op->name.starts_with("torch._functorch.");  // batch_vmap may make plain operators of it
    if (why.empty() && !transform && !node.op->known && node.op->functional == nullptr) why = problem_of(graph, node, {}, allow_random, nullptr);
    if (why.empty() && node.op->known && !allow_random && draws_random(graph, node)) why = kRandomWhy;
    note(node, std::move(why), missing);
    for (const auto& region : node.regions) collect_hopeless(*region, allow_random, missing);
  }
}

Status in_one_error(const std::map<std::string, Missing>& missing) {
  if (missing.empty()) return ok_status();
  std::string text = str_cat(missing.size(), missing.size() == 1 ? " unsupported operator:" : " unsupported operators:");
  for (const auto& [name, entry] : missing) str_append(text, "\n  ", name, "  x", entry.count, "  first at ", entry.first, " (", entry.why, ")");
  return Status(Code::kUnsupported, std::move(text));
}

}  // namespace

bool draws_random(const Graph& graph, const Node& node) {
  if (!node.op->has(ir::kRandom)) return false;
  const ir::NodeView view(graph, *node.op, node.args);
  for (const std::string_view mode : {"train", "training"}) {
    if (view.has(mode)) return view.boolean(mode, true) && !(view.has("p") && view.number("p") == 0);
  }
  return true;
}

Status check_supported(ir::Program& program, const HasKernel& has_kernel, bool allow_random, const interp::Evaluator* evaluator) {
  std::map<std::string, Missing> missing;
  for (const auto& method : program.methods) collect(method->graph, has_kernel, allow_random, evaluator, &missing);
  return in_one_error(missing);
}

Status check_known(ir::Program& program, bool allow_random) {
  std::map<std::string, Missing> missing;
  for (const auto& method : program.methods) collect_hopeless(method->graph, allow_random, &missing);
  return in_one_error(missing);
}

}  // namespace pteron::passes
