// Short names for the functional ops that decompositions are made of. Compile half only; used by op rooms' op*.cpp.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ops/infer.h"

namespace pteron::ops {

/// Builds common functional ops; every call returns the new value. Errors are sticky in the builder.
class Compose {
 public:
  explicit Compose(ir::Builder& builder) : b(builder) {}

  const std::vector<Expr>& sizes(ValueId x) const { return b.type(x).sizes; }
  int rank(ValueId x) const { return b.type(x).rank(); }
  DType dtype(ValueId x) const { return b.type(x).dtype; }
  Expr size(ValueId x, int dim) const {
    const auto& s = sizes(x);
    const size_t at = static_cast<size_t>(dim < 0 ? dim + static_cast<int>(s.size()) : dim);
    return at < s.size() ? s[at] : Expr(1);  // an invalid id after an error has no sizes
  }

  ValueId view(ValueId x, std::vector<Expr> to) { return sizes(x) == to ? x : b.op("aten::view", {x, std::move(to)}); }
  ValueId permute(ValueId x, std::span<const int64_t> dims) {
    bool same = true;
    std::vector<Expr> list;
    for (size_t i = 0; i < dims.size(); ++i) {
      same = same && dims[i] == static_cast<int64_t>(i);
      list.emplace_back(dims[i]);
    }
    return same ? x : b.op("aten::permute", {x, std::move(list)});
  }
  /// Swaps two dims; negative ones count from the end.
  ValueId transpose(ValueId x, int a, int c) {
    const int r = rank(x);
    std::vector<int64_t> dims;
    for (int i = 0; i < r; ++i) dims.push_back(i);
    if (r > 0) std::swap(dims[static_cast<size_t>((a + r) % r)], dims[static_cast<size_t>((c + r) % r)]);
    return permute(x, dims);
  }
  ValueId unsqueeze(ValueId x, int dim) { return b.op("aten::unsqueeze", {x, Expr(dim)}); }
  ValueId squeeze(ValueId x, int dim) { return b.op("aten::squeeze.dim", {x, Expr(dim)}); }
  ValueId expand(ValueId x, std::vector<Expr> to) { return sizes(x) == to ? x : b.op("aten::expand", {x, std::move(to)}); }
  ValueId slice(ValueId x, int dim, Expr start, Expr end, int step = 1) { return b.op("aten::slice.Tensor", {x, Expr(dim), start, end, Expr(step)}); }
  ValueId select(ValueId x, int dim, Expr index) { return b.op("aten::select.int", {x, Expr(dim), index}); }
  ValueId cat(std::vector<ValueId> parts, int dim) { return parts.size() == 1 ? parts[0] : b.op("aten::cat", {std::move(parts), Expr(dim)}); }
  ValueId stack(std::vector<ValueId> parts, int dim) { return b.op("aten::stack", {std::move(parts), Expr(dim)}); }
  ValueId mm(ValueId x, ValueId y) { return b.op("aten::mm", {x, y}); }
  ValueId bmm(ValueId x, ValueId y) { return b.op("aten::bmm", {x, y}); }
  ValueId mul(ValueId x, ValueId y) { return b.op("aten::mul.Tensor", {x, y}); }
  ValueId add(ValueId x, ValueId y) { return b.op("aten::add.Tensor", {x, y}); }
  ValueId sub(ValueId x, ValueId y) { return b.op("aten::sub.Tensor", {x, y}); }
  ValueId div(ValueId x, ValueId y) { return b.op("aten::div.Tensor", {x, y}); }
  ValueId mul(ValueId x, Expr y) { return b.op("aten::mul.Scalar", {x, y}); }
  ValueId add(ValueId x, Expr y) { return b.op("aten::add.Scalar", {x, y}); }
  ValueId sum(ValueId x, std::vector<Expr> dims, bool keepdim = false) {
    return b.op("aten::sum.dim_IntList", {x, std::move(dims), b.boolean(keepdim), dtype(x)});
  }
  ValueId to(ValueId x, DType dtype_to) { return dtype(x) == dtype_to ? x : b.op("aten::_to_copy", {x, dtype_to}); }
  ValueId unary(std::string_view name, ValueId x) { return b.op(name, {x}); }

  ir::Builder& b;
};

/// A number as ATen takes it beside tensors of this dtype: integers cut a fraction off.
inline Expr number_for(ir::Builder& b, Expr number, DType dtype) {
  if (!is_integral(dtype, true) || number.type() != ir::ExprType::kFloat) return number;
  return b.exprs().make(ir::ExprOp::kTrunc, std::span(&number, 1));
}

/// A list of bools, which nodes hold as expressions.
inline std::vector<bool> flags_of(const NodeView& n, std::string_view name) {
  std::vector<bool> out;
  for (const Expr& e : n.exprs(name)) out.push_back(ir::is_number(e) && ir::number_of(e) != 0);
  return out;
}

/// Sizes [first, last) of a list.
inline std::vector<Expr> sub_sizes(std::span<const Expr> sizes, size_t first, size_t last) {
  return {sizes.begin() + static_cast<std::ptrdiff_t>(first), sizes.begin() + static_cast<std::ptrdiff_t>(last)};
}

}  // namespace pteron::ops
