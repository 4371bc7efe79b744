// pteron opt: runs passes on a program in text form and prints the result; the tool behind the text tests in tests/ir.
#include <cstdio>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/registry.h"

namespace pteron::cli {

namespace {

constexpr Option kOptOptions[] = {
    {"pass", "p", OptionKind::kList, "NAME[,NAME]", "passes to run, in this order"},
    {"list", "", OptionKind::kFlag, "", "print the passes and stop"},
};

void print_passes(bool as_json) {
  JsonWriter json;
  json.begin_array();
  for (const passes::Pass& pass : passes::all_passes()) {
    json.begin_object();
    json.field("name", pass.name);
    json.field("summary", pass.summary);
    json.end_object();
    if (!as_json) std::printf("%-18s %s\n", std::string(pass.name).c_str(), std::string(pass.summary).c_str());
  }
  json.end_array();
  if (as_json) std::printf("%s\n", json.text().c_str());
}

Result<int> run_opt(const Arguments& a) {
  if (a.flag("list")) {
    print_passes(a.flag("json"));
    return 0;
  }
  if (a.positionals().empty()) return usage_error("opt", "name a FILE.ir, or give --list");
  PTERON_ASSIGN(const Session session, Session::create());
  PTERON_ASSIGN(const std::shared_ptr<FileBytes> file, FileBytes::map(a.positionals()[0]));
  const auto bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.find('\0') != std::string_view::npos) {
    return Status(Code::kInvalidFile, str_cat(a.positionals()[0], " is no text: a program in text form is expected (pteron compile --dump-after PHASE prints one)"));
  }
  ir::Program program;
  Status parsed = ir::parse(text, session.catalog(), program);
  if (!parsed.ok()) return std::move(parsed).with_context(a.positionals()[0]);
  passes::PassContext context;
  context.catalog = &session.catalog();
  context.evaluator = session.environment().evaluator;
  context.has_kernel = session.environment().has_kernel;
  for (const std::string& name : split_list(a.list("pass"))) {
    const passes::Pass* pass = passes::find_pass(name);
    if (pass == nullptr) return usage_error("opt", str_cat("no pass is named '", name, "'; pteron opt --list prints them"));
    for (const auto& method : program.methods) {
      auto changed = pass->run(method->graph, context);
      if (!changed.ok()) return std::move(changed).status().with_context(name);
    }
  }
  const std::string result = ir::print(program);
  if (a.flag("json")) {
    JsonWriter json;
    json.begin_object();
    json.field("text", result);
    json.end_object();
    std::printf("%s\n", json.text().c_str());
  } else {
    std::printf("%s", result.c_str());
  }
  return 0;
}

}  // namespace

extern const Verb k_opt_verb;
const Verb k_opt_verb = {"opt", "run passes on a program in text form", "FILE.ir --pass NAME[,NAME]", 0, 1, kOptOptions, run_opt};

}  // namespace pteron::cli
