// Scalar overloads by name, else 0-d tensors.
#include "passes/scalar_args.h"

#include <string>
#include <string_view>
#include <variant>

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

}  // namespace

Status fit_scalar_args(Builder& builder, Node& node, DType result_dtype) {
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
