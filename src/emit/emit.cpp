// Emits every method of a program and gathers their shared constants.
#include "emit/emit.h"

#include <algorithm>

#include "base/str_cat.h"
#include "emit/method_emitter.h"

namespace pteron::emit {

Result<const ir::Op*> delegate_op(ir::Program& program) {
  for (const auto& op : program.foreign_ops) {
    if (op->name == kDelegateOp) return op.get();
  }
  auto op = std::make_unique<ir::Op>();
  PTERON_ASSIGN(op->schema, ir::parse_schema(str_cat(kDelegateOp, "(Tensor[] inputs, SymInt[] numbers, int index) -> Tensor[]")));
  op->name = kDelegateOp;
  op->kernel = kDelegateOp;
  program.foreign_ops.push_back(std::move(op));
  return program.foreign_ops.back().get();
}

Result<Emitted> emit_program(const ir::Program& program, const EmitOptions& options) {
  std::vector<const ir::Method*> methods;
  for (const auto& method : program.methods) methods.push_back(method.get());
  return emit_methods(program, methods, options);
}

Result<Emitted> emit_methods(const ir::Program& program, std::span<const ir::Method* const> methods, const EmitOptions& options) {
  Emitted out;
  ConstantPool pool(program);
  for (const ir::Method* method : methods) {
    MethodReport report;
    format::MethodMeta meta;
    auto plan = MethodEmitter(program, *method, options, pool).run(&report, &meta);
    if (!plan.ok()) return std::move(plan).status().with_context(str_cat("method ", method->name));
    out.program.plans.push_back(std::move(plan).value());
    out.reports.push_back(std::move(report));
    out.meta.methods.push_back(std::move(meta));
  }
  // Methods are written in name order, as the official exporter does.
  std::stable_sort(out.program.plans.begin(), out.program.plans.end(),
                   [](const format::PlanSpec& a, const format::PlanSpec& b) { return a.name < b.name; });
  out.program.constants = std::move(pool.constants);
  out.program.initial_states = std::move(pool.initial_states);
  out.external = std::move(pool.external);
  return out;
}

Result<Buffer> add_meta(Emitted& emitted, Profile profile, std::string_view compiler_version) {
  emitted.meta.compiler_version = compiler_version;
  emitted.meta.profile = profile == Profile::kExecutorch ? "executorch" : "pteron";
  PTERON_ASSIGN(Buffer bytes, format::write_meta(emitted.meta));
  emitted.program.blobs.push_back({format::Payload::borrow(bytes.span()), 0, 0});
  emitted.program.named_data.push_back({std::string(format::kMetaKey), static_cast<uint32_t>(emitted.program.blobs.size() - 1)});
  return bytes;
}

}  // namespace pteron::emit
