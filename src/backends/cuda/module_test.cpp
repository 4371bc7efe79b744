// The container of kernels: what is written is read, and damaged bytes are refused.
#include "backends/cuda/module.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace pteron::cuda {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

Buffer example() {
  const std::string ptx("ptx\0", 4);
  const ModuleEntry entries[] = {{ModuleKind::kCubin, 90, bytes_of("machine code")}, {ModuleKind::kPtx, 80, bytes_of(ptx)}, {ModuleKind::kSource, 0, bytes_of("void")}};
  Result<Buffer> made = write_module(entries);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

TEST(Module, ReadsWhatWasWritten) {
  const Buffer module = example();
  const auto read = read_module(module.span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].sm, 90u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*read)[0].bytes.data()), (*read)[0].bytes.size()), "machine code");
  EXPECT_EQ((*read)[2].kind, ModuleKind::kSource);
  EXPECT_EQ(list_entries(*read), "sm_90 (cubin), sm_80 (ptx), source");
  EXPECT_EQ(list_entries({}), "nothing");
}

TEST(Module, RefusesDamage) {
  const Buffer module = example();
  for (size_t cut = 0; cut < module.size(); ++cut) EXPECT_FALSE(read_module(module.span().first(cut)).ok()) << cut;
  const auto with = [&](size_t at, auto value) {
    Buffer copy = example();
    std::memcpy(copy.data() + at, &value, sizeof value);
    return read_module(copy.span()).status().code();
  };
  EXPECT_EQ(with(0, 'x'), Code::kInvalidFile);
  EXPECT_EQ(with(8, uint32_t{2}), Code::kIncompatible);
  EXPECT_EQ(with(12, uint32_t{0xffffffff}), Code::kInvalidFile);
  EXPECT_EQ(with(16, uint32_t{9}), Code::kInvalidFile);
  EXPECT_EQ(with(24, uint64_t{0}), Code::kInvalidFile);
  EXPECT_EQ(with(24, ~uint64_t{15}), Code::kInvalidFile);
  EXPECT_EQ(with(32, ~uint64_t{0}), Code::kInvalidFile);
  EXPECT_EQ(with(32, uint64_t{0}), Code::kInvalidFile);
  EXPECT_EQ(with(56, uint64_t{3}), Code::kInvalidFile);
}

}  // namespace
}  // namespace pteron::cuda
