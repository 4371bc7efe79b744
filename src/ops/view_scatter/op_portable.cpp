// diagonal_scatter as a choice by the positions of rows and columns.
#include "ops/portable.h"
#include "ops/view_scatter/portable.h"

namespace pteron::ops::view_scatter {

std::vector<ValueId> portable_diagonal_scatter(ir::Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self"), src = n.value("src");
  const int rank = f.rank(self);
  const int64_t offset = n.integer("offset");
  auto first = wrap_dim_of(n.integer("dim1", 0), rank), second = wrap_dim_of(n.integer("dim2", 1), rank);
  if (!first.ok() || !second.ok()) return {};
  std::vector<int64_t> order, back(static_cast<size_t>(rank));
  for (int d = 0; d < rank; ++d) {
    if (d != *first && d != *second) order.push_back(d);
  }
  order.push_back(*first);
  order.push_back(*second);
  for (size_t d = 0; d < order.size(); ++d) back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  const ValueId matrix = f.permute(self, order);
  const Expr rows = f.size(matrix, -2), columns = f.size(matrix, -1);
  // src's element k stands in row k + front.
  const Expr front(offset < 0 ? -offset : 0);
  const ValueId line = b.op("aten::constant_pad_nd", {src, std::vector<Expr>{front, rows - f.size(src, -1) - front}, Expr(0)});
  const ValueId distance = f.sub(f.unsqueeze(f.arange(columns), 0), f.unsqueeze(f.arange(rows), 1));
  return {f.permute(f.where(f.compare("eq", distance, Expr(offset)), f.unsqueeze(line, -1), matrix), back)};
}

}  // namespace pteron::ops::view_scatter
