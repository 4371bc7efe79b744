// Two-operand arithmetic: schemas, inference, decompositions. Runtime half: kernel.cpp; rows shared by both: rows.inc.
#include <cmath>

#include "base/str_cat.h"
#include "ops/binary/portable.h"
#include "ops/infer.h"

namespace pteron::ops::binary {

namespace {

using ir::Builder;

Status infer_Number(InferContext& c) { return infer_binary(c); }
Status infer_Real(InferContext& c) { return infer_binary(c); }
Status infer_Float(InferContext& c) { return infer_binary_float(c); }
Status infer_Integer(InferContext& c) { return infer_binary(c); }
Status infer_Whole(InferContext& c) { return infer_binary(c); }

Status infer_heaviside(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "values"}, &sizes));
  c.add(elementwise_type(c, result_type(c, {"self", "values"}), std::move(sizes), {"self", "values"}));
  return ok_status();
}
Status infer_ldexp(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "other"}, &sizes));
  Promotion p;
  p.add_tensor(c.type("self").dtype, c.type("self").rank());
  p.add_tensor(to_float_dtype(c.type("other").dtype), c.type("other").rank());
  c.add(elementwise_type(c, p.result(), std::move(sizes), {"self", "other"}));
  return ok_status();
}

Status infer_join(InferContext& c) {
  const std::string_view a = c.op().schema.args[0].name, b = c.op().schema.args[1].name;
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {a, b}, &sizes));
  const DType part = c.type(a).dtype;
  if (part != DType::kFloat32 && part != DType::kFloat64) return Status(Code::kUnsupported, str_cat("complex numbers of ", dtype_name(part)));
  c.add(elementwise_type(c, part == DType::kFloat64 ? DType::kComplexDouble : DType::kComplexFloat, std::move(sizes), {a, b}));
  return ok_status();
}

/// self * 2^other, as ATen computes it.
std::vector<ValueId> decompose_ldexp(Builder& b, const NodeView& n) {
  const ValueId power = b.op("aten::pow.Scalar", {b.floating(2.0), n.value("other")});
  return {b.op("aten::mul.Tensor", {n.value("self"), power})};
}
/// __lshift__ and __rshift__: shifts of integers, products with powers of two of floats.
std::vector<ValueId> shift(Builder& b, const NodeView& n, bool left) {
  const bool number = !n.is_value("other");
  const DType dtype = result_type(n, {"self", "other"});
  if (is_integral(dtype, false)) {
    const std::string name = str_cat("aten::bitwise_", left ? "left" : "right", "_shift.", number ? "Tensor_Scalar" : "Tensor");
    return {b.op(name, {n.value("self"), n.arg("other")})};
  }
  if (number) {
    const double factor = std::exp2(left ? n.number("other") : -n.number("other"));
    return {b.op("aten::mul.Scalar", {n.value("self"), b.floating(factor)})};
  }
  const ValueId power = b.op("aten::pow.Scalar", {b.floating(2.0), n.value("other")});
  return {b.op(left ? "aten::mul.Tensor" : "aten::div.Tensor", {n.value("self"), power})};
}
std::vector<ValueId> decompose_lshift(Builder& b, const NodeView& n) { return shift(b, n, true); }
std::vector<ValueId> decompose_rshift(Builder& b, const NodeView& n) { return shift(b, n, false); }

constexpr ir::OpDef kRows[] = {
#define PLAIN(name, category, f) \
  {.schema = "aten::" #name "(Tensor self, Tensor other) -> Tensor",                                     \
   .infer = infer_##category,                                                                           \
   .decompose = portable_row(#name),                                                                    \
   .kernel = "aten::" #name ".out", .flags = ir::kInPlace},
#define BOTH(name, category, f)                                                                                                              \
  {.schema = "aten::" #name ".Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_##category, .kernel = "aten::" #name ".Tensor_out", .flags = ir::kInPlace}, \
  {.schema = "aten::" #name ".Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_##category, .kernel = "aten::" #name ".Scalar_out", .flags = ir::kInPlace}, \
  {.schema = "aten::" #name ".Scalar_Tensor(Scalar self, Tensor other) -> Tensor",                                                            \
   .infer = infer_##category,                                                                                                                 \
   .decompose = portable_bitwise_number,                                                                                                      \
   .kernel = "aten::" #name ".Scalar_Tensor_out"},
#include "ops/binary/rows.inc"
#undef PLAIN
#undef BOTH
    {.schema = "aten::__lshift__.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .decompose = decompose_lshift},
    {.schema = "aten::__lshift__.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .decompose = decompose_lshift},
    {.schema = "aten::__rshift__.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .decompose = decompose_rshift},
    {.schema = "aten::__rshift__.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .decompose = decompose_rshift},
    {.schema = "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", .infer = infer_binary, .kernel = "aten::add.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", .infer = infer_binary, .kernel = "aten::add.out", .flags = ir::kInPlace},
    {.schema = "aten::bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .decompose = portable_shift_number,
     .kernel = "aten::bitwise_left_shift.Scalar_Tensor_out"},
    {.schema = "aten::bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .kernel = "aten::bitwise_left_shift.Tensor_out"},
    {.schema = "aten::bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
     .infer = infer_binary,
     .kernel = "aten::bitwise_left_shift.Tensor_Scalar_out"},
    {.schema = "aten::bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .decompose = portable_shift_number,
     .kernel = "aten::bitwise_right_shift.Scalar_Tensor_out"},
    {.schema = "aten::bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .kernel = "aten::bitwise_right_shift.Tensor_out"},
    {.schema = "aten::bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
     .infer = infer_binary,
     .kernel = "aten::bitwise_right_shift.Tensor_Scalar_out"},
    {.schema = "aten::complex(Tensor real, Tensor imag) -> Tensor", .infer = infer_join, .kernel = "aten::complex.out"},
    {.schema = "aten::copysign.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary_float, .decompose = portable_copysign, .kernel = "aten::copysign.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::copysign.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .decompose = portable_copysign, .kernel = "aten::copysign.out", .flags = ir::kInPlace},
    {.schema = "aten::heaviside(Tensor self, Tensor values) -> Tensor", .infer = infer_heaviside, .decompose = portable_heaviside, .kernel = "aten::heaviside.out"},
    {.schema = "aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_ldexp, .decompose = decompose_ldexp},
    {.schema = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .kernel = "aten::mul.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .kernel = "aten::mul.out", .flags = ir::kInPlace},
    {.schema = "aten::polar(Tensor abs, Tensor angle) -> Tensor", .infer = infer_join, .kernel = "aten::polar.out"},
    {.schema = "aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", .infer = infer_binary, .kernel = "aten::rsub.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", .infer = infer_binary, .decompose = portable_rsub, .kernel = "aten::rsub.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::special_xlog1py(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .decompose = portable_xlog1py, .kernel = "aten::special_xlog1py.out"},
    {.schema = "aten::special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor",
     .infer = infer_binary_float,
     .decompose = portable_xlog1py,
     .kernel = "aten::special_xlog1py.other_scalar_out"},
    {.schema = "aten::special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary_float,
     .decompose = portable_xlog1py,
     .kernel = "aten::special_xlog1py.self_scalar_out"},
    {.schema = "aten::special_zeta(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .kernel = "aten::special_zeta.out"},
    {.schema = "aten::special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor",
     .infer = infer_binary_float,
     .kernel = "aten::special_zeta.other_scalar_out"},
    {.schema = "aten::special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary_float,
     .kernel = "aten::special_zeta.self_scalar_out"},
    {.schema = "aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", .infer = infer_binary, .kernel = "aten::sub.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", .infer = infer_binary, .kernel = "aten::sub.out", .flags = ir::kInPlace},
    {.schema = "aten::xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor", .infer = infer_binary_float, .decompose = portable_xlogy, .kernel = "aten::xlogy.OutScalar_Other"},
    {.schema = "aten::xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor", .infer = infer_binary_float, .decompose = portable_xlogy, .kernel = "aten::xlogy.OutScalar_Self"},
    {.schema = "aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .decompose = portable_xlogy, .kernel = "aten::xlogy.OutTensor"},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::binary
