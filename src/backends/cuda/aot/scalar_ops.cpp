// The table of elementwise operators, and the spelling of types and numbers.
#include "backends/cuda/aot/scalar_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/str_cat.h"
#include "ops/convert_float8.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace pteron::cuda {

namespace {

constexpr auto kResult = Compute::kResult, kCommon = Compute::kCommon, kSelf = Compute::kSelf, kTruth = Compute::kTruth, kWhole = Compute::kWhole;

constexpr ScalarOp kOps[] = {
    {"_conj_physical", kResult, "p_conj($self)"},
    {"_prelu_kernel", kResult, "$self > 0 ? $self : $weight * $self"},
    {"abs", kResult, "p_abs($self)"},
    {"acos", kResult, "m_acos($self)", false, true},
    {"acosh", kResult, "m_acosh($self)", false, true},
    {"add.Scalar", kResult, "p_add($self, p_mul($other, $alpha))", true},
    {"add.Tensor", kResult, "p_add($self, p_mul($other, $alpha))", true},
    {"addcdiv", kResult, "$self + $value * $tensor1 / $tensor2"},
    {"addcmul", kResult, "p_add($self, p_mul(p_mul($value, $tensor1), $tensor2))"},
    {"asin", kResult, "m_asin($self)", false, true},
    {"asinh", kResult, "m_asinh($self)", false, true},
    {"atan", kResult, "m_atan($self)", false, true},
    {"atan2", kResult, "m_atan2($self, $other)", true, true},
    {"atanh", kResult, "m_atanh($self)", false, true},
    {"bitwise_and.Scalar", kResult, "($T)($self & $other)"},
    {"bitwise_and.Scalar_Tensor", kResult, "($T)($self & $other)"},
    {"bitwise_and.Tensor", kResult, "($T)($self & $other)"},
    {"bitwise_left_shift.Scalar_Tensor", kResult, "p_shl($self, $other)"},
    {"bitwise_left_shift.Tensor", kResult, "p_shl($self, $other)"},
    {"bitwise_left_shift.Tensor_Scalar", kResult, "p_shl($self, $other)"},
    {"bitwise_or.Scalar", kResult, "($T)($self | $other)"},
    {"bitwise_or.Scalar_Tensor", kResult, "($T)($self | $other)"},
    {"bitwise_or.Tensor", kResult, "($T)($self | $other)"},
    {"bitwise_right_shift.Scalar_Tensor", kResult, "p_shr($self, $other)"},
    {"bitwise_right_shift.Tensor", kResult, "p_shr($self, $other)"},
    {"bitwise_right_shift.Tensor_Scalar", kResult, "p_shr($self, $other)"},
    {"bitwise_xor.Scalar", kResult, "($T)($self ^ $other)"},
    {"bitwise_xor.Scalar_Tensor", kResult, "($T)($self ^ $other)"},
    {"bitwise_xor.Tensor", kResult, "($T)($self ^ $other)"},
    {"ceil", kWhole, "m_ceil($self)"},
    {"clamp_max", kResult, "p_min($self, $max)", true},
    {"clamp_max.Tensor", kResult, "p_min($self, $max)"},
    {"clamp_min", kResult, "p_max($self, $min)", true},
    {"clamp_min.Tensor", kResult, "p_max($self, $min)"},
    {"copysign.Scalar", kResult, "m_copysign($self, $other)", true},
    {"copysign.Tensor", kResult, "m_copysign($self, $other)"},
    {"cos", kResult, "m_cos($self)", false, true},
    {"cosh", kResult, "m_cosh($self)", false, true},
    {"deg2rad", kResult, "$self * ($T)0.017453292519943295769"},
    {"div.Scalar", kResult, "$self / $other"},
    {"div.Tensor", kResult, "$self / $other"},
    {"elu", kResult, "$self < 0 ? m_expm1($self * $input_scale) * ($alpha * $scale) : $self * $scale", false, true},
    {"eq.Scalar", kCommon, "$self == $other", true},
    {"eq.Tensor", kCommon, "$self == $other", true},
    {"erf", kResult, "m_erf($self)", false, true},
    {"erfc", kResult, "m_erfc($self)", false, true},
    {"exp", kResult, "m_exp($self)", false, true},
    {"exp2", kResult, "m_exp2($self)", false, true},
    {"expm1", kResult, "m_expm1($self)", false, true},
    {"floor", kWhole, "m_floor($self)"},
    {"floor_divide", kResult, "p_divfloor($self, $other)", false, true},
    {"floor_divide.Scalar", kResult, "p_divfloor($self, $other)", false, true},
    {"fmax", kResult, "p_fmax($self, $other)"},
    {"fmin", kResult, "p_fmin($self, $other)"},
    {"fmod.Scalar", kResult, "p_modtrunc($self, $other)", true, true},
    {"fmod.Tensor", kResult, "p_modtrunc($self, $other)", true, true},
    {"frac", kResult, "$self - m_trunc($self)"},
    {"gcd", kResult, "p_gcd($self, $other)", false, true},
    {"ge.Scalar", kCommon, "$self >= $other", true},
    {"ge.Tensor", kCommon, "$self >= $other", true},
    {"gt.Scalar", kCommon, "$self > $other", true},
    {"gt.Tensor", kCommon, "$self > $other", true},
    {"hardshrink", kResult, "$self >= -$lambd && $self <= $lambd ? ($T)0 : $self"},
    {"hardsigmoid", kResult, "p_hardsigmoid($self)"},
    {"hardswish", kResult, "p_hardswish($self)"},
    {"hardtanh", kResult, "p_clamp($self, $min_val, $max_val)", true},
    {"heaviside", kResult, "p_heaviside($self, $values)"},
    {"hypot", kResult, "m_hypot($self, $other)", false, true},
    {"isfinite", kSelf, "p_isfinite($self)"},
    {"isinf", kSelf, "p_isinf($self)"},
    {"isnan", kSelf, "p_isnan($self)"},
    {"isneginf", kSelf, "p_isneginf($self)"},
    {"isposinf", kSelf, "p_isposinf($self)"},
    {"lcm", kResult, "p_lcm($self, $other)", false, true},
    {"le.Scalar", kCommon, "$self <= $other", true},
    {"le.Tensor", kCommon, "$self <= $other", true},
    {"leaky_relu", kResult, "$self > 0 ? $self : $self * $negative_slope"},
    {"lerp.Scalar", kResult, "p_lerp($self, $end, $weight)"},
    {"lerp.Tensor", kResult, "p_lerp($self, $end, $weight)"},
    {"lgamma", kResult, "m_lgamma($self)", false, true},
    {"log", kResult, "m_log($self)", false, true},
    {"log10", kResult, "m_log10($self)", false, true},
    {"log1p", kResult, "m_log1p($self)", false, true},
    {"log2", kResult, "m_log2($self)", false, true},
    {"log_sigmoid", kResult, "p_log_sigmoid($self)", false, true},
    {"logaddexp", kResult, "p_logaddexp($self, $other)", false, true},
    {"logaddexp2", kResult, "p_logaddexp2($self, $other)", false, true},
    {"logical_and", kTruth, "$self && $other"},
    {"logical_not", kTruth, "!$self"},
    {"logical_or", kTruth, "$self || $other"},
    {"logical_xor", kTruth, "$self != $other"},
    {"lt.Scalar", kCommon, "$self < $other", true},
    {"lt.Tensor", kCommon, "$self < $other", true},
    {"maximum", kResult, "p_max($self, $other)"},
    {"minimum", kResult, "p_min($self, $other)"},
    {"mish", kResult, "p_mish($self)", false, true},
    {"mul.Scalar", kResult, "p_mul($self, $other)"},
    {"mul.Tensor", kResult, "p_mul($self, $other)"},
    {"ne.Scalar", kCommon, "$self != $other", true},
    {"ne.Tensor", kCommon, "$self != $other", true},
    {"neg", kResult, "p_neg($self)"},
    {"nextafter", kResult, "m_nextafter($self, $other)"},
    {"pow.Scalar", kResult, "p_pow($self, $exponent)", true, true},
    {"pow.Tensor_Tensor", kResult, "p_pow($self, $exponent)", false, true},
    {"rad2deg", kResult, "$self * ($T)57.295779513082320876"},
    {"reciprocal", kResult, "($T)1 / $self"},
    {"relu", kResult, "p_relu($self)"},
    {"remainder.Scalar", kResult, "p_remainder($self, $other)", true, true},
    {"remainder.Scalar_Tensor", kResult, "p_remainder($self, $other)", true, true},
    {"remainder.Tensor", kResult, "p_remainder($self, $other)", true, true},
    {"round", kWhole, "m_round($self)"},
    {"rsqrt", kResult, "($T)1 / m_sqrt($self)"},
    {"rsub.Scalar", kResult, "p_sub($other, p_mul($self, $alpha))", true},
    {"rsub.Tensor", kResult, "p_sub($other, p_mul($self, $alpha))", true},
    {"sigmoid", kResult, "p_sigmoid($self)", false, true},
    {"sgn", kResult, "p_sign($self)"},
    {"sign", kResult, "p_sign($self)"},
    {"signbit", kSelf, "p_signbit($self)"},
    {"silu", kResult, "$self / (($T)1 + m_exp(-$self))", false, true},
    {"sin", kResult, "m_sin($self)", false, true},
    {"sinc", kResult, "p_sinc($self)", false, true},
    {"sinh", kResult, "m_sinh($self)", false, true},
    {"softplus", kResult, "p_softplus($self, $beta, $threshold)", false, true},
    {"softshrink", kResult, "$self > $lambd ? $self - $lambd : ($self < -$lambd ? $self + $lambd : $self * ($T)0)"},
    {"special_xlog1py", kResult, "p_xlog1py($self, $other)", false, true},
    {"special_xlog1py.other_scalar", kResult, "p_xlog1py($self, $other)", true, true},
    {"special_xlog1py.self_scalar", kResult, "p_xlog1py($self, $other)", true, true},
    {"sqrt", kResult, "m_sqrt($self)"},
    {"square", kResult, "p_mul($self, $self)"},
    {"sub.Scalar", kResult, "p_sub($self, p_mul($other, $alpha))", true},
    {"sub.Tensor", kResult, "p_sub($self, p_mul($other, $alpha))", true},
    {"tan", kResult, "m_tan($self)", false, true},
    {"tanh", kResult, "m_tanh($self)", false, true},
    {"threshold", kResult, "$self <= $threshold ? $value : $self"},
    {"trunc", kWhole, "m_trunc($self)"},
    {"where.Scalar", kResult, "$condition ? $self : $other", true},
    {"where.ScalarOther", kResult, "$condition ? $self : $other", true},
    {"where.ScalarSelf", kResult, "$condition ? $self : $other", true},
    {"where.self", kResult, "$condition ? $self : $other", true},
    {"xlogy.Scalar_Other", kResult, "p_xlogy($self, $other)", true, true},
    {"xlogy.Scalar_Self", kResult, "p_xlogy($self, $other)", true, true},
    {"xlogy.Tensor", kResult, "p_xlogy($self, $other)", false, true},
};

}  // namespace

const ScalarOp* find_scalar_op(std::string_view name) {
  const auto found = std::ranges::find(kOps, name, &ScalarOp::op);
  return found == std::end(kOps) ? nullptr : &*found;
}

bool has_c_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplexFloat:
    case DType::kComplexDouble:
      return true;
    default:
      return false;
  }
}

std::string_view memory_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kUInt8:
      return "u8";
    case DType::kInt8:
      return "i8";
    case DType::kInt16:
      return "short";
    case DType::kInt32:
      return "int";
    case DType::kInt64:
      return "i64";
    case DType::kFloat8E4M3FN:
      return "f8e4m3";
    case DType::kFloat8E5M2:
      return "f8e5m2";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat64:
      return "double";
    case DType::kComplexFloat:
      return "c64";
    case DType::kComplexDouble:
      return "c128";
    default:
      return "float";
  }
}

bool is_narrow_float(DType dtype) { return is_reduced_float(dtype) || is_float8(dtype); }

std::string_view c_type(DType dtype) { return is_narrow_float(dtype) ? "float" : memory_type(dtype); }

std::string rounded(const std::string& text, DType dtype) { return is_narrow_float(dtype) ? str_cat("p_round_", memory_type(dtype), "(", text, ")") : text; }

std::string converted(const std::string& text, DType from, DType to) {
  if (from == to) return text;
  if (is_complex(to)) return str_cat("p_", c_type(to), is_complex(from) ? "(" : to == DType::kComplexDouble ? "((double)(" : "((float)(", text, is_complex(from) ? ")" : "))");
  if (is_complex(from)) return converted(str_cat("(", text, ").re"), from == DType::kComplexDouble ? DType::kFloat64 : DType::kFloat32, to);
  if (is_narrow_float(to)) return rounded(str_cat("(float)(", text, ")"), to);
  if (to == DType::kBool) return str_cat("((", text, ") != 0)");
  if (is_floating(from) && is_integral(to, false)) return str_cat("(", c_type(to), ")p_trunc64(", text, ")");
  if (c_type(from) == c_type(to)) return text;
  return str_cat("(", c_type(to), ")(", text, ")");
}

std::string literal(double number, DType dtype, bool to_dtype) {
  if (is_complex(dtype)) return converted(literal(number, DType::kFloat64), DType::kFloat64, dtype);
  if (dtype == DType::kBool) return number != 0 ? "true" : "false";
  if (is_integral(dtype, false)) {
    if (!(std::abs(number) < 9.2e18)) return str_cat("(", c_type(dtype), ")p_trunc64(", literal(number, DType::kFloat64), ")");
    return literal(ir::Expr(static_cast<int64_t>(number)), dtype);
  }
  const bool twice = dtype == DType::kFloat64;
  if (std::isnan(number)) return twice ? "P_DNAN" : "P_NAN";
  if (to_dtype && dtype == DType::kFloat16) number = static_cast<double>(half_bits_to_float(float_to_half_bits(static_cast<float>(number))));
  if (to_dtype && dtype == DType::kBFloat16) number = static_cast<double>(bfloat16_bits_to_float(float_to_bfloat16_bits(static_cast<float>(number))));
  if (to_dtype && is_float8(dtype))
    number = static_cast<double>(ops::float8_to_float(ops::float_to_float8(static_cast<float>(number), ops::float8_format(dtype)), ops::float8_format(dtype)));
  if (!twice) number = static_cast<double>(static_cast<float>(number));
  if (std::isinf(number)) return str_cat(number < 0 ? "(-" : "", twice ? "P_DINF" : "P_INF", number < 0 ? ")" : "");
  std::string out = twice ? str_cat(number) : str_cat(static_cast<float>(number));  // printf would write the locale's decimal point
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  if (!twice) out += 'f';
  return number < 0 || std::signbit(number) ? str_cat("(", out, ")") : out;
}

std::string literal(ir::Expr e, DType dtype, bool to_dtype) {
  if (!e.is_const() || !is_integral(dtype, false)) return literal(ir::number_of(e), dtype, to_dtype);
  const int64_t value = e.value();
  if (dtype == DType::kInt64) return value == std::numeric_limits<int64_t>::min() ? "(-9223372036854775807ll - 1)" : str_cat("(", value, "ll)");
  return str_cat("((", c_type(dtype), ")", value, "ll)");
}

}  // namespace pteron::cuda
