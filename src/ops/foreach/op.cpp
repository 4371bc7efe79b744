// _foreach_add and the like: an operator on every tensor of a list, one after the other. Those that write in place fall apart in passes/resolve.cpp.
#include <span>
#include <string>
#include <string_view>

#include "base/str_cat.h"
#include "ops/infer.h"

namespace pteron::ops::foreach {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// The operator for one tensor: with a tensor as second operand (overloads List and Tensor), and with a number (Scalar, ScalarList).
struct Single {
  std::string_view name, tensor, number;
};
constexpr Single kSingles[] = {
    {"add", "aten::add.Tensor", "aten::add.Scalar"},
    {"addcdiv", "aten::addcdiv", "aten::addcdiv"},
    {"addcmul", "aten::addcmul", "aten::addcmul"},
    {"clamp_max", "aten::clamp_max.Tensor", "aten::clamp_max"},
    {"clamp_min", "aten::clamp_min.Tensor", "aten::clamp_min"},
    {"div", "aten::div.Tensor", "aten::div.Scalar"},
    {"lerp", "aten::lerp.Tensor", "aten::lerp.Scalar"},
    {"maximum", "aten::maximum", "aten::clamp_min"},
    {"minimum", "aten::minimum", "aten::clamp_max"},
    {"mul", "aten::mul.Tensor", "aten::mul.Scalar"},
    {"norm", "", "aten::linalg_vector_norm"},
    {"pow", "aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar"},
    {"sub", "aten::sub.Tensor", "aten::sub.Scalar"},
};

/// The operator for one tensor; empty for an overload without one.
std::string single_of(const ir::Schema& schema) {
  std::string_view name = schema.name;
  name.remove_prefix(std::string_view("aten::_foreach_").size());
  if (schema.overload.empty()) return str_cat("aten::", name);
  if (schema.overload == "ScalarAndTensor") return "aten::pow.Scalar";
  const bool number = schema.overload.starts_with("Scalar");
  for (const Single& row : kSingles) {
    if (row.name == name) return std::string(number ? row.number : row.tensor);
  }
  return {};
}

/// The argument of call `k`: its member of a list, or the same for all.
Arg member(const Arg& arg, const ir::SchemaType& type, size_t k) {
  const auto* values = std::get_if<Ids>(&arg);
  if (values != nullptr && k < values->size()) return (*values)[k];
  const auto* numbers = std::get_if<std::vector<Expr>>(&arg);
  if (numbers != nullptr && type.list && k < numbers->size()) return (*numbers)[k];
  return arg;
}

Ids one_by_one(Builder& b, const NodeView& n) {
  const ir::Schema& schema = n.op().schema;
  const std::string single = single_of(schema);
  size_t count = 0;
  for (const Arg& arg : n.args()) {
    if (const auto* values = std::get_if<Ids>(&arg)) count = std::max(count, values->size());
  }
  Ids out;
  for (size_t k = 0; k < count; ++k) {
    std::vector<Arg> args;
    for (size_t i = 0; i < schema.args.size(); ++i) args.push_back(member(n.args()[i], schema.args[i].type, k));
    if (single == "aten::linalg_vector_norm") args = {args[0], args[1], {}, b.boolean(false), args[2]};
    out.push_back(b.op(single, std::move(args)));
  }
  return out;
}

constexpr OpDef kTable[] = {
#define EACH(name) {.schema = "aten::_foreach_" name "(Tensor[] self) -> Tensor[]", .decompose = one_by_one},
    EACH("abs")
    EACH("acos")
    EACH("asin")
    EACH("atan")
    EACH("ceil")
    EACH("cos")
    EACH("cosh")
    EACH("erf")
    EACH("erfc")
    EACH("exp")
    EACH("expm1")
    EACH("floor")
    EACH("frac")
    EACH("lgamma")
    EACH("log")
    EACH("log10")
    EACH("log1p")
    EACH("log2")
    EACH("neg")
    EACH("reciprocal")
    EACH("round")
    EACH("rsqrt")
    EACH("sigmoid")
    EACH("sign")
    EACH("sin")
    EACH("sinh")
    EACH("sqrt")
    EACH("tan")
    EACH("tanh")
    EACH("trunc")
#undef EACH
    {.schema = "aten::_foreach_add.List(Tensor[] self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_add.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_add.Tensor(Tensor[] self, Tensor other, *, Scalar alpha=1) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_addcdiv.Scalar(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_addcdiv.ScalarList(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_addcmul.Scalar(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_addcmul.ScalarList(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_max.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_max.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_max.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_min.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_min.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clamp_min.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_clone(Tensor[] self, *, MemoryFormat? memory_format=None) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_copy(Tensor[] self, Tensor[] src, bool non_blocking=False) -> Tensor[] self_out", .decompose = one_by_one},
    {.schema = "aten::_foreach_div.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_div.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_div.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_div.Tensor(Tensor[] self, Tensor other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_lerp.List(Tensor[] self, Tensor[] tensors1, Tensor[] weights) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_lerp.Scalar(Tensor[] self, Tensor[] tensors1, Scalar weight) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_lerp.ScalarList(Tensor[] self, Tensor[] tensors1, Scalar[] weight) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_max(Tensor[] self) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_maximum.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_maximum.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_maximum.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_minimum.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_minimum.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_minimum.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_mm(Tensor[] self, Tensor[] mat2) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_mul.List(Tensor[] self, Tensor[] other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_mul.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_mul.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_mul.Tensor(Tensor[] self, Tensor other) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_pow.List(Tensor[] self, Tensor[] exponent) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_pow.Scalar(Tensor[] self, Scalar exponent) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_pow.ScalarAndTensor(Scalar self, Tensor[] exponent) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_pow.ScalarList(Tensor[] self, Scalar[] exponent) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_sub.List(Tensor[] self, Tensor[] other, *, Scalar alpha=1) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_sub.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_sub.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", .decompose = one_by_one},
    {.schema = "aten::_foreach_zero(Tensor[] self) -> Tensor[] self_out", .decompose = one_by_one},
    {.schema = "aten::_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]", .decompose = one_by_one},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::foreach
