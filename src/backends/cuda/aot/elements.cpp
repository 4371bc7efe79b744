// Elements of values: where they lie in memory, or how they are computed.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ascii.h"
#include "backends/cuda/aot/body.h"
#include "backends/cuda/aot/scalar_ops.h"
#include "base/str_cat.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Arg;
using ir::Expr;
using ir::ExprOp;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

Index broadcast_index(std::span<const Expr> sizes, const Index& at) {
  Index out;
  for (size_t d = 0; d < sizes.size(); ++d) out.push_back(dim_is(sizes[d], 1) ? Expr(0) : at[at.size() - sizes.size() + d]);
  return out;
}

Expr linear_index(std::span<const Expr> sizes, const Index& at) {
  Expr linear = 0;
  for (size_t d = 0; d < sizes.size(); ++d) linear = linear * sizes[d] + at[d];
  return linear;
}

Index split_index(std::span<const Expr> sizes, Expr linear) {
  Index out(sizes.size(), Expr(0));
  for (size_t d = sizes.size(); d-- > 0;) {
    if (dim_is(sizes[d], 1)) continue;
    bool is_first = true;
    for (size_t e = 0; e < d; ++e) is_first = is_first && dim_is(sizes[e], 1);
    out[d] = is_first ? linear : floor_mod(linear, sizes[d]);
    linear = is_first ? Expr(0) : floor_div(linear, sizes[d]);
  }
  return out;
}

bool view_place(const ir::Graph& graph, ValueId value, const Memory& memory, ValueId* base, ViewLayout* layout) {
  if (memory.holds(value)) {
    *base = value;
    *layout = memory.layout(value);
    return true;
  }
  if (!graph[value].producer.valid()) return false;
  const ir::Node& node = graph[graph[value].producer];
  const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
  if (self == nullptr || !self->valid() || (!node.op->is_view() && !node.op->has(ir::kAlias))) return false;
  if (graph[*self].type.dtype != graph[value].type.dtype) return false;
  ViewLayout inner;
  if (!view_place(graph, *self, memory, base, &inner)) return false;
  if (node.op->has(ir::kAlias)) {
    *layout = inner;
    return true;
  }
  const size_t k = static_cast<size_t>(std::ranges::find(node.outputs, value) - node.outputs.begin());
  return node.op->def.view(NodeView(graph, *node.op, node.args), inner, k, layout);
}

std::string Body::load(ValueId base, Expr offset) {
  size_t input = static_cast<size_t>(std::ranges::find(inputs_, base) - inputs_.begin());
  if (input == inputs_.size()) inputs_.push_back(base);
  size_t at = static_cast<size_t>(std::ranges::find(indices_, offset) - indices_.begin());
  if (at == indices_.size()) indices_.push_back(offset);
  loads_.push_back({input, at, graph_[base].type.dtype, loops_.size(), scopes_.size() == 1});
  return str_cat("\x03", loads_.size() - 1, "\x02");
}

std::string Body::index(Expr e) {
  if (e.is_const()) return str_cat(e.value());
  size_t at = static_cast<size_t>(std::ranges::find(indices_, e) - indices_.begin());
  if (at == indices_.size()) indices_.push_back(e);
  return str_cat("\x01", at, "\x02");
}

Expr Body::counter(std::string_view name, Expr size) {
  if (dim_is(size, 1)) return 0;
  const Expr symbol = exprs_.symbol(str_cat("cuda.", name, "<", ir::to_text(size), ">"));
  const ir::Range range = ir::bounds(size);
  exprs_.set_range(symbol, {0, range.max == ir::Range::kMax ? range.max : std::max<int64_t>(range.max - 1, 0)});
  spelled_[symbol.node()] = std::string(name);
  return symbol;
}

Expr Body::loaded(const std::string& name, Expr size) { return counter(name, dim_is(size, 1) ? Expr(2) : size); }

void Body::open(std::string_view head) {
  scopes_.back().code += std::string(head) + "\n";
  scopes_.emplace_back();
}

void Body::close(std::string_view tail) {
  const std::string code = std::move(scopes_.back().code);
  scopes_.pop_back();
  scopes_.back().code += code + std::string(tail) + "\n";
}

ValueId Body::fail(ValueId value, std::string why) {
  if (failure_.empty()) failure_ = std::move(why), blamed_ = value;
  return value;
}

namespace {

/// The number of a constant with one element.
bool constant_number(const ir::Graph& graph, ValueId id, std::string* text) {
  const ir::Value& value = graph[id];
  if (!value.constant.valid()) return false;
  const ir::Constant& c = (*graph.program)[value.constant];
  if (c.mutable_elsewhere || c.data == nullptr || c.numel() != 1 || !has_c_type(c.dtype)) return false;
  const auto read = [&](auto kind) {
    std::memcpy(&kind, c.data, sizeof kind);
    return kind;
  };
  switch (c.dtype) {
    case DType::kFloat32:
      *text = literal(static_cast<double>(read(float())), c.dtype);
      return true;
    case DType::kFloat64:
      *text = literal(read(double()), c.dtype);
      return true;
    case DType::kInt64:
      *text = literal(Expr(read(int64_t())), c.dtype);
      return true;
    case DType::kInt32:
      *text = literal(Expr(read(int32_t())), c.dtype);
      return true;
    case DType::kInt16:
      *text = literal(Expr(read(int16_t())), c.dtype);
      return true;
    case DType::kInt8:
      *text = literal(Expr(read(int8_t())), c.dtype);
      return true;
    case DType::kUInt8:
      *text = literal(Expr(read(uint8_t())), c.dtype);
      return true;
    case DType::kBool:
      *text = read(uint8_t()) != 0 ? "true" : "false";
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string Body::element(ValueId value, const Index& at) {
  std::string key = str_cat(value.index, "@");
  for (const Expr& e : at) str_append(key, ir::to_text(e), ",");
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->known.find(key); found != scope->known.end()) return found->second;
  }
  if (const auto found = cached_.find(key); found != cached_.end()) return found->second;
  std::string text;
  if (memory_.holds(value) && constant_number(graph_, value, &text)) return text;
  text = compute(value, at);
  const bool is_name = std::ranges::all_of(text, is_word_char);
  if (!is_name) {
    const std::string name = fresh();
    statement(str_cat("const ", c_type(graph_[value].type.dtype), " ", name, " = ", text, ";"));
    text = name;
  }
  scopes_.back().known[key] = text;
  return text;
}

std::string Body::compute_root(ValueId value, const Index& at) {
  root_ = value;
  return compute(value, at);
}

std::string Body::compute(ValueId value, const Index& at) {
  const auto in_memory = [&](ValueId base, const ViewLayout& layout) {
    Expr offset = layout.offset;
    for (size_t d = 0; d < at.size(); ++d) offset = offset + at[d] * layout.strides[d];
    return load(base, offset);
  };
  ValueId base;
  ViewLayout layout;
  const bool computed = value == root_ && graph_[value].producer.valid();
  if (!computed && view_place(graph_, value, memory_, &base, &layout)) return in_memory(base, layout);
  if (computed && kind_of(graph_, graph_[graph_[value].producer]) == NodeKind::kView) {  // a copy of what the view shows
    Memory others{[&](ValueId id) { return id != value && memory_.holds(id); }, memory_.layout};
    if (view_place(graph_, value, others, &base, &layout)) return in_memory(base, layout);
  }
  const ir::Node& node = graph_[graph_[value].producer];
  const NodeView n(graph_, *node.op, node.args);
  const size_t output = static_cast<size_t>(std::ranges::find(node.outputs, value) - node.outputs.begin());
  const NodeKind kind = kind_of(graph_, node);
  if (kind == NodeKind::kView) {
    const ValueId self = std::get<ValueId>(node.args[0]);
    if (node.op->has(ir::kAlias)) return element(self, at);
    // Strides that are symbols: the view is a linear map of places. One that needs row-major elements is a map of their numbers.
    const std::vector<Expr>& sizes = graph_[self].type.sizes;
    ViewLayout probe{sizes, {}, 0}, shown;
    for (size_t d = 0; d < sizes.size(); ++d) probe.strides.push_back(exprs_.symbol(str_cat("cuda.stride", d)));
    for (const Expr& e : probe.strides) exprs_.set_range(e, {1, int64_t{1} << 40});
    Index inner;
    if (node.op->def.view(n, probe, output, &shown)) {
      Expr offset = shown.offset;
      for (size_t d = 0; d < at.size(); ++d) offset = offset + at[d] * shown.strides[d];
      for (size_t d = 0; d < sizes.size(); ++d) {
        inner.push_back(ir::substitute(offset, [&](Expr e) {
          const auto found = std::ranges::find(probe.strides, e);
          return found == probe.strides.end() ? e : Expr(found - probe.strides.begin() == static_cast<std::ptrdiff_t>(d) ? 1 : 0);
        }));
      }
      return element(self, inner);
    }
    probe.strides = ir::contiguous_strides_of(sizes);
    if (!node.op->def.view(n, probe, output, &shown)) {
      fail(self, str_cat(node.op->name, " is no view of row-major elements"));
      return "0";
    }
    Expr offset = shown.offset;
    for (size_t d = 0; d < at.size(); ++d) offset = offset + at[d] * shown.strides[d];
    return element(self, split_index(sizes, offset));
  }
  if (kind == NodeKind::kPoint) {
    if (stem_.size() < 6) stem_.push_back(node.op->name.substr(node.op->name.rfind(':') + 1));
    if (is_level_node(node)) return level(n, value, at);
    if (find_scalar_op(n.op().name.substr(6)) != nullptr) return scalar_op(n, value, at);
    return point(n, value, output, at);
  }
  if (kind == NodeKind::kRow) {
    if (stem_.size() < 6) stem_.push_back(node.op->name.substr(node.op->name.rfind(':') + 1));
    return row(n, value, output, at);
  }
  fail(value, str_cat(node.op->name, " is not computed element by element"));
  return "0";
}

std::string Body::operand(const NodeView& n, std::string_view name, const Index& at, DType to, bool rounds) {
  const Arg& arg = n.arg(name);
  if (const auto* id = std::get_if<ValueId>(&arg)) {
    if (graph_[*id].kind == ir::ValueKind::kScalar) return converted(str_cat("(i64)(", index(graph_[*id].scalar), ")"), DType::kInt64, to);
    const TensorType& type = graph_[*id].type;
    return converted(element(*id, broadcast_index(type.sizes, at)), type.dtype, c_type(to) == "float" ? DType::kFloat32 : to);
  }
  const auto* e = std::get_if<Expr>(&arg);
  if (e == nullptr) return "0";
  if (ir::is_number(*e)) return literal(*e, to, rounds);
  return converted(str_cat("(i64)(", index(*e), ")"), DType::kInt64, to);
}

std::string Body::scalar_op(const NodeView& n, ValueId result, const Index& at) {
  const ScalarOp& op = *find_scalar_op(n.op().name.substr(6));
  const DType out = graph_[result].type.dtype;
  DType compute = out;
  if (op.compute == Compute::kSelf) compute = n.type("self").dtype;
  if (op.compute == Compute::kTruth) compute = DType::kBool;
  if (op.compute == Compute::kCommon) compute = ops::result_type(n, {"self", "other"});
  if (op.compute == Compute::kWhole && is_integral(out, true)) return operand(n, "self", at, out, false);
  std::string text;
  for (size_t i = 0; i < op.text.size(); ++i) {
    if (op.text[i] != '$') {
      text += op.text[i];
      continue;
    }
    size_t end = i + 1;
    while (end < op.text.size() && is_word_char(op.text[end])) ++end;
    const std::string_view name = op.text.substr(i + 1, end - i - 1);
    i = end - 1;
    if (name == "T") {
      text += c_type(compute);
      continue;
    }
    const bool is_one = name == "alpha" && op.text.find("p_mul(") != std::string_view::npos && std::holds_alternative<Expr>(n.arg(name)) &&
                        ir::is_number(n.expr(name)) && n.number(name) == 1;
    if (is_one) {  // the product with 1 is left out: "p_mul(x, 1)" becomes "(x"
      const size_t comma = text.rfind(", ");
      text.resize(comma);
      const size_t call = text.rfind("p_mul(");
      text.erase(call, 5);
      continue;
    }
    text += operand(n, name, at, name == "condition" ? DType::kBool : compute, op.rounds_numbers);
  }
  const bool is_test = op.compute == Compute::kCommon || op.compute == Compute::kSelf || op.compute == Compute::kTruth;
  if (is_test) return converted(str_cat("(", text, ")"), DType::kBool, out);
  if (c_type(out) == c_type(compute) && is_integral(out, true)) return str_cat("(", c_type(out), ")(", text, ")");
  return rounded(str_cat("(", text, ")"), out);
}

std::string Body::level(const NodeView& n, ValueId result, const Index& at) {
  const TensorType& in = n.type("self");
  const auto parameter = [&](std::string_view name) -> std::string {
    if (!n.is_value(name)) return "0.0f";
    const TensorType& type = n.type(name);
    Index where;  // one entry a block along every dim, or one for all
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      const bool each = type.sizes[d] == in.sizes[d];
      where.push_back(dim_is(type.sizes[d], 1) ? Expr(0) : each ? at[d] : floor_div(at[d], floor_div(in.sizes[d], type.sizes[d])));
    }
    return converted(element(n.value(name), where), type.dtype, DType::kFloat32);
  };
  const std::string x = converted(element(n.value("self"), at), in.dtype, DType::kFloat32);
  if (!n.has("inverse")) return str_cat("p_unlevel(", x, ", ", parameter("scale"), ", ", parameter("zero_point"), ")");
  const DType out = graph_[result].type.dtype;
  const std::string made = str_cat("p_level<", n.boolean("late") ? "true" : "false", ">(", x, ", ", parameter("inverse"), ", ", parameter("zero_point"), ", ",
                                   literal(n.number("quant_min"), DType::kFloat32), ", ", literal(n.number("quant_max"), DType::kFloat32), ")");
  return converted(made, DType::kFloat32, out);
}

Expr Body::position(ValueId indices, const Index& at, Expr size) {
  const std::string raw = element(indices, at);
  const std::string name = fresh();
  statement(str_cat("const i64 ", name, " = p_within(p_wrap((i64)", raw, ", ", index(size), "), ", index(size), ");"));
  return loaded(name, size);
}

}  // namespace pteron::cuda
