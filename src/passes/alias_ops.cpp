// Which nodes alias and write; in-place operators for passes that need new ones.
#include "passes/alias_ops.h"

#include <algorithm>
#include <memory>
#include <string>

namespace pteron::passes {

using ir::Graph;
using ir::Node;
using ir::Op;

bool is_metadata_write(const Op& op) {
  return op.functional != nullptr && (op.functional->is_view() || op.functional->has(ir::kAlias) || op.schema.name == "aten::resize_");
}

const Op& view_op(const Op& op) { return op.functional != nullptr ? *op.functional : op; }

size_t written_argument(const Op& op) {
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    if (op.schema.args[i].written) return i;
  }
  return 0;
}

bool is_lazy_view(const Op& op) { return op.schema.name == "aten::conj" || op.schema.name == "aten::_conj"; }

Effect effect_of(const Node& node) {
  const Op& op = *node.op;
  if (op.is_view() || is_lazy_view(op) || op.has(ir::kAlias) || is_metadata_write(op)) return Effect::kView;
  if (op.functional != nullptr) return Effect::kWrite;
  const auto written = [](const ir::SchemaArg& arg) { return arg.written; };
  return std::any_of(op.schema.args.begin(), op.schema.args.end(), written) ? Effect::kUnknownWrite : Effect::kNone;
}

namespace {

bool is_training_norm(const Graph& graph, const Node& node) {
  const std::string& name = node.op->schema.name;
  if (name != "aten::batch_norm" && name != "aten::native_batch_norm" && name != "aten::instance_norm") return false;
  if (!node.op->known) return false;
  const ir::NodeView view(graph, *node.op, node.args);
  return !view.is_none("running_mean") && view.boolean(view.has("training") ? "training" : "use_input_stats");
}

}  // namespace

bool has_writes(const Graph& graph) {
  for (const ir::NodeId id : graph.order) {
    const Node& node = graph[id];
    const Effect effect = effect_of(node);
    if (effect == Effect::kWrite || effect == Effect::kUnknownWrite || is_metadata_write(*node.op) || is_training_norm(graph, node)) return true;
    for (const auto& region : node.regions) {
      if (has_writes(*region)) return true;
    }
  }
  return false;
}

std::vector<ir::ValueId> pieces_as_exported(ir::Builder& builder, const Node& node) {
  const std::string& name = node.op->schema.name;
  const bool unbind = name == "aten::unbind", chunk = name == "aten::chunk" || name == "aten::unsafe_chunk";
  const bool split = (name == "aten::split" || name == "aten::unsafe_split") && node.op->schema.overload == "Tensor";
  if ((!unbind && !chunk && !split) || node.outputs.empty()) return {};
  const ir::NodeView view(builder.graph(), *node.op, node.args);
  const int rank = view.type("self").rank();
  const int64_t dim = view.integer("dim") + (view.integer("dim") < 0 ? rank : 0);
  if (dim < 0 || dim >= rank || view.type("self").sizes[static_cast<size_t>(dim)].is_const()) return {};
  std::vector<ir::ValueId> made;
  if (unbind) {
    for (size_t i = 0; i < node.outputs.size(); ++i) made.push_back(builder.op("aten::select.int", {view.value("self"), ir::Expr(dim), ir::Expr(static_cast<int64_t>(i))}));
    return made;
  }
  std::vector<ir::Expr> sizes;
  for (const ir::ValueId piece : node.outputs) {
    if (view.type(piece).rank() != rank) return {};
    sizes.push_back(view.type(piece).sizes[static_cast<size_t>(dim)]);
  }
  return builder.ops("aten::split_with_sizes", {view.value("self"), sizes, ir::Expr(dim)});
}

const Op* in_place_op(ir::Program& program, const ir::Catalog& catalog, std::string_view name) {
  for (const auto& op : program.foreign_ops) {
    if (op->name == name && op->functional != nullptr) return op.get();
  }
  const Op* functional = catalog.find_functional(name);
  if (functional == nullptr) return nullptr;
  auto made = std::make_unique<Op>();
  made->schema = functional->schema;
  made->schema.name += "_";
  made->schema.args[0].name = "self";
  made->schema.args[0].written = true;
  made->name = std::string(name);
  made->functional = functional;
  program.foreign_ops.push_back(std::move(made));
  return program.foreign_ops.back().get();
}

}  // namespace pteron::passes
