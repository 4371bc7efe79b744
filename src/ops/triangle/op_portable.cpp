// triu and diag_embed as choices by the positions of rows and columns.
#include "ops/triangle/portable.h"

#include "ops/portable.h"

namespace pteron::ops::triangle {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// [rows, columns]: column minus row.
ValueId column_minus_row(Portable& f, Expr rows, Expr columns) {
  return f.sub(f.unsqueeze(f.arange(columns), 0), f.unsqueeze(f.arange(rows), 1));
}

}  // namespace

Ids portable_triu(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const ValueId kept = f.compare("ge", column_minus_row(f, f.size(x, -2), f.size(x, -1)), n.expr("diagonal"));
  return {f.where(kept, x, 0.0)};
}

Ids portable_diag_embed(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const int rank = f.rank(x) + 1;
  const int64_t offset = n.integer("offset");
  auto first = wrap_dim_of(n.integer("dim1", -2), rank), second = wrap_dim_of(n.integer("dim2", -1), rank);
  if (!first.ok() || !second.ok()) return {};
  ValueId line = x;  // as long as the diagonal's rows or columns
  if (offset != 0) line = b.op("aten::constant_pad_nd", {x, std::vector<Expr>{Expr(0), Expr(offset < 0 ? -offset : offset)}, Expr(0)});
  const Expr length = f.size(line, -1);
  const ValueId on = f.compare("eq", column_minus_row(f, length, length), Expr(offset));
  const ValueId full = f.where(on, f.unsqueeze(line, offset < 0 ? -2 : -1), 0.0);
  std::vector<int64_t> order;
  for (int d = 0, next = 0; d < rank; ++d) order.push_back(d == *first ? rank - 2 : d == *second ? rank - 1 : next++);
  return {f.permute(full, order)};
}

}  // namespace pteron::ops::triangle
