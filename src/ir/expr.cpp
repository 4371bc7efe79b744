// Interning and canonical form of symbolic expressions, and their values. Intervals: expr_bounds.cpp; text: expr_text.cpp.
#include "ir/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ir/int_pow.h"

namespace pteron::ir {

namespace {

/// Order of terms and factors: by structure, not by creation, so that text read back gives the same text.
/// Constants first, then symbols by length and text of their names, then the rest.
int compare(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  if (a.is_const() != b.is_const()) return a.is_const() ? -1 : 1;
  if (a.is_const()) return a.value() < b.value() ? -1 : 1;
  const ExprNode &m = *a.node(), &n = *b.node();
  if (m.op != n.op) return m.op < n.op ? -1 : 1;
  if (m.type != n.type) return m.type < n.type ? -1 : 1;
  if (m.name.size() != n.name.size()) return m.name.size() < n.name.size() ? -1 : 1;
  if (const int order = m.name.compare(n.name); order != 0) return order;
  if (m.args.size() != n.args.size()) return m.args.size() < n.args.size() ? -1 : 1;
  for (size_t i = 0; i < m.args.size(); ++i) {
    if (const int order = compare(m.args[i], n.args[i]); order != 0) return order;
  }
  const auto left = std::bit_cast<uint64_t>(m.number), right = std::bit_cast<uint64_t>(n.number);  // float constants
  return left < right ? -1 : left > right ? 1 : 0;
}

bool before(const Expr& a, const Expr& b) { return compare(a, b) < 0; }

ExprContext* context_of(Expr a, Expr b) {
  PTERON_CHECK(!a.is_const() || !b.is_const());
  return a.is_const() ? b.node()->context : a.node()->context;
}

Expr make2(ExprOp op, Expr a, Expr b) {
  const Expr args[] = {a, b};
  return context_of(a, b)->make(op, args);
}

/// A sum as constant + coefficient * factor; factor is any node that is not a sum.
struct Sum {
  int64_t constant = 0;
  std::vector<std::pair<int64_t, Expr>> terms;  // sorted by `before` on the factor, coefficients not zero
};

struct Before {
  bool operator()(const Expr& a, const Expr& b) const { return before(a, b); }
};

bool is_int_node(Expr e, ExprOp op) { return !e.is_const() && e.node()->op == op && e.node()->type == ExprType::kInt; }

/// Splits a product into coefficient and rest.
std::pair<int64_t, Expr> split_coefficient(Expr e) {
  if (is_int_node(e, ExprOp::kMul) && e.node()->args[0].is_const()) {
    const auto& args = e.node()->args;
    if (args.size() == 2) return {args[0].value(), args[1]};
    const std::vector<Expr> rest(args.begin() + 1, args.end());
    return {args[0].value(), e.node()->context->make(ExprOp::kMul, rest)};
  }
  return {1, e};
}

void add_into(std::map<Expr, int64_t, Before>& terms, int64_t& constant, Expr e, int64_t times) {
  if (e.is_const()) {
    constant = wrapping_add(constant, wrapping_mul(e.value(), times));
    return;
  }
  if (is_int_node(e, ExprOp::kAdd)) {
    for (const Expr& part : e.node()->args) add_into(terms, constant, part, times);
    return;
  }
  const auto [coefficient, factor] = split_coefficient(e);
  int64_t& total = terms[factor];
  total = wrapping_add(total, wrapping_mul(coefficient, times));
}

ExprType result_type(ExprOp op, std::span<const Expr> args) {
  switch (op) {
    case ExprOp::kTrueDiv:
    case ExprOp::kToFloat:
    case ExprOp::kSqrt:
    case ExprOp::kFloatFn:
      return ExprType::kFloat;
    case ExprOp::kTrunc:
    case ExprOp::kFloor:
    case ExprOp::kCeil:
    case ExprOp::kRound:
      return ExprType::kInt;
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe:
    case ExprOp::kAnd:
    case ExprOp::kOr:
    case ExprOp::kNot:
      return ExprType::kBool;
    case ExprOp::kIte:
      return args[1].type() == ExprType::kFloat || args[2].type() == ExprType::kFloat ? ExprType::kFloat : args[1].type();
    default:
      for (const Expr& a : args) {
        if (a.type() == ExprType::kFloat) return ExprType::kFloat;
      }
      return ExprType::kInt;
  }
}

std::optional<double> fold_float(ExprOp op, std::span<const Expr> args, std::string_view name) {
  const double a = number_of(args[0]);
  const double b = args.size() > 1 ? number_of(args[1]) : 0;
  switch (op) {
    case ExprOp::kAdd: {
      double sum = 0;
      for (const Expr& e : args) sum += number_of(e);
      return sum;
    }
    case ExprOp::kMul: {
      double product = 1;
      for (const Expr& e : args) product *= number_of(e);
      return product;
    }
    case ExprOp::kTrueDiv: return b == 0 ? std::nullopt : std::optional(a / b);
    case ExprOp::kFloorDiv: return b == 0 ? std::nullopt : std::optional(std::floor(a / b));
    case ExprOp::kPow: return std::pow(a, b);
    case ExprOp::kMax: return std::max(a, b);
    case ExprOp::kMin: return std::min(a, b);
    case ExprOp::kToFloat: return a;
    case ExprOp::kTrunc: return std::trunc(a);
    case ExprOp::kFloor: return std::floor(a);
    case ExprOp::kCeil: return std::ceil(a);
    case ExprOp::kRound: return std::nearbyint(a);
    case ExprOp::kSqrt: return std::sqrt(a);
    case ExprOp::kFloatFn:
      if (name == "cos") return std::cos(a);
      if (name == "sin") return std::sin(a);
      if (name == "log2") return std::log2(a);
      if (name == "log") return std::log(a);
      if (name == "exp") return std::exp(a);
      return std::nullopt;
    case ExprOp::kEq: return a == b;
    case ExprOp::kNe: return a != b;
    case ExprOp::kLt: return a < b;
    case ExprOp::kLe: return a <= b;
    case ExprOp::kAnd: return a != 0 && b != 0;
    case ExprOp::kOr: return a != 0 || b != 0;
    case ExprOp::kNot: return a == 0;
    case ExprOp::kIte: return a != 0 ? b : number_of(args[2]);
    default: return std::nullopt;
  }
}

std::optional<int64_t> apply_int(ExprOp op, std::span<const int64_t> v) {
  int64_t out = 0;
  switch (op) {
    case ExprOp::kAdd:
      for (const int64_t x : v) {
        if (!checked_add(out, x, &out)) return std::nullopt;
      }
      return out;
    case ExprOp::kMul:
      out = 1;
      for (const int64_t x : v) {
        if (!checked_mul(out, x, &out)) return std::nullopt;
      }
      return out;
    case ExprOp::kFloorDiv: return v[1] == 0 || (v[1] == -1 && v[0] == Range::kMin) ? std::nullopt : std::optional(floor_div(v[0], v[1]));
    case ExprOp::kMod: return v[1] == 0 || (v[1] == -1 && v[0] == Range::kMin) ? std::nullopt : std::optional(floor_mod(v[0], v[1]));
    case ExprOp::kPow: return int_pow(v[0], v[1]);
    case ExprOp::kMax: return *std::max_element(v.begin(), v.end());
    case ExprOp::kMin: return *std::min_element(v.begin(), v.end());
    case ExprOp::kBitAnd: return v[0] & v[1];
    case ExprOp::kBitOr: return v[0] | v[1];
    case ExprOp::kBitXor: return v[0] ^ v[1];
    case ExprOp::kEq: return v[0] == v[1];
    case ExprOp::kNe: return v[0] != v[1];
    case ExprOp::kLt: return v[0] < v[1];
    case ExprOp::kLe: return v[0] <= v[1];
    case ExprOp::kAnd: return std::all_of(v.begin(), v.end(), [](int64_t x) { return x != 0; });
    case ExprOp::kOr: return std::any_of(v.begin(), v.end(), [](int64_t x) { return x != 0; });
    case ExprOp::kNot: return v[0] == 0;
    case ExprOp::kIte: return v[0] != 0 ? v[1] : v[2];
    case ExprOp::kTrunc:
    case ExprOp::kFloor:
    case ExprOp::kCeil:
    case ExprOp::kRound: return v[0];
    default: return std::nullopt;
  }
}

}  // namespace

ExprType Expr::type() const { return node_ == nullptr ? ExprType::kInt : node_->type; }
bool Expr::is_symbol() const { return node_ != nullptr && node_->op == ExprOp::kSymbol; }

Expr ExprContext::intern(ExprOp op, ExprType type, double number, std::string_view name, std::vector<Expr> args) {
  std::string key = str_cat(static_cast<int>(op), ":", static_cast<int>(type), ":", std::bit_cast<int64_t>(number), ":", name);
  for (const Expr& a : args) {
    if (a.is_const()) {
      str_append(key, ",", a.value());
    } else {
      str_append(key, ",#", a.node()->id);
    }
  }
  const auto found = interned_.find(key);
  if (found != interned_.end()) return Expr(found->second);
  nodes_.push_back(ExprNode{op, type, static_cast<uint32_t>(nodes_.size()), number, std::string(name), std::move(args), this});
  interned_.emplace(std::move(key), &nodes_.back());
  return Expr(&nodes_.back());
}

Expr ExprContext::symbol(std::string_view name, ExprType type) {
  const size_t before_count = nodes_.size();
  const Expr made = intern(ExprOp::kSymbol, type, 0, name, {});
  if (nodes_.size() != before_count) symbols_.push_back(made);
  return made;
}

Expr ExprContext::fresh_symbol(std::string_view prefix, Range range) {
  for (;;) {
    const std::string name = str_cat(prefix, next_fresh_++);
    const size_t before_count = nodes_.size();
    const Expr made = symbol(name);
    if (nodes_.size() == before_count) continue;
    set_range(made, range);
    return made;
  }
}

void ExprContext::set_range(Expr symbol, Range range) { ranges_[symbol.node()] = range; }

Range ExprContext::range_of(Expr symbol) const {
  const auto found = ranges_.find(symbol.node());
  return found == ranges_.end() ? Range() : found->second;
}

std::vector<Expr> ExprContext::symbols() const { return symbols_; }

Expr ExprContext::floating(double value) { return intern(ExprOp::kConst, ExprType::kFloat, value, {}, {}); }
Expr ExprContext::boolean(bool value) { return intern(ExprOp::kConst, ExprType::kBool, value ? 1 : 0, {}, {}); }

Expr ExprContext::make(ExprOp op, std::span<const Expr> args, std::string_view name) {
  const ExprType type = result_type(op, args);
  const bool all_int = std::all_of(args.begin(), args.end(), [](const Expr& e) { return e.is_const(); });
  if (all_int && type != ExprType::kFloat) {
    std::vector<int64_t> values;
    for (const Expr& e : args) values.push_back(e.value());
    if (const auto folded = apply_int(op, values)) return type == ExprType::kBool ? boolean(*folded != 0) : Expr(*folded);
  }
  if (std::all_of(args.begin(), args.end(), is_number)) {
    if (const auto folded = fold_float(op, args, name)) {
      if (type == ExprType::kFloat) return floating(*folded);
      if (type == ExprType::kBool) return boolean(*folded != 0);
      if (std::abs(*folded) < 9e18) return Expr(static_cast<int64_t>(*folded));
    }
  }
  if (op == ExprOp::kAdd && type == ExprType::kInt) {
    std::map<Expr, int64_t, Before> terms;
    int64_t constant = 0;
    for (const Expr& a : args) add_into(terms, constant, a, 1);
    std::vector<Expr> parts;
    if (constant != 0) parts.push_back(constant);
    for (const auto& [factor, coefficient] : terms) {
      if (coefficient == 0) continue;
      if (coefficient == 1) {
        parts.push_back(factor);
        continue;
      }
      std::vector<Expr> product = {coefficient};
      if (is_int_node(factor, ExprOp::kMul)) {
        product.insert(product.end(), factor.node()->args.begin(), factor.node()->args.end());
      } else {
        product.push_back(factor);
      }
      parts.push_back(intern(ExprOp::kMul, ExprType::kInt, 0, {}, std::move(product)));
    }
    if (parts.empty()) return 0;
    if (parts.size() == 1) return parts[0];
    const Expr sum = intern(ExprOp::kAdd, ExprType::kInt, 0, {}, std::move(parts));
    const Range r = bounds(sum);
    return r.min == r.max ? Expr(r.min) : sum;
  }
  if (op == ExprOp::kMul && type == ExprType::kInt) {
    int64_t coefficient = 1;
    std::vector<Expr> factors;
    Expr sum;
    bool has_sum = false;
    for (const Expr& a : args) {
      if (a.is_const()) {
        coefficient = wrapping_mul(coefficient, a.value());
      } else if (is_int_node(a, ExprOp::kMul)) {
        for (const Expr& inner : a.node()->args) {
          if (inner.is_const()) {
            coefficient = wrapping_mul(coefficient, inner.value());
          } else {
            factors.push_back(inner);
          }
        }
      } else if (is_int_node(a, ExprOp::kAdd) && !has_sum) {
        sum = a;
        has_sum = true;
      } else {
        factors.push_back(a);
      }
    }
    if (coefficient == 0) return 0;
    if (has_sum) {  // distribute over the first sum; recursion handles further ones
      std::vector<Expr> parts;
      for (const Expr& term : sum.node()->args) {
        std::vector<Expr> product = {coefficient, term};
        product.insert(product.end(), factors.begin(), factors.end());
        parts.push_back(make(ExprOp::kMul, product));
      }
      return make(ExprOp::kAdd, parts);
    }
    std::sort(factors.begin(), factors.end(), before);
    if (coefficient != 1) factors.insert(factors.begin(), coefficient);
    if (factors.size() == 1) return factors[0];
    return intern(ExprOp::kMul, ExprType::kInt, 0, {}, std::move(factors));
  }
  if ((op == ExprOp::kFloorDiv || op == ExprOp::kMod) && type == ExprType::kInt && args[1].is_const() && args[1].value() != 0) {
    // Take out of the dividend every term that the divisor divides: (4*s+3)//2 = 2*s + 3//2.
    const int64_t divisor = args[1].value();
    if (divisor == -1) return op == ExprOp::kFloorDiv ? -args[0] : Expr(0);
    std::map<Expr, int64_t, Before> terms;
    int64_t constant = 0;
    add_into(terms, constant, args[0], 1);
    Expr whole = floor_div(constant, divisor), rest = floor_mod(constant, divisor);
    for (const auto& [factor, coefficient] : terms) {
      if (coefficient % divisor == 0) {
        whole = whole + Expr(coefficient / divisor) * factor;
      } else {
        rest = rest + Expr(coefficient) * factor;
      }
    }
    const Range r = bounds(rest);
    if (divisor > 0 && r.min != Range::kMin && r.max != Range::kMax) {
      const Expr quotient = floor_div(r.min, divisor);
      if (quotient == floor_div(r.max, divisor)) return op == ExprOp::kFloorDiv ? whole + quotient : rest - quotient * divisor;
    }
    const Expr inner = intern(op, ExprType::kInt, 0, {}, {rest, divisor});
    return op == ExprOp::kFloorDiv ? whole + inner : inner;
  }
  if ((op == ExprOp::kFloorDiv || op == ExprOp::kMod) && args[0] == args[1]) return op == ExprOp::kFloorDiv ? 1 : 0;
  if (op == ExprOp::kFloorDiv && is_int_node(args[0], ExprOp::kMul)) {  // (a*s)//s = a for s > 0
    const auto& factors = args[0].node()->args;
    const auto found = std::find(factors.begin(), factors.end(), args[1]);
    if (found != factors.end() && bounds(args[1]).min > 0) {
      std::vector<Expr> rest(factors.begin(), found);
      rest.insert(rest.end(), found + 1, factors.end());
      return rest.size() == 1 ? rest[0] : make(ExprOp::kMul, rest);
    }
  }
  if (op == ExprOp::kMax || op == ExprOp::kMin) {
    std::vector<Expr> parts;
    for (const Expr& a : args) {
      if (!a.is_const() && a.node()->op == op) {
        parts.insert(parts.end(), a.node()->args.begin(), a.node()->args.end());
      } else {
        parts.push_back(a);
      }
    }
    std::sort(parts.begin(), parts.end(), before);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    if (type == ExprType::kInt) {
      // Drop every part that another one always reaches.
      for (size_t i = 0; i < parts.size();) {
        bool drop = false;
        for (size_t j = 0; j < parts.size() && !drop; ++j) {
          if (i == j) continue;
          const Range r = bounds(parts[j] - parts[i]);
          drop = op == ExprOp::kMax ? r.min >= 0 : r.max <= 0;
        }
        if (drop) {
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
    }
    if (parts.size() == 1) return parts[0];
    return intern(op, type, 0, {}, std::move(parts));
  }
  if ((op == ExprOp::kTrunc || op == ExprOp::kFloor || op == ExprOp::kCeil || op == ExprOp::kRound)) {
    if (args[0].type() == ExprType::kInt) return args[0];
    if (args[0].node()->op == ExprOp::kToFloat) return args[0].node()->args[0];
  }
  if (type == ExprType::kBool && args.size() == 2 && args[0].type() == ExprType::kInt && args[1].type() == ExprType::kInt &&
      (op == ExprOp::kEq || op == ExprOp::kNe || op == ExprOp::kLt || op == ExprOp::kLe)) {
    const Range r = bounds(args[0] - args[1]);
    if (op == ExprOp::kEq && r.min == 0 && r.max == 0) return boolean(true);
    if (op == ExprOp::kEq && (r.min > 0 || r.max < 0)) return boolean(false);
    if (op == ExprOp::kNe && r.min == 0 && r.max == 0) return boolean(false);
    if (op == ExprOp::kNe && (r.min > 0 || r.max < 0)) return boolean(true);
    if (op == ExprOp::kLt && r.max < 0) return boolean(true);
    if (op == ExprOp::kLt && r.min >= 0) return boolean(false);
    if (op == ExprOp::kLe && r.max <= 0) return boolean(true);
    if (op == ExprOp::kLe && r.min > 0) return boolean(false);
  }
  return intern(op, type, 0, name, {args.begin(), args.end()});
}

Expr operator+(Expr a, Expr b) {
  if (a.is_const() && b.is_const()) return wrapping_add(a.value(), b.value());
  return make2(ExprOp::kAdd, a, b);
}
Expr operator-(Expr a) { return a.is_const() ? Expr(wrapping_mul(a.value(), -1)) : Expr(-1) * a; }
Expr operator-(Expr a, Expr b) { return a + -b; }
Expr operator*(Expr a, Expr b) {
  if (a.is_const() && b.is_const()) return wrapping_mul(a.value(), b.value());
  return make2(ExprOp::kMul, a, b);
}
Expr& operator+=(Expr& a, Expr b) { return a = a + b; }
Expr& operator*=(Expr& a, Expr b) { return a = a * b; }

Expr floor_div(Expr a, Expr b) {
  if (dim_is(b, -1)) return -a;
  if (a.is_const() && b.is_const() && b.value() != 0) return pteron::floor_div(a.value(), b.value());
  if (dim_is(b, 1)) return a;
  return make2(ExprOp::kFloorDiv, a, b);
}
Expr floor_mod(Expr a, Expr b) {
  if (dim_is(b, 1) || dim_is(b, -1)) return 0;
  if (a.is_const() && b.is_const() && b.value() != 0) return pteron::floor_mod(a.value(), b.value());
  return make2(ExprOp::kMod, a, b);
}
Expr ceil_div(Expr a, Expr b) { return -floor_div(-a, b); }
Expr dim_max(Expr a, Expr b) {
  if (a.is_const() && b.is_const()) return std::max(a.value(), b.value());
  return make2(ExprOp::kMax, a, b);
}
Expr dim_min(Expr a, Expr b) {
  if (a.is_const() && b.is_const()) return std::min(a.value(), b.value());
  return make2(ExprOp::kMin, a, b);
}
bool dim_differ(Expr a, Expr b) {
  if (a == b) return false;
  const Range r = bounds(a - b);
  return r.min > 0 || r.max < 0;
}

double number_of(Expr e) { return e.is_const() ? static_cast<double>(e.value()) : e.node()->number; }
bool is_number(Expr e) { return e.is_const() || e.node()->op == ExprOp::kConst; }

std::vector<Expr> symbols_in(Expr e) {
  std::vector<Expr> out;
  std::vector<Expr> stack = {e};
  while (!stack.empty()) {
    const Expr top = stack.back();
    stack.pop_back();
    if (top.is_const()) continue;
    if (top.is_symbol() && std::find(out.begin(), out.end(), top) == out.end()) out.push_back(top);
    stack.insert(stack.end(), top.node()->args.begin(), top.node()->args.end());
  }
  return out;
}

namespace {

/// Evaluation in doubles for expressions with floats inside.
std::optional<double> evaluate_float(Expr e, const std::function<std::optional<int64_t>(Expr)>& value_of) {
  if (e.type() != ExprType::kFloat) {
    const auto v = evaluate(e, value_of);
    return v ? std::optional(static_cast<double>(*v)) : std::nullopt;
  }
  const ExprNode& n = *e.node();
  if (n.op == ExprOp::kConst) return n.number;
  if (n.op == ExprOp::kSymbol) return std::nullopt;
  std::vector<Expr> values;
  for (const Expr& a : n.args) {
    const auto v = evaluate_float(a, value_of);
    if (!v) return std::nullopt;
    values.push_back(n.context->floating(*v));
  }
  return fold_float(n.op, values, n.name);
}

}  // namespace

std::optional<int64_t> evaluate(Expr e, const std::function<std::optional<int64_t>(Expr)>& value_of) {
  if (e.is_const()) return e.value();
  const ExprNode& n = *e.node();
  if (n.op == ExprOp::kSymbol) return value_of(e);
  if (n.op == ExprOp::kConst) return static_cast<int64_t>(n.number);
  const bool float_inside = std::any_of(n.args.begin(), n.args.end(), [](const Expr& a) { return a.type() == ExprType::kFloat; });
  if (float_inside) {
    std::vector<Expr> values;
    for (const Expr& a : n.args) {
      const auto v = evaluate_float(a, value_of);
      if (!v) return std::nullopt;
      values.push_back(n.context->floating(*v));
    }
    const auto folded = fold_float(n.op, values, n.name);
    if (!folded || !(std::abs(*folded) < 9e18)) return std::nullopt;
    return static_cast<int64_t>(*folded);
  }
  std::vector<int64_t> values;
  for (const Expr& a : n.args) {
    const auto v = evaluate(a, value_of);
    if (!v) return std::nullopt;
    values.push_back(*v);
  }
  return apply_int(n.op, values);
}

Expr substitute(Expr e, const std::function<Expr(Expr)>& replacement_of) {
  if (e.is_const()) return e;
  const ExprNode& n = *e.node();
  if (n.op == ExprOp::kSymbol) return replacement_of(e);
  if (n.op == ExprOp::kConst) return e;
  std::vector<Expr> args;
  for (const Expr& a : n.args) args.push_back(substitute(a, replacement_of));
  return n.context->make(n.op, args, n.name);
}

}  // namespace pteron::ir
