// The backend object: what it takes, and the way from a group to its payload.
#include "backends/cpu/aot/backend.h"

#include <algorithm>

#include "backends/api/program_group.h"
#include "backends/cpu/aot/rewrites.h"
#include "backends/cpu/payload.h"
#include "passes/passes.h"

namespace pteron::cpu {
namespace {

using backends::CompiledGroup;
using backends::GroupContext;
using backends::Support;

class CpuBackend final : public backends::Backend {
 public:
  CpuBackend(std::function<bool(std::string_view)> has_kernel, ir::Catalog engine) : has_kernel_(std::move(has_kernel)), engine_(std::move(engine)) {}
  std::string_view name() const override { return "cpu"; }
  std::string_view id() const override { return kBackendId; }

  Support supports(const ir::Graph& graph, const ir::Node& node) const override {
    if (node.op->has(ir::kRandom)) return Support::no("random numbers");
    // An index by integers has a known size, although it could be one by a mask.
    const bool known = std::ranges::all_of(node.outputs, [&](ir::ValueId out) { return graph[out].kind == ir::ValueKind::kTensor && graph[out].type.is_static(); });
    if (node.op->has(ir::kDataDependent) && !known) return Support::no("a result whose size depends on data");
    if (node.op->is_view() || node.op->has(ir::kAlias)) return {};
    if (!node.op->kernel.empty() && has_kernel_(node.op->kernel)) return {};
    return Support::no("no kernel");
  }

  Result<CompiledGroup> compile(ir::Method& group, const GroupContext& context) const override {
    PTERON_TRY(fuse_quantized(group.graph, engine_, *context.catalog).status());
    PTERON_TRY(passes::dce(group.graph, *context.catalog).status());
    PTERON_TRY(spell_quantized(group.graph, *context.catalog).status());
    PTERON_TRY(plain_convolutions(group.graph, *context.catalog).status());
    PTERON_TRY(join_parts(group.graph, *context.catalog).status());
    PTERON_TRY(fuse(group.graph, engine_, !context.bf16).status());
    PTERON_TRY(narrow_products(group.graph, engine_, context.bf16).status());
    PTERON_TRY(fuse_attention(group.graph, engine_, *context.catalog).status());
    PTERON_TRY(fuse_norms(group.graph, engine_).status());
    PTERON_TRY(fuse_pointwise(group.graph, engine_).status());
    PTERON_TRY(passes::dce(group.graph, *context.catalog).status());
    PTERON_TRY(choose_layouts(group.graph));
    PTERON_TRY(fuse_sums(group.graph, engine_).status());
    PTERON_TRY(passes::dce(group.graph, *context.catalog).status());
    PTERON_ASSIGN(CompiledGroup made, backends::program_group(group, context));
    made.id = kBackendId;
    made.specs.push_back({std::string(kVersionKey), {std::byte{kVersion}}});
    return made;
  }

 private:
  std::function<bool(std::string_view)> has_kernel_;
  ir::Catalog engine_;
};

}  // namespace

Result<std::unique_ptr<backends::Backend>> make_backend(std::function<bool(std::string_view kernel)> has_kernel) {
  ir::Catalog engine;
  PTERON_TRY(engine.add(operators()));
  return std::unique_ptr<backends::Backend>(std::make_unique<CpuBackend>(std::move(has_kernel), std::move(engine)));
}

}  // namespace pteron::cpu
