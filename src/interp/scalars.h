// Values of scalar expressions when the symbols are known. Used by the evaluator only.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "ir/expr.h"

namespace pteron::interp {

/// An int, float or bool.
struct Number {
  ir::ExprType type = ir::ExprType::kInt;
  int64_t integer = 0;  ///< kInt; kBool as 0 or 1
  double floating = 0;  ///< kFloat
  double to_double() const { return type == ir::ExprType::kFloat ? floating : static_cast<double>(integer); }
  int64_t to_int() const { return type == ir::ExprType::kFloat ? static_cast<int64_t>(floating) : integer; }
  bool to_bool() const { return type == ir::ExprType::kFloat ? floating != 0 : integer != 0; }
  static Number of(int64_t v) { return {ir::ExprType::kInt, v, 0}; }
  static Number of(double v) { return {ir::ExprType::kFloat, 0, v}; }
  static Number of(bool v) { return {ir::ExprType::kBool, v ? 1 : 0, 0}; }
};

/// Values of symbols, by their interned node.
using Symbols = std::unordered_map<const ir::ExprNode*, Number>;

/// Value of an expression; nullopt if a symbol is missing, on division by zero, and for functions that are not known.
std::optional<Number> evaluate_number(ir::Expr e, const Symbols& symbols);

/// Learns symbols from a size: a bare symbol, or a * symbol + b. False if the size contradicts what is known.
bool learn_size(ir::Expr e, int64_t value, Symbols* symbols);

}  // namespace pteron::interp
