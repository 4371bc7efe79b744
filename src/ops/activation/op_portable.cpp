// Activations in terms of the kernels that the official runtime has: exponentials, clamps, choices, in float as ATen's own kernels compute.
#include "ops/activation/portable.h"

#include "ops/portable.h"

namespace pteron::ops::activation {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// fn(x in float) back in x's dtype.
template <typename Fn>
Ids in_float(Builder& b, const NodeView& n, Fn&& fn) {
  Portable f(b);
  const ValueId x = n.value("self");
  const DType dtype = f.dtype(x);
  return {f.to(fn(f, f.wide(x)), dtype)};
}

ValueId soft(Portable& f, ValueId x) { return f.unary("aten::log1p", f.unary("aten::exp", x)); }
/// clamp(x + 3, 0, 6) / 6.
ValueId gate(Portable& f, ValueId x) {
  return f.div(f.b.op("aten::clamp", {f.shift(x, 3.0), Expr(0), Expr(6)}), f.number(6.0, f.dtype(x)));
}

}  // namespace

Ids portable_silu(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return f.mul(x, f.unary("aten::sigmoid", x)); });
}
Ids portable_mish(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return f.mul(x, f.unary("aten::tanh", soft(f, x))); });
}
Ids portable_softplus(Builder& b, const NodeView& n) {
  const double beta = n.number("beta", 1), threshold = n.number("threshold", 20);
  return in_float(b, n, [&](Portable& f, ValueId x) {
    const ValueId scaled = beta == 1 ? x : f.scale(x, beta);
    const ValueId smooth = beta == 1 ? soft(f, scaled) : f.div(soft(f, scaled), f.number(beta, f.dtype(x)));
    return f.where(f.compare("gt", scaled, threshold), x, smooth);
  });
}
Ids portable_log_sigmoid(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) {
    const ValueId lower = f.b.op("aten::clamp", {x, {}, Expr(0)});
    return f.sub(lower, soft(f, f.unary("aten::neg", f.unary("aten::abs", x))));
  });
}
Ids portable_hardsigmoid(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return gate(f, x); });
}
Ids portable_hardswish(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) {
    const ValueId open = f.b.op("aten::clamp", {f.shift(x, 3.0), Expr(0), Expr(6)});
    return f.div(f.mul(x, open), f.number(6.0, f.dtype(x)));
  });
}
Ids portable_hardshrink(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const double limit = n.number("lambd", 0.5);
  const ValueId inside = f.both(f.compare("ge", x, -limit), f.compare("le", x, limit));
  return {f.where(inside, 0.0, x)};
}
Ids portable_softshrink(Builder& b, const NodeView& n) {
  const double limit = n.number("lambd", 0.5);
  return in_float(b, n, [&](Portable& f, ValueId x) {
    const ValueId low = f.where(f.compare("lt", x, -limit), f.shift(x, limit), f.scale(x, 0.0));
    return f.where(f.compare("gt", x, limit), f.shift(x, -limit), low);
  });
}
Ids portable_threshold(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  return {f.where(f.compare("le", x, number_for(b, n.expr("threshold"), f.dtype(x))), f.number(n.expr("value"), f.dtype(x)), x)};
}
Ids portable_prelu(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  return {f.where(f.compare("gt", x, Expr(0)), x, f.mul(x, n.value("weight")))};
}

}  // namespace pteron::ops::activation
