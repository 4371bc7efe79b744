// Products of matrices: each becomes pteron_cuda::product; an addition or activation behind it that nothing else reads goes inside. A few rows times a weight
// become pteron_cuda::row_product, which reads the weight once at the speed of the memory.
#include <optional>
#include <string>
#include <utility>

#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/library.h"
#include "backends/cuda/aot/quantized.h"
#include "backends/cuda/aot/row_product_text.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

void set_arg(const Node& node, std::vector<Arg>& args, std::string_view name, Arg value) {
  args[static_cast<size_t>(node.op->schema.find(name))] = std::move(value);
}

/// One of the last two strides is 1 (dims of size 1 do not count): the library takes it as it lies.
bool is_operand_type(const TensorType& type) {
  const size_t rank = type.sizes.size();
  if (rank == 1) return dim_is(type.strides[0], 1) || dim_is(type.sizes[0], 1);
  if (type.strides.size() != rank) return false;
  for (const size_t d : {rank - 1, rank - 2}) {
    const size_t other = d == rank - 1 ? rank - 2 : rank - 1;
    // A stride of 0 along the other dim repeats a row, which no leading dimension says.
    if ((dim_is(type.strides[d], 1) || dim_is(type.sizes[d], 1)) && (!dim_is(type.strides[other], 0) || dim_is(type.sizes[other], 1))) return true;
  }
  return false;
}

class ProductMatcher {
 public:
  ProductMatcher(Graph& graph, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options)
      : graph_(graph), catalog_(catalog), tf32_(options.tf32), quantized_(graph, catalog, sources, options), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    const NodeView view(graph_, *node.op, node.args);
    ValueId made;
    if (is_library_node(node)) made = quantized_.product(b, node);
    if (!made.valid() && is_library_node(node) && library_supports(graph_, node).yes) made = product(b, view, node);
    if (!made.valid()) made = sum(b, view, node);
    if (!made.valid()) made = activated(b, view);
    if (!made.valid()) return Rewrite::kKeep;
    if (graph_[made].type.sizes != graph_[node.outputs[0]].type.sizes) return Status(Code::kInternal, "a product of other sizes than the node it stands for");
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] = uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_[id].type; }
  ValueId aten(Builder& b, std::string_view name, std::vector<Arg> args) { return add_library_node(b, catalog_, name, std::move(args)); }

  /// The value itself, or a row-major copy where the library cannot read it as it lies.
  ValueId operand(Builder& b, ValueId id) {
    if (is_operand_type(type(id))) return id;
    return aten(b, "aten::clone", {id, ir::MemoryFormat::kContiguous});
  }

  ValueId make(Builder& b, ValueId a, ValueId other, ValueId bias, ValueId residual, double alpha, double beta, bool turned) {
    a = operand(b, a);
    other = operand(b, other);
    if (!a.valid() || !other.valid()) return {};
    return b.op(kProduct, {a, other, optional_arg(bias), optional_arg(residual), b.floating(alpha), b.floating(beta), std::string("none"), b.boolean(turned),
                           b.boolean(tf32_)});
  }

  ValueId product(Builder& b, const NodeView& n, const Node& node) {
    const std::string& op = node.op->name;
    if (is_integral(type(node.outputs[0]).dtype, false)) return integers(b, n, type(node.outputs[0]));
    if (op == "aten::linear") return linear(b, n, node);
    if (op == "aten::mm") {
      const ValueId rows = turned_from(b, n.value("mat2"));
      return make(b, n.value("self"), rows.valid() ? rows : n.value("mat2"), {}, {}, 1, 0, rows.valid());
    }
    if (op == "aten::bmm") return make(b, n.value("self"), n.value("mat2"), {}, {}, 1, 0, false);
    if (op == "aten::addmm") return with_sum(b, n, node, n.value("mat1"), n.value("mat2"));
    if (op == "aten::baddbmm") return with_sum(b, n, node, n.value("batch1"), n.value("batch2"));
    return {};
  }

  /// What a transposed matrix was before, if it lies in rows; invalid otherwise.
  ValueId turned_from(Builder& b, ValueId id) {
    if (const Node* cast = node_of(graph_, id, "aten::_to_copy"); cast != nullptr) {  // of a constant that lies in columns
      const ValueId from = std::get<ValueId>(cast->args[0]);
      if (!graph_[from].constant.valid() || type(from).rank() != 2) return {};
      ir::Constant c = (*graph_.program)[graph_[from].constant];
      if (c.data == nullptr || c.mutable_elsewhere || c.strides[0] != 1 || c.strides[1] != c.sizes[0]) return {};
      std::swap(c.sizes[0], c.sizes[1]);
      std::swap(c.strides[0], c.strides[1]);
      c.name += ".rows";
      const std::string name = c.name;
      return aten(b, "aten::_to_copy", {graph_.add_constant(graph_.program->add(std::move(c)), name), type(id).dtype});
    }
    for (const char* name : {"aten::t", "aten::permute", "aten::transpose.int"}) {
      const Node* turn = node_of(graph_, id, name);
      if (turn == nullptr) continue;
      const ValueId from = std::get<ValueId>(turn->args[0]);
      const bool turns = type(from).rank() == 2 && type(from).strides[0] == type(id).strides[1] && type(from).strides[1] == type(id).strides[0];
      return turns && ir::is_contiguous(type(from)) ? from : ValueId();
    }
    return {};
  }

  /// mm and bmm of integers: sums of products, by generated kernels.
  ValueId integers(Builder& b, const NodeView& n, const TensorType& out) {
    const int64_t rank = out.rank();
    const ValueId a = aten(b, "aten::unsqueeze", {n.value("self"), Expr(rank)}), other = aten(b, "aten::unsqueeze", {n.value("mat2"), Expr(rank - 2)});
    return aten(b, "aten::sum.dim_IntList", {aten(b, "aten::mul.Tensor", {a, other}), std::vector<Expr>{Expr(rank - 1)}, b.boolean(false), out.dtype});
  }

  ValueId linear(Builder& b, const NodeView& n, const Node& node) {
    ValueId x = n.value("input"), weight = n.value("weight");
    const ValueId bias = n.value("bias");
    if (type(weight).rank() == 1) {  // one output without a dim
      weight = aten(b, "aten::unsqueeze", {weight, Expr(0)});
      if (!weight.valid()) return {};
      const ValueId made = make(b, x, weight, {}, {}, 1, 0, true);
      ValueId flat = made.valid() ? aten(b, "aten::view", {made, type(node.outputs[0]).sizes}) : ValueId();
      return flat.valid() && bias.valid() ? aten(b, "aten::add.Tensor", {flat, bias}) : flat;
    }
    return make(b, x, weight, bias, {}, 1, 0, true);
  }

  /// alpha a b + beta self: a vector is a bias, a whole matrix the third operand, anything else an addition behind the product.
  ValueId with_sum(Builder& b, const NodeView& n, const Node& node, ValueId a, ValueId other) {
    const double alpha = ir::number_of(n.expr("alpha")), beta = ir::number_of(n.expr("beta"));
    const ValueId self = n.value("self");
    const TensorType &added = type(self), &out = type(node.outputs[0]);
    if (beta == 0) return make(b, a, other, {}, {}, alpha, 0, false);  // the addend is not even read: NaN in it does not count
    if (beta == 1 && added.rank() == 1 && added.sizes[0] == out.sizes.back() && dim_is(added.strides[0], 1))
      return make(b, a, other, self, {}, alpha, 0, false);
    if (added.sizes == out.sizes && ir::is_contiguous(added)) return make(b, a, other, {}, self, alpha, beta, false);
    const ValueId made = make(b, a, other, {}, {}, alpha, 0, false);
    return made.valid() ? aten(b, "aten::add.Tensor", {made, self, b.floating(beta)}) : ValueId();
  }

  /// The product that makes `id`, if nothing else reads it.
  const Node* own_node(ValueId id) const {
    const Node* node = node_of(graph_, id, kProduct);
    return node != nullptr && id.index < uses_.size() && uses_[id.index] == 1 ? node : nullptr;
  }

  ValueId sum(Builder& b, const NodeView& node, const Node& self) {
    if (node.op().name != "aten::add.Tensor" || !node.is_value("other") || !node.is_value("self")) return {};
    if (!ir::is_number(node.expr("alpha")) || ir::number_of(node.expr("alpha")) != 1) return {};
    const ValueId left = node.value("self"), right = node.value("other");
    const TensorType& out = type(self.outputs[0]);
    for (const auto& [sum, other] : {std::pair(left, right), std::pair(right, left)}) {
      const Node* open = own_node(sum);
      if (open == nullptr || sum == other || !is_floating(out.dtype) || type(open->outputs[0]).dtype != type(std::get<ValueId>(open->args[0])).dtype ||
          type(other).dtype != out.dtype || type(sum).dtype != out.dtype || type(sum).sizes != out.sizes)
        continue;
      const NodeView view(graph_, *open->op, open->args);
      if (view.value("residual").valid() || view.text("activation") != "none") continue;
      std::vector<Arg> args = open->args;
      if (type(other).rank() == 1 && type(other).sizes[0] == out.sizes.back() && !view.value("bias").valid() && dim_is(type(other).strides[0], 1)) {
        set_arg(*open, args, "bias", other);
        return b.op(kProduct, std::move(args));
      }
      if (type(other).sizes != out.sizes || !ir::is_contiguous(type(other)) || out.rank() < 2) continue;
      set_arg(*open, args, "residual", other);
      set_arg(*open, args, "beta", b.floating(1));
      return b.op(kProduct, std::move(args));
    }
    return {};
  }

  ValueId activated(Builder& b, const NodeView& node) {
    const std::string& op = node.op().name;
    const bool relu = op == "aten::relu", gelu = op == "aten::gelu" && node.text("approximate") == "tanh";
    if (!relu && !gelu) return {};
    const Node* open = own_node(node.value("self"));
    if (open == nullptr || type(open->outputs[0]).dtype == DType::kFloat64 || type(open->outputs[0]).dtype != type(std::get<ValueId>(open->args[0])).dtype ||
        NodeView(graph_, *open->op, open->args).text("activation") != "none")
      return {};
    std::vector<Arg> args = open->args;
    set_arg(*open, args, "activation", std::string(relu ? "relu" : "gelu_tanh"));
    return b.op(kProduct, std::move(args));
  }

  Graph& graph_;
  const ir::Catalog& catalog_;
  bool tf32_;
  QuantizedLowering quantized_;
  std::vector<uint32_t> uses_;
};

/// More rows than this go to the library.
constexpr int64_t kMostRows = 4;

class RowMatcher {
 public:
  RowMatcher(Graph& graph, KernelSources& sources) : graph_(graph), sources_(sources), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    ValueId made;
    if (node.op->name == kProduct) made = rows(b, node);
    if (node.op->name == "aten::mul.Tensor") made = gated(b, node);
    if (!made.valid()) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] = uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_[id].type; }

  /// How many rows a product has, if they are few, lie one behind the other, and the weight's rows are multiples of 16 bytes; 0 otherwise.
  int64_t few_rows(const NodeView& n, bool may_activate) const {
    const TensorType &a = type(n.value("a")), &w = type(n.value("b"));
    if (!n.boolean("turned") || w.rank() != 2 || !w.is_static() || !a.is_static() || !ir::is_contiguous(a) || !ir::is_contiguous(w)) return 0;
    if (!is_library_dtype(a.dtype, false) || (n.text("activation") != "none" && !may_activate) || ir::number_of(n.expr("alpha")) != 1) return 0;
    if (n.value("residual").valid() && ir::number_of(n.expr("beta")) != 1) return 0;
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < a.sizes.size(); ++d) rows *= a.sizes[d].value();
    const int64_t depth = w.sizes[1].value();
    return rows <= kMostRows && depth % 32 == 0 && depth * static_cast<int64_t>(dtype_size(a.dtype)) % 16 == 0 ? rows : 0;
  }

  ValueId build(Builder& b, const Node& node, int64_t rows, Arg gate, const RowProductForm& form_of) {
    const NodeView n(graph_, *node.op, node.args);
    RowProductForm form = form_of;
    form.rows = rows;
    form.depth = type(n.value("b")).sizes[1].value();
    form.columns = type(n.value("b")).sizes[0].value();
    form.dtype = type(n.value("a")).dtype;
    form.bias = n.value("bias").valid();
    form.residual = n.value("residual").valid();
    choose_row_product(&form);
    sources_.add_shared(std::string(element_text()));
    const std::string name = sources_.add("row_product", row_product_text(form), node.name);
    return b.op(kRowProduct, {n.value("a"), n.value("b"), std::move(gate), optional_arg(n.value("bias")), optional_arg(n.value("residual")), name,
                              Expr(form.columns_a_block())});
  }

  ValueId rows(Builder& b, const Node& node) {
    const NodeView n(graph_, *node.op, node.args);
    if (const int64_t rows = few_rows(n, true); rows != 0) {
      if (const ValueId made = narrow(b, node, rows); made.valid()) return made;
    }
    const int64_t rows = few_rows(n, false);
    return rows == 0 ? ValueId() : build(b, node, rows, std::monostate(), {});
  }

  /// Weights of 8 or 4 bits are read as they are.
  ValueId narrow(Builder& b, const Node& node, int64_t rows) {
    const NodeView n(graph_, *node.op, node.args);
    const std::optional<GroupedWeight> weight = grouped_weight(graph_, n.value("b"));
    if (!weight) return {};
    NarrowRowForm form;
    form.rows.rows = rows;
    form.rows.depth = weight->bytes.sizes[1];
    form.rows.columns = weight->bytes.sizes[0];
    form.rows.dtype = type(n.value("a")).dtype;
    form.rows.bias = n.value("bias").valid();
    form.rows.residual = n.value("residual").valid();
    if (weight->scale.valid()) {
      form.group = form.rows.depth / weight->groups;
      form.one_scale = dim_is(ir::numel_of(type(weight->scale).sizes), 1);
      form.scale_dtype = type(weight->scale).dtype;
      if (!is_library_dtype(form.scale_dtype, false) || (weight->groups > 1 && form.group % 32 != 0)) return {};
    }
    form.activation = n.text("activation");
    const std::optional<ir::Constant> nibbles = packed_nibbles(weight->bytes);
    form.bits = nibbles ? 4 : 8;
    choose_narrow_rows(&form);
    sources_.add_shared(std::string(element_text()));
    const std::string name = sources_.add("narrow_rows", narrow_rows_text(form), node.name);
    const ir::Constant& bytes = nibbles ? *nibbles : weight->bytes;
    const ValueId operand = graph_.add_constant(graph_.program->add(bytes), bytes.name);
    return b.op(kNarrowRows, {n.value("a"), operand, optional_arg(weight->scale), optional_arg(n.value("bias")), optional_arg(n.value("residual")), name,
                              Expr(form.rows.columns_a_block())});
  }

  /// silu(x g) * (x u) of one input: both weights are read by one kernel.
  ValueId gated(Builder& b, const Node& node) {
    const NodeView n(graph_, *node.op, node.args);
    if (!n.is_value("self") || !n.is_value("other")) return {};
    for (const auto& [left, right] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
      const Node* silu = node_of(graph_, left, "aten::silu");
      const Node* up = node_of(graph_, right, kRowProduct);
      if (silu == nullptr || up == nullptr || !is_used_once(left) || !is_used_once(right)) continue;
      const auto* inner = std::get_if<ValueId>(&silu->args[0]);
      const Node* gate = inner != nullptr && is_used_once(*inner) ? node_of(graph_, *inner, kRowProduct) : nullptr;
      if (gate == nullptr || type(*inner).sizes != type(right).sizes || type(node.outputs[0]).sizes != type(right).sizes) continue;
      const NodeView g(graph_, *gate->op, gate->args), u(graph_, *up->op, up->args);
      bool plain = g.value("x") == u.value("x") && type(*inner).dtype == type(right).dtype;
      for (const char* extra : {"gate_weight", "bias", "residual"}) plain = plain && !g.value(extra).valid() && !u.value(extra).valid();
      if (!plain) continue;
      const TensorType &x = type(u.value("x")), &w = type(u.value("weight"));
      RowProductForm form;
      form.rows = 1;
      for (size_t d = 0; d + 1 < x.sizes.size(); ++d) form.rows *= x.sizes[d].value();
      form.depth = w.sizes[1].value();
      form.columns = w.sizes[0].value();
      form.dtype = x.dtype;
      form.gate = true;
      choose_row_product(&form);
      const std::string name = sources_.add("gated_row_product", row_product_text(form), node.name);
      return b.op(kRowProduct, {u.value("x"), u.value("weight"), g.value("weight"), std::monostate(), std::monostate(), name, Expr(form.columns_a_block())});
    }
    return {};
  }
  bool is_used_once(ValueId id) const { return id.index < uses_.size() && uses_[id.index] == 1; }

  Graph& graph_;
  KernelSources& sources_;
  std::vector<uint32_t> uses_;
};

}  // namespace

Status lower_products(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options) {
  ProductMatcher matcher(graph, catalog, sources, options);
  PTERON_TRY(
      ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(b, id, replacements); }).status());
  PTERON_TRY(lower_few_rows(graph, engine, catalog, sources));
  RowMatcher rows(graph, sources);
  return ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return rows.visit(b, id, replacements); }).status();
}

}  // namespace pteron::cuda
