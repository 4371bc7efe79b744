// Operators of one tensor: schemas, inference and decompositions. Runtime half: kernel.cpp; rows shared by both: rows.inc.
#include "ops/infer.h"
#include "ops/unary/portable.h"

namespace pteron::ops::unary {

namespace {

using ir::Builder;

Status infer_Float(InferContext& c) { return infer_float_like_self(c); }
Status infer_FloatComplex(InferContext& c) { return infer_float_like_self(c); }
Status infer_Round(InferContext& c) { return infer_like_self(c); }
Status infer_Real(InferContext& c) { return infer_like_self(c); }
Status infer_Number(InferContext& c) { return infer_like_self(c); }
Status infer_NumberComplex(InferContext& c) { return infer_like_self(c); }
Status infer_Test(InferContext& c) { return infer_bool_like_self(c); }
Status infer_TestReal(InferContext& c) { return infer_bool_like_self(c); }

Status infer_abs(InferContext& c) {
  c.add(elementwise_type(c, real_dtype(c.type("self").dtype), c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_angle(InferContext& c) {
  c.add(elementwise_type(c, to_float_dtype(real_dtype(c.type("self").dtype)), c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_frexp(InferContext& c) {
  c.add(elementwise_type(c, c.type("self").dtype, c.type("self").sizes, {"self"}));
  c.add(elementwise_type(c, DType::kInt32, c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_polygamma(InferContext& c) {
  c.add(elementwise_type(c, to_float_dtype(c.type("self").dtype), c.type("self").sizes, {"self"}));
  return ok_status();
}

/// self itself (on real tensors: conj, resolve_conj, resolve_neg, positive, real).
std::vector<ValueId> decompose_identity(Builder&, const NodeView& n) { return {n.value("self")}; }
std::vector<ValueId> decompose_conj(Builder& b, const NodeView& n) {
  if (!is_complex(n.type("self").dtype)) return {n.value("self")};
  return {b.op("aten::conj_physical", {n.value("self")})};
}
/// isreal: true, or imag == 0.
std::vector<ValueId> decompose_isreal(Builder& b, const NodeView& n) {
  if (!is_complex(n.type("self").dtype)) return {b.op("aten::full_like", {n.value("self"), b.boolean(true), DType::kBool})};
  return {b.op("aten::eq.Scalar", {b.op("aten::imag", {n.value("self")}), Expr(0)})};
}
/// special_ndtr(x) = erfc(-x/sqrt(2)) / 2.
std::vector<ValueId> decompose_ndtr(Builder& b, const NodeView& n) {
  const ValueId scaled = b.op("aten::mul.Scalar", {n.value("self"), b.floating(-0.70710678118654752440)});
  return {b.op("aten::mul.Scalar", {b.op("aten::erfc", {scaled}), b.floating(0.5)})};
}
Status infer_square(InferContext& c) {
  const DType dtype = c.type("self").dtype;
  c.add(elementwise_type(c, dtype == DType::kBool ? DType::kInt64 : dtype, c.type("self").sizes, {"self"}));
  return ok_status();
}

constexpr ir::OpDef kRows[] = {
#define UNARY(name, category, expression) {.schema = "aten::" #name "(Tensor self) -> Tensor", .infer = infer_##category, .decompose = portable_row(#name), .kernel = "aten::" #name ".out", .flags = ir::kInPlace},
#include "ops/unary/rows.inc"
#undef UNARY
    {.schema = "aten::_conj(Tensor(a) self) -> Tensor(a)", .infer = infer_like_self, .decompose = decompose_conj},
    {.schema = "aten::_conj_physical(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::_conj_physical.out"},
    {.schema = "aten::abs(Tensor self) -> Tensor", .infer = infer_abs, .kernel = "aten::abs.out", .flags = ir::kInPlace},
    {.schema = "aten::angle(Tensor self) -> Tensor", .infer = infer_angle, .decompose = portable_angle, .kernel = "aten::angle.out"},
    {.schema = "aten::bitwise_not(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::bitwise_not.out", .flags = ir::kInPlace},
    {.schema = "aten::conj(Tensor(a) self) -> Tensor(a)", .infer = infer_like_self, .decompose = decompose_conj},
    {.schema = "aten::cos(Tensor self) -> Tensor", .infer = infer_float_like_self, .kernel = "aten::cos.out", .flags = ir::kInPlace},
    {.schema = "aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)", .infer = infer_frexp, .kernel = "aten::frexp.Tensor_out"},
    {.schema = "aten::isreal(Tensor self) -> Tensor", .infer = infer_bool_like_self, .decompose = decompose_isreal},
    {.schema = "aten::logical_not(Tensor self) -> Tensor", .infer = infer_bool_like_self, .kernel = "aten::logical_not.out", .flags = ir::kInPlace},
    {.schema = "aten::logit(Tensor self, float? eps=None) -> Tensor", .infer = infer_float_like_self, .decompose = portable_logit, .kernel = "aten::logit.out", .flags = ir::kInPlace},
    {.schema = "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
     .infer = infer_like_self, .decompose = portable_nan_to_num, .kernel = "aten::nan_to_num.out", .flags = ir::kInPlace},
    {.schema = "aten::polygamma(int n, Tensor self) -> Tensor", .infer = infer_polygamma, .kernel = "aten::polygamma.out"},
    {.schema = "aten::positive(Tensor(a) self) -> Tensor(a)", .infer = infer_like_self, .decompose = decompose_identity, .flags = ir::kAlias},
    {.schema = "aten::resolve_conj(Tensor(a) self) -> Tensor(a)", .infer = infer_like_self, .decompose = decompose_identity, .flags = ir::kAlias},
    {.schema = "aten::resolve_neg(Tensor(a) self) -> Tensor(a)", .infer = infer_like_self, .decompose = decompose_identity, .flags = ir::kAlias},
    {.schema = "aten::round.decimals(Tensor self, *, int decimals) -> Tensor", .infer = infer_like_self, .decompose = portable_round_decimals, .kernel = "aten::round.decimals_out", .flags = ir::kInPlace},
    {.schema = "aten::sin(Tensor self) -> Tensor", .infer = infer_float_like_self, .kernel = "aten::sin.out", .flags = ir::kInPlace},
    {.schema = "aten::square(Tensor self) -> Tensor", .infer = infer_square, .decompose = portable_square, .kernel = "aten::square.out", .flags = ir::kInPlace},
    {.schema = "aten::special_ndtr(Tensor self) -> Tensor", .infer = infer_float_like_self, .decompose = decompose_ndtr},
    {.schema = "aten::tan(Tensor self) -> Tensor", .infer = infer_float_like_self, .kernel = "aten::tan.out", .flags = ir::kInPlace},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::unary
