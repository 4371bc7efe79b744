// str_cat: joins strings, numbers and bools into one std::string; for messages in rooms without fmt (runtime, base, tensor).
// Not a formatter: no widths, no padding.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace pteron {

namespace detail {
inline void append_one(std::string& out, std::string_view text) { out.append(text); }
inline void append_one(std::string& out, char c) { out.push_back(c); }
template <std::same_as<bool> T>
void append_one(std::string& out, T b) {
  out.append(b ? "true" : "false");
}
template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
void append_one(std::string& out, T value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  out.append(text, static_cast<size_t>(end.ptr - text));  // of iterators it would be a replacement: longer code, and g++ 12 warns of it
}
}  // namespace detail

/// Appends every part to `out`.
template <typename... Parts>
void str_append(std::string& out, const Parts&... parts) {
  (detail::append_one(out, parts), ...);
}

/// All parts joined: str_cat("expected ", 3, " inputs").
template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  std::string out;
  str_append(out, parts...);
  return out;
}

/// "[1,2,3]" from any range of numbers or strings.
template <typename Range>
std::string str_list(const Range& range) {
  std::string out = "[";
  for (const auto& item : range) {
    if (out.size() > 1) out.push_back(',');
    str_append(out, item);
  }
  out.push_back(']');
  return out;
}

}  // namespace pteron
