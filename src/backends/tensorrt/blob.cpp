// TensorRT payloads: the 32 bytes of the header, JSON in the official writer's order and spelling, padding.
#include "backends/tensorrt/blob.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "base/str_cat.h"
#include "tensor/json_reader.h"

namespace pteron::tensorrt {

namespace {

constexpr size_t kHeaderBytes = 32;
constexpr std::string_view kPlainMagic = "TR01", kAliasMagic = "TR02";

Status bad(std::string_view what) { return Status(Code::kInvalidFile, str_cat("TensorRT payload: ", what)); }
Status bad_metadata(std::string_view what) { return Status(Code::kInvalidInput, str_cat("TensorRT payload: ", what)); }

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void store(std::string& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

std::string_view kind_name(Alias::Kind kind) { return kind == Alias::Kind::kUser ? "user" : "kv_cache_update"; }

std::optional<Alias::Kind> kind_of(std::string_view name) {
  for (const Alias::Kind kind : {Alias::Kind::kKvCacheUpdate, Alias::Kind::kUser}) {
    if (name == kind_name(kind)) return kind;
  }
  return std::nullopt;
}

/// What every reader and writer asks of names; empty if all is well.
std::string name_fault(const Metadata& metadata) {
  std::vector<std::string_view> names, inputs;
  for (const Binding& binding : metadata.bindings) {
    if (binding.name.empty()) return "a binding has no name";
    names.push_back(binding.name);
    if (binding.is_input) inputs.push_back(binding.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return str_cat("two bindings are named '", *twice, "'");
  for (const Alias& alias : metadata.aliases) {
    if (alias.output.empty()) return str_cat("an alias of input '", alias.input, "' names no output");
    if (std::find(inputs.begin(), inputs.end(), alias.input) == inputs.end()) {
      return str_cat("output '", alias.output, "' is an alias of '", alias.input, "', which is no input");
    }
  }
  return {};
}

/// The members of one JSON object: member(key) reads or skips the value.
template <typename Member>
Status read_object(JsonReader& json, Member&& member) {
  PTERON_TRY(json.expect('{'));
  if (json.accept('}')) return ok_status();
  do {
    PTERON_ASSIGN(const std::string key, json.string());
    PTERON_TRY(json.expect(':'));
    PTERON_TRY(member(key));
  } while (json.accept(','));
  return json.expect('}');
}

template <typename Element>
Status read_list(JsonReader& json, Element&& element) {
  PTERON_TRY(json.expect('['));
  if (json.accept(']')) return ok_status();
  do {
    PTERON_TRY(element());
  } while (json.accept(','));
  return json.expect(']');
}

Status read_text(JsonReader& json, std::string* out) {
  PTERON_ASSIGN(*out, json.string());
  return ok_status();
}

Status read_flag(JsonReader& json, bool* out) {
  const char first = json.peek();
  if (first != 't' && first != 'f') return json.error("expected true or false");
  *out = first == 't';
  return json.skip_value();
}

Status read_binding(JsonReader& json, Metadata* out) {
  Binding binding;
  bool has_direction = false;
  PTERON_TRY(read_object(json, [&](std::string_view key) -> Status {
    if (key == "name") return read_text(json, &binding.name);
    if (key != "is_input") return json.skip_value();
    has_direction = true;
    return read_flag(json, &binding.is_input);
  }));
  if (!has_direction) return bad(str_cat("binding '", binding.name, "' does not say whether it is an input"));
  out->bindings.push_back(std::move(binding));
  return ok_status();
}

Status read_alias(JsonReader& json, Metadata* out) {
  Alias alias;
  PTERON_TRY(read_object(json, [&](std::string_view key) -> Status {
    if (key == "output") return read_text(json, &alias.output);
    if (key == "input") return read_text(json, &alias.input);
    if (key != "kind") return json.skip_value();
    std::string name;
    PTERON_TRY(read_text(json, &name));
    const auto kind = kind_of(name);
    if (!kind.has_value()) return bad(str_cat("alias of kind '", name, "', expected kv_cache_update or user"));
    alias.kind = *kind;
    return ok_status();
  }));
  out->aliases.push_back(std::move(alias));
  return ok_status();
}

Status read_device(JsonReader& json, int64_t* out) {
  PTERON_ASSIGN(*out, json.unsigned_number());
  return *out <= std::numeric_limits<int32_t>::max() ? ok_status() : bad(str_cat("device ", *out, " is no CUDA ordinal"));
}

Result<Metadata> read_metadata(std::string_view text) {
  Metadata out;
  JsonReader json(text);
  bool has_bindings = false;
  PTERON_TRY(read_object(json, [&](std::string_view key) -> Status {
    if (key == "io_bindings") {
      has_bindings = true;
      return read_list(json, [&] { return read_binding(json, &out); });
    }
    if (key == "aliased_io") return read_list(json, [&] { return read_alias(json, &out); });
    if (key == "hardware_compatible") return read_flag(json, &out.hardware_compatible);
    if (key == "device_id") return read_device(json, &out.device_id);
    if (key == "serialized_metadata") return read_text(json, &out.serialized_metadata);
    if (key == "target_platform") return read_text(json, &out.target_platform);
    if (key == "engine_key") return read_text(json, &out.engine_key);
    return json.skip_value();
  }));
  PTERON_TRY(json.expect_end());
  if (!has_bindings) return bad("its metadata has no io_bindings");
  const std::string fault = name_fault(out);
  if (!fault.empty()) return bad(fault);
  return out;
}

/// The character at `*at`, which moves behind it; nothing if it is no UTF-8.
std::optional<uint32_t> next_point(std::string_view text, size_t* at) {
  const auto lead = static_cast<unsigned char>(text[*at]);
  if (lead < 0x80) {
    ++*at;
    return lead;
  }
  const size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || more >= text.size() - *at) return std::nullopt;
  uint32_t point = lead & (0x3fu >> more);
  for (size_t k = 1; k <= more; ++k) {
    const auto next = static_cast<unsigned char>(text[*at + k]);
    if ((next & 0xc0u) != 0x80u) return std::nullopt;
    point = point << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (point < kLeast[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return std::nullopt;
  *at += more + 1;
  return point;
}

void append_escaped(std::string& out, uint32_t unit) {
  char escaped[8];
  std::snprintf(escaped, sizeof escaped, "\\u%04x", unit);
  out.append(escaped);
}

/// Appends text as the official writer does: ASCII only, other characters as \uXXXX of UTF-16. False if it is no UTF-8.
bool append_string(std::string& out, std::string_view text) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  out.push_back('"');
  for (size_t at = 0; at < text.size();) {
    const std::optional<uint32_t> point = next_point(text, &at);
    if (!point) return false;
    const size_t known = *point < 0x80 ? kShort.find(static_cast<char>(*point)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out.append({'\\', kLetters[known]});
    } else if (*point >= 0x20 && *point < 0x7f) {
      out.push_back(static_cast<char>(*point));
    } else if (*point >= 0x10000) {
      append_escaped(out, 0xd800 + ((*point - 0x10000) >> 10));
      append_escaped(out, 0xdc00 + ((*point - 0x10000) & 0x3ff));
    } else {
      append_escaped(out, *point);
    }
  }
  out.push_back('"');
  return true;
}

/// Writes JSON members without blanks; remembers a text that is no UTF-8.
class JsonText {
 public:
  JsonText& raw(std::string_view text) {
    out_.append(text);
    return *this;
  }
  JsonText& string(std::string_view text) {
    if (!append_string(out_, text) && fault_.empty()) fault_ = text;
    return *this;
  }
  const std::string& text() const { return out_; }
  const std::string& fault() const { return fault_; }

 private:
  std::string out_, fault_;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status bad_slot(size_t slot, std::string_view text, std::string_view expected) {
  return Status(Code::kInvalidFile, str_cat("engine record: slot ", slot, " is '", text, "', expected ", expected));
}

Status read_switch(std::span<const std::string> slots, size_t slot, bool* out) {
  if (slots[slot] != "0" && slots[slot] != "1") return bad_slot(slot, slots[slot], "0 or 1");
  *out = slots[slot] == "1";
  return ok_status();
}

/// "output@input@kind": names may hold '@' as little as '%'.
Result<Alias> read_alias_text(const std::string& text) {
  const std::vector<std::string> parts = split(text, '@');
  const auto kind = parts.size() == 3 ? kind_of(parts[2]) : std::nullopt;
  if (!kind.has_value()) return bad_slot(12, text, "output@input@kind with kind kv_cache_update or user");
  return Alias{parts[0], parts[1], *kind};
}

}  // namespace

bool is_blob(std::span<const std::byte> payload) { return payload.size() >= kHeaderBytes && std::memcmp(payload.data(), "TR", 2) == 0; }

Result<Blob> read_blob(std::span<const std::byte> payload) {
  if (payload.size() < kHeaderBytes) return bad(str_cat(payload.size(), " bytes, a header has ", kHeaderBytes));
  const std::string_view magic(reinterpret_cast<const char*>(payload.data()), 4);
  if (magic != kPlainMagic && magic != kAliasMagic) return bad("it begins with neither TR01 nor TR02: another version, or no such payload");
  const uint64_t size = payload.size(), metadata_offset = load<uint32_t>(payload, 4), metadata_size = load<uint32_t>(payload, 8);
  const uint64_t engine_offset = load<uint32_t>(payload, 12), engine_size = load<uint64_t>(payload, 16);
  if (metadata_offset < kHeaderBytes) return bad(str_cat("metadata at byte ", metadata_offset, ", inside the header"));
  if (engine_offset % kEngineAlignment != 0) return bad(str_cat("engine at byte ", engine_offset, ", no multiple of ", kEngineAlignment));
  if (metadata_offset + metadata_size > size) return bad(str_cat("metadata ends at byte ", metadata_offset + metadata_size, " of ", size));
  if (engine_offset > size || engine_size > size - engine_offset) return bad(str_cat("an engine of ", engine_size, " bytes at byte ", engine_offset, " of ", size));
  if (metadata_offset + metadata_size > engine_offset) return bad("the metadata reaches into the engine");
  Blob out;
  PTERON_ASSIGN(out.metadata, read_metadata({reinterpret_cast<const char*>(payload.data()) + metadata_offset, static_cast<size_t>(metadata_size)}));
  if (out.metadata.engine_key.empty() && engine_size == 0) return bad("it has no engine and names none in a data file");
  if (!out.metadata.engine_key.empty() && engine_size != 0) return bad(str_cat("it has an engine and names '", out.metadata.engine_key, "' in a data file"));
  out.engine = payload.subspan(static_cast<size_t>(engine_offset), static_cast<size_t>(engine_size));
  return out;
}

Result<std::string> blob_head(const Metadata& metadata, uint64_t engine_bytes) {
  const std::string fault = name_fault(metadata);
  if (!fault.empty()) return bad_metadata(fault);
  if (metadata.bindings.empty()) return bad_metadata("an engine without bindings");
  if (metadata.device_id < 0 || metadata.device_id > std::numeric_limits<int32_t>::max()) return bad_metadata(str_cat("device ", metadata.device_id, " is no CUDA ordinal"));
  if (metadata.engine_key.empty() == (engine_bytes == 0)) return bad_metadata("an engine is either in the payload or under a key in a data file");
  JsonText json;
  std::string_view comma = "";
  json.raw("{\"io_bindings\":[");
  for (const Binding& binding : metadata.bindings) {
    json.raw(comma).raw("{\"name\":").string(binding.name).raw(",\"dtype\":\"\",\"shape\":[],\"is_input\":").raw(binding.is_input ? "true}" : "false}");
    comma = ",";
  }
  json.raw("],\"aliased_io\":[");
  comma = "";
  for (const Alias& alias : metadata.aliases) {
    json.raw(comma).raw("{\"output\":").string(alias.output).raw(",\"input\":").string(alias.input).raw(",\"kind\":").string(kind_name(alias.kind)).raw("}");
    comma = ",";
  }
  json.raw("],\"hardware_compatible\":").raw(metadata.hardware_compatible ? "true" : "false").raw(",\"device_id\":").raw(str_cat(metadata.device_id));
  json.raw(",\"serialized_metadata\":").string(metadata.serialized_metadata).raw(",\"target_platform\":").string(metadata.target_platform);
  if (!metadata.engine_key.empty()) json.raw(",\"engine_key\":").string(metadata.engine_key);
  json.raw("}");
  if (!json.fault().empty()) return bad_metadata(str_cat("'", json.fault(), "' is no UTF-8"));
  const uint64_t end = kHeaderBytes + json.text().size(), engine_offset = (end + kEngineAlignment - 1) / kEngineAlignment * kEngineAlignment;
  if (engine_offset > std::numeric_limits<uint32_t>::max()) return bad_metadata("metadata of 4 GiB");
  std::string out(kHeaderBytes, '\0');
  std::memcpy(out.data(), (metadata.aliases.empty() ? kPlainMagic : kAliasMagic).data(), 4);
  store(out, 4, static_cast<uint32_t>(kHeaderBytes));
  store(out, 8, static_cast<uint32_t>(json.text().size()));
  store(out, 12, static_cast<uint32_t>(engine_offset));
  store(out, 16, engine_bytes);
  out[24] = 1;  // what the official writer has there; readers pass over it
  out += json.text();
  out.resize(static_cast<size_t>(engine_offset), '\0');
  return out;
}

Result<EngineRecord> read_record(std::span<const std::string> slots) {
  if (slots.size() != kRecordSlots) return Status(Code::kInvalidFile, str_cat("engine record: ", slots.size(), " slots, expected ", kRecordSlots));
  if (slots[0] != "10") return bad_slot(0, slots[0], "version 10");
  EngineRecord out;
  out.name = slots[1];
  const std::vector<std::string> device = split(slots[2], '%');
  const bool numbered = !device.empty() && !device[0].empty() && device[0].size() < 10 && device[0].find_first_not_of("0123456789") == std::string::npos;
  if (!numbered) return bad_slot(2, slots[2], "a device that begins with its number");
  for (const char digit : device[0]) out.metadata.device_id = out.metadata.device_id * 10 + (digit - '0');
  for (std::string& name : split(slots[4], '%')) out.metadata.bindings.push_back({std::move(name), true});
  for (std::string& name : split(slots[5], '%')) out.metadata.bindings.push_back({std::move(name), false});
  PTERON_TRY(read_switch(slots, 6, &out.metadata.hardware_compatible));
  out.metadata.serialized_metadata = slots[7];
  out.metadata.target_platform = slots[8];
  PTERON_TRY(read_switch(slots, 9, &out.needs_output_allocator));
  for (const std::string& text : split(slots[12], '%')) {
    PTERON_ASSIGN(Alias alias, read_alias_text(text));
    out.metadata.aliases.push_back(std::move(alias));
  }
  const std::string fault = name_fault(out.metadata);
  if (!fault.empty()) return Status(Code::kInvalidFile, str_cat("engine record: ", fault));
  return out;
}

}  // namespace pteron::tensorrt
