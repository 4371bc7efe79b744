// The file of measured choices: what is measured once is not measured again, and no file can do harm. Products run on a small library that counts
// (fake_blas.cpp), which is found where cuBLASLt is looked for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/cuda/runtime/blas.h"
#include "backends/cuda/runtime/choices.h"

namespace pteron::cuda {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// The third offer of the library is the fastest. Counts.
class FakeTimer final : public Timer {
 public:
  Result<float> measure(const std::function<Status()>& work) override {
    PTERON_TRY(work());
    ++count;
    return count / 3 % 8 == 2 ? 1.0f : 2.0f + static_cast<float>(count);
  }
  int count = 0;
};

class CudaChoices : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("PTERON_CUDA_PATH", PTERON_FAKE_BLAS_FOLDER, 1);
    folder_ = ::testing::TempDir() + "/pteron_choices_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    path_ = folder_ + "/cuda_choices.txt";
  }
  void TearDown() override {
    unsetenv("PTERON_CUDA_PATH");
    std::filesystem::remove_all(folder_);
  }

  /// What a process does: measures the products that it does not find. Gives how often it measured.
  int process(std::string_view machine, std::initializer_list<int64_t> rows, std::string* note = nullptr) {
    Choices choices(folder_, machine);
    auto blas = Blas::create(&choices);
    EXPECT_TRUE(blas.ok()) << blas.status().message();
    FakeTimer timer;
    for (const int64_t count : rows) {
      Product p;
      p.rows = count;
      p.columns = p.depth = 16;
      p.a = {room_, 16, 1, 0};
      p.b = {room_, 16, 1, 0};
      p.d = {room_, 16, 1, 0};
      const Status status = (*blas)->run(p, {nullptr, room_, sizeof room_, &timer});
      EXPECT_TRUE(status.ok()) << status.message();
    }
    choices.save();
    if (note != nullptr) *note = choices.take_note();
    return timer.count;
  }

  alignas(256) char room_[4096] = {};
  std::string folder_, path_;
};

TEST_F(CudaChoices, ASecondProcessMeasuresNothing) {
  EXPECT_GT(process("device, driver 13000", {1, 2}), 0);
  EXPECT_EQ(process("device, driver 13000", {1, 2}), 0);
  EXPECT_GT(process("device, driver 13000", {1, 3}), 0);  // another shape
  EXPECT_EQ(process("device, driver 13000", {3, 2, 1}), 0);
  EXPECT_GT(process("device, driver 13010", {1}), 0);
  EXPECT_GT(process("another device, driver 13000", {1}), 0);
  EXPECT_EQ(process("device, driver 13000", {1, 2, 3}), 0);  // the others' are kept
  std::filesystem::remove(path_);
  EXPECT_GT(process("device, driver 13000", {1}), 0);
  EXPECT_EQ(process("device, driver 13000", {1}), 0);
}

TEST_F(CudaChoices, DamagedLinesAreMeasuredAnew) {
  process("device", {1, 2, 3});
  const std::string good = contents(path_);
  const size_t line = good.find('\n') + 1;
  for (const size_t at : {line, line + 31, line + 32, line + 40, good.find('\n', line) - 1}) {
    std::string text = good;
    text[at] = text[at] == '0' ? '1' : '0';
    write(path_, text);
    std::string note;
    const int measured = process("device", {1, 2, 3}, &note);
    EXPECT_NE(note.find("1 line is damaged and ignored"), std::string::npos) << note;
    EXPECT_GT(measured, 0);
    EXPECT_EQ(process("device", {1, 2, 3}), 0) << "the file was not repaired";
  }
  write(path_, good.substr(0, good.size() - 20));  // cut off
  EXPECT_GT(process("device", {1, 2, 3}), 0);
}

TEST_F(CudaChoices, OtherFilesAreIgnored) {
  std::filesystem::create_directories(folder_);
  for (const std::string& text : {std::string("something else\n"), std::string(), std::string("pteron cuda choices 2\n"), std::string(1000, '\0')}) {
    write(path_, text);
    std::string note;
    EXPECT_GT(process("device", {1}, &note), 0);
    EXPECT_NE(note.find("is no file of measured choices"), std::string::npos) << note;
    EXPECT_EQ(process("device", {1}), 0);
  }
}

TEST_F(CudaChoices, AValueThatTheLibraryDoesNotOfferIsMeasuredAnew) {
  process("device", {1});
  // Another algorithm under the same key: what a library that lost one would find.
  Choices choices(folder_, "device");
  const std::string text = contents(path_);
  const std::string key = text.substr(text.find('\n') + 1, 32);
  ASSERT_TRUE(choices.find(key).has_value());
  choices.put(key, std::string(64, 'x'));
  choices.save();
  EXPECT_GT(process("device", {1}), 0);
  EXPECT_EQ(process("device", {1}), 0);
}

TEST_F(CudaChoices, AFolderThatCannotBeWrittenIsANote) {
  write(folder_, "a file in its place");
  std::string note;
  EXPECT_GT(process("device", {1}, &note), 0);
  EXPECT_NE(note.find("choices of algorithms are not kept"), std::string::npos) << note;
}

TEST_F(CudaChoices, TheFolderIsTheUsers) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  unsetenv("PTERON_CUDA_CACHE");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(Choices::default_folder(), "/cache/pteron");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(Choices::default_folder(), "/home/someone/.cache/pteron");
  setenv("PTERON_CUDA_CACHE", "/other", 1);
  EXPECT_EQ(Choices::default_folder(), "/other");
  setenv("PTERON_CUDA_CACHE", "off", 1);
  EXPECT_EQ(Choices::default_folder(), "");
  unsetenv("PTERON_CUDA_CACHE");
  setenv("HOME", home.c_str(), 1);
  folder_.clear();
  EXPECT_GT(process("device", {1}), 0);
  EXPECT_GT(process("device", {1}), 0);  // nothing is kept
}

}  // namespace
}  // namespace pteron::cuda
