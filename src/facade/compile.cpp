// The public compile API: settings are checked, then each step is the compiler's own; its report becomes the summary.
#include "pteron/compile.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "facade/etrecord.h"
#include "facade/graph_editor.h"
#include "facade/save.h"
#include "facade/toolchain.h"
#include "ir/text.h"

namespace pteron {

struct EdgeProgram::State {
  facade::Toolchain toolchain;
  compiler::CompileOptions options;
  std::unique_ptr<compiler::EdgeProgram> edge;
};

struct CompiledProgram::State {
  std::shared_ptr<const EdgeProgram::State> edge;  // shared: weights and payloads are its
  compiler::FinishedProgram finished;
  CompileSummary summary;
};

namespace {

Status invalid(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

/// Errors: kInvalidInput naming the pass.
Status check_passes(const CompileSettings& settings) {
  for (const TransformPass& pass : settings.passes) {
    if (pass.name.empty()) return invalid("a pass without a name");
    if (!pass.run) return invalid(str_cat("pass ", pass.name, " has no function to run"));
  }
  return ok_status();
}

/// Errors: kInvalidInput naming the setting.
Status check(const CompileSettings& settings) {
  if (settings.methods.empty()) return invalid("expected at least one method, found none");
  if (settings.profile > CompileProfile::kExecutorch || settings.precision > CompilePrecision::kBf16) return invalid("a profile or precision that does not exist");
  const bool wants_backend = std::any_of(settings.backends.begin(), settings.backends.end(), [](const std::string& name) { return name != "portable"; });
  if (wants_backend && settings.profile == CompileProfile::kExecutorch) return invalid("the official runtime has none of our backends: expected none with kExecutorch");
  const bool has_default = settings.backends.empty() && settings.profile == CompileProfile::kPteron;
  if (settings.strict && !wants_backend && !has_default) return invalid("strict expects a backend that takes all nodes, found none");
  if (settings.precision != CompilePrecision::kFloat32 && !wants_backend && !has_default) return invalid("precision kBf16 expects a backend that computes in it, found none");
  if (settings.data_name.has_value() && !settings.external_weights) return invalid(str_cat("a data_name ('", *settings.data_name, "') expects external_weights"));
  return check_passes(settings);
}

compiler::ConstantMethod constant_method(const CompileConstant& constant) {
  compiler::ConstantMethod made{constant.name, {}};
  for (const auto& value : constant.values) std::visit([&](const auto& v) { made.values.emplace_back(v); }, value);
  return made;
}

/// All options but the backends, which are the toolchain's.
Result<compiler::CompileOptions> read_settings(const CompileSettings& settings) {
  compiler::CompileOptions options;
  for (const CompileMethod& method : settings.methods) {
    const bool in_memory = !method.bytes.bytes.empty() || method.bytes.owner != nullptr;
    options.methods.push_back({method.name, method.archive, in_memory ? FileBytes::borrow(method.bytes.bytes, method.bytes.owner) : nullptr});
  }
  for (const CompileConstant& constant : settings.constants) options.constants.push_back(constant_method(constant));
  for (const CompileSizeBound& bound : settings.size_bounds) options.size_bounds.push_back({bound.size, bound.max});
  for (const CompileSpec& spec : settings.specs) options.specs.push_back({spec.backend, spec.method, spec.key, spec.value});
  for (const CompileExclusion& exclusion : settings.exclusions) options.exclusions.push_back({exclusion.backend, exclusion.name, exclusion.is_node});
  if (settings.external_weights) {
    options.external_weights = settings.data_name;
    if (!settings.data_name.has_value()) {
      PTERON_ASSIGN(options.external_weights, facade::default_data_name(settings.methods[0].archive));
    }
  }
  options.transforms = facade::transforms_of(settings.passes);
  options.shared_states = settings.shared_states;
  options.profile = settings.profile == CompileProfile::kExecutorch ? compiler::Profile::kExecutorch : compiler::Profile::kPteron;
  options.strict = settings.strict;
  options.device = settings.device;
  options.device_inputs = settings.device_inputs;
  options.device_outputs = settings.device_outputs;
  options.bf16 = settings.precision == CompilePrecision::kBf16;
  options.allow_random = settings.allow_random;
  options.log = settings.log;
  PTERON_TRY(compiler::check_options(options));
  return options;
}

plan::Planner planner_of(const FinalizeSettings& settings) {
  if (!settings.planner) return nullptr;
  return [planner = settings.planner](std::string_view method, std::span<const plan::BufferRequest> requests, uint64_t alignment_bytes, Device device) {
    std::vector<PlannedBuffer> buffers;
    for (const plan::BufferRequest& request : requests) buffers.push_back({request.size_bytes, request.first, request.last});
    return planner({method, buffers, alignment_bytes, device});
  };
}

CompileSummary summary_of(const compiler::CompileReport& report) {
  CompileSummary summary;
  for (const auto& method : report.methods) summary.methods.push_back({method.name, method.arena_bytes, method.lower_bound_bytes, method.instruction_count});
  summary.operators = report.operators;
  summary.backends = report.delegates;
  summary.weight_bytes = report.weight_bytes;
  summary.external_bytes = report.external_bytes;
  return summary;
}

/// A file in memory, written by `write`.
template <typename Write>
Result<FileInMemory> in_memory(std::string name, Write&& write) {
  const auto sink = std::make_shared<MemorySink>();  // shared: becomes the file's owner
  PTERON_TRY(write(*sink));
  return FileInMemory{std::move(name), sink, sink->bytes()};
}

}  // namespace

const CompileSummary& CompiledProgram::summary() const { return state_->summary; }

Result<FileInMemory> CompiledProgram::bytes() const {
  return in_memory({}, [&](ByteSink& sink) { return compiler::write_program(state_->finished, sink); });
}

Result<std::vector<FileInMemory>> CompiledProgram::data_files() const {
  std::vector<FileInMemory> files;
  if (state_->finished.data_name.empty()) return files;
  PTERON_ASSIGN(FileInMemory file, in_memory(str_cat(state_->finished.data_name, ".ptd"), [&](ByteSink& sink) { return compiler::write_data(state_->finished, sink); }));
  files.push_back(std::move(file));
  return files;
}

Result<FileInMemory> CompiledProgram::etrecord() const {
  auto made = facade::make_etrecord(*state_->edge->edge, state_->finished.report);
  if (!made.ok()) return std::move(made).status();
  const auto owner = std::make_shared<std::string>(std::move(made).value());  // shared: becomes the file's owner
  return FileInMemory{{}, owner, std::as_bytes(std::span(*owner))};
}

Result<WrittenFiles> CompiledProgram::write(const std::string& path, const WriteSettings& settings) const {
  const compiler::CompileOptions& options = state_->edge->options;
  PTERON_TRY(facade::check_save_path(path, options.paths()));
  std::string record;
  if (settings.etrecord) {
    PTERON_TRY(facade::check_save_path(facade::etrecord_path(path), options.paths()));
    PTERON_ASSIGN(record, facade::make_etrecord(*state_->edge->edge, state_->finished.report));
  }
  PTERON_ASSIGN(const facade::SavedFiles saved, facade::save_files(state_->finished, {path, settings.sync, settings.force, record, options.log}));
  WrittenFiles written{saved.program_bytes, {}, saved.data_bytes, saved.etrecord_path};
  if (!saved.data_path.empty()) written.data_paths.push_back(saved.data_path);
  return written;
}

std::vector<std::string> EdgeProgram::methods() const {
  std::vector<std::string> names;
  for (const auto& method : state_->edge->program.methods) names.push_back(method->name);
  return names;
}

std::string EdgeProgram::text() const { return ir::print(state_->edge->program); }

std::vector<BackendClaim> EdgeProgram::claims() const {
  std::vector<BackendClaim> claims;
  for (const auto& part : state_->edge->report.partitions) {
    for (const auto& share : part.report.shares) claims.push_back({part.method, share.backend, share.nodes, share.groups, compiler::devices_of(part, share.backend)});
  }
  return claims;
}

Result<CompiledProgram> EdgeProgram::finalize(const FinalizeSettings& settings) const {
  PTERON_TRY(facade::check_alignment(settings.alignment_bytes));
  auto state = std::make_shared<CompiledProgram::State>();  // shared: programs are copied
  state->edge = state_;
  PTERON_ASSIGN(state->finished, compiler::finalize(*state_->edge, state_->options, state_->toolchain.environment(), {settings.alignment_bytes, planner_of(settings)}));
  state->summary = summary_of(state->finished.report);
  return CompiledProgram(std::move(state));
}

Result<EdgeProgram> export_program(const CompileSettings& settings) {
  PTERON_TRY(check(settings));
  auto state = std::make_shared<EdgeProgram::State>();  // shared: with the finished programs
  PTERON_ASSIGN(state->options, read_settings(settings));
  PTERON_ASSIGN(state->toolchain, facade::Toolchain::create(settings.kernel_libraries, settings.threads));
  std::vector<std::string> backends = settings.backends.empty() ? facade::default_backends(state->options.profile) : settings.backends;
  facade::split_devices(backends, state->options.specs);
  PTERON_ASSIGN(state->options.backends, state->toolchain.backends(backends));
  PTERON_ASSIGN(state->edge, compiler::export_program(state->options, state->toolchain.environment()));
  return EdgeProgram(std::move(state));
}

Result<SavedProgram> save(const CompileSettings& settings, const std::string& path, const FinalizeSettings& finalize, const WriteSettings& write) {
  std::vector<std::string> archives;
  for (const CompileMethod& method : settings.methods) {
    if (method.bytes.bytes.empty()) archives.push_back(method.archive);
  }
  PTERON_TRY(facade::check_save_path(path, archives));
  PTERON_TRY(facade::check_alignment(finalize.alignment_bytes));
  CompileSettings named = settings;
  if (named.external_weights && !named.data_name.has_value()) {
    PTERON_ASSIGN(named.data_name, facade::default_data_name(path));
  }
  PTERON_ASSIGN(const EdgeProgram edge, export_program(named));
  PTERON_ASSIGN(const CompiledProgram program, edge.finalize(finalize));
  SavedProgram saved{program.summary(), {}};
  PTERON_ASSIGN(saved.files, program.write(path, write));
  return saved;
}

}  // namespace pteron
