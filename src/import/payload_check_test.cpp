// Checksums of weights: the damaged one is named, whichever thread finds it.
#include "import/payload_check.h"

#include <gtest/gtest.h>

#include <array>

#include "base/str_cat.h"
#include "base/zip_test_writer.h"

namespace pteron::importer {
namespace {

constexpr size_t kEntries = 12, kEntryBytes = size_t{1} << 18;  // together more than what is worth a thread

std::string archive_of(size_t damaged) {
  test::ZipWriter zip;
  for (size_t i = 0; i < kEntries; ++i) zip.add(str_cat("w", i), std::string(kEntryBytes, static_cast<char>('a' + i)));
  std::string file = zip.finish();
  if (damaged < kEntries) file[file.find(std::string(64, static_cast<char>('a' + damaged))) + kEntryBytes / 2] ^= 4;
  return file;
}

TEST(PayloadCheck, NamesTheDamagedWeight) {
  for (size_t i = 0; i < 8; ++i) {
    const size_t damaged = std::array{size_t{0}, kEntries / 2, kEntries - 1, kEntries}[i / 2];
    const std::string file = archive_of(damaged);
    const auto zip = ZipFile::open(std::as_bytes(std::span(file)), nullptr);
    ASSERT_TRUE(zip.ok());
    PayloadCheck check(*zip);
    for (const ZipEntry& entry : zip->entries()) {
      check.add(entry, std::string(entry.name));
      check.add(entry, "again");  // counts once
    }
    check.start(i % 2 == 0);
    const Status found = check.finish();
    EXPECT_EQ(found.ok(), damaged == kEntries);
    EXPECT_EQ(check.finish().message(), found.message());
    if (damaged == kEntries) continue;
    EXPECT_EQ(found.code(), Code::kInvalidFile);
    EXPECT_NE(found.message().find(str_cat("weight 'w", damaged, "'")), std::string::npos) << found.message();
  }
}

TEST(PayloadCheck, MayBeLeftUnfinished) {
  const std::string file = archive_of(3);
  const auto zip = ZipFile::open(std::as_bytes(std::span(file)), nullptr);
  ASSERT_TRUE(zip.ok());
  PayloadCheck check(*zip);
  for (const ZipEntry& entry : zip->entries()) check.add(entry, std::string(entry.name));
  check.start(true);
}

}  // namespace
}  // namespace pteron::importer
