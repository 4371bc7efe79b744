// pteron explain: for each node of a model, what runs it or why nothing does.
#include <cstdio>
#include <functional>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "compiler/profile.h"
#include "emit/emit.h"
#include "partition/partition.h"

namespace pteron::cli {

namespace {

constexpr Option kExplainOptions[] = {
    {"node", "", OptionKind::kValue, "NAME", "only this node"},
    {"profile", "", OptionKind::kValue, "NAME", "pteron (default) or executorch"},
    {"backend", "", OptionKind::kList, "NAME[,NAME]", "backends in order of preference: shows the nodes that they are offered, after optimization, and who takes each"},
};

std::string reason(const ir::Op& op, const compiler::Environment& environment, bool executorch) {
  if (!op.known) return "no backend: the operator is unknown";
  if (op.is_view()) return "view: no bytes are moved where the layout allows";
  if (op.has(ir::kAlias)) return "alias of its argument";
  if (op.has(ir::kRegion)) return emit::is_control_flow(op.name) ? "control flow: jumps in the method" : "no backend: this control flow has no instructions";
  const bool ours = !op.kernel.empty() && environment.has_kernel(op.kernel);
  const bool official = !op.kernel.empty() && compiler::executorch_has_kernel(op.kernel);
  if (executorch ? official : ours) return str_cat("kernel ", op.kernel);
  if (op.def.decompose != nullptr) return executorch && ours ? "decomposed: the official runtime has no kernel" : "decomposed into other operators";
  if (op.has(ir::kRandom)) return "no backend: results would differ from call to call";
  return executorch && ours ? str_cat("no backend: the official runtime lacks ", op.kernel) : "no backend: neither kernel nor decomposition";
}

/// Who takes a node: the first backend that does; else what runs it without, and why the last backend asked refuses.
std::string taker(const ir::Graph& graph, const ir::Node& node, const compiler::Environment& environment, const std::vector<const backends::Backend*>& backends) {
  backends::Support last;
  for (const backends::Backend* backend : backends) {
    last = partition::ask(*backend, graph, node);
    if (last.yes) return std::string(backend->name());
  }
  return str_cat(reason(*node.op, environment, false), "; not on ", backends.back()->name(), ": ", last.reason);
}

/// Prints nodes as lines or JSON objects.
class GraphPrinter {
 public:
  GraphPrinter(std::string wanted, bool as_json) : wanted_(std::move(wanted)), as_json_(as_json) {
    if (as_json_) json_.begin_array();
  }
  size_t shown() const { return shown_; }

  void show(const ir::Graph& graph, const std::function<std::string(const ir::Graph&, const ir::Node&)>& why) {
    for (const ir::NodeId id : graph.order) {
      const ir::Node& node = graph[id];
      for (const auto& region : node.regions) show(*region, why);
      if (!wanted_.empty() && node.name != wanted_) continue;
      ++shown_;
      print(node, why(graph, node));
    }
  }

  void finish() {
    if (!as_json_) return;
    json_.end_array();
    std::printf("%s\n", json_.text().c_str());
  }

 private:
  void print(const ir::Node& node, const std::string& why) {
    if (!as_json_) {
      std::printf("%-28s %-40s %s%s%s\n", node.name.c_str(), node.op->name.c_str(), why.c_str(), node.source.empty() ? "" : "  at ", node.source.c_str());
      return;
    }
    json_.begin_object();
    json_.field("node", node.name);
    json_.field("operator", node.op->name);
    json_.field("reason", why);
    json_.field("source", node.source);
    json_.field("module", node.module);
    json_.end_object();
  }

  std::string wanted_;
  bool as_json_;
  size_t shown_ = 0;
  JsonWriter json_;
};

Result<int> run_explain(const Arguments& a) {
  const std::string profile = a.value("profile", "pteron"), wanted = a.value("node");
  if (profile != "pteron" && profile != "executorch") return usage_error("explain", str_cat("--profile is pteron or executorch, found '", profile, "'"));
  const bool executorch = profile == "executorch";
  PTERON_ASSIGN(const Session session, Session::create());
  std::vector<std::string> names = split_list(a.list("backend"));
  std::vector<compiler::BackendSpec> devices;  // nothing is compiled for them here
  facade::split_devices(names, devices);
  auto chosen = session.backends(names);
  if (!chosen.ok()) return usage_error("explain", str_cat("--backend: ", chosen.status().message()));
  const std::vector<const backends::Backend*> backends = std::move(chosen).value();
  if (executorch && !backends.empty()) return usage_error("explain", "--backend: the official runtime has none of our backends; leave it out with --profile executorch");
  compiler::CompileOptions options;
  options.methods.push_back({"forward", a.positionals()[0]});
  options.stop_after = backends.empty() ? "functionalize" : "optimize";
  GraphPrinter printer(wanted, a.flag("json"));
  PTERON_ASSIGN(const std::unique_ptr<compiler::EdgeProgram> edge, compiler::export_program(options, session.environment()));
  for (const auto& method : edge->program.methods) {
    printer.show(method->graph, [&](const ir::Graph& graph, const ir::Node& node) {
      return backends.empty() ? reason(*node.op, session.environment(), executorch) : taker(graph, node, session.environment(), backends);
    });
  }
  if (printer.shown() == 0 && !wanted.empty()) return Status(Code::kNotFound, str_cat("no node is named '", wanted, "'; pteron explain without --node lists them"));
  printer.finish();
  return 0;
}

}  // namespace

extern const Verb k_explain_verb;
const Verb k_explain_verb = {"explain", "say for each node of a .pt2 what runs it, or why nothing does", "MODEL.pt2 [--node NAME] [options]", 1, 1, kExplainOptions, run_explain};

}  // namespace pteron::cli
