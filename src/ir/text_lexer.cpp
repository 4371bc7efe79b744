// Token readers.
#include "ir/text_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/ascii.h"
#include "base/str_cat.h"
#include "ir/text_words.h"

namespace pteron::ir {

bool Lexer::fail(Status status) {
  if (!status_.ok()) return false;
  const std::string_view before = text_.substr(0, at_);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? at_ + 1 : at_ - line_start;
  status_ = std::move(status).with_context(str_cat("line ", line, ", column ", column));
  return false;
}

namespace {

/// Text for a message: what cannot be printed becomes \xNN.
std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f && byte < 0x80) {
      out += c;
    } else {
      str_append(out, "\\x", kDigits.substr(byte / 16, 1), kDigits.substr(byte % 16, 1));
    }
  }
  return out;
}

}  // namespace

bool Lexer::expected(std::string_view what) {
  skip();
  const std::string rest = printable(text_.substr(at_, 20));
  return fail(Status(Code::kInvalidFile, rest.empty() ? str_cat("expected ", what, ", found the end") : str_cat("expected ", what, ", found '", rest, "'")));
}

void Lexer::skip() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

bool Lexer::at_end() { return peek() == '\0' && at_ >= text_.size(); }

char Lexer::peek() {
  skip();
  return at_ < text_.size() ? text_[at_] : '\0';
}

char Lexer::peek_second() {
  skip();
  return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
}

bool Lexer::eat(std::string_view token) {
  skip();
  if (!ok() || !text_.substr(at_).starts_with(token)) return false;
  const size_t end = at_ + token.size();
  if (is_word_char(token.back()) && end < text_.size() && is_word_char(text_[end])) return false;
  at_ = end;
  return true;
}

bool Lexer::need(std::string_view token) { return eat(token) || expected(str_cat("'", token, "'")); }

std::string_view Lexer::peek_word() {
  skip();
  size_t end = at_;
  while (end < text_.size() && is_word_char(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string_view Lexer::word() {
  const std::string_view found = peek_word();
  at_ += found.size();
  return found;
}

std::string_view Lexer::operator_name() {
  skip();
  const size_t end = std::min(text_.find_first_of(" \t\r\n()\"[]{},#=", at_), text_.size());
  const std::string_view found = text_.substr(at_, end - at_);
  at_ = end;
  return found;
}

bool Lexer::string(std::string* out) {
  out->clear();
  if (peek() != '"') return expected("a string");
  ++at_;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (c != '\\') {
      *out += c;
      continue;
    }
    const char escaped = at_ < text_.size() ? text_[at_++] : '\0';
    if (escaped == 'n') {
      *out += '\n';
    } else if (escaped == 'x') {
      const int high = at_ < text_.size() ? hex_value(text_[at_]) : -1, low = at_ + 1 < text_.size() ? hex_value(text_[at_ + 1]) : -1;
      if (high < 0 || low < 0) return expected("two hex digits");
      at_ += 2;
      *out += static_cast<char>(high * 16 + low);
    } else {
      *out += escaped;
    }
  }
  return expected("the closing quote");
}

bool Lexer::starts_number() {
  const char c = peek();
  const std::string_view rest = text_.substr(at_);
  if (is_digit(c)) return true;
  if (c == '-') return rest.size() > 1 && (is_digit(rest[1]) || rest.substr(1, 3) == "inf");
  const std::string_view next = peek_word();
  return next == "inf" || next == "nan";
}

bool Lexer::integer(int64_t* out) {
  skip();
  const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *out);
  if (result.ec != std::errc()) return expected("a 64-bit integer");
  at_ = static_cast<size_t>(result.ptr - text_.data());
  return true;
}

bool Lexer::number(int64_t* integer_out, double* decimal, bool* is_int) {
  *is_int = false;
  const bool negative = peek() == '-';
  const size_t start = at_;
  if (negative) ++at_;
  if (eat("inf")) {
    *decimal = negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return true;
  }
  if (!negative && eat("nan")) {
    *decimal = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  at_ = start;
  const size_t digits_end = std::min(text_.find_first_not_of("0123456789", negative ? at_ + 1 : at_), text_.size());
  const char stop = digits_end < text_.size() ? text_[digits_end] : '\0';
  if (stop != '.' && stop != 'e') {
    *is_int = true;
    return integer(integer_out);
  }
  const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *decimal);
  if (result.ec != std::errc()) return expected("a number");
  at_ = static_cast<size_t>(result.ptr - text_.data());
  return true;
}

}  // namespace pteron::ir
