// The compile API: settings that are wrong, what the summary says, programs that run, nothing left behind.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "pteron/compile.h"
#include "pteron/program.h"

namespace pteron {
namespace {

std::string sample(const char* name) { return std::string(PTERON_SAMPLES "/") + name + "/model.pt2"; }

CompileSettings settings_for(const char* name) {
  CompileSettings settings;
  settings.methods = {{"forward", sample(name)}};
  return settings;
}

void expect_refused(const CompileSettings& settings, Code code, std::string_view text) {
  const auto made = compile_to_memory(settings);
  ASSERT_FALSE(made.ok()) << text;
  EXPECT_EQ(made.status().code(), code) << made.status().message();
  EXPECT_NE(made.status().message().find(text), std::string_view::npos) << made.status().message();
}

/// A folder of its own, removed with what is in it.
struct Scratch {
  std::string path;
  Scratch() {
    char name[] = "/tmp/pteron_facade_XXXXXX";
    path = ::mkdtemp(name);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    DIR* folder = ::opendir(path.c_str());
    while (const dirent* entry = ::readdir(folder)) {
      if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
    }
    ::closedir(folder);
    return out;
  }
  ~Scratch() {
    for (const std::string& name : names()) std::remove((path + "/" + name).c_str());
    ::rmdir(path.c_str());
  }
};

TEST(Facade, WrongSettingsAreNamed) {
  expect_refused({}, Code::kInvalidInput, "at least one method");
  CompileSettings settings = settings_for("mlp_float32");
  settings.methods.push_back(settings.methods[0]);
  expect_refused(settings, Code::kInvalidInput, "two methods named 'forward'");
  settings = settings_for("mlp_float32");
  settings.constants = {{"forward", {1}}};
  expect_refused(settings, Code::kInvalidInput, "two methods named 'forward'");
  settings = settings_for("mlp_float32");
  settings.methods[0].name.clear();
  expect_refused(settings, Code::kInvalidInput, "without a name");
  for (const uint64_t alignment : {0, 8, 48, 8192}) {
    settings = settings_for("mlp_float32");
    settings.alignment_bytes = alignment;
    expect_refused(settings, Code::kInvalidInput, "power of two from 16 to 4096");
  }
  settings = settings_for("mlp_float32");
  settings.backends = {"cpu", "abacus"};
  expect_refused(settings, Code::kUnsupported, "backend 'abacus' does not exist; there are 'portable', 'cpu'");
  settings.backends = {"cpu"};
  settings.profile = CompileProfile::kExecutorch;
  expect_refused(settings, Code::kInvalidInput, "official runtime");
  settings = settings_for("mlp_float32");
  settings.strict = true;
  settings.backends = {"portable"};
  expect_refused(settings, Code::kInvalidInput, "strict");
  settings.strict = false;
  settings.precision = CompilePrecision::kBf16;
  expect_refused(settings, Code::kInvalidInput, "kBf16");
  settings = settings_for("mlp_float32");
  settings.size_bounds = {{"s99", 4}};
  expect_refused(settings, Code::kInvalidInput, "no size named s99");
  settings = settings_for("mlp_float32");
  settings.kernel_libraries = {"/none/lib.so"};
  expect_refused(settings, Code::kNotFound, "/none/lib.so");
}

TEST(Facade, BadArchivesAreNamed) {
  CompileSettings settings;
  settings.methods = {{"forward", "/none/model.pt2"}};
  expect_refused(settings, Code::kNotFound, "/none/model.pt2");
  expect_refused(settings_for("file_cut_half"), Code::kInvalidFile, "zip");
  expect_refused(settings_for("file_unknown_operator"), Code::kUnsupported, "mylib::twist");
}

TEST(Facade, ProgramsRunOnBothEngines) {
  for (const std::vector<std::string>& backends : {std::vector<std::string>{}, std::vector<std::string>{"cpu"}, std::vector<std::string>{"portable"}}) {
    CompileSettings settings = settings_for("mlp_float32");
    settings.backends = backends;
    settings.constants = {{"get_size", {256, "text", true, 0.5}}};
    const auto made = compile_to_memory(settings);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->summary.file_bytes, made->bytes.size());
    EXPECT_EQ(made->summary.methods[0].name, "forward");
    EXPECT_GT(made->summary.weight_bytes, 0u);
    EXPECT_EQ(made->summary.backends.empty(), !backends.empty() && backends[0] == "portable");
    const auto program = Program::load(made->bytes);
    ASSERT_TRUE(program.ok()) << program.status().message();
    ASSERT_TRUE((*program)->load_method("forward").ok());
    const auto constant = (*program)->load_method("get_size");
    ASSERT_TRUE(constant.ok()) << constant.status().message();
    ASSERT_TRUE((*constant)->execute().ok());
    EXPECT_EQ(std::get<int64_t>(*(*constant)->output(0)), 256);
    EXPECT_EQ(std::get<std::string_view>(*(*constant)->output(1)), "text");
    EXPECT_EQ(std::get<bool>(*(*constant)->output(2)), true);
    EXPECT_EQ(std::get<double>(*(*constant)->output(3)), 0.5);
  }
}

TEST(Facade, FilesAppearCompleteOrNotAtAll) {
  const Scratch scratch;
  const std::string path = scratch.path + "/model.pte";
  EXPECT_FALSE(compile_to_file(settings_for("file_unknown_operator"), path).ok());
  EXPECT_TRUE(scratch.names().empty());
  const auto made = compile_to_file(settings_for("mlp_float32"), path);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"model.pte"});
  const auto in_memory = compile_to_memory(settings_for("mlp_float32"));
  ASSERT_TRUE(in_memory.ok());
  EXPECT_EQ(made->file_bytes, in_memory->bytes.size());
  EXPECT_FALSE(compile_to_file(settings_for("file_cut_half"), path).ok());
  EXPECT_TRUE(Program::load(path).ok());  // the older file stays
  CompileSettings own;
  own.methods = {{"forward", path}};
  const auto overwrites = compile_to_file(own, path);
  ASSERT_FALSE(overwrites.ok());
  EXPECT_EQ(overwrites.status().code(), Code::kInvalidInput);
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"model.pte"});
}

}  // namespace
}  // namespace pteron
