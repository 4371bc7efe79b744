// cumprod, cummax, cummin and logcumsumexp for static sizes: after step k every element has joined the 2^k before it. The order of the joins is not
// ATen's, which matters to floats only in the last bits.
#include "ops/scan/portable.h"

#include "ops/portable.h"

namespace pteron::ops::scan {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr int64_t kMaxLength = 1 << 16;

/// The dim and its static length. False if there is none, or nothing to join.
bool find_dim(const NodeView& n, int* dim, int64_t* length) {
  const TensorType& self = n.type("self");
  auto wrapped = wrap_dim_of(n.integer("dim"), self.rank());
  if (!wrapped.ok() || self.rank() == 0) return false;
  *dim = *wrapped;
  const Expr size = self.sizes[static_cast<size_t>(*dim)];
  *length = size.is_const() ? size.value() : 0;
  return *length > 0 && *length <= kMaxLength;
}

/// x moved `by` places along dim, `fill` in front.
ValueId shifted(Portable& f, ValueId x, int dim, int64_t by, int64_t length, const Expr& fill) {
  std::vector<Expr> sizes = f.sizes(x);
  sizes[static_cast<size_t>(dim)] = Expr(by);
  const ValueId front = f.b.op("aten::full", {sizes, fill, f.dtype(x)});
  return f.cat({front, f.slice(x, dim, 0, Expr(length - by))}, dim);
}

Expr lowest(Builder& b, DType dtype, bool largest) {
  if (is_floating(dtype)) return b.floating(largest ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
  switch (dtype) {
    case DType::kUInt8: return Expr(largest ? 255 : 0);
    case DType::kInt8: return Expr(largest ? 127 : -128);
    case DType::kInt16: return Expr(largest ? 32767 : -32768);
    case DType::kInt32: return Expr(largest ? INT32_MAX : INT32_MIN);
    default: return Expr(largest ? INT64_MAX : INT64_MIN);
  }
}

Ids extreme(Builder& b, const NodeView& n, bool largest) {
  Portable f(b);
  if (n.type("self").rank() == 0) return {b.op("aten::clone", {n.value("self")}), f.number(0.0, DType::kInt64)};
  int dim = 0;
  int64_t length = 0;
  if (!find_dim(n, &dim, &length)) return {};
  const DType dtype = n.type("self").dtype;
  ValueId x = dtype == DType::kBool ? f.to(n.value("self"), DType::kUInt8) : n.value("self");
  ValueId at = f.expand(f.along(f.arange(Expr(length)), dim, f.rank(x)), f.sizes(x));
  for (int64_t step = 1; step < length; step *= 2) {
    const ValueId before = shifted(f, x, dim, step, length, lowest(b, f.dtype(x), !largest)), before_at = shifted(f, at, dim, step, length, Expr(0));
    ValueId keep = f.compare(largest ? "ge" : "le", x, before);
    if (is_floating(f.dtype(x))) keep = f.either(keep, f.unary("aten::isnan", x));  // NaN stays; the comparison is false against an earlier one
    x = f.where(keep, x, before);
    at = f.where(keep, at, before_at);
  }
  return {f.to(x, dtype), at};
}

}  // namespace

Ids portable_cumprod(Builder& b, const NodeView& n) {
  Portable f(b);
  int dim = 0;
  int64_t length = 0;
  const DType in = n.type("self").dtype, out = n.dtype("dtype", is_integral(in, true) ? DType::kInt64 : in);
  if (is_complex(out)) return {};
  if (n.type("self").rank() == 0) return {b.op("aten::_to_copy", {n.value("self"), out})};
  if (!find_dim(n, &dim, &length)) return {};
  ValueId x = f.to(n.value("self"), out);
  if (is_floating(out)) x = f.wide(x);
  const Expr one = is_floating(out) ? b.floating(1) : Expr(1);
  for (int64_t step = 1; step < length; step *= 2) x = f.mul(x, shifted(f, x, dim, step, length, one));
  return {f.to(x, out)};
}
Ids portable_cummax(Builder& b, const NodeView& n) { return extreme(b, n, true); }
Ids portable_cummin(Builder& b, const NodeView& n) { return extreme(b, n, false); }
Ids portable_logcumsumexp(Builder& b, const NodeView& n) {
  Portable f(b);
  if (n.type("self").rank() == 0) return {b.op("aten::clone", {n.value("self")})};
  int dim = 0;
  int64_t length = 0;
  if (!find_dim(n, &dim, &length)) return {};
  ValueId x = f.wide(n.value("self"));
  for (int64_t step = 1; step < length; step *= 2) {
    x = b.op("aten::logaddexp", {x, shifted(f, x, dim, step, length, b.floating(-std::numeric_limits<double>::infinity()))});
  }
  return {f.to(x, n.type("self").dtype)};
}

}  // namespace pteron::ops::scan
