// Precedence: comparisons, then + and -, then * // % /, then signs, then calls and parentheses.
#include "ir/text_expr.h"

#include <vector>

#include "base/str_cat.h"

namespace pteron::ir {

namespace {

constexpr int kMaxExprDepth = 100;
constexpr int kMaxNodes = 4000;
constexpr size_t kMaxTerms = 4000;  ///< terms of a sum after multiplying out

struct Function {
  std::string_view name;
  ExprOp op;
  size_t min_args, max_args;
};
constexpr size_t kMany = 1000;
constexpr Function kFunctions[] = {
    {"pow", ExprOp::kPow, 2, 2},       {"max", ExprOp::kMax, 2, kMany},     {"min", ExprOp::kMin, 2, kMany},     {"float", ExprOp::kToFloat, 1, 1},
    {"trunc", ExprOp::kTrunc, 1, 1},   {"floor", ExprOp::kFloor, 1, 1},     {"ceil", ExprOp::kCeil, 1, 1},       {"round", ExprOp::kRound, 1, 1},
    {"sqrt", ExprOp::kSqrt, 1, 1},     {"bitand", ExprOp::kBitAnd, 2, 2},   {"bitor", ExprOp::kBitOr, 2, 2},     {"bitxor", ExprOp::kBitXor, 2, 2},
    {"and", ExprOp::kAnd, 1, kMany},   {"or", ExprOp::kOr, 1, kMany},       {"not", ExprOp::kNot, 1, 1},         {"ite", ExprOp::kIte, 3, 3},
    {"cos", ExprOp::kFloatFn, 1, 1},   {"cosh", ExprOp::kFloatFn, 1, 1},    {"sin", ExprOp::kFloatFn, 1, 1},     {"sinh", ExprOp::kFloatFn, 1, 1},
    {"tan", ExprOp::kFloatFn, 1, 1},   {"tanh", ExprOp::kFloatFn, 1, 1},    {"asin", ExprOp::kFloatFn, 1, 1},    {"acos", ExprOp::kFloatFn, 1, 1},
    {"atan", ExprOp::kFloatFn, 1, 1},  {"exp", ExprOp::kFloatFn, 1, 1},     {"log", ExprOp::kFloatFn, 1, 1},     {"log2", ExprOp::kFloatFn, 1, 1},
};

size_t terms_of(Expr e) { return !e.is_const() && e.node()->op == ExprOp::kAdd ? e.node()->args.size() : 1; }

class ExprParser {
 public:
  ExprParser(Lexer& lexer, ExprContext& exprs, const NameResolver& resolve) : lexer_(lexer), exprs_(exprs), resolve_(resolve) {}

  bool comparison(int depth, Expr* out) {
    if (!sum(depth, out)) return false;
    for (const auto& [text, op] : {std::pair{"==", ExprOp::kEq}, std::pair{"!=", ExprOp::kNe}, std::pair{"<=", ExprOp::kLe}, std::pair{"<", ExprOp::kLt}}) {
      if (!lexer_.eat(text)) continue;
      Expr right;
      if (!sum(depth, &right)) return false;
      *out = make(op, {*out, right});
      return true;
    }
    return true;
  }

 private:
  Expr make(ExprOp op, std::initializer_list<Expr> args, std::string_view name = {}) {
    return exprs_.make(op, std::span<const Expr>(args.begin(), args.size()), name);
  }

  bool sum(int depth, Expr* out) {
    std::vector<Expr> parts(1);
    if (!product(depth, &parts[0])) return false;
    for (;;) {
      const bool minus = lexer_.peek() == '-';
      if (!minus && !lexer_.eat("+")) break;
      if (minus) lexer_.eat("-");
      Expr part;
      if (!product(depth, &part)) return false;
      parts.push_back(minus ? make(ExprOp::kMul, {-1, part}) : part);
    }
    *out = parts.size() == 1 ? parts[0] : exprs_.make(ExprOp::kAdd, parts);
    return true;
  }

  bool product(int depth, Expr* out) {
    if (!sign(depth, out)) return false;
    for (;;) {
      ExprOp op = ExprOp::kMul;
      if (lexer_.eat("//")) op = ExprOp::kFloorDiv;
      else if (lexer_.eat("/")) op = ExprOp::kTrueDiv;
      else if (lexer_.eat("%")) op = ExprOp::kMod;
      else if (!lexer_.eat("*")) return true;
      Expr right;
      if (!sign(depth, &right)) return false;
      if (terms_of(*out) * terms_of(right) > kMaxTerms) return lexer_.fail(Status(Code::kUnsupported, "expression has too many terms"));
      *out = make(op, {*out, right});
    }
  }

  bool sign(int depth, Expr* out) {
    if (depth > kMaxExprDepth || ++nodes_ > kMaxNodes) return lexer_.fail(Status(Code::kUnsupported, "expression is too large"));
    if (lexer_.starts_number()) return number(out);
    if (!lexer_.eat("-")) return primary(depth, out);
    if (!sign(depth + 1, out)) return false;
    *out = make(ExprOp::kMul, {-1, *out});
    return true;
  }

  bool number(Expr* out) {
    int64_t integer = 0;
    double decimal = 0;
    bool is_int = false;
    if (!lexer_.number(&integer, &decimal, &is_int)) return false;
    *out = is_int ? Expr(integer) : exprs_.floating(decimal);
    return true;
  }

  bool primary(int depth, Expr* out) {
    if (lexer_.eat("(")) return comparison(depth + 1, out) && lexer_.need(")");
    if (lexer_.eat("true")) return *out = exprs_.boolean(true), true;
    if (lexer_.eat("false")) return *out = exprs_.boolean(false), true;
    const std::string_view name = lexer_.peek_word();
    if (name.empty()) return lexer_.expected("an expression");
    const size_t start = lexer_.position();
    lexer_.word();
    if (lexer_.peek() == '(') return call(name, depth, out);
    if (resolve_(name, out)) return true;
    lexer_.rewind(start);
    return lexer_.fail(Status(Code::kInvalidFile, str_cat("'", name, "' is neither a value nor a declared symbol")));
  }

  bool call(std::string_view name, int depth, Expr* out) {
    lexer_.need("(");
    std::vector<Expr> args;
    while (!lexer_.eat(")")) {
      if (!args.empty() && !lexer_.need(",")) return false;
      if (!comparison(depth + 1, &args.emplace_back())) return false;
    }
    for (const Function& row : kFunctions) {
      if (row.name != name) continue;
      if (args.size() < row.min_args || args.size() > row.max_args) return lexer_.expected(str_cat(row.min_args, " arguments of ", name));
      *out = exprs_.make(row.op, args, row.op == ExprOp::kFloatFn ? name : std::string_view());
      return true;
    }
    return lexer_.fail(Status(Code::kInvalidFile, str_cat("no function '", name, "'")));
  }

  Lexer& lexer_;
  ExprContext& exprs_;
  const NameResolver& resolve_;
  int nodes_ = 0;
};

}  // namespace

bool parse_expr(Lexer& lexer, ExprContext& exprs, const NameResolver& resolve, Expr* out) {
  return ExprParser(lexer, exprs, resolve).comparison(0, out);
}

}  // namespace pteron::ir
