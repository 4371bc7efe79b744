// pteron explain: for each node of a model, what runs it or why nothing does.
#include <cstdio>

#include "base/str_cat.h"
#include "cli/json_writer.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "compiler/profile.h"
#include "emit/emit.h"

namespace pteron::cli {

namespace {

constexpr Option kOptions[] = {
    {"node", "", OptionKind::kValue, "NAME", "only this node"},
    {"profile", "", OptionKind::kValue, "NAME", "pteron (default) or executorch"},
};

std::string reason(const ir::Op& op, const compiler::Environment& environment, bool executorch) {
  if (!op.known) return "no backend: the operator is unknown";
  if (op.is_view()) return "view: no bytes are moved where the layout allows";
  if (op.has(ir::kAlias)) return "alias of its argument";
  if (op.has(ir::kRegion)) return emit::is_control_flow(op.name) ? "control flow: jumps in the method" : "no backend: this control flow has no instructions";
  const bool ours = !op.kernel.empty() && environment.has_kernel(op.kernel);
  const bool official = !op.kernel.empty() && compiler::executorch_has_kernel(op.kernel);
  if (executorch ? official : ours) return str_cat("portable: ", op.kernel);
  if (op.def.decompose != nullptr) return executorch && ours ? "decomposed: the official runtime has no kernel" : "decomposed into other operators";
  if (op.has(ir::kRandom)) return "no backend: results would differ from call to call";
  return executorch && ours ? str_cat("no backend: the official runtime lacks ", op.kernel) : "no backend: neither kernel nor decomposition";
}

/// Lines or JSON objects of the graph's nodes; returns how many matched.
size_t describe(const ir::Graph& graph, const compiler::Environment& environment, bool executorch, const std::string& wanted, JsonWriter* json) {
  size_t shown = 0;
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    for (const auto& region : node.regions) shown += describe(*region, environment, executorch, wanted, json);
    if (!wanted.empty() && node.name != wanted) continue;
    ++shown;
    const std::string why = reason(*node.op, environment, executorch);
    if (json == nullptr) {
      std::printf("%-28s %-40s %s%s%s\n", node.name.c_str(), node.op->name.c_str(), why.c_str(), node.source.empty() ? "" : "  at ", node.source.c_str());
      continue;
    }
    json->begin_object();
    json->field("node", node.name);
    json->field("operator", node.op->name);
    json->field("reason", why);
    json->field("source", node.source);
    json->field("module", node.module);
    json->end_object();
  }
  return shown;
}

Result<int> run(const Arguments& a) {
  const std::string profile = a.value("profile", "pteron"), wanted = a.value("node");
  if (profile != "pteron" && profile != "executorch") return Status(Code::kInvalidInput, str_cat("--profile is pteron or executorch, found '", profile, "'"));
  PTERON_ASSIGN(const Session session, Session::create());
  compiler::CompileOptions options;
  options.methods.push_back({"forward", a.positionals()[0]});
  options.stop_after = "functionalize";
  JsonWriter json;
  const bool as_json = a.flag("json");
  size_t shown = 0;
  if (as_json) json.begin_array();
  options.observe = [&](const ir::Program& program) {
    for (const auto& method : program.methods) {
      shown += describe(method->graph, session.environment(), profile == "executorch", wanted, as_json ? &json : nullptr);
    }
    return ok_status();
  };
  MemorySink nothing;
  PTERON_TRY(compiler::compile(options, session.environment(), nothing).status());
  if (shown == 0 && !wanted.empty()) return Status(Code::kNotFound, str_cat("no node is named '", wanted, "'; pteron explain without --node lists them"));
  if (as_json) {
    json.end_array();
    std::printf("%s\n", json.text().c_str());
  }
  return 0;
}

}  // namespace

extern const Verb k_explain_verb;
const Verb k_explain_verb = {"explain", "say for each node of a .pt2 what runs it, or why nothing does", "MODEL.pt2 [--node NAME] [options]", 1, 1, kOptions, run};

}  // namespace pteron::cli
