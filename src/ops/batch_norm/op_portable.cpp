// Batch norms in terms of means, products and sums.
#include "ops/batch_norm/portable.h"

#include "ops/portable.h"

namespace pteron::ops::batch_norm {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// x * weight + bias per channel, in the input's dtype.
ValueId scaled(Portable& f, const NodeView& n, ValueId x) {
  for (const bool product : {true, false}) {
    const std::string_view name = product ? "weight" : "bias";
    if (n.is_none(name)) continue;
    const ValueId by = f.along(f.to(n.value(name), f.dtype(x)), 1, f.rank(x));
    x = product ? f.mul(x, by) : f.add(x, by);
  }
  return f.to(x, n.type("input").dtype);
}

}  // namespace

Ids portable_no_stats(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = f.wide(n.value("input"));
  const DType dtype = n.type("input").dtype;
  if (is_reduced_float(dtype) || f.rank(x) < 2) return {};
  std::vector<Expr> dims;
  for (int d = 0; d < f.rank(x); ++d) {
    if (d != 1) dims.emplace_back(d);
  }
  const auto mean = [&](ValueId v) { return b.op("aten::mean.dim", {v, dims, b.boolean(true)}); };
  const ValueId center = mean(x), moved = f.sub(x, center);
  const ValueId scale = f.unary("aten::rsqrt", f.add(mean(f.mul(moved, moved)), n.expr("eps")));
  const std::vector<Expr> channels{f.size(x, 1)};
  return {scaled(f, n, f.mul(moved, scale)), f.view(center, channels), f.view(scale, channels)};
}

Ids portable_no_training(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = f.wide(n.value("input"));
  const DType dtype = n.type("input").dtype;
  if (is_reduced_float(dtype) || f.rank(x) < 2) return {};
  const ValueId scale = f.unary("aten::rsqrt", f.add(f.wide(n.value("running_var")), n.expr("eps")));
  const ValueId moved = f.sub(x, f.along(f.wide(n.value("running_mean")), 1, f.rank(x)));
  const ValueId none = b.op("aten::full", {std::vector<Expr>{Expr(0)}, Expr(0), dtype});
  return {scaled(f, n, f.mul(moved, f.along(scale, 1, f.rank(x)))), none, none};
}

}  // namespace pteron::ops::batch_norm
