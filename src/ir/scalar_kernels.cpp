// The table of kernels for scalar expressions.
#include "ir/scalar_kernels.h"

#include "base/str_cat.h"

namespace pteron::ir {

namespace {

struct Row {
  ExprOp op;
  std::string_view name;
  size_t arity;
};

constexpr Row kRows[] = {
    {ExprOp::kAdd, "executorch_prim::add.Scalar", 2},
    {ExprOp::kMul, "executorch_prim::mul.Scalar", 2},
    {ExprOp::kFloorDiv, "executorch_prim::floordiv.Scalar", 2},
    {ExprOp::kMod, "executorch_prim::mod.Scalar", 2},
    {ExprOp::kTrueDiv, "executorch_prim::truediv.Scalar", 2},
    {ExprOp::kMax, "executorch_prim::sym_max.Scalar", 2},
    {ExprOp::kMin, "executorch_prim::sym_min.Scalar", 2},
    {ExprOp::kToFloat, "executorch_prim::sym_float.Scalar", 1},
    {ExprOp::kTrunc, "executorch_prim::trunc.Scalar", 1},
    {ExprOp::kCeil, "executorch_prim::ceil.Scalar", 1},
    {ExprOp::kRound, "executorch_prim::round.Scalar", 1},
    {ExprOp::kEq, "executorch_prim::eq.Scalar", 2},
    {ExprOp::kLt, "executorch_prim::lt.Scalar", 2},
    {ExprOp::kLe, "executorch_prim::le.Scalar", 2},
    {ExprOp::kNot, "executorch_prim::sym_not.Scalar", 1},
    {ExprOp::kIte, "executorch_prim::sym_ite.Scalar", 3},
    {ExprOp::kPow, "pteron::pow.Scalar", 2},
    {ExprOp::kSqrt, "pteron::sqrt.Scalar", 1},
    {ExprOp::kBitAnd, "pteron::bitwise_and.Scalar", 2},
    {ExprOp::kBitOr, "pteron::bitwise_or.Scalar", 2},
    {ExprOp::kBitXor, "pteron::bitwise_xor.Scalar", 2},
};

const ExprNode* missing_in(const Expr& e, const std::function<bool(std::string_view)>& has_kernel) {
  if (e.is_const()) return nullptr;
  const ScalarKernel kernel = scalar_kernel(*e.node());
  if (!kernel.name.empty() && !has_kernel(kernel.name)) return e.node();
  for (const Expr& arg : e.node()->args) {
    if (const ExprNode* found = missing_in(arg, has_kernel)) return found;
  }
  return nullptr;
}

}  // namespace

ScalarKernel scalar_kernel(const ExprNode& node) {
  if (node.op == ExprOp::kFloatFn) return {str_cat("pteron::", node.name, ".Scalar"), 1};
  for (const Row& row : kRows) {
    if (row.op == node.op) return {std::string(row.name), row.arity};
  }
  return {};
}

const ExprNode* scalar_without_kernel(const Node& node, const std::function<bool(std::string_view)>& has_kernel) {
  for (const Arg& arg : node.args) {
    const ExprNode* found = nullptr;
    if (const auto* one = std::get_if<Expr>(&arg)) found = missing_in(*one, has_kernel);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      for (size_t i = 0; i < list->size() && found == nullptr; ++i) found = missing_in((*list)[i], has_kernel);
    }
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace pteron::ir
