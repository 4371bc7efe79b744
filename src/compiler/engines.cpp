// Claims prebuilt engines and reports them like a backend's groups.
#include "compiler/engines.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/str_cat.h"
#include "compiler/devices.h"
#include "compiler/specs.h"
#include "ir/engine.h"
#include "ir/op.h"

namespace pteron::compiler {

namespace {

size_t count_engines(const ir::Graph& graph) {
  return static_cast<size_t>(std::ranges::count_if(graph.order, [&](ir::NodeId id) { return graph[id].op->name == ir::kEngineOp; }));
}

/// Errors: kUnsupported (an engine in a region: nothing is delegated there).
Status check_regions(const ir::Graph& graph) {
  for (const ir::NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      if (count_engines(*region) > 0)
        return Status(Code::kUnsupported,
                      str_cat("node ", graph[id].name, ": a prebuilt engine inside control flow; engines run outside of branches and loops only"));
      PTERON_TRY(check_regions(*region));
    }
  }
  return ok_status();
}

Result<MethodPartition> claim_of_method(const CompileOptions& options, const Environment& environment, ir::Method& method, EdgeProgram& edge) {
  const backends::Backend& backend = *environment.prebuilt;
  const std::vector<format::CompileSpec> specs = specs_for(options, backend, method.name);
  const bool external = is_data_external(options, backend.name(), method.name);
  PTERON_ASSIGN(std::vector<backends::CompiledGroup> groups,
                backend.claim(method, static_cast<uint32_t>(edge.groups.size()), {environment.catalog, nullptr, options.bf16, external, specs}));
  MethodPartition part;
  part.method = method.name;
  const auto count = static_cast<uint32_t>(groups.size());
  part.report.shares.push_back({std::string(backend.name()), count, count});
  for (backends::CompiledGroup& group : groups) {
    part.groups.push_back(
        {std::string(backend.name()), group.payload.size() + group.payload_tail.size(), group.memory_bytes, group.lower_bound_bytes, std::move(group.kernels)});
    edge.groups.push_back({std::move(group), external, backend.alignment_bytes(), std::string(backend.name()), true});
    part.groups.back().device = device_label(edge.groups.back());
  }
  return part;
}

}  // namespace

Result<std::vector<MethodPartition>> claim_engines(const CompileOptions& options, const Environment& environment, EdgeProgram& edge) {
  std::vector<MethodPartition> claimed;
  for (const auto& method : edge.program.methods) {
    Status status = check_regions(method->graph);
    if (status.ok() && count_engines(method->graph) == 0) continue;
    if (status.ok() && environment.prebuilt == nullptr) status = Status(Code::kUnsupported, "prebuilt engines, and no backend that claims them");
    if (status.ok()) {
      auto part = claim_of_method(options, environment, *method, edge);
      if (part.ok()) claimed.push_back(std::move(part).value());
      if (!part.ok()) status = std::move(part).status();
    }
    if (!status.ok()) return std::move(status).with_context(str_cat("method ", method->name));
  }
  return claimed;
}

void add_claimed(std::vector<MethodPartition> claimed, CompileReport& report) {
  for (MethodPartition& part : claimed) {
    const auto found = std::ranges::find(report.partitions, part.method, &MethodPartition::method);
    if (found == report.partitions.end()) {
      report.partitions.push_back(std::move(part));
      continue;
    }
    std::erase_if(found->report.shares, [&](const partition::BackendShare& share) { return share.backend == part.report.shares[0].backend; });
    found->report.shares.insert(found->report.shares.begin(), part.report.shares.begin(), part.report.shares.end());
    found->groups.insert(found->groups.begin(), std::make_move_iterator(part.groups.begin()), std::make_move_iterator(part.groups.end()));
  }
}

}  // namespace pteron::compiler
