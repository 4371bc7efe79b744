// Reducing scatters. Sums and means are scatter_add; products and extremes compare every index with every position, for small sizes.
#include "ops/gather/portable.h"

#include "ops/portable.h"

namespace pteron::ops::gather {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr int64_t kMaxCompared = int64_t{1} << 24;  // elements of the mask of a product or extreme

struct Scatter {
  ValueId self, index, src;
  int dim = 0;
  bool include_self = true;
};

ValueId call(Portable& f, std::string_view name, const Scatter& s, ValueId self, ir::Arg src) {
  return f.b.op(name, {self, Expr(s.dim), s.index, std::move(src)});
}

/// Untouched elements keep self; touched ones start from `start` unless self counts.
ValueId base_of(Portable& f, const Scatter& s, double start) {
  return s.include_self ? s.self : call(f, "aten::scatter.value", s, s.self, f.b.floating(start));
}

Ids mean(Portable& f, const Scatter& s, ValueId sum) {
  const DType dtype = f.dtype(s.self);
  const Expr none = s.include_self ? Expr(1) : Expr(0);
  const ValueId ones = f.b.op("aten::full_like", {s.src, Expr(1)});
  ValueId count = call(f, "aten::scatter_add", s, f.b.op("aten::full_like", {s.self, none}), ones);
  count = f.b.op("aten::clamp", {count, Expr(1), {}});
  if (is_floating(dtype)) return {f.div(sum, count)};
  return {f.b.op("aten::div.Tensor_mode", {sum, count, std::string("floor")})};
}

bool small_enough(const Portable& f, const Scatter& s) {
  int64_t total = 1;
  for (const Expr& e : f.sizes(s.index)) {
    if (!e.is_const() || e.value() < 1 || __builtin_mul_overflow(total, e.value(), &total)) return false;
  }
  const Expr length = f.size(s.self, s.dim);
  return length.is_const() && !__builtin_mul_overflow(total, length.value(), &total) && total <= kMaxCompared;
}

/// Reduces over all (position, source) pairs. Index and self must agree in the other dims.
Ids compared(Portable& f, const Scatter& s, std::string_view reduce) {
  const DType dtype = f.dtype(s.self);
  const int rank = f.rank(s.self);
  if (!is_floating(dtype) || rank == 0 || rank != f.rank(s.index) || !small_enough(f, s)) return {};
  for (int d = 0; d < rank; ++d) {
    if (d != s.dim && !(f.size(s.self, d) == f.size(s.index, d))) return {};
  }
  ValueId src = s.src;
  for (int d = 0; d < rank; ++d) {
    if (!(f.size(src, d) == f.size(s.index, d))) src = f.slice(src, d, Expr(0), f.size(s.index, d));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double neutral = reduce == "prod" ? 1.0 : reduce == "amax" ? -infinity : infinity;
  // A new dim of positions before the dim of sources.
  const ValueId position = f.along(f.arange(f.size(s.self, s.dim)), s.dim, rank + 1);
  const ValueId hit = f.compare("eq", f.unsqueeze(s.index, s.dim), position);
  const ValueId chosen = f.where(hit, f.unsqueeze(src, s.dim), neutral);
  ValueId reduced;
  if (reduce == "prod") {
    reduced = f.b.op("aten::prod.dim_int", {chosen, Expr(s.dim + 1)});
    if (s.include_self) return {f.mul(reduced, s.self)};
  } else {
    reduced = f.b.op(str_cat("aten::", reduce), {chosen, std::vector<Expr>{Expr(s.dim + 1)}});
    if (s.include_self) return {f.b.op(reduce == "amax" ? "aten::maximum" : "aten::minimum", {reduced, s.self})};
  }
  return {f.where(f.b.op("aten::any.dim", {hit, Expr(s.dim + 1)}), reduced, s.self)};
}

}  // namespace

Ids portable_scatter_reduce_two(Builder& b, const NodeView& n) {
  Portable f(b);
  Scatter s{n.value("self"), f.to(n.value("index"), DType::kInt64), n.value("src"), 0, n.boolean("include_self", true)};
  auto dim = wrap_dim_of(n.integer("dim"), f.rank(s.self));
  if (!dim.ok()) return {};
  s.dim = *dim;
  const std::string_view reduce = n.text("reduce");
  if (reduce != "sum" && reduce != "mean") return compared(f, s, reduce);
  const ValueId sum = call(f, "aten::scatter_add", s, base_of(f, s, 0), s.src);
  return reduce == "sum" ? Ids{sum} : mean(f, s, sum);
}

/// scatter.reduce and scatter.value_reduce: add or multiply, self counts.
Ids portable_scatter_reduce(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::string_view reduce = n.text("reduce");
  const ValueId index = n.value("index");
  const ValueId src = n.has("src") ? n.value("src") : b.op("aten::full", {f.sizes(index), n.expr("value"), n.type("self").dtype});
  return {b.op("aten::scatter_reduce.two", {n.value("self"), n.expr("dim"), index, src, std::string(reduce == "add" ? "sum" : "prod")})};
}

}  // namespace pteron::ops::gather
