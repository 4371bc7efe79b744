// Kinds of ASCII characters. Not <cctype>: names and files mean the same in every locale of the host program.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace pteron {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// 'A' to 'Z' as 'a' to 'z', anything else as it is.
constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr bool is_letter(char c) { return to_lower(c) >= 'a' && to_lower(c) <= 'z'; }

/// Of '0' to '9' and 'a' to 'f': 0 to 15; of anything else -1.
constexpr int hex_value(char c) { return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/// A letter, a digit or '_'.
constexpr bool is_word_char(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

/// Word characters, at least one, no digit first.
constexpr bool is_identifier(std::string_view name) { return !name.empty() && !is_digit(name[0]) && std::all_of(name.begin(), name.end(), is_word_char); }

inline std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = to_lower(c);
  return lower;
}

}  // namespace pteron
