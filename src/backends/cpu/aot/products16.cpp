// Products and convolutions with weights of 16 bits: those in float32 if the program is compiled for bfloat16, and those that the archive has in
// bfloat16 or float16. Weights become constants in the order that the kernels read; sums, bias, residual and activation are float32.
#include <limits>
#include <string>
#include <unordered_map>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "backends/cpu/payload.h"
#include "base/str_cat.h"
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
using ir::ValueId;

constexpr std::string_view kLinear16 = "pteron_cpu::linear16";
constexpr std::string_view kConv16 = "pteron_cpu::conv2d16";
/// Below these sizes whole panels and chunks of the depth are mostly padding.
constexpr int64_t kLeastColumns = 8, kLeastDepth = 16;

class Narrower {
 public:
  Narrower(Graph& graph, bool float_too) : graph_(graph), float_too_(float_too) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    const NodeView view(graph_, *node.op, node.args);
    const std::string& op = node.op->name;
    ValueId made;
    if (float_too_ && op == "pteron_cpu::linear") made = fused_linear(b, view);
    if (float_too_ && op == "pteron_cpu::conv2d") made = fused_conv(b, view);
    if (op == "aten::linear" || op == "aten::mm" || op == "aten::addmm") made = half_linear(b, view);
    if (op == "aten::convolution") made = half_conv(b, view);
    if (!made.valid()) return Rewrite::kKeep;
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  /// The constant of `id` with dims in `order`; made once for each.
  ValueId convert(ValueId id, std::vector<size_t> order, DType to) {
    const ir::ConstantId source = graph_[id].constant;
    std::string key = str_cat(source.index, dtype_name(to));
    for (const size_t d : order) key += std::to_string(d);
    const auto known = made_.find(key);
    if (known != made_.end()) return known->second;
    const Constant& from = (*graph_.program)[source];
    Constant c = reordered(from, std::move(order), to);
    c.name = str_cat(from.name, ".", dtype_name(to));
    return made_[key] = add_constant(graph_, std::move(c));
  }

  ValueId fused_linear(Builder& b, const NodeView& node) {
    const Constant* w = weight_of(graph_, node.value("weight"), DType::kFloat32, 2);
    if (w == nullptr || w->sizes[0] < kLeastColumns || w->sizes[1] < kLeastDepth) return {};
    std::vector<Arg> args(node.args().begin(), node.args().end());
    args[1] = convert(node.value("weight"), {0, 1}, DType::kBFloat16);
    args.push_back(DType::kFloat32);
    return b.op(kLinear16, std::move(args));
  }

  static bool pays(const Constant& w, int64_t groups) {
    const int64_t depth = w.sizes[1] * w.sizes[2] * w.sizes[3];
    return w.sizes[0] / groups >= kLeastColumns && depth >= kLeastDepth && w.sizes[2] * w.sizes[3] <= kMaxTaps && !(groups > 1 && w.sizes[1] < kLeastColumns);
  }

  ValueId fused_conv(Builder& b, const NodeView& node) {
    const Constant* w = weight_of(graph_, node.value("weight"), DType::kFloat32, 4);
    if (w == nullptr || !pays(*w, node.integer("groups"))) return {};
    std::vector<Arg> args(node.args().begin(), node.args().end());
    args[1] = convert(node.value("weight"), {0, 2, 3, 1}, DType::kBFloat16);
    args.push_back(DType::kFloat32);
    return b.op(kConv16, std::move(args));
  }

  /// A bias of `narrow` as float; false if there is one of another kind.
  bool bias_of(ValueId id, int64_t count, DType narrow, Arg* out) {
    *out = std::monostate();
    if (!id.valid()) return true;
    const Constant* c = weight_of(graph_, id, narrow, 1);
    if (c == nullptr || c->sizes[0] != count) return false;
    *out = convert(id, {0}, DType::kFloat32);
    return true;
  }

  static Expr bound(Builder& b, double sign) { return b.floating(sign * std::numeric_limits<double>::infinity()); }

  ValueId half_linear(Builder& b, const NodeView& node) {
    const bool turned = node.op().name != "aten::linear", sum = node.op().name == "aten::addmm";
    const ValueId x = node.value(!turned ? "input" : sum ? "mat1" : "self"), weight = node.value(!turned ? "weight" : "mat2");
    const ValueId bias = !turned ? node.value("bias") : sum ? node.value("self") : ValueId();
    const DType narrow = graph_[x].type.dtype;
    const Constant* w = is_reduced_float(narrow) ? weight_of(graph_, weight, narrow, 2) : nullptr;
    if (w == nullptr || graph_[x].type.rank() < 1) return {};
    const int64_t columns = w->sizes[turned ? 1 : 0], depth = w->sizes[turned ? 0 : 1];
    if (columns < kLeastColumns || depth < kLeastDepth || (sum && (!is_one(node, "alpha") || !is_one(node, "beta")))) return {};
    Arg wide_bias;
    if (!bias_of(bias, columns, narrow, &wide_bias)) return {};
    const ValueId w_made = convert(weight, turned ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1}, narrow);
    return b.op(kLinear16, {x, w_made, wide_bias, std::monostate(), std::string("none"), bound(b, -1), bound(b, 1), narrow});
  }

  ValueId half_conv(Builder& b, const NodeView& node) {
    const ValueId x = node.value("input"), weight = node.value("weight");
    const DType narrow = graph_[x].type.dtype;
    const Constant* w = is_reduced_float(narrow) ? weight_of(graph_, weight, narrow, 4) : nullptr;
    if (w == nullptr || graph_[x].type.rank() != 4 || node.boolean("transposed")) return {};
    const int64_t groups = node.integer("groups");
    if (!pays(*w, groups) || !node.all_const("stride") || !node.all_const("padding") || !node.all_const("dilation")) return {};
    Arg bias;
    if (!bias_of(node.value("bias"), w->sizes[0], narrow, &bias)) return {};
    return b.op(kConv16, {x, convert(weight, {0, 2, 3, 1}, narrow), bias, std::monostate(), pair_of(node.exprs("stride")), pair_of(node.exprs("padding")),
                        pair_of(node.exprs("dilation")), Expr(groups), std::string("none"), bound(b, -1), bound(b, 1), narrow});
  }

  Graph& graph_;
  bool float_too_;
  std::unordered_map<std::string, ValueId> made_;
};

bool is_product16(const Node& node) { return node.op->name == kLinear16 || node.op->name == kConv16; }

/// Results that only such products read, as the operand that they round anyway, are rounded where they are made.
void round_results(Graph& graph) {
  std::vector<uint32_t> rounded(graph.values.size(), 0);
  for (const NodeId id : graph.order) {
    const auto* x = is_product16(graph[id]) ? std::get_if<ValueId>(&graph[id].args[0]) : nullptr;
    if (x != nullptr) ++rounded[x->index];
  }
  const std::vector<uint32_t> uses = ir::count_uses(graph);
  for (const NodeId id : graph.order) {
    Node& node = graph[id];
    if (!is_product16(node)) continue;
    const ValueId out = node.outputs[0];
    if (graph[out].type.dtype != DType::kFloat32 || uses[out.index] == 0 || uses[out.index] != rounded[out.index]) continue;
    node.args.back() = DType::kBFloat16;
    graph[out].type.dtype = DType::kBFloat16;
  }
}

}  // namespace

Result<bool> narrow_products(Graph& graph, const ir::Catalog& engine, bool float_too) {
  Narrower narrower(graph, float_too);
  PTERON_ASSIGN(const bool changed, ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return narrower.visit(b, id, replacements); }));
  if (changed) round_results(graph);
  return changed;
}

}  // namespace pteron::cpu
