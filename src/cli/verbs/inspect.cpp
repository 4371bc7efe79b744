// pteron inspect: what a .pte, a .bpte, a .pt2, a .ptd or an ETDump holds; told apart by content.
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/inspect.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "format/bundle.h"
#include "format/data_name.h"
#include "format/etdump.h"
#include "format/program_view.h"
#include "runtime/state.h"

namespace pteron::cli {

namespace {

constexpr Option kInspectOptions[] = {
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) to open with a program"},
    {"instructions", "", OptionKind::kFlag, "", "list the instructions of every method of a .pte"},
    {"html", "", OptionKind::kValue, "FILE", "write a .pte (of a .bpte the program in it) as one page for a browser: graphs to zoom and search, planned memory over time"},
    {"weights", "", OptionKind::kFlag, "", "list the weights of a .pt2"},
    {"verify-data", "", OptionKind::kFlag, "", "compare the payloads of a .ptd with its manifest"},
};

void value_json(JsonWriter& json, const ValueInfo& value) {
  json.begin_object();
  json.field("name", value.name);
  json.field("kind", value_kind_name(value.kind));
  if (value.kind == ValueKind::kTensor) {
    json.field("dtype", dtype_name(value.dtype));
    if (value.device.type != DeviceType::kCpu) json.field("device", runtime::device_text(value.device));
    json.key("dims");
    json.begin_array();
    for (const DimInfo& dim : value.dims) {
      json.begin_object();
      json.field("min", dim.min);
      json.field("max", dim.max);
      if (!dim.text.empty()) json.field("text", dim.text);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void method_json(JsonWriter& json, const format::ProgramView& view, const MethodInfo& info) {
  json.begin_object();
  json.field("name", info.name);
  for (const bool inputs : {true, false}) {
    json.key(inputs ? "inputs" : "outputs");
    json.begin_array();
    for (const ValueInfo& value : inputs ? info.inputs : info.outputs) value_json(json, value);
    json.end_array();
  }
  json.key("states");
  json.begin_array();
  for (const ValueInfo& state : info.mutable_buffers) value_json(json, state);
  json.end_array();
  json.key("operators");
  json.begin_array();
  for (const std::string& name : info.operators) json.string(name);
  json.end_array();
  json.key("delegates");
  json.begin_array();
  for (const std::string& name : info.delegates) json.string(name);
  json.end_array();
  delegates_json(json, view, info.name);
  json.key("arena_bytes");
  json.begin_array();
  for (const uint64_t bytes : info.arena_bytes) json.integer(bytes);
  json.end_array();
  json.key("arena_devices");
  json.begin_array();
  for (const Device device : info.arena_devices) json.string(runtime::device_text(device));
  json.end_array();
  json.field("instructions", info.instruction_count);
  json.field("values", info.value_count);
  json.end_object();
}

void print_method(const format::ProgramView& view, const MethodInfo& info) {
  std::printf("method %s: %zu instructions, %zu values\n", info.name.c_str(), info.instruction_count, info.value_count);
  for (size_t i = 0; i < info.inputs.size(); ++i) std::printf("  input %zu  %s: %s\n", i, info.inputs[i].name.c_str(), info.inputs[i].type_text().c_str());
  for (size_t i = 0; i < info.outputs.size(); ++i) std::printf("  output %zu %s: %s\n", i, info.outputs[i].name.c_str(), info.outputs[i].type_text().c_str());
  for (const ValueInfo& state : info.mutable_buffers) std::printf("  state %s: %s\n", state.name.c_str(), state.type_text().c_str());
  for (size_t i = 0; i < info.arena_bytes.size(); ++i) {
    const bool on_host = info.arena_devices[i].type == DeviceType::kCpu;
    std::printf("  arena %zu%s: %llu bytes\n", i + 1, on_host ? "" : str_cat(" on ", runtime::device_text(info.arena_devices[i])).c_str(), static_cast<unsigned long long>(info.arena_bytes[i]));
  }
  std::printf("  operators: %s\n", str_list(info.operators).c_str());
  print_delegates(view, info.name);
}

std::string args_text(const flatbuffers::Vector<int32_t>* args) { return str_list(format::items_of(args)); }

void print_instructions(const format::ProgramView& view) {
  for (uint32_t p = 0; p < view.plan_count(); ++p) {
    const auto& plan = view.plan(p);
    std::printf("instructions of %s\n", std::string(format::text_of(plan.name())).c_str());
    if (format::count_of(plan.chains()) == 0) continue;
    const auto* list = plan.chains()->Get(0)->instructions();
    for (uint32_t i = 0; i < format::count_of(list); ++i) {
      const auto* one = list->Get(i);
      if (const auto* call = one->instr_args_as_KernelCall()) {
        const auto* op = plan.operators()->Get(static_cast<uint32_t>(call->op_index()));
        std::printf("  %4u %s.%s %s\n", i, std::string(format::text_of(op->name())).c_str(), std::string(format::text_of(op->overload())).c_str(), args_text(call->args()).c_str());
      } else if (const auto* jump = one->instr_args_as_JumpFalseCall()) {
        std::printf("  %4u jump_false %d -> %d\n", i, jump->cond_value_index(), jump->destination_instruction());
      } else if (const auto* move = one->instr_args_as_MoveCall()) {
        std::printf("  %4u move %d -> %d\n", i, move->move_from(), move->move_to());
      } else if (const auto* delegate = one->instr_args_as_DelegateCall()) {
        std::printf("  %4u delegate %d %s\n", i, delegate->delegate_index(), args_text(delegate->args()).c_str());
      } else {
        std::printf("  %4u free\n", i);
      }
    }
  }
}

bool has_bytes(std::span<const std::byte> bytes, size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() && std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

/// Whether a data file that the program records lies beside it, with the size that it should have.
std::string_view place_of(const std::string& program, const format::DataFileMeta& data) {
  for (const std::string& path : runtime::paths_beside(program, data.name)) {
    struct stat found;
    if (::stat(path.c_str(), &found) == 0) return static_cast<uint64_t>(found.st_size) == data.size_bytes ? "beside the program" : "beside the program, of another size";
  }
  return "not beside the program";
}

void bundle_json(JsonWriter& json, const format::Bundle& bundle) {
  json.key("cases");
  json.begin_array();
  for (const format::BundledSuite& suite : bundle.suites) {
    for (const format::BundledCase& one : suite.cases) {
      json.begin_object();
      json.field("method", suite.method);
      json.field("inputs", static_cast<uint64_t>(one.inputs.size()));
      json.field("expected", static_cast<uint64_t>(one.expected.size()));
      json.end_object();
    }
  }
  json.end_array();
}

void print_bundle(const std::string& path, const format::Bundle& bundle, uint64_t file_bytes) {
  std::printf("%s: bundled program, %llu bytes\n", path.c_str(), static_cast<unsigned long long>(file_bytes));
  for (const format::BundledSuite& suite : bundle.suites) {
    for (size_t i = 0; i < suite.cases.size(); ++i) {
      std::printf("  method %s, case %zu: %zu inputs, %zu expected outputs\n", suite.method.c_str(), i, suite.cases[i].inputs.size(), suite.cases[i].expected.size());
    }
  }
}

/// bundle: that the program is in; may be null.
Result<int> inspect_program(const std::string& path, std::span<const std::byte> bytes, const format::Bundle* bundle, uint64_t bundle_bytes, const Arguments& a) {
  const LoadOptions load = load_options(a);
  // From memory: data files beside the program are not needed to say what it is, and not opened.
  auto loaded = Program::load(bytes, load);
  if (!loaded.ok()) return std::move(loaded).status().with_context(path);
  const std::shared_ptr<Program> program = std::move(loaded).value();
  const std::vector<format::DataFileMeta>& data_files = program->state().meta.data_files;
  const format::ProgramView& view = program->state().view;
  const size_t file_bytes = view.file().size();
  std::vector<MethodInfo> methods;
  for (const std::string& name : program->method_names()) {
    PTERON_ASSIGN(MethodInfo info, program->method_info(name));
    methods.push_back(std::move(info));
  }
  if (a.flag("json")) {
    JsonWriter json;
    json.begin_object();
    json.field("kind", bundle == nullptr ? "pte" : "bpte");
    json.field("file_bytes", bundle == nullptr ? file_bytes : bundle_bytes);
    if (bundle != nullptr) bundle_json(json, *bundle);
    json.field("program_bytes", view.header().program_bytes);
    json.field("segment_bytes", view.header().segment_bytes);
    json.key("methods");
    json.begin_array();
    for (const MethodInfo& info : methods) method_json(json, view, info);
    json.end_array();
    json.key("data_files");
    json.begin_array();
    for (const format::DataFileMeta& data : data_files) {
      json.begin_object();
      json.field("name", data.name);
      json.field("size_bytes", data.size_bytes);
      json.field("manifest", data.manifest_hash);
      json.field("place", place_of(path, data));
      json.end_object();
    }
    json.end_array();
    json.key("named_data");
    json.begin_array();
    for (const format::NamedRange& data : view.named_data()) {
      json.begin_object();
      json.field("key", data.key);
      json.field("size_bytes", data.bytes.size());
      json.end_object();
    }
    json.end_array();
    json.end_object();
    std::printf("%s\n", json.text().c_str());
    return 0;
  }
  if (bundle != nullptr) print_bundle(path, *bundle, bundle_bytes);
  std::printf("%s: %zu bytes, program %llu, segments %llu\n", bundle == nullptr ? path.c_str() : "the program in it", file_bytes, static_cast<unsigned long long>(view.header().program_bytes),
              static_cast<unsigned long long>(view.header().segment_bytes));
  for (const MethodInfo& info : methods) print_method(view, info);
  for (const format::DataFileMeta& data : data_files) {
    std::printf("weights in %s: %llu bytes, manifest %s, %s\n", data.name.c_str(), static_cast<unsigned long long>(data.size_bytes), data.manifest_hash.c_str(),
                std::string(place_of(path, data)).c_str());
  }
  for (const format::NamedRange& data : view.named_data()) std::printf("named data %s: %zu bytes\n", std::string(data.key).c_str(), data.bytes.size());
  if (a.flag("instructions")) print_instructions(view);
  return 0;
}

Result<int> write_page(const std::string& path, std::span<const std::byte> bytes, const Arguments& a) {
  const std::string output = a.value("html");
  if (output.empty()) return usage_error("inspect", "--html names no file");
  if (same_file(path, output)) return usage_error("inspect", str_cat("--html: ", output, " is the input; name another file"));
  if (!format::check_program_path(output).ok()) return usage_error("inspect", str_cat("--html: ", output, " is named like a data file (.ptd); name another file"));
  auto view = format::verify_program(bytes);
  if (!view.ok()) return std::move(view).status().with_context(str_cat("loading ", path));
  auto page = inspect_html(path.substr(path.rfind('/') + 1), *view);  // npos + 1 is 0
  if (!page.ok()) return std::move(page).status().with_context(path);
  LazyFile file(output);
  PTERON_TRY(file.write(std::as_bytes(std::span(*page))));
  PTERON_TRY(file.commit(true));
  JsonWriter json;
  json.begin_object();
  json.field("output", output);
  json.field("file_bytes", static_cast<uint64_t>(page->size()));
  json.end_object();
  if (a.flag("json")) std::printf("%s\n", json.text().c_str());
  if (!a.flag("json") && !a.flag("quiet")) std::printf("wrote %s: %zu bytes\n", output.c_str(), page->size());
  return 0;
}

Result<int> run_inspect(const Arguments& a) {
  const std::string& path = a.positionals()[0];
  PTERON_ASSIGN(std::shared_ptr<FileBytes> file, FileBytes::map(path));
  std::span<const std::byte> bytes = file->bytes();
  std::optional<format::Bundle> bundle;
  if (format::is_bundle(bytes)) {
    auto read = format::read_bundle(bytes);
    if (!read.ok()) return std::move(read).status().with_context(path);
    bundle = std::move(read).value();
    bytes = bundle->program;
  }
  if (a.has("html")) return write_page(path, bytes, a);
  if (has_bytes(file->bytes(), 0, "PK")) return inspect_archive(path, std::move(file), a);
  if (has_bytes(file->bytes(), 4, "FT01")) return inspect_data(path, *file, a);
  if (format::is_etdump(file->bytes())) return inspect_etdump(path, *file, a);
  return inspect_program(path, bytes, bundle ? &*bundle : nullptr, file->bytes().size(), a);
}

}  // namespace

extern const Verb k_inspect_verb;
const Verb k_inspect_verb = {"inspect", "show what a .pte, .bpte, .pt2, .ptd or .etdp holds", "FILE [options]", 1, 1, kInspectOptions, run_inspect};

}  // namespace pteron::cli
