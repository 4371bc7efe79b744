// Interval arithmetic of symbolic expressions: bounds() from the ranges of symbols.
#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "ir/expr.h"
#include "ir/int_pow.h"

namespace pteron::ir {

namespace {

// Saturating interval arithmetic; kMin and kMax stand for "unbounded".
int64_t saturating_add(int64_t a, int64_t b) {
  if (a == Range::kMin || b == Range::kMin) return Range::kMin;
  if (a == Range::kMax || b == Range::kMax) return Range::kMax;
  int64_t out = 0;
  if (checked_add(a, b, &out)) return out;
  return a > 0 ? Range::kMax : Range::kMin;
}

int64_t saturating_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const bool negative = (a < 0) != (b < 0);
  int64_t out = 0;
  const bool infinite = a == Range::kMin || a == Range::kMax || b == Range::kMin || b == Range::kMax;
  if (!infinite && checked_mul(a, b, &out)) return out;
  return negative ? Range::kMin : Range::kMax;
}

Range mul_ranges(Range a, Range b) {
  const int64_t corners[] = {saturating_mul(a.min, b.min), saturating_mul(a.min, b.max), saturating_mul(a.max, b.min),
                             saturating_mul(a.max, b.max)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

int64_t saturating_floor_div(int64_t a, int64_t b) {
  if (a == Range::kMin || a == Range::kMax) return (a < 0) != (b < 0) ? Range::kMin : Range::kMax;
  if (b == Range::kMax) return a < 0 ? -1 : 0;
  return pteron::floor_div(a, b);
}

/// A divisor is never zero, so one from 0 on is at least 1.
Range div_ranges(Range a, Range b) {
  if (b.min == 0 && b.max > 0) b.min = 1;
  if (b.min <= 0) return {};
  const int64_t corners[] = {saturating_floor_div(a.min, b.min), saturating_floor_div(a.min, b.max), saturating_floor_div(a.max, b.min),
                             saturating_floor_div(a.max, b.max)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

/// Interval of a float expression, as doubles.
struct FloatRange {
  double min = -INFINITY, max = INFINITY;
};

FloatRange float_bounds(Expr e) {
  if (e.type() == ExprType::kInt) {
    const Range r = bounds(e);
    return {r.min == Range::kMin ? -INFINITY : static_cast<double>(r.min), r.max == Range::kMax ? INFINITY : static_cast<double>(r.max)};
  }
  const ExprNode& n = *e.node();
  if (n.op == ExprOp::kConst) return {n.number, n.number};
  if (n.op == ExprOp::kToFloat) return float_bounds(n.args[0]);
  if (n.op == ExprOp::kSqrt) {
    const FloatRange r = float_bounds(n.args[0]);
    return {std::sqrt(std::max(r.min, 0.0)), std::sqrt(std::max(r.max, 0.0))};
  }
  if (n.op == ExprOp::kPow) {  // monotone in both arguments, so the ends lie at corners
    const FloatRange a = float_bounds(n.args[0]), b = float_bounds(n.args[1]);
    if (!(a.min > 0) || std::isinf(b.min) || std::isinf(b.max)) return {};
    const double corners[] = {std::pow(a.min, b.min), std::pow(a.min, b.max), std::pow(a.max, b.min), std::pow(a.max, b.max)};
    return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
  }
  if (n.op == ExprOp::kAdd || n.op == ExprOp::kMul || n.op == ExprOp::kTrueDiv) {
    FloatRange total = float_bounds(n.args[0]);
    for (size_t i = 1; i < n.args.size(); ++i) {
      const FloatRange r = float_bounds(n.args[i]);
      if (n.op == ExprOp::kAdd) {
        total = {total.min + r.min, total.max + r.max};
        continue;
      }
      if (n.op == ExprOp::kTrueDiv && r.min <= 0) return {};
      const bool divide = n.op == ExprOp::kTrueDiv;
      double low = INFINITY, high = -INFINITY;
      for (const double a : {total.min, total.max}) {
        for (const double b : {r.min, r.max}) {
          double v = divide ? a / b : a * b;
          if (std::isnan(v)) v = 0;  // 0 * infinity, infinity / infinity
          low = std::min(low, v);
          high = std::max(high, v);
        }
      }
      total = {low, high};
    }
    return total;
  }
  return {};
}

int64_t to_bound(double v, int64_t infinite) {
  if (!(std::abs(v) < 9e18)) return infinite;
  return static_cast<int64_t>(v);
}

}  // namespace


Range bounds(Expr e) {
  if (e.is_const()) return {e.value(), e.value()};
  const ExprNode& n = *e.node();
  switch (n.op) {
    case ExprOp::kSymbol: return n.context->range_of(e);
    case ExprOp::kAdd: {
      Range total{0, 0};
      for (const Expr& a : n.args) {
        const Range r = bounds(a);
        total = {saturating_add(total.min, r.min), saturating_add(total.max, r.max)};
      }
      return total;
    }
    case ExprOp::kMul: {
      Range total{1, 1};
      for (const Expr& a : n.args) total = mul_ranges(total, bounds(a));
      return total;
    }
    case ExprOp::kFloorDiv: {
      const Range a = bounds(n.args[0]);
      Range quotient = div_ranges(a, bounds(n.args[1]));
      // a // (a // c) with a // c = q >= 1: a < c * (q + 1), so a / q < c * (1 + 1 / q) <= 2 * c.
      const Expr divisor = n.args[1];
      if (a.min >= 0 && !divisor.is_const() && divisor.node()->op == ExprOp::kFloorDiv && divisor.node()->args[0] == n.args[0]) {
        const Range c = bounds(divisor.node()->args[1]);
        if (c.min >= 1 && c.max < Range::kMax / 2) quotient.max = std::min(quotient.max, 2 * c.max - 1);
      }
      return quotient;
    }
    case ExprOp::kMod: {
      const Range a = bounds(n.args[0]);
      Range b = bounds(n.args[1]);
      if (b.min == 0 && b.max > 0) b.min = 1;
      if (b.min <= 0) return {};
      const int64_t top = b.max == Range::kMax ? Range::kMax : b.max - 1;
      return {0, a.min >= 0 ? std::min(a.max, top) : top};
    }
    case ExprOp::kPow: {
      const Range a = bounds(n.args[0]), b = bounds(n.args[1]);
      if (a.min < 0 || b.min < 0) return {};
      const auto power = [](int64_t base, int64_t exponent) {
        if (base == Range::kMax || exponent > 64) return Range::kMax;
        return int_pow(base, exponent).value_or(Range::kMax);
      };
      return {power(a.min, b.min), power(a.max, b.max)};
    }
    case ExprOp::kMax:
    case ExprOp::kMin: {
      Range total = bounds(n.args[0]);
      for (const Expr& a : n.args) {
        const Range r = bounds(a);
        total = n.op == ExprOp::kMax ? Range{std::max(total.min, r.min), std::max(total.max, r.max)}
                                     : Range{std::min(total.min, r.min), std::min(total.max, r.max)};
      }
      return total;
    }
    case ExprOp::kIte: {
      const Range a = bounds(n.args[1]), b = bounds(n.args[2]);
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    case ExprOp::kTrunc:
    case ExprOp::kFloor:
    case ExprOp::kCeil:
    case ExprOp::kRound: {
      const FloatRange r = float_bounds(n.args[0]);
      return {to_bound(std::floor(r.min), Range::kMin), to_bound(std::ceil(r.max), Range::kMax)};
    }
    default: return n.type == ExprType::kBool ? Range{0, 1} : Range{};
  }
}

}  // namespace pteron::ir
