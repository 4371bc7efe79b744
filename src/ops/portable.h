// What decompositions into the kernels of the official runtime share: choices, comparisons, arithmetic in float. Compile half only; used by the
// op_portable.cpp files of op rooms. Operators that have such a decomposition keep their own kernel where the profile has it.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/str_cat.h"
#include "ops/compose.h"

namespace pteron::ops {

/// Compose with choices and numbers. Errors are sticky in the builder.
class Portable : public Compose {
 public:
  explicit Portable(ir::Builder& builder) : Compose(builder) {}

  /// A number as 0-d tensor; symbolic ones are filled in at run time.
  ValueId number(double value, DType to) { return b.scalar_tensor(value, to); }
  ValueId number(Expr value, DType to) {
    if (ir::is_number(value) && !value.is_const()) return b.scalar_tensor(ir::number_of(value), to);
    return b.op("aten::full", {std::vector<Expr>(), value, to});
  }
  ValueId where(ValueId condition, ValueId x, ValueId y) { return b.op("aten::where.self", {condition, x, y}); }
  ValueId where(ValueId condition, ValueId x, double y) { return where(condition, x, number(y, dtype(x))); }
  ValueId where(ValueId condition, double x, ValueId y) { return where(condition, number(x, dtype(y)), y); }
  /// eq, ne, lt, le, gt, ge with a number ("aten::lt.Scalar").
  ValueId compare(std::string_view name, ValueId x, Expr y) { return b.op(str_cat("aten::", name, ".Scalar"), {x, y}); }
  ValueId compare(std::string_view name, ValueId x, double y) { return compare(name, x, b.floating(y)); }
  ValueId compare(std::string_view name, ValueId x, ValueId y) { return b.op(str_cat("aten::", name, ".Tensor"), {x, y}); }
  ValueId both(ValueId x, ValueId y) { return b.op("aten::logical_and", {x, y}); }
  ValueId either(ValueId x, ValueId y) { return b.op("aten::logical_or", {x, y}); }
  ValueId negate(ValueId x) { return b.op("aten::logical_not", {x}); }
  ValueId scale(ValueId x, double factor) { return mul(x, b.floating(factor)); }
  ValueId shift(ValueId x, double term) { return add(x, b.floating(term)); }
  /// The dtype that ATen computes in on CPU: float for half, bfloat16 and integers.
  static DType wide_dtype(DType d) { return d == DType::kFloat64 || is_complex(d) ? d : DType::kFloat32; }
  ValueId wide(ValueId x) { return to(x, wide_dtype(dtype(x))); }
  ValueId arange(Expr count, DType as = DType::kInt64) { return b.op("aten::arange.start_step", {Expr(0), count, Expr(1), as}); }
  /// x of `rank` dims with all its elements along `dim`, 1 elsewhere.
  ValueId along(ValueId x, int dim, int rank) {
    std::vector<Expr> shape(static_cast<size_t>(rank), Expr(1));
    shape[static_cast<size_t>(dim)] = ir::numel_of(sizes(x));
    return view(x, std::move(shape));
  }
  ValueId ints(std::span<const int64_t> values) {
    return b.constant(DType::kInt64, {static_cast<int64_t>(values.size())}, std::as_bytes(values), "indices");
  }
};

}  // namespace pteron::ops
