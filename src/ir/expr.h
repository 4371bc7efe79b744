// Symbolic integer, float and bool expressions over named symbols: dims, shape arithmetic, scalar arguments.
// Expressions are interned in an ExprContext and kept in a canonical form, so that equal polynomials are the same object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/dim_math.h"

namespace pteron::ir {

// The int64_t versions stay visible beside the Expr ones, so that templates find both.
using pteron::ceil_div;
using pteron::dim_differ;
using pteron::dim_is;
using pteron::dim_is_const;
using pteron::dim_max;
using pteron::dim_min;
using pteron::dim_same;
using pteron::dim_value;
using pteron::floor_div;
using pteron::floor_mod;

class ExprContext;
struct ExprNode;

enum class ExprType : uint8_t { kInt, kFloat, kBool };

/// Operations. Integer division and modulus follow Python (floor); comparisons give bools.
enum class ExprOp : uint8_t {
  kConst,   ///< float or bool constant (integers have no node)
  kSymbol,
  kAdd,     ///< n-ary, sorted, at most one constant, first
  kMul,     ///< n-ary, sorted, at most one constant, first
  kFloorDiv,
  kMod,     ///< Python's %
  kPow,     ///< integer power with exponent >= 0, or float power
  kTrueDiv, ///< float result
  kMax,
  kMin,
  kToFloat,
  kTrunc,   ///< float -> int toward zero
  kFloor,
  kCeil,
  kRound,   ///< half to even
  kSqrt,
  kFloatFn, ///< another unary float function; name says which ("cos", "log2")
  kBitAnd,
  kBitOr,
  kBitXor,
  kEq,
  kNe,
  kLt,
  kLe,
  kAnd,
  kOr,
  kNot,
  kIte,     ///< condition, then, else
};

/// Closed interval of an integer expression.
struct Range {
  static constexpr int64_t kMin = std::numeric_limits<int64_t>::min();  ///< unbounded below
  static constexpr int64_t kMax = std::numeric_limits<int64_t>::max();  ///< unbounded above
  int64_t min = kMin;
  int64_t max = kMax;
  bool operator==(const Range&) const = default;
};

/// An expression: an integer constant, or a pointer to an interned node. 16 bytes, trivially copyable.
/// Owns: nothing; nodes live as long as their context.
class Expr {
 public:
  constexpr Expr() = default;
  constexpr Expr(int64_t value) : value_(value) {}  // NOLINT: implicit by design
  constexpr Expr(int value) : value_(value) {}      // NOLINT: implicit by design
  explicit Expr(const ExprNode* node) : node_(node) {}

  /// True for integer constants.
  bool is_const() const { return node_ == nullptr; }
  /// Requires: is_const().
  int64_t value() const { return value_; }
  const ExprNode* node() const { return node_; }
  ExprType type() const;
  bool is_symbol() const;
  /// Structural identity (not an expression).
  bool operator==(const Expr& other) const { return node_ == other.node_ && (node_ != nullptr || value_ == other.value_); }

 private:
  const ExprNode* node_ = nullptr;
  int64_t value_ = 0;
};

struct ExprNode {
  ExprOp op;
  ExprType type;
  uint32_t id;          ///< order of creation in the context
  double number = 0;    ///< kConst: the float, or 0/1 for a bool
  std::string name;     ///< kSymbol, kFloatFn
  std::vector<Expr> args;
  ExprContext* context;
};

/// Owns nodes and the ranges of symbols. Neither copied nor moved; one per Program.
/// Threads: not thread-safe.
class ExprContext {
 public:
  ExprContext() = default;
  ExprContext(const ExprContext&) = delete;
  ExprContext& operator=(const ExprContext&) = delete;

  /// The symbol of that name, made at first use (range unbounded, for ints).
  Expr symbol(std::string_view name, ExprType type = ExprType::kInt);
  /// A new integer symbol with a name not used so far ("u0", "u1", ... from `prefix`).
  Expr fresh_symbol(std::string_view prefix, Range range);
  /// Narrows nothing: replaces the range.
  void set_range(Expr symbol, Range range);
  Range range_of(Expr symbol) const;
  /// Names of all symbols in order of creation.
  std::vector<Expr> symbols() const;

  Expr floating(double value);
  Expr boolean(bool value);
  /// Makes op(args), simplified to canonical form. Requires: args fit the op.
  Expr make(ExprOp op, std::span<const Expr> args, std::string_view name = {});

 private:
  Expr intern(ExprOp op, ExprType type, double number, std::string_view name, std::vector<Expr> args);
  std::deque<ExprNode> nodes_;
  std::unordered_map<std::string, const ExprNode*> interned_;
  std::unordered_map<const ExprNode*, Range> ranges_;
  std::vector<Expr> symbols_;
  uint32_t next_fresh_ = 0;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr& operator+=(Expr& a, Expr b);
Expr& operator*=(Expr& a, Expr b);
Expr floor_div(Expr a, Expr b);
Expr floor_mod(Expr a, Expr b);
Expr ceil_div(Expr a, Expr b);
Expr dim_max(Expr a, Expr b);
Expr dim_min(Expr a, Expr b);
inline bool dim_is(Expr dim, int64_t value) { return dim.is_const() && dim.value() == value; }
inline bool dim_same(Expr a, Expr b) { return a == b; }
/// True if the difference is a non-zero constant or the ranges do not meet.
bool dim_differ(Expr a, Expr b);
inline bool dim_is_const(Expr dim) { return dim.is_const(); }
inline int64_t dim_value(Expr dim) { return dim.value(); }

/// Numeric value of a constant scalar expression (int, float or bool). Requires: is_number(e).
double number_of(Expr e);
/// True for integer, float and bool constants.
bool is_number(Expr e);

/// Interval of an integer expression from the ranges of its symbols.
Range bounds(Expr e);
/// Every symbol in the expression, each once.
std::vector<Expr> symbols_in(Expr e);
/// Value of an integer expression when symbols have the given values; nullopt if one is missing, a division by zero or an overflow.
std::optional<int64_t> evaluate(Expr e, const std::function<std::optional<int64_t>(Expr)>& value_of);
/// e with symbols replaced (an Expr equal to the symbol keeps it).
Expr substitute(Expr e, const std::function<Expr(Expr)>& replacement_of);
/// Infix text that parse_expr reads back: "2*s0+1", "s0//2", "max(s0,4)".
std::string to_text(Expr e);

}  // namespace pteron::ir
