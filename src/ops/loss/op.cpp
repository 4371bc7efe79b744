// Losses and distances as decompositions into pointwise operators, reductions and gathers, in the order in which ATen computes them.
#include <cmath>
#include <string>

#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/infer.h"

namespace pteron::ops::loss {

namespace {

using ir::Arg;
using ir::Builder;

/// Numbers of at::Reduction.
enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

ValueId reduce(Builder& b, const NodeView& n, ValueId x) {
  const int64_t how = n.integer("reduction", kMean);
  if (how == kNone) return x;
  return b.op(how == kMean ? "aten::mean" : "aten::sum", {x});
}

Status add_reduced(InferContext& c, DType dtype, std::vector<Expr> sizes) {
  if (c.integer("reduction", kMean) != kNone) sizes.clear();
  c.add(dtype, std::move(sizes));
  return ok_status();
}
Status infer_pair(InferContext& c, std::string_view a, std::string_view b) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {a, b}, &sizes));
  return add_reduced(c, result_type(c, {a, b}), std::move(sizes));
}
Status infer_loss(InferContext& c) { return infer_pair(c, "self", "target"); }
Status infer_input_loss(InferContext& c) { return infer_pair(c, "input", "target"); }
Status infer_weighted_loss(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "target"}, &sizes));
  return add_reduced(c, c.type("self").dtype, std::move(sizes));
}

std::vector<ValueId> decompose_mse(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId diff = c.sub(n.value("self"), n.value("target"));
  return {reduce(b, n, c.mul(diff, diff))};
}
std::vector<ValueId> decompose_l1(Builder& b, const NodeView& n) {
  Compose c(b);
  return {reduce(b, n, c.unary("aten::abs", c.sub(n.value("self"), n.value("target"))))};
}
std::vector<ValueId> decompose_smooth_l1(Builder& b, const NodeView& n) {
  const double beta = n.number("beta", 1);
  if (beta == 0) return decompose_l1(b, n);
  Compose c(b);
  const ValueId z = c.unary("aten::abs", c.sub(n.value("self"), n.value("target")));
  const ValueId inside = b.op("aten::div.Scalar", {c.mul(c.mul(z, b.floating(0.5)), z), b.floating(beta)});
  const ValueId outside = c.add(z, b.floating(-0.5 * beta));
  return {reduce(b, n, b.op("aten::where.self", {b.op("aten::lt.Scalar", {z, b.floating(beta)}), inside, outside}))};
}
std::vector<ValueId> decompose_huber(Builder& b, const NodeView& n) {
  const double delta = n.number("delta", 1);
  Compose c(b);
  const ValueId z = c.unary("aten::abs", c.sub(n.value("self"), n.value("target")));
  const ValueId inside = c.mul(c.mul(z, b.floating(0.5)), z);
  const ValueId outside = c.mul(c.add(z, b.floating(-0.5 * delta)), b.floating(delta));
  return {reduce(b, n, b.op("aten::where.self", {b.op("aten::le.Scalar", {z, b.floating(delta)}), inside, outside}))};
}
std::vector<ValueId> decompose_bce(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("self"), target = n.value("target");
  const auto bounded = [&](ValueId log) { return b.op("aten::clamp_min", {log, Expr(-100)}); };
  const ValueId other = bounded(c.unary("aten::log1p", c.unary("aten::neg", x)));
  const ValueId first = c.mul(c.add(target, Expr(-1)), other);
  ValueId loss = c.sub(first, c.mul(target, bounded(c.unary("aten::log", x))));
  if (!n.is_none("weight")) loss = c.mul(loss, n.value("weight"));
  return {reduce(b, n, loss)};
}
std::vector<ValueId> decompose_bce_with_logits(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("self"), target = n.value("target");
  ValueId log_sigmoid = c.unary("aten::log_sigmoid", x);
  if (!n.is_none("pos_weight")) {
    const ValueId weight = c.add(c.mul(c.add(n.value("pos_weight"), Expr(-1)), target), Expr(1));
    log_sigmoid = c.mul(weight, log_sigmoid);
  }
  ValueId loss = c.sub(c.mul(b.op("aten::rsub.Scalar", {target, Expr(1)}), x), log_sigmoid);
  if (!n.is_none("weight")) loss = c.mul(loss, n.value("weight"));
  return {reduce(b, n, loss)};
}
std::vector<ValueId> decompose_kl_div(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("self"), target = n.value("target");
  if (n.boolean("log_target")) return {reduce(b, n, c.mul(c.unary("aten::exp", target), c.sub(target, x)))};
  return {reduce(b, n, c.sub(b.op("aten::xlogy.Tensor", {target, target}), c.mul(target, x)))};
}
std::vector<ValueId> decompose_poisson(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("input"), target = n.value("target");
  ValueId loss;
  if (n.boolean("log_input")) {
    loss = c.sub(c.unary("aten::exp", x), c.mul(target, x));
  } else {
    loss = c.sub(x, c.mul(target, c.unary("aten::log", c.add(x, b.floating(n.number("eps"))))));
  }
  if (n.boolean("full")) {
    constexpr double kTwoPi = 6.28318530717958647692;
    const ValueId first = c.sub(c.mul(target, c.unary("aten::log", target)), target);
    const ValueId stirling = c.add(first, c.mul(c.unary("aten::log", c.mul(target, b.floating(kTwoPi))), b.floating(0.5)));
    const ValueId small = b.op("aten::le.Scalar", {target, Expr(1)});
    loss = c.add(loss, b.op("aten::masked_fill.Scalar", {stirling, small, Expr(0)}));
  }
  return {reduce(b, n, loss)};
}
std::vector<ValueId> decompose_soft_margin(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId z = c.mul(c.unary("aten::neg", n.value("self")), n.value("target"));
  return {reduce(b, n, c.unary("aten::log1p", c.unary("aten::exp", z)))};
}

Status infer_ranking(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"input1", "input2", "target"}, &sizes));
  return add_reduced(c, result_type(c, {"input1", "input2", "target"}), std::move(sizes));
}
std::vector<ValueId> decompose_ranking(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId z = c.mul(c.unary("aten::neg", n.value("target")), c.sub(n.value("input1"), n.value("input2")));
  return {reduce(b, n, b.op("aten::clamp_min", {c.add(z, b.floating(n.number("margin"))), Expr(0)}))};
}
std::vector<ValueId> decompose_hinge_embedding(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("self"), target = n.value("target");
  const ValueId clamped = b.op("aten::clamp_min", {b.op("aten::rsub.Scalar", {x, b.floating(n.number("margin", 1))}), Expr(0)});
  const ValueId zeros = b.op("aten::zeros_like", {x});
  const ValueId margin = b.op("aten::where.self", {b.op("aten::ne.Scalar", {target, Expr(1)}), clamped, zeros});
  const ValueId own = b.op("aten::where.self", {b.op("aten::ne.Scalar", {target, Expr(-1)}), x, zeros});
  return {reduce(b, n, c.add(margin, own))};
}

Status infer_cosine_embedding(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"input1", "input2"}, &sizes));
  const size_t dim = c.type("target").sizes.size();
  if (dim >= sizes.size()) return Status(Code::kInvalidInput, "cosine_embedding_loss: the inputs need one dim more than the target");
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  PTERON_TRY(broadcast_exprs(sizes, c.type("target").sizes, &sizes));
  return add_reduced(c, to_float_dtype(result_type(c, {"input1", "input2"})), std::move(sizes));
}
std::vector<ValueId> decompose_cosine_embedding(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = n.value("input1"), y = n.value("input2"), target = n.value("target");
  const std::vector<Expr> dim = {Expr(n.type("target").rank())};
  const auto sum = [&](ValueId v) { return b.op("aten::sum.dim_IntList", {v, dim}); };  // integers and bools give int64
  const ValueId product = sum(c.mul(x, y));
  const ValueId size_x = c.add(sum(c.mul(x, x)), b.floating(1e-12));
  const ValueId size_y = c.add(sum(c.mul(y, y)), b.floating(1e-12));
  const ValueId cosine = c.div(product, c.unary("aten::sqrt", c.mul(size_x, size_y)));
  const ValueId zeros = b.op("aten::zeros_like", {cosine});
  const ValueId apart = b.op("aten::clamp_min", {c.add(cosine, b.floating(-n.number("margin"))), Expr(0)});
  const ValueId alike = b.op("aten::rsub.Scalar", {cosine, Expr(1)});
  const ValueId positive = b.op("aten::where.self", {b.op("aten::eq.Scalar", {target, Expr(1)}), alike, zeros});
  const ValueId negative = b.op("aten::where.self", {b.op("aten::eq.Scalar", {target, Expr(-1)}), apart, zeros});
  return {reduce(b, n, c.add(positive, negative))};
}

// Distances along a dim.
std::vector<Expr> without_dim(std::vector<Expr> sizes, int dim, bool keepdim) {
  if (keepdim) {
    sizes[static_cast<size_t>(dim)] = 1;
  } else {
    sizes.erase(sizes.begin() + dim);
  }
  return sizes;
}
Status infer_pairwise(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"x1", "x2"}, &sizes));
  if (sizes.empty()) return Status(Code::kInvalidInput, "pairwise_distance of tensors without dims");
  const int last = static_cast<int>(sizes.size()) - 1;
  c.add(result_type(c, {"x1", "x2"}), without_dim(std::move(sizes), last, c.boolean("keepdim")));
  return ok_status();
}
ValueId pairwise(Builder& b, ValueId x, ValueId y, double p, double eps, bool keepdim) {
  Compose c(b);
  const ValueId diff = c.add(c.sub(x, y), b.floating(eps));
  return b.op("aten::linalg_vector_norm", {diff, b.floating(p), std::vector<Expr>{Expr(c.rank(diff) - 1)}, b.boolean(keepdim)});
}
std::vector<ValueId> decompose_pairwise(Builder& b, const NodeView& n) {
  return {pairwise(b, n.value("x1"), n.value("x2"), n.number("p", 2), n.number("eps"), n.boolean("keepdim"))};
}
Status infer_cosine(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"x1", "x2"}, &sizes));
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim", 1), static_cast<int>(sizes.size())));
  if (sizes.empty()) {
    c.add(result_type(c, {"x1", "x2"}), {});
    return ok_status();
  }
  c.add(result_type(c, {"x1", "x2"}), without_dim(std::move(sizes), dim, false));
  return ok_status();
}
std::vector<ValueId> decompose_cosine(Builder& b, const NodeView& n) {
  Compose c(b);
  const DType dtype = result_type(n, {"x1", "x2"});
  std::vector<Expr> sizes;
  if (Status status = broadcast_args(n, {"x1", "x2"}, &sizes); !status.ok()) b.fail(std::move(status));
  const auto normal = [&](ValueId x) {
    x = c.expand(c.to(x, dtype), sizes);
    const ValueId size = b.op("aten::linalg_vector_norm", {x, b.floating(2.0), std::vector<Expr>{n.expr("dim", 1)}, b.boolean(true)});
    return c.div(x, b.op("aten::clamp_min", {size, b.floating(n.number("eps"))}));
  };
  const ValueId first = normal(n.value("x1"));
  return {c.sum(c.mul(first, normal(n.value("x2"))), {n.expr("dim", 1)})};
}
Status infer_triplet(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"anchor", "positive", "negative"}, &sizes));
  if (!sizes.empty()) sizes.pop_back();
  return add_reduced(c, result_type(c, {"anchor", "positive", "negative"}), std::move(sizes));
}
std::vector<ValueId> decompose_triplet(Builder& b, const NodeView& n) {
  Compose c(b);
  const double p = n.number("p", 2), eps = n.number("eps");
  const ValueId near = pairwise(b, n.value("anchor"), n.value("positive"), p, eps, false);
  ValueId far = pairwise(b, n.value("anchor"), n.value("negative"), p, eps, false);
  if (n.boolean("swap")) far = b.op("aten::minimum", {far, pairwise(b, n.value("positive"), n.value("negative"), p, eps, false)});
  const ValueId z = c.sub(c.add(near, b.floating(n.number("margin", 1))), far);
  return {reduce(b, n, b.op("aten::clamp_min", {z, Expr(0)}))};
}

// Class losses. Classes are dim 1, or dim 0 of one sample.
int class_dim(const TensorType& type) { return type.rank() == 1 ? 0 : 1; }

struct Picked {
  ValueId loss;    ///< -weight[target] * x[target], 0 where ignored
  ValueId weight;  ///< weight[target], 0 where ignored
};
Picked pick(Builder& b, const NodeView& n, ValueId x, ValueId target) {
  Compose c(b);
  const int dim = c.rank(x) == 1 ? 0 : 1;
  const ValueId ignored = b.op("aten::eq.Scalar", {target, n.expr("ignore_index", -100)});
  const ValueId safe = b.op("aten::masked_fill.Scalar", {c.to(target, DType::kInt64), ignored, Expr(0)});
  const ValueId taken = c.squeeze(b.op("aten::gather", {x, Expr(dim), c.unsqueeze(safe, dim)}), dim);
  ValueId weight;
  if (n.is_none("weight")) {
    weight = b.op("aten::ones_like", {taken});
  } else {
    weight = b.op("aten::index.Tensor", {n.value("weight"), std::vector<ValueId>{safe}});
  }
  weight = b.op("aten::masked_fill.Scalar", {weight, ignored, Expr(0)});
  ValueId loss = c.unary("aten::neg", n.is_none("weight") ? taken : c.mul(taken, weight));
  loss = b.op("aten::masked_fill.Scalar", {loss, ignored, Expr(0)});
  return {loss, weight};
}
ValueId reduce_picked(Builder& b, const NodeView& n, const Picked& picked) {
  const int64_t how = n.integer("reduction", kMean);
  if (how == kNone) return picked.loss;
  const ValueId total = b.op("aten::sum", {picked.loss});
  return how == kSum ? total : b.op("aten::div.Tensor", {total, b.op("aten::sum", {picked.weight})});
}
Status infer_nll(InferContext& c) { return add_reduced(c, c.type("self").dtype, c.type("target").sizes); }
std::vector<ValueId> decompose_nll(Builder& b, const NodeView& n) {
  return {reduce_picked(b, n, pick(b, n, n.value("self"), n.value("target")))};
}
Status infer_nll_forward(InferContext& c) {
  PTERON_TRY(infer_nll(c));
  c.add(c.type("self").dtype, {});
  return ok_status();
}
std::vector<ValueId> decompose_nll_forward(Builder& b, const NodeView& n) {
  const Picked picked = pick(b, n, n.value("self"), n.value("target"));
  const bool none = n.integer("reduction", kMean) == kNone;
  const ValueId total = none ? b.op("aten::full", {std::vector<Expr>{}, Expr(0), n.type("self").dtype}) : b.op("aten::sum", {picked.weight});
  return {reduce_picked(b, n, picked), total};
}

Status infer_cross_entropy(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  if (sizes.empty()) return Status(Code::kInvalidInput, "cross_entropy_loss of a tensor without dims");
  sizes.erase(sizes.begin() + class_dim(c.type("self")));
  return add_reduced(c, c.type("self").dtype, std::move(sizes));
}
/// The weight of classes shaped to multiply a tensor like self.
ValueId class_weight(Builder& b, const NodeView& n) {
  std::vector<Expr> sizes(n.type("self").sizes.size(), Expr(1));
  sizes[static_cast<size_t>(class_dim(n.type("self")))] = n.type("weight").sizes[0];
  return b.op("aten::view", {n.value("weight"), std::move(sizes)});
}
ValueId probability_loss(Builder& b, const NodeView& n, ValueId log_probability) {
  Compose c(b);
  const int dim = class_dim(n.type("self"));
  const Expr classes = n.type("self").sizes[static_cast<size_t>(dim)];
  const double smoothing = n.number("label_smoothing");
  ValueId target = n.value("target");
  if (smoothing > 0 && classes.is_const()) {
    target = c.add(c.mul(target, b.floating(1 - smoothing)), b.floating(smoothing / static_cast<double>(classes.value())));
  }
  ValueId product = c.mul(log_probability, target);
  if (!n.is_none("weight")) product = c.mul(product, class_weight(b, n));
  const int64_t how = n.integer("reduction", kMean);
  if (how == kNone) return c.unary("aten::neg", c.sum(product, {Expr(dim)}));
  const ValueId total = c.unary("aten::neg", b.op("aten::sum", {product}));
  if (how == kSum) return total;
  Expr samples = 1;
  for (int d = 0; d < n.type("self").rank(); ++d) {
    if (d != dim) samples = samples * n.type("self").sizes[static_cast<size_t>(d)];
  }
  return b.op("aten::div.Scalar", {total, samples});
}
ValueId smoothed_loss(Builder& b, const NodeView& n, ValueId log_probability, double smoothing) {
  Compose c(b);
  const int dim = class_dim(n.type("self"));
  const Expr classes = n.type("self").sizes[static_cast<size_t>(dim)];
  const Picked picked = pick(b, n, log_probability, n.value("target"));
  const ValueId weighted = n.is_none("weight") ? log_probability : c.mul(log_probability, class_weight(b, n));
  const ValueId ignored = b.op("aten::eq.Scalar", {n.value("target"), n.expr("ignore_index", -100)});
  const ValueId smooth = b.op("aten::masked_fill.Scalar", {c.unary("aten::neg", c.sum(weighted, {Expr(dim)})), ignored, Expr(0)});
  const ValueId hard = reduce_picked(b, n, picked), soft = reduce_picked(b, n, {smooth, picked.weight});
  const double share = smoothing / static_cast<double>(classes.is_const() ? classes.value() : 1);
  return c.add(c.mul(hard, b.floating(1 - smoothing)), c.mul(soft, b.floating(share)));
}
std::vector<ValueId> decompose_cross_entropy(Builder& b, const NodeView& n) {
  const int dim = class_dim(n.type("self"));
  const double smoothing = n.number("label_smoothing");
  if (smoothing > 0 && !n.type("self").sizes[static_cast<size_t>(dim)].is_const()) return {};
  const ValueId log_probability = b.op("aten::_log_softmax", {n.value("self"), Expr(dim), b.boolean(false)});
  if (is_floating(n.type("target").dtype)) return {probability_loss(b, n, log_probability)};
  if (smoothing > 0) return {smoothed_loss(b, n, log_probability, smoothing)};
  return {reduce_picked(b, n, pick(b, n, log_probability, n.value("target")))};
}

Status infer_margin(InferContext& c) {
  const TensorType& self = c.type("self");
  return add_reduced(c, self.dtype, self.rank() < 2 ? std::vector<Expr>{} : std::vector<Expr>{self.sizes[0]});
}
/// x as [samples, classes].
ValueId as_matrix(Compose& c, ValueId x) {
  for (int missing = 2 - c.rank(x); missing > 0; --missing) x = c.unsqueeze(x, 0);
  return x;
}
ValueId reduce_samples(Builder& b, const NodeView& n, ValueId losses) {
  if (n.integer("reduction", kMean) == kNone && n.type("self").rank() < 2) return b.op("aten::squeeze.dim", {losses, Expr(0)});
  return reduce(b, n, losses);
}
std::vector<ValueId> decompose_multi_margin(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = as_matrix(c, n.value("self"));
  ValueId target = n.value("target");
  if (c.rank(target) == 0) target = c.unsqueeze(target, 0);
  const Expr classes = c.size(x, 1);
  const ValueId column = c.unsqueeze(target, 1);
  const ValueId own = b.op("aten::gather", {x, Expr(1), column});
  ValueId z = b.op("aten::clamp_min", {c.add(c.sub(x, own), n.expr("margin", 1)), Expr(0)});
  if (n.number("p", 1) == 2) z = c.mul(z, z);
  if (!n.is_none("weight")) z = c.mul(z, c.unsqueeze(b.op("aten::index.Tensor", {n.value("weight"), std::vector<ValueId>{target}}), 1));
  const ValueId is_own = b.op("aten::eq.Tensor", {b.op("aten::arange", {classes, DType::kInt64}), column});
  z = b.op("aten::masked_fill.Scalar", {z, is_own, Expr(0)});
  return {reduce_samples(b, n, b.op("aten::div.Scalar", {c.sum(z, {Expr(1)}), classes}))};
}

struct MultiLabel {
  ValueId losses;     ///< one per sample
  ValueId is_target;  ///< bool, [samples, classes]
};
MultiLabel multilabel(Builder& b, const NodeView& n) {
  Compose c(b);
  const ValueId x = as_matrix(c, n.value("self")), target = as_matrix(c, n.value("target"));
  const Expr classes = c.size(x, 1);
  // Targets count up to the first -1.
  const ValueId index = b.op("aten::arange", {classes, DType::kInt64});
  const ValueId at_end = b.op("aten::where.ScalarOther", {b.op("aten::eq.Scalar", {target, Expr(-1)}), index, classes});
  const ValueId end = b.op("aten::amin", {at_end, std::vector<Expr>{Expr(1)}, b.boolean(true)});
  const ValueId counts = b.op("aten::lt.Tensor", {index, end});
  const ValueId safe = b.op("aten::where.ScalarOther", {counts, target, Expr(0)});
  const ValueId listed = b.op("aten::where.ScalarOther", {counts, target, Expr(-1)});
  const ValueId is_target = b.op("aten::any.dim", {b.op("aten::eq.Tensor", {index, c.unsqueeze(listed, 2)}), Expr(1)});
  const ValueId own = c.unsqueeze(b.op("aten::gather", {x, Expr(1), safe}), 2);
  ValueId z = c.add(b.op("aten::rsub.Scalar", {own, Expr(1)}), c.unsqueeze(x, 1));
  z = b.op("aten::div.Scalar", {b.op("aten::clamp_min", {z, Expr(0)}), classes});
  z = b.op("aten::masked_fill.Scalar", {z, c.unsqueeze(is_target, 1), Expr(0)});
  z = b.op("aten::masked_fill.Scalar", {z, b.op("aten::logical_not", {c.unsqueeze(counts, 2)}), Expr(0)});
  return {c.sum(z, {Expr(1), Expr(2)}), is_target};
}
// A 0-d sample without reduction gives a 0-d loss; PyTorch's export says [1] for it, its kernel gives [].
std::vector<ValueId> decompose_multilabel(Builder& b, const NodeView& n) {
  const std::vector<ValueId> made = b.ops("aten::multilabel_margin_loss_forward", {n.value("self"), n.value("target"), Expr(n.integer("reduction", kMean))});
  return made.empty() ? made : std::vector<ValueId>{made.front()};
}
Status infer_multilabel_forward(InferContext& c) {
  PTERON_TRY(infer_margin(c));
  c.add(c.type("self").dtype, c.type("target").sizes);
  return ok_status();
}
std::vector<ValueId> decompose_multilabel_forward(Builder& b, const NodeView& n) {
  Compose c(b);
  const MultiLabel made = multilabel(b, n);
  const ValueId is_target = c.view(c.to(made.is_target, n.type("self").dtype), n.type("target").sizes);
  return {reduce_samples(b, n, made.losses), is_target};
}

Status infer_linear_cross_entropy(InferContext& c) {
  const DType dtype = c.type("input").dtype;
  if (c.type("input").rank() != 2 || c.type("linear_weight").rank() != 2) return Status(Code::kInvalidInput, "linear_cross_entropy expects matrices");
  if (!c.has("reduction")) {
    c.add(dtype, {c.type("input").sizes[0]});
    return ok_status();
  }
  c.add(dtype, {});
  const std::vector<Expr> none{Expr(0), Expr(0)}, classes{c.type("linear_weight").sizes[0]};
  c.add(dtype, c.boolean("compute_input_grad") ? c.type("input").sizes : none);
  c.add(dtype, c.boolean("compute_linear_weight_grad") ? c.type("linear_weight").sizes : none);
  c.add(dtype, c.boolean("compute_linear_bias_grad") ? classes : std::vector<Expr>{Expr(0)});
  return ok_status();
}
/// The chunks of PyTorch's operator only save memory: one product and a cross entropy, in float for half and bfloat16. The gradients that it
/// makes ahead in training are not known here.
std::vector<ValueId> decompose_linear_cross_entropy(Builder& b, const NodeView& n) {
  Compose c(b);
  const DType dtype = n.type("input").dtype, wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const bool reduced = n.has("reduction");
  for (const std::string_view gradient : {"compute_input_grad", "compute_linear_weight_grad", "compute_linear_bias_grad"}) {
    if (reduced && n.boolean(gradient)) return {};
  }
  const auto widened = [&](std::string_view name) { return n.is_none(name) ? ir::Arg() : ir::Arg(c.to(n.value(name), wide)); };
  const ValueId logits = b.op("aten::linear", {widened("input"), widened("linear_weight"), widened("linear_bias")});
  const int64_t how = !reduced ? kNone : n.text("reduction") == "mean" ? kMean : kSum;
  const ir::Arg smoothing = reduced ? n.arg("label_smoothing") : ir::Arg(b.floating(0.0));
  const ValueId loss = b.op("aten::cross_entropy_loss", {logits, n.value("target"), widened("weight"), Expr(how), n.arg("ignore_index"), smoothing});
  if (!reduced) return {c.to(loss, dtype)};
  const auto empty = [&](std::vector<Expr> sizes) { return b.op("aten::full", {std::move(sizes), Expr(0), dtype}); };
  const ValueId matrix = empty({Expr(0), Expr(0)});
  return {c.to(loss, dtype), matrix, matrix, empty({Expr(0)})};
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean) -> Tensor",
     .infer = infer_weighted_loss,
     .decompose = decompose_bce},
    {.schema = "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
               "int reduction=Mean) -> Tensor",
     .infer = infer_weighted_loss,
     .decompose = decompose_bce_with_logits},
    {.schema = "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> Tensor",
     .infer = infer_cosine_embedding,
     .decompose = decompose_cosine_embedding},
    {.schema = "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
     .infer = infer_cosine,
     .decompose = decompose_cosine},
    {.schema = "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100, "
               "float label_smoothing=0.0) -> Tensor",
     .infer = infer_cross_entropy,
     .decompose = decompose_cross_entropy},
    {.schema = "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=Mean) -> Tensor",
     .infer = infer_weighted_loss,
     .decompose = decompose_hinge_embedding},
    {.schema = "aten::huber_loss(Tensor self, Tensor target, int reduction=Mean, float delta=1.0) -> Tensor",
     .infer = infer_loss,
     .decompose = decompose_huber,
     .kernel = "aten::huber_loss.out"},
    {.schema = "aten::kl_div(Tensor self, Tensor target, int reduction=Mean, *, bool log_target=False) -> Tensor",
     .infer = infer_loss,
     .decompose = decompose_kl_div},
    {.schema = "aten::l1_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor", .infer = infer_loss, .decompose = decompose_l1},
    {.schema = "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean) -> Tensor",
     .infer = infer_ranking,
     .decompose = decompose_ranking},
    {.schema = "aten::mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor", .infer = infer_loss, .decompose = decompose_mse},
    {.schema = "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, "
               "int reduction=Mean) -> Tensor",
     .infer = infer_margin,
     .decompose = decompose_multi_margin},
    {.schema = "aten::multilabel_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor",
     .infer = infer_margin,
     .decompose = decompose_multilabel},
    {.schema = "aten::multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor is_target)",
     .infer = infer_multilabel_forward,
     .decompose = decompose_multilabel_forward,
     .kernel = "aten::multilabel_margin_loss_forward.output"},
    {.schema = "aten::nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> Tensor",
     .infer = infer_nll,
     .decompose = decompose_nll},
    {.schema = "aten::nll_loss2d(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> Tensor",
     .infer = infer_nll,
     .decompose = decompose_nll},
    {.schema = "aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> "
               "(Tensor output, Tensor total_weight)",
     .infer = infer_nll_forward,
     .decompose = decompose_nll_forward},
    {.schema = "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> "
               "(Tensor output, Tensor total_weight)",
     .infer = infer_nll_forward,
     .decompose = decompose_nll_forward},
    {.schema = "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100) -> Tensor",
     .infer = infer_nll,
     .decompose = decompose_nll},
    {.schema = "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor",
     .infer = infer_pairwise,
     .decompose = decompose_pairwise},
    {.schema = "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
     .infer = infer_input_loss,
     .decompose = decompose_poisson},
    {.schema = "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=Mean, float beta=1.0) -> Tensor",
     .infer = infer_loss,
     .decompose = decompose_smooth_l1,
     .kernel = "aten::smooth_l1_loss.out"},
    {.schema = "aten::soft_margin_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor",
     .infer = infer_loss,
     .decompose = decompose_soft_margin},
    {.schema = "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, "
               "bool swap=False, int reduction=Mean) -> Tensor",
     .infer = infer_triplet,
     .decompose = decompose_triplet},
    {.schema = "torch_nn::_linear_cross_entropy_batch_chunked(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, "
               "str reduction, SymInt ignore_index, float label_smoothing, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype, "
               "bool allow_retain_graph, bool compute_input_grad, bool compute_linear_weight_grad, bool compute_linear_bias_grad) -> "
               "(Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_linear_cross_entropy,
     .decompose = decompose_linear_cross_entropy},
    {.schema = "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, "
               "Tensor? weight, SymInt ignore_index, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype) -> Tensor",
     .infer = infer_linear_cross_entropy,
     .decompose = decompose_linear_cross_entropy},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::loss
