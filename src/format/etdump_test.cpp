// ETDumps are read back as they were written; each kind of damage has a sentence.
#include "format/etdump.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "base/str_cat.h"
#include "schema/etdump_generated.h"

namespace pteron::format {
namespace {

constexpr std::array<int64_t, 2> kSizes = {2, 3};
constexpr std::array<std::byte, 3> kMetadata = {std::byte{1}, std::byte{2}, std::byte{3}};

Etdump sample_dump() {
  Etdump dump;
  dump.runs.push_back({"Default", -1, {"planned", "temporary"}});
  dump.runs.back().events.emplace_back(EtdumpProfile{"Method::init", {}, 5, 9, {}});
  dump.runs.back().events.emplace_back(EtdumpAllocation{1, uint64_t{1} << 40});
  dump.runs.push_back({"Execute", 3});
  auto& events = dump.runs.back().events;
  events.emplace_back(EtdumpProfile{"OPERATOR_CALL", {0, 4, -1, {}}, 10, ~uint64_t{0}, {}});
  events.emplace_back(EtdumpProfile{"part", {0, 5, 7, {}}, 11, 12, kMetadata});
  events.emplace_back(EtdumpProfile{"", {0, 5, -1, "3: mm"}, 11, 12, {}});
  const EtdumpTensor tensor{DType::kInt16, kSizes, 128};
  events.emplace_back(EtdumpDebug{"add.out", {0, 6, -1, {}}, tensor, false});
  events.emplace_back(EtdumpDebug{"", {0, 6, 2, {}}, std::vector<EtdumpTensor>{tensor, tensor}, true});
  for (const EtdumpValue& value : {EtdumpValue(int64_t{-4}), EtdumpValue(true), EtdumpValue(0.25), EtdumpValue()})
    events.emplace_back(EtdumpDebug{"v", {}, value, true});
  return dump;
}

void expect_same_place(const EtdumpPlace& a, const EtdumpPlace& b) {
  EXPECT_EQ(a.chain, b.chain);
  EXPECT_EQ(a.instruction, b.instruction);
  EXPECT_EQ(a.delegate_number, b.delegate_number);
  EXPECT_EQ(a.delegate_text, b.delegate_text);
}

void expect_same_tensor(const EtdumpTensor& a, const EtdumpTensor& b) {
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_TRUE(std::ranges::equal(a.sizes, b.sizes));
  EXPECT_EQ(a.offset_bytes, b.offset_bytes);
}

void expect_same_value(const EtdumpValue& a, const EtdumpValue& b) {
  ASSERT_EQ(a.index(), b.index());
  if (const auto* tensor = std::get_if<EtdumpTensor>(&a)) expect_same_tensor(*tensor, std::get<EtdumpTensor>(b));
  if (const auto* number = std::get_if<int64_t>(&a)) {
    EXPECT_EQ(*number, std::get<int64_t>(b));
  }
  if (const auto* truth = std::get_if<bool>(&a)) {
    EXPECT_EQ(*truth, std::get<bool>(b));
  }
  if (const auto* real = std::get_if<double>(&a)) {
    EXPECT_EQ(*real, std::get<double>(b));
  }
  if (const auto* list = std::get_if<std::vector<EtdumpTensor>>(&a)) {
    const auto& other = std::get<std::vector<EtdumpTensor>>(b);
    ASSERT_EQ(list->size(), other.size());
    for (size_t i = 0; i < list->size(); ++i) expect_same_tensor((*list)[i], other[i]);
  }
}

void expect_same_event(const EtdumpEvent& a, const EtdumpEvent& b) {
  ASSERT_EQ(a.index(), b.index());
  if (const auto* profile = std::get_if<EtdumpProfile>(&a)) {
    const auto& other = std::get<EtdumpProfile>(b);
    EXPECT_EQ(profile->name, other.name);
    expect_same_place(profile->place, other.place);
    EXPECT_EQ(profile->start, other.start);
    EXPECT_EQ(profile->end, other.end);
    EXPECT_TRUE(std::ranges::equal(profile->metadata, other.metadata));
  } else if (const auto* allocation = std::get_if<EtdumpAllocation>(&a)) {
    EXPECT_EQ(allocation->allocator, std::get<EtdumpAllocation>(b).allocator);
    EXPECT_EQ(allocation->size_bytes, std::get<EtdumpAllocation>(b).size_bytes);
  } else {
    const auto &debug = std::get<EtdumpDebug>(a), &other = std::get<EtdumpDebug>(b);
    EXPECT_EQ(debug.name, other.name);
    EXPECT_EQ(debug.is_output, other.is_output);
    expect_same_place(debug.place, other.place);
    expect_same_value(debug.value, other.value);
  }
}

std::string refusal(std::span<const std::byte> file) {
  const auto dump = read_etdump(file);
  return dump.ok() ? std::string() : std::string(dump.status().message());
}

/// A dump with one event that the writer would not make.
Buffer file_of(flatbuffers::FlatBufferBuilder& fbb, flatbuffers::Offset<wire::etdump::Event> event, uint32_t version = 0) {
  const auto events = fbb.CreateVector(&event, 1);
  const auto run = wire::etdump::CreateRunData(fbb, 0, -1, 0, events);
  const auto runs = fbb.CreateVector(&run, 1);
  fbb.FinishSizePrefixed(wire::etdump::CreateETDump(fbb, version, runs), wire::etdump::ETDumpIdentifier());
  auto out = Buffer::create(fbb.GetSize());
  EXPECT_TRUE(out.ok());
  std::memcpy(out->data(), fbb.GetBufferPointer(), fbb.GetSize());
  return std::move(*out);
}

TEST(Etdump, ReadsWhatIsWritten) {
  const Etdump dump = sample_dump();
  const auto file = write_etdump(dump);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(is_etdump(file->span()));
  std::vector<std::byte> shifted(file->span().size() + 1);
  std::ranges::copy(file->span(), shifted.begin() + 1);
  for (const std::span<const std::byte> bytes : {std::span<const std::byte>(file->span()), std::span<const std::byte>(shifted).subspan(1)}) {
    const auto again = read_etdump(bytes);
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_EQ(again->runs.size(), dump.runs.size());
    for (size_t r = 0; r < dump.runs.size(); ++r) {
      EXPECT_EQ(again->runs[r].name, dump.runs[r].name);
      EXPECT_EQ(again->runs[r].bundled_case, dump.runs[r].bundled_case);
      EXPECT_EQ(again->runs[r].allocators, dump.runs[r].allocators);
      ASSERT_EQ(again->runs[r].events.size(), dump.runs[r].events.size());
      for (size_t i = 0; i < dump.runs[r].events.size(); ++i) expect_same_event(again->runs[r].events[i], dump.runs[r].events[i]);
    }
  }
}

TEST(Etdump, RefusesOtherFilesAndSizes) {
  const auto file = write_etdump(sample_dump());
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> bytes(file->span().begin(), file->span().end());
  EXPECT_NE(refusal(std::span(bytes).first(11)).find("identifier ED00 at byte 8 is expected"), std::string::npos);
  EXPECT_NE(refusal(std::span(bytes).first(bytes.size() - 1)).find(str_cat("says that it has ", bytes.size(), " bytes, found ", bytes.size() - 1)),
            std::string::npos);
  bytes.push_back(std::byte{0});
  EXPECT_NE(refusal(bytes).find("says that it has"), std::string::npos);
  bytes.pop_back();
  bytes[4] = std::byte{0xff};  // the root's place
  bytes[5] = std::byte{0xff};
  EXPECT_NE(refusal(bytes).find("table is damaged"), std::string::npos);
}

TEST(Etdump, RefusesWhatFlatbuffersDoNotSee) {
  namespace we = wire::etdump;
  flatbuffers::FlatBufferBuilder none, two, allocator, dtype, kind, absent, version;
  EXPECT_NE(refusal(file_of(none, we::CreateEvent(none)).span()).find("run 0, event 0: one event is expected, found 0"), std::string::npos);
  const auto profile = we::CreateProfileEvent(two);
  const auto allocation = we::CreateAllocationEvent(two);
  EXPECT_NE(refusal(file_of(two, we::CreateEvent(two, profile, allocation)).span()).find("found 2"), std::string::npos);
  const auto nowhere = we::CreateAllocationEvent(allocator, 0, 1);
  EXPECT_NE(refusal(file_of(allocator, we::CreateEvent(allocator, 0, nowhere)).span()).find("allocator 0 of 0"), std::string::npos);
  const auto tensor = we::CreateTensor(dtype, static_cast<wire::ScalarType>(99));
  const auto value = we::CreateValue(dtype, we::ValueType::Tensor, tensor);
  const auto debug = we::CreateDebugEvent(dtype, 0, -1, value);
  EXPECT_NE(refusal(file_of(dtype, we::CreateEvent(dtype, 0, 0, debug)).span()).find("dtype 99 is unknown"), std::string::npos);
  const auto odd = we::CreateValue(kind, static_cast<we::ValueType>(77));
  const auto odd_debug = we::CreateDebugEvent(kind, 0, -1, odd);
  EXPECT_NE(refusal(file_of(kind, we::CreateEvent(kind, 0, 0, odd_debug)).span()).find("kind 77 of a value is unknown"), std::string::npos);
  for (const we::ValueType type :
       {we::ValueType::Int, we::ValueType::Bool, we::ValueType::Float, we::ValueType::Double, we::ValueType::Tensor, we::ValueType::TensorList}) {
    flatbuffers::FlatBufferBuilder fbb;
    const auto empty = we::CreateValue(fbb, type);
    const auto holder = we::CreateDebugEvent(fbb, 0, -1, empty);
    EXPECT_NE(refusal(file_of(fbb, we::CreateEvent(fbb, 0, 0, holder)).span()).find("names is missing"), std::string::npos) << static_cast<int>(type);
  }
  const auto fine = we::CreateProfileEvent(version);
  const Buffer newer = file_of(version, we::CreateEvent(version, fine), 1);
  EXPECT_EQ(read_etdump(newer.span()).status().code(), Code::kUnsupported);
}

TEST(Etdump, RefusesToWriteMoreThanAGiB) {
  Etdump dump;
  dump.runs.push_back({"Execute"});
  const std::vector<std::byte> metadata(size_t{1} << 20);
  for (int i = 0; i < 1100; ++i) dump.runs.back().events.emplace_back(EtdumpProfile{"x", {}, 0, 1, metadata});
  EXPECT_EQ(write_etdump(dump).status().code(), Code::kInvalidInput);
}

}  // namespace
}  // namespace pteron::format
