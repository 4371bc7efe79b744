// Operators of one tensor in terms of the kernels that the official runtime has.
#include <cmath>

#include "ops/portable.h"
#include "ops/unary/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::unary {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr double kPi = 3.14159265358979323846;

/// fn(x in float), in the float dtype of the result.
template <typename Fn>
Ids in_float(Builder& b, const NodeView& n, Fn&& fn) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (is_complex(f.dtype(x))) return {};
  const DType dtype = to_float_dtype(f.dtype(x));
  return {f.to(fn(f, f.wide(x)), dtype)};
}

Ids filled(Builder& b, const NodeView& n, bool value) {
  return {b.op("aten::full_like", {n.value("self"), b.boolean(value), DType::kBool})};
}

double largest(DType d) {
  if (d == DType::kFloat64) return std::numeric_limits<double>::max();
  if (d == DType::kFloat32) return static_cast<double>(std::numeric_limits<float>::max());
  return d == DType::kFloat16 ? 65504.0 : 3.38953138925153547590470800371487866880e+38;  // bfloat16
}

}  // namespace

Ids portable_angle(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) {
    const ValueId turned = f.where(f.compare("lt", x, Expr(0)), f.number(kPi, f.dtype(x)), 0.0);
    return f.where(f.unary("aten::isnan", x), x, turned);
  });
}
Ids portable_conj_physical(Builder& b, const NodeView& n) {
  if (!is_complex(n.type("self").dtype)) return {n.value("self")};
  return {b.op("aten::_conj_physical", {n.value("self")})};
}
Ids portable_deg2rad(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return f.scale(x, 0.017453292519943295769); });
}
Ids portable_rad2deg(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return f.scale(x, 57.295779513082320876); });
}
Ids portable_exp2(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) { return f.b.op("aten::pow.Scalar", {f.b.floating(2.0), x}); });
}
Ids portable_frac(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (!is_floating(f.dtype(x))) return {};
  return {f.sub(x, f.unary("aten::trunc", x))};
}
Ids portable_isfinite(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (is_complex(f.dtype(x))) return {};
  if (!is_floating(f.dtype(x))) return filled(b, n, true);
  return {f.negate(f.either(f.unary("aten::isinf", x), f.unary("aten::isnan", x)))};
}
Ids portable_isneginf(Builder& b, const NodeView& n) {
  if (!is_floating(n.type("self").dtype)) return filled(b, n, false);
  return {Portable(b).compare("eq", n.value("self"), -std::numeric_limits<double>::infinity())};
}
Ids portable_isposinf(Builder& b, const NodeView& n) {
  if (!is_floating(n.type("self").dtype)) return filled(b, n, false);
  return {Portable(b).compare("eq", n.value("self"), std::numeric_limits<double>::infinity())};
}
Ids portable_nan_to_num(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const DType dtype = f.dtype(x);
  if (is_complex(dtype)) return {};
  if (!is_floating(dtype)) return {x};
  const double infinity = std::numeric_limits<double>::infinity();
  ValueId y = f.where(f.unary("aten::isnan", x), n.number("nan", 0), x);
  y = f.where(f.compare("eq", x, infinity), n.number("posinf", largest(dtype)), y);
  return {f.where(f.compare("eq", x, -infinity), n.number("neginf", -largest(dtype)), y)};
}
/// round(x * 10^d) / 10^d, or round(x / 10^-d) * 10^-d.
Ids portable_round_decimals(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = n.type("self").dtype;
  const int64_t decimals = n.integer("decimals");
  if (!is_floating(dtype)) return decimals >= 0 ? Ids{n.value("self")} : Ids{};
  const ValueId x = f.wide(n.value("self"));
  const ValueId power = f.number(std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals)), f.dtype(x));
  if (decimals == 0) return {f.to(f.unary("aten::round", x), dtype)};
  const ValueId rounded = f.unary("aten::round", decimals < 0 ? f.div(x, power) : f.mul(x, power));
  return {f.to(decimals < 0 ? f.mul(rounded, power) : f.div(rounded, power), dtype)};
}
Ids portable_sgn(Builder& b, const NodeView& n) {
  if (is_complex(n.type("self").dtype)) return {};
  return {b.op("aten::sign", {n.value("self")})};
}
/// 1, 0 or -1; 0 for NaN.
Ids portable_sign(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  return {f.sub(f.to(f.compare("gt", x, Expr(0)), f.dtype(x)), f.to(f.compare("lt", x, Expr(0)), f.dtype(x)))};
}
Ids portable_logit(Builder& b, const NodeView& n) {
  if (!is_reduced_float(n.type("self").dtype)) return {};
  return in_float(b, n, [&](Portable& f, ValueId x) { return f.b.op("aten::logit", {x, n.arg("eps")}); });
}
Ids portable_sinc(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) {
    const ValueId angle = f.scale(x, kPi);
    return f.where(f.compare("eq", x, Expr(0)), 1.0, f.div(f.unary("aten::sin", angle), angle));
  });
}
/// A bool becomes an int64 0 or 1.
Ids portable_square(Builder& b, const NodeView& n) {
  Portable f(b);
  if (is_complex(n.type("self").dtype)) return {};
  const ValueId x = n.type("self").dtype == DType::kBool ? f.to(n.value("self"), DType::kInt64) : n.value("self");
  return {f.mul(x, x)};
}
/// -x log(x), 0 at 0, -inf below.
Ids portable_entr(Builder& b, const NodeView& n) {
  return in_float(b, n, [](Portable& f, ValueId x) {
    const ValueId inside = f.mul(f.unary("aten::neg", x), f.unary("aten::log", x));
    const ValueId edge = f.where(f.compare("eq", x, Expr(0)), 0.0, f.where(f.unary("aten::isnan", x), x, f.number(-std::numeric_limits<double>::infinity(), f.dtype(x))));
    return f.where(f.compare("gt", x, Expr(0)), inside, edge);
  });
}

}  // namespace pteron::ops::unary
