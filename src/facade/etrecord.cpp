// Graphs in the JSON of torch.export's serializer (the official tools read it with theirs), weights as inputs without bytes, sizes that vary at
// their upper bounds, control flow and delegates as operators that the reader takes for unknown ones.
#include "facade/etrecord.h"

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "base/zip_write.h"
#include "emit/emit.h"
#include "ir/op.h"

namespace pteron::facade {

namespace {

/// torch._export.serde.schema.ScalarType by c10's number (reference: torch 2.13).
int serialized_dtype(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 13;
    case DType::kUInt16:
      return 28;
    case DType::kFloat8E4M3FN:
      return 29;
    case DType::kFloat8E5M2:
      return 30;
    case DType::kFloat8E4M3FNUZ:
      return 31;
    case DType::kFloat8E5M2FNUZ:
      return 32;
    case DType::kUInt32:
      return 34;
    case DType::kUInt64:
      return 35;
    default:
      return static_cast<int>(dtype) + 1;  // BYTE 1 to BOOL 12
  }
}

int serialized_format(ir::MemoryFormat format) {
  switch (format) {
    case ir::MemoryFormat::kContiguous:
      return 1;
    case ir::MemoryFormat::kChannelsLast:
      return 2;
    case ir::MemoryFormat::kChannelsLast3d:
      return 3;
    case ir::MemoryFormat::kPreserve:
      return 4;
  }
  return 0;
}

/// What torch.save writes of an empty dict, and of ((), {}): weights and example inputs are not in the record.
Result<std::string> saved(std::string_view pickle) {
  const ZipItem items[] = {{"archive/data.pkl", std::string(pickle)}, {"archive/byteorder", "little"}, {"archive/version", "3\n"}};
  return write_zip(items);
}
constexpr std::string_view kEmptyDict("\x80\x02}.", 4);
constexpr std::string_view kNoInputs("\x80\x02)}\x86.", 6);

int64_t whole_number(ir::Expr expr) {
  if (expr.is_const()) return expr.value();
  if (ir::is_number(expr)) return static_cast<int64_t>(ir::number_of(expr));
  const ir::Range range = ir::bounds(expr);
  return range.max != ir::Range::kMax ? range.max : range.min != ir::Range::kMin ? range.min : 0;
}

/// One graph as JSON.
class GraphJson {
 public:
  GraphJson(const ir::Graph& graph, JsonWriter& json) : graph_(graph), json_(json) {}

  void write() {
    json_.begin_object();
    json_.key("graph_module");
    json_.begin_object();
    json_.key("graph");
    write_graph();
    json_.key("signature");
    write_signature();
    json_.key("module_call_graph");
    json_.raw("[]");
    json_.end_object();
    json_.key("opset_version");
    json_.raw("{\"aten\": 10}");
    json_.key("range_constraints");
    json_.raw("{}");
    json_.key("schema_version");
    json_.raw("{\"major\": 5, \"minor\": 4}");  // what executorch 1.5.1 writes
    json_.key("dialect");
    json_.string("");
    json_.key("verifiers");
    json_.raw("[\"EDGE\"]");
    json_.end_object();
  }

 private:
  const std::string& name_of(ir::ValueId id) const { return graph_[id].name; }
  bool is_tensor(ir::ValueId id) const { return id.valid() && graph_[id].kind == ir::ValueKind::kTensor; }

  /// Inputs, states and constants that stand in the graph: all of them are inputs of the record.
  std::vector<ir::ValueId> entries() const {
    std::vector<ir::ValueId> out;
    for (const ir::Input& input : graph_.inputs) {
      if (is_tensor(input.value)) out.push_back(input.value);
    }
    for (const ir::State& state : graph_.states) out.push_back(state.value);
    std::vector<bool> used(graph_.values.size(), false);
    for (const ir::NodeId id : graph_.order) ir::for_each_use(graph_[id], [&](ir::ValueId value) { used[value.index] = true; });
    for (const ir::Arg& output : graph_.outputs) {
      if (const auto* id = std::get_if<ir::ValueId>(&output); id != nullptr && id->valid()) used[id->index] = true;
    }
    for (uint32_t i = 0; i < graph_.values.size(); ++i) {
      if (used[i] && graph_.values[i].constant.valid()) out.push_back(ir::ValueId{i});
    }
    return out;
  }

  std::vector<ir::ValueId> results() const {
    std::vector<ir::ValueId> out;
    for (const ir::Arg& output : graph_.outputs) {
      if (const auto* id = std::get_if<ir::ValueId>(&output); id != nullptr && is_tensor(*id)) out.push_back(*id);
    }
    return out;
  }

  void tensor_argument(ir::ValueId id) {
    json_.begin_object();
    json_.key("as_tensor");
    json_.begin_object();
    json_.field("name", name_of(id));
    json_.end_object();
    json_.end_object();
  }

  void tensor_arguments(const std::vector<ir::ValueId>& ids) {
    json_.begin_array();
    for (const ir::ValueId id : ids) tensor_argument(id);
    json_.end_array();
  }

  void write_graph() {
    json_.begin_object();
    json_.key("inputs");
    tensor_arguments(entries());
    json_.key("outputs");
    tensor_arguments(results());
    json_.key("nodes");
    json_.begin_array();
    for (size_t i = 0; i < graph_.order.size(); ++i) write_node(graph_[graph_.order[i]], i + 1);
    json_.end_array();
    json_.key("tensor_values");
    json_.begin_object();
    for (const ir::ValueId id : entries()) write_tensor(id);
    for (const ir::NodeId node : graph_.order) {
      for (const ir::ValueId id : graph_[node].outputs) {
        if (is_tensor(id)) write_tensor(id);
      }
    }
    json_.end_object();
    json_.key("sym_int_values");
    json_.raw("{}");
    json_.key("sym_bool_values");
    json_.raw("{}");
    json_.field("is_single_tensor_return", false);
    json_.key("custom_obj_values");
    json_.raw("{}");
    json_.end_object();
  }

  void write_signature() {
    json_.begin_object();
    for (const bool inputs : {true, false}) {
      json_.key(inputs ? "input_specs" : "output_specs");
      json_.begin_array();
      for (const ir::ValueId id : inputs ? entries() : results()) {
        json_.begin_object();
        json_.key(inputs ? "user_input" : "user_output");
        json_.begin_object();
        json_.key("arg");
        tensor_argument(id);
        json_.end_object();
        json_.end_object();
      }
      json_.end_array();
    }
    json_.end_object();
  }

  void whole_numbers(std::string_view key, const std::vector<ir::Expr>& list) {
    json_.key(key);
    json_.begin_array();
    for (const ir::Expr expr : list) {
      json_.begin_object();
      json_.field("as_int", whole_number(expr));
      json_.end_object();
    }
    json_.end_array();
  }

  void write_tensor(ir::ValueId id) {
    const ir::TensorType& type = graph_[id].type;
    json_.key(name_of(id));
    json_.begin_object();
    json_.field("dtype", serialized_dtype(type.dtype));
    whole_numbers("sizes", type.sizes);
    json_.field("requires_grad", false);
    json_.key("device");
    json_.raw("{\"type\": \"cpu\"}");
    whole_numbers("strides", type.strides);
    json_.key("storage_offset");
    json_.raw("{\"as_int\": 0}");
    json_.field("layout", 7);
    json_.end_object();
  }

  /// An operator of PyTorch, with its arguments; everything else is one that no reader knows, with its tensors.
  static bool is_torch(const ir::Node& node) {
    const std::string_view space = std::string_view(node.op->name).substr(0, node.op->name.find("::"));
    return node.regions.empty() && (space == "aten" || space == "quantized_decomposed" || space == "torchvision");
  }

  static std::string target_of(const ir::Node& node) {
    const std::string& name = node.op->schema.name;
    const size_t colons = name.find("::");
    const std::string space = is_torch(node) ? name.substr(0, colons) : "pteron";
    return str_cat("torch.ops.", space, ".", colons == std::string::npos ? name : name.substr(colons + 2), ".",
                   node.op->schema.overload.empty() ? std::string("default") : node.op->schema.overload);
  }

  void write_node(const ir::Node& node, size_t handle) {
    json_.begin_object();
    json_.field("name", node.outputs.empty() ? node.name : name_of(node.outputs[0]));
    json_.field("target", target_of(node));
    json_.key("inputs");
    json_.begin_array();
    for (size_t i = 0; i < node.args.size(); ++i) write_argument(node, i);
    json_.end_array();
    json_.key("outputs");
    write_outputs(node);
    json_.key("metadata");
    json_.begin_object();
    json_.field("debug_handle", str_cat(handle));
    const size_t colon = node.source.rfind(':');
    if (colon != std::string::npos)
      json_.field("stack_trace", str_cat("File \"", node.source.substr(0, colon), "\", line ", node.source.substr(colon + 1), ", in forward"));
    if (!node.module.empty()) json_.field("nn_module_stack", str_cat("L__self__,,Model;L__self___", node.module, ",", node.module, ",Module"));
    json_.end_object();
    json_.end_object();
  }

  void write_outputs(const ir::Node& node) {
    std::vector<ir::ValueId> tensors;
    for (const ir::ValueId id : node.outputs) {
      if (is_tensor(id)) tensors.push_back(id);
    }
    const bool is_list = node.op->schema.returns.size() == 1 && node.op->schema.returns[0].type.list;
    if (!is_list || tensors.size() < 2) return tensor_arguments(tensors);
    json_.begin_array();
    json_.begin_object();
    json_.key("as_tensors");
    json_.begin_array();
    for (const ir::ValueId id : tensors) {
      json_.begin_object();
      json_.field("name", name_of(id));
      json_.end_object();
    }
    json_.end_array();
    json_.end_object();
    json_.end_array();
  }

  void write_argument(const ir::Node& node, size_t index) {
    const ir::Arg& arg = node.args[index];
    const bool has_tensors = std::holds_alternative<ir::ValueId>(arg) || std::holds_alternative<std::vector<ir::ValueId>>(arg);
    if (!is_torch(node) && !has_tensors) return;
    json_.begin_object();
    json_.field("name", index < node.op->schema.args.size() ? node.op->schema.args[index].name : std::string());
    json_.key("arg");
    json_.begin_object();
    write_value(arg);
    json_.end_object();
    json_.end_object();
  }

  void write_value(const ir::Arg& arg) {
    if (const auto* id = std::get_if<ir::ValueId>(&arg); id != nullptr && is_tensor(*id)) {
      json_.key("as_tensor");
      json_.begin_object();
      json_.field("name", name_of(*id));
      json_.end_object();
    } else if (const auto* ids = std::get_if<std::vector<ir::ValueId>>(&arg)) {
      write_tensors(*ids);
    } else if (const auto* expr = std::get_if<ir::Expr>(&arg)) {
      write_scalar(*expr);
    } else if (const auto* list = std::get_if<std::vector<ir::Expr>>(&arg)) {
      write_scalars(*list);
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      json_.field("as_string", *text);
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      json_.field("as_scalar_type", serialized_dtype(*dtype));
    } else if (const auto* format = std::get_if<ir::MemoryFormat>(&arg)) {
      json_.field("as_memory_format", serialized_format(*format));
    } else if (std::holds_alternative<ir::Layout>(arg)) {
      json_.field("as_layout", 7);
    } else if (std::holds_alternative<Device>(arg)) {
      json_.key("as_device");
      json_.raw("{\"type\": \"cpu\"}");
    } else {
      json_.field("as_none", true);
    }
  }

  void write_tensors(const std::vector<ir::ValueId>& ids) {
    json_.key("as_optional_tensors");
    json_.begin_array();
    for (const ir::ValueId id : ids) {
      if (is_tensor(id)) {
        tensor_argument(id);
      } else {
        json_.raw("{\"as_none\": true}");
      }
    }
    json_.end_array();
  }

  static bool is_float(ir::Expr expr) { return expr.type() == ir::ExprType::kFloat; }
  static double real_number(ir::Expr expr) {
    const double number = ir::is_number(expr) ? ir::number_of(expr) : 0;
    return std::isfinite(number) ? number : 0;
  }

  void write_scalar(ir::Expr expr) {
    if (is_float(expr)) return json_.field("as_float", real_number(expr));
    if (expr.type() == ir::ExprType::kBool) return json_.field("as_bool", whole_number(expr) != 0);
    json_.field("as_int", whole_number(expr));
  }

  void write_scalars(const std::vector<ir::Expr>& list) {
    const bool floats = !list.empty() && is_float(list[0]);
    const bool bools = !list.empty() && list[0].type() == ir::ExprType::kBool;
    json_.key(floats ? "as_floats" : bools ? "as_bools" : "as_ints");
    json_.begin_array();
    for (const ir::Expr expr : list) {
      if (floats) {
        json_.number(real_number(expr));
      } else if (bools) {
        json_.boolean(whole_number(expr) != 0);
      } else {
        json_.integer(whole_number(expr));
      }
    }
    json_.end_array();
  }

  const ir::Graph& graph_;
  JsonWriter& json_;
};

/// {"forward": {"0": 1, ...}}: instruction to node.
std::string handle_map(const compiler::CompileReport& report) {
  JsonWriter json;
  json.begin_object();
  for (const emit::MethodReport& method : report.methods) {
    json.key(method.name);
    json.begin_object();
    for (size_t i = 0; i < method.nodes.size(); ++i) {
      if (method.nodes[i] > 0) json.field(str_cat(i), method.nodes[i]);
    }
    json.end_object();
  }
  json.end_object();
  return json.text();
}

/// {"forward": {"3": {"name": "PteronCpuBackend", "delegate_map": {": ": [4]}}}}: of instructions that are parts of a delegate the backend, and the node of what
/// runs inside. The inspector looks for keys that are a part of an event's identifier ("0: pteron_cpu::linear.out"), so one stands for all.
std::string delegate_map(const compiler::EdgeProgram& edge, const compiler::CompileReport& report) {
  JsonWriter json;
  json.begin_object();
  for (const emit::MethodReport& method : report.methods) {
    json.key(method.name);
    json.begin_object();
    const auto source = std::ranges::find_if(edge.program.methods, [&](const auto& one) { return one->name == method.name; });
    for (size_t i = 0; source != edge.program.methods.end() && i < method.nodes.size(); ++i) {
      if (method.nodes[i] == 0) continue;
      const ir::Node& node = (*source)->graph[(*source)->graph.order[method.nodes[i] - 1]];
      if (node.op->name != emit::kDelegateOp) continue;
      const auto group = static_cast<size_t>(std::get<ir::Expr>(node.args[2]).value());
      json.key(str_cat(i));
      json.begin_object();
      json.field("name", edge.groups[group].compiled.id);
      json.key("delegate_map");
      json.begin_object();
      json.key(": ");
      json.begin_array();
      json.integer(method.nodes[i]);
      json.end_array();
      json.end_object();
      json.end_object();
    }
    json.end_object();
  }
  json.end_object();
  return json.text();
}

/// One empty object for each method.
std::string empty_map(const compiler::CompileReport& report) {
  JsonWriter json;
  json.begin_object();
  for (const emit::MethodReport& method : report.methods) {
    json.key(method.name);
    json.raw("{}");
  }
  json.end_object();
  return json.text();
}

}  // namespace

Result<std::string> make_etrecord(const compiler::EdgeProgram& edge, const compiler::CompileReport& report) {
  const ir::Program& program = edge.program;
  std::vector<ZipItem> items = {{"ETRECORD_V0", ""}};
  PTERON_ASSIGN(const std::string nothing, saved(kEmptyDict));
  PTERON_ASSIGN(const std::string no_inputs, saved(kNoInputs));
  for (const auto& method : program.methods) {
    JsonWriter json;
    GraphJson(method->graph, json).write();
    const std::string name = str_cat("edge_dialect_exported_program/", method->name);
    items.push_back({name, json.text()});
    items.push_back({str_cat(name, "_state_dict"), nothing});
    items.push_back({str_cat(name, "_constants"), nothing});
    items.push_back({str_cat(name, "_example_inputs"), no_inputs});
  }
  items.push_back({"debug_handle_map", handle_map(report)});
  items.push_back({"delegate_map", delegate_map(edge, report)});
  items.push_back({"instruction_id_to_num_outs_map", empty_map(report)});
  return write_zip(items);
}

std::string etrecord_path(const std::string& program_path) {
  const std::string base = program_path.ends_with(".pte") ? program_path.substr(0, program_path.size() - 4) : program_path;
  return base + "_etrecord.bin";
}

}  // namespace pteron::facade
