// Attention becomes pteron_cuda::attention: aten::scaled_dot_product_attention, and products that spell it out: bmm, scale, masks, softmax, bmm, with
// views between them. Operands are taken from in front of the views that only merge batch dims, so that nothing is copied for a product.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/aot/attention_text.h"
#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/library.h"
#include "backends/cuda/aot/tile_text.h"
#include "ir/builder.h"

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

/// Widest heads.
constexpr int64_t kMostWidth = 256;

/// What a product of attention consists of.
struct Found {
  ValueId q, k, v;  ///< [..., rows, width], [..., keys, width], [..., keys, value width]
  std::vector<ValueId> masks;
  double scale = 1;
};

class AttentionMatcher {
 public:
  AttentionMatcher(Graph& graph, const ir::Catalog& catalog, KernelSources& sources)
      : graph_(graph), catalog_(catalog), sources_(sources), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& builder, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    const std::string& op = node.op->name;
    ValueId made;
    if (op == "aten::scaled_dot_product_attention") made = from_node(builder, node);
    if (op == "aten::bmm") made = from_products(builder, node);
    if (op == "aten::view") made = seen_through(node);
    if (!made.valid()) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] += uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  const TensorType& type(ValueId id) const { return graph_[id].type; }
  bool is_float(ValueId id) const { return graph_[id].kind == ir::ValueKind::kTensor && is_library_dtype(type(id).dtype, false); }
  const Node* producer(ValueId id) const { return id.valid() && graph_[id].producer.valid() ? &graph_[graph_[id].producer] : nullptr; }
  /// The node that makes `id` if it is `op`.
  const Node* made_by(ValueId id, std::string_view op) const { return node_of(graph_, id, op); }
  bool is_used_once(ValueId id) const { return id.index < uses_.size() && uses_[id.index] == 1; }
  static ValueId first_of(const Node& node) {
    const auto* id = std::get_if<ValueId>(&node.args[0]);
    return id != nullptr ? *id : ValueId();
  }

  static std::vector<Expr> batch_of(const TensorType& t) { return {t.sizes.begin(), t.sizes.end() - 2}; }
  /// Both types end in the same two sizes, and the rest is only grouped in another way.
  static bool same_matrices(const TensorType& a, const TensorType& b) {
    return a.rank() >= 2 && b.rank() >= 2 && a.sizes[a.sizes.size() - 1] == b.sizes[b.sizes.size() - 1] &&
           a.sizes[a.sizes.size() - 2] == b.sizes[b.sizes.size() - 2];
  }
  /// The value in front of views that only regroup batch dims.
  ValueId ungrouped(ValueId id) const {
    for (const Node* view = made_by(id, "aten::view"); view != nullptr; view = made_by(id, "aten::view")) {
      if (!same_matrices(type(first_of(*view)), type(id))) break;
      id = first_of(*view);
    }
    return id;
  }

  ValueId aten(Builder& b, std::string_view name, std::vector<Arg> args) { return add_library_node(b, catalog_, name, std::move(args)); }

  /// A query times a number is a scale.
  void take_scale(Found* f) const {
    while (const Node* mul = made_by(f->q, "aten::mul.Scalar")) {
      const auto* factor = std::get_if<Expr>(&mul->args[1]);
      if (factor == nullptr || !ir::is_number(*factor) || !is_float(first_of(*mul))) return;
      f->scale *= ir::number_of(*factor);
      f->q = first_of(*mul);
    }
  }

  /// The value itself, or a row-major copy if its rows are not runs of memory.
  ValueId with_rows(Builder& b, ValueId id) {
    const TensorType& t = type(id);
    if (t.strides.size() == t.sizes.size() && (dim_is(t.strides.back(), 1) || dim_is(t.sizes.back(), 1))) return id;
    return aten(b, "aten::clone", {id, ir::MemoryFormat::kContiguous});
  }

  /// What keys or values [batch, heads, rows, width] were before each of their heads was repeated for the queries that share it (unsqueeze, expand, view).
  std::optional<ValueId> before_repeat(ValueId query, ValueId id) const {
    const Node* view = made_by(id, "aten::view");
    const Node* expand = view != nullptr ? made_by(first_of(*view), "aten::expand") : nullptr;
    const Node* unsqueeze = expand != nullptr ? made_by(first_of(*expand), "aten::unsqueeze") : nullptr;
    if (unsqueeze == nullptr) return std::nullopt;
    const TensorType &out = type(id), &wide = type(first_of(*view)), &thin = type(first_of(*expand));
    const ValueId source = first_of(*unsqueeze);
    const TensorType& in = type(source);
    if (in.rank() != 4 || out.rank() != 4 || wide.rank() != 5 || type(query).rank() != 4 || !dim_is(thin.sizes[2], 1) || !(type(query).sizes[0] == in.sizes[0]))
      return std::nullopt;
    if (in.sizes != std::vector<Expr>{thin.sizes[0], thin.sizes[1], thin.sizes[3], thin.sizes[4]}) return std::nullopt;
    for (const size_t d : {0, 1, 3, 4}) {
      if (!(wide.sizes[d] == thin.sizes[d])) return std::nullopt;
    }
    const bool merged =
        out.sizes[0] == in.sizes[0] && out.sizes[1] == wide.sizes[1] * wide.sizes[2] && out.sizes[2] == in.sizes[2] && out.sizes[3] == in.sizes[3];
    return merged && type(query).sizes[1] == out.sizes[1] ? std::optional(source) : std::nullopt;
  }

  void note_sizes(const Found& f, AttentionForm* form) const {
    const TensorType &q = type(f.q), &k = type(f.k);
    if (!q.is_static() || !k.is_static()) return;
    form->likely_rows = q.sizes[q.sizes.size() - 2].value();
    form->likely_keys = k.sizes[k.sizes.size() - 2].value();
    form->likely_units = 1;
    for (size_t d = 0; d + 2 < q.sizes.size(); ++d) form->likely_units *= q.sizes[d].value();
  }

  ValueId build(Builder& b, Found f, bool causal, bool gqa, bool zero_rows, const Node& node) {
    AttentionForm form;
    form.dtype = type(f.q).dtype;
    const Expr width = type(f.q).sizes.back(), value_width = type(f.v).sizes.back();
    if (type(f.k).dtype != form.dtype || type(f.v).dtype != form.dtype || !width.is_const() || !value_width.is_const()) return {};
    form.width = width.value();
    form.value_width = value_width.value();
    if (form.width < 1 || form.value_width < 1 || std::max(form.width, form.value_width) > kMostWidth || type(f.q).rank() > 4) return {};
    for (const ValueId mask : f.masks) {
      const DType dtype = type(mask).dtype;
      if ((dtype != DType::kBool && dtype != DType::kFloat32 && dtype != form.dtype) || type(mask).rank() < 1 || type(mask).rank() > 4) return {};
      form.masks.push_back(dtype);
    }
    form.causal = causal;
    form.zero_rows = zero_rows;
    if (const std::optional<ValueId> k = before_repeat(f.q, f.k), v = before_repeat(f.q, f.v); !gqa && k && v && type(*k).sizes[1] == type(*v).sizes[1]) {
      f.k = *k;
      f.v = *v;
      gqa = true;
    }
    form.any_scale = !(f.scale > 0);
    note_sizes(f, &form);
    f.q = with_rows(b, f.q);
    f.k = with_rows(b, f.k);
    f.v = with_rows(b, f.v);
    if (!f.q.valid() || !f.k.valid() || !f.v.valid()) return {};
    const AttentionShape shape = attention_shape(form);
    sources_.add_shared(std::string(element_text()));
    sources_.add_shared(std::string(tile_text()));
    const std::string kernel = sources_.add("attention", attention_text(form), node.name);
    const std::string merge = sources_.add("attention_merge", attention_merge_text(form), node.name);
    return b.op(kAttention, {f.q, f.k, f.v, f.masks, b.boolean(causal), b.floating(f.scale), b.boolean(gqa), kernel, merge,
                             std::vector<Expr>{Expr(shape.rows), Expr(shape.keys), Expr(shape.shared_bytes), Expr(shape.threads)}});
  }

  ValueId from_node(Builder& b, const Node& node) {
    if (!library_supports(graph_, node).yes) return {};
    const NodeView n(graph_, *node.op, node.args);
    Found f{n.value("query"), n.value("key"), n.value("value"), {}, 1};
    if (const ValueId mask = n.value("attn_mask"); mask.valid()) f.masks.push_back(mask);
    const Expr width = type(f.q).sizes.back();
    f.scale = n.is_none("scale") ? 1.0 / std::sqrt(static_cast<double>(width.value())) : ir::number_of(n.expr("scale"));
    take_scale(&f);
    const ValueId made = build(b, f, ir::number_of(n.expr("is_causal")) != 0, ir::number_of(n.expr("enable_gqa")) != 0, true, node);
    if (made.valid() && graph_[made].type.sizes == type(node.outputs[0]).sizes) graph_[made].type = type(node.outputs[0]);
    return made;
  }

  /// Walks from the softmax's argument to the first product. False if something else is in the way.
  bool walk_scores(ValueId x, const TensorType& like, Found* f, const Node** product) const {
    double scale = 1;
    bool scaled = false;
    for (int steps = 0; steps < 16; ++steps) {
      const Node* node = producer(x);
      if (node == nullptr || !is_used_once(x) || !is_float(x) || !same_matrices(type(x), like)) return false;
      const std::string& op = node->op->name;
      if (op == "aten::bmm") {
        *product = node;
        f->scale = scale;
        return true;
      }
      const NodeView n(graph_, *node->op, node->args);
      if (op == "aten::view") {
        x = n.value("self");
      } else if (op == "aten::mul.Scalar" || op == "aten::div.Scalar") {
        if (!ir::is_number(n.expr("other"))) return false;
        scale = op == "aten::mul.Scalar" ? scale * ir::number_of(n.expr("other")) : scale / ir::number_of(n.expr("other"));
        scaled = true;
        x = n.value("self");
      } else if (op == "aten::add.Tensor" && n.is_value("other") && !scaled && ir::is_number(n.expr("alpha")) && ir::number_of(n.expr("alpha")) == 1) {
        const ValueId left = n.value("self"), right = n.value("other");
        const bool in_order = leads_to_product(left);
        if (!add_mask(in_order ? right : left, type(x), f)) return false;
        x = in_order ? left : right;
        if (type(x).sizes != type(node->outputs[0]).sizes) return false;
      } else {
        return false;
      }
    }
    return false;
  }
  bool leads_to_product(ValueId x) const {
    for (int steps = 0; steps < 16; ++steps) {
      const Node* node = producer(x);
      if (node == nullptr || !is_used_once(x)) return false;
      if (node->op->name == "aten::bmm") return true;
      const std::string& op = node->op->name;
      if (op != "aten::view" && op != "aten::mul.Scalar" && op != "aten::div.Scalar" && op != "aten::add.Tensor") return false;
      x = first_of(*node);
      if (!x.valid()) return false;
    }
    return false;
  }

  /// Remembers a mask with the batch dims of the scores that it is added to.
  bool add_mask(ValueId mask, const TensorType& scores, Found* f) const {
    if (!mask.valid() || !is_float(mask) || f->masks.size() == kMostAttentionMasks || type(mask).rank() > scores.rank()) return false;
    f->masks.push_back(mask);
    mask_batches_.push_back(batch_of(scores));
    return true;
  }

  /// Dims without the leading ones.
  static std::vector<Expr> trimmed(std::vector<Expr> dims) {
    while (!dims.empty() && dim_is(dims.front(), 1)) dims.erase(dims.begin());
    return dims;
  }
  bool masks_fit(const Found& f, const std::vector<Expr>& batch) const {
    for (size_t i = 0; i < f.masks.size(); ++i) {
      const TensorType& t = type(f.masks[i]);
      bool alone = true;
      for (int d = 0; d + 2 < t.rank(); ++d) alone = alone && dim_is(t.sizes[static_cast<size_t>(d)], 1);
      if (!alone && trimmed(mask_batches_[i]) != trimmed(batch)) return false;
      if (!alone && t.rank() - 2 > static_cast<int>(batch.size()) && trimmed(batch_of(t)).size() > batch.size()) return false;
    }
    return true;
  }

  ValueId grouped(Builder& b, ValueId id, const std::vector<Expr>& batch) {
    if (batch_of(type(id)) == batch) return id;
    std::vector<Expr> sizes = batch;
    sizes.insert(sizes.end(), type(id).sizes.end() - 2, type(id).sizes.end());
    return aten(b, "aten::view", {id, std::move(sizes)});
  }

  ValueId from_products(Builder& b, const Node& last) {
    const ValueId weights = first_of(last);
    ValueId soft = weights;
    while (const Node* view = made_by(soft, "aten::view")) {
      if (!is_used_once(soft) || !same_matrices(type(first_of(*view)), type(soft))) return {};
      soft = first_of(*view);
    }
    const Node* softmax = made_by(soft, "aten::_softmax");
    if (softmax == nullptr || !is_used_once(soft) || !is_float(soft)) return {};
    const NodeView s(graph_, *softmax->op, softmax->args);
    const int rank = type(soft).rank();
    if (!s.expr("dim").is_const() || (s.integer("dim") != -1 && s.integer("dim") != rank - 1) || s.boolean("half_to_float")) return {};
    Found f;
    mask_batches_.clear();
    const Node* first = nullptr;
    if (!walk_scores(s.value("self"), type(soft), &f, &first)) return {};
    const NodeView p(graph_, *first->op, first->args), l(graph_, *last.op, last.args);
    const ValueId q3 = p.value("self"), k3 = p.value("mat2"), v3 = l.value("mat2");
    if (!is_float(q3) || !is_float(k3) || !is_float(v3)) return {};
    f.q = ungrouped(q3);
    f.v = ungrouped(v3);
    ValueId k = ungrouped(k3);
    if (batch_of(type(f.q)) != batch_of(type(k)) || batch_of(type(f.q)) != batch_of(type(f.v))) f.q = q3;
    const std::vector<Expr> batch = batch_of(type(f.q));
    if (!masks_fit(f, batch)) return {};
    take_scale(&f);
    f.k = transposed(b, k);
    if (!f.k.valid()) return {};
    f.k = grouped(b, f.k, batch);
    f.v = grouped(b, f.v, batch);
    if (!f.k.valid() || !f.v.valid()) return {};
    const ValueId made = build(b, f, false, false, false, last);
    if (!made.valid()) return {};
    return type(made).sizes == type(last.outputs[0]).sizes ? made : aten(b, "aten::view", {made, type(last.outputs[0]).sizes});
  }

  /// The value with its last two dims swapped: what a permute that did so read, or a new permute.
  ValueId transposed(Builder& b, ValueId id) {
    std::vector<Expr> order;
    for (int d = 0; d < type(id).rank(); ++d) order.push_back(Expr(d));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    if (const Node* permute = made_by(id, "aten::permute")) {
      if (NodeView(graph_, *permute->op, permute->args).exprs("dims") == order) return first_of(*permute);
    }
    return aten(b, "aten::permute", {id, order});
  }

  /// A view of a view that has the sizes again which the first one started from.
  ValueId seen_through(const Node& node) const {
    const Node* inner = made_by(first_of(node), "aten::view");
    if (inner == nullptr || made_by(first_of(*inner), kAttention) == nullptr) return {};
    return type(first_of(*inner)).sizes == type(node.outputs[0]).sizes ? first_of(*inner) : ValueId();
  }

  Graph& graph_;
  const ir::Catalog& catalog_;
  KernelSources& sources_;
  std::vector<uint32_t> uses_;
  mutable std::vector<std::vector<Expr>> mask_batches_;
};

/// Results that are only read with heads and rows swapped are stored in that order: the swap and the merge behind it are then no copies.
void store_for_readers(Graph& graph) {
  std::vector<std::vector<const Node*>> readers(graph.values.size());
  std::vector<bool> fixed(graph.values.size(), false);
  for (const NodeId id : graph.order) ir::for_each_use(graph[id], [&](ValueId used) { readers[used.index].push_back(&graph[id]); });
  ir::for_each_result(graph, [&](ValueId& used) { fixed[used.index] = true; });
  const std::vector<Expr> swap{Expr(0), Expr(2), Expr(1), Expr(3)};
  for (const NodeId id : graph.order) {
    const Node& node = graph[id];
    if (node.op->name != kAttention) continue;
    TensorType& type = graph[node.outputs[0]].type;
    const std::vector<const Node*>& users = readers[node.outputs[0].index];
    if (type.rank() != 4 || users.empty() || fixed[node.outputs[0].index]) continue;
    const bool swapped = std::ranges::all_of(users, [&](const Node* user) {
      return user->op->name == "aten::permute" && NodeView(graph, *user->op, user->args).exprs("dims") == swap && !fixed[user->outputs[0].index];
    });
    if (!swapped) continue;
    const Expr heads = dim_max(type.sizes[1], 1), rows = dim_max(type.sizes[2], 1), width = dim_max(type.sizes[3], 1);
    type.strides = {heads * rows * width, width, heads * width, 1};
    for (const Node* user : users) {
      TensorType& seen = graph[user->outputs[0]].type;
      seen.strides = ir::contiguous_strides_of(seen.sizes);
    }
  }
}

}  // namespace

Status lower_attention(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources) {
  AttentionMatcher matcher(graph, catalog, sources);
  PTERON_ASSIGN(const bool changed, ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) {
                  return matcher.visit(builder, id, replacements);
                }));
  if (changed) store_for_readers(graph);
  return ok_status();
}

}  // namespace pteron::cuda
