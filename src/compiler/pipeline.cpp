// The main path, top to bottom: every phase of a compilation in order.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "compiler/compile.h"
#include "format/meta.h"
#include "format/program.h"
#include "import/import.h"
#include "passes/passes.h"
#include "pteron/version.h"

namespace pteron::compiler {

namespace {

constexpr std::string_view kPhases[] = {"import", "resolve", "functionalize", "decompose", "optimize", "emit", "write"};

uint64_t peak_resident_bytes() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

/// Runs passes by name over all methods; knows what is disabled and dumped, and keeps the time of the running phase.
class Driver {
 public:
  Driver(const CompileOptions& options, const Environment& environment, ir::Program& program, CompileReport& report)
      : options_(options), environment_(environment), program_(program), report_(report) {}

  /// fn(graph) -> Result<bool> on every method.
  template <typename Fn>
  Status pass(std::string_view name, Fn fn) {
    if (std::find(options_.disabled.begin(), options_.disabled.end(), name) != options_.disabled.end()) return ok_status();
    for (const auto& method : program_.methods) {
      auto changed = fn(method->graph);
      if (!changed.ok()) return std::move(changed).status().with_context(program_.methods.size() > 1 ? str_cat("method ", method->name) : std::string(name));
    }
    return ok_status();
  }

  /// Ends a phase; true if the compilation stops here.
  bool finish(std::string_view name) {
    const auto now = std::chrono::steady_clock::now();
    report_.phases.push_back({std::string(name), std::chrono::duration<double>(now - begin_).count(), peak_resident_bytes()});
    begin_ = now;
    return options_.stop_after == name;
  }

 private:
  const CompileOptions& options_;
  const Environment& environment_;
  ir::Program& program_;
  CompileReport& report_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status import_methods(const CompileOptions& options, const ir::Catalog& catalog, ir::Program& program) {
  for (const MethodSource& source : options.methods) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> archive, FileBytes::map(source.path));
    importer::ImportOptions import;
    import.method = source.method;
    import.log = options.log;
    Status status = importer::import_archive(std::move(archive), catalog, import, program);
    if (!status.ok()) return std::move(status).with_context(str_cat("loading ", source.path));
  }
  return ok_status();
}

std::vector<std::string> operators_of(const format::ProgramSpec& program) {
  std::set<std::string> names;
  for (const format::PlanSpec& plan : program.plans) {
    for (const format::OperatorSpec& op : plan.operators) names.insert(op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload));
  }
  return {names.begin(), names.end()};
}

/// Stores the facts about the methods as named data of the program. The program borrows the returned bytes.
Result<Buffer> add_meta(const CompileOptions& options, emit::Emitted& emitted) {
  emitted.meta.compiler_version = version();
  emitted.meta.profile = options.profile == Profile::kExecutorch ? "executorch" : "pteron";
  PTERON_ASSIGN(Buffer bytes, format::write_meta(emitted.meta));
  emitted.program.blobs.push_back({format::Payload::borrow(bytes.span()), 0, 0});
  emitted.program.named_data.push_back({std::string(format::kMetaKey), static_cast<uint32_t>(emitted.program.blobs.size() - 1)});
  return bytes;
}

}  // namespace

std::vector<std::string_view> phase_names() { return {std::begin(kPhases), std::end(kPhases)}; }

Result<CompileReport> compile(const CompileOptions& options, const Environment& environment, ByteSink& sink) {
  CompileReport report;
  ir::Program program;
  const ir::Catalog& catalog = *environment.catalog;
  const passes::HasKernel has_kernel = [&](std::string_view kernel) {
    if (emit::is_control_flow(kernel)) return true;
    return options.profile == Profile::kExecutorch ? executorch_has_kernel(kernel) : environment.has_kernel(kernel);
  };
  const passes::Keep keep = [&](const ir::Op& op, const ir::Node&) {
    return op.is_view() || op.has(ir::kAlias) || (!op.kernel.empty() && has_kernel(op.kernel));
  };
  Driver driver(options, environment, program, report);

  PTERON_TRY(import_methods(options, catalog, program));
  if (driver.finish("import")) return report;

  PTERON_TRY(driver.pass("inline_wrappers", [&](ir::Graph& g) { return passes::inline_wrappers(g, catalog); }));
  PTERON_TRY(driver.pass("resolve", [&](ir::Graph& g) { return passes::resolve(g, catalog); }));
  if (driver.finish("resolve")) return report;

  PTERON_TRY(driver.pass("functionalize", [&](ir::Graph& g) { return passes::functionalize(g, catalog); }));
  PTERON_TRY(driver.pass("dce", [&](ir::Graph& g) { return passes::dce(g, catalog); }));
  if (driver.finish("functionalize")) return report;

  // Before composites go, while batch norm is still one node.
  PTERON_TRY(driver.pass("fold_conv_bn", [&](ir::Graph& g) { return passes::fold_conv_bn(g, catalog); }));
  PTERON_TRY(driver.pass("decompose", [&](ir::Graph& g) { return passes::decompose(g, catalog, keep, has_kernel); }));
  PTERON_TRY(passes::check_supported(program, has_kernel));
  if (driver.finish("decompose")) return report;

  PTERON_TRY(driver.pass("remove_noops", [&](ir::Graph& g) { return passes::remove_noops(g, catalog); }));
  PTERON_TRY(driver.pass("fold_casts_views", [&](ir::Graph& g) { return passes::fold_casts_views(g, catalog); }));
  if (environment.evaluator != nullptr) {
    PTERON_TRY(driver.pass("fold_constants", [&](ir::Graph& g) { return passes::fold_constants(g, catalog, *environment.evaluator); }));
  }
  PTERON_TRY(driver.pass("cse", [&](ir::Graph& g) { return passes::cse(g, catalog); }));
  PTERON_TRY(driver.pass("merge_constants", [&](ir::Graph& g) { return passes::merge_constants(g, catalog); }));
  PTERON_TRY(driver.pass("dce", [&](ir::Graph& g) { return passes::dce(g, catalog); }));
  if (driver.finish("optimize")) return report;

  PTERON_ASSIGN(emit::Emitted emitted, emit::emit_program(program, {options.profile, options.alignment_bytes}));
  report.methods = std::move(emitted.reports);
  report.operators = operators_of(emitted.program);
  for (const format::Payload& constant : emitted.program.constants) report.weight_bytes += constant.size_bytes;
  if (driver.finish("emit")) return report;

  PTERON_ASSIGN(const Buffer facts, add_meta(options, emitted));
  PTERON_TRY(format::write_program(emitted.program, {options.alignment_bytes}, sink));
  driver.finish("write");
  return report;
}

}  // namespace pteron::compiler
