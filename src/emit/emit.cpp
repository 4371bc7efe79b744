// Emits every method of a program and gathers their shared constants.
#include "emit/emit.h"

#include <algorithm>

#include "base/str_cat.h"
#include "emit/method_emitter.h"

namespace pteron::emit {

Result<Emitted> emit_program(const ir::Program& program, const EmitOptions& options) {
  Emitted out;
  ConstantPool pool(program);
  for (const auto& method : program.methods) {
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
  return out;
}

}  // namespace pteron::emit
