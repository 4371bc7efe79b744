// JsonReader: a small pull parser for the JSON headers of tensor files. The runtime carries no JSON library; .pt2 archives use simdjson instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pteron/status.h"

namespace pteron {

/// Reads one JSON text from front to back; every call returns at the first fault with its byte position.
/// Errors: kInvalidFile.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// Takes the token `c` ("{", ":", ...) if it is next, blanks skipped.
  bool accept(char c);
  Status expect(char c);
  /// The next token's first character without taking it; 0 at the end.
  char peek();
  /// A string with its escapes resolved (\u as UTF-8).
  Result<std::string> string();
  /// A non-negative integer below 2^63.
  Result<int64_t> unsigned_number();
  /// [1, 2, 3] of non-negative integers.
  Result<std::vector<int64_t>> unsigned_list();
  /// Passes over any value.
  Status skip_value();
  /// Nothing but blanks may be left.
  Status expect_end();
  Status error(std::string_view what) const;

 private:
  void skip_blanks();
  Status skip_scalar();
  Status escape(std::string* out);
  Result<uint32_t> hex4();
  std::string_view text_;
  size_t at_ = 0;
};

/// Text with quotes and the escapes that JSON needs.
void append_json_string(std::string& out, std::string_view text);

}  // namespace pteron
