// pteron compile: .pt2 archives to a .pte file.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "backends/cuda/aot/nvrtc.h"
#include "base/file_writer.h"
#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "compiler/compile.h"
#include "compiler/phase_clock.h"
#include "facade/etrecord.h"
#include "facade/save.h"
#include "format/data_name.h"
#include "ir/text.h"
#include "passes/registry.h"

namespace pteron::cli {

namespace {

constexpr Option kCompileOptions[] = {
    {"output", "o", OptionKind::kValue, "FILE", "the program to write; default: the input's name with .pte"},
    {"method", "", OptionKind::kList, "NAME=FILE", "one method of a program with several (instead of MODEL.pt2)"},
    {"constant", "", OptionKind::kList, "NAME=VALUE", "a method without inputs that gives back a number, true, false, text, or a list of ints (1,2,3)"},
    {"share-state", "", OptionKind::kList, "NAME", "a buffer that is the same memory in all methods that have it; else every method has its own, where the loader does not give all methods one memory (the official runtime may)"},
    {"kernels", "", OptionKind::kList, "LIBRARY", "a shared library with own operators (pteron/ops.h)"},
    {"backend", "", OptionKind::kList, "NAME[,NAME]", "backends in order of preference, default cpu; 'portable', alone or last, is the portable kernels, which run what is left; NAME:N computes on device N"},
    {"device", "", OptionKind::kValue, "cuda:N", "the device of all delegates that compute on one; of one backend alone: --backend NAME:N (docs/devices.md)"},
    {"arch", "", OptionKind::kList, "sm_NN[,sm_NN]", "architectures of the CUDA engine's machine code (sm_80,sm_89,sm_90,sm_100), default sm_90,compute_80; PTX of the newest is added for later devices, where no compute_NN among them says which (docs/cuda.md)"},
    {"device-inputs", "", OptionKind::kFlag, "", "inputs that delegates of a device read are tensors of that device: nothing is copied from the host"},
    {"device-outputs", "", OptionKind::kFlag, "", "outputs that delegates of a device make stay there: nothing is copied to the host"},
    {"precision", "", OptionKind::kValue, "NAME", "float32 (default), or bf16: weights and operands of linear layers and dense convolutions in bfloat16, all else in float32"},
    {"allow-random", "", OptionKind::kFlag, "", "compile operators that draw random numbers; their numbers differ from PyTorch's (run --seed)"},
    {"strict", "", OptionKind::kFlag, "", "refuse a program of which some node stays outside the backends"},
    {"profile", "", OptionKind::kValue, "NAME", "pteron (default), or executorch: the official runtime 1.5.1 loads the file"},
    {"alignment", "", OptionKind::kCount, "BYTES", "alignment of planned buffers and weights, default 64"},
    {"max-size", "", OptionKind::kList, "[NAME=]N", "upper bound of a size that may vary, by name or for all; the archive's own bound stays if it is smaller; calls above it fail"},
    {"external-weights", "", OptionKind::kMaybe, "[=NAME]", "weights go to a data file NAME.ptd beside the program, default: the program's name (docs/weights-files.md)"},
    {"exclude", "", OptionKind::kList, "[BACKEND=]OP", "an operator that a backend (default: the first) must not take; the next one is asked"},
    {"exclude-node", "", OptionKind::kList, "[BACKEND=]NODE", "the same for one node, by its name in --dump-after optimize"},
    {"spec", "", OptionKind::kList, "BACKEND[@METHOD]:KEY=VALUE", "a compile spec of a backend, for one method or all; data_name=NAME moves that backend's data to NAME.ptd"},
    {"force", "", OptionKind::kFlag, "", "replace a data file that another program uses, or that none records"},
    {"no-sync", "", OptionKind::kFlag, "", "do not wait until the file is on the disk"},
    {"list-phases", "", OptionKind::kFlag, "", "print the phases and stop"},
    {"stop-after", "", OptionKind::kValue, "PHASE", "stop after a phase; writes nothing"},
    {"dump-after", "", OptionKind::kList, "PASS", "print the program after a phase or pass"},
    {"disable", "", OptionKind::kList, "PASS", "leave a pass out"},
    {"etrecord", "", OptionKind::kFlag, "", "also write <output>_etrecord.bin, in which the official inspector finds the nodes of events (docs/etrecord.md)"},
    {"edge-text", "", OptionKind::kValue, "FILE", "also write the graphs as text, with what backends took as single nodes (what EdgeProgram::text gives; src/ir/README.md)"},
    {"check-text", "", OptionKind::kFlag, "", "print the program after every pass, read it back, and fail if the texts differ"},
    {"verify", "", OptionKind::kValue, "LEVEL", "each, phase or off: when the intermediate form is checked"},
};

// The readers of options give back what is wrong with them, nothing if they are fine.

std::string read_size_bounds(const Arguments& a, compiler::CompileOptions* options) {
  for (const std::string& text : a.list("max-size")) {
    const size_t equals = text.find('=');
    const size_t number = equals == std::string::npos ? 0 : equals + 1;
    const std::optional<uint64_t> max = parse_count(text.substr(number));
    if (!max || equals == 0) return str_cat("--max-size expects N or NAME=N, found '", text, "'");
    if (*max > INT32_MAX) return str_cat("--max-size is at most 2^31-1, found ", *max);
    options->size_bounds.push_back({number == 0 ? "" : text.substr(0, equals), static_cast<int64_t>(*max)});
  }
  return {};
}

bool ends_with_pt2(std::string_view path) { return path.size() > 4 && path.ends_with(".pt2"); }

std::string read_methods(const Arguments& a, compiler::CompileOptions* options) {
  for (const std::string& text : a.list("method")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return str_cat("--method expects NAME=FILE, found '", text, "'");
    options->methods.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  if (!a.positionals().empty()) {
    const std::string& path = a.positionals()[0];
    if (!options->methods.empty()) return str_cat("name all methods with --method, or give one archive without it: write --method forward=", path, " instead of ", path);
    options->methods.push_back({"forward", path});
  }
  return {};
}

/// Names of all phases and passes.
std::vector<std::string> all_steps() {
  std::vector<std::string> names;
  for (const std::string_view phase : compiler::phase_names()) names.emplace_back(phase);
  for (const passes::Pass& pass : passes::all_passes()) {
    if (std::ranges::find(names, pass.name) == names.end()) names.emplace_back(pass.name);
  }
  return names;
}

/// Empty if a program's text reads back as itself, else the first line that differs.
std::string text_difference(const ir::Catalog& catalog, const std::string& text) {
  ir::Program again;
  if (const Status status = ir::parse(text, catalog, again); !status.ok()) return std::string(status.message());
  const std::string second = ir::print(again);
  if (second == text) return {};
  const size_t at = static_cast<size_t>(std::ranges::mismatch(text, second).in1 - text.begin());
  const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  return str_cat("expected '", text.substr(begin, text.find('\n', at) - begin), "', found '", second.substr(begin, second.find('\n', std::min(at, second.size())) - begin), "'");
}

std::optional<int64_t> read_int(std::string_view text) {
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// What VALUE of --constant NAME=VALUE means: see the option's help.
std::vector<format::ValueSpec> constant_values(const std::string& text) {
  if (text == "true" || text == "false") return {text == "true"};
  std::vector<format::ValueSpec> ints;
  for (const std::string& part : split_list({text})) {
    const std::optional<int64_t> number = read_int(part);
    if (!number) {
      ints.clear();
      break;
    }
    ints.emplace_back(*number);
  }
  if (!ints.empty()) return ints;
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && end.ec == std::errc() && end.ptr == text.data() + text.size()) return {number};
  return {text};
}

/// A number that no int64 or double holds: it would become another number, or text.
bool is_number_out_of_range(const std::string& text) {
  const auto out_of_range = [](std::from_chars_result end, const std::string& part) { return end.ec == std::errc::result_out_of_range && end.ptr == part.data() + part.size(); };
  for (const std::string& part : split_list({text})) {
    int64_t whole = 0;
    double number = 0;
    if (out_of_range(std::from_chars(part.data(), part.data() + part.size(), whole), part) ||
        out_of_range(std::from_chars(part.data(), part.data() + part.size(), number), part)) {
      return true;
    }
  }
  return false;
}

std::string read_constants(const Arguments& a, compiler::CompileOptions* options) {
  for (const std::string& text : a.list("constant")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return str_cat("--constant expects NAME=VALUE, found '", text, "'");
    if (equals + 1 == text.size()) return str_cat("--constant ", text.substr(0, equals), ": the value is empty");
    if (is_number_out_of_range(text.substr(equals + 1))) return str_cat("--constant ", text, ": the number is out of range (64-bit integers, doubles)");
    options->constants.push_back({text.substr(0, equals), constant_values(text.substr(equals + 1))});
  }
  return {};
}

/// BACKEND[@METHOD]:KEY=VALUE. Backends may have a colon in their name ("null:all"), keys have none.
std::string read_specs(const Arguments& a, compiler::CompileOptions* options) {
  for (const std::string& text : a.list("spec")) {
    const size_t equals = text.find('=');
    const size_t colon = equals == std::string::npos ? equals : text.rfind(':', equals);
    if (colon == std::string::npos || colon == 0 || colon + 1 == equals) return str_cat("--spec expects BACKEND[@METHOD]:KEY=VALUE, found '", text, "'");
    const std::string owner = text.substr(0, colon);
    const size_t at = owner.find('@');
    const auto value = std::as_bytes(std::span(text).subspan(equals + 1));
    options->specs.push_back({owner.substr(0, at), at == std::string::npos ? "" : owner.substr(at + 1), text.substr(colon + 1, equals - colon - 1), {value.begin(), value.end()}});
  }
  return {};
}

/// --arch is the compile spec cuda:arch of all methods.
std::string read_architectures(const Arguments& a, compiler::CompileOptions* options) {
  if (!a.has("arch")) return {};
  std::string text;
  for (const std::string& part : a.list("arch")) str_append(text, text.empty() ? "" : ",", part);
  const auto also = std::ranges::find_if(options->specs, [](const compiler::BackendSpec& spec) { return spec.backend == "cuda" && spec.key == "arch"; });
  if (also != options->specs.end()) return "--arch and --spec cuda:arch say the same thing: give one of them";
  auto list = cuda::architectures_of(text);
  if (!list.ok()) return str_cat("--arch: ", list.status().message());
  const auto value = std::as_bytes(std::span(*list));
  options->specs.push_back({"cuda", "", "arch", {value.begin(), value.end()}});
  return {};
}

std::string read_exclusions(const Arguments& a, compiler::CompileOptions* options) {
  for (const bool is_node : {false, true}) {
    for (const std::string& text : a.list(is_node ? "exclude-node" : "exclude")) {
      const size_t equals = text.find('=');
      const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
      if (name.empty() || equals == 0) return str_cat("--exclude", is_node ? "-node" : "", " expects [BACKEND=]", is_node ? "NODE" : "OP", ", found '", text, "'");
      options->exclusions.push_back({equals == std::string::npos ? "" : text.substr(0, equals), name, is_node});
    }
  }
  return {};
}

/// What is wrong with the file of --edge-text; empty if nothing is.
std::string check_edge_text(const std::string& path, const std::string& output, bool has_record, const compiler::CompileOptions& options) {
  if (path.empty()) return "--edge-text names no file";
  if (!format::check_program_path(path).ok()) return str_cat("--edge-text: ", path, " is named like a data file (.ptd); name another file");
  if (has_record && facade::same_file(path, facade::etrecord_path(output))) return str_cat("--edge-text: ", path, " is the record of --etrecord; name another file");
  if (facade::same_file(path, output)) return str_cat("--edge-text: ", path, " is the program that is written (-o)");
  for (const std::string& input : options.paths()) {
    if (facade::same_file(path, input)) return str_cat("--edge-text: ", path, " is the input ", input, "; name another file");
  }
  return {};
}

std::string megabytes(uint64_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, bytes < 1000000 ? "%.1f KB" : "%.1f MB", static_cast<double>(bytes) / (bytes < 1000000 ? 1e3 : 1e6));
  return text;
}

/// Part of the method's estimated time.
double share_of(const partition::PartitionReport& report, double seconds) {
  double all = report.seconds_outside;
  for (const auto& share : report.shares) all += share.seconds;
  return all > 0 ? seconds / all : 0;
}

void print_json(const compiler::CompileReport& report, const std::string& output, const facade::SavedFiles& files) {
  JsonWriter json;
  json.begin_object();
  json.field("output", output);
  json.field("file_bytes", files.program_bytes);
  if (!files.etrecord_path.empty()) json.field("etrecord", files.etrecord_path);
  json.field("weight_bytes", report.weight_bytes);
  json.field("external_weight_bytes", report.external_bytes);
  json.key("data_files");
  json.begin_array();
  if (!files.data_path.empty()) {
    json.begin_object();
    json.field("path", files.data_path);
    json.field("file_bytes", files.data_bytes);
    json.end_object();
  }
  json.end_array();
  json.key("phases");
  json.begin_array();
  for (const auto& phase : report.phases) {
    json.begin_object();
    json.field("name", phase.name);
    json.field("time_ms", phase.seconds * 1e3);
    json.field("peak_rss_bytes", phase.peak_bytes);
    json.end_object();
  }
  json.end_array();
  json.key("methods");
  json.begin_array();
  for (const auto& method : report.methods) {
    json.begin_object();
    json.field("name", method.name);
    json.field("arena_bytes", method.arena_bytes);
    json.field("arena_lower_bound_bytes", method.lower_bound_bytes);
    json.field("instructions", static_cast<uint64_t>(method.instruction_count));
    json.end_object();
  }
  json.end_array();
  json.key("backends");
  json.begin_array();
  for (const auto& part : report.partitions) {
    for (const auto& share : part.report.shares) {
      json.begin_object();
      json.field("method", part.method);
      json.field("name", share.backend);
      json.field("nodes", static_cast<uint64_t>(share.nodes));
      json.field("groups", static_cast<uint64_t>(share.groups));
      json.key("devices");
      json.begin_array();
      for (const std::string& device : compiler::devices_of(part, share.backend)) json.string(device);
      json.end_array();
      json.field("share_of_time", share_of(part.report, share.seconds));
      json.field("nodes_outside", static_cast<uint64_t>(part.report.nodes_outside));
      json.end_object();
    }
  }
  json.end_array();
  json.key("groups");
  json.begin_array();
  for (const auto& part : report.partitions) {
    for (const auto& group : part.groups) {
      json.begin_object();
      json.field("method", part.method);
      json.field("backend", group.backend);
      json.field("payload_bytes", group.payload_bytes);
      json.field("memory_bytes", group.memory_bytes);
      json.field("memory_lower_bound_bytes", group.lower_bound_bytes);
      json.key("kernels");
      json.begin_array();
      for (const std::string& name : group.kernels) json.string(name);
      json.end_array();
      json.end_object();
    }
  }
  json.end_array();
  json.key("outside");
  json.begin_array();
  for (const auto& part : report.partitions) {
    for (const auto& refusal : part.report.refusals) {
      if (refusal.outside == 0) continue;
      json.begin_object();
      json.field("method", part.method);
      json.field("backend", refusal.backend);
      json.field("op", refusal.op);
      json.field("nodes", static_cast<uint64_t>(refusal.outside));
      json.field("first", refusal.first);
      json.field("reason", refusal.reason);
      json.end_object();
    }
  }
  json.end_array();
  json.key("operators");
  json.begin_array();
  for (const std::string& name : report.operators) json.string(name);
  json.end_array();
  json.end_object();
  std::printf("%s\n", json.text().c_str());
}

std::string str_join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) str_append(out, out.empty() ? "" : ", ", name);
  return out;
}

/// What each backend took, and why the rest stayed out.
void print_partition(const compiler::MethodPartition& part) {
  for (const auto& share : part.report.shares) {
    const std::vector<std::string> devices = compiler::devices_of(part, share.backend);
    std::printf("method %s: backend %s%s runs %u nodes in %u %s, about %.1f %% of the time\n", part.method.c_str(), share.backend.c_str(),
                devices.empty() ? "" : str_cat(" on ", str_join(devices)).c_str(), share.nodes, share.groups, share.groups == 1 ? "group" : "groups", 100 * share_of(part.report, share.seconds));
    for (const auto& refusal : part.report.refusals) {
      if (refusal.backend != share.backend) continue;
      std::printf("  %s does not take %s (%u, first %s%s): %s\n", share.backend.c_str(), refusal.op.c_str(), refusal.count, refusal.first.c_str(),
                  refusal.outside > 0 ? "" : ", taken by a later one", refusal.reason.c_str());
    }
  }
  for (const auto& group : part.groups) {
    if (group.memory_bytes > 0) {
      std::printf("  a group of %s plans %s of memory of its own, lower bound %s\n", group.backend.c_str(), megabytes(group.memory_bytes).c_str(),
                  megabytes(group.lower_bound_bytes).c_str());
    }
  }
  const unsigned outside = part.report.nodes_outside;
  if (outside > 0) std::printf("  %u %s outside, about %.1f %% of the time\n", outside, outside == 1 ? "node stays" : "nodes stay", 100 * share_of(part.report, part.report.seconds_outside));
}

/// asked: whether weights were to go outside.
void print_report(const compiler::CompileReport& report, const std::string& output, const facade::SavedFiles& files, bool executorch, bool asked) {
  double seconds = 0;
  for (const auto& phase : report.phases) seconds += phase.seconds;
  std::printf("wrote %s: %s (weights %s) in %.3f s\n", output.c_str(), megabytes(files.program_bytes).c_str(), megabytes(report.weight_bytes - report.external_bytes).c_str(), seconds);
  for (const auto& method : report.methods) {
    const double ratio = method.lower_bound_bytes == 0 ? 1.0 : static_cast<double>(method.arena_bytes) / static_cast<double>(method.lower_bound_bytes);
    std::printf("method %s: %zu instructions; planned memory %llu bytes, lower bound %llu, ratio %.3f\n", method.name.c_str(), method.instruction_count,
                static_cast<unsigned long long>(method.arena_bytes), static_cast<unsigned long long>(method.lower_bound_bytes), ratio);
  }
  for (const auto& part : report.partitions) print_partition(part);
  if (!files.data_path.empty()) {
    std::printf("wrote %s: %s; loaders take this file, not its folder (run --data; official loaders: data_path=), or find it beside the program\n", files.data_path.c_str(),
                megabytes(files.data_bytes).c_str());
  } else if (asked) {
    std::printf("no data file written: the program has no weights that could lie outside\n");
  }
  if (!files.etrecord_path.empty()) std::printf("wrote %s\n", files.etrecord_path.c_str());
  std::printf("needs at load: %s, %zu operators; %s, %s\n", executorch ? "the official runtime 1.5.1 or Pteron" : "Pteron's portable kernels",
              report.operators.size(), report.delegates.empty() ? "no delegates" : str_cat("delegates ", str_join(report.delegates)).c_str(),
              files.data_path.empty() ? "no data files" : "one data file");
}

Result<int> run_compile(const Arguments& a) {
  if (a.flag("list-phases")) {
    JsonWriter json;
    json.begin_array();
    for (const std::string_view name : compiler::phase_names()) {
      json.string(name);
      if (!a.flag("json")) std::printf("%s\n", std::string(name).c_str());
    }
    json.end_array();
    if (a.flag("json")) std::printf("%s\n", json.text().c_str());
    return 0;
  }
  compiler::CompileOptions options;
  for (const auto read : {read_methods, read_constants, read_size_bounds, read_specs, read_architectures, read_exclusions}) {
    if (const std::string problem = read(a, &options); !problem.empty()) return usage_error("compile", problem);
  }
  options.shared_states = split_list(a.list("share-state"));
  if (options.methods.empty()) return usage_error("compile", "name a MODEL.pt2, or methods with --method NAME=FILE");
  if (const Status status = compiler::check_options(options); !status.ok()) return usage_error("compile", status.message());
  const std::string profile = a.value("profile", "pteron");
  if (profile != "pteron" && profile != "executorch") return usage_error("compile", str_cat("--profile is pteron or executorch, found '", profile, "'"));
  options.profile = profile == "executorch" ? compiler::Profile::kExecutorch : compiler::Profile::kPteron;
  std::vector<std::string> backends = split_list(a.list("backend"));
  if (options.profile == compiler::Profile::kExecutorch && std::any_of(backends.begin(), backends.end(), [](const std::string& b) { return b != "portable"; })) {
    return usage_error("compile", "--backend: the official runtime has none of our backends; leave it out with --profile executorch");
  }
  if (backends.empty()) backends = facade::default_backends(options.profile);
  facade::split_devices(backends, options.specs);
  options.device = a.value("device");
  if (a.has("device") && options.device.empty()) return usage_error("compile", "--device names no device; expected cuda:NUMBER");
  options.device_inputs = a.flag("device-inputs");
  options.device_outputs = a.flag("device-outputs");
  const uint64_t alignment = a.count("alignment", 64);
  if (const Status status = facade::check_alignment(alignment); !status.ok()) return usage_error("compile", str_cat("--", status.message()));
  options.stop_after = a.value("stop-after");
  options.dump_after = split_list(a.list("dump-after"));
  options.disabled = split_list(a.list("disable"));
  const std::vector<std::string> steps = all_steps();
  for (const std::string& pass : options.disabled) {
    if (passes::find_pass(pass) == nullptr) return usage_error("compile", str_cat("--disable: no pass '", pass, "'; pteron opt --list prints them"));
  }
  for (const std::string& step : options.dump_after) {
    if (std::ranges::find(steps, step) == steps.end()) return usage_error("compile", str_cat("--dump-after: no phase or pass '", step, "'; --list-phases and pteron opt --list print them"));
  }
  const std::string verify = a.value("verify", "phase");
  if (verify != "each" && verify != "phase" && verify != "off") return usage_error("compile", str_cat("--verify is each, phase or off, found '", verify, "'"));
  options.verify = verify == "each" ? compiler::VerifyLevel::kEach : verify == "off" ? compiler::VerifyLevel::kOff : compiler::VerifyLevel::kPhase;
  if (!options.stop_after.empty()) {
    const auto phases = compiler::phase_names();
    if (std::find(phases.begin(), phases.end(), options.stop_after) == phases.end()) return usage_error("compile", str_cat("--stop-after: no phase '", options.stop_after, "'"));
  }
  options.dump = [](std::string_view pass, std::string_view text) {
    std::printf("# after %s\n%s\n", std::string(pass).c_str(), std::string(text).c_str());
  };
  const bool check_text = a.flag("check-text");
  if (a.has("output") && a.value("output").empty()) return usage_error("compile", "--output names no file");
  std::string output = a.value("output");
  if (output.empty()) {
    const std::string& first = options.methods[0].path;
    output = (ends_with_pt2(first) ? first.substr(0, first.size() - 4) : first) + ".pte";
  }
  if (const Status status = facade::check_save_path(output, options.paths()); !status.ok()) return usage_error("compile", str_cat(status.message(), " (-o)"));
  if (a.flag("etrecord")) {
    if (const Status status = facade::check_save_path(facade::etrecord_path(output), options.paths()); !status.ok()) return usage_error("compile", str_cat(status.message(), " (--etrecord)"));
  }
  if (a.list("external-weights").size() > 1) return usage_error("compile", "--external-weights is given twice");
  if (a.has("external-weights") && a.list("external-weights").empty()) {
    auto name = facade::default_data_name(output);
    if (!name.ok()) return usage_error("compile", str_cat(name.status().message(), " (--external-weights=NAME)"));
    options.external_weights = std::move(name).value();
  } else if (a.has("external-weights")) {
    options.external_weights = a.value("external-weights");
  }
  const std::string edge_text = a.value("edge-text");
  if (a.has("edge-text")) {
    const auto phases = compiler::phase_names();
    const bool is_early = !options.stop_after.empty() && std::ranges::find(phases, options.stop_after) < std::ranges::find(phases, "partition");
    if (is_early) return usage_error("compile", str_cat("--edge-text shows the graphs after partition, --stop-after ", options.stop_after, " ends before it; --dump-after ", options.stop_after, " prints the graphs as they are then"));
    if (const std::string problem = check_edge_text(edge_text, output, a.flag("etrecord"), options); !problem.empty()) return usage_error("compile", problem);
  }
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  options.log = &log;
  PTERON_ASSIGN(Session session, Session::create(a.list("kernels")));
  auto chosen = session.backends(backends);
  if (!chosen.ok()) return usage_error("compile", str_cat("--backend: ", chosen.status().message()));
  options.backends = std::move(chosen).value();
  options.strict = a.flag("strict");
  const std::string precision = a.value("precision", "float32");
  if (precision != "float32" && precision != "bf16") return usage_error("compile", str_cat("--precision is float32 or bf16, found '", precision, "'"));
  options.bf16 = precision == "bf16";
  if (options.bf16 && options.backends.empty()) return usage_error("compile", "--precision bf16 needs a backend that computes in it: cpu");
  options.allow_random = a.flag("allow-random");
  if (options.strict && options.backends.empty()) return usage_error("compile", "--strict needs a backend that takes all nodes");
  Status text_status;
  if (check_text) {
    options.dump_after = steps;
    options.dump = [&](std::string_view pass, std::string_view text) {
      const std::string problem = text_status.ok() ? text_difference(session.catalog(), std::string(text)) : std::string();
      if (!problem.empty()) text_status = Status(Code::kInternal, str_cat("text form after ", pass, ": ", problem));
    };
  }
  bool wrong_option = false;
  options.wrong_option = &wrong_option;
  auto exported = compiler::export_program(options, session.environment());
  if (!exported.ok() && wrong_option) return usage_error("compile", exported.status().message());
  PTERON_ASSIGN(const std::unique_ptr<compiler::EdgeProgram> edge, std::move(exported));
  PTERON_TRY(std::move(text_status));
  std::optional<facade::LazyFile> text;  // complete only if the program is written as well
  if (!edge_text.empty()) {
    const std::string printed = ir::print(edge->program);
    PTERON_TRY(text.emplace(edge_text).write(std::as_bytes(std::span(printed))));
  }
  if (edge->stopped) {
    if (text) PTERON_TRY(text->commit(!a.flag("no-sync")));
    if (a.flag("json")) print_json(edge->report, "", {});
    return 0;
  }
  PTERON_ASSIGN(compiler::FinishedProgram finished, compiler::finalize(*edge, options, session.environment(), {alignment}));
  if (options.stop_after == "emit") {
    for (const std::function<Status()>& check : finished.pending_checks) PTERON_TRY(check());
    if (text) PTERON_TRY(text->commit(!a.flag("no-sync")));
    if (a.flag("json")) print_json(finished.report, "", {});
    return 0;
  }
  compiler::PhaseClock clock;
  std::string record;
  if (a.flag("etrecord")) {
    PTERON_ASSIGN(record, facade::make_etrecord(*edge, finished.report));
  }
  const auto saved = facade::save_files(finished, {output, !a.flag("no-sync"), a.flag("force"), record, &log});
  if (saved.status().code() == Code::kInvalidInput) return usage_error("compile", str_cat(saved.status().message(), " (--external-weights=NAME, --force)"));
  if (!saved.ok()) return saved.status();
  if (text) PTERON_TRY(text->commit(!a.flag("no-sync")));
  const facade::SavedFiles& files = *saved;
  finished.report.phases.push_back(clock.lap("write"));
  if (a.flag("json")) {
    print_json(finished.report, output, files);
  } else if (!a.flag("quiet")) {
    print_report(finished.report, output, files, options.profile == compiler::Profile::kExecutorch, options.external_weights.has_value() || !a.list("spec").empty());
  }
  return 0;
}

}  // namespace

extern const Verb k_compile_verb;
const Verb k_compile_verb = {"compile", "compile a .pt2 archive to a .pte program", "MODEL.pt2 [-o OUT.pte] [options]", 0, 1, kCompileOptions, run_compile};

}  // namespace pteron::cli
