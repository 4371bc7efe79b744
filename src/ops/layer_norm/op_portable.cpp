// Group norm in terms of means, products and sums.
#include "ops/layer_norm/portable.h"

#include "ops/portable.h"

namespace pteron::ops::layer_norm {

using ir::Builder;

std::vector<ValueId> portable_group_norm(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId input = n.value("input");
  if (is_reduced_float(f.dtype(input))) return {};
  const Expr batch = n.expr("N"), groups = n.expr("group"), rest = floor_div(n.expr("C") * n.expr("HxW"), groups);
  const ValueId x = f.view(input, {batch, groups, rest});
  const auto mean = [&](ValueId v) { return b.op("aten::mean.dim", {v, std::vector<Expr>{Expr(2)}, b.boolean(true)}); };
  const ValueId center = mean(x), moved = f.sub(x, center);
  const ValueId scale = f.unary("aten::rsqrt", f.add(mean(f.mul(moved, moved)), n.expr("eps")));
  ValueId out = f.view(f.mul(moved, scale), f.sizes(input));
  if (!n.is_none("weight")) out = f.mul(out, f.along(n.value("weight"), 1, f.rank(input)));
  if (!n.is_none("bias")) out = f.add(out, f.along(n.value("bias"), 1, f.rank(input)));
  return {out, f.view(center, {batch, groups}), f.view(scale, {batch, groups})};
}

std::vector<ValueId> portable_layer_norm(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("input");
  if (is_reduced_float(f.dtype(x))) return {};
  std::vector<Expr> dims;
  for (int64_t d = -static_cast<int64_t>(n.exprs("normalized_shape").size()); d < 0; ++d) dims.emplace_back(d);
  const auto mean = [&](ValueId v) { return b.op("aten::mean.dim", {v, dims, b.boolean(true)}); };
  const ValueId center = mean(x), moved = f.sub(x, center);
  const ValueId scale = f.unary("aten::rsqrt", f.add(mean(f.mul(moved, moved)), n.expr("eps")));
  ValueId out = f.mul(moved, scale);
  if (!n.is_none("weight")) out = f.mul(out, n.value("weight"));
  if (!n.is_none("bias")) out = f.add(out, n.value("bias"));
  return {out, center, scale};
}

}  // namespace pteron::ops::layer_norm
