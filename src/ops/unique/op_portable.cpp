// unique and unique_consecutive of all elements: where an element differs from the one before it (in sorted order), a new one begins.
#include "ops/unique/portable.h"

#include "ops/portable.h"

namespace pteron::ops::unique {

using ir::Builder;
using Ids = std::vector<ValueId>;

Ids portable_unique(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  const Expr count = ir::numel_of(f.sizes(self));
  const bool consecutive = n.has("dim");
  if ((consecutive && !n.is_none("dim")) || !count.is_const() || count.value() < 1) return {};
  const DType dtype = f.dtype(self);
  const ValueId flat = b.op("aten::reshape", {dtype == DType::kBool ? f.to(self, DType::kUInt8) : self, std::vector<Expr>{count}});
  ValueId values = flat, places;
  if (!consecutive) {
    const Ids sorted = b.ops("aten::sort", {flat, Expr(0)});
    if (sorted.size() != 2) return {};
    values = sorted[0], places = sorted[1];
  }
  const ValueId first = b.op("aten::full", {std::vector<Expr>{Expr(1)}, b.boolean(true), DType::kBool});
  const ValueId changes = f.compare("ne", f.slice(values, 0, Expr(1), count), f.slice(values, 0, Expr(0), count - Expr(1)));
  const ValueId starts = f.cat({first, changes}, 0);
  const ValueId found = b.op("aten::masked_select", {values, starts});
  const auto nothing = [&] { return b.op("aten::full", {std::vector<Expr>{Expr(0)}, Expr(0), DType::kInt64}); };
  ValueId inverse = nothing(), counts = nothing();
  if (n.boolean("return_inverse")) {
    const ValueId number = f.add(b.op("aten::cumsum", {f.to(starts, DType::kInt64), Expr(0)}), Expr(-1));
    const ValueId placed = places.valid() ? b.op("aten::scatter.src", {b.op("aten::full_like", {number, Expr(0)}), Expr(0), places, number}) : number;
    inverse = f.view(placed, f.sizes(self));
  }
  if (n.boolean("return_counts")) {
    // Positions where elements begin, and the end, each less the one before.
    const ValueId begin = b.op("aten::masked_select", {f.arange(count), starts});
    const ValueId end = b.op("aten::full", {std::vector<Expr>{Expr(1)}, count, DType::kInt64});
    counts = f.sub(f.cat({f.slice(begin, 0, Expr(1), f.size(begin, 0)), end}, 0), begin);
  }
  return {f.to(found, dtype), inverse, counts};
}

}  // namespace pteron::ops::unique
