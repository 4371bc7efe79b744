// Which nodes the backend takes, and how a group becomes a payload.
#include "backends/null/aot/backend.h"

#include <utility>

#include "backends/api/program_group.h"
#include "backends/null/payload.h"
#include "tensor/dtype.h"

namespace pteron::null {
namespace {

using backends::CompiledGroup;
using backends::GroupContext;
using backends::Support;

class NullBackend final : public backends::Backend {
 public:
  NullBackend(Take take, std::function<bool(std::string_view)> has_kernel) : take_(take), has_kernel_(std::move(has_kernel)) {}
  std::string_view name() const override { return take_ == Take::kNothing ? "null" : "null:all"; }
  std::string_view id() const override { return kBackendId; }
  bool external_data() const override { return take_ == Take::kEverything; }  // "null" has no data
  // A device that only the file knows: the payload runs on the host. A backend that computes there sets CompiledGroup::io_device as well.
  std::span<const std::string_view> spec_keys() const override {
    static constexpr std::string_view kKeys[] = {backends::kDeviceSpec};
    return take_ == Take::kEverything ? std::span<const std::string_view>(kKeys) : std::span<const std::string_view>();
  }

  Support supports(const ir::Graph& graph, const ir::Node& node) const override {
    if (take_ == Take::kNothing) return Support::no("the null backend takes nothing");
    // Questions that every backend has an answer to: dtype, rank, sizes that depend on data, random numbers.
    for (const ir::ValueId id : node.outputs) {
      if (is_complex(graph[id].type.dtype)) return Support::no("complex numbers");
      if (graph[id].type.rank() > 8) return Support::no("a rank over 8");
    }
    if (node.op->has(ir::kRandom)) return Support::no("random numbers");
    if (node.op->has(ir::kDataDependent)) return Support::no("a result whose size depends on data");
    if (node.op->is_view() || node.op->has(ir::kAlias)) return {};
    if (!node.op->kernel.empty() && has_kernel_(node.op->kernel)) return {};
    return Support::no("no kernel");
  }

  Result<CompiledGroup> compile(ir::Method& group, const GroupContext& context) const override {
    PTERON_ASSIGN(CompiledGroup made, backends::program_group(group, context));
    made.id = kBackendId;
    made.specs.push_back({std::string(kVersionKey), {std::byte{kVersion}}});
    made.specs.insert(made.specs.end(), context.specs.begin(), context.specs.end());
    return made;
  }

 private:
  Take take_;
  std::function<bool(std::string_view)> has_kernel_;
};

}  // namespace

std::unique_ptr<backends::Backend> make_backend(Take take, std::function<bool(std::string_view kernel)> has_kernel) {
  return std::make_unique<NullBackend>(take, std::move(has_kernel));
}

}  // namespace pteron::null
