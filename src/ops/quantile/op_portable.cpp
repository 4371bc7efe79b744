// quantile and nanquantile: slices are sorted, ranks are q * (numbers - 1), the neighbours of a rank are joined.
#include "ops/quantile/portable.h"

#include "ops/portable.h"

namespace pteron::ops::quantile {

using ir::Builder;
using Ids = std::vector<ValueId>;

Ids portable_quantile(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("self");
  const DType dtype = f.dtype(x);
  const int rank = f.rank(x);
  int dim = 0;
  if (n.is_none("dim") || rank == 0) {
    x = b.op("aten::reshape", {x, std::vector<Expr>{ir::numel_of(f.sizes(x))}});
  } else {
    auto wrapped = wrap_dim_of(n.integer("dim"), rank);
    if (!wrapped.ok()) return {};
    dim = *wrapped;
  }
  x = f.transpose(x, n.is_none("dim") || rank == 0 ? 0 : dim, -1);
  const Expr count = f.size(x, -1);
  const Ids sorted = b.ops("aten::sort", {x, Expr(-1)});
  if (sorted.size() != 2) return {};
  const bool ignore = n.op().name.find("nanquantile") != std::string::npos;
  const bool vector = n.is_value("q") && n.type("q").rank() == 1;
  const ValueId q = n.is_value("q") ? f.view(f.to(n.value("q"), dtype), {vector ? f.size(n.value("q"), 0) : Expr(1)}) : f.view(f.number(n.expr("q"), dtype), {Expr(1)});
  const std::vector<Expr> last{Expr(-1)};
  const ValueId bad = b.op("aten::sum.dim_IntList", {f.unary("aten::isnan", sorted[0]), last, b.boolean(true), DType::kInt64});  // [..., 1]
  ValueId top = f.number(count - Expr(1), dtype);
  if (ignore) top = b.op("aten::clamp_min", {f.sub(f.number(count - Expr(1), dtype), f.to(bad, dtype)), b.floating(0)});
  std::vector<Expr> sizes = f.sizes(x);
  sizes.back() = f.size(q, 0);
  const ValueId ranks = f.expand(f.mul(q, top), sizes);  // [..., Q]
  const ValueId low_rank = f.unary("aten::floor", ranks), high_rank = f.unary("aten::ceil", ranks);
  const auto pick = [&](ValueId at) { return b.op("aten::gather", {sorted[0], Expr(-1), f.to(at, DType::kInt64)}); };
  const std::string_view how = n.text("interpolation");
  ValueId y;
  if (how == "lower") {
    y = pick(low_rank);
  } else if (how == "higher") {
    y = pick(high_rank);
  } else if (how == "nearest") {
    y = pick(f.unary("aten::round", ranks));
  } else {
    const ValueId low = pick(low_rank), high = pick(high_rank);
    const ValueId weight = how == "midpoint" ? b.op("aten::full_like", {ranks, b.floating(0.5)}) : f.sub(ranks, low_rank);
    y = b.op("aten::lerp.Tensor", {low, high, weight});
  }
  if (!ignore) y = f.where(f.compare("gt", bad, Expr(0)), std::numeric_limits<double>::quiet_NaN(), y);
  // [..., Q] to [Q, ..., (1)]
  std::vector<int64_t> order{f.rank(y) - 1};
  for (int d = 0; d + 1 < f.rank(y); ++d) order.push_back(d);
  y = f.permute(y, order);
  uint32_t mask = 0;
  std::vector<Expr> out;
  if (vector) out.push_back(f.size(q, 0));
  const std::vector<Expr>& self = n.type("self").sizes;
  mask = n.is_none("dim") ? (uint32_t{1} << rank) - 1u : uint32_t{1} << dim;
  if (!n.is_none("dim") && rank > 0 && dim != rank - 1) {
    // transpose swapped dim and the last one: the last one stands at `dim` among the others
    std::vector<int64_t> back{0};
    for (int d = 0; d < rank - 1; ++d) {
      if (d == dim) continue;
      back.push_back(d + 1);
    }
    back.push_back(dim + 1);
    y = f.permute(y, back);
  }
  for (int d = 0; d < rank; ++d) {
    if ((mask >> d & 1u) == 0) {
      out.push_back(self[static_cast<size_t>(d)]);
    } else if (n.boolean("keepdim")) {
      out.emplace_back(1);
    }
  }
  return {b.op("aten::reshape", {y, out})};
}

}  // namespace pteron::ops::quantile
