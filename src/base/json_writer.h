// JsonWriter: builds JSON text, for --json outputs and ETRecords. Keys and nesting are the caller's business; commas and escapes are done here.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/str_cat.h"

namespace pteron {

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void key(std::string_view name) {
    comma();
    quoted(name);
    text_ += ": ";
    fresh_ = true;
  }
  void string(std::string_view value) {
    comma();
    quoted(value);
  }
  void number(double value) {
    comma();
    if (std::isfinite(value)) {
      str_append(text_, value);
    } else {
      text_ += "null";
    }
  }
  void integer(std::integral auto value) {
    comma();
    str_append(text_, value);
  }
  void boolean(bool value) {
    comma();
    text_ += value ? "true" : "false";
  }
  /// Text that is JSON already.
  void raw(std::string_view text) {
    comma();
    text_ += text;
  }
  void field(std::string_view name, std::string_view value) { key(name), string(value); }
  void field(std::string_view name, const std::string& value) { key(name), string(value); }
  void field(std::string_view name, const char* value) { key(name), string(value); }
  void field(std::string_view name, double value) { key(name), number(value); }
  void field(std::string_view name, std::same_as<bool> auto value) { key(name), boolean(value); }
  void field(std::string_view name, std::integral auto value)
    requires(!std::same_as<decltype(value), bool>)
  {
    key(name), integer(value);
  }
  const std::string& text() const { return text_; }

 private:
  void comma() {
    if (!fresh_) text_ += ", ";
    fresh_ = false;
  }
  void open(char c) {
    comma();
    text_ += c;
    fresh_ = true;
  }
  void close(char c) {
    text_ += c;
    fresh_ = false;
  }
  void quoted(std::string_view value) {
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
        text_ += escape;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool fresh_ = true;
};

}  // namespace pteron
