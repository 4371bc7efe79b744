// im2col and col2im in terms of index and index_put: the positions of windows are arithmetic on ranges, folded where sizes are static.
#include "ops/pixel/portable.h"

#include "ops/portable.h"

namespace pteron::ops::pixel {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

int64_t entry(const NodeView& n, std::string_view name, size_t i) {
  const std::vector<int64_t> list = n.integers(name);
  return list.size() == 1 ? list[0] : list[i];
}

/// Positions in the padded dim as [kernel, windows] placed at dims `at` and `at` + 2 of 4: k * dilation + w * stride.
ValueId window_positions(Portable& f, const NodeView& n, size_t i, Expr windows) {
  const ValueId first = f.mul(f.arange(windows), Expr(entry(n, "stride", i)));
  const ValueId inner = f.mul(f.arange(Expr(entry(n, "kernel_size", i))), Expr(entry(n, "dilation", i)));
  return f.add(f.along(inner, static_cast<int>(i), 4), f.along(first, static_cast<int>(i) + 2, 4));
}

/// Windows along dim i of an image of that size.
Expr window_count(const NodeView& n, size_t i, Expr size) {
  const int64_t reach = 2 * entry(n, "padding", i) - entry(n, "dilation", i) * (entry(n, "kernel_size", i) - 1) - 1;
  return floor_div(size + Expr(reach), Expr(entry(n, "stride", i))) + Expr(1);
}

}  // namespace

Ids portable_im2col(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("self");
  const bool batched = f.rank(x) == 4;
  if (!batched) x = f.unsqueeze(x, 0);
  const Expr batch = f.size(x, 0), channels = f.size(x, 1);
  const Expr rows = window_count(n, 0, f.size(x, 2)), columns = window_count(n, 1, f.size(x, 3));
  const Expr above(entry(n, "padding", 0)), left(entry(n, "padding", 1));
  if (!dim_is(above, 0) || !dim_is(left, 0)) x = b.op("aten::constant_pad_nd", {x, std::vector<Expr>{left, left, above, above}, Expr(0)});
  const ValueId taken = b.op("aten::index.Tensor", {x, Ids{ValueId(), ValueId(), window_positions(f, n, 0, rows), window_positions(f, n, 1, columns)}});
  const Expr area(entry(n, "kernel_size", 0) * entry(n, "kernel_size", 1));
  const ValueId out = f.view(taken, {batch, channels * area, rows * columns});
  return {batched ? out : f.view(out, {channels * area, rows * columns})};
}

Ids portable_col2im(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("self");
  const std::vector<Expr> to = n.exprs("output_size");
  const Expr batch = f.rank(x) == 3 ? f.size(x, 0) : Expr(1);
  const Expr rows = window_count(n, 0, to[0]), columns = window_count(n, 1, to[1]);
  const Expr high(entry(n, "kernel_size", 0)), wide(entry(n, "kernel_size", 1));
  const Expr channels = floor_div(f.size(x, -2), high * wide);
  const Expr above(entry(n, "padding", 0)), left(entry(n, "padding", 1));
  const ValueId image = b.op("aten::full", {std::vector<Expr>{batch, channels, to[0] + above + above, to[1] + left + left}, Expr(0), f.dtype(x)});
  const ValueId blocks = f.view(x, {batch, channels, high, wide, rows, columns});
  ValueId out = b.op("aten::index_put", {image, Ids{ValueId(), ValueId(), window_positions(f, n, 0, rows), window_positions(f, n, 1, columns)}, blocks,
                                         b.boolean(true)});
  if (!dim_is(above, 0)) out = f.slice(out, 2, above, above + to[0]);
  if (!dim_is(left, 0)) out = f.slice(out, 3, left, left + to[1]);
  if (f.rank(x) == 2) out = f.view(out, {channels, to[0], to[1]});
  return {out};
}

}  // namespace pteron::ops::pixel
