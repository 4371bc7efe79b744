// Choosing and mixing in terms of the kernels that the official runtime has: where.self, clamp, sums and products.
#include "ops/blend/portable.h"

#include <cmath>

#include "ops/portable.h"

namespace pteron::ops::blend {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

DType result_dtype(const NodeView& n) {
  const bool third = n.has("tensor1");
  return third ? result_type(n, {"self", "tensor1", "tensor2"}) : result_type(n, {"self", "other"});
}

/// self + value * t1 * t2, or / t2, in the order of ATen and in float for half and bfloat16. Integers take the whole part of the value.
Ids add_combined(Builder& b, const NodeView& n, bool divide) {
  Portable f(b);
  const DType dtype = result_dtype(n);
  const DType wide = is_floating(dtype) ? Portable::wide_dtype(dtype) : dtype;
  const ValueId self = f.to(n.value("self"), wide), first = f.to(n.value("tensor1"), wide), second = f.to(n.value("tensor2"), wide);
  Expr value = n.expr("value", 1);
  if (!is_floating(dtype) && !is_complex(dtype) && value.type() == ir::ExprType::kFloat && ir::is_number(value)) value = Expr(static_cast<int64_t>(ir::number_of(value)));
  const ValueId scaled = ir::is_number(value) && ir::number_of(value) == 1 ? first : f.mul(first, value);
  return {f.to(f.add(self, divide ? f.div(scaled, second) : f.mul(scaled, second)), dtype)};
}

}  // namespace

Ids portable_addcmul(Builder& b, const NodeView& n) { return add_combined(b, n, false); }
Ids portable_addcdiv(Builder& b, const NodeView& n) {
  if (!is_floating(result_dtype(n))) return {};
  return add_combined(b, n, true);
}

/// clamp_min and clamp_max as clamp with one limit.
Ids portable_clamp_limit(Builder& b, const NodeView& n) {
  const bool low = n.has("min");
  const std::string_view name = low ? "min" : "max";
  const bool tensor = n.op().name.ends_with(".Tensor");
  const ir::Arg limit = n.arg(name);
  return {b.op(tensor ? "aten::clamp.Tensor" : "aten::clamp", {n.value("self"), low ? limit : ir::Arg(), low ? ir::Arg() : limit})};
}

/// self + w * (end - self), from the nearer end.
Ids portable_lerp(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = n.type("self").dtype;
  if (!is_floating(dtype)) return {};
  const ValueId start = f.wide(n.value("self")), end = f.wide(n.value("end"));
  const ValueId difference = f.sub(end, start);
  if (!n.is_value("weight")) {
    if (!ir::is_number(n.expr("weight"))) return {};
    const double w = n.number("weight");
    if (std::abs(w) < 0.5) return {f.to(f.add(start, f.scale(difference, w)), dtype)};
    return {f.to(f.sub(end, f.scale(difference, 1 - w)), dtype)};
  }
  const ValueId w = f.wide(n.value("weight"));
  const ValueId near = f.add(start, f.mul(w, difference));
  const ValueId far = f.sub(end, f.mul(difference, b.op("aten::rsub.Scalar", {w, Expr(1)})));
  return {f.to(f.where(f.compare("lt", f.unary("aten::abs", w), 0.5), near, far), dtype)};
}

Ids portable_masked_fill(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  return {f.where(n.value("mask"), f.to(n.value("value"), f.dtype(self)), self)};
}

/// Numbers as 0-d tensors of the result's dtype.
Ids portable_where(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = result_dtype(n);
  const auto operand = [&](std::string_view name) { return n.is_value(name) ? f.to(n.value(name), dtype) : f.number(n.expr(name), dtype); };
  const ValueId x = operand("self");
  return {f.where(n.value("condition"), x, operand("other"))};
}

}  // namespace pteron::ops::blend
