// The order in which sizes of inputs give symbols their values, and the checks that follow.
#include "runtime/constraints.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/str_cat.h"
#include "tensor/dim_math.h"

namespace pteron::runtime {
namespace {

using format::DimExpr;

std::string range_text(const format::SymbolMeta& symbol) {
  if (symbol.max == INT64_MAX) return str_cat(symbol.name, " at least ", symbol.min);
  return str_cat(symbol.name, " in [", symbol.min, ",", symbol.max, "]");
}

void mark_symbols(const DimExpr& expr, std::vector<bool>& used) {
  for (const DimExpr::Step& step : expr.steps) {
    if (step.op == format::DimOp::kSymbol) used[static_cast<size_t>(step.operand)] = true;
  }
}

}  // namespace

Constraints::Constraints(const format::MethodMeta& method) : method_(&method), values_(method.symbols.size(), 0) {
  std::vector<bool> known(values_.size(), false);
  std::vector<Step> derived;
  bind_plain_symbols(known, derived);
  add_derived(known, derived);
  for (const format::ConstraintMeta& constraint : method.constraints) {
    std::vector<bool> used(known.size(), false);
    mark_symbols(constraint.condition, used);
    bool decidable = true;
    for (size_t s = 0; s < known.size(); ++s) decidable = decidable && (!used[s] || known[s]);
    if (decidable) steps_.push_back({Step::Kind::kCondition, false, 0, 0, 0, &constraint.condition, &constraint});
  }
}

/// Dims and ints that are a symbol and nothing else; other dims go to `derived`.
void Constraints::bind_plain_symbols(std::vector<bool>& known, std::vector<Step>& derived) {
  for (uint32_t i = 0; i < method_->inputs.size(); ++i) {
    const format::PortMeta& port = method_->inputs[i];
    if (port.kind == format::PortKind::kInt && port.symbol >= 0) {
      const auto symbol = static_cast<uint32_t>(port.symbol);
      steps_.push_back({Step::Kind::kBindInt, !known[symbol], i, 0, symbol, nullptr, nullptr});
      known[symbol] = true;
    }
    for (uint32_t d = 0; d < port.dims.size(); ++d) {
      const DimExpr& expr = port.dims[d];
      if (expr.is_constant()) continue;  // checked by set_input
      if (expr.symbol_index() < 0) {
        derived.push_back({Step::Kind::kCheckDim, false, i, d, 0, &expr, nullptr});
        continue;
      }
      const auto symbol = static_cast<uint32_t>(expr.symbol_index());
      steps_.push_back({Step::Kind::kBindDim, !known[symbol], i, d, symbol, &expr, nullptr});
      known[symbol] = true;
    }
  }
}

/// Expressions: with all symbols known they are checked; with one unknown it is solved for; with more only the program can relate them.
void Constraints::add_derived(std::vector<bool>& known, std::vector<Step>& derived) {
  for (Step& step : derived) {
    std::vector<bool> used(known.size(), false);
    mark_symbols(*step.expr, used);
    uint32_t unknown = 0;
    for (uint32_t s = 0; s < known.size(); ++s) {
      if (!used[s] || known[s]) continue;
      ++unknown;
      step.symbol = s;
    }
    if (unknown > 1) continue;
    if (unknown == 1) {
      step.kind = Step::Kind::kSolveDim;
      step.first = true;
      known[step.symbol] = true;
    }
    steps_.push_back(step);
  }
}

std::string Constraints::place(const Step& step) const {
  const std::string input = str_cat("input ", step.input, " (", method_->inputs[step.input].name, "): ");
  return step.kind == Step::Kind::kBindInt ? str_cat(input, "the value") : str_cat(input, "size of dim ", step.dim);
}

Status Constraints::bind(const Step& step, int64_t value) {
  const format::SymbolMeta& symbol = method_->symbols[step.symbol];
  if (!step.first) {
    if (value == values_[step.symbol]) return ok_status();
    return Status(Code::kInvalidInput, str_cat(place(step), " is ", value, ", expected ", values_[step.symbol], " (", symbol.name, ", as in the inputs before it)"));
  }
  values_[step.symbol] = value;
  if (value < symbol.min || value > symbol.max) {
    return Status(Code::kInvalidInput, str_cat(place(step), ": expected ", range_text(symbol), ", found ", value));
  }
  if (symbol.divisor > 1 && floor_mod(value, symbol.divisor) != symbol.remainder) {
    return Status(Code::kInvalidInput, str_cat(place(step), ": expected ", symbol.name, " % ", symbol.divisor, " == ", symbol.remainder, ", found ", value));
  }
  return ok_status();
}

/// Finds the symbol of an expression that is linear in it (2*s0, s0 + 1); a size that no integer gives is refused.
Status Constraints::solve(const Step& step, int64_t value) {
  int64_t& symbol = values_[step.symbol];
  symbol = 0;
  const std::optional<int64_t> at_zero = format::evaluate(*step.expr, values_);
  symbol = 1;
  const std::optional<int64_t> at_one = format::evaluate(*step.expr, values_);
  int64_t factor = 0, rest = 0, found = 0;
  if (at_zero && at_one && !__builtin_sub_overflow(*at_one, *at_zero, &factor) && factor > 0 && !__builtin_sub_overflow(value, *at_zero, &rest)) {
    found = rest / factor;
  }
  symbol = found;
  if (format::evaluate(*step.expr, values_) != value) {
    return Status(Code::kInvalidInput, str_cat(place(step), ": expected ", step.expr->text, ", found ", value));
  }
  const format::SymbolMeta& meta = method_->symbols[step.symbol];
  Status status = bind(step, found);
  if (!status.ok()) return Status(Code::kInvalidInput, str_cat(place(step), ": expected ", step.expr->text, " with ", range_text(meta), ", found ", value));
  return ok_status();
}

const Constraints::Step* Constraints::binding(uint32_t symbol) const {
  const auto found = std::ranges::find_if(steps_, [&](const Step& step) { return step.first && step.symbol == symbol; });
  return found == steps_.end() ? nullptr : &*found;
}

Status Constraints::broken(const Step& step) const {
  std::vector<uint32_t> symbols;  // in order of their first use
  for (const DimExpr::Step& part : step.expr->steps) {
    const auto symbol = static_cast<uint32_t>(part.operand);
    if (part.op == format::DimOp::kSymbol && std::ranges::find(symbols, symbol) == symbols.end()) symbols.push_back(symbol);
  }
  const std::string& expected = step.expr->text.empty() ? step.condition->text : step.expr->text;
  const Step* only = symbols.size() == 1 ? binding(symbols[0]) : nullptr;
  if (only != nullptr && only->kind != Step::Kind::kSolveDim) {
    return Status(Code::kInvalidInput, str_cat(place(*only), ": expected ", expected, ", found ", values_[symbols[0]]));
  }
  std::string text = str_cat("sizes of inputs: expected ", expected);
  std::string_view before = ", found ";
  for (const uint32_t symbol : symbols) {
    str_append(text, before, method_->symbols[symbol].name, " = ", values_[symbol]);
    if (const Step* from = binding(symbol)) str_append(text, " (", place(*from), from->kind == Step::Kind::kSolveDim ? str_cat(" is ", from->expr->text) : std::string(), ")");
    before = ", ";
  }
  return Status(Code::kInvalidInput, std::move(text));
}

Status Constraints::run(const Step& step, std::span<Value* const> inputs) {
  if (step.kind == Step::Kind::kCondition) {
    if (format::evaluate(*step.expr, values_).value_or(0) != 0) return ok_status();
    return broken(step);
  }
  const Value& input = *inputs[step.input];
  if (step.kind == Step::Kind::kBindInt) return bind(step, input.integer);
  const int64_t size = input.tensor.size(static_cast<int>(step.dim));
  if (step.kind == Step::Kind::kBindDim) return bind(step, size);
  if (step.kind == Step::Kind::kSolveDim) return solve(step, size);
  const std::optional<int64_t> expected = format::evaluate(*step.expr, values_);
  if (expected == size) return ok_status();
  return Status(Code::kInvalidInput, str_cat(place(step), ": expected ", step.expr->text, expected ? str_cat(" = ", *expected) : std::string(), ", found ", size));
}

Status Constraints::check(std::span<Value* const> inputs) {
  for (const Step& step : steps_) PTERON_TRY(run(step, inputs));
  return ok_status();
}

}  // namespace pteron::runtime
