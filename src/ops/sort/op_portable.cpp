// sort and what is picked from it, for small static sizes: an element's place is the number of elements that come before it. Stable; NaN counts as the largest.
#include "ops/portable.h"
#include "ops/sort/portable.h"

namespace pteron::ops::sort {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {
constexpr int64_t kMaxPairs = int64_t{1} << 24;  // compared pairs

/// A tensor of rank 0 is its own only element.
Ids only_element(Portable& f, const NodeView& n) { return {f.b.op("aten::clone", {n.value("self")}), f.number(0.0, DType::kInt64)}; }
}  // namespace

Ids portable_sort(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  if (f.rank(self) == 0) return only_element(f, n);
  auto dim = wrap_dim_of(n.integer("dim", -1), f.rank(self));
  if (!dim.ok()) return {};
  ValueId x = f.transpose(self, *dim, -1);
  const Expr count = f.size(x, -1), total = ir::numel_of(f.sizes(x)) * count;
  if (!total.is_const() || total.value() < 1 || total.value() > kMaxPairs) return {};
  if (f.dtype(x) == DType::kBool) x = f.to(x, DType::kUInt8);
  const ValueId mine = f.unsqueeze(x, -1), other = f.unsqueeze(x, -2);  // [.., i, 1] and [.., 1, j]
  const bool descending = n.boolean("descending");
  ValueId before = f.compare(descending ? "gt" : "lt", other, mine), same = f.compare("eq", other, mine);
  if (is_floating(f.dtype(x))) {
    const ValueId mine_nan = f.unary("aten::isnan", mine), other_nan = f.unary("aten::isnan", other);
    const ValueId late = descending ? f.both(other_nan, f.negate(mine_nan)) : f.both(mine_nan, f.negate(other_nan));
    before = f.either(before, late);
    same = f.either(same, f.both(mine_nan, other_nan));
  }
  const ValueId earlier = f.compare("lt", f.unsqueeze(f.arange(count), 0), f.unsqueeze(f.arange(count), 1));
  const ValueId ahead = f.either(before, f.both(same, earlier));
  const ValueId place = b.op("aten::sum.dim_IntList", {ahead, std::vector<Expr>{Expr(-1)}, b.boolean(false), DType::kInt64});
  const ValueId zeros = b.op("aten::full_like", {place, Expr(0)});
  const ValueId indices = b.op("aten::scatter.src", {zeros, Expr(-1), place, f.expand(f.arange(count), f.sizes(x))});
  const ValueId values = f.to(b.op("aten::gather", {x, Expr(-1), indices}), f.dtype(self));
  return {f.transpose(values, *dim, -1), f.transpose(indices, *dim, -1)};
}

namespace {

/// Values and indices sorted along `dim` of a tensor, and the elements at a place (an expression, or a tensor with 1 for that dim).
struct Ordered {
  int dim = 0;
  ValueId values, indices, nans;  ///< nans: how many there are, [.., 1, ..]; invalid for integers
};
bool order(Portable& f, ValueId x, int64_t dim, Ordered* out) {
  auto wrapped = wrap_dim_of(dim, f.rank(x));
  if (!wrapped.ok()) return false;
  out->dim = *wrapped;
  const Ids sorted = f.b.ops("aten::sort", {x, Expr(out->dim)});
  if (sorted.size() != 2) return false;
  out->values = sorted[0], out->indices = sorted[1];
  if (is_floating(f.dtype(x))) out->nans = f.b.op("aten::sum.dim_IntList", {f.unary("aten::isnan", x), std::vector<Expr>{Expr(out->dim)}, f.b.boolean(true), DType::kInt64});
  return true;
}
Ids at_place(Portable& f, const Ordered& o, ValueId place, bool keepdim) {
  Ids out;
  for (const ValueId from : {o.values, o.indices}) {
    const ValueId one = f.b.op("aten::gather", {from, Expr(o.dim), place});
    out.push_back(keepdim ? one : f.squeeze(one, o.dim));
  }
  return out;
}
Ids at_place(Portable& f, const Ordered& o, const Expr& place, bool keepdim) {
  Ids out;
  for (const ValueId from : {o.values, o.indices}) out.push_back(keepdim ? f.slice(from, o.dim, place, place + Expr(1)) : f.select(from, o.dim, place));
  return out;
}

/// The lower middle of n elements; with NaN the first NaN, or the middle of the others.
Ids middle(Portable& f, ValueId x, int64_t dim, bool keepdim, bool ignore) {
  Ordered o;
  if (!order(f, x, dim, &o)) return {};
  const Expr count = f.size(x, o.dim);
  if (!o.nans.valid()) return at_place(f, o, floor_div(count - Expr(1), Expr(2)), keepdim);
  const ValueId good = f.b.op("aten::rsub.Scalar", {o.nans, count});
  if (ignore) {
    const ValueId half = f.b.op("aten::div.Scalar_mode", {f.add(good, Expr(-1)), Expr(2), std::string("trunc")});
    return at_place(f, o, f.b.op("aten::clamp_min", {half, Expr(0)}), keepdim);
  }
  const ValueId usual = f.b.op("aten::full_like", {good, floor_div(count - Expr(1), Expr(2))});
  return at_place(f, o, f.where(f.compare("gt", o.nans, Expr(0)), good, usual), keepdim);
}
Ids middle_of_all(Builder& b, const NodeView& n, bool ignore) {
  Portable f(b);
  const Expr count = ir::numel_of(n.type("self").sizes);
  Ids found = middle(f, b.op("aten::reshape", {n.value("self"), std::vector<Expr>{count}}), 0, false, ignore);
  if (!found.empty()) found.resize(1);
  return found;
}

}  // namespace

/// Integers are often equal, and PyTorch gives the place of the one that its selection happens to end at.
bool refuse_places_of_integers(Builder& b, const NodeView& n) {
  if (!is_integral(n.type("self").dtype, true)) return false;
  b.fail(Status(Code::kUnsupported, "which of equal integers PyTorch picks is known to the kernel alone"));
  return true;
}

Ids portable_kthvalue(Builder& b, const NodeView& n) {
  Portable f(b);
  Ordered o;
  if (n.type("self").rank() == 0) return only_element(f, n);
  if (refuse_places_of_integers(b, n)) return {};
  if (!order(f, n.value("self"), n.integer("dim", -1), &o)) return {};
  return at_place(f, o, n.expr("k") - Expr(1), n.boolean("keepdim"));
}
Ids portable_median(Builder& b, const NodeView& n) { return middle_of_all(b, n, false); }
Ids portable_nanmedian(Builder& b, const NodeView& n) { return middle_of_all(b, n, true); }
Ids portable_median_dim(Builder& b, const NodeView& n) {
  Portable f(b);
  if (n.type("self").rank() == 0) return only_element(f, n);
  if (refuse_places_of_integers(b, n)) return {};
  return middle(f, n.value("self"), n.integer("dim"), n.boolean("keepdim"), n.op().name.find("nanmedian") != std::string::npos);
}
/// The smallest of the values that come most often, and the last place of it.
Ids portable_mode(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  if (f.rank(self) == 0) return only_element(f, n);
  auto dim = wrap_dim_of(n.integer("dim", -1), f.rank(self));
  if (!dim.ok()) return {};
  ValueId x = f.transpose(self, *dim, -1);
  const Expr count = f.size(x, -1), total = ir::numel_of(f.sizes(x)) * count;
  if (!total.is_const() || total.value() < 1 || total.value() > kMaxPairs) return {};
  if (f.dtype(x) == DType::kBool) x = f.to(x, DType::kUInt8);
  const std::vector<Expr> last{Expr(-1)};
  const ValueId same = f.compare("eq", f.unsqueeze(x, -1), f.unsqueeze(x, -2));
  const ValueId often = b.op("aten::sum.dim_IntList", {same, last, b.boolean(false), DType::kInt64});
  const ValueId most = b.op("aten::amax", {often, last, b.boolean(true)});
  const Ids sorted = b.ops("aten::sort", {x, Expr(-1)});
  if (sorted.size() != 2) return {};
  // Among the sorted elements that come most often, the first has the smallest value; its last place is the largest index with that value.
  const ValueId often_sorted = b.op("aten::gather", {often, Expr(-1), sorted[1]});
  const ValueId place = b.op("aten::argmax", {f.to(f.compare("eq", often_sorted, most), DType::kInt32), Expr(-1), b.boolean(true)});
  const ValueId value = b.op("aten::gather", {sorted[0], Expr(-1), place});
  const ValueId index = b.op("aten::amax", {f.where(f.compare("eq", x, value), f.arange(count), f.number(0.0, DType::kInt64)), last, b.boolean(true)});
  const auto finish = [&](ValueId v) {
    const ValueId back = f.transpose(v, *dim, -1);
    return n.boolean("keepdim") ? back : f.squeeze(back, *dim);
  };
  return {f.to(finish(value), f.dtype(self)), finish(index)};
}

}  // namespace pteron::ops::sort
