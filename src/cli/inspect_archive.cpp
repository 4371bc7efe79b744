// pteron inspect MODEL.pt2: the imported program as it is, before any pass.
#include <cstdio>
#include <map>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/inspect.h"
#include "cli/session.h"
#include "emit/emit.h"
#include "import/import.h"
#include "ir/text.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

struct OperatorCount {
  size_t nodes = 0;
  const ir::Op* op = nullptr;
};
using Operators = std::map<std::string, OperatorCount>;

void count_operators(const ir::Graph& graph, Operators* out) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    OperatorCount& one = (*out)[node.op->name];
    ++one.nodes;
    one.op = node.op;
    for (const auto& region : node.regions) count_operators(*region, out);
  }
}

const char* origin_name(ir::Constant::Origin origin) {
  switch (origin) {
    case ir::Constant::Origin::kParameter: return "parameter";
    case ir::Constant::Origin::kBuffer: return "buffer";
    case ir::Constant::Origin::kConstant: return "constant";
    case ir::Constant::Origin::kFolded: return "folded";
  }
  return "constant";
}

std::string value_text(const ir::Graph& graph, ir::ValueId id) {
  const ir::Value& value = graph[id];
  if (value.kind == ir::ValueKind::kScalar) return str_cat("scalar ", ir::to_text(value.scalar));
  return value.kind == ir::ValueKind::kNone ? "none" : ir::print_type(value.type);
}

/// Type of an input or output, or the literal that stands there.
std::string arg_text(const ir::Graph& graph, const ir::Arg& arg) {
  if (const auto* id = std::get_if<ir::ValueId>(&arg)) return id->valid() ? value_text(graph, *id) : "none";
  if (const auto* e = std::get_if<ir::Expr>(&arg)) return ir::to_text(*e);
  if (const auto* text = std::get_if<std::string>(&arg)) return str_cat("\"", *text, "\"");
  return "none";
}

std::string input_text(const ir::Graph& graph, const ir::Input& input) {
  return input.value.valid() ? value_text(graph, input.value) : str_cat("literal ", arg_text(graph, input.literal));
}

std::string range_text(const ir::Range& range) {
  return str_cat("[", range.min == ir::Range::kMin ? std::string("-inf") : str_cat(range.min), ",", range.max == ir::Range::kMax ? std::string("inf") : str_cat(range.max), "]");
}

const char* state_of(const OperatorCount& count) { return count.op->known || count.op->functional != nullptr || emit::is_control_flow(count.op->name) ? "known" : "unknown"; }

void print_json(const ir::Program& program, size_t file_bytes, const Operators& operators) {
  const ir::Graph& graph = program.methods[0]->graph;
  JsonWriter json;
  json.begin_object();
  json.field("kind", "pt2");
  json.field("file_bytes", file_bytes);
  json.key("inputs");
  json.begin_array();
  for (const ir::Input& input : graph.inputs) {
    json.begin_object();
    json.field("name", input.name);
    json.field("type", input_text(graph, input));
    json.end_object();
  }
  json.end_array();
  json.key("outputs");
  json.begin_array();
  for (const ir::Arg& output : graph.outputs) {
    json.begin_object();
    json.field("type", arg_text(graph, output));
    json.end_object();
  }
  json.end_array();
  json.key("sizes");
  json.begin_array();
  for (const ir::Expr symbol : program.exprs.symbols()) {
    const ir::Range range = program.exprs.range_of(symbol);
    json.begin_object();
    json.field("name", ir::to_text(symbol));
    if (range.min != ir::Range::kMin) json.field("min", range.min);
    if (range.max != ir::Range::kMax) json.field("max", range.max);
    json.end_object();
  }
  json.end_array();
  json.key("weights");
  json.begin_array();
  for (const ir::Constant& constant : program.constants) {
    json.begin_object();
    json.field("name", constant.name);
    json.field("kind", origin_name(constant.origin));
    json.field("dtype", dtype_name(constant.dtype));
    json.key("sizes");
    json.begin_array();
    for (const int64_t size : constant.sizes) json.integer(size);
    json.end_array();
    json.field("size_bytes", constant.size_bytes());
    json.end_object();
  }
  json.end_array();
  json.key("operators");
  json.begin_array();
  for (const auto& [name, count] : operators) {
    json.begin_object();
    json.field("name", name);
    json.field("nodes", count.nodes);
    json.field("state", state_of(count));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::printf("%s\n", json.text().c_str());
}

void print_text(const std::string& path, const ir::Program& program, size_t file_bytes, const Operators& operators, bool list_weights) {
  const ir::Graph& graph = program.methods[0]->graph;
  std::printf("%s: %zu bytes, exported program with %zu nodes\n", path.c_str(), file_bytes, graph.order.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) std::printf("  input %zu  %s: %s\n", i, graph.inputs[i].name.c_str(), input_text(graph, graph.inputs[i]).c_str());
  for (size_t i = 0; i < graph.outputs.size(); ++i) std::printf("  output %zu %s\n", i, arg_text(graph, graph.outputs[i]).c_str());
  for (const ir::Expr symbol : program.exprs.symbols()) std::printf("  size %s in %s\n", ir::to_text(symbol).c_str(), range_text(program.exprs.range_of(symbol)).c_str());
  std::map<std::string, std::pair<size_t, size_t>> totals;  // by kind: tensors, bytes
  for (const ir::Constant& constant : program.constants) {
    auto& [tensors, bytes] = totals[origin_name(constant.origin)];
    ++tensors;
    bytes += constant.size_bytes();
  }
  for (const auto& [kind, total] : totals) std::printf("  %ss: %zu tensors, %zu bytes\n", kind.c_str(), total.first, total.second);
  if (list_weights) {
    for (const ir::Constant& constant : program.constants) {
      std::printf("    %s %s: %s %s\n", origin_name(constant.origin), constant.name.c_str(), std::string(dtype_name(constant.dtype)).c_str(), shape_text(constant.sizes).c_str());
    }
  }
  std::printf("  operators:\n");
  for (const auto& [name, count] : operators) std::printf("    %5zu  %s%s\n", count.nodes, name.c_str(), count.op->known || state_of(count)[0] == 'k' ? "" : "  (unknown)");
}

}  // namespace

Result<int> inspect_archive(const std::string& path, std::shared_ptr<FileBytes> file, const Arguments& a) {
  const size_t file_bytes = file->bytes().size();
  PTERON_ASSIGN(const Session session, Session::create());
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  importer::ImportOptions options;
  options.log = &log;
  options.check_weights = false;
  ir::Program program;
  Status status = importer::import_archive(std::move(file), session.catalog(), options, program);
  if (!status.ok()) return std::move(status).with_context(path);
  Operators operators;
  count_operators(program.methods[0]->graph, &operators);
  if (a.flag("json")) {
    print_json(program, file_bytes, operators);
  } else {
    print_text(path, program, file_bytes, operators, a.flag("weights"));
  }
  return 0;
}

}  // namespace pteron::cli
