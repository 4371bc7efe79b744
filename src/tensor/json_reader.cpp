// The pull parser: tokens, strings, integers, and passing over values without recursion.
#include "tensor/json_reader.h"

#include <charconv>
#include <limits>

#include "base/ascii.h"
#include "base/str_cat.h"

namespace pteron {

namespace {

/// Values nested deeper than this are refused.
constexpr size_t kMaxNesting = 256;

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

Status JsonReader::error(std::string_view what) const {
  return Status(Code::kInvalidFile, str_cat("JSON header: ", what, " at byte ", at_));
}

void JsonReader::skip_blanks() {
  while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
}

char JsonReader::peek() {
  skip_blanks();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::accept(char c) {
  if (peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

Status JsonReader::expect(char c) {
  if (accept(c)) return ok_status();
  return error(str_cat("'", c, "' is expected"));
}

Status JsonReader::expect_end() {
  skip_blanks();
  return at_ == text_.size() ? ok_status() : error("the end is expected");
}

Result<uint32_t> JsonReader::hex4() {
  uint32_t value = 0;
  if (text_.size() - at_ < 4) return error("four hex digits are expected");
  const char* first = text_.data() + at_;
  const auto parsed = std::from_chars(first, first + 4, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != first + 4) return error("four hex digits are expected");
  at_ += 4;
  return value;
}

Status JsonReader::escape(std::string* out) {
  if (at_ >= text_.size()) return error("an escape is cut off");
  const char c = text_[at_++];
  switch (c) {
    case '"': case '\\': case '/': out->push_back(c); return ok_status();
    case 'b': out->push_back('\b'); return ok_status();
    case 'f': out->push_back('\f'); return ok_status();
    case 'n': out->push_back('\n'); return ok_status();
    case 'r': out->push_back('\r'); return ok_status();
    case 't': out->push_back('\t'); return ok_status();
    case 'u': break;
    default: return error("an unknown escape");
  }
  PTERON_ASSIGN(uint32_t code, hex4());
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    PTERON_ASSIGN(const uint32_t low, hex4());
    if (low < 0xdc00 || low >= 0xe000) return error("half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  if (code >= 0xd800 && code < 0xe000) return error("half of a surrogate pair");
  append_utf8(*out, code);
  return ok_status();
}

Result<std::string> JsonReader::string() {
  PTERON_TRY(expect('"'));
  std::string out;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) return error("a control character in a string");
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    PTERON_TRY(escape(&out));
  }
  return error("a string is cut off");
}

Result<int64_t> JsonReader::unsigned_number() {
  skip_blanks();
  uint64_t value = 0;
  const char* first = text_.data() + at_;
  const auto parsed = std::from_chars(first, text_.data() + text_.size(), value);
  if (parsed.ec != std::errc() || value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return error("a non-negative integer below 2^63 is expected");
  }
  at_ += static_cast<size_t>(parsed.ptr - first);
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) return error("an integer is expected");
  return static_cast<int64_t>(value);
}

Result<std::vector<int64_t>> JsonReader::unsigned_list() {
  PTERON_TRY(expect('['));
  std::vector<int64_t> out;
  if (accept(']')) return out;
  for (;;) {
    PTERON_ASSIGN(const int64_t value, unsigned_number());
    out.push_back(value);
    if (accept(']')) return out;
    PTERON_TRY(expect(','));
  }
}

Status JsonReader::skip_scalar() {
  const size_t start = at_;
  if (text_[at_] == '-' || is_digit(text_[at_])) {
    while (at_ < text_.size() && (is_digit(text_[at_]) || std::string_view("+-.eE").find(text_[at_]) != std::string_view::npos)) ++at_;
    return ok_status();
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(start, word.size()) != word) continue;
    at_ += word.size();
    return ok_status();
  }
  return error("a value is expected");
}

Status JsonReader::skip_value() {
  std::string open;  // the brackets that are open
  for (;;) {
    const char next = peek();
    if (next == '\0') return error("a value is expected");
    if (next == '{' || next == '[') {
      if (open.size() >= kMaxNesting) return error("too deep nesting");
      ++at_;
      open.push_back(next);
      if (!accept(next == '{' ? '}' : ']')) {
        if (next == '[') continue;
        PTERON_TRY(string().status());
        PTERON_TRY(expect(':'));
        continue;
      }
      open.pop_back();
    } else if (next == '"') {
      PTERON_TRY(string().status());
    } else {
      PTERON_TRY(skip_scalar());
    }
    // Behind a value: close brackets until a comma asks for another one.
    while (!open.empty() && accept(open.back() == '{' ? '}' : ']')) open.pop_back();
    if (open.empty()) return ok_status();
    PTERON_TRY(expect(','));
    if (open.back() == '[') continue;
    PTERON_TRY(string().status());
    PTERON_TRY(expect(':'));
  }
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out.push_back(kHex[c & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

}  // namespace pteron
