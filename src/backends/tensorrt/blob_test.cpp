// TensorRT payloads against the bytes that the official writer makes, and against damaged ones.
#include "backends/tensorrt/blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pteron::tensorrt {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string payload(const Metadata& metadata, std::string_view engine) {
  Result<std::string> head = blob_head(metadata, engine.size());
  EXPECT_TRUE(head.ok()) << head.status().message();
  return head.ok() ? *head + std::string(engine) : std::string();
}

std::string message_of(const std::string& blob) {
  const auto read = read_blob(bytes_of(blob));
  return read.ok() ? "" : std::string(read.status().message());
}

/// Header as the format has it, JSON, padding, engine: independent of the writer under test.
std::string by_hand(std::string_view magic, std::string_view json, std::string_view engine) {
  std::string out(magic);
  const auto number = [&](uint64_t value, int size) {
    for (int i = 0; i < size; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  };
  const size_t offset = (32 + json.size() + 15) / 16 * 16;
  number(32, 4), number(json.size(), 4), number(offset, 4), number(engine.size(), 8), number(1, 8);
  out += json;
  out.resize(offset, '\0');
  return out += engine;
}

constexpr std::string_view kPlainJson =
    R"({"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},{"name":"y","dtype":"","shape":[],"is_input":false}],)"
    R"("aliased_io":[],"hardware_compatible":true,"device_id":1,"serialized_metadata":"","target_platform":""})";
constexpr std::string_view kAliasJson =
    R"({"io_bindings":[{"name":"in_k","dtype":"","shape":[],"is_input":true},{"name":"out_k","dtype":"","shape":[],"is_input":false}],)"
    R"("aliased_io":[{"output":"out_k","input":"in_k","kind":"kv_cache_update"}],"hardware_compatible":false,"device_id":0,)"
    R"("serialized_metadata":"","target_platform":""})";

Metadata plain() {
  Metadata metadata;
  metadata.bindings = {{"x", true}, {"y", false}};
  metadata.hardware_compatible = true;
  metadata.device_id = 1;
  return metadata;
}

Metadata with_alias() {
  Metadata metadata;
  metadata.bindings = {{"in_k", true}, {"out_k", false}};
  metadata.aliases = {{"out_k", "in_k", Alias::Kind::kKvCacheUpdate}};
  return metadata;
}

// The two vectors are bytes of the official writer (268 bytes, SHA-256 7f243f4c...; 339 bytes, SHA-256 f97eec19...).
TEST(TensorRtBlob, WritesTheOfficialBytes) {
  EXPECT_EQ(payload(plain(), "engine-bytes"), by_hand("TR01", kPlainJson, "engine-bytes"));
  EXPECT_EQ(payload(plain(), "engine-bytes").size(), 268u);
  EXPECT_EQ(payload(with_alias(), "eng"), by_hand("TR02", kAliasJson, "eng"));
  EXPECT_EQ(payload(with_alias(), "eng").size(), 339u);
}

TEST(TensorRtBlob, ReadsWhatItWrote) {
  Metadata metadata = with_alias();
  metadata.bindings.push_back({"n\xc3\xa9\xf0\x9f\x98\x80 \"\\\n\x01\x7f", false});
  metadata.aliases[0].kind = Alias::Kind::kUser;
  metadata.device_id = 7;
  metadata.serialized_metadata = "gASV";
  metadata.target_platform = "linux_x86_64";
  const std::string blob = payload(metadata, "eng") + "behind";
  EXPECT_NE(blob.find(R"(n\u00e9\ud83d\ude00 \"\\\n\u0001\u007f)"), std::string::npos);
  const auto read = read_blob(bytes_of(blob));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->metadata.bindings.size(), 3u);
  EXPECT_EQ(read->metadata.bindings[2].name, metadata.bindings[2].name);
  EXPECT_TRUE(read->metadata.bindings[0].is_input);
  EXPECT_FALSE(read->metadata.bindings[1].is_input);
  ASSERT_EQ(read->metadata.aliases.size(), 1u);
  EXPECT_EQ(read->metadata.aliases[0].kind, Alias::Kind::kUser);
  EXPECT_EQ(read->metadata.device_id, 7);
  EXPECT_EQ(read->metadata.serialized_metadata, "gASV");
  EXPECT_EQ(read->metadata.target_platform, "linux_x86_64");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read->engine.data()), read->engine.size()), "eng");
  EXPECT_EQ(reinterpret_cast<const char*>(read->engine.data()) - blob.data(), static_cast<ptrdiff_t>(blob.size() - 9));
}

TEST(TensorRtBlob, NamesAnEngineInADataFile) {
  Metadata metadata = plain();
  metadata.engine_key = "engine/0";
  const std::string blob = payload(metadata, "");
  const auto read = read_blob(bytes_of(blob));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata.engine_key, "engine/0");
  EXPECT_TRUE(read->engine.empty());
  EXPECT_FALSE(blob_head(metadata, 3).ok());
  EXPECT_FALSE(blob_head(plain(), 0).ok());
}

TEST(TensorRtBlob, TakesOtherOrdersAndUnknownMembers) {
  const std::string blob = by_hand("TR01", R"({"later": [1, {"a": null}], "device_id": 3, "aliased_io": [{"input": "aliased_io", "output": "device_id"}],
    "io_bindings": [{"is_input": true, "name": "aliased_io"}, {"name": "device_id", "is_input": false}]})", "e");
  const auto read = read_blob(bytes_of(blob));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata.device_id, 3);
  EXPECT_EQ(read->metadata.aliases[0].kind, Alias::Kind::kKvCacheUpdate);
}

TEST(TensorRtBlob, RefusesWhatIsNoPayload) {
  struct Case {
    const char* json;
    const char* message;
  };
  constexpr Case kCases[] = {
      {"{}", "no io_bindings"},
      {R"({"io_bindings":[{"name":"x"}]})", "does not say whether it is an input"},
      {R"({"io_bindings":[{"name":"","is_input":true}]})", "a binding has no name"},
      {R"({"io_bindings":[{"name":"x","is_input":true},{"name":"x","is_input":false}]})", "two bindings are named 'x'"},
      {R"({"io_bindings":[{"name":"x","is_input":1}]})", "expected true or false"},
      {R"({"io_bindings":[],"device_id":2147483648})", "no CUDA ordinal"},
      {R"({"io_bindings":[],"device_id":-1})", ""},
      {R"({"io_bindings":[],"aliased_io":[{"output":"y","input":"x"}]})", "which is no input"},
      {R"({"io_bindings":[{"name":"x","is_input":true}],"aliased_io":[{"input":"x"}]})", "names no output"},
      {R"({"io_bindings":[{"name":"x","is_input":true}],"aliased_io":[{"output":"y","input":"x","kind":"other"}]})", "kind 'other'"},
      {R"({"io_bindings":[],"engine_key":"k"})", "it has an engine and names 'k'"},
      {R"({"io_bindings":[]} x)", ""},
      {R"({"io_bindings":[)", ""},
  };
  for (const Case& one : kCases) {
    const std::string message = message_of(by_hand("TR01", one.json, "e"));
    EXPECT_NE(message, "") << one.json;
    EXPECT_NE(message.find(one.message), std::string::npos) << one.json << ": " << message;
  }
  const std::string good = by_hand("TR01", kPlainJson, "engine-bytes");
  EXPECT_EQ(message_of(good), "");
  EXPECT_NE(message_of(by_hand("TR03", kPlainJson, "e")).find("another version"), std::string::npos);
  const auto with = [&](size_t at, uint64_t value, size_t size) {
    std::string changed = good;
    std::memcpy(changed.data() + at, &value, size);
    return message_of(changed);
  };
  EXPECT_NE(with(4, 31, 4).find("inside the header"), std::string::npos);
  EXPECT_NE(with(12, 250, 4).find("no multiple of 16"), std::string::npos);
  EXPECT_NE(with(8, 0xffffffff, 4).find("metadata ends at byte"), std::string::npos);
  EXPECT_NE(with(12, 32, 4).find("reaches into the engine"), std::string::npos);
  EXPECT_NE(with(16, 13, 8).find("an engine of 13 bytes"), std::string::npos);
  EXPECT_NE(with(16, 0 - uint64_t{64}, 8).find("an engine of 18446744073709551552 bytes"), std::string::npos);
  EXPECT_NE(with(16, 0, 8).find("has no engine"), std::string::npos);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(message_of(good.substr(0, size)), "") << size;
}

TEST(TensorRtBlob, RefusesToWriteWhatItWouldNotRead) {
  const auto refused = [](Metadata metadata) { return !blob_head(metadata, 1).ok(); };
  Metadata metadata = plain();
  EXPECT_FALSE(refused(metadata));
  metadata.bindings[0].name = "\xff";
  EXPECT_TRUE(refused(metadata));
  for (const char* text : {"\xc3", "\xed\xa0\x80", "\xc0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "a\xf0\x9f\x98"}) {
    metadata.bindings[0].name = text;
    EXPECT_TRUE(refused(metadata)) << text;
  }
  metadata.bindings[0].name = "y";
  EXPECT_TRUE(refused(metadata));
  metadata = plain();
  metadata.device_id = -1;
  EXPECT_TRUE(refused(metadata));
  metadata = with_alias();
  metadata.aliases[0].input = "out_k";
  EXPECT_TRUE(refused(metadata));
}

std::vector<std::string> record() { return {"10", "e0", "1%9%0%0%H100", "", "x%k", "y%k_out", "1", "meta", "linux_x86_64", "0", "", "0", "k_out@k@kv_cache_update"}; }

TEST(EngineRecord, ReadsTheSlots) {
  const auto read = read_record(record());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->name, "e0");
  EXPECT_EQ(read->metadata.device_id, 1);
  ASSERT_EQ(read->metadata.bindings.size(), 4u);
  EXPECT_EQ(read->metadata.bindings[1].name, "k");
  EXPECT_TRUE(read->metadata.bindings[1].is_input);
  EXPECT_EQ(read->metadata.bindings[3].name, "k_out");
  EXPECT_FALSE(read->metadata.bindings[3].is_input);
  EXPECT_TRUE(read->metadata.hardware_compatible);
  EXPECT_FALSE(read->needs_output_allocator);
  ASSERT_EQ(read->metadata.aliases.size(), 1u);
  EXPECT_EQ(read->metadata.aliases[0].output, "k_out");
}

TEST(EngineRecord, RefusesOtherSlots) {
  const std::pair<size_t, const char*> faults[] = {{0, "11"},   {2, ""},        {2, "gpu%9"},  {2, "99999999999"}, {4, "x%x"}, {4, "x%"},
                                                   {6, "true"}, {9, ""},        {12, "a@k"},   {12, "y@k@other"},  {12, "y@z@user"}};
  for (const auto& [slot, text] : faults) {
    std::vector<std::string> slots = record();
    slots[slot] = text;
    EXPECT_FALSE(read_record(slots).ok()) << slot << " " << text;
  }
  std::vector<std::string> slots = record();
  slots.pop_back();
  EXPECT_FALSE(read_record(slots).ok());
}

}  // namespace
}  // namespace pteron::tensorrt
