// Fusion around products and convolutions. One walk: a product becomes the engine's operator; an addition or activation whose only operand
// from the engine is used nowhere else becomes part of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "backends/cpu/payload.h"
#include "ir/builder.h"

namespace pteron::cpu {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

constexpr std::string_view kLinear = "pteron_cpu::linear";
constexpr std::string_view kConv = "pteron_cpu::conv2d";
constexpr std::string_view kGated = "pteron_cpu::gated_conv2d";

struct Activation {
  std::string name = "none";
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// The activation that a node is; nothing for other nodes.
std::optional<Activation> activation_of(const NodeView& node) {
  const std::string& op = node.op().name;
  if (const std::optional<Bounds> bounds = clamp_bounds(node)) return Activation{"clamp", bounds->low, bounds->high};
  if (op == "aten::gelu") return Activation{node.text("approximate") == "tanh" ? "gelu_tanh" : "gelu"};
  if (op == "aten::silu") return Activation{"silu"};
  if (op == "aten::hardswish") return Activation{"hardswish"};
  if (op == "aten::hardsigmoid") return Activation{"hardsigmoid"};
  if (op == "aten::sigmoid") return Activation{"sigmoid"};
  if (op == "aten::tanh") return Activation{"tanh"};
  return std::nullopt;
}

class Fuser {
 public:
  Fuser(Graph& graph, bool gates) : graph_(graph), gates_(gates), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& builder, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    const NodeView view(graph_, *node.op, node.args);
    ValueId made = product(builder, view);
    if (!made.valid()) made = convolution(builder, view);
    if (!made.valid()) made = sum(builder, view, node);
    if (!made.valid()) made = activated(builder, view);
    if (!made.valid()) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] = uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  bool is_weight(ValueId id, size_t rank) const {
    const ir::Constant* c = constant_of(graph_, id);
    return c != nullptr && c->dtype == DType::kFloat32 && c->sizes.size() == rank && c->numel() > 0;
  }
  /// None, or a constant bias for `count` columns.
  bool is_bias(ValueId id, int64_t count) const { return !id.valid() || (is_weight(id, 1) && constant_of(graph_, id)->sizes[0] == count); }
  bool is_float(ValueId id) const { return graph_[id].type.dtype == DType::kFloat32; }

  ValueId linear(Builder& b, ValueId x, ValueId weight, ValueId bias) {
    return b.op(kLinear, {x, weight, optional_arg(bias), std::monostate(), std::string("none"), b.floating(-std::numeric_limits<double>::infinity()),
                          b.floating(std::numeric_limits<double>::infinity())});
  }

  /// A weight [k, n] seen as [n, k]. The file holds it as it is: packing reads one as fast as the other.
  ValueId turned_weight(ValueId weight) {
    const ir::Constant& c = *constant_of(graph_, weight);
    if (c.data == nullptr) return {};  // bytes that are made later have no second view
    ir::Constant made = turned(c);
    made.any_order = true;
    return add_constant(graph_, std::move(made));
  }

  ValueId product(Builder& b, const NodeView& node) {
    const std::string& op = node.op().name;
    if (op == "aten::linear") {
      const ValueId x = node.value("input"), weight = node.value("weight"), bias = node.value("bias");
      if (!is_weight(weight, 2) || !is_float(x) || graph_[x].type.rank() < 1 || !is_bias(bias, constant_of(graph_, weight)->sizes[0])) return {};
      return linear(b, x, weight, bias);
    }
    if (op == "aten::mm" || (op == "aten::matmul" && node.type("other").rank() == 2 && node.type("self").rank() >= 2)) {
      const ValueId x = node.value("self"), weight = node.value(op == "aten::mm" ? "mat2" : "other");
      if (!is_weight(weight, 2) || !is_float(x)) return {};
      const ValueId columns = turned_weight(weight);
      return columns.valid() ? linear(b, x, columns, {}) : ValueId();
    }
    if (op == "aten::addmm") {
      const ValueId x = node.value("mat1"), weight = node.value("mat2"), bias = node.value("self");
      if (!is_weight(weight, 2) || !is_float(x) || !is_bias(bias, constant_of(graph_, weight)->sizes[1]) || !is_one(node, "beta") || !is_one(node, "alpha")) return {};
      const ValueId columns = turned_weight(weight);
      return columns.valid() ? linear(b, x, columns, bias) : ValueId();
    }
    return {};
  }

  ValueId convolution(Builder& b, const NodeView& node) {
    if (node.op().name != "aten::convolution") return {};
    const ValueId x = node.value("input"), weight = node.value("weight"), bias = node.value("bias");
    if (graph_[x].type.rank() != 4 || !is_float(x) || node.boolean("transposed") || !is_weight(weight, 4)) return {};
    const ir::Constant& w = *constant_of(graph_, weight);
    if (!is_bias(bias, w.sizes[0]) || w.sizes[2] * w.sizes[3] > kMaxTaps) return {};
    if (!node.all_const("stride") || !node.all_const("padding") || !node.all_const("dilation")) return {};
    const int64_t groups = node.integer("groups");
    const bool depthwise = groups > 1 && w.sizes[1] == 1 && w.sizes[0] == groups;
    if (groups > 1 && !depthwise && (w.sizes[1] < 4 || w.sizes[0] / groups < 4)) return {};  // narrow groups waste whole panels
    if (const ValueId made = gated(b, node, w); made.valid()) return made;
    return b.op(kConv, {x, weight, optional_arg(bias), std::monostate(), pair_of(node.exprs("stride")), pair_of(node.exprs("padding")), pair_of(node.exprs("dilation")),
                        Expr(groups), std::string("none"), b.floating(-std::numeric_limits<double>::infinity()),
                        b.floating(std::numeric_limits<double>::infinity())});
  }

  /// A convolution of 1x1 windows behind a product with one factor for every channel and image (squeeze and excitation).
  ValueId gated(Builder& b, const NodeView& node, const ir::Constant& w) {
    const ValueId x = node.value("input");
    const Node* product = made_by(graph_, x, "aten::mul.Tensor");
    if (!gates_ || product == nullptr || x.index >= uses_.size() || uses_[x.index] != 1 || w.sizes[2] * w.sizes[3] != 1 || node.integer("groups") != 1) return {};
    const auto all_are = [&](std::string_view name, int64_t value) { return std::ranges::all_of(node.integers(name), [&](int64_t v) { return v == value; }); };
    if (!all_are("stride", 1) || !all_are("padding", 0)) return {};
    const NodeView factors(graph_, *product->op, product->args);
    if (!factors.is_value("other")) return {};
    const ValueId left = factors.value("self"), right = factors.value("other");
    const std::vector<Expr> sizes = graph_[x].type.sizes;
    constexpr int64_t kLeastPixels = 12;  // fewer are multiplied faster than the weights
    if (sizes[2].is_const() && sizes[3].is_const() && sizes[2].value() * sizes[3].value() < kLeastPixels) return {};
    for (const auto& [image, gate] : {std::pair(left, right), std::pair(right, left)}) {
      const ir::TensorType& type = graph_[gate].type;
      if (graph_[image].type.sizes != sizes || !is_float(image) || !is_float(gate) || graph_[image].constant.valid() || type.rank() != 4) continue;
      if (!(type.sizes[0] == sizes[0]) || !(type.sizes[1] == sizes[1]) || !dim_is(type.sizes[2], 1) || !dim_is(type.sizes[3], 1)) continue;
      return b.op(kGated, {image, gate, node.value("weight"), optional_arg(node.value("bias")), std::monostate(), std::string("none"),
                           b.floating(-std::numeric_limits<double>::infinity()), b.floating(std::numeric_limits<double>::infinity())});
    }
    return {};
  }

  /// The engine's node that makes `id`, if nothing else uses it.
  const Node* own_node(ValueId id) const {
    if (!id.valid() || !graph_[id].producer.valid() || id.index >= uses_.size() || uses_[id.index] != 1) return nullptr;
    const Node& node = graph_[graph_[id].producer];
    return node.op->name == kLinear || node.op->name == kConv || node.op->name == kGated ? &node : nullptr;
  }

  ValueId sum(Builder& b, const NodeView& node, const Node& self) {
    if (node.op().name != "aten::add.Tensor" || !node.is_value("other") || !is_one(node, "alpha")) return {};
    const ValueId left = node.value("self"), right = node.value("other");
    const ir::TensorType& type = graph_[self.outputs[0]].type;
    for (const auto& [sum, other] : {std::pair(left, right), std::pair(right, left)}) {
      const Node* open = own_node(sum);
      if (open == nullptr || sum == other || graph_[other].type.dtype != DType::kFloat32) continue;
      if (graph_[sum].type.sizes != type.sizes || graph_[other].type.sizes != type.sizes) continue;
      const NodeView view(graph_, *open->op, open->args);
      if (view.value("residual").valid()) continue;
      if (open->op->name == kConv && view.integer("groups") > 1) continue;
      std::vector<Arg> args = open->args;
      set_arg(*open, args, "residual", other);
      const std::string activation(view.text("activation"));
      if (activation != "none") set_arg(*open, args, "activation", activation + std::string(kThenResidual));
      return b.op(open->op->name, std::move(args));
    }
    return {};
  }

  ValueId activated(Builder& b, const NodeView& node) {
    const std::optional<Activation> activation = activation_of(node);
    if (!activation) return {};
    const Node* open = own_node(node.value("self"));
    if (open == nullptr || NodeView(graph_, *open->op, open->args).text("activation") != "none") return {};
    std::vector<Arg> args = open->args;
    set_arg(*open, args, "activation", activation->name);
    set_arg(*open, args, "low", b.floating(activation->low));
    set_arg(*open, args, "high", b.floating(activation->high));
    return b.op(open->op->name, std::move(args));
  }

  Graph& graph_;
  bool gates_;
  std::vector<uint32_t> uses_;
};

}  // namespace

Result<bool> fuse(Graph& graph, const ir::Catalog& engine, bool gates) {
  Fuser fuser(graph, gates);
  return ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) { return fuser.visit(builder, id, replacements); });
}

}  // namespace pteron::cpu
