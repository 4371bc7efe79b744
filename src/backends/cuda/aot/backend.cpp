// The backend object: what it takes, and the way from a group to its payload.
#include "backends/cuda/aot/backend.h"

#include <utility>

#include "backends/api/program_group.h"
#include "backends/cuda/aot/kernel_sources.h"
#include "backends/cuda/aot/operators.h"
#include "backends/cuda/payload.h"

namespace pteron::cuda {
namespace {

using backends::CompiledGroup;
using backends::GroupContext;
using backends::Support;

class CudaBackend final : public backends::Backend {
 public:
  explicit CudaBackend(ir::Catalog engine) : engine_(std::move(engine)) {}
  std::string_view name() const override { return "cuda"; }
  std::string_view id() const override { return kBackendId; }
  uint64_t alignment_bytes() const override { return kAlignment; }

  Support supports(const ir::Graph& /*graph*/, const ir::Node& /*node*/) const override { return Support::no("no kernel"); }

  Result<CompiledGroup> compile(ir::Method& group, const GroupContext& context) const override {
    PTERON_ASSIGN(CompiledGroup made, backends::program_group(group, context));
    made.id = kBackendId;
    made.specs.push_back({std::string(kVersionKey), {std::byte{kVersion}}});
    return made;
  }

 private:
  ir::Catalog engine_;
};

}  // namespace

Result<std::unique_ptr<backends::Backend>> make_backend() {
  ir::Catalog engine;
  PTERON_TRY(engine.add(operators()));
  return std::unique_ptr<backends::Backend>(std::make_unique<CudaBackend>(std::move(engine)));
}

}  // namespace pteron::cuda
