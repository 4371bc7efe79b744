// Expressions as infix text; text_expr.cpp reads it back.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/str_cat.h"
#include "ir/expr.h"

namespace pteron::ir {

namespace {

struct OpText {
  ExprOp op;
  std::string_view text;  // infix operator, or name of a function
  int level;              // precedence; 0 = function call
};

constexpr OpText kOpTexts[] = {
    {ExprOp::kAdd, "+", 5},       {ExprOp::kMul, "*", 6},     {ExprOp::kFloorDiv, "//", 6}, {ExprOp::kMod, "%", 6},
    {ExprOp::kTrueDiv, "/", 6},   {ExprOp::kPow, "pow", 0},   {ExprOp::kMax, "max", 0},     {ExprOp::kMin, "min", 0},
    {ExprOp::kToFloat, "float", 0}, {ExprOp::kTrunc, "trunc", 0}, {ExprOp::kFloor, "floor", 0}, {ExprOp::kCeil, "ceil", 0},
    {ExprOp::kRound, "round", 0}, {ExprOp::kSqrt, "sqrt", 0}, {ExprOp::kBitAnd, "bitand", 0}, {ExprOp::kBitOr, "bitor", 0},
    {ExprOp::kBitXor, "bitxor", 0}, {ExprOp::kEq, "==", 3},   {ExprOp::kNe, "!=", 3},       {ExprOp::kLt, "<", 3},
    {ExprOp::kLe, "<=", 3},       {ExprOp::kAnd, "and", 0},   {ExprOp::kOr, "or", 0},       {ExprOp::kNot, "not", 0},
    {ExprOp::kIte, "ite", 0},
};

std::string text_at(Expr e, int level) {
  if (e.is_const()) return str_cat(e.value());
  const ExprNode& n = *e.node();
  if (n.op == ExprOp::kSymbol) return n.name;
  if (n.op == ExprOp::kConst) {
    if (n.type == ExprType::kBool) return n.number != 0 ? "true" : "false";
    std::string text = str_cat(n.number);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  std::string_view word = n.name;
  int own = 0;
  for (const OpText& row : kOpTexts) {
    if (row.op == n.op) {
      word = row.text;
      own = row.level;
    }
  }
  std::string out;
  for (size_t i = 0; i < n.args.size(); ++i) {
    if (i > 0) str_append(out, own == 0 ? "," : word);
    out += text_at(n.args[i], own == 0 ? 0 : own + 1);
  }
  if (own == 0) return str_cat(word, "(", out, ")");
  return own < level ? str_cat("(", out, ")") : out;
}

}  // namespace

std::string to_text(Expr e) { return text_at(e, 0); }

}  // namespace pteron::ir
