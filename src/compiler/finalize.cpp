// From an EdgeProgram to files: memory is planned, weights get their places, and the program learns what its data file looks like.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/background.h"
#include "base/str_cat.h"
#include "compiler/compile.h"
#include "compiler/phase_clock.h"
#include "compiler/profile.h"
#include "ir/text.h"
#include "pteron/version.h"

namespace pteron::compiler {

namespace {

std::vector<std::string> operators_of(const format::ProgramSpec& program) {
  std::set<std::string> names;
  for (const format::PlanSpec& plan : program.plans) {
    for (const format::OperatorSpec& op : plan.operators) names.insert(op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload));
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> delegate_ids(const EdgeProgram& edge) {
  std::set<std::string> ids;
  for (const EdgeProgram::Group& group : edge.groups) ids.insert(group.compiled.id);
  return {ids.begin(), ids.end()};
}

/// Places the weights: each key once, in the data file if any part of the program wants it there.
class WeightPlaces {
 public:
  WeightPlaces(format::ProgramSpec& program, format::DataFileSpec& data) : program_(program), data_(data) {}

  void outside(std::string key, std::optional<format::DataLayout> layout, format::Payload payload) {
    if (!keys_.insert(key).second) return;
    // Keys that are made of the bytes have the manifest's hash in them (format::weight_key).
    constexpr std::string_view kHashedKey = "pteron/";
    const bool hashed = layout.has_value() && key.starts_with(kHashedKey);
    std::string hash = hashed ? key.substr(kHashedKey.size(), 32) : std::string();
    data_.entries.push_back({std::move(key), static_cast<uint32_t>(data_.blobs.size()), std::move(layout)});
    data_.blobs.push_back({std::move(payload), 0, std::move(hash)});
  }
  void inside(std::string key, format::Payload payload) {
    if (!keys_.insert(key).second) return;
    program_.blobs.push_back({std::move(payload), 0, 0});
    program_.named_data.push_back({std::move(key), static_cast<uint32_t>(program_.blobs.size() - 1)});
  }

 private:
  format::ProgramSpec& program_;
  format::DataFileSpec& data_;
  std::set<std::string> keys_;
};

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.data() == b.data() || std::equal(a.begin(), a.end(), b.begin()));
}

/// Payloads become the first blobs of the program, equal ones one blob; `blob` of a delegate is its group's index before.
void place_payloads(const EdgeProgram& edge, format::ProgramSpec& program) {
  std::vector<uint32_t> blob_of, first;  // by group; by blob: its group
  for (uint32_t g = 0; g < edge.groups.size(); ++g) {
    const backends::CompiledGroup& group = edge.groups[g].compiled;
    const auto same = std::ranges::find_if(first, [&](uint32_t other) {
      const backends::CompiledGroup& made = edge.groups[other].compiled;
      return same_bytes(made.payload.span(), group.payload.span()) && same_bytes(made.payload_tail, group.payload_tail);
    });
    blob_of.push_back(static_cast<uint32_t>(same - first.begin()));
    if (same != first.end()) continue;
    first.push_back(g);
    const std::span<const std::byte> head = group.payload.span();
    program.blobs.push_back({group.payload_tail.empty() ? format::Payload::borrow(head) : format::Payload::join(head, group.payload_tail), 0, 0});
  }
  for (format::PlanSpec& plan : program.plans) {
    for (format::DelegateSpec& delegate : plan.delegates) delegate.blob = blob_of[delegate.blob];
  }
}

/// Weights become named data of the program or entries of the data file.
void place_weights(const EdgeProgram& edge, std::vector<emit::ExternalConstant>& constants, FinishedProgram& out) {
  WeightPlaces places(out.program, out.data);
  for (emit::ExternalConstant& constant : constants) places.outside(std::move(constant.key), std::move(constant.layout), std::move(constant.payload));
  for (const bool external : {true, false}) {
    for (const EdgeProgram::Group& group : edge.groups) {
      if (group.external != external) continue;
      for (const backends::NamedBlob& blob : group.compiled.data) {
        external ? places.outside(blob.key, blob.layout, blob.payload) : places.inside(blob.key, blob.payload);
      }
    }
  }
}

/// Every tensor whose bytes are outside must find them in the data file of this save.
Status check_external_keys(const FinishedProgram& out) {
  std::set<std::string_view> keys;
  for (const format::DataEntrySpec& entry : out.data.entries) keys.insert(entry.key);
  for (const format::PlanSpec& plan : out.program.plans) {
    for (const format::ValueSpec& value : plan.values) {
      const auto* tensor = std::get_if<format::TensorSpec>(&value);
      if (tensor == nullptr || tensor->external_name.empty() || keys.contains(tensor->external_name)) continue;
      return Status(Code::kInternal, str_cat("method ", plan.name, ": weight '", tensor->external_name, "' is in no data file of this program"));
    }
  }
  return ok_status();
}

/// The same methods as the official exporter's constant methods: values and nothing else.
void add_constant_methods(const CompileOptions& options, emit::Emitted& emitted) {
  for (const ConstantMethod& constant : options.constants) {
    format::PlanSpec plan;
    plan.name = constant.name;
    format::MethodMeta meta;
    meta.name = constant.name;
    for (const format::ValueSpec& value : constant.values) {
      plan.outputs.push_back(static_cast<int32_t>(plan.values.size()));
      plan.values.push_back(value);
      format::PortMeta port;
      port.name = constant.values.size() == 1 ? "value" : str_cat("value_", meta.outputs.size());
      port.kind = std::holds_alternative<int64_t>(value)  ? format::PortKind::kInt
                  : std::holds_alternative<double>(value) ? format::PortKind::kFloat
                  : std::holds_alternative<bool>(value)   ? format::PortKind::kBool
                                                          : format::PortKind::kString;
      meta.outputs.push_back(std::move(port));
    }
    emitted.program.plans.push_back(std::move(plan));
    emitted.meta.methods.push_back(std::move(meta));
  }
}

/// The program's record of its data file, whose last entry becomes the manifest.
Status record_data_file(const EdgeProgram& edge, FinishedProgram& out, format::ProgramMeta& meta) {
  if (out.data.entries.empty()) return ok_status();
  out.data_name = edge.data_name;
  PTERON_ASSIGN(out.manifest_hash, format::add_manifest(out.data));
  PTERON_ASSIGN(out.data_bytes, format::data_file_size(out.data, {out.alignment_bytes}));
  meta.data_files.push_back({str_cat(out.data_name, ".ptd"), out.data_bytes, out.manifest_hash});
  return ok_status();
}

void count_weights(const FinishedProgram& out, CompileReport& report) {
  for (const format::Payload& constant : out.program.constants) report.weight_bytes += constant.size_bytes;
  for (const format::NamedDataSpec& data : out.program.named_data) report.weight_bytes += out.program.blobs[data.blob].payload.size_bytes;
  for (const format::DataBlobSpec& blob : out.data.blobs) report.external_bytes += blob.payload.size_bytes;
  report.weight_bytes += report.external_bytes;
}

}  // namespace

Result<FinishedProgram> finalize(const EdgeProgram& edge, const CompileOptions& options, const Environment& environment, const FinalizeOptions& settings) {
  PhaseClock clock;
  FinishedProgram out;
  out.alignment_bytes = settings.alignment_bytes;
  out.report = edge.report;
  std::vector<format::DelegateSpec> delegates;
  for (const EdgeProgram::Group& group : edge.groups) delegates.push_back({group.compiled.id, 0, group.compiled.specs});
  emit::EmitOptions emit;
  emit.profile = options.profile;
  emit.alignment_bytes = settings.alignment_bytes;
  for (const EdgeProgram::Group& group : edge.groups) emit.alignment_bytes = std::lcm(emit.alignment_bytes, group.alignment_bytes);
  emit.delegates = delegates;
  emit.shared_states = options.shared_states;
  emit.has_kernel = kernels_of(options, environment);
  emit.catalog = environment.catalog;
  emit.external_weights = edge.external_constants;
  emit.guards = &edge.guards;
  emit.planner = settings.planner;
  PTERON_ASSIGN(emit::Emitted emitted, emit::emit_program(edge.program, emit));
  add_constant_methods(options, emitted);
  out.program = std::move(emitted.program);
  place_payloads(edge, out.program);
  place_weights(edge, emitted.external, out);
  PTERON_TRY(check_external_keys(out));
  out.report.methods = std::move(emitted.reports);
  out.report.operators = operators_of(out.program);
  out.report.delegates = delegate_ids(edge);
  count_weights(out, out.report);
  PTERON_TRY(record_data_file(edge, out, emitted.meta));
  PTERON_ASSIGN(out.facts, emit::add_meta(emitted.meta, options.profile, PTERON_VERSION_TEXT, out.program));
  for (const std::string_view phase : {"emit", "write"}) {  // both leave the program as it is
    if (options.dump && std::ranges::find(options.dump_after, phase) != options.dump_after.end()) options.dump(phase, ir::print(edge.program));
  }
  out.pending_checks = edge.pending_checks;
  out.report.phases.push_back(clock.lap("emit"));
  return out;
}

namespace {

/// Writes while the archive's checksums are compared, which reads the same bytes: what is written appears under its name only later, if all went well.
template <typename Write>
Status write_and_check(const FinishedProgram& finished, Write&& write) {
  Status checked;
  Background beside([&] {
    for (size_t i = 0; i < finished.pending_checks.size() && checked.ok(); ++i) checked = finished.pending_checks[i]();
  });
  Status written = write();
  beside.wait();
  PTERON_TRY(std::move(written));
  return checked;
}

}  // namespace

Status write_data(const FinishedProgram& finished, ByteSink& sink) {
  return write_and_check(finished, [&] { return format::write_data_file(finished.data, {finished.alignment_bytes}, sink); });
}

Status write_program(const FinishedProgram& finished, ByteSink& sink) {
  return write_and_check(finished, [&] { return format::write_program(finished.program, {finished.alignment_bytes}, sink); });
}

}  // namespace pteron::compiler
