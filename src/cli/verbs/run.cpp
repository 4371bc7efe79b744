// pteron run: one or several calls of a method, tensors from and to files.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/bundled.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "cli/verb.h"
#include "format/bundle.h"
#include "format/data_name.h"
#include "pteron/etdump.h"
#include "pteron/program.h"

namespace pteron::cli {

namespace {

constexpr Option kRunOptions[] = {
    {"inputs", "i", OptionKind::kList, "FILE", "tensors of one call (.safetensors, .npy, .npz), or raw bytes, one file an input (a.bin,b.bin); repeat for several calls on the same state"},
    {"outputs", "o", OptionKind::kList, "FILE", "where a call's results go (.safetensors, .npz, or .npy for a single output), text is printed; once per --inputs"},
    {"raw-outputs", "", OptionKind::kValue, "BASE", "write the bytes of each output to BASE-0.bin, BASE-1.bin, ...; of the last call"},
    {"print", "", OptionKind::kValue, "WORD", "summary (default), all values, or none"},
    {"repeat", "", OptionKind::kCount, "N", "make each call N times with the same inputs, default 1"},
    {"bundled", "", OptionKind::kFlag, "", "expect a bundled program (.bpte); one is run case by case against its expected outputs, with or without this word"},
    {"rtol", "", OptionKind::kReal, "X", "bundled programs: relative tolerance; default by dtype, 1e-4 for float32"},
    {"atol", "", OptionKind::kReal, "X", "bundled programs: absolute tolerance, default 1e-5"},
    {"method", "m", OptionKind::kList, "NAME", "the method to call; default: forward, or the only one; repeat to name one for each call"},
    {"kernels", "k", OptionKind::kList, "LIBRARY", "a shared library with own operators (pteron/ops.h)"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights; default: those that the program names, beside it"},
    {"seed", "", OptionKind::kCount, "N", "seed of operators that draw random numbers (compile --allow-random), default 0"},
    {"threads", "t", OptionKind::kCount, "N", "threads to use; default, and 0: all CPUs of the process"},
    {"verify-data", "", OptionKind::kFlag, "", "hash every byte of the data files at load"},
    {"etdump", "", OptionKind::kValue, "FILE", "write what loading and each call took, instruction by instruction (.etdp), for `pteron inspect` and the official inspector"},
    {"no-map", "", OptionKind::kFlag, "", "read files into memory instead of mapping them"},
};

/// What is wrong with the files for outputs (a format, something overwritten by mistake); empty if nothing.
std::string output_problem(const Arguments& a, const std::vector<std::string>& outputs) {
  std::vector<std::string> read = split_list(a.list("inputs"));
  for (const std::string& file : a.list("inputs")) read.push_back(file);
  for (const std::string& data : a.list("data")) read.push_back(data);
  read.push_back(a.positionals()[0]);
  for (const std::string& path : read) {
    const std::string base = a.value("raw-outputs");
    const std::string_view rest = path.starts_with(base) && path.ends_with(".bin") && path.size() > base.size() + 5 ? std::string_view(path).substr(base.size() + 1) : std::string_view();
    if (a.has("raw-outputs") && !rest.empty() && path[base.size()] == '-' && parse_count(rest.substr(0, rest.size() - 4))) {
      return str_cat("--raw-outputs ", base, " would write over ", path, "; name another base");
    }
  }
  if (a.has("etdump")) {
    const std::string dump = a.value("etdump");
    for (const std::string& path : read) {
      if (same_file(dump, path)) return str_cat("--etdump: ", dump, " is the input ", path, "; name another file");
    }
    for (const std::string& path : outputs) {
      if (same_file(dump, path)) return str_cat("--etdump: ", dump, " is also named by --outputs; name another file");
    }
    if (!format::check_program_path(dump).ok()) return str_cat("--etdump: ", dump, " is named like a data file (.ptd); name another file");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const std::string& path : read) {
      if (same_file(outputs[i], path)) return str_cat("the output ", outputs[i], " is the input ", path, "; name another file");
    }
    for (size_t k = 0; k < i; ++k) {
      if (same_file(outputs[i], outputs[k])) return str_cat("the output ", outputs[i], " is named twice");
    }
    if (const std::string problem = output_name_problem(outputs[i]); !problem.empty()) return problem;
  }
  return {};
}

Result<int> run_run(const Arguments& a) {
  LoadOptions load = load_options(a);
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  load.log = &log;
  const std::vector<std::string> inputs = a.list("inputs"), outputs = a.list("outputs");
  const std::vector<std::string> names = a.list("method");
  const size_t calls = std::max({inputs.size(), size_t{1}, names.size()});
  if (!outputs.empty() && outputs.size() != calls) {
    return usage_error("run", str_cat(outputs.size(), " --outputs for ", calls, calls == 1 ? " call" : " calls", "; give one for each, or none to print results"));
  }
  const std::string& path = a.positionals()[0];
  if (const std::string problem = output_problem(a, outputs); !problem.empty()) return usage_error("run", problem);
  const std::string print = a.value("print", "summary");
  if (print != "summary" && print != "all" && print != "none") return usage_error("run", str_cat("--print is none, summary or all, found '", print, "'"));
  const uint64_t repeats = a.count("repeat", 1);
  if (repeats == 0) return usage_error("run", "--repeat is at least 1");
  {
    PTERON_ASSIGN(const std::shared_ptr<FileBytes> file, FileBytes::map(path));
    if (a.flag("bundled") || format::is_bundle(file->bytes())) {
      for (const std::string_view word : {"inputs", "outputs", "raw-outputs", "method", "repeat", "seed", "print"}) {
        if (a.has(word)) return usage_error("run", str_cat("a bundled program is run as its cases say, once each: leave --", word, " out"));
      }
      return run_bundle(path, a);
    }
  }
  std::optional<EventRecorder> recorder;
  if (a.has("etdump")) recorder.emplace();
  PTERON_ASSIGN(const std::shared_ptr<Program> program, recorder ? recorder->load(path, load) : Program::load(path, load));
  if (names.size() > 1 && !inputs.empty() && names.size() != inputs.size()) {
    return usage_error("run", str_cat(names.size(), " --method for ", inputs.size(), " --inputs"));
  }
  const auto method_of = [&](size_t call) { return pick_method(*program, names.empty() ? std::string() : names.size() == 1 ? names[0] : names[call]); };
  for (size_t call = 0; call < outputs.size(); ++call) {
    PTERON_ASSIGN(const std::string name, method_of(call));
    PTERON_ASSIGN(const MethodInfo info, program->method_info(name));
    if (const std::string problem = output_format_problem(info, outputs[call]); !problem.empty()) return usage_error("run", problem);
  }
  std::map<std::string, std::unique_ptr<Method>> methods;  // one session: they share what the file shares
  const bool as_json = a.flag("json");
  JsonWriter json;
  json.begin_array();
  for (size_t call = 0; call < calls; ++call) {
    PTERON_ASSIGN(const std::string name, method_of(call));
    std::unique_ptr<Method>& method = methods[name];
    if (method == nullptr) {
      const auto peer = std::find_if(methods.begin(), methods.end(), [](const auto& entry) { return entry.second != nullptr; });
      Method* const with = peer == methods.end() ? nullptr : peer->second.get();
      PTERON_ASSIGN(method, recorder ? recorder->load_method(*program, name, with) : with == nullptr ? program->load_method(name) : program->load_method(name, *with));
    }
    TensorFile file;
    if (call < inputs.size()) {
      PTERON_ASSIGN(file, TensorFile::read_for(method->info(), inputs[call]));
    }
    for (uint64_t i = 0; i < repeats; ++i) {
      PTERON_TRY(set_inputs(*method, file));
      PTERON_TRY(recorder ? recorder->execute(*method) : method->execute());
    }
    if (call < outputs.size()) PTERON_TRY(write_outputs(*method, outputs[call]));
    if (a.has("raw-outputs") && call + 1 == calls) PTERON_TRY(write_raw_outputs(*method, a.value("raw-outputs")));
    if (as_json) {
      json.begin_object();
      json.field("method", name);
      if (call < outputs.size()) json.field("file", outputs[call]);
      json.key("outputs");
      PTERON_TRY(outputs_json(*method, json));
      json.end_object();
    } else if (print != "none") {
      PTERON_TRY(call < outputs.size() ? print_texts(*method) : print_outputs(*method, print == "all"));  // text goes into no file
    }
  }
  json.end_array();
  if (as_json) std::printf("%s\n", json.text().c_str());
  if (recorder) PTERON_TRY(write_etdump_file(*recorder, a.value("etdump"), &log));
  return 0;
}

constexpr std::string_view kNotes =
    "The flags of ExecuTorch's executor_runner work as well, with one or two dashes: --model_path (MODEL.pte), --data_path (--data), --inputs,\n"
    "--method_name (--method), --output_file (--raw-outputs), --print_output (--print), --num_executions (--repeat), --cpu_threads (--threads),\n"
    "--etdump_path (--etdump), --bundleio_rtol (--rtol), --bundleio_atol (--atol). docs/etdump.md says what --etdump writes and who reads it.\n";

}  // namespace

extern const Verb k_run_verb;
const Verb k_run_verb = {"run", "run a .pte program", "MODEL.pte --inputs IN.safetensors [--outputs OUT.safetensors] [options]", 1, 1, kRunOptions, run_run, kNotes};

}  // namespace pteron::cli
