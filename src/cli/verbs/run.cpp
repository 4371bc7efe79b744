// pteron run: one or several calls of a method, tensors from and to files.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/file_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "cli/verb.h"
#include "ops/kernels.h"
#include "pteron/program.h"

namespace pteron::cli {

namespace {

constexpr Option kOptions[] = {
    {"inputs", "i", OptionKind::kList, "FILE", "tensors of one call (.safetensors, .npy, .npz); repeat for several calls on the same state"},
    {"outputs", "o", OptionKind::kList, "FILE", "where a call's results go (.safetensors); once per --inputs"},
    {"method", "m", OptionKind::kValue, "NAME", "the method to call; default: forward, or the only one"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights"},
    {"threads", "t", OptionKind::kValue, "N", "threads to use; default: all CPUs of the process"},
    {"no-map", "", OptionKind::kFlag, "", "read files into memory instead of mapping them"},
};

Result<std::string> pick_method(const Program& program, const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const auto names = program.method_names();
  for (const std::string& name : names) {
    if (name == "forward") return name;
  }
  if (names.empty()) return Status(Code::kInvalidFile, "the program has no methods");
  return names[0];
}

Result<int> run(const Arguments& a) {
  LoadOptions load;
  load.data_files = a.list("data");
  load.map = !a.flag("no-map");
  load.kernels = &ops::portable_kernels();
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  load.log = &log;
  if (a.has("threads")) {
    PTERON_ASSIGN(const uint64_t threads, parse_number(a.value("threads"), "--threads"));
    load.threads = static_cast<int>(threads);
  }
  const std::vector<std::string> inputs = a.list("inputs"), outputs = a.list("outputs");
  if (outputs.size() > std::max<size_t>(inputs.size(), 1)) return Status(Code::kInvalidInput, str_cat(outputs.size(), " --outputs for ", inputs.size(), " --inputs"));
  const std::string& path = a.positionals()[0];
  PTERON_ASSIGN(std::shared_ptr<Program> program, Program::load(path, load));
  PTERON_ASSIGN(const std::string name, pick_method(*program, a.value("method")));
  PTERON_ASSIGN(std::unique_ptr<Method> method, program->load_method(name));
  for (size_t call = 0; call < std::max<size_t>(inputs.size(), 1); ++call) {
    TensorFile file;
    if (call < inputs.size()) {
      PTERON_ASSIGN(file, TensorFile::read(inputs[call]));
    }
    PTERON_TRY(set_inputs(*method, file));
    PTERON_TRY(method->execute());
    if (call < outputs.size()) {
      PTERON_TRY(write_outputs(*method, outputs[call]));
    } else if (!a.flag("quiet")) {
      PTERON_TRY(print_outputs(*method));
    }
  }
  return 0;
}

}  // namespace

extern const Verb k_run_verb;
const Verb k_run_verb = {"run", "run a .pte program", "MODEL.pte --inputs IN.safetensors [--outputs OUT.safetensors] [options]", 1, 1, kOptions, run};

}  // namespace pteron::cli
