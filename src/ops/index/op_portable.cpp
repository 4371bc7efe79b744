// index_add, index_copy, index_fill, index_reduce, take and put in terms of index and index_put.
#include "ops/index/portable.h"

#include "ops/portable.h"

namespace pteron::ops::index {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// self with values put at index along dim; a 0-d self counts as one element.
Ids put_along(Builder& b, const NodeView& n, ValueId values, bool accumulate) {
  Portable f(b);
  const ValueId self = n.value("self");
  const bool scalar = f.rank(self) == 0;
  const ValueId base = scalar ? f.view(self, {Expr(1)}) : self;
  auto dim = wrap_dim_of(n.integer("dim"), f.rank(base));
  if (!dim.ok()) return {};
  const ValueId index = f.to(f.view(n.value("index"), {ir::numel_of(f.sizes(n.value("index")))}), DType::kInt64);
  Ids indices(static_cast<size_t>(*dim));
  indices.push_back(index);
  const ValueId out = b.op("aten::index_put", {base, std::move(indices), values, b.boolean(accumulate)});
  return {scalar ? f.view(out, {}) : out};
}

/// source with self's rank.
ValueId source_of(Portable& f, const NodeView& n) {
  const ValueId source = f.to(n.value("source"), n.type("self").dtype);
  return f.rank(source) == 0 ? f.view(source, {Expr(1)}) : source;
}

}  // namespace

Ids portable_index_copy(Builder& b, const NodeView& n) {
  Portable f(b);
  return put_along(b, n, source_of(f, n), false);
}
Ids portable_index_add(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId source = source_of(f, n);
  const Expr alpha = n.expr("alpha", 1);
  if (!ir::is_number(alpha) || ir::number_of(alpha) != 1) source = f.to(f.mul(source, alpha), f.dtype(source));
  return put_along(b, n, source, true);
}
Ids portable_index_fill(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = n.type("self").dtype;
  return put_along(b, n, n.is_value("value") ? f.to(f.view(n.value("value"), {}), dtype) : f.number(n.expr("value"), dtype), false);
}
/// As scatter_reduce with the index of every element.
Ids portable_index_reduce(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self"), source = source_of(f, n);
  if (f.rank(self) == 0) return {};
  auto dim = wrap_dim_of(n.integer("dim"), f.rank(self));
  if (!dim.ok()) return {};
  const ValueId index = f.expand(f.along(f.to(n.value("index"), DType::kInt64), *dim, f.rank(self)), f.sizes(source));
  return {b.op("aten::scatter_reduce.two", {self, Expr(*dim), index, source, std::string(n.text("reduce")), n.arg("include_self")})};
}
Ids portable_take(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId flat = f.view(n.value("self"), {ir::numel_of(n.type("self").sizes)});
  return {b.op("aten::index.Tensor", {flat, Ids{f.to(n.value("index"), DType::kInt64)}})};
}
Ids portable_put(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::vector<Expr> sizes = n.type("self").sizes;
  const ValueId flat = f.view(n.value("self"), {ir::numel_of(sizes)});
  const ValueId source = f.view(n.value("source"), {ir::numel_of(n.type("source").sizes)});
  const ValueId index = f.view(f.to(n.value("index"), DType::kInt64), {ir::numel_of(n.type("index").sizes)});
  return {f.view(b.op("aten::index_put", {flat, Ids{index}, source, n.arg("accumulate")}), sizes)};
}

}  // namespace pteron::ops::index
