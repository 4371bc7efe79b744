// Convolutions in other forms than the engine's: those of lines become ones of images of height 1, transposed ones whose windows do not overlap
// become a product and a permutation. Padding by nothing goes. Runs before fuse().
#include <string>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"

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

class ConvolutionMatcher {
 public:
  ConvolutionMatcher(Graph& graph, const ir::Catalog& catalog) : graph_(graph), catalog_(catalog), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& builder, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    ValueId made;
    if (node.op->name == "aten::convolution") {
      const NodeView n(graph_, *node.op, node.args);
      made = n.boolean("transposed") ? transposed(builder, n) : line(builder, n);
    } else {
      made = is_empty_pad(node) ? std::get<ValueId>(node.args[0]) : behind_line(builder, node);
    }
    if (!made.valid() || !builder.status().ok()) return Rewrite::kKeep;
    if (graph_[made].type.sizes != graph_[node.outputs[0]].type.sizes) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] += uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const Constant* weight(ValueId id, size_t rank) const { return weight_of(graph_, id, DType::kFloat32, rank); }
  bool is_float(ValueId id, int rank) const { return graph_[id].type.dtype == DType::kFloat32 && graph_[id].type.rank() == rank; }
  ValueId aten(Builder& b, std::string_view name, std::vector<Arg> args) { return add_node(b, catalog_, name, std::move(args)); }

  /// Padding by nothing, which exporters leave behind.
  bool is_empty_pad(const Node& node) const {
    if (node.op->name != "aten::constant_pad_nd") return false;
    const NodeView n(graph_, *node.op, node.args);
    return n.all_const("pad") && all_are(n, "pad", 0) && graph_[n.value("self")].type.sizes == graph_[node.outputs[0]].type.sizes;
  }

  /// [n, c, l] as [n, c, 1, l].
  ValueId line(Builder& b, const NodeView& n) {
    const ValueId x = n.value("input"), w = n.value("weight");
    const Constant* c = weight(w, 3);
    if (c == nullptr || !is_float(x, 3) || !n.all_const("stride") || !n.all_const("padding") || !n.all_const("dilation")) return {};
    Constant image = *c;
    image.sizes.insert(image.sizes.begin() + 2, 1);
    image.strides.insert(image.strides.begin() + 2, image.strides[1]);
    image.name += ".image";
    const auto pair = [&](std::string_view name, int64_t first) { return std::vector<Expr>{Expr(first), n.exprs(name).at(0)}; };
    const ValueId wide = aten(b, "aten::unsqueeze", {x, Expr(2)});
    if (!wide.valid()) return {};
    const ValueId made = aten(b, "aten::convolution", {wide, add_constant(graph_, std::move(image)), n.arg("bias"), pair("stride", 1), pair("padding", 0), pair("dilation", 1),
                                                       b.boolean(false), std::vector<Expr>{Expr(0), Expr(0)}, n.expr("groups")});
    return made.valid() ? flat(b, made) : ValueId();
  }
  ValueId flat(Builder& b, ValueId image) {
    const ValueId made = aten(b, "aten::squeeze.dims", {image, std::vector<Expr>{Expr(2)}});
    if (made.valid()) lines_.push_back({made, image});
    return made;
  }

  /// An activation of such a line is one of the image, so that it can become part of the convolution.
  ValueId behind_line(Builder& b, const Node& node) {
    constexpr std::string_view kActivations[] = {"aten::relu", "aten::gelu", "aten::silu", "aten::tanh", "aten::sigmoid", "aten::hardtanh", "aten::hardswish", "aten::clamp"};
    bool known = false;
    for (const std::string_view name : kActivations) known = known || node.op->name == name;
    const auto* self = known ? std::get_if<ValueId>(&node.args[0]) : nullptr;
    if (self == nullptr || self->index >= uses_.size() || uses_[self->index] != 1) return {};
    for (const Line& line : lines_) {
      if (line.flat != *self) continue;
      std::vector<Arg> args = node.args;
      args[0] = line.image;
      const ValueId made = aten(b, node.op->name, std::move(args));
      return made.valid() ? flat(b, made) : ValueId();
    }
    return {};
  }

  static bool all_are(const NodeView& n, std::string_view name, int64_t value) {
    for (const int64_t v : n.integers(name)) {
      if (v != value) return false;
    }
    return true;
  }

  /// Stride = kernel: every input pixel makes a block of output pixels of its own.
  ValueId transposed(Builder& b, const NodeView& n) {
    const ValueId x = n.value("input"), w = n.value("weight"), bias = n.value("bias");
    const Constant* c = weight(w, 4);
    if (c == nullptr || !is_float(x, 4) || !n.expr("groups").is_const() || n.integer("groups") != 1) return {};
    for (const char* name : {"stride", "padding", "dilation", "output_padding"}) {
      if (!n.all_const(name)) return {};
    }
    const std::vector<int64_t> stride = n.integers("stride");
    const int64_t inputs = c->sizes[0], outputs = c->sizes[1], height = c->sizes[2], width = c->sizes[3];
    if (stride.empty() || stride.front() != height || stride.back() != width) return {};
    if (!all_are(n, "padding", 0) || !all_are(n, "output_padding", 0) || !all_are(n, "dilation", 1)) return {};
    const Constant* shift = bias.valid() ? weight(bias, 1) : nullptr;
    if (bias.valid() && (shift == nullptr || shift->data == nullptr)) return {};
    Constant rows = reordered(*c, {2, 3, 1, 0}, DType::kFloat32);
    rows.name = c->name + ".rows";
    rows.sizes = {height * width * outputs, inputs};
    rows.strides = {inputs, 1};
    const ValueId product_weight = add_constant(graph_, std::move(rows));
    const std::vector<Expr> sizes = graph_[x].type.sizes;
    Arg product_bias = std::monostate();
    if (shift != nullptr) {
      std::vector<float> values;
      for (int64_t block = 0; block < height * width; ++block) {
        for (int64_t j = 0; j < outputs; ++j) values.push_back(reinterpret_cast<const float*>(shift->data)[j * shift->strides[0]]);
      }
      product_bias = b.constant(DType::kFloat32, {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(values)), "bias_rows");
    }
    const auto dims = [](std::initializer_list<int64_t> list) {
      std::vector<Expr> out;
      for (const int64_t v : list) out.push_back(Expr(v));
      return out;
    };
    ValueId y = aten(b, "aten::permute", {x, dims({0, 2, 3, 1})});
    if (y.valid()) y = aten(b, "aten::linear", {y, product_weight, product_bias});
    if (y.valid()) y = aten(b, "aten::view", {y, std::vector<Expr>{sizes[0], sizes[2], sizes[3], Expr(height), Expr(width), Expr(outputs)}});
    if (y.valid()) y = aten(b, "aten::permute", {y, dims({0, 1, 3, 2, 4, 5})});
    if (y.valid()) y = aten(b, "aten::view", {y, std::vector<Expr>{sizes[0], sizes[2] * Expr(height), sizes[3] * Expr(width), Expr(outputs)}});
    return y.valid() ? aten(b, "aten::permute", {y, dims({0, 3, 1, 2})}) : ValueId();
  }

  struct Line {
    ValueId flat, image;
  };
  Graph& graph_;
  const ir::Catalog& catalog_;
  std::vector<uint32_t> uses_;
  std::vector<Line> lines_;
};

}  // namespace

Result<bool> plain_convolutions(Graph& graph, const ir::Catalog& catalog) {
  ConvolutionMatcher matcher(graph, catalog);
  return ir::rewrite(graph, catalog, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(builder, id, replacements); });
}

}  // namespace pteron::cpu
