// The table of passes and the clean-up group.
#include "passes/registry.h"

#include <algorithm>
#include <array>

#include "ir/op.h"

namespace pteron::passes {

using ir::Graph;

namespace {

Result<bool> run_decompose(Graph& graph, const PassContext& context) {
  const Keep keep = [&](const Graph& owner, const ir::Node& node) {
    const ir::Op& op = *node.op;
    if (context.avoid && context.avoid(owner, node)) return false;
    if (op.has(ir::kRandom)) {
      const bool draws = draws_random(owner, node);
      if (!draws || !context.allow_random) return draws;
    }
    const bool core_view = op.is_view() && op.def.decompose == nullptr;
    return core_view || op.has(ir::kAlias) || (!op.kernel.empty() && context.has_kernel && context.has_kernel(op.kernel));
  };
  return decompose(graph, *context.catalog, keep, context.has_kernel);
}

Result<bool> run_fold_constants(Graph& graph, const PassContext& context) {
  if (context.evaluator == nullptr) return false;
  return fold_constants(graph, *context.catalog, *context.evaluator, context.keep_narrow);
}

template <Result<bool> (*fn)(Graph&, const ir::Catalog&)>
Result<bool> plain(Graph& graph, const PassContext& context) {
  return fn(graph, *context.catalog);
}

constexpr std::array kPasses = std::to_array<Pass>({
    {"batch_vmap", "the hidden dims of torch.vmap become dims of their own", plain<batch_vmap>},
    {"clean_up", "no-ops, chains, folding, merging and dead code in one", clean_up},
    {"cse", "equal pure nodes are computed once", plain<cse>},
    {"dce", "removes nodes that nobody uses", plain<dce>},
    {"decompose", "composites become operators that have kernels", run_decompose},
    {"fit_executorch", "arguments in the form that the official kernels take", plain<fit_executorch>},
    {"fold_casts_views", "joins chains of casts, views and permutations", plain<fold_casts_views>},
    {"fold_constants", "evaluates nodes whose operands are constants", run_fold_constants},
    {"fold_conv_bn", "batch norm becomes part of the convolution's weights", plain<fold_conv_bn>},
    {"functionalize", "no in-place operators, no writes through views", plain<functionalize>},
    {"inline_wrappers", "no_grad and autocast regions become part of the graph", plain<inline_wrappers>},
    {"merge_constants", "equal constants become one", plain<merge_constants>},
    {"remove_noops", "removes nodes that give back their argument", plain<remove_noops>},
    {"signed_products", "integer products of shifted bytes take the bytes as they were", plain<signed_products>},
    {"resolve", "composites that may alias become views or copies", plain<resolve>},
});

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  const auto found = std::find_if(kPasses.begin(), kPasses.end(), [&](const Pass& pass) { return pass.name == name; });
  return found == kPasses.end() ? nullptr : &*found;
}

Result<bool> clean_up(Graph& graph, const PassContext& context) {
  bool changed = false;
  for (const std::string_view name : {"remove_noops", "fold_casts_views", "fold_constants", "cse", "merge_constants", "dce"}) {
    PTERON_ASSIGN(const bool one, find_pass(name)->run(graph, context));
    changed = changed || one;
  }
  return changed;
}

}  // namespace pteron::passes
