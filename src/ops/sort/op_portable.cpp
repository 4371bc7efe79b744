// sort for small static sizes: an element's place is the number of elements that come before it. Stable; NaN counts as the largest.
#include "ops/portable.h"
#include "ops/sort/portable.h"

namespace pteron::ops::sort {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {
constexpr int64_t kMaxPairs = int64_t{1} << 24;  // compared pairs
}

Ids portable_sort(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  if (f.rank(self) == 0) return {};
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

}  // namespace pteron::ops::sort
