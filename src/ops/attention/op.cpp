// Scaled dot product attention for the compiler. Our profile has a kernel; elsewhere it becomes products and a softmax.
#include <cmath>

#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/matmul/rows.h"
#include "ops/portable.h"

namespace pteron::ops::attention {
namespace {

using ir::Builder;
using ir::OpDef;

Status output_sizes(const NodeView& c, std::vector<Expr>* out) {
  const TensorType& q = c.type("query");
  const TensorType& k = c.type("key");
  const TensorType& v = c.type("value");
  const bool fits = q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2 && q.dtype == k.dtype && q.dtype == v.dtype &&
                    !dim_differ(q.sizes.back(), k.sizes.back()) && !dim_differ(k.sizes[k.sizes.size() - 2], v.sizes[v.sizes.size() - 2]);
  if (!fits) {
    return Status(Code::kInvalidInput, str_cat("query ", shape_text(q.sizes), ", key ", shape_text(k.sizes), " and value ", shape_text(v.sizes)));
  }
  if (c.number("dropout_p") != 0) return Status(Code::kUnsupported, str_cat("attention with dropout_p ", c.number("dropout_p"), " gives random results"));
  const std::span<const Expr> own(q.sizes.data(), q.sizes.size() - 2);
  *out = {own.begin(), own.end()};
  const bool gqa = c.has("enable_gqa") && c.boolean("enable_gqa");
  if (!gqa) PTERON_TRY(broadcast_exprs(own, std::span(k.sizes).first(k.sizes.size() - 2), out));
  out->push_back(q.sizes[q.sizes.size() - 2]);
  out->push_back(v.sizes.back());
  return ok_status();
}

Status infer(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(output_sizes(c, &sizes));
  c.add(c.type("query").dtype, std::move(sizes));
  return ok_status();
}

Status infer_flash(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(output_sizes(c, &sizes));
  c.add(c.type("query").dtype, sizes);
  sizes.pop_back();
  c.add(c.type("query").dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, std::move(sizes));
  return ok_status();
}

/// Key or value with every head repeated as often as query heads share it.
ValueId repeat_heads(Compose& f, ValueId x, Expr heads) {
  const Expr own = f.size(x, -3);
  if (own == heads) return x;
  std::vector<Expr> sizes = f.sizes(x);
  const size_t at = sizes.size() - 3;
  std::vector<Expr> wide = sizes;
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(at) + 1, floor_div(heads, own));
  sizes[at] = heads;
  return f.view(f.expand(f.unsqueeze(x, static_cast<int>(at) + 1), wide), sizes);
}

/// Scores before the softmax; query and key are widened.
ValueId scores_of(Portable& f, const NodeView& n, ValueId query, ValueId key) {
  Builder& b = f.b;
  const Expr width = f.size(query, -1);
  ValueId q = query, k = key;
  // The root of the scale on both sides, as ATen's composite does.
  if (!n.is_none("scale") || width.is_const()) {
    const double scale = n.number("scale", width.is_const() ? 1.0 / std::sqrt(static_cast<double>(width.value())) : 1.0);
    if (scale < 0) {
      q = f.mul(q, b.floating(scale));
    } else {
      q = f.mul(q, b.floating(std::sqrt(scale)));
      k = f.mul(k, b.floating(std::sqrt(scale)));
    }
  }
  ValueId scores = matmul::compose_matmul(f, q, f.transpose(k, -2, -1));
  ValueId mask = n.value("attn_mask");
  if (n.boolean("is_causal")) {
    const Expr rows = f.size(query, -2), keys = f.size(key, -2);
    const ValueId row = f.view(b.op("aten::arange", {rows, DType::kInt64}), {rows, Expr(1)});
    const ValueId keep = b.op("aten::ge.Tensor", {row, b.op("aten::arange", {keys, DType::kInt64})});
    const ValueId low = b.scalar_tensor(-INFINITY, f.dtype(query));
    scores = b.op("aten::where.self", {keep, scores, low});
  }
  if (mask.valid() && f.dtype(mask) == DType::kBool) {
    scores = b.op("aten::where.self", {mask, scores, b.scalar_tensor(-INFINITY, f.dtype(query))});
  } else if (mask.valid()) {
    scores = f.add(scores, f.wide(mask));
  }
  return scores;
}

ValueId attend(Portable& f, const NodeView& n, ValueId* scores) {
  const bool gqa = n.has("enable_gqa") && n.boolean("enable_gqa");
  const ValueId query = f.wide(n.value("query"));
  ValueId key = f.wide(n.value("key")), value = f.wide(n.value("value"));
  if (gqa && f.rank(key) >= 3) {
    const Expr heads = f.size(query, -3);
    key = repeat_heads(f, key, heads);
    value = repeat_heads(f, value, heads);
  }
  *scores = scores_of(f, n, query, key);
  const bool masked = n.value("attn_mask").valid();  // rows without any key give zeros
  const ValueId weights = f.b.op(masked ? "aten::_safe_softmax" : "aten::softmax.int", {*scores, Expr(-1)});
  return f.to(matmul::compose_matmul(f, weights, value), n.type("query").dtype);
}

std::vector<ValueId> decompose(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId scores;
  return {attend(f, n, &scores)};
}

std::vector<ValueId> decompose_flash(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId scores;
  ValueId out = attend(f, n, &scores);
  if (b.has_kernel == nullptr || b.has_kernel("pteron::scaled_dot_product_attention.out")) {
    out = b.op("aten::scaled_dot_product_attention", {n.arg("query"), n.arg("key"), n.arg("value"), n.arg("attn_mask"), n.arg("dropout_p"),
                                                      n.arg("is_causal"), n.arg("scale")});
  }
  const DType wide = f.dtype(scores) == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  return {out, b.op("aten::logsumexp", {f.to(scores, wide), std::vector<Expr>{Expr(-1)}})};
}

/// nn.MultiheadAttention's fast path, averaged weights included.
Status infer_multi_head(InferContext& c) {
  const TensorType q = c.type("query");
  if (q.rank() != 3) return Status(Code::kInvalidInput, str_cat("expected a query of rank 3, found ", shape_text(q.sizes)));
  c.add(q.dtype, q.sizes);
  if (!c.boolean("need_weights", true)) {
    c.add(q.dtype, {Expr(0)});
    return ok_status();
  }
  std::vector<Expr> weights{q.sizes[0]};
  if (!c.boolean("average_attn_weights", true)) weights.push_back(c.expr("num_head"));
  weights.push_back(q.sizes[1]);
  weights.push_back(c.type("key").sizes[1]);
  c.add(q.dtype, std::move(weights));
  return ok_status();
}

std::vector<ValueId> decompose_multi_head(Builder& b, const NodeView& n) {
  if (n.value("mask").valid()) return {};  // mask types of the fused op differ; refused by name
  Compose f(b);
  const ValueId inputs[3] = {n.value("query"), n.value("key"), n.value("value")};
  const Expr width = n.expr("embed_dim"), heads = n.expr("num_head");
  const Expr head = floor_div(width, heads), batch = f.size(inputs[0], 0);
  ValueId parts[3];
  for (int i = 0; i < 3; ++i) {
    const ValueId w = f.slice(n.value("qkv_weight"), 0, width * Expr(i), width * Expr(i + 1)), bias = f.slice(n.value("qkv_bias"), 0, width * Expr(i), width * Expr(i + 1));
    const ValueId x = b.op("aten::linear", {inputs[i], w, bias});
    parts[i] = f.transpose(f.view(x, {batch, f.size(x, 1), heads, head}), 1, 2);
  }
  const double scale = head.is_const() ? 1.0 / std::sqrt(static_cast<double>(head.value())) : 1.0;
  const ValueId scores = matmul::compose_matmul(f, f.mul(parts[0], b.floating(scale)), f.transpose(parts[1], -2, -1));
  const ValueId weights = b.op("aten::softmax.int", {scores, Expr(-1)});
  const ValueId mixed = f.transpose(matmul::compose_matmul(f, weights, parts[2]), 1, 2);
  const ValueId out = b.op("aten::linear", {f.view(mixed, {batch, f.size(inputs[0], 1), width}), n.value("proj_weight"), n.value("proj_bias")});
  if (!n.boolean("need_weights", true)) return {out, b.op("aten::full", {std::vector<Expr>{Expr(0)}, b.floating(0), f.dtype(out)})};
  return {out, n.boolean("average_attn_weights", true) ? b.op("aten::mean.dim", {weights, std::vector<Expr>{Expr(1)}}) : weights};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., "
               "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
     .infer = infer, .decompose = decompose, .kernel = "pteron::scaled_dot_product_attention.out"},
    {.schema = "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, "
               "Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
     .infer = infer_flash, .decompose = decompose_flash},
    {.schema = "aten::_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor qkv_weight, "
               "Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, bool average_attn_weights=True, "
               "int? mask_type=None) -> (Tensor, Tensor)",
     .infer = infer_multi_head, .decompose = decompose_multi_head},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::attention
