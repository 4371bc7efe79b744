// Recursive descent over the conditions' Python text. A guard that cannot be read is no error: the archive only repeats in it what it assumed.
#include "import/guards.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/ascii.h"

namespace pteron::importer {

using ir::Expr;
using ir::ExprOp;

namespace {

constexpr int kMaxGuardDepth = 60;
constexpr int kMaxGuardNodes = 1000;

class GuardParser {
 public:
  GuardParser(std::string_view text, ir::ExprContext& exprs, const GuardInput& input) : text_(text), exprs_(exprs), input_(input) {}

  std::optional<Expr> parse() {
    const Expr e = any_of(0);
    spaces();
    if (at_ != text_.size()) failed_ = true;
    return failed_ ? std::nullopt : std::optional<Expr>(e);
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool eat(std::string_view token) {
    spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  /// A word, not the beginning of a longer one.
  bool eat_word(std::string_view word) {
    spaces();
    const size_t end = at_ + word.size();
    if (!text_.substr(at_).starts_with(word) || (end < text_.size() && is_word_char(text_[end]))) return false;
    at_ = end;
    return true;
  }
  Expr fail() {
    failed_ = true;
    return 0;
  }
  Expr make(ExprOp op, std::initializer_list<Expr> args) {
    if (failed_ || ++nodes_ > kMaxGuardNodes) return fail();
    return exprs_.make(op, std::span<const Expr>(args.begin(), args.size()));
  }

  Expr any_of(int depth) {
    if (depth > kMaxGuardDepth) return fail();
    Expr left = all_of(depth);
    while (!failed_ && eat_word("or")) left = make(ExprOp::kOr, {left, all_of(depth)});
    return left;
  }
  Expr all_of(int depth) {
    Expr left = negation(depth);
    while (!failed_ && eat_word("and")) left = make(ExprOp::kAnd, {left, negation(depth)});
    return left;
  }
  Expr negation(int depth) {
    if (depth > kMaxGuardDepth) return fail();
    return eat_word("not") ? make(ExprOp::kNot, {negation(depth + 1)}) : comparison(depth);
  }

  std::optional<Expr> compare(Expr left, int depth, Expr* right) {
    const auto next = [&] { return *right = sum(depth); };
    if (eat("==")) return make(ExprOp::kEq, {left, next()});
    if (eat("!=")) return make(ExprOp::kNe, {left, next()});
    if (eat("<=")) return make(ExprOp::kLe, {left, next()});
    if (eat(">=")) return make(ExprOp::kLe, {next(), left});
    if (eat("<")) return make(ExprOp::kLt, {left, next()});
    if (eat(">")) return make(ExprOp::kLt, {next(), left});
    return std::nullopt;
  }
  /// Chains mean "and": 2 <= n <= 8.
  Expr comparison(int depth) {
    Expr left = sum(depth);
    std::optional<Expr> all;
    for (Expr right = 0; !failed_; left = right) {
      const std::optional<Expr> one = compare(left, depth, &right);
      if (!one) break;
      all = all ? make(ExprOp::kAnd, {*all, *one}) : *one;
    }
    return all.value_or(left);
  }

  Expr sum(int depth) {
    Expr left = product(depth);
    while (!failed_) {
      if (eat("+")) {
        left = make(ExprOp::kAdd, {left, product(depth)});
      } else if (eat("-")) {
        left = make(ExprOp::kAdd, {left, make(ExprOp::kMul, {-1, product(depth)})});
      } else {
        break;
      }
    }
    return left;
  }
  Expr product(int depth) {
    Expr left = factor(depth);
    while (!failed_) {
      if (eat("//")) {
        left = make(ExprOp::kFloorDiv, {left, factor(depth)});
      } else if (eat("%")) {
        left = make(ExprOp::kMod, {left, factor(depth)});
      } else if (!text_.substr(at_).starts_with("**") && eat("*")) {
        left = make(ExprOp::kMul, {left, factor(depth)});
      } else {
        break;
      }
    }
    return left;
  }
  Expr factor(int depth) {
    if (depth > kMaxGuardDepth) return fail();
    if (eat("-")) return make(ExprOp::kMul, {-1, factor(depth + 1)});
    const Expr base = atom(depth);
    if (!eat("**")) return base;
    int64_t exponent = 0;
    spaces();
    if (!number(&exponent) || exponent < 0 || exponent > 8) return fail();
    Expr out = 1;
    for (int64_t i = 0; i < exponent; ++i) out = make(ExprOp::kMul, {out, base});
    return out;
  }

  Expr atom(int depth) {
    if (eat("(")) {
      const Expr inside = any_of(depth + 1);
      return eat(")") ? inside : fail();
    }
    for (const auto& [name, op] : {std::pair{"max", ExprOp::kMax}, {"Max", ExprOp::kMax}, {"min", ExprOp::kMin}, {"Min", ExprOp::kMin}, {"Mod", ExprOp::kMod},
                                   {"PythonMod", ExprOp::kMod}, {"FloorDiv", ExprOp::kFloorDiv}, {"Eq", ExprOp::kEq}, {"Ne", ExprOp::kNe}}) {
      if (eat_word(name)) return call(op, depth);
    }
    if (eat_word("True")) return exprs_.boolean(true);
    if (eat_word("False")) return exprs_.boolean(false);
    if (eat_word("L")) return place();
    int64_t value = 0;
    return number(&value) ? Expr(value) : fail();
  }

  Expr call(ExprOp op, int depth) {
    if (!eat("(")) return fail();
    std::vector<Expr> args;
    do args.push_back(any_of(depth + 1));
    while (!failed_ && eat(","));
    const bool folds = op == ExprOp::kMax || op == ExprOp::kMin;
    if (!eat(")") || failed_ || (!folds && args.size() != 2)) return fail();
    return exprs_.make(op, args);
  }

  /// Integers only: what follows must not make it a float.
  bool number(int64_t* out) {
    const auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *out);
    if (read.ec != std::errc()) return false;
    at_ = static_cast<size_t>(read.ptr - text_.data());
    return at_ == text_.size() || (text_[at_] != '.' && text_[at_] != 'e');
  }

  /// Behind "L": ['x'][0]...; then .size()[1] or nothing.
  Expr place() {
    std::string name;
    while (eat("[")) {
      if (!name.empty()) name += '_';
      int64_t position = 0;
      if (eat("'")) {
        const size_t end = text_.find('\'', at_);
        if (end == std::string_view::npos) return fail();
        for (; at_ < end; ++at_) name += to_lower(text_[at_]);
        ++at_;
      } else if (number(&position) && position >= 0) {
        name += std::to_string(position);
      } else {
        return fail();
      }
      if (!eat("]")) return fail();
    }
    int64_t dim = -1;
    if (eat(".size()[") && (!number(&dim) || dim < 0 || !eat("]"))) return fail();
    const std::optional<Expr> found = input_(name, dim);
    return found ? *found : fail();
  }

  std::string_view text_;
  ir::ExprContext& exprs_;
  const GuardInput& input_;
  size_t at_ = 0;
  int nodes_ = 0;
  bool failed_ = false;
};

/// The expression or a part of it is a remainder.
bool has_remainder(Expr e) {
  if (e.is_const()) return false;
  return e.node()->op == ExprOp::kMod || std::ranges::any_of(e.node()->args, has_remainder);
}

}  // namespace

std::optional<Expr> read_guard(std::string_view text, ir::ExprContext& exprs, const GuardInput& input) { return GuardParser(text, exprs, input).parse(); }

bool excludes_small_size(Expr guard) {
  if (guard.is_const()) return false;
  const std::vector<Expr>& args = guard.node()->args;
  switch (guard.node()->op) {
    case ExprOp::kNe: return args[1].is_const() && (args[1].value() == 0 || args[1].value() == 1);
    case ExprOp::kLe: return args[0].is_const() && args[0].value() == 2;
    case ExprOp::kLt: return args[0].is_const() && args[0].value() == 1;
    default: return false;
  }
}

void narrow_by_equalities(std::span<const Expr> guards, std::span<const Expr> symbols, ir::ExprContext& exprs) {
  constexpr int64_t kMaxSizes = 4096;
  for (const Expr guard : guards) {
    if (guard.node()->op != ExprOp::kEq || has_remainder(guard)) continue;
    const std::vector<Expr> own = ir::symbols_in(guard);
    if (own.size() != 1 || std::ranges::find(symbols, own[0]) == symbols.end()) continue;
    const Expr left = guard.node()->args[0], right = guard.node()->args[1];
    const auto holds = [&](int64_t size) {
      const auto value_of = [&](Expr) { return std::optional<int64_t>(size); };
      const std::optional<int64_t> a = ir::evaluate(left, value_of), b = ir::evaluate(right, value_of);
      return a && b && *a == *b;
    };
    ir::Range range = exprs.range_of(own[0]);
    if (range.min < 0 || range.max < range.min || range.max - range.min >= kMaxSizes) continue;
    while (range.min <= range.max && !holds(range.min)) ++range.min;
    while (range.min <= range.max && !holds(range.max)) --range.max;
    if (range.min <= range.max) exprs.set_range(own[0], range);
  }
}

}  // namespace pteron::importer
