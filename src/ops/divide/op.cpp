// Division, remainders, powers: schemas, inference, decompositions. Runtime half: kernel.cpp.
#include "ops/infer.h"
#include "ops/portable.h"

namespace pteron::ops::divide {

namespace {

using ir::Builder;

/// div with a rounding mode keeps integers; without one it is true division.
Status infer_div_mode(InferContext& c) { return c.is_none("rounding_mode") ? infer_binary_float(c) : infer_binary(c); }

Status infer_power(InferContext& c, DType dtype) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "exponent"}, &sizes));
  c.add(elementwise_type(c, dtype, std::move(sizes), {"self", "exponent"}));
  return ok_status();
}
Status infer_pow(InferContext& c) { return infer_power(c, result_type(c, {"self", "exponent"})); }
Status infer_float_power(InferContext& c) {
  return infer_power(c, is_complex(result_type(c, {"self", "exponent"})) ? DType::kComplexDouble : DType::kFloat64);
}

ir::Arg as_double(Builder& b, const NodeView& n, std::string_view name) {
  if (!n.is_value(name)) return n.arg(name);
  const DType to = is_complex(n.type(name).dtype) ? DType::kComplexDouble : DType::kFloat64;
  if (n.type(name).dtype == to) return n.value(name);
  return b.op("aten::_to_copy", {n.value(name), to});
}
/// An operand of a complex power; a number becomes a 0-d tensor, an invalid id if it is known at run time only.
ValueId as_complex_double(Builder& b, const NodeView& n, std::string_view name) {
  if (!n.is_value(name)) return ir::is_number(n.expr(name)) ? b.scalar_tensor(n.number(name), DType::kComplexDouble) : ValueId{};
  return n.type(name).dtype == DType::kComplexDouble ? n.value(name) : b.op("aten::_to_copy", {n.value(name), DType::kComplexDouble});
}
/// float_power: pow in double.
std::vector<ValueId> decompose_float_power(Builder& b, const NodeView& n) {
  if (is_complex(result_type(n, {"self", "exponent"}))) {
    const ValueId base = as_complex_double(b, n, "self"), exponent = as_complex_double(b, n, "exponent");
    if (!base.valid() || !exponent.valid()) return {};
    return {b.op("aten::pow.Tensor_Tensor", {base, exponent})};
  }
  if (!n.is_value("exponent")) {
    const ir::Arg base = as_double(b, n, "self");
    const ir::Arg exponent = ir::is_number(n.expr("exponent")) ? ir::Arg(b.floating(n.number("exponent"))) : n.arg("exponent");
    return {b.op("aten::pow.Tensor_Scalar", {base, exponent})};
  }
  if (!n.is_value("self")) return {b.op("aten::pow.Scalar", {n.arg("self"), as_double(b, n, "exponent")})};
  const ir::Arg base = as_double(b, n, "self");
  return {b.op("aten::pow.Tensor_Tensor", {base, as_double(b, n, "exponent")})};
}

/// In terms of kernels that the official runtime has.
std::vector<ValueId> portable_floor_divide(Builder& b, const NodeView& n) {
  return {b.op("aten::div.Scalar_mode", {n.value("self"), n.arg("other"), std::string("floor")})};
}
/// An operand of dtype `to`: a tensor, or a number as 0-d tensor.
ValueId operand(Portable& f, const NodeView& n, std::string_view name, DType to) {
  return n.is_value(name) ? f.to(n.value(name), to) : f.number(n.expr(name), to);
}

/// Operands and floor division of integers: the one official kernel of them that does not go through double.
struct IntDivision {
  ValueId x, y, quotient, rest;  ///< rest: with the sign of y
  IntDivision(Portable& f, const NodeView& n, DType dtype)
      : x(operand(f, n, "self", dtype)), y(operand(f, n, "other", dtype)), quotient(f.b.op("aten::floor_divide", {x, y})), rest(f.sub(x, f.mul(quotient, y))) {}
  /// Where division towards zero gives another quotient.
  ValueId rounds_up(Portable& f) const {
    return f.both(f.compare("ne", rest, Expr(0)), f.b.op("aten::logical_xor", {f.compare("lt", x, Expr(0)), f.compare("lt", y, Expr(0))}));
  }
};

std::vector<ValueId> portable_int_remainder(Builder& b, const NodeView& n) {
  const DType dtype = result_type(n, {"self", "other"});
  if (!is_integral(dtype, false)) return {};
  Portable f(b);
  return {IntDivision(f, n, dtype).rest};
}
std::vector<ValueId> portable_int_fmod(Builder& b, const NodeView& n) {
  const DType dtype = result_type(n, {"self", "other"});
  if (!is_integral(dtype, false)) return {};
  Portable f(b);
  const IntDivision division(f, n, dtype);
  return {f.where(division.rounds_up(f), f.sub(division.rest, division.y), division.rest)};
}

/// Floor division of floats as ATen does it, from the exact remainder; division of integers towards zero.
std::vector<ValueId> portable_rounded(Builder& b, const NodeView& n) {
  const DType dtype = result_type(n, {"self", "other"});
  if (is_integral(dtype, false) && n.has("rounding_mode") && !n.is_none("rounding_mode") && n.text("rounding_mode") == "trunc") {
    Portable f(b);
    const IntDivision division(f, n, dtype);
    return {f.where(division.rounds_up(f), f.add(division.quotient, Expr(1)), division.quotient)};
  }
  if (!is_floating(dtype)) return {};
  if (n.has("rounding_mode") && (n.is_none("rounding_mode") || n.text("rounding_mode") != "floor")) return {};
  Portable f(b);
  const DType wide = Portable::wide_dtype(dtype);
  const ValueId x = operand(f, n, "self", wide), y = operand(f, n, "other", wide);
  const ValueId rest = b.op("aten::fmod.Tensor", {x, y}), plain = f.div(x, y);
  ValueId quotient = f.div(f.sub(x, rest), y);
  const ValueId crosses = b.op("aten::logical_xor", {f.compare("lt", y, Expr(0)), f.compare("lt", rest, Expr(0))});
  quotient = f.where(f.both(f.compare("ne", rest, Expr(0)), crosses), f.shift(quotient, -1.0), quotient);
  const ValueId whole = f.unary("aten::floor", quotient);
  ValueId out = f.where(f.compare("gt", f.sub(quotient, whole), 0.5), f.shift(whole, 1.0), whole);
  out = f.where(f.compare("eq", quotient, Expr(0)), f.scale(plain, 0.0), out);
  return {f.to(f.where(f.compare("eq", y, Expr(0)), plain, out), dtype)};
}

/// Integer power by repeated squaring, which wraps as ATen's does. Negative exponents leave 1 and -1 only.
std::vector<ValueId> portable_int_power(Builder& b, const NodeView& n) {
  const DType dtype = result_type(n, {"self", "exponent"});
  if (!is_integral(dtype, false)) return {};
  Portable f(b);
  ValueId base = operand(f, n, "self", dtype);
  const ValueId one = f.number(1.0, dtype);
  if (!n.is_value("exponent")) {
    if (!n.expr("exponent").is_const()) return {};
    const int64_t exponent = n.integer("exponent");
    if (exponent < 0) return {};
    ValueId out = b.op("aten::full_like", {base, Expr(1)});
    for (int64_t left = exponent; left > 0; left /= 2) {
      if (left % 2 == 1) out = f.mul(out, base);
      if (left > 1) base = f.mul(base, base);
    }
    return {out};
  }
  const ValueId exponent = f.to(n.value("exponent"), dtype);
  const ValueId start = base;
  std::vector<Expr> sizes;
  if (!broadcast_exprs(f.sizes(base), f.sizes(exponent), &sizes).ok()) return {};
  ValueId out = b.op("aten::full", {sizes, Expr(1), dtype}), left = exponent;
  const int bits = static_cast<int>(dtype_size(dtype)) * 8 - (dtype == DType::kUInt8 ? 0 : 1);
  for (int bit = 0; bit < bits; ++bit) {
    const ValueId odd = f.compare("ne", b.op("aten::bitwise_and.Scalar", {left, Expr(1)}), Expr(0));
    out = f.where(odd, f.mul(out, base), out);
    if (bit + 1 == bits) break;
    base = f.mul(base, base);
    left = b.op("aten::bitwise_right_shift.Tensor_Scalar", {left, Expr(1)});
  }
  if (dtype == DType::kUInt8) return {out};
  const ValueId is_odd = f.compare("ne", b.op("aten::bitwise_and.Scalar", {exponent, Expr(1)}), Expr(0));
  const ValueId minus = f.where(is_odd, f.number(-1.0, dtype), one);
  const ValueId inverse = f.where(f.compare("eq", start, Expr(1)), one, f.where(f.compare("eq", start, Expr(-1)), minus, f.number(0.0, dtype)));
  return {f.where(f.compare("lt", exponent, Expr(0)), inverse, out)};
}

std::vector<ValueId> portable_remainder(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = result_type(n, {"self", "other"});
  return {b.op("aten::remainder.Tensor", {f.number(n.expr("self"), dtype), f.to(n.value("other"), dtype)})};
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::div.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary_float, .kernel = "aten::div.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
     .infer = infer_div_mode,
     .decompose = portable_rounded,
     .kernel = "aten::div.Scalar_mode_out", .flags = ir::kInPlace},
    {.schema = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .kernel = "aten::div.out", .flags = ir::kInPlace},
    {.schema = "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
     .infer = infer_div_mode,
     .decompose = portable_rounded,
     .kernel = "aten::div.out_mode", .flags = ir::kInPlace},
    {.schema = "aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::floor_divide(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .decompose = portable_rounded, .kernel = "aten::floor_divide.out", .flags = ir::kInPlace},
    {.schema = "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .decompose = portable_floor_divide, .kernel = "aten::floor_divide.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .decompose = portable_int_fmod, .kernel = "aten::fmod.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .decompose = portable_int_fmod, .kernel = "aten::fmod.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor", .infer = infer_pow, .decompose = portable_int_power, .kernel = "aten::pow.Scalar_out"},
    {.schema = "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", .infer = infer_pow, .decompose = portable_int_power, .kernel = "aten::pow.Tensor_Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", .infer = infer_pow, .decompose = portable_int_power, .kernel = "aten::pow.Tensor_Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .decompose = portable_int_remainder, .kernel = "aten::remainder.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .decompose = portable_remainder,
     .kernel = "aten::remainder.Scalar_Tensor_out"},
    {.schema = "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .decompose = portable_int_remainder, .kernel = "aten::remainder.Tensor_out", .flags = ir::kInPlace},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::divide
