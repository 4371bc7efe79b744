// What a pass sees: the reading half of GraphEditor.
#include <algorithm>
#include <complex>
#include <cstring>
#include <utility>

#include "base/str_cat.h"
#include "facade/graph_editor.h"
#include "format/payload.h"
#include "ir/text.h"

namespace pteron {

namespace facade {

GraphScalar from_ir(ir::Expr expr) {
  if (expr.is_const()) return expr.value();
  if (!ir::is_number(expr)) return GraphScalar::expression(expr.node());
  if (expr.type() == ir::ExprType::kBool) return ir::number_of(expr) != 0;
  return ir::number_of(expr);
}

namespace {

ir::Expr expr_of(const GraphScalar& scalar, ir::ExprContext& exprs) {
  switch (scalar.kind()) {
    case GraphScalar::Kind::kInt:
      return scalar.integer();
    case GraphScalar::Kind::kFloat:
      return exprs.floating(scalar.number());
    case GraphScalar::Kind::kBool:
      return exprs.boolean(scalar.integer() != 0);
    case GraphScalar::Kind::kExpression:
      break;
  }
  return ir::Expr(static_cast<const ir::ExprNode*>(scalar.expression()));
}

ir::Arg other_to_ir(const GraphOther& other) {
  switch (other.kind) {
    case GraphOther::Kind::kMemoryFormat:
      return static_cast<ir::MemoryFormat>(static_cast<uint8_t>(other.a));
    case GraphOther::Kind::kLayout:
      return static_cast<ir::Layout>(static_cast<uint8_t>(other.a));
    case GraphOther::Kind::kDevice:
      return Device{static_cast<DeviceType>(static_cast<uint8_t>(other.a)), static_cast<int8_t>(other.b)};
    case GraphOther::Kind::kComplex:
      break;
  }
  return std::complex<double>(other.a, other.b);
}

}  // namespace

ir::Arg to_ir(const GraphArgument& argument, ir::ExprContext& exprs) {
  if (const auto* value = std::get_if<GraphValue>(&argument)) return ir::ValueId{value->index};
  if (const auto* values = std::get_if<std::vector<GraphValue>>(&argument)) {
    std::vector<ir::ValueId> ids;
    for (const GraphValue value : *values) ids.push_back({value.index});
    return ids;
  }
  if (const auto* scalar = std::get_if<GraphScalar>(&argument)) return expr_of(*scalar, exprs);
  if (const auto* scalars = std::get_if<std::vector<GraphScalar>>(&argument)) {
    std::vector<ir::Expr> list;
    for (const GraphScalar& scalar : *scalars) list.push_back(expr_of(scalar, exprs));
    return list;
  }
  if (const auto* text = std::get_if<std::string>(&argument)) return *text;
  if (const auto* dtype = std::get_if<DType>(&argument)) return *dtype;
  if (const auto* other = std::get_if<GraphOther>(&argument)) return other_to_ir(*other);
  return std::monostate();
}

GraphArgument from_ir(const ir::Arg& arg) {
  using Kind = GraphOther::Kind;
  if (const auto* id = std::get_if<ir::ValueId>(&arg)) return GraphValue{id->index};
  if (const auto* ids = std::get_if<std::vector<ir::ValueId>>(&arg)) {
    std::vector<GraphValue> values;
    for (const ir::ValueId id : *ids) values.push_back(GraphValue(id.index));
    return values;
  }
  if (const auto* expr = std::get_if<ir::Expr>(&arg)) return from_ir(*expr);
  if (const auto* list = std::get_if<std::vector<ir::Expr>>(&arg)) {
    std::vector<GraphScalar> scalars;
    for (const ir::Expr expr : *list) scalars.push_back(from_ir(expr));
    return scalars;
  }
  if (const auto* text = std::get_if<std::string>(&arg)) return *text;
  if (const auto* dtype = std::get_if<DType>(&arg)) return *dtype;
  if (const auto* format = std::get_if<ir::MemoryFormat>(&arg)) return GraphOther{Kind::kMemoryFormat, static_cast<double>(*format), 0};
  if (const auto* layout = std::get_if<ir::Layout>(&arg)) return GraphOther{Kind::kLayout, static_cast<double>(*layout), 0};
  if (const auto* device = std::get_if<Device>(&arg)) return GraphOther{Kind::kDevice, static_cast<double>(device->type), static_cast<double>(device->index)};
  if (const auto* number = std::get_if<std::complex<double>>(&arg)) return GraphOther{Kind::kComplex, number->real(), number->imag()};
  return std::monostate();
}

}  // namespace facade

namespace {

/// The node if the graph runs it, else null.
const ir::Node* node_of(const GraphEditor::State& state, GraphNode node) {
  if (!state.session->open || node.index >= state.graph->nodes.size()) return nullptr;
  const ir::NodeId id{node.index};
  return std::ranges::find(state.graph->order, id) == state.graph->order.end() ? nullptr : &(*state.graph)[id];
}

const ir::Value* value_of(const GraphEditor::State& state, GraphValue value) {
  return state.session->open && value.index < state.graph->values.size() ? &state.graph->values[value.index] : nullptr;
}

}  // namespace

const std::string& GraphEditor::method() const { return state_->session->method; }

std::vector<GraphNode> GraphEditor::nodes() const {
  std::vector<GraphNode> out;
  if (!state_->session->open) return out;
  for (const ir::NodeId id : state_->graph->order) out.push_back({id.index});
  return out;
}

GraphCall GraphEditor::call(GraphNode node) const {
  const ir::Node* found = node_of(*state_, node);
  if (found == nullptr) return {};
  GraphCall call{found->name, found->op->name, found->source, found->module, {}, {}, {}, found->regions.size()};
  for (size_t i = 0; i < found->args.size(); ++i) {
    call.argument_names.push_back(i < found->op->schema.args.size() ? found->op->schema.args[i].name : std::string());
    call.arguments.push_back(facade::from_ir(found->args[i]));
  }
  for (const ir::ValueId id : found->outputs) call.results.push_back(GraphValue(id.index));
  return call;
}

GraphTensor GraphEditor::tensor(GraphValue value) const {
  const ir::Value* found = value_of(*state_, value);
  GraphTensor out;
  out.is_tensor = found != nullptr && found->kind == ir::ValueKind::kTensor;
  if (found == nullptr) return out;
  out.name = found->name;
  out.dtype = found->type.dtype;
  out.is_constant = found->constant.valid();
  for (const ir::Expr size : found->type.sizes) out.sizes.push_back(facade::from_ir(size));
  if (found->kind == ir::ValueKind::kScalar) out.sizes.push_back(facade::from_ir(found->scalar));
  if (found->constant.valid()) out.weight = (*state_->graph->program)[found->constant].name;
  out.producer = {found->producer.index};
  return out;
}

std::vector<GraphValue> GraphEditor::inputs() const {
  std::vector<GraphValue> out;
  if (!state_->session->open) return out;
  for (const ir::Input& input : state_->graph->inputs) out.push_back(GraphValue(input.value.index));
  return out;
}

std::vector<GraphValue> GraphEditor::states() const {
  std::vector<GraphValue> out;
  if (!state_->session->open) return out;
  for (const ir::State& state : state_->graph->states) out.push_back(GraphValue(state.value.index));
  return out;
}

std::vector<GraphValue> GraphEditor::outputs() const {
  std::vector<GraphValue> out;
  if (!state_->session->open) return out;
  for (const ir::Arg& output : state_->graph->outputs) {
    const auto* id = std::get_if<ir::ValueId>(&output);
    out.push_back(id == nullptr ? GraphValue{} : GraphValue{id->index});
  }
  return out;
}

std::vector<GraphNode> GraphEditor::users(GraphValue value) const {
  std::vector<GraphNode> out;
  if (value_of(*state_, value) == nullptr) return out;
  for (const ir::NodeId id : state_->graph->order) {
    bool reads = false;
    ir::for_each_use((*state_->graph)[id], [&](ir::ValueId use) { reads = reads || use.index == value.index; });
    if (reads) out.push_back({id.index});
  }
  return out;
}

GraphNode GraphEditor::find_node(std::string_view name) const {
  for (const GraphNode node : nodes()) {
    if ((*state_->graph)[ir::NodeId{node.index}].name == name) return node;
  }
  return {};
}

GraphValue GraphEditor::find_value(std::string_view name) const { return state_->session->open ? GraphValue{state_->graph->find(name).index} : GraphValue{}; }

std::string GraphEditor::text(GraphScalar scalar) const {
  return state_->session->open ? ir::to_text(facade::expr_of(scalar, state_->graph->program->exprs)) : std::string();
}

std::string GraphEditor::text(GraphNode node) const {
  return node_of(*state_, node) == nullptr ? std::string() : ir::print_node(*state_->graph, ir::NodeId{node.index});
}

GraphEditor GraphEditor::branch(GraphNode node, size_t branch) const {
  const ir::Node* found = node_of(*state_, node);
  if (found != nullptr && branch < found->regions.size()) return GraphEditor(std::make_shared<State>(State{state_->session, found->regions[branch].get()}));
  auto nothing = std::make_shared<facade::EditSession>();
  nothing->open = false;
  return GraphEditor(std::make_shared<State>(State{std::move(nothing), nullptr}));
}

Result<SharedBytes> GraphEditor::constant_bytes(GraphValue constant) const {
  const ir::Value* value = value_of(*state_, constant);
  if (value == nullptr || !value->constant.valid())
    return Status(Code::kInvalidInput, str_cat(value == nullptr ? "a value that the graph does not have" : str_cat("value ", value->name), " is no constant"));
  const ir::Constant& found = (*state_->graph->program)[value->constant];
  if (found.numel() == 0) return SharedBytes{};
  if (found.data == nullptr && !found.lazy) return Status(Code::kInvalidInput, str_cat("constant ", found.name, " has no bytes"));
  if (found.data != nullptr && ir::is_contiguous(value->type)) return SharedBytes{found.owner, {found.data, found.size_bytes()}};
  auto made = found.lazy ? found.lazy() : [&]() -> Result<Buffer> {
    PTERON_ASSIGN(const format::Payload payload, format::Payload::gather({found.dtype, found.sizes, found.strides, {}, found.data}));
    return format::payload_bytes(payload);
  }();
  if (!made.ok()) return std::move(made).status();
  auto buffer = std::make_shared<Buffer>(std::move(made).value());  // shared: becomes the bytes' owner
  return SharedBytes{buffer, buffer->span()};
}

}  // namespace pteron
