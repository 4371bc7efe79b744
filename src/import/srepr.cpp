// Recursive descent over srepr text. Sizes are limited: canonical products of sums may be much larger than their text.
#include "import/srepr.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/ascii.h"
#include "base/str_cat.h"

namespace pteron::importer {

using ir::Expr;
using ir::ExprOp;
using ir::ExprType;
using ir::Range;

namespace {

constexpr int kMaxSreprDepth = 100;
constexpr int kMaxSreprNodes = 2000;
constexpr size_t kMaxTerms = 2000;  ///< terms of a sum after multiplying out

/// Heads that are one operation of ours on the same arguments.
struct Head {
  std::string_view name;
  ExprOp op;
  size_t min_args, max_args;
};
constexpr size_t kMany = 1000;
constexpr Head kHeads[] = {
    {"FloorDiv", ExprOp::kFloorDiv, 2, 2},
    {"CleanDiv", ExprOp::kFloorDiv, 2, 2},
    {"Mod", ExprOp::kMod, 2, 2},
    {"PythonMod", ExprOp::kMod, 2, 2},
    {"Max", ExprOp::kMax, 1, kMany},
    {"Min", ExprOp::kMin, 1, kMany},
    {"TruncToInt", ExprOp::kTrunc, 1, 1},
    {"FloorToInt", ExprOp::kFloor, 1, 1},
    {"CeilToInt", ExprOp::kCeil, 1, 1},
    {"RoundToInt", ExprOp::kRound, 1, 1},
    {"floor", ExprOp::kFloor, 1, 1},
    {"ceiling", ExprOp::kCeil, 1, 1},
    {"ToFloat", ExprOp::kToFloat, 1, 1},
    {"IntTrueDiv", ExprOp::kTrueDiv, 2, 2},
    {"FloatTrueDiv", ExprOp::kTrueDiv, 2, 2},
    {"FloatPow", ExprOp::kPow, 2, 2},
    {"BitwiseFn_bitwise_and", ExprOp::kBitAnd, 2, 2},
    {"BitwiseFn_bitwise_or", ExprOp::kBitOr, 2, 2},
    {"BitwiseFn_bitwise_xor", ExprOp::kBitXor, 2, 2},
    {"Equality", ExprOp::kEq, 2, 2},
    {"Unequality", ExprOp::kNe, 2, 2},
    {"StrictLessThan", ExprOp::kLt, 2, 2},
    {"LessThan", ExprOp::kLe, 2, 2},
    {"And", ExprOp::kAnd, 1, kMany},
    {"Or", ExprOp::kOr, 1, kMany},
    {"Not", ExprOp::kNot, 1, 1},
    {"Where", ExprOp::kIte, 3, 3},
};

/// Names that the text form can print: identifiers, but not its words.
bool is_plain_name(std::string_view name) {
  for (const std::string_view word : {"true", "false", "none", "inf", "nan"}) {
    if (name == word) return false;
  }
  return is_identifier(name);
}

bool is_float_function(std::string_view name) {
  for (const std::string_view known : {"sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "log2"}) {
    if (name == known) return true;
  }
  return false;
}

size_t terms_of(Expr e) { return !e.is_const() && e.node()->op == ExprOp::kAdd ? e.node()->args.size() : 1; }

}  // namespace

/// One text, left to right. Errors are sticky; a failed parse returns 0.
class SreprParser {
 public:
  SreprParser(ExprReader& reader, std::string_view text) : reader_(reader), exprs_(*reader.exprs_), text_(text) {}

  Result<Expr> parse() {
    const Expr e = expression(0);
    if (status_.ok() && at_ != text_.size()) invalid("the end");
    if (!status_.ok()) return std::move(status_);
    return e;
  }

 private:
  void invalid(std::string_view expected) {
    if (status_.ok()) {
      status_ = Status(Code::kInvalidFile, str_cat("symbolic expression '", text_.substr(0, 200), "': expected ", expected, " at position ", at_));
    }
  }
  void unsupported(std::string_view what) {
    if (status_.ok()) status_ = Status(Code::kUnsupported, str_cat("symbolic expression '", text_.substr(0, 200), "': ", what));
  }
  bool eat(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!eat(token)) invalid(str_cat("'", token, "'"));
  }
  std::string_view until(std::string_view stops) {
    const size_t end = std::min(text_.find_first_of(stops, at_), text_.size());
    const std::string_view out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }

  Expr expression(int depth) {
    if (!status_.ok()) return 0;
    if (depth > kMaxSreprDepth || ++nodes_ > kMaxSreprNodes) {
      unsupported("too large");
      return 0;
    }
    const std::string_view word = until("(),");
    if (!eat("(")) return name(word);
    if (word == "Symbol") return symbol();
    if (word == "Integer") return integer(")");
    if (word == "Rational") {
      const double above = static_cast<double>(integer(", "));
      return exprs_.floating(above / static_cast<double>(integer(")")));
    }
    if (word == "Float") return floating();
    std::vector<Expr> args;
    while (status_.ok() && !eat(")")) {
      if (!args.empty()) expect(", ");
      args.push_back(expression(depth + 1));
    }
    return status_.ok() ? call(word, args) : Expr(0);
  }

  Expr name(std::string_view word) {
    if (word == "true" || word == "True") return exprs_.boolean(true);
    if (word == "false" || word == "False") return exprs_.boolean(false);
    if (word == "oo" || word == "int_oo") return Range::kMax;
    if (word == "-oo" || word == "-int_oo") return Range::kMin;
    invalid("an expression");
    return 0;
  }

  Expr symbol() {
    expect("'");
    const std::string_view name = until("'");
    expect("'");
    bool is_integer = false, is_positive = false;
    while (status_.ok() && !eat(")")) {
      expect(", ");
      const std::string_view assumption = until("=");
      expect("=");
      const bool holds = until(",)") == "True";
      if (assumption == "integer") is_integer = holds;
      if (assumption == "positive") is_positive = holds;
      if (at_ >= text_.size()) invalid("')'");
    }
    if (!is_plain_name(name)) invalid("a symbol's name");
    return status_.ok() ? reader_.symbol(name, is_integer, is_positive) : Expr(0);
  }

  int64_t integer(std::string_view end) {
    const std::string_view digits = until(",)");
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec == std::errc::result_out_of_range) unsupported("an integer does not fit 64 bits");
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) invalid("an integer");
    expect(end);
    return value;
  }

  Expr floating() {
    expect("'");
    const std::string_view digits = until("'");
    expect("'");
    until(")");
    expect(")");
    double value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) invalid("a decimal number");
    return exprs_.floating(value);
  }

  Expr make(ExprOp op, std::initializer_list<Expr> args, std::string_view name = {}) {
    return exprs_.make(op, std::span<const Expr>(args.begin(), args.size()), name);
  }

  bool arity(std::string_view head, std::span<const Expr> args, size_t least, size_t most) {
    if (args.size() >= least && args.size() <= most) return true;
    invalid(str_cat(least, " arguments of ", head));
    return false;
  }

  Expr call(std::string_view head, std::span<const Expr> args) {
    for (const Head& row : kHeads) {
      if (row.name != head) continue;
      if (!arity(head, args, row.min_args, row.max_args)) return 0;
      return args.size() == 1 && row.max_args == kMany ? args[0] : exprs_.make(row.op, args);
    }
    if (head == "Add") return sum(args);
    if (head == "Mul") return product(args);
    if (head == "Pow" || head == "PowByNatural") return arity(head, args, 2, 2) ? power(args[0], args[1]) : Expr(0);
    if (head == "StrictGreaterThan") return arity(head, args, 2, 2) ? make(ExprOp::kLt, {args[1], args[0]}) : Expr(0);
    if (head == "GreaterThan") return arity(head, args, 2, 2) ? make(ExprOp::kLe, {args[1], args[0]}) : Expr(0);
    if (head == "ExprCondPair") return arity(head, args, 2, 2) ? pair(args) : Expr(0);
    if (head == "Piecewise") return piecewise(args);
    if (head == "Identity") return arity(head, args, 1, 1) ? args[0] : Expr(0);
    if (head == "TruncToFloat") return arity(head, args, 1, 1) ? make(ExprOp::kToFloat, {make(ExprOp::kTrunc, {args[0]})}) : Expr(0);
    if (head == "CeilDiv") {
      if (!arity(head, args, 2, 2)) return 0;
      return times(-1, make(ExprOp::kFloorDiv, {times(-1, args[0]), args[1]}));
    }
    if (head == "ModularIndexing") {
      if (!arity(head, args, 3, 3)) return 0;
      return make(ExprOp::kMod, {make(ExprOp::kFloorDiv, {args[0], args[1]}), args[2]});
    }
    if (head == "LShift") return arity(head, args, 2, 2) ? times(args[0], make(ExprOp::kPow, {2, args[1]})) : Expr(0);
    if (head == "RShift") return arity(head, args, 2, 2) ? make(ExprOp::kFloorDiv, {args[0], make(ExprOp::kPow, {2, args[1]})}) : Expr(0);
    if (head.starts_with("OpaqueUnaryFn_") && arity(head, args, 1, 1)) {
      const std::string_view fn = head.substr(sizeof "OpaqueUnaryFn_" - 1);
      if (!is_float_function(fn)) {
        unsupported(str_cat("function ", head, " is not known"));
        return 0;
      }
      return fn == "sqrt" ? make(ExprOp::kSqrt, {args[0]}) : make(ExprOp::kFloatFn, {args[0]}, fn);
    }
    unsupported(str_cat("function ", head, " is not known"));
    return 0;
  }

  Expr sum(std::span<const Expr> args) {
    if (!arity("Add", args, 1, kMany)) return 0;
    return args.size() == 1 ? args[0] : exprs_.make(ExprOp::kAdd, args);
  }

  /// Multiplied step by step, so that the number of terms can be watched.
  Expr product(std::span<const Expr> args) {
    if (!arity("Mul", args, 1, kMany)) return 0;
    Expr out = args[0];
    for (const Expr& factor : args.subspan(1)) {
      if (terms_of(out) * terms_of(factor) > kMaxTerms) {
        unsupported("too many terms after multiplying out");
        return 0;
      }
      out = make(ExprOp::kMul, {out, factor});
    }
    return out;
  }
  Expr times(Expr a, Expr b) {
    const Expr both[] = {a, b};
    return product(both);
  }

  Expr power(Expr base, Expr exponent) {
    if (!exponent.is_const()) return make(ExprOp::kPow, {base, exponent});
    if (exponent.value() == -1) return make(ExprOp::kTrueDiv, {1, base});
    if (exponent.value() < 0 || exponent.value() > 16) return make(ExprOp::kPow, {base, exponent});
    const std::vector<Expr> factors(static_cast<size_t>(exponent.value()), base);
    return factors.empty() ? Expr(1) : product(factors);
  }

  /// A pair is kept aside until piecewise() joins all of them; its number stands for it.
  Expr pair(std::span<const Expr> args) {
    pairs_.push_back({args[0], args[1]});
    return Expr(static_cast<int64_t>(pairs_.size() - 1));
  }

  Expr piecewise(std::span<const Expr> args) {
    if (!arity("Piecewise", args, 1, kMany)) return 0;
    Expr out = 0;
    for (size_t i = args.size(); i-- > 0;) {
      if (!args[i].is_const() || args[i].value() < 0 || static_cast<size_t>(args[i].value()) >= pairs_.size()) {
        invalid("pairs in Piecewise");
        return 0;
      }
      const auto& [value, condition] = pairs_[static_cast<size_t>(args[i].value())];
      out = i + 1 == args.size() ? value : make(ExprOp::kIte, {condition, value, out});  // the last condition is `true`
    }
    return out;
  }

  ExprReader& reader_;
  ir::ExprContext& exprs_;
  std::string_view text_;
  size_t at_ = 0;
  int nodes_ = 0;
  std::vector<std::pair<Expr, Expr>> pairs_;
  Status status_;
};

ExprReader::ExprReader(ir::ExprContext& exprs, std::unordered_map<std::string, Range> ranges) : exprs_(&exprs), ranges_(std::move(ranges)) {
  // Names of methods imported before: shared if the range is the same, else this method's symbol gets another name.
  for (const Expr& old : exprs.symbols()) {
    const std::string& name = old.node()->name;
    const auto wanted = ranges_.find(name);
    if (wanted == ranges_.end() || exprs.range_of(old) == wanted->second) continue;
    for (int i = 1;; ++i) {
      const std::string renamed = str_cat(name, "_m", i);
      const std::vector<Expr> all = exprs.symbols();
      if (std::any_of(all.begin(), all.end(), [&](const Expr& s) { return s.node()->name == renamed; })) continue;
      const Expr made = exprs.symbol(renamed);
      exprs.set_range(made, wanted->second);
      symbols_.emplace(name, made);
      break;
    }
  }
}

Expr ExprReader::symbol(std::string_view name, bool integer, bool positive) {
  std::string key(name);
  const auto found = symbols_.find(key);
  if (found != symbols_.end()) return found->second;
  const Expr made = exprs_->symbol(name, integer ? ExprType::kInt : ExprType::kFloat);
  if (integer) {
    const auto range = ranges_.find(key);
    exprs_->set_range(made, range != ranges_.end() ? range->second : Range{positive ? 0 : Range::kMin, Range::kMax});
  }
  symbols_.emplace(std::move(key), made);
  return made;
}

Result<Expr> ExprReader::read(std::string_view text) {
  std::string key(text);
  const auto found = read_before_.find(key);
  if (found != read_before_.end()) return found->second;
  PTERON_ASSIGN(const Expr made, SreprParser(*this, text).parse());
  read_before_.emplace(std::move(key), made);
  return made;
}

}  // namespace pteron::importer
