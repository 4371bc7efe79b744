// Small helpers over simdjson's document tree: lookups that answer "missing" instead of throwing. Only the importer uses JSON.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "pteron/status.h"

namespace pteron::importer {

using JsonValue = simdjson::dom::element;

/// A parsed document. Values and their strings live as long as it does.
/// Owns:    everything; the input bytes may go after parse().
class JsonDocument {
 public:
  /// Parses `text` where it lies if `readable_behind` bytes of the same memory follow it that are enough for simdjson's padding (their contents
  /// do not matter), else a copy.
  /// Errors: kInvalidFile (`what` names the document), kOutOfMemory.
  static Result<JsonDocument> parse(std::span<const std::byte> text, std::string_view what, size_t readable_behind = 0);
  JsonValue root() const { return root_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonValue root_;
};

/// Field of an object into *out; false if `object` is no object, or the field is missing or null.
bool json_field(JsonValue object, std::string_view key, JsonValue* out);
/// The only field of a union object; false if there is none.
bool json_union(JsonValue object, std::string_view* tag, JsonValue* payload);
/// Items of an array; empty if it is no array.
/// Range over the items of an array, nothing for anything else.
class JsonItems {
 public:
  using Iterator = simdjson::dom::array::iterator;
  JsonItems() = default;
  explicit JsonItems(simdjson::dom::array items) : begin_(items.begin()), end_(items.end()) {}
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }

 private:
  Iterator begin_{}, end_{};
};
JsonItems json_each(JsonValue array);
/// The items of a field; nothing if it is missing.
JsonItems json_each(JsonValue object, std::string_view key);

std::vector<JsonValue> json_items(JsonValue array);
/// Items of an array field; empty if missing.
std::vector<JsonValue> json_items(JsonValue object, std::string_view key);
/// Text of a string; empty if it is none.
std::string_view json_text(JsonValue value);
std::string_view json_text(JsonValue object, std::string_view key);
bool json_int(JsonValue value, int64_t* out);
bool json_bool(JsonValue value, bool* out);
/// A number, or "Infinity", "-Infinity", "NaN".
bool json_float(JsonValue value, double* out);

/// Fields of an object in file order.
struct JsonMember {
  std::string_view key;
  JsonValue value;
};
std::vector<JsonMember> json_members(JsonValue object);
std::vector<JsonMember> json_members(JsonValue object, std::string_view key);

}  // namespace pteron::importer
