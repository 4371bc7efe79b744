// Zip reader: good archives of every form, and damage of every kind.
#include "base/zip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include "base/crc32.h"
#include "base/zip_test_writer.h"
#include "base/zip_write.h"

namespace pteron {
namespace {

using test::ZipWriter;

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string text_of(const ZipBytes& bytes) { return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()}; }
std::string error_of(const std::string& archive) {
  const auto zip = ZipFile::open(as_bytes(archive), nullptr);
  return zip.ok() ? "no error" : std::string(zip.status().message());
}

ZipWriter two_entries() {
  ZipWriter writer;
  writer.add("m/a.json", "{\"config\": {}}");
  writer.add("m/empty", "");
  return writer;
}

TEST(Zip, StoredEntriesAreNotCopied) {
  const std::string archive = two_entries().finish();
  const auto zip = ZipFile::open(as_bytes(archive), nullptr);
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  ASSERT_EQ(zip->entries().size(), 2u);
  const ZipEntry* entry = zip->find("m/a.json");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->data_offset % 64, 0u);
  const auto bytes = zip->read(*entry, true);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(text_of(*bytes), "{\"config\": {}}");
  EXPECT_EQ(bytes->bytes.data(), as_bytes(archive).data() + entry->data_offset);
  EXPECT_EQ(zip->find("m/none"), nullptr);
  EXPECT_TRUE(zip->read(*zip->find("m/empty"), true)->bytes.empty());
}

TEST(Zip, DeflatedEntriesAreInflated) {
  ZipWriter writer;
  const std::string text(10000, 'x');
  writer.add("m/big", text, true);
  const std::string archive = writer.finish();
  const auto zip = ZipFile::open(as_bytes(archive), nullptr);
  ASSERT_TRUE(zip.ok());
  const auto bytes = zip->read(zip->entries()[0], false);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(text_of(*bytes), text);
}

TEST(Zip, Zip64FieldsAndRecordsAreRead) {
  const std::string archive = two_entries().finish(true);
  const auto zip = ZipFile::open(as_bytes(archive), nullptr);
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  EXPECT_EQ(text_of(*zip->read(zip->entries()[0], true)), "{\"config\": {}}");
}

TEST(Zip, EveryTruncationIsAnError) {
  const std::string archive = two_entries().finish();
  for (size_t size = 0; size < archive.size(); ++size) {
    const std::string cut = archive.substr(0, size);
    const std::vector<char> exact(cut.begin(), cut.end());
    const auto zip = ZipFile::open(std::as_bytes(std::span(exact.data(), exact.size())), nullptr);
    ASSERT_FALSE(zip.ok()) << size;
    ASSERT_EQ(zip.status().code(), Code::kInvalidFile) << size;
  }
}

TEST(Zip, EveryFlippedBitIsAnErrorOrHarmless) {
  const std::string archive = two_entries().finish(true);
  for (size_t i = 0; i < archive.size() * 8; ++i) {
    std::vector<char> damaged(archive.begin(), archive.end());
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    const auto zip = ZipFile::open(std::as_bytes(std::span(damaged.data(), damaged.size())), nullptr);
    if (!zip.ok()) continue;
    for (const ZipEntry& entry : zip->entries()) {
      const auto bytes = zip->read(entry, true);
      if (bytes.ok() && entry.name == "m/a.json") {
        ASSERT_EQ(text_of(*bytes), "{\"config\": {}}") << i;
      }
    }
  }
}

TEST(Zip, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(error_of(""), "the file is empty, a zip archive is expected");
  EXPECT_NE(error_of("<html>not found</html>").find("not a zip archive"), std::string::npos);
  const std::string good = two_entries().finish();
  EXPECT_NE(error_of(good.substr(0, 100)).find("truncated"), std::string::npos);
  ZipWriter twice;
  twice.add("m/a", "1");
  twice.add("m/a", "2");
  EXPECT_NE(error_of(twice.finish()).find("occurs twice"), std::string::npos);
  ZipWriter encrypted = two_entries();
  encrypted.entries[0].flags |= 1;
  EXPECT_NE(error_of(encrypted.finish()).find("encrypted"), std::string::npos);
  ZipWriter method = two_entries();
  method.entries[0].method = 12;
  EXPECT_NE(error_of(method.finish()).find("compression method 12"), std::string::npos);
  ZipWriter overlap = two_entries();
  overlap.entries[0].stored = overlap.entries[0].size = 100;
  EXPECT_NE(error_of(overlap.finish()).find("overlap"), std::string::npos);
  ZipWriter outside = two_entries();
  outside.entries[1].stored = outside.entries[1].size = uint64_t{1} << 40;
  EXPECT_NE(error_of(outside.finish(true)).find("overlap"), std::string::npos);
  ZipWriter name = two_entries();
  name.entries[0].name = "m/b.json";
  EXPECT_NE(error_of(name.finish()).find("another name"), std::string::npos);
}

TEST(Zip, ChecksumsAreThoseOfZlib) {
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>((random = random * 1664525u + 1013904223u) >> 24);
  for (size_t begin = 0; begin < 20; ++begin) {
    for (size_t size = 0; begin + size <= text.size(); size += size < 300 ? 1 : 61) {
      const auto part = as_bytes(text).subspan(begin, size);
      ASSERT_EQ(crc32_of(part), crc32_z(0, reinterpret_cast<const Bytef*>(part.data()), part.size())) << begin << " " << size;
    }
  }
}

TEST(Zip, ChecksumsAreCompared) {
  std::string archive = two_entries().finish();
  archive[archive.find("config")] = 'C';
  const auto zip = ZipFile::open(as_bytes(archive), nullptr);
  ASSERT_TRUE(zip.ok());
  EXPECT_TRUE(zip->read(*zip->find("m/a.json"), false).ok());
  EXPECT_NE(zip->read(*zip->find("m/a.json"), true).status().message().find("checksum"), std::string_view::npos);
}

TEST(Zip, DamagedDeflateDataAreRefused) {
  ZipWriter writer;
  writer.add("m/big", std::string(10000, 'x'), true);
  const uint64_t stored = writer.entries[0].stored;
  const std::string archive = writer.finish();
  const auto good = ZipFile::open(as_bytes(archive), nullptr);
  ASSERT_TRUE(good.ok());
  for (uint64_t i = 0; i < stored; ++i) {
    std::string damaged = archive;
    damaged[good->entries()[0].data_offset + i] ^= 0x5a;
    const auto zip = ZipFile::open(as_bytes(damaged), nullptr);
    ASSERT_TRUE(zip.ok());
    const auto bytes = zip->read(zip->entries()[0], false);
    const bool same = bytes.ok() && text_of(*bytes) == std::string(10000, 'x');  // the last byte has bits that mean nothing
    EXPECT_TRUE(!bytes.ok() || same) << i;
    EXPECT_EQ(same, i + 1 == stored) << i;
  }
}

TEST(ZipWrite, ReadsBack) {
  const ZipItem items[] = {{"first", ""}, {"folder/second", "text"}, {"third", std::string(70000, 'x')}};
  const auto made = write_zip(items);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(*made, *write_zip(items));
  const auto file = ZipFile::open(std::as_bytes(std::span(*made)), nullptr);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->entries().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(file->entries()[i].name, items[i].name);
    const auto content = file->read(file->entries()[i], true);
    ASSERT_TRUE(content.ok()) << content.status().message();
    EXPECT_TRUE(std::ranges::equal(content->bytes, std::as_bytes(std::span(items[i].content))));
  }
  EXPECT_FALSE(write_zip(std::vector<ZipItem>{{std::string(70000, 'n'), ""}}).ok());
  EXPECT_FALSE(write_zip(std::vector<ZipItem>(65535)).ok());
}

}  // namespace
}  // namespace pteron
