// Evaluation of size expressions (postfix, Python's floor semantics) and the order in which symbols get their values.
#include "runtime/constraints.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "format/program_view.h"
#include "tensor/dim_math.h"

namespace pteron::runtime {
namespace {

using format::count_of;
using format::items_of;
using format::text_of;
using wire::meta::Expr;
using wire::meta::ExprOp;

constexpr size_t kMaxDepth = 64;  // of the evaluation stack

/// Operands that an operation pops.
int arity(ExprOp op) {
  if (op == ExprOp::CONST || op == ExprOp::SYMBOL) return 0;
  if (op == ExprOp::NOT) return 1;
  return op == ExprOp::ITE ? 3 : 2;
}

/// Structure of an expression, checked once; sets `used` for its symbols.
bool well_formed(const Expr& expr, std::vector<bool>& used) {
  const std::span<const uint8_t> ops = items_of(expr.ops());
  const std::span<const int64_t> operands = items_of(expr.operands());
  if (ops.empty() || operands.size() != ops.size()) return false;
  size_t depth = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i] > static_cast<uint8_t>(ExprOp::POW)) return false;
    const auto op = static_cast<ExprOp>(ops[i]);
    if (op == ExprOp::SYMBOL) {
      if (operands[i] < 0 || static_cast<uint64_t>(operands[i]) >= used.size()) return false;
      used[static_cast<size_t>(operands[i])] = true;
    }
    const auto pops = static_cast<size_t>(arity(op));
    if (depth < pops) return false;
    depth = depth - pops + 1;
    if (depth > kMaxDepth) return false;
  }
  return depth == 1;
}

bool power(int64_t base, int64_t exponent, int64_t* out) {
  if (exponent < 0 || exponent > 64) return false;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (!checked_mul(result, base, &result)) return false;
  }
  *out = result;
  return true;
}

bool apply(ExprOp op, int64_t a, int64_t b, int64_t* out) {
  switch (op) {
    case ExprOp::ADD: return checked_add(a, b, out);
    case ExprOp::SUB: return !__builtin_sub_overflow(a, b, out);
    case ExprOp::MUL: return checked_mul(a, b, out);
    case ExprOp::FLOOR_DIV:
      if (b == 0 || (a == INT64_MIN && b == -1)) return false;
      *out = floor_div(a, b);
      return true;
    case ExprOp::MOD:
      if (b == 0) return false;
      *out = b == -1 ? 0 : floor_mod(a, b);
      return true;
    case ExprOp::LARGER: *out = std::max(a, b); return true;
    case ExprOp::SMALLER: *out = std::min(a, b); return true;
    case ExprOp::EQ: *out = a == b; return true;
    case ExprOp::NE: *out = a != b; return true;
    case ExprOp::LT: *out = a < b; return true;
    case ExprOp::LE: *out = a <= b; return true;
    case ExprOp::AND: *out = a != 0 && b != 0; return true;
    case ExprOp::OR: *out = a != 0 || b != 0; return true;
    case ExprOp::POW: return power(a, b, out);
    default: return false;
  }
}

std::string range_text(const wire::meta::Symbol& symbol) {
  if (symbol.max() == INT64_MAX) return str_cat("at least ", symbol.min());
  return str_cat("in [", symbol.min(), ", ", symbol.max(), "]");
}

Status malformed(std::string_view method, std::string_view what) {
  return Status(Code::kInvalidFile, str_cat("pteron.meta: method ", method, ": malformed expression of ", what));
}

}  // namespace

bool is_symbol(const Expr& expr, uint32_t* symbol) {
  const std::span<const uint8_t> ops = items_of(expr.ops());
  if (ops.size() != 1 || ops[0] != static_cast<uint8_t>(ExprOp::SYMBOL) || count_of(expr.operands()) != 1) return false;
  const int64_t index = items_of(expr.operands())[0];
  if (index < 0 || index > UINT32_MAX) return false;
  *symbol = static_cast<uint32_t>(index);
  return true;
}

bool is_constant(const Expr& expr, int64_t* value) {
  const std::span<const uint8_t> ops = items_of(expr.ops());
  if (ops.size() != 1 || ops[0] != static_cast<uint8_t>(ExprOp::CONST) || count_of(expr.operands()) != 1) return false;
  *value = items_of(expr.operands())[0];
  return true;
}

bool Constraints::evaluate(const Expr& expr, int64_t* out) const {
  const std::span<const uint8_t> ops = items_of(expr.ops());
  const std::span<const int64_t> operands = items_of(expr.operands());
  std::array<int64_t, kMaxDepth + 1> stack;
  size_t depth = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto op = static_cast<ExprOp>(ops[i]);
    if (op == ExprOp::CONST) {
      stack[depth++] = operands[i];
    } else if (op == ExprOp::SYMBOL) {
      stack[depth++] = values_[static_cast<size_t>(operands[i])];
    } else if (op == ExprOp::NOT) {
      stack[depth - 1] = stack[depth - 1] == 0;
    } else if (op == ExprOp::ITE) {
      depth -= 2;
      stack[depth - 1] = stack[depth - 1] != 0 ? stack[depth] : stack[depth + 1];
    } else {
      depth -= 1;
      if (!apply(op, stack[depth - 1], stack[depth], &stack[depth - 1])) return false;
    }
  }
  *out = stack[0];
  return true;
}

Result<Constraints> Constraints::create(const wire::meta::Method& method) {
  Constraints made;
  made.method_ = &method;
  const uint32_t symbol_count = count_of(method.symbols());
  made.values_.assign(symbol_count, 0);
  std::vector<bool> known(symbol_count, false);
  std::vector<Step> derived;
  for (uint32_t i = 0; i < count_of(method.inputs()); ++i) {  // plain symbols first: they bind
    const wire::meta::Port& port = *method.inputs()->Get(i);
    if (port.kind() == wire::meta::PortKind::INT && port.symbol() >= 0) {
      const auto symbol = static_cast<uint32_t>(port.symbol());
      if (symbol >= symbol_count) return malformed(text_of(method.name()), text_of(port.name()));
      made.steps_.push_back({Step::Kind::kBindInt, !known[symbol], i, 0, symbol, nullptr, nullptr});
      known[symbol] = true;
    }
    for (uint32_t d = 0; d < count_of(port.dims()); ++d) {
      const Expr& expr = *port.dims()->Get(d);
      std::vector<bool> used(symbol_count, false);
      if (!well_formed(expr, used)) return malformed(text_of(method.name()), text_of(port.name()));
      uint32_t symbol = 0;
      int64_t constant = 0;
      if (is_constant(expr, &constant)) continue;  // checked by set_input
      if (!is_symbol(expr, &symbol)) {
        derived.push_back({Step::Kind::kCheckDim, false, i, d, 0, &expr, nullptr});
        continue;
      }
      made.steps_.push_back({Step::Kind::kBindDim, !known[symbol], i, d, symbol, &expr, nullptr});
      known[symbol] = true;
    }
  }
  for (Step& step : derived) {
    std::vector<bool> used(symbol_count, false);
    static_cast<void>(well_formed(*step.expr, used));
    uint32_t unknown = 0;
    for (uint32_t s = 0; s < symbol_count; ++s) {
      if (!used[s] || known[s]) continue;
      ++unknown;
      step.symbol = s;
    }
    if (unknown > 1) continue;  // sizes that only the program itself can relate
    if (unknown == 1) {
      step.kind = Step::Kind::kSolveDim;
      known[step.symbol] = true;
    }
    made.steps_.push_back(step);
  }
  for (uint32_t i = 0; i < count_of(method.constraints()); ++i) {
    const wire::meta::Constraint& constraint = *method.constraints()->Get(i);
    if (constraint.condition() == nullptr) continue;
    std::vector<bool> used(symbol_count, false);
    if (!well_formed(*constraint.condition(), used)) return malformed(text_of(method.name()), text_of(constraint.text()));
    bool decidable = true;
    for (uint32_t s = 0; s < symbol_count; ++s) decidable = decidable && (!used[s] || known[s]);
    if (decidable) made.steps_.push_back({Step::Kind::kCondition, false, 0, 0, 0, constraint.condition(), &constraint});
  }
  return made;
}

std::string_view Constraints::input_name(uint32_t input) const { return text_of(method_->inputs()->Get(input)->name()); }

Status Constraints::bind(const Step& step, int64_t value) {
  const wire::meta::Symbol& symbol = *method_->symbols()->Get(step.symbol);
  const std::string where = step.kind == Step::Kind::kBindInt ? std::string("the value") : str_cat("size of dim ", step.dim);
  if (!step.first) {
    if (value == values_[step.symbol]) return ok_status();
    return Status(Code::kInvalidInput, str_cat("input ", step.input, " (", input_name(step.input), "): ", where, " is ", value, ", expected ",
                                               values_[step.symbol], " (", text_of(symbol.name()), ", as in the inputs before it)"));
  }
  values_[step.symbol] = value;
  if (value < symbol.min() || value > symbol.max()) {
    return Status(Code::kInvalidInput, str_cat("input ", step.input, " (", input_name(step.input), "): ", where, " is ", value, ", expected ",
                                               text_of(symbol.name()), " ", range_text(symbol)));
  }
  const int64_t divisor = symbol.divisor();
  if (divisor > 1 && floor_mod(value, divisor) != symbol.remainder()) {
    return Status(Code::kInvalidInput, str_cat("input ", step.input, " (", input_name(step.input), "): ", where, " is ", value, ", expected ",
                                               text_of(symbol.name()), " % ", divisor, " == ", symbol.remainder()));
  }
  return ok_status();
}

/// Finds the symbol of an expression that is linear in it (2*s0, s0 + 1); other forms are refused at the check that follows.
Status Constraints::solve(const Step& step, int64_t value) {
  int64_t at_zero = 0, at_one = 0, factor = 0, rest = 0;
  values_[step.symbol] = 0;
  const bool zero_known = evaluate(*step.expr, &at_zero);
  values_[step.symbol] = 1;
  const bool one_known = evaluate(*step.expr, &at_one);
  int64_t found = 0;
  if (zero_known && one_known && !__builtin_sub_overflow(at_one, at_zero, &factor) && factor != 0 && factor != -1 &&
      !__builtin_sub_overflow(value, at_zero, &rest)) {
    found = rest / factor;
  }
  values_[step.symbol] = found;
  int64_t check = 0;
  if (!evaluate(*step.expr, &check) || check != value) {
    return Status(Code::kInvalidInput, str_cat("input ", step.input, " (", input_name(step.input), "): size of dim ", step.dim, " is ", value, ", expected ",
                                               text_of(step.expr->text())));
  }
  Step bound = step;
  bound.first = true;
  return bind(bound, found);
}

Status Constraints::run(const Step& step, std::span<Value* const> inputs) {
  if (step.kind == Step::Kind::kCondition) {
    int64_t holds = 0;
    if (evaluate(*step.expr, &holds) && holds != 0) return ok_status();
    const std::string_view text = text_of(step.condition->text());
    return Status(Code::kInvalidInput, str_cat("sizes of inputs must satisfy ", text.empty() ? text_of(step.expr->text()) : text));
  }
  const Value& input = *inputs[step.input];
  if (step.kind == Step::Kind::kBindInt) return bind(step, input.integer);
  const int64_t size = input.tensor.size(static_cast<int>(step.dim));
  if (step.kind == Step::Kind::kBindDim) return bind(step, size);
  if (step.kind == Step::Kind::kSolveDim) return solve(step, size);
  int64_t expected = 0;
  if (evaluate(*step.expr, &expected) && expected == size) return ok_status();
  return Status(Code::kInvalidInput, str_cat("input ", step.input, " (", input_name(step.input), "): size of dim ", step.dim, " is ", size, ", expected ",
                                             text_of(step.expr->text()), " = ", expected));
}

Status Constraints::check(std::span<Value* const> inputs) {
  for (const Step& step : steps_) PTERON_TRY(run(step, inputs));
  return ok_status();
}

}  // namespace pteron::runtime
