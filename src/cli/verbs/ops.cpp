// pteron ops: the operators of this build, or those that a model needs and how each is run.
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/ops_report.h"
#include "cli/ops_trial.h"
#include "cli/session.h"
#include "cli/verb.h"

namespace pteron::cli {

namespace {

constexpr Option kOpsOptions[] = {
    {"profile", "", OptionKind::kValue, "NAME", "pteron (default) or executorch"},
    {"missing", "", OptionKind::kFlag, "", "only operators that cannot run"},
    {"coverage", "", OptionKind::kFlag, "", "tables: core ATen, official kernels and the whole catalog, by profile, dtype and backend"},
    {"unsupported", "", OptionKind::kFlag, "", "the document docs/unsupported.md: every refusal and its reason"},
};

struct Row {
  std::string how;     // what how_text says
  std::string kernel;  // of "kernel"
  size_t count = 0;
  std::string source;  // first line in the model
};

Row classify(const ir::Op& op, const compiler::Environment& environment, bool executorch) {
  Row row;
  const How how = how_of(op, environment, executorch);
  row.how = std::string(how_text(how));
  if (how == How::kKernel) row.kernel = op.kernel;
  return row;
}

void print(const std::map<std::string, Row>& rows, const Arguments& a, bool with_counts) {
  if (a.flag("json")) {
    JsonWriter json;
    json.begin_array();
    for (const auto& [name, row] : rows) {
      json.begin_object();
      json.field("operator", name);
      json.field("how", row.how);
      if (!row.kernel.empty()) json.field("kernel", row.kernel);
      if (with_counts) json.field("count", row.count);
      if (!row.source.empty()) json.field("source", row.source);
      json.end_object();
    }
    json.end_array();
    std::printf("%s\n", json.text().c_str());
    return;
  }
  for (const auto& [name, row] : rows) {
    if (with_counts) std::printf("%5zu  ", row.count);
    std::printf("%-52s %-12s %s%s%s\n", name.c_str(), row.how.c_str(), row.kernel.c_str(), row.source.empty() ? "" : "  first at ", row.source.c_str());
  }
}

void count_nodes(const ir::Graph& graph, const compiler::Environment& environment, bool executorch, std::map<std::string, Row>& rows) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    const auto [at, fresh] = rows.emplace(node.op->name, Row());
    if (fresh) {
      at->second = classify(*node.op, environment, executorch);
      at->second.source = node.source;
    }
    ++at->second.count;
    for (const auto& region : node.regions) count_nodes(*region, environment, executorch, rows);
  }
}

Result<int> run_ops(const Arguments& a) {
  const std::string profile = a.value("profile", "pteron");
  if (profile != "pteron" && profile != "executorch") return usage_error("ops", str_cat("--profile is pteron or executorch, found '", profile, "'"));
  const bool executorch = profile == "executorch";
  PTERON_ASSIGN(const Session session, Session::create());
  if (a.flag("coverage") || a.flag("unsupported")) {
    std::string text = a.flag("coverage") ? coverage_text(session.catalog(), session.environment()) : unsupported_text(session.catalog(), session.environment());
    if (a.flag("coverage")) {
      PTERON_ASSIGN(const auto backends, session.backends({"cpu"}));
      text += trial_text(session.catalog(), session.environment(), backends);
    }
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::map<std::string, Row> rows;
  const bool model = !a.positionals().empty();
  if (model) {
    compiler::CompileOptions options;
    options.methods.push_back({"forward", a.positionals()[0]});
    options.stop_after = "functionalize";
    PTERON_ASSIGN(const std::unique_ptr<compiler::EdgeProgram> edge, compiler::export_program(options, session.environment()));
    for (const auto& method : edge->program.methods) count_nodes(method->graph, session.environment(), executorch, rows);
  } else {
    for (const ir::Op* op : session.catalog().all()) rows.emplace(op->name, classify(*op, session.environment(), executorch));
  }
  if (a.flag("missing")) std::erase_if(rows, [](const auto& item) { return item.second.how != "unsupported"; });
  print(rows, a, model);
  return 0;
}

}  // namespace

extern const Verb k_ops_verb;
const Verb k_ops_verb = {"ops", "list the operators of this build, or those a .pt2 needs", "[MODEL.pt2] [options]", 0, 1, kOpsOptions, run_ops};

}  // namespace pteron::cli
