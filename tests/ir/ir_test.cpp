// Runs every case of every .ir file of this folder: passes by name on a graph in text form, compared as text.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "interp/evaluator.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "passes/registry.h"

namespace pteron {
namespace {

struct Case {
  std::string head;   ///< comment lines
  std::string input, expected;
  bool is_error = false;
  std::vector<std::string> passes;
};

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<Case> cases;
  std::string line;
  enum { kHead, kIn, kOut } part = kOut;
  while (std::getline(in, line)) {
    if (line.starts_with("# ") && part == kOut) {
      cases.emplace_back();
      part = kHead;
    }
    if (line == "--- in") {
      part = kIn;
    } else if (line == "--- out" || line == "--- error") {
      part = kOut;
      cases.back().is_error = line == "--- error";
    } else if (cases.empty()) {
      continue;
    } else if (part == kHead) {
      if (!line.starts_with("# ")) continue;
      cases.back().head += line + "\n";
      if (line.starts_with("# run: ")) {
        std::istringstream words(line.substr(7));
        for (std::string word; words >> word;) cases.back().passes.push_back(word);
      }
    } else if (!line.empty()) {
      (part == kIn ? cases.back().input : cases.back().expected) += line + "\n";
    }
  }
  return cases;
}

/// The text after the passes, or "error: message".
std::string run_case(const Case& test, const ir::Catalog& catalog) {
  ir::Program program;
  const auto error = [](const Status& status) { return "error: " + std::string(status.message()) + "\n"; };
  if (Status status = ir::parse(test.input, catalog, program); !status.ok()) return error(status);
  const interp::Evaluator evaluator(ops::portable_kernels(), serial_pool());
  const passes::PassContext context{.catalog = &catalog, .evaluator = &evaluator,
                                    .has_kernel = [](std::string_view name) { return ops::portable_kernels().find(name) != nullptr; }, .avoid = {}};
  ir::Graph& graph = program.methods.at(0)->graph;
  bool functional = false;
  for (const std::string& name : test.passes) {
    const passes::Pass* pass = passes::find_pass(name);
    if (pass == nullptr) return "error: no pass " + name + "\n";
    auto changed = pass->run(graph, context);
    if (!changed.ok()) return error(changed.status());
    functional = functional || name == "functionalize";
  }
  if (functional) {
    if (Status status = ir::verify(graph, ir::Dialect::kFunctional); !status.ok()) return error(status);
  }
  ir::PrintOptions options;
  options.origins = false;
  std::string text = ir::print(graph, options);
  if (!text.ends_with("\n")) text += "\n";
  return text;
}

TEST(TextTests, AllFiles) {
  auto catalog = ops::make_catalog();
  ASSERT_TRUE(catalog.ok());
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(PTERON_IR_TESTS)) {
    if (entry.path().extension() == ".ir") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  const bool update = std::getenv("PTERON_UPDATE") != nullptr;
  for (const auto& file : files) {
    const std::vector<Case> cases = read_cases(file);
    EXPECT_FALSE(cases.empty()) << file;
    std::string rewritten;
    for (const Case& test : cases) {
      EXPECT_FALSE(test.passes.empty()) << file << ": a case without # run:";
      const std::string got = run_case(test, *catalog);
      if (test.is_error) {
        std::string part = test.expected;
        while (part.ends_with("\n")) part.pop_back();
        EXPECT_TRUE(got.starts_with("error: ") && got.find(part) != std::string::npos) << file << "\n" << test.head << "got:\n" << got;
      } else if (!update) {
        EXPECT_EQ(got, test.expected) << file << "\n" << test.head;
      }
      rewritten += (rewritten.empty() ? "" : "\n") + test.head + "--- in\n" + test.input + (test.is_error ? "--- error\n" + test.expected : "--- out\n" + got);
    }
    if (update) std::ofstream(file) << rewritten;
  }
}

}  // namespace
}  // namespace pteron
