// Products of some rows with constant weights become pteron_cuda::few_rows: a few tokens or a chunk of actions, where libraries are bound by the time between
// their kernels. Products of the same rows are one kernel, the root-mean-square norm in front goes into it, and so does the gate silu(x g) * (x u).
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/few_rows_text.h"
#include "backends/cuda/aot/library.h"
#include "backends/cuda/aot/tile_text.h"
#include "passes/passes.h"

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

/// Fewer rows are pteron_cuda::row_product's, more the library's.
constexpr int64_t kFewestRows = 5, kMostRows = 64;
constexpr int64_t kMostElements = int64_t{2} << 20;
constexpr size_t kMostWeights = 3;

/// Rows before their norm.
struct Normed {
  ValueId rows, factors;
  double eps = 0;
};

class FewRowsMatcher {
 public:
  /// gates_only: looks for gates, and leaves all other products alone.
  FewRowsMatcher(Graph& graph, KernelSources& sources, bool gates_only)
      : graph_(graph), sources_(sources), gates_only_(gates_only), uses_(ir::count_uses(graph)) {
    for (const NodeId id : graph.order) {
      const Node& node = graph[id];
      if (node.op->name == kProduct && is_plain(node)) siblings_[std::get<ValueId>(node.args[0]).index].push_back(id);
    }
  }

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    ValueId made;
    if (gates_only_ && node.op->name == "aten::mul.Tensor") made = gated(b, node);
    if (!gates_only_ && node.op->name == kProduct) {
      if (const auto known = made_.find(node.outputs[0].index); known != made_.end()) {
        made = known->second;
      } else {
        made = product(b, id);
      }
    }
    if (!made.valid()) return Rewrite::kKeep;
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_[id].type; }
  bool is_used_once(ValueId id) const { return id.index < uses_.size() && uses_[id.index] == 1; }
  static int64_t rows_of(const TensorType& t) {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < t.sizes.size(); ++d) rows *= t.sizes[d].value();
    return rows;
  }
  bool is_constant(ValueId id) const { return graph_[id].constant.valid() && !(*graph_.program)[graph_[id].constant].mutable_elsewhere; }

  /// Whether the kernel can compute it.
  bool fits(const Node& node) const {
    const NodeView n(graph_, *node.op, node.args);
    const TensorType &a = type(n.value("a")), &w = type(n.value("b"));
    if (!n.boolean("turned") || (a.dtype != DType::kBFloat16 && a.dtype != DType::kFloat16) || ir::number_of(n.expr("alpha")) != 1) return false;
    if (w.rank() != 2 || !w.is_static() || !a.is_static() || !ir::is_contiguous(a) || !ir::is_contiguous(w) || !is_constant(n.value("b"))) return false;
    if (n.value("residual").valid() && (ir::number_of(n.expr("beta")) != 1 || !ir::is_contiguous(type(n.value("residual"))))) return false;
    if (n.value("bias").valid() && !is_constant(n.value("bias"))) return false;
    const int64_t rows = rows_of(a);
    // Where the weight's way from memory is what counts, the library is as fast.
    if (w.sizes[0].value() * w.sizes[1].value() > kMostElements) return false;
    return rows >= kFewestRows && rows <= kMostRows && w.sizes[1].value() % 16 == 0 && w.sizes[0].value() % 8 == 0;
  }
  bool is_plain(const Node& node) const {
    const NodeView n(graph_, *node.op, node.args);
    return fits(node) && !n.value("bias").valid() && !n.value("residual").valid() && n.text("activation") == "none";
  }

  FewRowsForm form_of(ValueId x, std::vector<ValueId> weights) const {
    FewRowsForm form;
    form.rows = rows_of(type(x));
    form.depth = type(weights[0]).sizes[1].value();
    form.dtype = type(x).dtype;
    for (const ValueId w : weights) form.columns.push_back(type(w).sizes[0].value());
    return form;
  }

  /// The result, or the first of them. Invalid if no form of the kernel fits.
  ValueId build(Builder& b, const Node& node, ValueId x, const std::vector<ValueId>& weights, FewRowsForm form, Arg bias, Arg residual) {
    std::optional<Normed> normed = norm_of(x);
    form.norm = normed.has_value();
    if (!choose_few_rows(&form)) {
      normed.reset();
      form.norm = false;
      if (!choose_few_rows(&form)) return {};
    }
    sources_.add_shared(std::string(element_text()));
    sources_.add_shared(std::string(tile_text()));
    const std::string name = sources_.add(form.gate ? "gated_few_rows" : form.norm ? "normed_few_rows" : "few_rows", few_rows_text(form), node.name);
    const Arg kernel = name, eps = b.floating(normed ? normed->eps : 0);
    const std::vector<Expr> shape{Expr(form.blocks()), Expr(form.row_blocks()), Expr(form.threads()), Expr(form.shared_bytes())};
    const ValueId rows = normed ? normed->rows : x;
    const Arg factors = optional_arg(normed ? normed->factors : ValueId());
    if (form.gate || weights.size() == 1) {
      return b.op(kFewRows, {rows, weights[0], optional_arg(weights.size() > 1 ? weights[1] : ValueId()), factors, std::move(bias), std::move(residual), eps,
                             kernel, shape});
    }
    if (weights.size() == 2) return b.op(kFewRows2, {rows, weights[0], weights[1], factors, eps, kernel, shape});
    return b.op(kFewRows3, {rows, weights[0], weights[1], weights[2], factors, eps, kernel, shape});
  }

  ValueId product(Builder& b, NodeId id) {
    const Node& node = graph_[id];
    if (!fits(node)) return {};
    const NodeView n(graph_, *node.op, node.args);
    const ValueId x = n.value("a");
    std::vector<NodeId> group{id};
    if (is_plain(node)) {
      for (const NodeId other : siblings_[x.index]) {
        if (other != id && group.size() < kMostWeights && is_plain(graph_[other]) && !made_.contains(graph_[other].outputs[0].index)) group.push_back(other);
      }
    }
    std::vector<ValueId> weights;
    for (const NodeId member : group) weights.push_back(std::get<ValueId>(graph_[member].args[1]));
    FewRowsForm form = form_of(x, weights);
    form.bias = n.value("bias").valid();
    form.residual = n.value("residual").valid();
    const std::string_view end = n.text("activation");
    form.end = end == "relu" ? FewRowsForm::End::kRelu : end == "gelu_tanh" ? FewRowsForm::End::kGeluTanh : FewRowsForm::End::kNone;
    const ValueId first = build(b, node, x, weights, form, optional_arg(n.value("bias")), optional_arg(n.value("residual")));
    if (!first.valid()) return {};
    const std::vector<ValueId> outputs = graph_[graph_[first].producer].outputs;
    for (size_t i = 1; i < group.size(); ++i) made_[graph_[group[i]].outputs[0].index] = outputs[i];
    return first;
  }

  /// silu(x g) * (x u) of the same rows.
  ValueId gated(Builder& b, const Node& node) {
    const NodeView n(graph_, *node.op, node.args);
    if (!n.is_value("self") || !n.is_value("other")) return {};
    for (const auto& [left, right] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
      const Node* silu = node_of(graph_, left, "aten::silu");
      const Node* up = node_of(graph_, right, kProduct);
      if (silu == nullptr || up == nullptr || !is_used_once(left) || !is_used_once(right)) continue;
      const auto* inner = std::get_if<ValueId>(&silu->args[0]);
      const Node* gate = inner != nullptr && is_used_once(*inner) ? node_of(graph_, *inner, kProduct) : nullptr;
      if (gate == nullptr || !is_plain(*gate) || !is_plain(*up) || gate->args[0] != up->args[0] || type(*inner).sizes != type(right).sizes) continue;
      if (type(node.outputs[0]).sizes != type(right).sizes) continue;
      const ValueId x = std::get<ValueId>(up->args[0]);
      const std::vector<ValueId> weights{std::get<ValueId>(gate->args[1]), std::get<ValueId>(up->args[1])};
      FewRowsForm form = form_of(x, weights);
      form.gate = true;
      return build(b, node, x, weights, form, std::monostate(), std::monostate());
    }
    return {};
  }

  /// What is a norm's rows: (x / sqrt(mean of x^2 + eps)) in the rows' dtype, times factors.
  std::optional<Normed> norm_of(ValueId x) const {
    const Node* scaled = node_of(graph_, x, "aten::mul.Tensor");
    if (scaled == nullptr) return std::nullopt;
    const NodeView s(graph_, *scaled->op, scaled->args);
    if (!s.is_value("self") || !s.is_value("other")) return std::nullopt;
    for (const auto& [rounded, factors] : {std::pair(s.value("self"), s.value("other")), std::pair(s.value("other"), s.value("self"))}) {
      const TensorType& f = type(factors);
      if (f.rank() != 1 || f.dtype != type(x).dtype || !(f.sizes[0] == type(x).sizes.back()) || !ir::is_contiguous(f) || !is_constant(factors)) continue;
      const Node* cast = node_of(graph_, rounded, "aten::_to_copy");
      const Node* unit =
          cast != nullptr && type(rounded).dtype == type(x).dtype ? node_of(graph_, std::get<ValueId>(cast->args[0]), "aten::mul.Tensor") : nullptr;
      if (unit == nullptr) continue;
      const NodeView u(graph_, *unit->op, unit->args);
      if (!u.is_value("self") || !u.is_value("other")) continue;
      for (const auto& [wide, inverse] : {std::pair(u.value("self"), u.value("other")), std::pair(u.value("other"), u.value("self"))}) {
        const std::optional<double> eps = mean_square_eps(inverse, wide);
        const Node* widened = eps ? node_of(graph_, wide, "aten::_to_copy") : nullptr;
        if (widened == nullptr || type(wide).dtype != DType::kFloat32) continue;
        const ValueId rows = std::get<ValueId>(widened->args[0]);
        if (type(rows).dtype == type(x).dtype && type(rows).sizes == type(x).sizes && ir::is_contiguous(type(rows))) return Normed{rows, factors, *eps};
      }
    }
    return std::nullopt;
  }

  /// eps if `inverse` is rsqrt(mean over the last dim of wide^2, + eps).
  std::optional<double> mean_square_eps(ValueId inverse, ValueId wide) const {
    const Node* rsqrt = node_of(graph_, inverse, "aten::rsqrt");
    const Node* add = rsqrt != nullptr ? node_of(graph_, std::get<ValueId>(rsqrt->args[0]), "aten::add.Scalar") : nullptr;
    if (add == nullptr) return std::nullopt;
    const NodeView a(graph_, *add->op, add->args);
    const Node* mean = node_of(graph_, a.value("self"), "aten::mean.dim");
    if (mean == nullptr || !ir::is_number(a.expr("other")) || !ir::is_number(a.expr("alpha")) || ir::number_of(a.expr("alpha")) != 1) return std::nullopt;
    const NodeView m(graph_, *mean->op, mean->args);
    const std::vector<Expr> dims = m.exprs("dim");
    const int64_t last = type(wide).rank() - 1;
    if (dims.size() != 1 || !(dim_is(dims[0], -1) || dim_is(dims[0], last)) || !m.boolean("keepdim")) return std::nullopt;
    if (const Node* pow = node_of(graph_, m.value("self"), "aten::pow.Tensor_Scalar")) {
      const NodeView p(graph_, *pow->op, pow->args);
      if (p.value("self") == wide && ir::is_number(p.expr("exponent")) && ir::number_of(p.expr("exponent")) == 2) return ir::number_of(a.expr("other"));
    }
    if (const Node* square = node_of(graph_, m.value("self"), "aten::mul.Tensor")) {
      if (square->args[0] == Arg(wide) && square->args[1] == Arg(wide)) return ir::number_of(a.expr("other"));
    }
    return std::nullopt;
  }

  Graph& graph_;
  KernelSources& sources_;
  bool gates_only_;
  std::vector<uint32_t> uses_;
  std::map<uint32_t, std::vector<NodeId>> siblings_;  ///< products without anything around them, by the rows that they read
  std::map<uint32_t, ValueId> made_;                  ///< results of products that an earlier one's kernel computes as well
};

}  // namespace

Status lower_few_rows(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources) {
  for (const bool gates_only : {true, false}) {
    PTERON_TRY(passes::dce(graph, catalog).status());  // products that others took in would count as neighbours
    FewRowsMatcher matcher(graph, sources, gates_only);
    PTERON_TRY(
        ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(b, id, replacements); }).status());
  }
  return ok_status();
}

}  // namespace pteron::cuda
