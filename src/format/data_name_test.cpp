// One row a rule: names that pass, names that do not and the words of the sentence that says why.
#include "format/data_name.h"

#include <gtest/gtest.h>

#include <string>

namespace pteron::format {
namespace {

TEST(DataName, AcceptsPlainNames) {
  for (const std::string_view name : {"a", "A", "z", "Z", "0", "9", "_", "model", "model-v2.1_fp16", "_default_external_constant", "com", "com0", "COM10", "lpt", "console",
                                      "xcon", "nul_", "ptd", "a.ptd.b", "comx", "lptx", "coma1"}) {
    EXPECT_TRUE(check_data_name(name).ok()) << name;
  }
  EXPECT_TRUE(check_data_name(std::string(kMaxDataName, 'a')).ok());
}

TEST(DataName, RefusesEachRuleWithItsOwnSentence) {
  const struct {
    std::string name;
    std::string_view words;
  } rows[] = {
      {"", "is empty"},
      {"a/b", "names a folder"},
      {"a\\b", "names a folder"},
      {"/", "names a folder"},
      {"c:", "names a drive"},
      {"Z:x", "names a drive"},
      {"1:x", "found ':'"},
      {"a b", "expected ASCII letters, digits, '.', '-' and '_', found ' '"},
      {"a$", "found '$'"},
      {"a@", "found '@'"},
      {"a[", "found '['"},
      {"a`", "found '`'"},
      {"a{", "found '{'"},
      {std::string("a\x1f"), "found byte 31"},
      {std::string("a\x7f"), "found byte 127"},
      {"\xc3\xa9", "found byte 195"},
      {std::string("a\0b", 3), "found byte 0"},
      {".a", "expected a letter, digit or '_' first, found '.'"},
      {"-a", "first, found '-'"},
      {std::string(kMaxDataName + 1, 'a'), "201 characters, at most 200"},
      {"model.ptd", "leave '.ptd' away"},
      {"model.PtD", "leave '.ptd' away"},
      {"con", "for a device"},
      {"PRN.txt", "for a device"},
      {"aux.a.b", "for a device"},
      {"NUL", "for a device"},
      {"com1", "for a device"},
      {"Com9.x", "for a device"},
      {"LPT1", "for a device"},
      {"lpt9", "for a device"},
  };
  for (const auto& row : rows) {
    const Status status = check_data_name(row.name);
    EXPECT_EQ(status.code(), Code::kInvalidInput) << row.name;
    EXPECT_NE(status.message().find(row.words), std::string_view::npos) << row.name << ": " << status.message();
  }
}

TEST(DataName, ProgramsAreNotNamedLikeDataFiles) {
  for (const std::string_view path : {"m.ptd", "m.PTD", "dir.x/m.Ptd", "m.ptd.", "m.ptd. .", "m.ptd ", ".ptd"}) {
    const Status status = check_program_path(path);
    EXPECT_EQ(status.code(), Code::kInvalidInput) << path;
    EXPECT_NE(status.message().find(path), std::string_view::npos) << status.message();
  }
  for (const std::string_view path : {"m.pte", "m", "m.ptd.pte", "a.ptd/m", "mptd", "ptd", "..", ""}) EXPECT_TRUE(check_program_path(path).ok()) << path;
}

TEST(DataName, StemAndCase) {
  EXPECT_EQ(path_stem("a/b.c/model.v2.pte"), "model.v2");
  EXPECT_EQ(path_stem("model"), "model");
  EXPECT_EQ(path_stem(".pte"), ".pte");
  EXPECT_EQ(path_stem("a/"), "");
  EXPECT_EQ(path_stem("a/b"), "b");
  EXPECT_TRUE(equal_but_for_case("aZ-9", "Az-9"));
  EXPECT_FALSE(equal_but_for_case("a", "ab"));
  EXPECT_FALSE(equal_but_for_case("@", "`"));
  EXPECT_FALSE(equal_but_for_case("[", "{"));
}

}  // namespace
}  // namespace pteron::format
