// Tests of .ptd files, manifests and content keys.
#include "format/data_file.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "format/content_hash.h"
#include "format/layout.h"

namespace pteron::format {
namespace {

constexpr std::array<float, 69> kNumbers = {1, 2, 3, 4, 5, 6, 7};

std::span<const std::byte> numbers(size_t bytes) { return std::as_bytes(std::span(kNumbers)).first(bytes); }

DataFileSpec sample_data() {
  DataFileSpec data;
  data.blobs.push_back({Payload::borrow(numbers(20)), 0});
  data.blobs.push_back({Payload::borrow(numbers(16)), 0});
  data.blobs.push_back({Payload::borrow(numbers(0)), 0});
  data.entries.push_back({"w", 0, DataLayout{DType::kFloat32, {5}, {}}});
  data.entries.push_back({"a", 1, DataLayout{DType::kFloat16, {2, 4}, {1, 0}}});
  data.entries.push_back({"same as w", 0, std::nullopt});
  data.entries.push_back({"empty", 2, std::nullopt});
  return data;
}

std::vector<std::byte> written(const DataFileSpec& data, uint64_t alignment = 16) {
  MemorySink sink;
  const Status status = write_data_file(data, {alignment}, sink);
  EXPECT_TRUE(status.ok()) << status.message();
  return {sink.bytes().begin(), sink.bytes().end()};
}

TEST(DataFile, HeaderHasTheDocumentedNumbers) {
  const std::vector<std::byte> file = written(sample_data());
  EXPECT_EQ(read_tag(file, 4), "FT01");
  EXPECT_EQ(read_tag(file, 8), "FH01");
  EXPECT_EQ(read_number<uint32_t>(file, 12), 40u);
  EXPECT_EQ(read_number<uint64_t>(file, 16), 48u);
  const uint64_t table = read_number<uint64_t>(file, 24), base = read_number<uint64_t>(file, 32);
  EXPECT_EQ(base % 128, 0u);
  EXPECT_LT(base - (48 + table), 128u);
  EXPECT_EQ(read_number<uint64_t>(file, 40), 128u + 16);
  EXPECT_EQ(file.size(), base + 144);
  EXPECT_EQ(written(sample_data()), file);
}

TEST(DataFile, RoundTrip) {
  const std::vector<std::byte> file = written(sample_data(), 64);
  std::vector<std::byte> room(file.size() + 16);
  for (const size_t shift : {size_t{0}, size_t{3}}) {
    std::memcpy(room.data() + shift, file.data(), file.size());
    auto view = verify_data_file({room.data() + shift, file.size()});
    ASSERT_TRUE(view.ok()) << view.status().message();
    ASSERT_EQ(view->entries().size(), 4u);
    const DataEntry* w = view->find("w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(std::memcmp(w->bytes.data(), kNumbers.data(), 20), 0);
    EXPECT_EQ(view->find("same as w")->bytes.data(), w->bytes.data());
    EXPECT_FALSE(view->find("same as w")->layout.has_value());
    EXPECT_EQ(view->find("a")->layout->dim_order, (std::vector<uint8_t>{1, 0}));
    EXPECT_TRUE(view->find("empty")->bytes.empty());
    EXPECT_EQ(view->find("b"), nullptr);
  }
}

TEST(DataFile, WriterRefusesBadSpecs) {
  MemorySink sink;
  DataFileSpec data = sample_data();
  data.entries[0].blob = 3;
  EXPECT_EQ(write_data_file(data, {}, sink).code(), Code::kInvalidInput);
  data = sample_data();
  data.entries[0].key = "a";
  EXPECT_EQ(write_data_file(data, {}, sink).code(), Code::kInvalidInput);
  data = sample_data();
  data.entries[0].layout->sizes = {6};
  EXPECT_EQ(write_data_file(data, {}, sink).code(), Code::kInvalidInput);
  EXPECT_TRUE(sink.bytes().empty());
}

TEST(DataFile, RefusesCutFiles) {
  const std::vector<std::byte> file = written(sample_data());
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(verify_data_file(cut).status().code(), Code::kInvalidFile) << size;
  }
}

TEST(DataFile, RefusesRangesOutside) {
  std::vector<std::byte> file = written(sample_data());
  for (const size_t at : {size_t{16}, size_t{24}, size_t{32}, size_t{40}}) {
    for (const uint64_t value : {~uint64_t{0}, uint64_t{1} << 40}) {
      const uint64_t before = read_number<uint64_t>(file, at);
      write_number<uint64_t>(file, at, value);
      EXPECT_EQ(verify_data_file(file).status().code(), Code::kInvalidFile) << at;
      write_number<uint64_t>(file, at, before);
    }
  }
}

TEST(Manifest, DescribesTheFileAndFindsDamage) {
  DataFileSpec data = sample_data();
  auto hash = add_manifest(data);
  ASSERT_TRUE(hash.ok());
  EXPECT_EQ(hash->size(), 32u);
  std::vector<std::byte> file = written(data);
  auto view = verify_data_file(file);
  ASSERT_TRUE(view.ok());
  auto checked = check_manifest(*view, true);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ((*checked)->hash, *hash);
  EXPECT_EQ((*checked)->find("none"), nullptr);
  ASSERT_NE((*checked)->find("w"), nullptr);
  EXPECT_EQ((*checked)->find("w")->key, "w");
  const DataEntry* manifest = view->find(std::string(kManifestPrefix) + *hash);
  ASSERT_NE(manifest, nullptr);
  const std::string text(reinterpret_cast<const char*>(manifest->bytes.data()), manifest->bytes.size());
  EXPECT_NE(text.find(" 16 float16 2x4 a\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" 20 - - same as w\n"), std::string::npos) << text;
  auto parsed = parse_manifest(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*manifest_text(*parsed), text);
  // A flipped weight bit is found only when the bytes are verified; a flipped manifest bit always.
  const size_t weight = static_cast<size_t>(view->find("w")->bytes.data() - file.data());
  file[weight] ^= std::byte{1};
  EXPECT_TRUE(check_manifest(*view, false).ok());
  EXPECT_EQ(check_manifest(*view, true).status().code(), Code::kInvalidFile);
  file[weight] ^= std::byte{1};
  file[static_cast<size_t>(manifest->bytes.data() - file.data()) + 30] ^= std::byte{1};
  EXPECT_EQ(check_manifest(*view, false).status().code(), Code::kInvalidFile);
}

TEST(Manifest, ParserRefusesBadLines) {
  const std::string hash(32, 'a');
  for (const std::string& line : {std::string("x 1 - - k"), hash + " x - - k", hash + " 1 float31 2 k", hash + " 1 int8 2y3 k", hash + " 1 int8  k",
                                  std::string("")}) {
    EXPECT_EQ(parse_manifest("pteron manifest 1\n" + line + "\n").status().code(), Code::kInvalidFile) << line;
  }
  EXPECT_EQ(parse_manifest("pteron manifest 2\n").status().code(), Code::kInvalidFile);
  EXPECT_TRUE(parse_manifest("pteron manifest 1\n").ok());
  auto scalar = parse_manifest("pteron manifest 1\n" + hash + " 1 int8 scalar a key\n");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ((*scalar)[0].key, "a key");
  EXPECT_TRUE((*scalar)[0].layout->sizes.empty());
}

TEST(ContentHash, DependsOnTypeSizesAndBytesOnly) {
  const std::array<int64_t, 2> sizes = {2, 3}, other = {3, 2};
  const Payload borrowed = Payload::borrow(numbers(24));
  auto key = weight_key(DType::kFloat32, sizes, borrowed);
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(key->size(), 7u + 32u);
  EXPECT_EQ(key->substr(0, 7), "pteron/");
  // The same logical values, stored column-major.
  const std::array<float, 6> columns = {1, 4, 2, 5, 3, 6};
  StridedBytes strided{DType::kFloat32, {2, 3}, {1, 2}, {}, reinterpret_cast<const std::byte*>(columns.data())};
  EXPECT_EQ(*weight_key(DType::kFloat32, sizes, *Payload::gather(strided)), *key);
  EXPECT_NE(*weight_key(DType::kFloat32, other, borrowed), *key);
  EXPECT_NE(*weight_key(DType::kInt32, sizes, borrowed), *key);
  // XXH3-128 of no bytes, from the algorithm's published test values.
  EXPECT_EQ(hash_hex({}), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHash, OfManyTensorsIsThatOfEach) {
  // More than threads are worth, and among them one that is made.
  constexpr int64_t kCount = 9, kFloats = int64_t{1} << 19;
  const std::array<int64_t, 1> sizes = {kFloats};
  std::vector<std::vector<float>> values(kCount);
  std::vector<Payload> payloads;
  std::vector<HashedTensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].assign(kFloats, static_cast<float>(i));
    const auto bytes = std::as_bytes(std::span(values[i]));
    payloads.push_back(i != 4 ? Payload::borrow(bytes) : Payload::produce(bytes.size(), [bytes]() -> Result<Buffer> {
      PTERON_ASSIGN(Buffer made, Buffer::create(bytes.size()));
      std::ranges::copy(bytes, made.data());
      return made;
    }));
  }
  for (const Payload& payload : payloads) tensors.push_back({DType::kFloat32, sizes, &payload});
  const auto hashes = tensor_hashes(tensors);
  ASSERT_TRUE(hashes.ok());
  ASSERT_EQ(hashes->size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ((*hashes)[i], *tensor_hash_hex(DType::kFloat32, sizes, payloads[i])) << i;
  EXPECT_TRUE(tensor_hashes({})->empty());

  payloads[4] = Payload::produce(4 * kFloats, []() -> Result<Buffer> { return Status(Code::kInvalidFile, "no such bytes"); });
  EXPECT_EQ(tensor_hashes(tensors).status().message(), "no such bytes");
}

}  // namespace
}  // namespace pteron::format
