// Division, remainders, powers: schemas, inference, decompositions. Runtime half: kernel.cpp.
#include "ops/infer.h"

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
/// float_power: pow in double.
std::vector<ValueId> decompose_float_power(Builder& b, const NodeView& n) {
  if (is_complex(result_type(n, {"self", "exponent"}))) return {};
  if (!n.is_value("exponent")) {
    const ir::Arg base = as_double(b, n, "self");
    const ir::Arg exponent = ir::is_number(n.expr("exponent")) ? ir::Arg(b.floating(n.number("exponent"))) : n.arg("exponent");
    return {b.op("aten::pow.Tensor_Scalar", {base, exponent})};
  }
  if (!n.is_value("self")) return {b.op("aten::pow.Scalar", {n.arg("self"), as_double(b, n, "exponent")})};
  const ir::Arg base = as_double(b, n, "self");
  return {b.op("aten::pow.Tensor_Tensor", {base, as_double(b, n, "exponent")})};
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::div.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary_float, .kernel = "aten::div.Scalar_out"},
    {.schema = "aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
     .infer = infer_div_mode,
     .kernel = "aten::div.Scalar_mode_out"},
    {.schema = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_float, .kernel = "aten::div.out"},
    {.schema = "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
     .infer = infer_div_mode,
     .kernel = "aten::div.out_mode"},
    {.schema = "aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
     .infer = infer_float_power,
     .decompose = decompose_float_power},
    {.schema = "aten::floor_divide(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .kernel = "aten::floor_divide.out"},
    {.schema = "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .kernel = "aten::floor_divide.Scalar_out"},
    {.schema = "aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .kernel = "aten::fmod.Scalar_out"},
    {.schema = "aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .kernel = "aten::fmod.Tensor_out"},
    {.schema = "aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor", .infer = infer_pow, .kernel = "aten::pow.Scalar_out"},
    {.schema = "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", .infer = infer_pow, .kernel = "aten::pow.Tensor_Scalar_out"},
    {.schema = "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", .infer = infer_pow, .kernel = "aten::pow.Tensor_Tensor_out"},
    {.schema = "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary, .kernel = "aten::remainder.Scalar_out"},
    {.schema = "aten::remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
     .infer = infer_binary,
     .kernel = "aten::remainder.Scalar_Tensor_out"},
    {.schema = "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary, .kernel = "aten::remainder.Tensor_out"},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::divide
