// Programs and made-up inputs.
#include "cli/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "backends/null/runtime/backend.h"
#include "base/no_memory.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "format/data_name.h"
#include "format/meta.h"
#include "format/program_view.h"
#include "runtime/data_map.h"
#include "tensor/dtype.h"

namespace pteron::cli {

LoadOptions load_options(const Arguments& arguments) {
  LoadOptions load;
  load.data_files = arguments.list("data");
  load.map = !arguments.flag("no-map");
  load.verify_data = arguments.flag("verify-data");
  load.kernel_libraries = arguments.list("kernels");
  load.seed = arguments.count("seed", 0);
  load.delegates.push_back(&null::backend());
  load.threads = static_cast<int>(std::min<uint64_t>(arguments.count("threads", 0), 4096));
  return load;
}

namespace {

/// The data files that a program in memory records and that lie beside `path`.
Status find_data_beside(const std::string& path, std::span<const std::byte> bytes, std::vector<std::string>& files) {
  PTERON_ASSIGN(const format::ProgramView view, format::verify_program(bytes));
  const auto facts = view.named_data(format::kMetaKey);
  if (!facts.has_value()) return ok_status();
  PTERON_ASSIGN(const format::ProgramMeta meta, format::read_meta(*facts));
  for (const format::DataFileMeta& record : meta.data_files) {
    const std::string_view name = record.name;  // a hostile one would lead out of the folder
    if (!name.ends_with(".ptd") || !format::check_data_name(name.substr(0, name.size() - 4)).ok()) {
      return Status(Code::kInvalidFile, str_cat("the program's data file has the name '", name, "', which no data file may have"));
    }
    const std::vector<std::string> places = runtime::paths_beside(path, name);
    const auto found = std::ranges::find_if(places, [](const std::string& place) { return ::access(place.c_str(), F_OK) == 0; });
    if (found == places.end()) {
      return Status(Code::kNotFound, str_cat("the weights of the program in the bundle are in ", name, ", and there is no ", places[0], ": a bundle holds no data files; name it (--data FILE)"));
    }
    files.push_back(*found);
  }
  return ok_status();
}

}  // namespace

Result<LoadedProgram> load_program_file(const std::string& path, LoadOptions options, EventRecorder* recorder) {
  LoadedProgram made;
  PTERON_ASSIGN(made.file, options.map ? FileBytes::map(path) : FileBytes::read(path));
  if (!format::is_bundle(made.file->bytes())) {
    PTERON_ASSIGN(made.program, recorder != nullptr ? recorder->load(path, options) : Program::load(path, options));
    return made;
  }
  const auto with_path = [&](Status status) { return std::move(status).with_context(path); };
  auto bundle = format::read_bundle(made.file->bytes());
  if (!bundle.ok()) return with_path(std::move(bundle).status());
  made.bundle = std::make_unique<format::Bundle>(std::move(bundle).value());
  if (options.data_files.empty()) {
    if (Status found = find_data_beside(path, made.bundle->program, options.data_files); !found.ok()) return with_path(std::move(found));
  }
  auto program = recorder != nullptr ? recorder->load(made.bundle->program, options) : Program::load(made.bundle->program, options);
  if (!program.ok()) return with_path(std::move(program).status());
  made.program = std::move(program).value();
  return made;
}

Result<std::string> pick_method(const Program& program, const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const auto names = program.method_names();
  if (names.empty()) return Status(Code::kInvalidFile, "the program has no methods");
  return std::find(names.begin(), names.end(), "forward") != names.end() ? std::string("forward") : names[0];
}

Status write_etdump_file(const EventRecorder& recorder, const std::string& path, LogSink* log) {
  PTERON_ASSIGN(const std::vector<std::byte> bytes, recorder.etdump());
  if (recorder.left_out() > 0 && log != nullptr) log->log(LogLevel::kWarning, str_cat(path, " lacks the last ", recorder.left_out(), " events: there are too many"));
  LazyFile file(path);
  PTERON_TRY(file.write(bytes));
  return file.commit(true);
}

Result<SyntheticInputs> SyntheticInputs::make(const Method& method) {
  SyntheticInputs made;
  const MethodInfo& info = method.info();
  uint32_t random = 12345;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const ValueInfo& input = info.inputs[i];
    if (input.kind != ValueKind::kTensor) continue;
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : input.dims) sizes.push_back(dim.max);
    PTERON_ASSIGN(Buffer bytes, buffer_for(str_cat("input ", i, " (", input.name, ")"), Buffer::create_zeroed(std::max<uint64_t>(input.bound_bytes(), 1))));
    const TensorView view = make_contiguous_view(input.dtype, sizes, bytes.data());
    const int64_t count = view.numel();
    dispatch_floating(input.dtype, [&]<typename T>() {
      for (int64_t k = 0; k < count; ++k) {
        random = random * 1664525u + 1013904223u;
        view.as<T>()[k] = T(static_cast<float>(static_cast<int32_t>(random)) * 0x1p-31f);
      }
    });
    made.entries_.push_back({i, view});
    made.buffers_.push_back(std::move(bytes));
  }
  return made;
}

Status SyntheticInputs::set(Method& method) const {
  for (const Entry& entry : entries_) PTERON_TRY(method.set_input(entry.index, entry.view));
  return ok_status();
}

}  // namespace pteron::cli
