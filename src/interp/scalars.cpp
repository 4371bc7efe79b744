// Evaluation of scalar expressions with Python's semantics.
#include "interp/scalars.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace pteron::interp {

using ir::Expr;
using ir::ExprNode;
using ir::ExprOp;
using ir::ExprType;

namespace {

using Args = std::vector<Number>;

bool any_float(const Args& args) {
  return std::any_of(args.begin(), args.end(), [](const Number& n) { return n.type == ExprType::kFloat; });
}

/// Left fold in float if any argument is float, else in int.
template <typename Int, typename Float>
Number fold(const Args& args, Int on_int, Float on_float) {
  if (any_float(args)) {
    double total = args[0].to_double();
    for (size_t i = 1; i < args.size(); ++i) total = on_float(total, args[i].to_double());
    return Number::of(total);
  }
  int64_t total = args[0].integer;
  for (size_t i = 1; i < args.size(); ++i) total = on_int(total, args[i].integer);
  return Number::of(total);
}

int64_t wrapping(uint64_t v) { return static_cast<int64_t>(v); }

std::optional<Number> divide(ExprOp op, const Number& a, const Number& b) {
  if (b.to_double() == 0) return std::nullopt;
  if (op == ExprOp::kTrueDiv) return Number::of(a.to_double() / b.to_double());
  if (a.type == ExprType::kFloat || b.type == ExprType::kFloat) {
    const double quotient = std::floor(a.to_double() / b.to_double());
    return Number::of(op == ExprOp::kFloorDiv ? quotient : a.to_double() - quotient * b.to_double());
  }
  return Number::of(op == ExprOp::kFloorDiv ? floor_div(a.integer, b.integer) : floor_mod(a.integer, b.integer));
}

Number power(const Number& a, const Number& b) {
  if (a.type == ExprType::kFloat || b.type == ExprType::kFloat || b.integer < 0) return Number::of(std::pow(a.to_double(), b.to_double()));
  uint64_t result = 1;
  for (int64_t i = 0; i < std::min<int64_t>(b.integer, 64); ++i) result *= static_cast<uint64_t>(a.integer);
  return Number::of(wrapping(result));
}

std::optional<Number> float_function(std::string_view name, double x) {
  if (name == "cos") return Number::of(std::cos(x));
  if (name == "sin") return Number::of(std::sin(x));
  if (name == "tan") return Number::of(std::tan(x));
  if (name == "cosh") return Number::of(std::cosh(x));
  if (name == "sinh") return Number::of(std::sinh(x));
  if (name == "tanh") return Number::of(std::tanh(x));
  if (name == "acos") return Number::of(std::acos(x));
  if (name == "asin") return Number::of(std::asin(x));
  if (name == "atan") return Number::of(std::atan(x));
  if (name == "exp") return Number::of(std::exp(x));
  if (name == "log") return Number::of(std::log(x));
  if (name == "log2") return Number::of(std::log2(x));
  if (name == "sqrt") return Number::of(std::sqrt(x));
  return std::nullopt;
}

std::optional<Number> compare(ExprOp op, const Number& a, const Number& b) {
  const bool floats = a.type == ExprType::kFloat || b.type == ExprType::kFloat;
  const auto test = [&](auto x, auto y) {
    switch (op) {
      case ExprOp::kEq: return x == y;
      case ExprOp::kNe: return x != y;
      case ExprOp::kLt: return x < y;
      default: return x <= y;
    }
  };
  return Number::of(floats ? test(a.to_double(), b.to_double()) : test(a.integer, b.integer));
}

std::optional<Number> apply_op(const ExprNode& node, const Args& a) {
  switch (node.op) {
    case ExprOp::kConst: return node.type == ExprType::kBool ? Number::of(node.number != 0) : Number::of(node.number);
    case ExprOp::kSymbol: return std::nullopt;
    case ExprOp::kAdd:
      return fold(a, [](int64_t x, int64_t y) { return wrapping(static_cast<uint64_t>(x) + static_cast<uint64_t>(y)); }, [](double x, double y) { return x + y; });
    case ExprOp::kMul:
      return fold(a, [](int64_t x, int64_t y) { return wrapping(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)); }, [](double x, double y) { return x * y; });
    case ExprOp::kMax: return fold(a, [](int64_t x, int64_t y) { return std::max(x, y); }, [](double x, double y) { return std::max(x, y); });
    case ExprOp::kMin: return fold(a, [](int64_t x, int64_t y) { return std::min(x, y); }, [](double x, double y) { return std::min(x, y); });
    case ExprOp::kFloorDiv:
    case ExprOp::kMod:
    case ExprOp::kTrueDiv: return divide(node.op, a[0], a[1]);
    case ExprOp::kPow: return power(a[0], a[1]);
    case ExprOp::kToFloat: return Number::of(a[0].to_double());
    case ExprOp::kTrunc: return Number::of(static_cast<int64_t>(std::trunc(a[0].to_double())));
    case ExprOp::kFloor: return Number::of(static_cast<int64_t>(std::floor(a[0].to_double())));
    case ExprOp::kCeil: return Number::of(static_cast<int64_t>(std::ceil(a[0].to_double())));
    case ExprOp::kRound: return Number::of(static_cast<int64_t>(std::nearbyint(a[0].to_double())));
    case ExprOp::kSqrt: return Number::of(std::sqrt(a[0].to_double()));
    case ExprOp::kFloatFn: return float_function(node.name, a[0].to_double());
    case ExprOp::kBitAnd: return Number::of(a[0].integer & a[1].integer);
    case ExprOp::kBitOr: return Number::of(a[0].integer | a[1].integer);
    case ExprOp::kBitXor: return Number::of(a[0].integer ^ a[1].integer);
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe: return compare(node.op, a[0], a[1]);
    case ExprOp::kAnd: return Number::of(std::all_of(a.begin(), a.end(), [](const Number& n) { return n.to_bool(); }));
    case ExprOp::kOr: return Number::of(std::any_of(a.begin(), a.end(), [](const Number& n) { return n.to_bool(); }));
    case ExprOp::kNot: return Number::of(!a[0].to_bool());
    case ExprOp::kIte: return a[0].to_bool() ? a[1] : a[2];
  }
  return std::nullopt;
}

}  // namespace

std::optional<Number> evaluate_number(Expr e, const Symbols& symbols) {
  if (e.is_const()) return Number::of(e.value());
  const ExprNode& node = *e.node();
  if (node.op == ExprOp::kSymbol) {
    const auto found = symbols.find(&node);
    return found == symbols.end() ? std::nullopt : std::optional(found->second);
  }
  Args args;
  for (const Expr& arg : node.args) {
    const auto value = evaluate_number(arg, symbols);
    if (!value) return std::nullopt;
    args.push_back(*value);
  }
  return apply_op(node, args);
}

bool learn_size(Expr e, int64_t value, Symbols* symbols) {
  if (const auto known = evaluate_number(e, *symbols)) return known->to_int() == value;
  if (e.is_symbol()) {
    symbols->emplace(e.node(), Number::of(value));
    return true;
  }
  // a * s + b with one unknown symbol: two evaluations give a and b.
  const std::vector<Expr> unknown = ir::symbols_in(e);
  const ExprNode* only = nullptr;
  for (const Expr& s : unknown) {
    if (symbols->contains(s.node())) continue;
    if (only != nullptr) return true;
    only = s.node();
  }
  if (only == nullptr) return true;
  Symbols trial = *symbols;
  trial[only] = Number::of(int64_t{0});
  const auto at_zero = evaluate_number(e, trial);
  trial[only] = Number::of(int64_t{1});
  const auto at_one = evaluate_number(e, trial);
  if (!at_zero || !at_one || at_one->integer == at_zero->integer) return true;
  const int64_t slope = at_one->integer - at_zero->integer;
  if ((value - at_zero->integer) % slope != 0) return false;
  trial[only] = Number::of((value - at_zero->integer) / slope);
  if (const auto check = evaluate_number(e, trial); !check || check->integer != value) return true;  // not linear: leave it
  (*symbols)[only] = trial[only];
  return true;
}

}  // namespace pteron::interp
