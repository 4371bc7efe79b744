// The public compile API: settings are checked, the pipeline runs, its report becomes the summary.
#include "pteron/compile.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "facade/toolchain.h"

namespace pteron {

namespace {

Status invalid(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

/// Errors: kInvalidInput naming the setting.
Status check(const CompileSettings& settings) {
  if (settings.methods.empty()) return invalid("expected at least one method, found none");
  std::vector<std::string_view> names;
  for (const CompileMethod& method : settings.methods) names.push_back(method.name);
  for (const CompileConstant& constant : settings.constants) names.push_back(constant.name);
  std::sort(names.begin(), names.end());
  if (names.front().empty()) return invalid("a method without a name");
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return invalid(str_cat("two methods named '", *twice, "'"));
  const bool wants_backend = std::any_of(settings.backends.begin(), settings.backends.end(), [](const std::string& name) { return name != "portable"; });
  if (wants_backend && settings.profile == CompileProfile::kExecutorch) return invalid("the official runtime has none of our backends: expected none with kExecutorch");
  const bool has_default = settings.backends.empty() && settings.profile == CompileProfile::kPteron;
  if (settings.strict && !wants_backend && !has_default) return invalid("strict expects a backend that takes all nodes, found none");
  if (settings.precision != CompilePrecision::kFloat32 && !wants_backend && !has_default) return invalid("precision kBf16 expects a backend that computes in it, found none");
  return facade::check_alignment(settings.alignment_bytes);
}

compiler::ConstantMethod constant_method(const CompileConstant& constant) {
  compiler::ConstantMethod made{constant.name, {}};
  for (const auto& value : constant.values) std::visit([&](const auto& v) { made.values.emplace_back(v); }, value);
  return made;
}

Result<CompileSummary> compile_into(const CompileSettings& settings, ByteSink& sink) {
  PTERON_TRY(check(settings));
  compiler::CompileOptions options;
  for (const CompileMethod& method : settings.methods) options.methods.push_back({method.name, method.archive});
  for (const CompileConstant& constant : settings.constants) options.constants.push_back(constant_method(constant));
  for (const CompileSizeBound& bound : settings.size_bounds) options.size_bounds.push_back({bound.size, bound.max});
  options.shared_states = settings.shared_states;
  options.profile = settings.profile == CompileProfile::kExecutorch ? compiler::Profile::kExecutorch : compiler::Profile::kPteron;
  options.alignment_bytes = settings.alignment_bytes;
  options.strict = settings.strict;
  options.bf16 = settings.precision == CompilePrecision::kBf16;
  options.allow_random = settings.allow_random;
  options.log = settings.log;
  PTERON_ASSIGN(const facade::Toolchain toolchain, facade::Toolchain::create(settings.kernel_libraries, settings.threads));
  PTERON_ASSIGN(options.backends, toolchain.backends(settings.backends.empty() ? facade::default_backends(options.profile) : settings.backends));
  PTERON_ASSIGN(compiler::CompileReport report, compiler::compile(options, toolchain.environment(), sink));
  CompileSummary summary;
  for (const auto& method : report.methods) summary.methods.push_back({method.name, method.arena_bytes, method.lower_bound_bytes, method.instruction_count});
  summary.operators = std::move(report.operators);
  summary.backends = std::move(report.delegates);
  summary.weight_bytes = report.weight_bytes;
  return summary;
}

}  // namespace

Result<CompileSummary> compile_to_file(const CompileSettings& settings, const std::string& path) {
  for (const CompileMethod& method : settings.methods) {
    if (facade::same_file(method.archive, path)) return invalid(str_cat("the output ", path, " is the input ", method.archive));
  }
  facade::LazyFile file(path);
  PTERON_ASSIGN(CompileSummary summary, compile_into(settings, file));
  PTERON_TRY(file.commit(settings.sync));
  summary.file_bytes = file.size();
  return summary;
}

Result<CompiledProgram> compile_to_memory(const CompileSettings& settings) {
  const auto sink = std::make_shared<MemorySink>();  // shared: becomes the program's owner
  CompiledProgram program;
  PTERON_ASSIGN(program.summary, compile_into(settings, *sink));
  program.bytes = sink->bytes();
  program.summary.file_bytes = program.bytes.size();
  program.owner = sink;
  return program;
}

}  // namespace pteron
