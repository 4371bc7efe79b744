// pteron bundle: a program with inputs and the outputs they must give, in one file.
#include <cstdio>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/make_bundle.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "format/bundle.h"
#include "format/data_name.h"

namespace pteron::cli {

namespace {

constexpr Option kBundleOptions[] = {
    {"output", "o", OptionKind::kValue, "FILE", "the bundled program (.bpte) to write; pteron run and the official tools run it"},
    {"inputs", "i", OptionKind::kList, "FILE", "tensors of one case, as pteron run takes them; repeat for several, each from the initial state"},
    {"expected", "e", OptionKind::kList, "FILE",
     "what a case must give (.safetensors, .npz, .npy; by position or name), once per --inputs; default: what the program gives here"},
    {"method", "m", OptionKind::kList, "NAME", "the method of the cases; default: forward, or the only one; repeat to name one for each case"},
    {"kernels", "k", OptionKind::kList, "LIBRARY", "a shared library with own operators (pteron/ops.h)"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights; they stay outside the bundle"},
    {"threads", "t", OptionKind::kCount, "N", "threads to use; default, and 0: all CPUs of the process"},
    {"no-map", "", OptionKind::kFlag, "", "read files into memory instead of mapping them"},
    {"no-sync", "", OptionKind::kFlag, "", "do not wait until the file is on the disk"},
};

/// What is wrong with the words; empty if nothing.
std::string problem_of(const Arguments& a) {
  const std::vector<std::string> inputs = a.list("inputs"), expected = a.list("expected"), methods = a.list("method");
  const std::string output = a.value("output");
  if (output.empty()) return "name the bundled program to write: -o OUT.bpte";
  if (!format::check_program_path(output).ok()) return str_cat("the output ", output, " is named like a data file (.ptd); name another file (-o)");
  if (!expected.empty() && expected.size() != inputs.size())
    return str_cat(expected.size(), " --expected for ", inputs.size(), " --inputs; give one for each, or none");
  if (methods.size() > 1 && methods.size() != inputs.size())
    return str_cat(methods.size(), " --method for ", inputs.size(), " --inputs; give one for each, or one for all");
  std::vector<std::string> read = {a.positionals()[0]};
  for (const auto& list : {inputs, expected, a.list("data")}) read.insert(read.end(), list.begin(), list.end());
  for (const std::string& path : read) {
    if (same_file(path, output)) return str_cat("the output ", output, " is the input ", path, "; name another file (-o)");
  }
  return {};
}

Result<int> run_bundle_verb(const Arguments& a) {
  if (const std::string problem = problem_of(a); !problem.empty()) return usage_error("bundle", problem);
  const std::string &path = a.positionals()[0], output = a.value("output");
  const std::vector<std::string> inputs = a.list("inputs"), expected = a.list("expected"), methods = a.list("method");
  LoadOptions load = load_options(a);
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  load.log = &log;
  PTERON_ASSIGN(const std::shared_ptr<FileBytes> file, FileBytes::map(path));
  if (format::is_bundle(file->bytes())) return usage_error("bundle", str_cat(path, " is a bundled program already"));
  PTERON_ASSIGN(std::shared_ptr<Program> program, Program::load(path, load));
  BundleMaker maker(program);
  const size_t cases = inputs.empty() ? 1 : inputs.size();  // a method without inputs has one case
  for (size_t i = 0; i < cases; ++i) {
    PTERON_ASSIGN(const std::string method, pick_method(*program, methods.empty() ? std::string() : methods.size() == 1 ? methods[0] : methods[i]));
    Status status = maker.add(method, inputs.empty() ? std::string() : inputs[i], expected.empty() ? std::string() : expected[i]);
    if (!status.ok()) return std::move(status).with_context(str_cat("method ", method, ", case ", i));
  }
  PTERON_ASSIGN(const Buffer bytes, maker.write(file->bytes()));
  LazyFile out(output);
  PTERON_TRY(out.write(bytes.span()));
  PTERON_TRY(out.commit(!a.flag("no-sync")));
  if (a.flag("json")) {
    JsonWriter json;
    json.begin_object();
    json.field("output", output);
    json.field("file_bytes", static_cast<uint64_t>(bytes.size()));
    json.field("cases", static_cast<uint64_t>(maker.case_count()));
    json.end_object();
    std::printf("%s\n", json.text().c_str());
  } else if (!a.flag("quiet")) {
    std::printf("wrote %s: %zu bytes, %zu %s\n", output.c_str(), bytes.size(), maker.case_count(), maker.case_count() == 1 ? "case" : "cases");
  }
  return 0;
}

}  // namespace

extern const Verb k_bundle_verb;
const Verb k_bundle_verb = {"bundle",
                            "put inputs and expected outputs into one file with a program",
                            "MODEL.pte --inputs IN.safetensors -o OUT.bpte [options]",
                            1,
                            1,
                            kBundleOptions,
                            run_bundle_verb};

}  // namespace pteron::cli
