// Merging damaged programs and data files: a sentence, or a program that is whole; never a crash, nothing written.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "facade/merge.h"
#include "facade/save.h"
#include "facade/test_files.h"
#include "format/data_file.h"
#include "format/program_view.h"
#include "pteron/compile.h"

namespace pteron {
namespace {

using Bytes = std::vector<std::byte>;

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Two programs with their weights outside; the first and its weights are damaged.
class MergeDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, model, backend] : {std::tuple{"a", "mlp_float32", "cpu"}, std::tuple{"b", "decoder_cache", "portable"}}) {
      CompileSettings settings;
      settings.methods = {{name, sample(model)}};
      settings.backends = {backend};
      settings.external_weights = true;
      ASSERT_TRUE(save(settings, path(name, ".pte")).ok());
    }
    program_ = content(path("a", ".pte"));
    data_ = content(path("a", ".ptd"));
  }
  std::string path(std::string_view name, std::string_view ending) const { return scratch_.path + "/" + std::string(name) + std::string(ending); }

  /// True if the programs can be merged; then the merged one is written and read back.
  bool merges() {
    facade::MergeOptions options;
    options.programs = {path("a", ".pte"), path("b", ".pte")};
    options.data_name = "c";
    auto merged = facade::merge_programs(options);
    if (!merged.ok()) {
      EXPECT_FALSE(merged.status().message().empty());
      return false;
    }
    const auto saved = facade::save_files((*merged)->finished, {.path = path("c", ".pte"), .sync = false, .force = true});
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    if (!saved.ok()) return false;
    const Bytes program = content(path("c", ".pte")), data = content(path("c", ".ptd"));
    EXPECT_TRUE(format::verify_program(program).ok());
    EXPECT_TRUE(format::verify_data_file(data).ok());
    return true;
  }

  /// Bits and words of `good` changed at `count` places, and `count` lengths; returns how many files were refused.
  size_t damage(const std::string& file, const Bytes& good, size_t count) {
    size_t refused = 0;
    for (size_t n = 0; n < count; ++n) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
      const size_t at = static_cast<size_t>((state_ >> 33) % (good.size() - 4));
      Bytes bytes = good;
      if (n % 3 == 0) {
        bytes.resize(at);
      } else if (n % 3 == 1) {
        bytes[at] ^= static_cast<std::byte>(1 << (n / 3 % 8));
      } else {
        constexpr uint32_t kExtremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
        std::memcpy(bytes.data() + at / 4 * 4, &kExtremes[n / 3 % std::size(kExtremes)], 4);
      }
      write(file, bytes);
      refused += !merges();
    }
    write(file, good);
    return refused;
  }

  Scratch scratch_;
  Bytes program_, data_;
  uint64_t state_ = 1;
};

TEST_F(MergeDamage, ProgramsAndDataFilesThatWereChanged) {
  ASSERT_TRUE(merges());
  constexpr size_t kCount = 600;
  EXPECT_GT(damage(path("a", ".pte"), program_, kCount), kCount / 3);
  EXPECT_GT(damage(path("a", ".ptd"), data_, kCount), kCount / 3);
  EXPECT_TRUE(merges());
}

}  // namespace
}  // namespace pteron
