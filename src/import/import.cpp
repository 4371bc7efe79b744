// The steps of an import: open, check versions, read ranges, signature, graph, results.
#include "import/import.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/str_cat.h"
#include "import/assertions.h"
#include "import/graph_reader.h"
#include "import/guards.h"
#include "import/signature.h"
#include "ir/verify.h"

namespace pteron::importer {

namespace {

constexpr int64_t kSchemaMajor = 8;
constexpr int64_t kNewestMinor = 20;  // torch 2.14

using ir::Arg;
using ir::ValueId;

Status check_version(JsonValue program, LogSink* log) {
  JsonValue version, field;
  int64_t major = -1, minor = 0;
  if (json_field(program, "schema_version", &version)) {
    if (json_field(version, "major", &field)) json_int(field, &major);
    if (json_field(version, "minor", &field)) json_int(field, &minor);
  }
  if (major != kSchemaMajor) {
    return Status::invalid_file(str_cat("schema version ", major, ".", minor, " (torch ", json_text(program, "torch_version"), "), version ", kSchemaMajor,
                           " is expected"));
  }
  if (minor > kNewestMinor && log != nullptr) {
    log->log(LogLevel::kWarning, str_cat("schema version ", major, ".", minor, " is newer than ", kSchemaMajor, ".", kNewestMinor, ", which was tested"));
  }
  return ok_status();
}

/// A range key of the form "K*s + C": a symbol with a positive factor and a shift.
struct LinearKey {
  int64_t factor = 1, shift = 0;
  std::string_view symbol;
};
bool read_linear_key(std::string_view key, LinearKey* out) {
  const auto number = [](std::string_view text, int64_t* value) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), *value);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() && *value >= 0 && *value < (int64_t{1} << 31);
  };
  for (const std::string_view sign : {" + ", " - "}) {
    const size_t at = key.find(sign);
    if (at == std::string_view::npos) continue;
    if (!number(key.substr(at + 3), &out->shift)) return false;
    if (sign == " - ") out->shift = -out->shift;
    key = key.substr(0, at);
  }
  const size_t star = key.find('*');
  if (star != std::string_view::npos && !number(key.substr(0, star), &out->factor)) return false;
  out->symbol = star == std::string_view::npos ? key : key.substr(star + 1);
  return out->factor > 0 && !out->symbol.empty() && out->symbol.find_first_of("*+-/() ") == std::string_view::npos;
}

/// Ranges by symbol. A symbol that a derived dim is made of has at least 2 in strict exports, whatever the program's author said: 0 and 1 are
/// special to the tracer. The derived dim's own range keeps the author's bound.
std::unordered_map<std::string, ir::Range> read_ranges(JsonValue program) {
  std::unordered_map<std::string, ir::Range> ranges, derived;
  for (const JsonMember& member : json_members(program, "range_constraints")) {
    ir::Range range;
    JsonValue bound;
    if (json_field(member.value, "min_val", &bound)) json_int(bound, &range.min);
    if (json_field(member.value, "max_val", &bound)) json_int(bound, &range.max);
    if (range.min <= range.max) ranges.emplace(std::string(member.key), range);  // keys that are expressions match no symbol
    LinearKey linear;
    if (!read_linear_key(member.key, &linear) || linear.symbol == member.key || range.min < 0 || range.min > (int64_t{1} << 31)) continue;
    derived.emplace(std::string(linear.symbol), ir::Range{ceil_div(range.min - linear.shift, linear.factor), ir::Range::kMax});
  }
  for (const auto& [symbol, range] : derived) {
    const auto own = ranges.find(symbol);
    if (own != ranges.end() && own->second.min == 2 && range.min >= 0) own->second.min = std::min(own->second.min, range.min);
  }
  return ranges;
}

/// Reads the parts of a signature into a graph.
class SignatureReader {
 public:
  SignatureReader(ImportContext& context, GraphReader& reader, JsonValue program, JsonValue graph_module)
      : context_(context), reader_(reader), program_(program), module_(graph_module) {}

  Status read(ir::Method* method) {
    JsonValue graph, signature;
    if (!json_field(module_, "graph", &graph) || !json_field(module_, "signature", &signature)) return Status::invalid_file("graph or signature is missing");
    const std::vector<JsonValue> inputs = json_items(graph, "inputs"), input_specs = json_items(signature, "input_specs");
    const std::vector<JsonValue> outputs = json_items(graph, "outputs"), output_specs = json_items(signature, "output_specs");
    if (inputs.size() != input_specs.size() || outputs.size() != output_specs.size()) {
      return Status::invalid_file(str_cat(inputs.size(), " graph inputs with ", input_specs.size(), " specifications, ", outputs.size(), " graph outputs with ",
                             output_specs.size()));
    }
    read_specifications(method);
    const size_t symbols_before = context_.program.exprs.symbols().size();
    for (const JsonValue spec : output_specs) find_mutated(spec);
    for (size_t i = 0; i < inputs.size(); ++i) PTERON_TRY(read_input(input_specs[i], inputs[i]));
    name_inputs();
    find_input_symbols();
    if (context_.options.guards != nullptr) {
      std::vector<ir::Expr>& guards = (*context_.options.guards)[method->name];
      read_guards(guards);
      // A symbol that an earlier method has as well keeps its range: that method has other guards.
      const std::vector<ir::Expr> symbols = context_.program.exprs.symbols();
      narrow_by_equalities(guards, std::span(symbols).subspan(symbols_before), context_.program.exprs);
    }
    PTERON_TRY(reader_.read_nodes());
    word_assertions(reader_.graph(), reader_.graph());
    for (size_t i = 0; i < outputs.size(); ++i) PTERON_TRY(read_output(output_specs[i], outputs[i]));
    return ok_status();
  }

 private:
  /// Pytree texts and argument names of the root module.
  void read_specifications(ir::Method* method) {
    for (const JsonValue entry : json_items(module_, "module_call_graph")) {
      JsonValue signature;
      if (!json_text(entry, "fqn").empty() || !json_field(entry, "signature", &signature)) continue;
      method->in_spec = std::string(json_text(signature, "in_spec"));
      method->out_spec = std::string(json_text(signature, "out_spec"));
      argument_names_ = argument_names(method->in_spec, json_items(signature, "forward_arg_names"));
      return;
    }
  }

  void find_mutated(JsonValue spec) {
    JsonValue part;
    if (json_field(spec, "buffer_mutation", &part)) mutated_.insert(json_text(part, "buffer_name"));
    if (json_field(spec, "parameter_mutation", &part)) mutated_.insert(json_text(part, "parameter_name"));
  }

  Status read_input(JsonValue spec, JsonValue input) {
    std::string_view tag;
    JsonValue part, field;
    if (!json_union(spec, &tag, &part)) return Status::invalid_file("an input specification is expected");
    std::string_view name;
    if (json_field(part, "arg", &field)) name = json_text(field, "name");
    if (tag == "parameter") return read_payload_input(name, {json_text(part, "parameter_name"), ir::Constant::Origin::kParameter, false});
    if (tag == "buffer") {
      bool persistent = true;
      if (json_field(part, "persistent", &field)) json_bool(field, &persistent);
      const std::string_view fqn = json_text(part, "buffer_name");
      const bool in_constants = persistent ? !context_.weights.has(fqn) && context_.constants.has(fqn) : !context_.weights.has(fqn) || context_.constants.has(fqn);
      return read_payload_input(name, {fqn, ir::Constant::Origin::kBuffer, in_constants});
    }
    if (tag == "tensor_constant") return read_payload_input(name, {json_text(part, "tensor_constant_name"), ir::Constant::Origin::kConstant, true});
    if (tag == "custom_obj") {  // engines; other nodes that use an object are refused by name
      reader_.define_object(name, json_text(part, "custom_obj_name"));
      return ok_status();
    }
    if (tag == "token") {
      reader_.define_token(name);
      return ok_status();
    }
    if (tag == "constant_input") {
      ir::Input literal{std::string(json_text(part, "name")), {}, {}};
      if (!json_field(part, "value", &field)) return Status::invalid_file("constant_input without a value");
      PTERON_ASSIGN(literal.literal, reader_.argument(field));
      reader_.graph().inputs.push_back(std::move(literal));
      return ok_status();
    }
    if (tag == "user_input") return read_user_input(input);
    return Status(Code::kUnsupported, str_cat("an input of kind ", tag));
  }

  Status read_payload_input(std::string_view name, const PendingConstant& pending) {
    ir::Graph& graph = reader_.graph();
    if (!mutated_.contains(pending.fqn)) {
      reader_.define_pending(name, pending);
      return ok_status();
    }
    PTERON_ASSIGN(const ir::ConstantId initial, reader_.add_constant(pending));
    ir::Constant& constant = context_.program[initial];
    constant.mutable_elsewhere = true;
    PTERON_ASSIGN(ir::TensorType type, reader_.tensor_type(name));
    const std::vector<ir::Expr> sizes(constant.sizes.begin(), constant.sizes.end());
    if (type.sizes != sizes || type.dtype != constant.dtype) return Status::invalid_file(str_cat("buffer '", pending.fqn, "': its value and its payload differ in type"));
    const ValueId id = graph.add_tensor(std::move(type), name);
    reader_.define(name, id);
    states_.emplace(pending.fqn, graph.states.size());
    graph.states.push_back({std::string(pending.fqn), id, id, initial});
    return ok_status();
  }

  Status read_user_input(JsonValue input) {
    ir::Graph& graph = reader_.graph();
    std::string_view tag;
    JsonValue payload;
    if (!json_union(input, &tag, &payload)) return Status::invalid_file("a graph input is expected");
    ir::Input made;
    std::string_view name;
    if (tag == "as_tensor") {
      name = json_text(payload, "name");
      PTERON_ASSIGN(ir::TensorType type, reader_.tensor_type(name));
      made.value = graph.add_tensor(std::move(type), name);
      reader_.define(name, made.value);
    } else if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") {
      name = json_text(payload, "as_name");
      PTERON_ASSIGN(const ir::Expr e, reader_.symbolic(name));
      made.value = graph.add_scalar(e, name);
    } else {
      PTERON_ASSIGN(made.literal, reader_.argument(input));
    }
    made.name = std::string(name);
    if (!name.empty()) positions_.emplace(name, graph.inputs.size());
    graph.inputs.push_back(std::move(made));
    return ok_status();
  }

  /// Placeholder names, replaced by the argument's own name where the specification tells it (they differ after a collision).
  void name_inputs() {
    auto& inputs = reader_.graph().inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (argument_names_.size() == inputs.size() && !argument_names_[i].empty()) inputs[i].name = argument_names_[i];
      if (inputs[i].name.empty()) inputs[i].name = str_cat("input_", i);
    }
  }

  void find_input_symbols() {
    ir::Graph& graph = reader_.graph();
    const auto note = [&](const ir::Expr& e) {
      for (const ir::Expr& symbol : ir::symbols_in(e)) context_.input_symbols.insert(symbol.node());
    };
    for (const ir::Input& input : graph.inputs) {
      if (!input.value.valid()) continue;
      const ir::Value& value = graph[input.value];
      note(value.scalar);
      for (const ir::Expr& size : value.type.sizes) note(size);
    }
  }

  /// The input that a condition names: by its placeholder's name, or (after a strict export of a graph) as "flat_args_3".
  std::optional<size_t> input_position(std::string_view name) const {
    const auto position = positions_.find(name);
    if (position != positions_.end()) return position->second;
    constexpr std::string_view kFlat = "flat_args_";
    size_t index = 0;
    if (!name.starts_with(kFlat)) return std::nullopt;
    const auto read = std::from_chars(name.data() + kFlat.size(), name.data() + name.size(), index);
    const bool whole = read.ec == std::errc() && read.ptr == name.data() + name.size();
    return whole && index < reader_.graph().inputs.size() ? std::optional<size_t>(index) : std::nullopt;
  }

  /// Conditions on sizes that the export relied on and that ranges do not say.
  void read_guards(std::vector<ir::Expr>& guards) {
    const ir::Graph& graph = reader_.graph();
    const auto input = [&](std::string_view name, int64_t dim) -> std::optional<ir::Expr> {
      const std::optional<size_t> position = input_position(name);
      if (!position || !graph.inputs[*position].value.valid()) return std::nullopt;
      const ir::Value& value = graph[graph.inputs[*position].value];
      if (dim < 0) return value.kind == ir::ValueKind::kScalar && value.scalar.type() == ir::ExprType::kInt ? std::optional(value.scalar) : std::nullopt;
      if (value.kind != ir::ValueKind::kTensor || dim >= value.type.rank()) return std::nullopt;
      return value.type.sizes[static_cast<size_t>(dim)];
    };
    for (const JsonValue text : json_items(program_, "guards_code")) {
      const std::optional<ir::Expr> guard = read_guard(json_text(text), context_.program.exprs, input);
      if (guard && guard->type() == ir::ExprType::kBool && !ir::symbols_in(*guard).empty() && !excludes_small_size(*guard)) guards.push_back(*guard);
    }
  }

  Status read_output(JsonValue spec, JsonValue output) {
    ir::Graph& graph = reader_.graph();
    std::string_view tag;
    JsonValue part;
    if (!json_union(spec, &tag, &part)) return Status::invalid_file("an output specification is expected");
    if (tag == "token") return ok_status();
    auto arg = reader_.argument(output);
    if (!arg.ok()) return std::move(arg).status().with_context("output");
    if (tag == "buffer_mutation" || tag == "parameter_mutation") {
      const auto state = states_.find(json_text(part, tag == "buffer_mutation" ? "buffer_name" : "parameter_name"));
      const auto* id = std::get_if<ValueId>(&*arg);
      if (state == states_.end() || id == nullptr) return Status::invalid_file(str_cat(tag, " of a buffer that is no input"));
      graph.states[state->second].result = *id;
      return ok_status();
    }
    if (tag == "user_input_mutation") {
      const auto position = positions_.find(json_text(part, "user_input_name"));
      const auto* id = std::get_if<ValueId>(&*arg);
      if (position == positions_.end() || id == nullptr) return Status::invalid_file("user_input_mutation of an input that does not exist");
      graph.input_mutations.push_back({static_cast<uint32_t>(position->second), *id});
      return ok_status();
    }
    graph.outputs.push_back(std::move(*arg));  // user_output, loss_output, gradients
    return ok_status();
  }

  ImportContext& context_;
  GraphReader& reader_;
  JsonValue program_, module_;
  std::vector<std::string> argument_names_;
  std::unordered_set<std::string_view> mutated_;
  std::unordered_map<std::string_view, size_t> states_, positions_;
};

/// An archive and what reads it beside the import.
struct CheckedArchive {
  explicit CheckedArchive(Archive opened) : archive(std::move(opened)), check(archive.zip()) {}
  Archive archive;
  PayloadCheck check;
};

}  // namespace

Status import_archive(std::shared_ptr<FileBytes> file, const ir::Catalog& catalog, const ImportOptions& options, ir::Program& program) {
  PTERON_ASSIGN(Archive opened, Archive::open(std::move(file)));
  const auto checked = std::make_shared<CheckedArchive>(std::move(opened));
  const Archive& archive = checked->archive;
  PayloadCheck& check = checked->check;
  PTERON_ASSIGN(const std::string model, archive.choose_model(options.model));
  PTERON_ASSIGN(PayloadTable weights, PayloadTable::open(archive, model, "weights"));
  PTERON_ASSIGN(PayloadTable constants, PayloadTable::open(archive, model, "constants"));
  if (options.check_weights) {
    weights.add_to(check, archive);
    constants.add_to(check, archive);
  }
  check.start(options.pending_checks == nullptr);
  const std::string path = str_cat("models/", model, ".json");
  PTERON_ASSIGN(const JsonDocument document, archive.json(path));
  PTERON_TRY(check_version(document.root(), options.log));
  JsonValue graph_module, graph;
  if (!json_field(document.root(), "graph_module", &graph_module) || !json_field(graph_module, "graph", &graph)) {
    return Status::invalid_file(str_cat(path, " has no graph_module with a graph"));
  }
  ImportContext context{archive, options, program, ir::OperatorTable(catalog, program), ExprReader(program.exprs, read_ranges(document.root())),
                        std::move(weights), std::move(constants), {}};
  auto method = std::make_unique<ir::Method>(program);
  method->name = options.method;
  GraphReader reader(context, method->graph, graph);
  SignatureReader signature(context, reader, document.root(), graph_module);
  if (Status status = signature.read(method.get()); !status.ok()) return std::move(status).with_context(path);
  if (Status status = ir::verify(method->graph, ir::Dialect::kImported); !status.ok()) {
    return Status::invalid_file(str_cat(path, ": ", status.message()));  // an archive that contradicts the schemas or itself
  }
  if (options.pending_checks != nullptr) {
    options.pending_checks->push_back([checked] { return checked->check.finish(); });
  } else {
    PTERON_TRY(check.finish());
  }
  program.methods.push_back(std::move(method));
  return ok_status();
}

}  // namespace pteron::importer
