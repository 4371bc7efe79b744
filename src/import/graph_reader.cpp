// Values, arguments, nodes and regions of an exported graph.
#include "import/graph_reader.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "import/source_info.h"
#include "ir/builder.h"
#include "ir/engine.h"
#include "ir/text.h"

namespace pteron::importer {

using ir::Arg;
using ir::Expr;
using ir::ExprType;
using ir::ValueId;

namespace {

/// True if every result of a node is a symbolic number or None.
bool has_only_symbolic_results(JsonValue json) {
  for (const JsonValue output : json_each(json, "outputs")) {
    std::string_view tag;
    JsonValue payload;
    if (!json_union(output, &tag, &payload) || !(tag.starts_with("as_sym_") || tag == "as_none")) return false;
  }
  return true;
}

ir::MemoryFormat memory_format_of(int64_t number, bool* known) {
  // torch._export.serde.schema.MemoryFormat (reference: pt2.md section 4).
  constexpr ir::MemoryFormat kFormats[] = {ir::MemoryFormat::kContiguous, ir::MemoryFormat::kContiguous, ir::MemoryFormat::kChannelsLast,
                                           ir::MemoryFormat::kChannelsLast3d, ir::MemoryFormat::kPreserve};
  *known = number >= 1 && number <= 4;
  return *known ? kFormats[number] : ir::MemoryFormat::kContiguous;
}

}  // namespace

GraphReader::GraphReader(ImportContext& context, ir::Graph& graph, JsonValue json) : context_(context), graph_(graph), json_(json) {
  const std::vector<JsonMember> tensors = json_members(json, "tensor_values");
  tensor_values_.reserve(tensors.size());
  values_.reserve(tensors.size());
  for (const JsonMember& member : tensors) tensor_values_.emplace(member.key, member.value);
  for (const std::string_view table : {"sym_int_values", "sym_float_values", "sym_bool_values"}) {
    for (const JsonMember& member : json_members(json, table)) sym_values_.emplace(member.key, member.value);
  }
}

Result<Expr> GraphReader::sym_value(JsonValue sym) {
  std::string_view tag;
  JsonValue payload;
  if (!json_union(sym, &tag, &payload)) return Status::invalid_file("a symbolic or constant number is expected");
  int64_t integer = 0;
  double number = 0;
  bool truth = false;
  if (tag == "as_int" && json_int(payload, &integer)) return Expr(integer);
  if (tag == "as_float" && json_float(payload, &number)) return context_.program.exprs.floating(number);
  if (tag == "as_bool" && json_bool(payload, &truth)) return context_.program.exprs.boolean(truth);
  if (tag == "as_expr") return context_.exprs.read(json_text(payload, "expr_str"));
  if (tag == "as_name") return symbolic(json_text(payload));
  return Status::invalid_file(str_cat("a symbolic or constant number is expected, found ", tag));
}

Result<Expr> GraphReader::symbolic(std::string_view name) {
  const auto found = sym_values_.find(name);
  if (found == sym_values_.end()) return Status::invalid_file(str_cat("symbolic value '", name, "' has no expression"));
  std::string_view tag;
  JsonValue payload;
  if (json_union(found->second, &tag, &payload) && tag == "as_name") return Status::invalid_file(str_cat("symbolic value '", name, "' is defined by a name"));
  return sym_value(found->second);
}

Status GraphReader::fill_dims(JsonValue dims, std::string_view key, std::vector<Expr>* out) {
  simdjson::dom::array items;
  if (dims.get_array().get(items) == simdjson::SUCCESS) out->reserve(items.size());
  for (const JsonValue item : json_each(dims)) {
    PTERON_ASSIGN(const Expr dim, sym_value(item));
    if (dim.type() != ExprType::kInt || (dim.is_const() && dim.value() < 0)) return Status::invalid_file(str_cat(key, ": ", ir::to_text(dim), " is no dim"));
    out->push_back(dim);
  }
  return ok_status();
}

Result<ir::TensorType> GraphReader::tensor_type(std::string_view name) {
  const auto found = tensor_values_.find(name);
  if (found == tensor_values_.end()) return Status::invalid_file(str_cat("tensor '", name, "' has no entry in tensor_values"));
  const JsonValue meta = found->second;
  ir::TensorType type;
  TensorMeta fields;
  Status status = read_tensor_meta(meta, &fields);
  if (status.ok()) status = fill_dims(fields.sizes, "sizes", &type.sizes);
  if (status.ok()) status = fill_dims(fields.strides, "strides", &type.strides);
  type.dtype = fields.dtype;
  if (status.ok() && type.sizes.size() > kMaxRank) status = Status(Code::kUnsupported, str_cat("rank ", type.sizes.size(), ", at most ", kMaxRank, " is supported"));
  if (status.ok() && type.sizes.size() != type.strides.size()) status = Status::invalid_file(str_cat(type.sizes.size(), " sizes and ", type.strides.size(), " strides"));
  int64_t bytes = static_cast<int64_t>(dtype_size(type.dtype));
  for (const Expr& size : type.sizes) {  // symbolic dims count as 1
    if (status.ok() && size.is_const() && !checked_mul(bytes, std::max<int64_t>(size.value(), 1), &bytes)) status = Status::invalid_file("the size overflows 64 bits");
  }
  if (!status.ok()) return std::move(status).with_context(str_cat("tensor '", name, "'"));
  type.device = fields.device;
  return type;
}

Result<ir::ConstantId> GraphReader::add_constant(const PendingConstant& pending) {
  PayloadTable& table = pending.in_constants ? context_.constants : context_.weights;
  PTERON_ASSIGN(ir::Constant constant, table.make(context_.archive, pending.fqn));
  constant.origin = pending.origin;
  return context_.program.add(std::move(constant));
}

Result<ValueId> GraphReader::value(std::string_view name) {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  const auto pending = pending_.find(name);
  if (pending == pending_.end()) return Status::invalid_file(str_cat("value '", name, "' is used before it is produced"));
  PTERON_ASSIGN(const ir::ConstantId constant, add_constant(pending->second));
  const ValueId id = graph_.add_constant(constant, name);
  if (tensor_values_.contains(name)) {
    PTERON_ASSIGN(const ir::TensorType declared, tensor_type(name));
    const ir::TensorType& stored = graph_[id].type;
    if (declared.dtype != stored.dtype || declared.sizes != stored.sizes) {
      return Status::invalid_file(str_cat("weight '", pending->second.fqn, "' is ", ir::print_type(stored), " in the archive, the graph says ", ir::print_type(declared)));
    }
    graph_[id].type.device = declared.device;
  }
  values_.emplace(name, id);
  return id;
}

Result<Expr> GraphReader::scalar(std::string_view tag, JsonValue payload) {
  int64_t integer = 0;
  double number = 0;
  bool truth = false;
  if (tag == "as_int" && json_int(payload, &integer)) return Expr(integer);
  if (tag == "as_float" && json_float(payload, &number)) return context_.program.exprs.floating(number);
  if (tag == "as_bool" && json_bool(payload, &truth)) return context_.program.exprs.boolean(truth);
  return Status::invalid_file(str_cat(tag, " holds no such number"));
}

Result<Arg> GraphReader::list(std::string_view tag, JsonValue payload) {
  std::vector<Expr> numbers;
  std::vector<ValueId> values;
  for (const JsonValue item : json_each(payload)) {
    if (tag == "as_ints" || tag == "as_floats" || tag == "as_bools") {
      PTERON_ASSIGN(const Expr e, scalar(tag == "as_ints" ? "as_int" : tag == "as_floats" ? "as_float" : "as_bool", item));
      numbers.push_back(e);
    } else if (tag == "as_tensors") {
      PTERON_ASSIGN(const ValueId id, value(json_text(item, "name")));
      values.push_back(id);
    } else if (tag == "as_optional_tensors") {
      JsonValue tensor;
      ValueId id;
      if (json_field(item, "as_tensor", &tensor)) {
        PTERON_ASSIGN(id, value(json_text(tensor, "name")));
      }
      values.push_back(id);
    } else {  // as_sym_ints, as_sym_floats, as_sym_bools
      PTERON_ASSIGN(const Expr e, sym_value(item));
      numbers.push_back(e);
    }
  }
  if (tag == "as_tensors" || tag == "as_optional_tensors") return Arg(std::move(values));
  return Arg(std::move(numbers));
}

Result<Arg> GraphReader::argument(JsonValue json) {
  std::string_view tag;
  JsonValue payload;
  if (!json_union(json, &tag, &payload)) return Status::invalid_file("an argument is expected");
  if (tag == "as_none") return Arg();
  if (tag == "as_tensor") {
    const std::string_view name = json_text(payload, "name");
    if (tokens_.contains(name)) return Arg();
    PTERON_ASSIGN(const ValueId id, value(name));
    return Arg(id);
  }
  if (tag == "as_optional_tensor") return argument(payload);
  if (tag == "as_int" || tag == "as_float" || tag == "as_bool") {
    PTERON_ASSIGN(const Expr e, scalar(tag, payload));
    return Arg(e);
  }
  if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") {
    PTERON_ASSIGN(const Expr e, sym_value(payload));
    return Arg(e);
  }
  for (const std::string_view known : {"as_ints", "as_floats", "as_bools", "as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools"}) {
    if (tag == known) return list(tag, payload);
  }
  if (tag == "as_string" || tag == "as_operator") return Arg(std::string(json_text(payload)));
  if (tag == "as_scalar_type") {
    PTERON_ASSIGN(const DType dtype, read_dtype(payload));
    return Arg(dtype);
  }
  int64_t number = 0;
  if (tag == "as_memory_format" && json_int(payload, &number)) {
    bool known = false;
    const ir::MemoryFormat format = memory_format_of(number, &known);
    if (!known) return Status::invalid_file(str_cat("memory format number ", number, " is unknown"));
    return Arg(format);
  }
  if (tag == "as_layout" && json_int(payload, &number)) return Arg(number == 7 ? ir::Layout::kStrided : ir::Layout::kSparse);
  if (tag == "as_device") return Arg(read_device(payload));
  if (tag == "as_complex") {
    JsonValue part;
    double real = 0, imaginary = 0;
    if (json_field(payload, "real", &part)) json_float(part, &real);
    if (json_field(payload, "imag", &part)) json_float(part, &imaginary);
    return Arg(std::complex<double>(real, imaginary));
  }
  return Status(Code::kUnsupported, str_cat("an argument of kind ", tag));
}

Status GraphReader::read_region_argument(JsonValue payload, ir::Node* node) {
  JsonValue graph;
  if (!json_field(payload, "graph", &graph)) return Status::invalid_file("as_graph without a graph");
  auto region = std::make_unique<ir::Graph>(context_.program);
  GraphReader reader(context_, *region, graph);
  reader.in_autocast_ = node->op->schema.name == "higher_order::wrap_with_autocast";
  if (Status status = reader.read_region(); !status.ok()) return std::move(status).with_context(json_text(payload, "name"));
  node->regions.push_back(std::move(region));
  return ok_status();
}

/// Puts an argument where the schema has it. Positional operands of control flow ("" as name) fill the schema in order; those that
/// come one by one at the end are collected in its last list.
Status GraphReader::place_argument(std::string_view name, Arg arg, std::vector<Arg>* args, std::vector<bool>* given, size_t* next, const ir::Op& op) {
  const auto& schema = op.schema.args;
  if (name.empty()) {
    const bool operand = *next + 1 == schema.size() && schema[*next].type.list && std::holds_alternative<ValueId>(arg);
    if (operand) {
      if (!(*given)[*next]) (*args)[*next] = std::vector<ValueId>();
      (*given)[*next] = true;
      std::get<std::vector<ValueId>>((*args)[*next]).push_back(std::get<ValueId>(arg));
      return ok_status();
    }
    if (*next + 1 == schema.size() && op.has(ir::kRegion) && std::holds_alternative<Expr>(arg)) return ok_status();  // a scalar operand: known inside as well
    if (*next >= schema.size()) return Status::invalid_file(str_cat(op.name, " has ", schema.size(), " arguments, the archive gives more"));
    const size_t at = (*next)++;
    ir::coerce_argument(&arg, schema[at].type, context_.program.exprs);
    (*args)[at] = std::move(arg);
    (*given)[at] = true;
    return ok_status();
  }
  const int at = op.schema.find(name);
  if (at < 0) return Status(Code::kUnsupported, str_cat(op.name, " has no argument '", name, "'"));
  ir::coerce_argument(&arg, schema[static_cast<size_t>(at)].type, context_.program.exprs);
  (*args)[static_cast<size_t>(at)] = std::move(arg);
  (*given)[static_cast<size_t>(at)] = true;
  return ok_status();
}

Status GraphReader::complete(const ir::Op& op, std::vector<Arg>* args, const std::vector<bool>& given) {
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i]) continue;
    const ir::SchemaArg& schema = op.schema.args[i];
    if (schema.has_default) {
      (*args)[i] = ir::default_argument(schema, context_.program.exprs);
    } else if (schema.type.list && op.has(ir::kRegion)) {
      (*args)[i] = std::vector<ValueId>();
    } else if (!schema.type.optional) {
      return Status::invalid_file(str_cat(op.name, ": argument '", schema.name, "' is missing"));
    }
  }
  return ok_status();
}

Status GraphReader::read_arguments(JsonValue json, size_t skipped, ir::Node* node) {
  const ir::Op& op = *node->op;
  std::vector<bool> given(op.schema.args.size(), false);
  if (op.known) node->args.resize(op.schema.args.size());
  size_t next = 0;
  for (const JsonValue input : json_each(json, "inputs")) {
    if (skipped > 0) {
      --skipped;
      continue;
    }
    const std::string_view name = json_text(input, "name");
    JsonValue arg;
    std::string_view tag;
    JsonValue payload;
    if (!json_field(input, "arg", &arg) || !json_union(arg, &tag, &payload)) return Status::invalid_file(str_cat("argument '", name, "' has no value"));
    if (tag == "as_graph") {
      PTERON_TRY(read_region_argument(payload, node));
      continue;
    }
    auto read = argument(arg);
    if (!read.ok()) {
      if (!op.known && read.status().code() == Code::kUnsupported) {  // named later, with all unknown operators
        node->args.emplace_back(str_cat("<", tag, ">"));
        continue;
      }
      return std::move(read).status().with_context(str_cat("argument '", name, "'"));
    }
    if (!op.known) {
      node->args.push_back(std::move(*read));
      continue;
    }
    PTERON_TRY(place_argument(name, std::move(*read), &node->args, &given, &next, op));
  }
  return op.known ? complete(op, &node->args, given) : ok_status();
}

Status GraphReader::read_output(std::string_view tag, JsonValue payload, ir::Node* node) {
  if (tag == "as_tensor") {
    const std::string_view name = json_text(payload, "name");
    if (values_.contains(name) || pending_.contains(name)) return Status::invalid_file(str_cat("value '", name, "' is produced twice"));
    PTERON_ASSIGN(ir::TensorType type, tensor_type(name));
    const ValueId id = graph_.add_tensor(std::move(type), name);
    values_.emplace(name, id);
    node->outputs.push_back(id);
    return ok_status();
  }
  if (tag == "as_tensors") {
    for (const JsonValue item : json_each(payload)) PTERON_TRY(read_output("as_tensor", item, node));
    return ok_status();
  }
  if (tag == "as_optional_tensors") {
    for (const JsonValue item : json_each(payload)) {
      std::string_view inner_tag;
      JsonValue inner;
      if (!json_union(item, &inner_tag, &inner)) return Status::invalid_file("a result is expected");
      PTERON_TRY(read_output(inner_tag, inner, node));
    }
    return ok_status();
  }
  if (tag == "as_none") {
    if (node->op->known && node->op->schema.returns.empty()) return ok_status();
    node->outputs.push_back(graph_.add_none(str_cat(node->name, "_none")));
    return ok_status();
  }
  if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") {
    PTERON_ASSIGN(const Expr e, sym_value(payload));
    node->outputs.push_back(graph_.add_scalar(e, json_text(payload, "as_name")));
    return ok_status();
  }
  return Status(Code::kUnsupported, str_cat("a result of kind ", tag));
}

Status GraphReader::read_outputs(JsonValue json, bool gives_token, ir::Node* node) {
  for (const JsonValue output : json_each(json, "outputs")) {
    std::string_view tag;
    JsonValue payload;
    if (!json_union(output, &tag, &payload)) return Status::invalid_file("a result is expected");
    if (gives_token && tag == "as_tensor") {
      define_token(json_text(payload, "name"));
      gives_token = false;
      continue;
    }
    PTERON_TRY(read_output(tag, payload, node));
  }
  const auto& returns = node->op->schema.returns;
  const bool has_list = std::any_of(returns.begin(), returns.end(), [](const ir::SchemaReturn& r) { return r.type.list; });
  if (node->op->known && !has_list && node->outputs.size() != returns.size()) {
    return Status::invalid_file(str_cat(node->op->name, " has ", returns.size(), " results, the archive gives ", node->outputs.size()));
  }
  return ok_status();
}

/// Symbolic arithmetic, metadata checks, and asserts that only restate what the input ranges say.
bool GraphReader::is_dropped(const std::string& name, const ir::Op& op, JsonValue json) {
  if (name == "aten::_assert_tensor_metadata") return !in_autocast_;  // there recorded dtypes may be wrong: see inline_wrappers
  if (op.has(ir::kDrop)) return true;
  if (is_symbolic_function(name) && has_only_symbolic_results(json)) return true;
  if (!is_check(name)) return false;
  if (!op.known) return true;
  for (const JsonValue input : json_each(json, "inputs")) {
    JsonValue arg, payload;
    std::string_view tag;
    if (!json_field(input, "arg", &arg) || !json_union(arg, &tag, &payload)) continue;
    if (tag == "as_tensor") return false;
    if (!tag.starts_with("as_sym_")) continue;
    auto e = sym_value(payload);
    if (!e.ok()) return true;
    for (const Expr& symbol : ir::symbols_in(*e)) {
      if (!context_.input_symbols.contains(symbol.node())) return false;
    }
  }
  return true;
}

namespace {

bool op_is_unique_consecutive(const ir::Node& node) { return node.op->known && node.op->schema.name == "aten::unique_consecutive" && node.outputs.size() == 3; }

/// torch.export writes the sizes of unique_consecutive along dim -1 with all of self's sizes after the new one, and the last of those
/// as the number of counts: these are surplus.
void drop_surplus_dims(ir::Graph& graph, const ir::Node& node) {
  const auto* self = std::get_if<ValueId>(&node.args[0]);
  if (self == nullptr || graph[node.outputs[0]].kind != ir::ValueKind::kTensor) return;
  ir::TensorType& type = graph[node.outputs[0]].type;
  const size_t rank = graph[*self].type.sizes.size();
  if (rank == 0 || type.sizes.size() <= rank) return;
  type = ir::contiguous_type(type.dtype, {type.sizes.begin(), type.sizes.begin() + static_cast<std::ptrdiff_t>(rank)}, type.device);
  ir::TensorType& counts = graph[node.outputs[2]].type;
  counts = ir::contiguous_type(counts.dtype, {type.sizes.back()}, counts.device);
}

/// The operator that a higher_order operator calls: of with_effects the second argument, behind a token that only keeps calls in order.
std::string effect_operator(JsonValue json) {
  for (const JsonValue input : json_each(json, "inputs")) {
    JsonValue arg, payload;
    std::string_view tag;
    if (json_field(input, "arg", &arg) && json_union(arg, &tag, &payload) && tag == "as_operator") return operator_name(json_text(payload));
  }
  return "higher_order::with_effects";
}

}  // namespace

Status GraphReader::read_node(JsonValue json) {
  const std::string_view target = json_text(json, "target");
  if (target.empty()) return Status::invalid_file("a node without target");
  std::string name = operator_name(target);
  const bool effect = name == "higher_order::with_effects";
  if (effect) name = effect_operator(json);
  if (is_symbolic_function(name) && has_only_symbolic_results(json)) return ok_status();
  ir::Node node;
  const bool engine = is_engine_operator(name);
  node.op = context_.operators.find(engine ? std::string(ir::kEngineOp) : name);
  if (is_dropped(name, *node.op, json)) return ok_status();
  node.name = std::string(json_text(json, "name"));
  JsonValue metadata;
  if (json_field(json, "metadata", &metadata)) {
    node.source = source_line(json_text(metadata, "stack_trace"), context_.options.source);
    node.module = module_path(json_text(metadata, "nn_module_stack"));
  }
  const size_t skipped = effect ? 2 : 0;
  Status status = engine && node.op->known ? read_engine_arguments(json, skipped, &node) : read_arguments(json, skipped, &node);
  if (status.ok()) status = read_outputs(json, effect, &node);
  if (!status.ok()) {
    const std::string where = node.source.empty() ? std::string() : str_cat(" (", node.source, ")");
    return std::move(status).with_context(str_cat("node ", node.name, where, ": ", name));
  }
  if (name.starts_with("higher_order::auto_functionalized")) {
    node.refusal = str_cat("calls ", effect_operator(json), ", which writes its arguments; an archive without run_decompositions() calls it directly");
  }
  if (op_is_unique_consecutive(node)) drop_surplus_dims(graph_, node);
  if (node.name.empty() && !node.outputs.empty()) node.name = graph_[node.outputs[0]].name;
  graph_.order.push_back(graph_.add_node(std::move(node)));
  return ok_status();
}

Status GraphReader::read_nodes() {
  for (const JsonValue node : json_each(json_, "nodes")) PTERON_TRY(read_node(node));
  return ok_status();
}

Status GraphReader::read_region() {
  for (const JsonValue input : json_each(json_, "inputs")) {
    std::string_view tag;
    JsonValue payload;
    if (!json_union(input, &tag, &payload)) return Status::invalid_file("a graph input is expected");
    if (tag != "as_tensor") continue;  // scalars: the same symbols inside and outside
    const std::string_view name = json_text(payload, "name");
    PTERON_ASSIGN(ir::TensorType type, tensor_type(name));
    const ValueId id = graph_.add_tensor(std::move(type), name);
    if (!values_.emplace(name, id).second) return Status::invalid_file(str_cat("graph input '", name, "' occurs twice"));
    graph_.inputs.push_back({graph_[id].name, id, {}});
  }
  PTERON_TRY(read_nodes());
  for (const JsonValue output : json_each(json_, "outputs")) {
    PTERON_ASSIGN(Arg arg, argument(output));
    graph_.outputs.push_back(std::move(arg));
  }
  return ok_status();
}

}  // namespace pteron::importer
