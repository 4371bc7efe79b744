// simdjson lookups without exceptions.
#include "import/json.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "base/buffer.h"
#include "base/str_cat.h"

namespace pteron::importer {

namespace {
constexpr size_t kMaxJsonDepth = 256;  // a graph inside a graph costs 6 levels
}  // namespace

Result<JsonDocument> JsonDocument::parse(std::span<const std::byte> text, std::string_view what, size_t readable_behind) {
  Buffer padded;
  const std::byte* begin = text.data();
  if (text.empty() || readable_behind < simdjson::SIMDJSON_PADDING) {
    PTERON_ASSIGN(padded, Buffer::create(text.size() + simdjson::SIMDJSON_PADDING));
    if (!text.empty()) std::memcpy(padded.data(), text.data(), text.size());
    std::memset(padded.data() + text.size(), 0, simdjson::SIMDJSON_PADDING);
    begin = padded.data();
  }
  JsonDocument document;
  document.parser_.reset(new (std::nothrow) simdjson::dom::parser());
  if (document.parser_ == nullptr) return Status::out_of_memory();
  simdjson::error_code error = document.parser_->allocate(text.size() + 1, kMaxJsonDepth);
  if (error == simdjson::SUCCESS) {
    error = document.parser_->parse(reinterpret_cast<const uint8_t*>(begin), text.size(), false).get(document.root_);
  }
  if (error == simdjson::MEMALLOC) return Status::out_of_memory();
  if (error != simdjson::SUCCESS) return Status(Code::kInvalidFile, str_cat(what, " is not valid JSON: ", simdjson::error_message(error)));
  return document;
}

bool json_field(JsonValue object, std::string_view key, JsonValue* out) {
  simdjson::dom::object fields;
  if (object.get_object().get(fields) != simdjson::SUCCESS) return false;
  return fields.at_key(key).get(*out) == simdjson::SUCCESS && !out->is_null();
}

bool json_union(JsonValue object, std::string_view* tag, JsonValue* payload) {
  simdjson::dom::object fields;
  if (object.get_object().get(fields) != simdjson::SUCCESS || fields.begin() == fields.end()) return false;
  const auto first = fields.begin();
  *tag = first.key();
  *payload = first.value();
  return true;
}

JsonItems json_each(JsonValue array) {
  simdjson::dom::array items;
  return array.get_array().get(items) == simdjson::SUCCESS ? JsonItems(items) : JsonItems();
}

JsonItems json_each(JsonValue object, std::string_view key) {
  JsonValue array;
  return json_field(object, key, &array) ? json_each(array) : JsonItems();
}

std::vector<JsonValue> json_items(JsonValue array) {
  simdjson::dom::array items;
  if (array.get_array().get(items) != simdjson::SUCCESS) return {};
  std::vector<JsonValue> out;
  out.reserve(items.size());
  for (const JsonValue item : items) out.push_back(item);
  return out;
}

std::vector<JsonValue> json_items(JsonValue object, std::string_view key) {
  JsonValue array;
  return json_field(object, key, &array) ? json_items(array) : std::vector<JsonValue>();
}

std::string_view json_text(JsonValue value) {
  std::string_view text;
  return value.get_string().get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string_view json_text(JsonValue object, std::string_view key) {
  JsonValue value;
  return json_field(object, key, &value) ? json_text(value) : std::string_view();
}

bool json_int(JsonValue value, int64_t* out) { return value.get_int64().get(*out) == simdjson::SUCCESS; }
bool json_bool(JsonValue value, bool* out) { return value.get_bool().get(*out) == simdjson::SUCCESS; }

bool json_float(JsonValue value, double* out) {
  if (value.get_double().get(*out) == simdjson::SUCCESS) return true;
  const std::string_view text = json_text(value);
  if (text == "Infinity") *out = std::numeric_limits<double>::infinity();
  else if (text == "-Infinity") *out = -std::numeric_limits<double>::infinity();
  else if (text == "NaN") *out = std::numeric_limits<double>::quiet_NaN();
  else return false;
  return true;
}

std::vector<JsonMember> json_members(JsonValue object) {
  simdjson::dom::object fields;
  if (object.get_object().get(fields) != simdjson::SUCCESS) return {};
  std::vector<JsonMember> out;
  out.reserve(fields.size());
  for (const auto field : fields) out.push_back({field.key, field.value});
  return out;
}

std::vector<JsonMember> json_members(JsonValue object, std::string_view key) {
  JsonValue value;
  return json_field(object, key, &value) ? json_members(value) : std::vector<JsonMember>();
}

}  // namespace pteron::importer
