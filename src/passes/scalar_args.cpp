// Scalar overloads by name, else 0-d tensors. Kernels take no complex numbers as arguments: those are always tensors.
#include "passes/scalar_args.h"

#include <algorithm>
#include <complex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::BaseType;
using ir::Builder;
using ir::Expr;
using ir::Node;
using ir::Op;

namespace {

bool is_number_for_tensor(const Op& op, const std::vector<Arg>& args, size_t i) {
  return op.schema.args[i].type.base == BaseType::kTensor && !op.schema.args[i].type.list && std::holds_alternative<Expr>(args[i]);
}

/// True if `other` takes the same arguments, numbers where this node has numbers.
bool accepts(const Op& other, const Op& op, const std::vector<Arg>& args) {
  if (other.schema.args.size() != op.schema.args.size()) return false;
  for (size_t i = 0; i < args.size(); ++i) {
    const BaseType base = other.schema.args[i].type.base;
    const bool number = is_number_for_tensor(op, args, i);
    if (number ? base != BaseType::kScalar : base != op.schema.args[i].type.base) return false;
  }
  return true;
}

const Op* scalar_overload(const ir::Catalog& catalog, const Op& op, const std::vector<Arg>& args) {
  for (const std::string_view overload : {"Scalar", "Tensor_Scalar", "Scalar_Tensor", "Scalar_mode", "Scalar_Other", "Scalar_Self", "ScalarOther", "ScalarSelf", "Scalar_Scalar",
                                          "int", "other_scalar", "self_scalar"}) {
    std::string name = op.schema.name;
    name += '.';
    name += overload;
    const Op* other = catalog.find(name);
    if (other != nullptr && accepts(*other, op, args)) return other;
  }
  return nullptr;
}

/// The number as a 0-d tensor; it takes part in promotion as its category does, so a wide enough dtype of the category will do.
ir::ValueId tensor_of(Builder& builder, Expr e, DType result_dtype) {
  const DType dtype = e.type() == ir::ExprType::kBool  ? DType::kBool
                      : e.type() == ir::ExprType::kInt ? DType::kInt64
                      : is_floating(result_dtype)      ? result_dtype
                                                       : DType::kFloat32;
  if (ir::is_number(e)) return builder.scalar_tensor(ir::number_of(e), dtype);
  return builder.op("aten::full", {std::vector<Expr>{}, e, dtype});
}

using Complex = std::complex<double>;

bool is_complex_number(const Arg& arg) { return std::holds_alternative<Complex>(arg); }
bool is_number_arg(const Arg& arg) { return is_complex_number(arg) || std::holds_alternative<Expr>(arg); }

/// The dtype of a complex number beside these tensors, if the result does not say: that of the first one, made complex.
DType complex_dtype(const Builder& builder, const Node& node, DType result_dtype) {
  if (is_complex(result_dtype)) return result_dtype;
  for (const Arg& arg : node.args) {
    const auto* id = std::get_if<ir::ValueId>(&arg);
    if (id != nullptr && id->valid() && builder.type(*id).dtype == DType::kFloat64) return DType::kComplexDouble;
    if (id != nullptr && id->valid() && is_complex(builder.type(*id).dtype)) return builder.type(*id).dtype;
  }
  return DType::kComplexFloat;
}

ir::ValueId complex_tensor(Builder& builder, Complex number, DType dtype) {
  if (dtype == DType::kComplexDouble) return builder.constant(dtype, {}, std::as_bytes(std::span(&number, 1)), "scalar");
  const std::complex<float> narrow(number);
  const ir::ValueId constant = builder.constant(DType::kComplexFloat, {}, std::as_bytes(std::span(&narrow, 1)), "scalar");
  return dtype == DType::kComplexFloat ? constant : builder.op("aten::_to_copy", {constant, dtype});
}

/// True if `other` takes tensors where this node has complex numbers, and where it has other numbers if need be.
bool takes_tensors(const Op& other, const Node& node) {
  if (other.schema.name != node.op->schema.name || other.functional != nullptr || other.schema.args.size() != node.args.size()) return false;
  if (other.schema.returns.size() != node.op->schema.returns.size()) return false;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const BaseType from = node.op->schema.args[i].type.base, to = other.schema.args[i].type.base;
    const bool to_tensor = to == BaseType::kTensor && !other.schema.args[i].type.list && is_number_arg(node.args[i]);
    if (is_complex_number(node.args[i]) ? !to_tensor : !to_tensor && from != to) return false;
  }
  return true;
}

/// The overload that takes tensors for all complex numbers; the operator itself if it does; null if there is none.
const Op* tensor_overload(const ir::Catalog& catalog, const Node& node) {
  for (const std::string_view ordered : {"aten::linspace", "aten::logspace"}) {
    if (node.op->schema.name == ordered) return nullptr;  // their tensors are real
  }
  if (takes_tensors(*node.op, node)) return node.op;
  for (const Op* other : catalog.all()) {
    if (other->name.ends_with("out") || !takes_tensors(*other, node)) continue;
    return other;
  }
  return nullptr;
}

/// full and its kin: the number everywhere. Nothing if the operator is another one.
bool fill_with_complex(Builder& builder, Node& node, DType dtype) {
  const int at = node.op->schema.find("fill_value"), s = node.op->schema.find("s");
  const bool scalar = node.op->schema.name == "aten::scalar_tensor" && s >= 0;
  if (!scalar && at < 0) return false;
  const Arg& number = node.args[static_cast<size_t>(scalar ? s : at)];
  if (!is_complex_number(number) || !is_complex(dtype)) return false;
  const ir::ValueId one = complex_tensor(builder, std::get<Complex>(number), dtype);
  const std::vector<Expr> sizes = builder.graph()[node.outputs[0]].type.sizes;
  node.op = builder.catalog().find("aten::expand");
  node.args = {one, sizes, builder.boolean(false)};
  return node.op != nullptr;
}

/// A complex factor of one operand (alpha of sums, value of addcmul) goes into that operand.
void absorb_factor(Builder& builder, Node& node, DType dtype) {
  constexpr std::pair<std::string_view, std::string_view> kFactors[] = {{"alpha", "other"}, {"value", "tensor1"}};
  for (const auto& [factor, operand] : kFactors) {
    const int f = node.op->schema.find(factor), x = node.op->schema.find(operand);
    if (f < 0 || x < 0 || !is_complex_number(node.args[static_cast<size_t>(f)])) continue;
    const auto* value = std::get_if<ir::ValueId>(&node.args[static_cast<size_t>(x)]);
    if (value == nullptr) continue;
    const ir::ValueId number = complex_tensor(builder, std::get<Complex>(node.args[static_cast<size_t>(f)]), dtype);
    node.args[static_cast<size_t>(x)] = builder.op("aten::mul.Tensor", {*value, number});
    node.args[static_cast<size_t>(f)] = Expr(1);
  }
}

/// The number for an argument of `op`: 0-d, but a source of scatter has the sizes of the index.
ir::ValueId tensor_argument(Builder& builder, const Op& op, const Node& node, size_t i, ir::ValueId number) {
  const int index = op.schema.find("index");
  if (op.schema.args[i].name != "src" || index < 0) return number;
  return builder.op("aten::expand", {number, builder.type(std::get<ir::ValueId>(node.args[static_cast<size_t>(index)])).sizes});
}

Status fit_complex_args(Builder& builder, Node& node, DType result_dtype) {
  const DType dtype = complex_dtype(builder, node, result_dtype);
  absorb_factor(builder, node, dtype);
  if (std::none_of(node.args.begin(), node.args.end(), is_complex_number)) return builder.take_status();
  if (fill_with_complex(builder, node, result_dtype)) return builder.take_status();
  const Op* const op = tensor_overload(builder.catalog(), node);
  if (op == nullptr) {
    const auto at = static_cast<size_t>(std::find_if(node.args.begin(), node.args.end(), is_complex_number) - node.args.begin());
    return Status(Code::kUnsupported, str_cat("a complex number as argument '", node.op->schema.args[at].name, "'"));
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (op->schema.args[i].type.base != BaseType::kTensor || !is_number_arg(node.args[i])) continue;
    const auto* number = std::get_if<Complex>(&node.args[i]);
    const ir::ValueId made = number != nullptr ? complex_tensor(builder, *number, dtype) : tensor_of(builder, std::get<Expr>(node.args[i]), result_dtype);
    node.args[i] = tensor_argument(builder, *op, node, i, made);
  }
  node.op = op;
  return builder.take_status();
}

}  // namespace

Status fit_scalar_args(Builder& builder, Node& node, DType result_dtype) {
  if (std::any_of(node.args.begin(), node.args.end(), is_complex_number)) return fit_complex_args(builder, node, result_dtype);
  bool any = false;
  for (size_t i = 0; i < node.args.size(); ++i) any = any || is_number_for_tensor(*node.op, node.args, i);
  if (!any) return ok_status();
  if (const Op* other = scalar_overload(builder.catalog(), *node.op, node.args)) {
    node.op = other;
    return ok_status();
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (is_number_for_tensor(*node.op, node.args, i)) node.args[i] = tensor_of(builder, std::get<Expr>(node.args[i]), result_dtype);
  }
  return builder.take_status();
}

}  // namespace pteron::passes
