// Developer program: imports every archive named on the command line and prints one line each: nodes, unknown operators, time, or the error.
// With --repeat N it imports N times and prints the fastest. Not installed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "import/import.h"
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

int check(const char* path, const pteron::ir::Catalog& catalog, int repeat) {
  double best_ms = 1e30;
  Count total;
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    auto file = pteron::FileBytes::map(path);
    pteron::ir::Program program;
    const pteron::Status status =
        file.ok() ? pteron::importer::import_archive(std::move(*file), catalog, {}, program) : std::move(file).status();
    best_ms = std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    if (!status.ok()) {
      std::printf("ERROR %d %s: %s\n", pteron::exit_code(status.code()), path, std::string(status.message()).c_str());
      return 1;
    }
    total = {};
    count(program.methods[0]->graph, &total);
  }
  std::printf("ok %s: %zu nodes, %.3f ms", path, total.nodes, best_ms);
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
  int repeat = 1, errors = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeat = std::max(1, std::atoi(argv[++i]));
      continue;
    }
    errors += check(argv[i], *catalog, repeat);
  }
  std::printf("%d errors\n", errors);
  return errors == 0 ? 0 : 1;
}
