// Entry of the command line tool: finds the verb, runs it, prints errors, gives the exit code.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "cli/runner_flags.h"
#include "cli/verb.h"
#include "pteron/status.h"
#include "pteron/version.h"

namespace pteron::cli {

namespace {


void print_help(std::FILE* out) {
  std::fprintf(out, "pteron %s: compiles PyTorch programs (.pt2) to ExecuTorch files (.pte) and runs them\n\nusage: pteron VERB [arguments]\n\n",
              std::string(version()).c_str());
  for (const Verb* verb : verbs()) std::fprintf(out, "  %-8s %s\n", std::string(verb->name).c_str(), std::string(verb->summary).c_str());
  std::fprintf(out, "\n`pteron VERB --help` explains a verb; what stands behind `--` is a file even if it begins with a dash. Exit codes: 0 ok, 1 comparison failed, 2 usage, 3 file, 4 unsupported, 5 input, 6 run time, 7 memory.\n");
}

int run_verb(const Verb& verb, const std::vector<std::string>& words) {
  Arguments arguments;
  int exit = 0;
  if (!parse_arguments(verb, words, &arguments, &exit)) return exit;
  // What was asked for as data stays: JSON, and dumps of the program.
  const bool silent = arguments.flag("quiet") && !arguments.flag("json") && !arguments.flag("dump-after");
  if (silent && std::freopen("/dev/null", "w", stdout) == nullptr) return 6;
  const Result<int> result = verb.run(arguments);
  if (result.ok()) return *result;
  const Status& status = result.status();
  std::fprintf(stderr, "pteron %s: error: %s\n", std::string(verb.name).c_str(), std::string(status.message()).c_str());
  if (arguments.flag("verbose")) std::fprintf(stderr, "pteron %s: %s at %s\n", std::string(verb.name).c_str(), std::string(code_name(status.code())).c_str(), status.where().c_str());
  return exit_code(status.code());
}

}  // namespace

int run_main(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    std::printf("pteron %s\n", std::string(version()).c_str());
    return 0;
  }
  std::vector<std::string_view> names;
  for (const Verb* verb : verbs()) {
    if (verb->name == "run" && words[0] == "run") return run_verb(*verb, translate_runner_flags(std::span(words).subspan(1)));
    if (verb->name == words[0]) return run_verb(*verb, {words.begin() + 1, words.end()});
    names.push_back(verb->name);
  }
  const std::string_view near = nearest(words[0], names);
  std::fprintf(stderr, "pteron: unknown verb '%s'%s\n", words[0].c_str(), near.empty() ? "" : ("; did you mean '" + std::string(near) + "'?").c_str());
  return 2;
}

}  // namespace pteron::cli

int main(int argc, char** argv) {
  std::set_new_handler([] {
    std::fputs("pteron: error: out of memory\n", stderr);
    std::_Exit(7);
  });
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of the write, which cleans up
  const int code = pteron::cli::run_main({argv + 1, argv + argc});
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fputs("pteron: error: standard output cannot be written: what was printed is not complete\n", stderr);
  return code == 0 ? 6 : code;
}
