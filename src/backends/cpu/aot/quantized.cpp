// Graphs with quantize and dequantize nodes. One walk: a product of dequantized operands becomes the engine's product of integers, with what follows
// it (bias, residual, activation, quantization) inside; operators that only move or compare values run on the integers; what is left of the
// quantizing becomes arithmetic that fuse_pointwise() merges. Constant weights are never made wider, and those of 4 bits are packed two to a byte.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "backends/cpu/payload.h"
#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::cpu {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Constant;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

constexpr std::string_view kQLinear = "pteron_cpu::qlinear";
constexpr std::string_view kQConv = "pteron_cpu::qconv2d";
constexpr std::string_view kQuantize = "pteron::quantize";
constexpr std::string_view kDequantize = "pteron::dequantize";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Calls fn(value) for every element of a constant of integers or floats that has bytes; false if there is none such, or fn says so.
template <typename Fn>
bool each_element(const Constant& c, Fn&& fn) {
  if (c.data == nullptr || c.sizes.size() > kMaxRank) return false;
  const size_t bytes = dtype_size(c.dtype);
  std::vector<int64_t> index(c.sizes.size(), 0);
  const int64_t count = c.numel();
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* at = c.data + offset * static_cast<int64_t>(bytes);
    const auto read = [&]<typename T>(T value) {
      std::memcpy(&value, at, sizeof value);
      return fn(static_cast<double>(value));
    };
    bool go = false;
    switch (c.dtype) {
      case DType::kInt8: go = read(int8_t{}); break;
      case DType::kUInt8: go = read(uint8_t{}); break;
      case DType::kInt16: go = read(int16_t{}); break;
      case DType::kInt32: go = read(int32_t{}); break;
      case DType::kInt64: go = read(int64_t{}); break;
      case DType::kFloat32: go = read(float{}); break;
      case DType::kFloat64: go = read(double{}); break;
      default: break;
    }
    if (!go) return false;
    for (size_t d = index.size(); d-- > 0;) {
      offset += c.strides[d];
      if (++index[d] < c.sizes[d]) break;
      offset -= c.strides[d] * c.sizes[d];
      index[d] = 0;
    }
  }
  return true;
}

std::optional<std::vector<float>> floats_of(const Constant& c) {
  std::vector<float> out;
  const bool whole = each_element(c, [&](double v) {
    out.push_back(static_cast<float>(v));
    return true;
  });
  return whole ? std::optional(std::move(out)) : std::nullopt;
}

/// Rows of values from -8 to 7, two to a byte, the first in the low half, as value + 8. Requires: an even number of columns.
Result<Buffer> pack_nibbles(const Constant& c) {
  const int64_t n = c.sizes[0], k = c.sizes[1];
  PTERON_ASSIGN(Buffer out, Buffer::create(static_cast<size_t>(n * k / 2)));
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  const auto* from = reinterpret_cast<const int8_t*>(c.data);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; j += 2) {
      const int low = from[i * c.strides[0] + j * c.strides[1]] + 8, high = from[i * c.strides[0] + (j + 1) * c.strides[1]] + 8;
      *to++ = static_cast<uint8_t>(low | high << 4);
    }
  }
  return out;
}

/// A dequantize node.
struct Dequantized {
  ValueId x;
  ValueId scale;
  ValueId zero;  ///< invalid: 0
};

/// Parameters that are numbers.
struct Scalars {
  double scale = 0;
  int64_t zero = 0;
};

class QuantizedMatcher {
 public:
  QuantizedMatcher(Graph& graph, const ir::Catalog& catalog) : graph_(graph), catalog_(catalog), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    if (node.outputs.empty() || graph_[node.outputs[0]].kind != ir::ValueKind::kTensor) return Rewrite::kKeep;
    for (size_t k = 1; k < node.outputs.size(); ++k) {
      if (uses(node.outputs[k]) != 0) return Rewrite::kKeep;
    }
    const TensorType type = graph_[node.outputs[0]].type;
    const uint32_t count = uses(node.outputs[0]);
    const size_t outputs = node.outputs.size();
    const ValueId made = translate(b, id);
    if (!made.valid() || !b.status().ok()) return Rewrite::kKeep;
    if (graph_[made].type.sizes != type.sizes || graph_[made].type.dtype != type.dtype) return Rewrite::kKeep;
    note(made, uses(made) + count);
    replacements.assign(outputs, ValueId());
    replacements[0] = made;
    return Rewrite::kReplace;
  }

 private:
  ValueId translate(Builder& b, NodeId id) {
    const Node& node = graph_[id];
    const std::vector<Arg> args = node.args;
    const NodeView n(graph_, *node.op, args);
    const std::string name = node.op->name;
    if (name == kQuantize) return quantized(b, n);
    if (name == "aten::linear") return linear(b, n);
    if (name == "aten::addmm" || name == "aten::mm") return product(b, n, name);
    if (name == "aten::convolution") return convolution(b, n);
    if (name == "aten::embedding") return embedding(b, n);
    if (name == "aten::mul.Tensor") return scaled(b, n);
    if (name == "aten::add.Tensor") return added(b, n, graph_[node.outputs[0]].type);
    if (name == "aten::relu" || name == "aten::hardtanh" || name == "aten::clamp") return activated(b, n);
    return moved(b, node, n, name);
  }

  uint32_t uses(ValueId id) const { return id.index < uses_.size() ? uses_[id.index] : 0; }
  const Constant* constant(ValueId id) const { return constant_of(graph_, id); }
  const Node* producer(ValueId id, std::string_view name) const { return made_by(graph_, id, name); }
  std::optional<double> scalar(ValueId id) const {
    const Constant* c = constant(id);
    double value = 0;
    const auto take = [&](double v) {
      value = v;
      return true;
    };
    return c != nullptr && c->numel() == 1 && each_element(*c, take) ? std::optional(value) : std::nullopt;
  }
  std::optional<Dequantized> dequantized(ValueId id) const {
    const Node* node = producer(id, kDequantize);
    if (node == nullptr) return std::nullopt;
    const NodeView n(graph_, *node->op, node->args);
    return Dequantized{n.value("self"), n.value("scale"), n.value("zero_point")};
  }
  /// Parameters of a whole tensor, known now.
  std::optional<Scalars> scalars(ValueId scale, ValueId zero) const {
    const std::optional<double> s = scalar(scale), z = zero.valid() ? scalar(zero) : 0.0;
    if (!s || !z || !(*s > 0) || !std::isfinite(*s) || *z != std::floor(*z) || std::fabs(*z) > 255) return std::nullopt;
    return Scalars{*s, static_cast<int64_t>(*z)};
  }
  bool all_zero(ValueId id) const {
    if (!id.valid()) return true;
    const Constant* c = constant(id);
    return c != nullptr && each_element(*c, [](double v) { return v == 0; });
  }

  /// A constant int8 weight and its scales.
  struct Weight {
    const Constant* bytes = nullptr;
    std::vector<float> scales;  ///< [rows, groups]
    int64_t groups = 1;
  };
  /// `id` as dequantize(constant), with scales per tensor, row, or group of columns, and no zero points.
  std::optional<Weight> weight(ValueId id, size_t rank) const {
    const std::optional<Dequantized> dq = dequantized(id);
    if (!dq) return std::nullopt;
    const Constant *c = constant(dq->x), *s = constant(dq->scale);
    if (c == nullptr || s == nullptr || c->data == nullptr || c->dtype != DType::kInt8 || c->sizes.size() != rank || c->numel() == 0 || !all_zero(dq->zero)) return std::nullopt;
    std::optional<std::vector<float>> values = floats_of(*s);
    if (!values || values->empty()) return std::nullopt;
    Weight made{c, std::move(*values), 1};
    if (made.scales.size() == 1) {
      made.scales.assign(static_cast<size_t>(c->sizes[0]), made.scales[0]);
      return made;
    }
    if (s->sizes.size() != rank || s->sizes[0] != c->sizes[0]) return std::nullopt;
    for (size_t d = 2; d < rank; ++d) {
      if (s->sizes[d] != 1) return std::nullopt;
    }
    made.groups = s->sizes[1];
    if (rank != 2 && made.groups != 1) return std::nullopt;
    return made.groups > 0 && c->sizes[1] % made.groups == 0 ? std::optional(std::move(made)) : std::nullopt;
  }
  bool is_bias(ValueId id, int64_t count) const {
    const Constant* c = constant(id);
    return !id.valid() || (c != nullptr && c->dtype == DType::kFloat32 && c->sizes.size() == 1 && c->sizes[0] == count);
  }
  ValueId floats(Builder& b, std::vector<int64_t> sizes, const std::vector<float>& values, std::string_view name) {
    return b.constant(DType::kFloat32, std::move(sizes), std::as_bytes(std::span(values)), name);
  }

  /// The weight as the product's operand; *bits says how it is stored.
  ValueId operand(const Weight& w, int64_t* bits) {
    const Constant& c = *w.bytes;
    const bool even = c.sizes[1] % 2 == 0 && c.sizes[1] / w.groups % 2 == 0;
    const bool nibbles = even && each_element(c, [](double v) { return v >= -8 && v <= 7; });
    *bits = nibbles ? 4 : 8;
    if (!nibbles) return add_constant(graph_, c);
    Constant packed;
    packed.name = c.name + ".packed4";
    packed.dtype = DType::kUInt8;
    packed.sizes = {c.sizes[0], c.sizes[1] / 2};
    packed.strides = {c.sizes[1] / 2, 1};
    packed.lazy = [source = c] { return pack_nibbles(source); };
    return add_constant(graph_, std::move(packed));
  }

  std::vector<Arg> open_end(Builder& b) {
    return {std::vector<Expr>(), std::string("none"), b.floating(-kInfinity), b.floating(kInfinity), b.floating(1), Expr(0), Expr(-128), Expr(127), DType::kFloat32};
  }

  ValueId make_linear(Builder& b, ValueId x, ValueId x_scale, ValueId x_zero, const Weight& w, ValueId bias) {
    int64_t bits = 8;
    const int64_t rows = w.bytes->sizes[0];
    const ValueId bytes = operand(w, &bits);
    std::vector<Arg> args{x, optional_arg(x_scale), optional_arg(x_zero), bytes, floats(b, {rows, w.groups}, w.scales, "scales"), optional_arg(bias), std::monostate(), Expr(bits),
                          b.floating(1), Expr(0)};
    for (Arg& arg : open_end(b)) args.push_back(std::move(arg));
    return b.op(kQLinear, std::move(args));
  }

  /// One parameter for all of x, or one per row.
  bool is_row_parameter(ValueId id, const TensorType& x) const {
    const std::vector<Expr>& sizes = graph_[id].type.sizes;
    if (dim_is(ir::numel_of(sizes), 1)) return true;
    return sizes.size() == x.sizes.size() && std::equal(sizes.begin(), sizes.end() - 1, x.sizes.begin()) && dim_is(sizes.back(), 1);
  }

  ValueId linear_of(Builder& b, ValueId x, ValueId weight_value, ValueId bias) {
    const std::optional<Weight> w = weight(weight_value, 2);
    if (!w || !is_bias(bias, w->bytes->sizes[0]) || graph_[x].type.rank() < 1 || graph_[x].type.dtype != DType::kFloat32) return {};
    const std::optional<Dequantized> dq = dequantized(x);
    if (!dq || !is_byte(graph_[dq->x].type.dtype) || !is_row_parameter(dq->scale, graph_[x].type) || (dq->zero.valid() && !is_row_parameter(dq->zero, graph_[x].type))) {
      return make_linear(b, x, {}, {}, *w, bias);
    }
    return make_linear(b, dq->x, dq->scale, dq->zero, *w, bias);
  }

  ValueId linear(Builder& b, const NodeView& n) { return linear_of(b, n.value("input"), n.value("weight"), n.value("bias")); }

  /// mm(x, permute(dequantize(w))).
  ValueId product(Builder& b, const NodeView& n, const std::string& name) {
    const bool with_bias = name == "aten::addmm";
    const ValueId x = n.value(with_bias ? "mat1" : "self"), other = n.value("mat2");
    if (with_bias && !(is_one(n, "beta") && is_one(n, "alpha"))) return {};
    const Node* turn = producer(other, "aten::permute");
    if (turn == nullptr) turn = producer(other, "aten::t");
    if (turn == nullptr) turn = producer(other, "aten::transpose.int");
    if (turn == nullptr) return {};
    const ValueId rows = std::get<ValueId>(turn->args[0]);
    if (graph_[rows].type.rank() != 2 || graph_[rows].type.sizes[0] != graph_[other].type.sizes[1] || graph_[rows].type.sizes[1] != graph_[other].type.sizes[0]) return {};
    if (turn->op->name == "aten::permute" && turn->args.size() > 1) {
      const NodeView t(graph_, *turn->op, turn->args);
      if (!t.all_const("dims") || (t.integers("dims")[0] + 2) % 2 != 1) return {};
    }
    if (turn->op->name == "aten::transpose.int") {
      const NodeView t(graph_, *turn->op, turn->args);
      if ((t.integer("dim0") + 2) % 2 == (t.integer("dim1") + 2) % 2) return {};
    }
    return linear_of(b, x, rows, with_bias ? n.value("self") : ValueId());
  }

  ValueId convolution(Builder& b, const NodeView& n) {
    const ValueId bias = n.value("bias");
    const std::optional<Dequantized> x = dequantized(n.value("input"));
    if (!x || n.boolean("transposed") || graph_[x->x].type.rank() != 4 || !is_byte(graph_[x->x].type.dtype)) return {};
    const std::optional<Scalars> in = scalars(x->scale, x->zero);
    const std::optional<Weight> w = weight(n.value("weight"), 4);
    if (!in || !w || !is_bias(bias, w->bytes->sizes[0]) || w->bytes->sizes[2] * w->bytes->sizes[3] > kMaxTaps) return {};
    if (!n.all_const("stride") || !n.all_const("padding") || !n.all_const("dilation") || !n.expr("groups").is_const()) return {};
    std::vector<Arg> args{x->x, add_constant(graph_, *w->bytes), floats(b, {w->bytes->sizes[0]}, w->scales, "scales"), optional_arg(bias), std::monostate(), b.floating(in->scale), Expr(in->zero),
                          b.floating(1), Expr(0), pair_of(n.exprs("stride")), pair_of(n.exprs("padding")), pair_of(n.exprs("dilation")), n.expr("groups")};
    for (Arg& arg : open_end(b)) args.push_back(std::move(arg));
    return b.op(kQConv, std::move(args));
  }

  /// Rows of a quantized table are looked up as they are, and their scales.
  ValueId embedding(Builder& b, const NodeView& n) {
    const std::optional<Weight> w = weight(n.value("weight"), 2);
    if (!w) return {};
    std::vector<Arg> args(n.args().begin(), n.args().end());
    args[0] = add_constant(graph_, *w->bytes);
    const ValueId rows = add_node(b, catalog_, "aten::embedding", args);
    args[0] = floats(b, {w->bytes->sizes[0], w->groups}, w->scales, "scales");
    const ValueId scales = rows.valid() ? add_node(b, catalog_, "aten::embedding", args) : rows;
    return scales.valid() ? add_node(b, catalog_, kDequantize, {rows, scales, std::monostate()}) : scales;
  }

  /// Casts of 8-bit values to `to`, or such values themselves seen through it.
  ValueId uncast(ValueId id, DType to) const {
    const Node* cast = producer(id, "aten::_to_copy");
    if (cast == nullptr || graph_[id].type.dtype != to) return {};
    return std::get<ValueId>(cast->args[0]);
  }
  /// A weight [k, n] in bytes that a product reads as `to`, seen as [n, k].
  std::optional<Constant> turned_bytes(ValueId id, DType to) const {
    const ValueId bytes = uncast(id, to);
    const Constant* c = constant(bytes);
    if (c == nullptr || c->data == nullptr || c->dtype != DType::kInt8 || c->sizes.size() != 2 || c->numel() == 0) return std::nullopt;
    return turned(*c);
  }
  /// A constant vector of `count` floats, however many dims of 1 it has in front.
  std::optional<std::vector<float>> vector(ValueId id, int64_t count) const {
    const Constant* c = constant(id);
    if (c == nullptr || c->dtype != DType::kFloat32 || c->numel() != count || c->sizes.empty() || c->sizes.back() != count) return std::nullopt;
    return floats_of(*c);
  }

  /// (x @ w) * scales, as weight-only quantization writes it; ((int) x @ w) * scales of rows * scales, as dynamic quantization does.
  ValueId scaled(Builder& b, const NodeView& n) {
    if (!n.is_value("self") || !n.is_value("other")) return {};
    for (const auto& [sum, other] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
      const ValueId made = scaled_by(b, sum, other);
      if (made.valid()) return made;
    }
    return {};
  }
  ValueId scaled_by(Builder& b, ValueId sum, ValueId scales) {
    const TensorType& type = graph_[sum].type;
    if (type.rank() != 2 || !type.sizes[1].is_const()) return {};
    const std::optional<std::vector<float>> values = vector(scales, type.sizes[1].value());
    if (!values) return {};
    if (const Node* mm = producer(sum, "aten::mm"); mm != nullptr) {
      const NodeView p(graph_, *mm->op, mm->args);
      const std::optional<Constant> w = turned_bytes(p.value("mat2"), DType::kFloat32);
      if (!w || p.type("self").dtype != DType::kFloat32) return {};
      return make_linear(b, p.value("self"), {}, {}, Weight{&*w, *values, 1}, {});
    }
    const Node* by_rows = producer(sum, "aten::mul.Tensor");
    if (by_rows == nullptr) return {};
    const NodeView r(graph_, *by_rows->op, by_rows->args);
    if (!r.is_value("self") || !r.is_value("other")) return {};
    const ValueId row_scales = r.value("other");
    const Node* mm = producer(uncast(r.value("self"), DType::kFloat32), "aten::mm");
    if (mm == nullptr) return {};
    const NodeView p(graph_, *mm->op, mm->args);
    const ValueId x = uncast(p.value("self"), DType::kInt32);
    const std::optional<Constant> w = turned_bytes(p.value("mat2"), DType::kInt32);
    if (!x.valid() || !w || !is_byte(graph_[x].type.dtype) || graph_[row_scales].type.dtype != DType::kFloat32 || !is_row_parameter(row_scales, graph_[x].type)) return {};
    return make_linear(b, x, row_scales, {}, Weight{&*w, *values, 1}, {});
  }

  /// The engine's node that makes `id`, if nothing else uses it and it still makes floats without an activation.
  const Node* open_node(ValueId id, bool with_activation) const {
    if (!id.valid() || !graph_[id].producer.valid() || uses(id) != 1) return nullptr;
    const Node& node = graph_[graph_[id].producer];
    if (node.op->name != kQLinear && node.op->name != kQConv) return nullptr;
    const NodeView n(graph_, *node.op, node.args);
    return graph_[id].type.dtype == DType::kFloat32 && (with_activation || n.text("activation") == "none") ? &node : nullptr;
  }

  /// A view of [rows, n] that keeps the columns: what is added behind it may be added before.
  const Node* view_of_rows(ValueId id) const {
    if (uses(id) != 1) return nullptr;
    const Node* view = producer(id, "aten::view");
    if (view == nullptr) return nullptr;
    const TensorType &from = graph_[std::get<ValueId>(view->args[0])].type, &to = graph_[id].type;
    return from.rank() > 0 && to.rank() > 0 && from.sizes.back() == to.sizes.back() ? view : nullptr;
  }

  /// `made` seen through the view again, if there is one.
  ValueId behind_view(Builder& b, const Node* view, ValueId made) {
    if (view == nullptr || !made.valid()) return made;
    note(made, 1);
    std::vector<Arg> args = view->args;
    args[0] = made;
    return add_node(b, catalog_, "aten::view", std::move(args));
  }

  ValueId added(Builder& b, const NodeView& n, const TensorType& type) {
    if (!n.is_value("self") || !n.is_value("other") || !is_one(n, "alpha")) return {};
    for (const auto& [sum, other] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
      if (const ValueId made = biased(b, sum, other); made.valid()) return made;
      if (const ValueId made = with_residual(b, sum, other, type); made.valid()) return made;
    }
    for (const auto& [sum, other] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
      if (const ValueId made = reopened_with(b, sum, other, type); made.valid()) return made;
    }
    return {};
  }
  ValueId biased(Builder& b, ValueId sum, ValueId bias) {
    const Node* view = view_of_rows(sum);
    const ValueId base = view != nullptr ? std::get<ValueId>(view->args[0]) : sum;
    const Node* open = open_node(base, false);
    if (open == nullptr || open->op->name != kQLinear) return {};
    const TensorType& type = graph_[base].type;
    const NodeView p(graph_, *open->op, open->args);
    if (p.value("bias").valid() || p.value("residual").valid() || !type.sizes.back().is_const()) return {};
    const std::optional<std::vector<float>> values = vector(bias, type.sizes.back().value());
    if (!values || graph_[bias].type.rank() > graph_[sum].type.rank()) return {};
    std::vector<Arg> args = open->args;
    set_arg(*open, args, "bias", floats(b, {static_cast<int64_t>(values->size())}, *values, "bias"));
    const ValueId made = b.op(kQLinear, std::move(args));
    return behind_view(b, view, made);
  }
  void note(ValueId id, uint32_t count) {
    if (id.index >= uses_.size()) uses_.resize(id.index + 1, 0);
    uses_[id.index] = count;
  }
  ValueId with_residual(Builder& b, ValueId sum, ValueId other, const TensorType& type) {
    const Node* open = open_node(sum, false);
    if (open == nullptr || sum == other || graph_[sum].type.sizes != type.sizes || graph_[other].type.sizes != type.sizes || graph_[other].type.dtype != DType::kFloat32) return {};
    const NodeView p(graph_, *open->op, open->args);
    if (p.value("residual").valid()) return {};
    std::vector<Arg> args = open->args;
    set_residual(b, *open, args, other);
    return b.op(open->op->name, std::move(args));
  }
  void set_residual(Builder& b, const Node& open, std::vector<Arg>& args, ValueId other) {
    set_arg(open, args, "residual", other);
    if (const std::optional<Dequantized> dq = dequantized(other); dq && is_byte(graph_[dq->x].type.dtype)) {
      if (const std::optional<Scalars> in = scalars(dq->scale, dq->zero)) {
        set_arg(open, args, "residual", dq->x);
        set_arg(open, args, "residual_scale", b.floating(in->scale));
        set_arg(open, args, "residual_zero", Expr(in->zero));
      }
    }
  }

  /// The arguments of the engine's node whose quantized result is dequantized in `id` and read nowhere else, as a node that makes these floats
  /// itself and can go on from there; *from is the node.
  std::optional<std::vector<Arg>> reopened(Builder& b, ValueId id, const Node** from) {
    const std::optional<Dequantized> dq = dequantized(id);
    if (!dq || uses(id) != 1 || uses(dq->x) != 1 || !graph_[dq->x].producer.valid()) return std::nullopt;
    const Node& node = graph_[graph_[dq->x].producer];
    const std::optional<Scalars> in = scalars(dq->scale, dq->zero);
    if (!in || (node.op->name != kQLinear && node.op->name != kQConv) || !is_byte(graph_[dq->x].type.dtype)) return std::nullopt;
    const NodeView n(graph_, *node.op, node.args);
    if (n.value("residual").valid() || !n.exprs("middle").empty()) return std::nullopt;
    std::vector<Arg> args = node.args;
    const bool clamps = n.text("activation") == "clamp";
    const double middle[] = {clamps ? n.number("low") : -kInfinity, clamps ? n.number("high") : kInfinity, n.number("inverse"), n.number("zero"), n.number("least"),
                             n.number("most"), static_cast<double>(in->zero), in->scale};
    std::vector<Expr> list;
    for (const double v : middle) list.push_back(b.floating(v));
    set_arg(node, args, "middle", std::move(list));
    std::vector<Arg> end = open_end(b);
    const auto first = static_cast<size_t>(node.op->schema.find("activation"));
    for (size_t i = 1; i < end.size(); ++i) args[first + i - 1] = std::move(end[i]);
    *from = &node;
    return args;
  }
  ValueId reopened_with(Builder& b, ValueId sum, ValueId other, const TensorType& type) {
    if (sum == other || graph_[sum].type.sizes != type.sizes || graph_[other].type.sizes != type.sizes || graph_[other].type.dtype != DType::kFloat32) return {};
    const Node* node = nullptr;
    std::optional<std::vector<Arg>> args = reopened(b, sum, &node);
    if (!args) return {};
    set_residual(b, *node, *args, other);
    return b.op(node->op->name, std::move(*args));
  }

  ValueId activated(Builder& b, const NodeView& n) {
    const std::optional<Bounds> bounds = clamp_bounds(n);
    if (!bounds) return {};
    const ValueId self = n.value("self");
    const Node* view = view_of_rows(self);
    const ValueId base = view != nullptr ? std::get<ValueId>(view->args[0]) : self;
    const Node* open = open_node(base, false);
    std::vector<Arg> args;
    if (open != nullptr) {
      args = open->args;
    } else if (std::optional<std::vector<Arg>> again = reopened(b, base, &open)) {
      args = std::move(*again);
    } else {
      return {};
    }
    set_arg(*open, args, "activation", std::string("clamp"));
    set_arg(*open, args, "low", b.floating(bounds->low));
    set_arg(*open, args, "high", b.floating(bounds->high));
    const ValueId made = b.op(open->op->name, std::move(args));
    return behind_view(b, view, made);
  }

  /// Quantizing what was just dequantized the same way changes nothing; quantizing a sum becomes part of the product.
  ValueId quantized(Builder& b, const NodeView& n) {
    const std::optional<Scalars> by = scalars(n.value("inverse"), n.value("zero_point"));
    if (!by || !n.expr("quant_min").is_const() || !n.expr("quant_max").is_const()) return {};
    const ValueId self = n.value("self");
    const DType dtype = n.dtype("dtype", DType::kInt8);
    const int64_t least = n.integer("quant_min"), most = n.integer("quant_max");
    if (const std::optional<Dequantized> dq = dequantized(self); dq && graph_[dq->x].type.dtype == dtype) {
      const std::optional<Scalars> in = scalars(dq->scale, dq->zero);
      // 8-bit levels come back exactly as long as both factors make 1 up to a small part of a level.
      if (in && is_byte(dtype) && in->zero == by->zero && std::fabs(in->scale * by->scale - 1) < 1e-4 && in_range(dq->x, least, most)) return dq->x;
    }
    const Node* open = open_node(self, true);
    if (open == nullptr || !is_byte(dtype)) return {};
    const bool fits = dtype == DType::kInt8 ? least >= -128 && most <= 127 : least >= 0 && most <= 255;
    if (!fits || least > most) return {};
    std::vector<Arg> args = open->args;
    set_arg(*open, args, "inverse", b.floating(by->scale));
    set_arg(*open, args, "zero", Expr(by->zero));
    set_arg(*open, args, "least", Expr(least));
    set_arg(*open, args, "most", Expr(most));
    set_arg(*open, args, "dtype", dtype);
    return b.op(open->op->name, std::move(args));
  }

  /// True if all values of quantized x lie between the bounds: its own dtype says so, or how it was made.
  bool in_range(ValueId x, int64_t least, int64_t most) const {
    const bool is_signed = graph_[x].type.dtype == DType::kInt8;
    if (least <= (is_signed ? -128 : 0) && most >= (is_signed ? 127 : 255)) return true;
    const Node* node = graph_[x].producer.valid() ? &graph_[graph_[x].producer] : nullptr;
    while (node != nullptr && (node->op->is_view() || node->op->name.starts_with("aten::max_pool2d"))) {
      const ValueId from = std::get<ValueId>(node->args[0]);
      node = graph_[from].producer.valid() ? &graph_[graph_[from].producer] : nullptr;
    }
    if (node == nullptr) return false;
    const NodeView n(graph_, *node->op, node->args);
    const bool engine = node->op->name == kQConv || node->op->name == kQLinear;
    if (!engine && node->op->name != kQuantize) return false;
    return n.integer(engine ? "least" : "quant_min") >= least && n.integer(engine ? "most" : "quant_max") <= most;
  }

  /// Operators that move or compare values run on the integers, and the result is dequantized.
  ValueId moved(Builder& b, const Node& node, const NodeView& n, const std::string& name) {
    if (name == "aten::cat") return joined(b, n);
    const bool pools = name == "aten::max_pool2d" || name == "aten::max_pool2d_with_indices";
    if (!pools && !(node.op->is_view() && node.outputs.size() == 1)) return {};
    const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (self == nullptr || !self->valid()) return {};
    const std::optional<Dequantized> dq = dequantized(*self);
    if (!dq || !is_byte(graph_[dq->x].type.dtype) || !scalars(dq->scale, dq->zero)) return {};
    if (constant(dq->x) != nullptr) return {};  // views of weights are looked through where products are
    std::vector<Arg> args(n.args().begin(), n.args().end());
    args[0] = dq->x;
    const ValueId made = add_node(b, catalog_, name, std::move(args));
    return made.valid() ? dequantize(b, made, *dq) : made;
  }
  ValueId dequantize(Builder& b, ValueId x, const Dequantized& like) { return add_node(b, catalog_, kDequantize, {x, like.scale, optional_arg(like.zero)}); }

  ValueId joined(Builder& b, const NodeView& n) {
    const std::vector<ValueId> parts = n.values("tensors");
    std::optional<Dequantized> first;
    std::optional<Scalars> same;
    std::vector<ValueId> bytes;
    for (const ValueId part : parts) {
      const std::optional<Dequantized> dq = dequantized(part);
      if (!dq || !is_byte(graph_[dq->x].type.dtype)) return {};
      const std::optional<Scalars> in = scalars(dq->scale, dq->zero);
      if (!in || (same && (same->scale != in->scale || same->zero != in->zero || graph_[dq->x].type.dtype != graph_[first->x].type.dtype))) return {};
      if (!first) first = dq, same = in;
      bytes.push_back(dq->x);
    }
    if (!first) return {};
    std::vector<Arg> args(n.args().begin(), n.args().end());
    args[0] = bytes;
    const ValueId made = add_node(b, catalog_, "aten::cat", std::move(args));
    return made.valid() ? dequantize(b, made, *first) : made;
  }

  Graph& graph_;
  const ir::Catalog& catalog_;
  std::vector<uint32_t> uses_;
};

/// Parameters that broadcast: one for all, or one for each index of a dim.
bool broadcasts(const Graph& graph, ValueId parameter, const TensorType& x) {
  if (!parameter.valid()) return true;
  const std::vector<Expr>& sizes = graph[parameter].type.sizes;
  if (sizes.empty()) return true;
  if (sizes.size() != x.sizes.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!dim_is(sizes[d], 1) && sizes[d] != x.sizes[d]) return false;
  }
  return true;
}

}  // namespace

Result<bool> fuse_quantized(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog) {
  QuantizedMatcher matcher(graph, catalog);
  return ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(builder, id, replacements); });
}

Result<bool> spell_quantized(Graph& graph, const ir::Catalog& catalog) {
  return ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) -> Result<Rewrite> {
    const Node& node = graph[id];
    const bool to_bytes = node.op->name == kQuantize;
    if (!to_bytes && node.op->name != kDequantize) return Rewrite::kKeep;
    const NodeView n(graph, *node.op, node.args);
    const ValueId x = n.value("self"), scale = n.value(to_bytes ? "inverse" : "scale"), zero = n.value("zero_point");
    if (graph[x].constant.valid() || !broadcasts(graph, scale, graph[x].type) || !broadcasts(graph, zero, graph[x].type)) return Rewrite::kKeep;
    const TensorType type = graph[node.outputs[0]].type;
    if (to_bytes && !is_byte(type.dtype)) return Rewrite::kKeep;
    if (!to_bytes && !is_byte(graph[x].type.dtype)) return Rewrite::kKeep;
    const auto shift = [&](std::string_view name, ValueId v) { return zero.valid() ? b.op(name, {v, zero}) : v; };
    ValueId y;
    if (to_bytes) {
      const bool late = n.boolean("late");
      const Expr least = n.expr("quant_min"), most = n.expr("quant_max");
      y = b.op("aten::mul.Tensor", {x, scale});
      y = late ? shift("aten::add.Tensor", b.op("aten::round", {y})) : b.op("aten::round", {shift("aten::add.Tensor", y)});
      y = b.op("aten::_to_copy", {b.op("aten::clamp", {y, least, most}), type.dtype});
    } else {
      y = b.op("aten::mul.Tensor", {shift("aten::sub.Tensor", b.op("aten::_to_copy", {x, DType::kFloat32})), scale});
    }
    if (!b.status().ok() || graph[y].type.sizes != type.sizes || graph[y].type.dtype != type.dtype) return Rewrite::kKeep;
    replacements = {y};
    return Rewrite::kReplace;
  });
}

}  // namespace pteron::cpu
