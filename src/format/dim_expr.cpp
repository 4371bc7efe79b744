// Dim expressions: well-formedness and evaluation on a small fixed stack.
#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "format/meta.h"
#include "tensor/dim_math.h"

namespace pteron::format {

namespace {

/// Values an operation takes from the stack.
size_t operands_of(DimOp op) {
  switch (op) {
    case DimOp::kConst:
    case DimOp::kSymbol: return 0;
    case DimOp::kNot: return 1;
    case DimOp::kIte: return 3;
    default: return 2;
  }
}

bool power(int64_t base, int64_t exponent, int64_t* out) {
  if (exponent < 0) return false;
  if (base == 0 || base == 1) {
    *out = exponent == 0 ? 1 : base;
    return true;
  }
  if (base == -1) {
    *out = exponent % 2 == 0 ? 1 : -1;
    return true;
  }
  // |base| >= 2: more than 63 steps overflow, so the loop is short.
  *out = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (!checked_mul(*out, base, out)) return false;
  }
  return true;
}

bool divide(DimOp op, int64_t a, int64_t b, int64_t* out) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return false;
  *out = op == DimOp::kFloorDiv ? floor_div(a, b) : floor_mod(a, b);
  return true;
}

bool apply(DimOp op, int64_t a, int64_t b, int64_t* out) {
  switch (op) {
    case DimOp::kAdd: return checked_add(a, b, out);
    case DimOp::kSub: return !__builtin_sub_overflow(a, b, out);
    case DimOp::kMul: return checked_mul(a, b, out);
    case DimOp::kFloorDiv:
    case DimOp::kMod: return divide(op, a, b, out);
    case DimOp::kMax: *out = std::max(a, b); return true;
    case DimOp::kMin: *out = std::min(a, b); return true;
    case DimOp::kEq: *out = a == b; return true;
    case DimOp::kNe: *out = a != b; return true;
    case DimOp::kLt: *out = a < b; return true;
    case DimOp::kLe: *out = a <= b; return true;
    case DimOp::kAnd: *out = a != 0 && b != 0; return true;
    case DimOp::kOr: *out = a != 0 || b != 0; return true;
    case DimOp::kPow: return power(a, b, out);
    default: return false;
  }
}

}  // namespace

bool is_well_formed(const DimExpr& expr, size_t symbol_count) {
  size_t depth = 0;
  for (const DimExpr::Step& step : expr.steps) {
    if (static_cast<uint8_t>(step.op) >= kDimOpCount || depth < operands_of(step.op)) return false;
    if (step.op == DimOp::kSymbol && (step.operand < 0 || static_cast<uint64_t>(step.operand) >= symbol_count)) return false;
    depth = depth - operands_of(step.op) + 1;
    if (depth > kMaxDimDepth) return false;
  }
  return depth == 1;
}

std::optional<int64_t> evaluate(const DimExpr& expr, std::span<const int64_t> symbols) {
  std::array<int64_t, kMaxDimDepth> stack{};
  size_t depth = 0;
  for (const DimExpr::Step& step : expr.steps) {
    if (step.op == DimOp::kConst || step.op == DimOp::kSymbol) {
      stack[depth++] = step.op == DimOp::kConst ? step.operand : symbols[static_cast<size_t>(step.operand)];
      continue;
    }
    depth -= operands_of(step.op);
    int64_t& result = stack[depth];
    if (step.op == DimOp::kNot) {
      result = result == 0;
    } else if (step.op == DimOp::kIte) {
      result = result != 0 ? stack[depth + 1] : stack[depth + 2];
    } else if (!apply(step.op, result, stack[depth + 1], &result)) {
      return std::nullopt;
    }
    ++depth;
  }
  return stack[0];
}

}  // namespace pteron::format
