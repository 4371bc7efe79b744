// From a group's graph to the bytes of a program.
#include "backends/api/program_group.h"

#include <algorithm>

#include "base/byte_sink.h"
#include "base/str_cat.h"
#include "ir/verify.h"

namespace pteron::backends {

namespace {

/// Of planned buffers in payloads and of their blobs. Units: bytes; a cache line, and the widest vectors.
constexpr uint64_t kPayloadAlignment = 64;

void list_kernels(const format::PlanSpec& plan, std::vector<std::string>& out) {
  for (const format::InstructionSpec& instruction : plan.instructions) {
    const auto* call = std::get_if<format::KernelCall>(&instruction);
    if (call == nullptr) continue;
    const format::OperatorSpec& op = plan.operators[static_cast<size_t>(call->op_index)];
    out.push_back(op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload));
  }
}

}  // namespace

Result<CompiledGroup> program_group(ir::Method& group, const GroupContext& context) {
  PTERON_TRY(ir::verify(group.graph, ir::Dialect::kProfile));
  emit::EmitOptions options;
  options.alignment_bytes = kPayloadAlignment;
  options.is_payload = true;
  options.catalog = context.catalog;
  options.external_keys = context.external_keys;
  options.external_weights = context.external_weights;
  const ir::Method* methods[] = {&group};
  PTERON_ASSIGN(emit::Emitted emitted, emit::emit_methods(*group.graph.program, methods, options));
  // The numbers among the inputs vary, and inputs may be written: only the facts say so.
  PTERON_ASSIGN(const Buffer facts, emit::add_meta(emitted.meta, emit::Profile::kPteron, "", emitted.program));
  MemorySink sink;
  PTERON_TRY(format::write_program(emitted.program, {kPayloadAlignment}, sink));
  CompiledGroup made;
  PTERON_ASSIGN(made.payload, Buffer::create(sink.bytes().size()));
  std::copy(sink.bytes().begin(), sink.bytes().end(), made.payload.data());
  for (emit::ExternalConstant& constant : emitted.external) made.data.push_back({std::move(constant.key), std::move(constant.layout), std::move(constant.payload), std::move(constant.made)});
  for (const emit::MethodReport& report : emitted.reports) {
    made.memory_bytes += report.arena_bytes;
    made.lower_bound_bytes += report.lower_bound_bytes;
  }
  for (const format::PlanSpec& plan : emitted.program.plans) list_kernels(plan, made.kernels);
  return made;
}

}  // namespace pteron::backends
