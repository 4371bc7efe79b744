// Developer program: imports every archive named on the command line and prints one line each: nodes, unknown operators, time, or the error.
// --repeat N: imports N times and prints the fastest (processor time). --text: prints, parses and prints again, and compares. --print: prints the text.
// Not installed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <string>

#include "import/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/catalog.h"

namespace {

struct Count {
  size_t nodes = 0;
  std::set<std::string> unknown;
};

void count(const pteron::ir::Graph& graph, Count* out) {
  for (const auto id : graph.order) {
    const auto& node = graph[id];
    ++out->nodes;
    if (!node.op->known) out->unknown.insert(node.op->name);
    for (const auto& region : node.regions) count(*region, out);
  }
}

/// Processor time of this process, so that other work on the machine does not count.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Options {
  int repeat = 1;
  bool text = false, print = false;
};

/// Empty if the text form survives a round trip, else what went wrong.
std::string check_text(const pteron::ir::Program& program, const pteron::ir::Catalog& catalog) {
  const std::string first = pteron::ir::print(program);
  pteron::ir::Program again;
  if (const pteron::Status status = pteron::ir::parse(first, catalog, again); !status.ok()) return "parse: " + std::string(status.message());
  if (const pteron::Status status = pteron::ir::verify(again, pteron::ir::Dialect::kImported); !status.ok()) return "verify: " + std::string(status.message());
  const std::string second = pteron::ir::print(again);
  if (first == second) return {};
  size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const size_t line = first.rfind('\n', at) + 1;
  return "text differs: " + first.substr(line, first.find('\n', at) - line) + "\n  again: " + second.substr(line, second.find('\n', at) - line);
}

int check(const char* path, const pteron::ir::Catalog& catalog, const Options& options) {
  double best_ms = 1e30;
  Count total;
  for (int i = 0; i < options.repeat; ++i) {
    const auto start = cpu_ms();
    auto file = pteron::FileBytes::map(path);
    pteron::ir::Program program;
    const pteron::Status status =
        file.ok() ? pteron::importer::import_archive(std::move(*file), catalog, {}, program) : std::move(file).status();
    best_ms = std::min(best_ms, cpu_ms() - start);
    if (!status.ok()) {
      std::printf("ERROR %d %s: %s\n", pteron::exit_code(status.code()), path, std::string(status.message()).c_str());
      return 1;
    }
    total = {};
    count(program.methods[0]->graph, &total);
    if (options.print && i == 0) std::printf("%s", pteron::ir::print(program).c_str());
    if (!options.text || i > 0) continue;
    if (const std::string problem = check_text(program, catalog); !problem.empty()) {
      std::printf("TEXT %s: %s\n", path, problem.c_str());
      return 1;
    }
  }
  std::printf("ok %s: %zu nodes, %.3f ms of processor time", path, total.nodes, best_ms);
  for (const std::string& name : total.unknown) std::printf(" %s", name.c_str());
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto catalog = pteron::ops::make_catalog();
  if (!catalog.ok()) {
    std::printf("catalog: %s\n", std::string(catalog.status().message()).c_str());
    return 1;
  }
  Options options;
  int errors = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      options.repeat = std::max(1, std::atoi(argv[++i]));
      continue;
    }
    if (std::strcmp(argv[i], "--text") == 0 || std::strcmp(argv[i], "--print") == 0) {
      (argv[i][2] == 't' ? options.text : options.print) = true;
      continue;
    }
    errors += check(argv[i], *catalog, options);
  }
  std::printf("%d errors\n", errors);
  return errors == 0 ? 0 : 1;
}
