// Checks engine nodes against their records and makes payloads and delegate calls of them: one call a node, whose arguments are the node's own
// inputs in the engine's order, so that nothing has to be matched by name afterwards.
#include "backends/tensorrt/aot/backend.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "backends/tensorrt/blob.h"
#include "backends/tensorrt/specs.h"
#include "base/str_cat.h"
#include "format/content_hash.h"
#include "ir/builder.h"
#include "ir/engine.h"
#include "ir/foreign.h"
#include "ir/text.h"
#include "tensor/dtype.h"

namespace pteron::tensorrt {
namespace {

using backends::CompiledGroup;
using backends::GroupContext;
using backends::Support;
using ir::Arg;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// What TensorRT asks of the addresses of inputs and outputs.
constexpr uint64_t kAddressAlignment = 256;
constexpr std::string_view kSpecKeys[] = {kBudgetSpec, kDeviceSpec};
constexpr size_t kMultiDeviceSlot = 11;

Status inconsistent(std::string message) { return Status(Code::kInvalidFile, std::move(message)); }

/// The record in the node's arguments; the bytes' slot is empty.
Result<EngineRecord> record_of(const Node& node) {
  std::vector<std::string> slots;
  for (size_t i = 2; i < node.args.size(); ++i) {
    if (slots.size() == ir::kEngineBytesSlot) slots.emplace_back();
    const auto* text = std::get_if<std::string>(&node.args[i]);
    slots.push_back(text == nullptr ? std::string() : *text);
  }
  PTERON_ASSIGN(EngineRecord record, read_record(slots));
  if (record.needs_output_allocator)
    return Status(Code::kUnsupported, str_cat("engine '", record.name, "' needs an output allocator: sizes that depend on data"));
  if (slots[kMultiDeviceSlot] == "1") return Status(Code::kUnsupported, str_cat("engine '", record.name, "' runs on several devices at once"));
  return record;
}

std::vector<std::string> names_of(const EngineRecord& record, bool inputs) {
  std::vector<std::string> names;
  for (const Binding& binding : record.metadata.bindings) {
    if (binding.is_input == inputs) names.push_back(binding.name);
  }
  return names;
}

/// Errors: kInvalidFile (other counts of inputs or outputs than the record names).
Status check_counts(const EngineRecord& record, size_t inputs, size_t outputs) {
  const std::vector<std::string> in = names_of(record, true), out = names_of(record, false);
  if (in.size() != inputs) return inconsistent(str_cat("engine '", record.name, "' has inputs ", str_list(in), ", the node gives ", inputs));
  if (out.size() == outputs && outputs > 0) return ok_status();
  return inconsistent(str_cat("engine '", record.name, "' has outputs ", str_list(out), ", the node gives ", outputs,
                              record.metadata.aliases.empty() ? "" : "; only all that are written in place may be left out"));
}

/// Gives a node a result for each output that is written in place and that it leaves out, and copies it to the input, as an export does that does not: what
/// comes behind reads the new value, buffers become state. A node may leave out all of these or none; others are refused when they are claimed.
void restore_elided(const EngineRecord& record, Graph& graph, size_t position, ir::OperatorTable& operators) {
  const NodeId id = graph.order[position];
  const std::vector<ValueId> inputs = ir::NodeView(graph, *graph[id].op, graph[id].args).values("inputs");
  const std::vector<std::string> in = names_of(record, true), out = names_of(record, false);
  const size_t elided = record.metadata.aliases.size();
  if (elided == 0 || graph[id].outputs.empty() || graph[id].outputs.size() + elided != out.size() || in.size() != inputs.size()) return;
  std::vector<ValueId> outputs;
  std::vector<NodeId> copies;
  size_t given = 0;
  for (const std::string& name : out) {
    const auto alias = std::ranges::find(record.metadata.aliases, name, &Alias::output);
    const auto input = alias == record.metadata.aliases.end() ? in.end() : std::ranges::find(in, alias->input);
    if (input == in.end()) {
      if (given == graph[id].outputs.size()) return;
      outputs.push_back(graph[id].outputs[given++]);
      continue;
    }
    const ValueId old = inputs[static_cast<size_t>(input - in.begin())];
    outputs.push_back(graph.add_tensor(graph[old].type, name));
    graph[outputs.back()].producer = id;
    Node copy;
    copy.op = operators.find("aten::copy_");
    copy.name = str_cat("copy_", name);
    copy.source = graph[id].source;
    copy.args = {Arg(old), Arg(outputs.back()), Arg(graph.program->exprs.boolean(false))};
    copy.outputs = {graph.add_tensor(graph[old].type, copy.name)};
    copies.push_back(graph.add_node(std::move(copy)));
  }
  graph[id].outputs = std::move(outputs);
  graph.order.insert(graph.order.begin() + static_cast<std::ptrdiff_t>(position) + 1, copies.begin(), copies.end());
}

/// Pairs (input, output) of the outputs that are an input's memory.
/// Errors: kInvalidFile (an alias that names no output, tensors of different types), kUnsupported (two outputs in one input).
Result<std::vector<Expr>> pairs_of(const EngineRecord& record, const Graph& graph, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
  const std::vector<std::string> in = names_of(record, true), out = names_of(record, false);
  std::set<std::string_view> written;
  std::vector<Expr> pairs;
  for (const Alias& alias : record.metadata.aliases) {
    const auto output = std::ranges::find(out, alias.output);
    if (output == out.end())
      return inconsistent(str_cat("engine '", record.name, "': '", alias.output, "', which is written in place, is no output; there are ", str_list(out)));
    if (!written.insert(alias.input).second || !written.insert(alias.output).second) {
      return Status(Code::kUnsupported, str_cat("engine '", record.name, "': '", alias.input, "' and '", alias.output, "' are written in place twice"));
    }
    const auto i = static_cast<size_t>(std::ranges::find(in, alias.input) - in.begin()), o = static_cast<size_t>(output - out.begin());
    const ir::TensorType &from = graph[inputs[i]].type, &to = graph[outputs[o]].type;
    if (from.dtype != to.dtype || from.sizes != to.sizes) {
      return inconsistent(str_cat("engine '", record.name, "': output '", alias.output, "' is ", ir::print_type(to), " and written in place of '", alias.input,
                                  "', which is ", ir::print_type(from)));
    }
    pairs.emplace_back(static_cast<int64_t>(i));
    pairs.emplace_back(static_cast<int64_t>(o));
  }
  return pairs;
}

/// The engine's bytes, row-major.
/// Errors: kInvalidFile (no constant, no bytes), kOutOfMemory.
Status take_engine(const EngineRecord& record, const Graph& graph, ValueId engine, CompiledGroup& out) {
  if (!graph[engine].constant.valid()) return inconsistent(str_cat("the bytes of engine '", record.name, "' are no constant"));
  const ir::Constant& constant = (*graph.program)[graph[engine].constant];
  if (constant.dtype != DType::kUInt8 || constant.sizes.size() != 1) {
    return inconsistent(
        str_cat("the bytes of engine '", record.name, "' are ", dtype_name(constant.dtype), " ", str_list(constant.sizes), ", expected uint8 of one dim"));
  }
  if (constant.sizes[0] == 0) return inconsistent(str_cat("engine '", record.name, "' has no bytes"));
  if (constant.data != nullptr && (constant.strides[0] == 1 || constant.sizes[0] == 1)) {
    out.payload_tail = {constant.data, static_cast<size_t>(constant.sizes[0])};
    out.tail_owner = constant.owner;
    return ok_status();
  }
  Result<Buffer> made = Status(Code::kInvalidFile, "no bytes");
  if (constant.data == nullptr && constant.lazy) made = constant.lazy();
  if (constant.data != nullptr) {
    PTERON_ASSIGN(const format::Payload payload, format::Payload::gather({constant.dtype, constant.sizes, constant.strides, {}, constant.data}));
    made = format::payload_bytes(payload);
  }
  if (!made.ok()) return std::move(made).status().with_context(str_cat("engine '", record.name, "'"));
  const auto owner = std::make_shared<const Buffer>(std::move(made).value());  // as a mapped constant: the payload and a data file may hold it
  out.payload_tail = owner->span();
  out.tail_owner = owner;
  return ok_status();
}

/// Errors: kInvalidInput (a budget or a device of another form).
Status add_specs(const EngineRecord& record, const GroupContext& context, CompiledGroup& out) {
  bool has_device = false;
  for (const format::CompileSpec& spec : context.specs) {
    const std::string_view text(reinterpret_cast<const char*>(spec.value.data()), spec.value.size());
    if (spec.key == kBudgetSpec && !read_budget(text))
      return Status(Code::kInvalidInput, str_cat(kBudgetSpec, " is a number of bytes below 2^63, found '", text, "'"));
    if (spec.key == kDeviceSpec) {
      const bool numbered = text.size() > 5 && text.size() < 15 && std::ranges::all_of(text.substr(5), is_digit);
      if (!numbered || to_lower(text.substr(0, 5)) != "cuda:") return Status(Code::kInvalidInput, str_cat(kDeviceSpec, " is cuda:NUMBER, found '", text, "'"));
      has_device = true;
    }
    out.specs.push_back(spec);
  }
  const auto add = [&](std::string_view key, std::string_view value) {
    const auto bytes = std::as_bytes(std::span(value));
    out.specs.push_back({std::string(key), {bytes.begin(), bytes.end()}});
  };
  if (!has_device) add(kDeviceSpec, str_cat("cuda:", record.metadata.device_id));
  if (!record.metadata.aliases.empty()) add(kInPlaceSpec, kHostState);
  return ok_status();
}

/// Turns payload_tail into the whole payload: in the program, or as a key and named data.
Status make_payload(EngineRecord& record, bool external, CompiledGroup& out) {
  if (external) {
    record.metadata.engine_key = str_cat("tensorrt/", format::hash_hex(out.payload_tail));
    out.data.push_back({record.metadata.engine_key, std::nullopt, format::Payload::borrow(out.payload_tail), nullptr});
  }
  auto head = blob_head(record.metadata, external ? 0 : out.payload_tail.size());
  if (!head.ok()) return inconsistent(str_cat("engine '", record.name, "': ", head.status().message()));
  PTERON_ASSIGN(out.payload, Buffer::create(head->size()));
  std::ranges::copy(std::as_bytes(std::span(*head)), out.payload.data());
  if (external) out.payload_tail = {};
  return ok_status();
}

/// The payload of a node, and the delegate node in its place.
Result<CompiledGroup> claim_node(Graph& graph, const ir::Op* delegate, uint32_t index, const GroupContext& context, NodeId& place) {
  const Node& node = graph[place];
  PTERON_ASSIGN(EngineRecord record, record_of(node));
  std::vector<ValueId> inputs = ir::NodeView(graph, *node.op, node.args).values("inputs");
  PTERON_TRY(check_counts(record, inputs.size(), node.outputs.size()));
  PTERON_ASSIGN(std::vector<Expr> pairs, pairs_of(record, graph, inputs, node.outputs));
  CompiledGroup made;
  made.id = kBackendId;
  made.kernels = {record.name};
  PTERON_TRY(take_engine(record, graph, ir::NodeView(graph, *node.op, node.args).value("engine"), made));
  PTERON_TRY(add_specs(record, context, made));
  PTERON_TRY(make_payload(record, context.external_weights, made));
  // Where the engine runs; the spec is what the caller says of it.
  if (record.metadata.device_id >= 0 && record.metadata.device_id <= INT8_MAX) made.possible_device = {DeviceType::kCuda, static_cast<int8_t>(record.metadata.device_id)};
  Node call;
  call.op = delegate;
  call.name = node.name;
  call.source = node.source;
  call.module = node.module;
  call.outputs = node.outputs;
  call.args.emplace_back(std::move(inputs));
  call.args.emplace_back(std::vector<Expr>());
  call.args.emplace_back(Expr(static_cast<int64_t>(index)));
  call.args.emplace_back(std::move(pairs));
  place = graph.add_node(std::move(call));
  return made;
}

class TensorRtBackend final : public backends::Backend {
 public:
  std::string_view name() const override { return "tensorrt"; }
  std::string_view id() const override { return kBackendId; }
  uint64_t alignment_bytes() const override { return kAddressAlignment; }
  std::span<const std::string_view> spec_keys() const override { return kSpecKeys; }

  Support supports(const Graph&, const Node&) const override { return Support::no("no prebuilt engine"); }
  Result<CompiledGroup> compile(ir::Method&, const GroupContext&) const override { return Status(Code::kInternal, "the TensorRT backend builds no engines"); }

  Status prepare(ir::Method& method, const ir::Catalog& catalog) const override {
    Graph& graph = method.graph;
    ir::OperatorTable operators(catalog, *graph.program);
    for (size_t position = 0; position < graph.order.size(); ++position) {
      const Node& node = graph[graph.order[position]];
      if (node.op->name != ir::kEngineOp) continue;
      const auto record = record_of(node);
      if (record.ok()) restore_elided(*record, graph, position, operators);  // a wrong one is refused with its node later
    }
    return ok_status();
  }

  Result<std::vector<CompiledGroup>> claim(ir::Method& method, uint32_t first_index, const GroupContext& context) const override {
    Graph& graph = method.graph;
    PTERON_ASSIGN(const ir::Op* delegate, emit::delegate_op(*graph.program));
    std::vector<CompiledGroup> groups;
    for (NodeId& place : graph.order) {
      const Node& node = graph[place];
      if (node.op->name != ir::kEngineOp) continue;
      const std::string where = node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")");
      auto made = claim_node(graph, delegate, first_index + static_cast<uint32_t>(groups.size()), context, place);
      if (!made.ok()) return std::move(made).status().with_context(where);
      groups.push_back(std::move(made).value());
    }
    return groups;
  }
};

}  // namespace

std::unique_ptr<backends::Backend> make_backend() { return std::make_unique<TensorRtBackend>(); }

}  // namespace pteron::tensorrt
