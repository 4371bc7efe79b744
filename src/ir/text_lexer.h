// Cursor over text of the intermediate form: blanks, comments, words, numbers, quoted strings, and the place for error messages.
// Used by the parser of expressions and by that of graphs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pteron/status.h"

namespace pteron::ir {

/// Every reader skips blanks and comments first. The first error sticks; after it all readers fail.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool ok() const { return status_.ok(); }
  Status take_status() { return std::move(status_); }
  /// Records "line L, column C: expected ..." and returns false.
  bool expected(std::string_view what);
  /// Records any error at the present place and returns false.
  bool fail(Status status);

  bool at_end();
  /// Next character, '\0' at the end; and the one behind it.
  char peek();
  char peek_second();
  /// Takes the token if it comes next. A word is taken only as a whole.
  bool eat(std::string_view token);
  /// Takes the token or records the error.
  bool need(std::string_view token);
  /// Letters, digits and '_'; empty if something else comes.
  std::string_view word();
  /// The word that comes next, not taken.
  std::string_view peek_word();
  /// Any run of characters without blanks, parentheses and quotes.
  std::string_view operator_name();
  bool string(std::string* out);
  /// An integer with sign.
  bool integer(int64_t* out);
  /// A number: integer (is_int) or decimal; "inf" and "nan" are decimals.
  bool number(int64_t* integer, double* decimal, bool* is_int);
  bool starts_number();

  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }

 private:
  void skip();
  std::string_view text_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace pteron::ir
