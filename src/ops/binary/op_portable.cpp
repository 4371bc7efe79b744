// Two-operand arithmetic in terms of the kernels that the official runtime has.
#include "ops/binary/portable.h"

#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::binary {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// An operand in dtype `to`: a tensor, or a number as 0-d tensor.
ValueId operand(Portable& f, const NodeView& n, std::string_view name, DType to) {
  return n.is_value(name) ? f.to(n.value(name), to) : f.number(n.expr(name), to);
}

/// The one that is not NaN, or `name` (maximum, minimum) of both.
Ids ignoring_nan(Builder& b, const NodeView& n, std::string_view name) {
  Portable f(b);
  const DType dtype = result_type(n, {"self", "other"});
  const ValueId x = operand(f, n, "self", dtype), y = operand(f, n, "other", dtype);
  const ValueId picked = b.op(name, {x, y});
  if (!is_floating(dtype)) return {picked};
  return {f.where(f.unary("aten::isnan", x), y, f.where(f.unary("aten::isnan", y), x, picked))};
}

/// max + log1p(base^-|x - y|) / log(base); equal infinities stay.
Ids log_sum(Builder& b, const NodeView& n, bool two) {
  Portable f(b);
  const DType dtype = result_type(n, {"self", "other"});
  if (!is_floating(dtype)) return {};
  const DType wide = Portable::wide_dtype(dtype);
  const ValueId x = operand(f, n, "self", wide), y = operand(f, n, "other", wide);
  const ValueId distance = f.unary("aten::neg", f.unary("aten::abs", f.sub(x, y)));
  const ValueId power = two ? b.op("aten::pow.Scalar", {b.floating(2.0), distance}) : f.unary("aten::exp", distance);
  ValueId rest = f.unary("aten::log1p", power);
  if (two) rest = f.scale(rest, 1.4426950408889634074);
  const ValueId sum = f.add(b.op("aten::maximum", {x, y}), rest);
  const ValueId same = f.both(f.unary("aten::isinf", x), f.compare("eq", x, y));
  return {f.to(f.where(same, x, sum), dtype)};
}

/// x * log(y): NaN where y is, 0 where x is.
Ids times_log(Builder& b, const NodeView& n, std::string_view log) {
  Portable f(b);
  const DType dtype = to_float_dtype(result_type(n, {"self", "other"}));
  if (is_complex(dtype)) return {};
  const DType wide = Portable::wide_dtype(dtype);
  const ValueId x = operand(f, n, "self", wide), y = operand(f, n, "other", wide);
  const ValueId product = f.mul(x, f.unary(log, y));
  return {f.to(f.where(f.unary("aten::isnan", y), y, f.where(f.compare("eq", x, Expr(0)), 0.0, product)), dtype)};
}

}  // namespace

Ids portable_fmax(Builder& b, const NodeView& n) { return ignoring_nan(b, n, "aten::maximum"); }
Ids portable_fmin(Builder& b, const NodeView& n) { return ignoring_nan(b, n, "aten::minimum"); }
Ids portable_logaddexp(Builder& b, const NodeView& n) { return log_sum(b, n, false); }
Ids portable_logaddexp2(Builder& b, const NodeView& n) { return log_sum(b, n, true); }
Ids portable_xlogy(Builder& b, const NodeView& n) { return times_log(b, n, "aten::log"); }
Ids portable_xlog1py(Builder& b, const NodeView& n) { return times_log(b, n, "aten::log1p"); }

/// The size of self with the sign of other, a number's or a tensor's.
Ids portable_copysign(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = to_float_dtype(result_type(n, {"self", "other"}));
  const ValueId size = f.unary("aten::abs", f.to(n.value("self"), dtype));
  const ValueId other = n.is_value("other") ? n.value("other") : f.number(n.expr("other"), dtype);
  return {f.where(b.op("aten::signbit", {other}), f.unary("aten::neg", size), size)};
}
/// In double, where squares of floats neither overflow nor vanish. Infinite beside NaN counts.
Ids portable_hypot(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = result_type(n, {"self", "other"});
  if (!is_floating(dtype) || dtype == DType::kFloat64) return {};
  const ValueId x = f.to(n.value("self"), DType::kFloat64), y = f.to(n.value("other"), DType::kFloat64);
  const ValueId root = f.unary("aten::sqrt", f.add(f.mul(x, x), f.mul(y, y)));
  const ValueId infinite = f.either(f.unary("aten::isinf", x), f.unary("aten::isinf", y));
  return {f.to(f.where(infinite, std::numeric_limits<double>::infinity(), root), dtype)};
}

/// A bitwise operator with the number first: the operators commute.
Ids portable_bitwise_number(Builder& b, const NodeView& n) {
  const std::string name(n.op().name.substr(0, n.op().name.find('.')));
  return {b.op(str_cat(name, ".Scalar"), {n.value("other"), n.arg("self")})};
}
Ids portable_shift_number(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::string name(n.op().name.substr(0, n.op().name.find('.')));
  const DType dtype = result_type(n, {"self", "other"});
  return {b.op(str_cat(name, ".Tensor"), {f.number(n.expr("self"), dtype), f.to(n.value("other"), dtype)})};
}
Ids portable_rsub(Builder& b, const NodeView& n) { return {b.op("aten::sub.Tensor", {n.value("other"), n.value("self"), n.arg("alpha")})}; }
/// `values` at 0, else 1 above and 0 below (and for NaN).
Ids portable_heaviside(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = result_type(n, {"self", "values"});
  const ValueId x = operand(f, n, "self", dtype);
  return {f.where(f.compare("eq", x, Expr(0)), operand(f, n, "values", dtype), f.to(f.compare("gt", x, Expr(0)), dtype))};
}

}  // namespace pteron::ops::binary
