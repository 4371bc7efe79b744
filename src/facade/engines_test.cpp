// Archives with prebuilt TensorRT engines (tests/archives/make_engines.py): compiled, loaded and run with the fake engine library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/null/runtime/backend.h"
#include "backends/tensorrt/runtime/test_load.h"
#include "pteron/compile.h"
#include "pteron/program.h"

namespace pteron::tensorrt::testing {
namespace {

CompileSettings settings_for(const std::string& name) {
  CompileSettings settings;
  settings.methods = {{"forward", std::string(PTERON_ENGINES) + "/" + name + ".pt2"}};
  return settings;
}

/// A compiled archive, loaded with the fake library.
struct Compiled {
  FakeWorld world;
  FakeLibrary library{world};
  std::unique_ptr<DelegateBackend> backend = make_backend(library, {});
  FileInMemory file;
  std::vector<FileInMemory> data;
  CompileSummary summary;
  std::shared_ptr<Program> program;

  void compile(const CompileSettings& settings) {
    auto edge = export_program(settings);
    ASSERT_TRUE(edge.ok()) << edge.status().message();
    auto made = edge->finalize();
    ASSERT_TRUE(made.ok()) << made.status().message();
    summary = made->summary();
    auto bytes = made->bytes();
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    file = *bytes;
    auto files = made->data_files();
    ASSERT_TRUE(files.ok()) << files.status().message();
    data = *files;
  }
  Status load(bool with_data = true) {
    LoadOptions options;
    options.delegates = {backend.get(), &null::backend()};
    for (const FileInMemory& d : data) {
      if (with_data) options.data_in_memory.push_back(d.bytes);
    }
    auto loaded = Program::load(file.bytes, options);
    if (!loaded.ok()) return loaded.status();
    program = std::move(loaded).value();
    return ok_status();
  }
  std::unique_ptr<Method> method() {
    EXPECT_OK(load());
    auto made = program == nullptr ? Result<std::unique_ptr<Method>>(Status(Code::kInternal, "not loaded")) : program->load_method("forward");
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }
  size_t count(std::string_view part) const {
    const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
};

Floats output(Method& method, size_t index) {
  auto value = method.output(index);
  EXPECT_TRUE(value.ok()) << value.status().message();
  const TensorView view = std::get<TensorView>(*value);
  return {view.as<float>(), view.as<float>() + view.numel()};
}

Status run(Method& method, std::vector<std::pair<Floats*, std::vector<int64_t>>> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    PTERON_TRY(method.set_input(i, make_contiguous_view(DType::kFloat32, inputs[i].second, inputs[i].first->data())));
  }
  return method.execute();
}

TEST(Engines, AnObjectCalledTwiceIsOnePayloadAndOneEngine) {
  Compiled c;
  c.compile(settings_for("object"));
  EXPECT_EQ(c.summary.backends, (std::vector<std::string>{"PteronCpuBackend", "TensorRTBackend"}));
  EXPECT_EQ(c.count("out q_1 sub x y"), 1u);
  EXPECT_EQ(c.count("aW4geCBm"), 0u);  // the base64 text of the archive
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  EXPECT_EQ(c.world.deserialized, 1);
  EXPECT_EQ(c.world.live_contexts, 2);
  Floats x = {0, 1, 2, 3}, y = {1, 1, 1, 1};
  EXPECT_OK(run(*method, {{&x, {4}}, {&y, {4}}}));
  // first: p = x + y, q = x - y; second call with (q, p): relu(q + p), q - p
  EXPECT_EQ(output(*method, 0), (Floats{0, 2, 4, 6}));
  EXPECT_EQ(output(*method, 1), (Floats{-2, -2, -2, -2}));
}

TEST(Engines, ABufferBetweenOtherBackendsWithAWeightAsInput) {
  Compiled c;
  c.compile(settings_for("buffer"));
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  Floats x = {0, 0, 0, 0};
  EXPECT_OK(run(*method, {{&x, {4}}}));
  const Floats found = output(*method, 0);
  const Floats expected = {0.0f, 0.7615942f, 0.9640276f, 0.9950548f};  // tanh(sin(0) + [0, 1, 2, 3])
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
  EXPECT_EQ(c.world.device, 0);
}

TEST(Engines, ACacheIsTheProgramsStateAndLivesOn) {
  Compiled c;
  c.compile(settings_for("cache"));
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  Floats x = {1, 2, 3, 4};
  for (const float before : {0.0f, 1.0f, 2.0f}) {
    EXPECT_OK(run(*method, {{&x, {4}}}));
    EXPECT_EQ(output(*method, 0), (Floats{1 + before, 2 * (1 + before), 3 * (1 + before), 4 * (1 + before)}));
  }
  ASSERT_EQ(method->info().mutable_buffers.size(), 1u);
  EXPECT_EQ(method->info().mutable_buffers[0].name, "cache");
  method->reset();
  EXPECT_OK(run(*method, {{&x, {4}}}));
  EXPECT_EQ(output(*method, 0), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(x, (Floats{1, 2, 3, 4}));
}

TEST(Engines, WhatIsPlannedIsBoundWhereItLies) {
  Compiled c;
  c.world.integrated = true;  // host addresses count, if they are multiples of 256
  c.compile(settings_for("object"));
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  alignas(256) float x[4] = {0, 1, 2, 3};
  alignas(256) float y[4] = {1, 1, 1, 1};
  const int64_t sizes[] = {4};
  EXPECT_OK(method->set_input(0, make_contiguous_view(DType::kFloat32, sizes, x)));
  EXPECT_OK(method->set_input(1, make_contiguous_view(DType::kFloat32, sizes, y)));
  EXPECT_OK(method->execute());
  EXPECT_EQ(output(*method, 0), (Floats{0, 2, 4, 6}));
  EXPECT_EQ(c.world.copies, 0);
  alignas(256) float moved[8] = {9, 0, 1, 2, 3};  // the control: the same values four bytes further
  EXPECT_OK(method->set_input(0, make_contiguous_view(DType::kFloat32, sizes, moved + 1)));
  EXPECT_OK(method->execute());
  EXPECT_EQ(output(*method, 0), (Floats{0, 2, 4, 6}));
  EXPECT_EQ(c.world.copies, 1);
}

TEST(Engines, TensorsMayLieOnTheDevice) {
  Compiled c;
  CompileSettings settings = settings_for("object");
  settings.device_inputs = settings.device_outputs = true;
  settings.exclusions = {{"cpu", "aten::relu", false}};
  c.compile(settings);
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  EXPECT_EQ(method->info().inputs[0].device, (Device{DeviceType::kCuda, 0}));
  EXPECT_EQ(method->info().outputs[0].device, Device());  // of relu, a kernel of the host
  EXPECT_EQ(method->info().outputs[1].device, (Device{DeviceType::kCuda, 0}));
  const Floats x = {0, 1, 2, 3}, y = {1, 1, 1, 1};
  void *const on_x = c.library.allocate(16), *const on_y = c.library.allocate(16);
  ASSERT_TRUE(on_x != nullptr && on_y != nullptr);
  EXPECT_OK(c.library.copy(on_x, x.data(), 16, c.library.own_stream()));
  EXPECT_OK(c.library.copy(on_y, y.data(), 16, c.library.own_stream()));
  EXPECT_OK(c.library.wait(c.library.own_stream()));
  const int64_t sizes[] = {4};
  const auto set = [&](size_t index, void* data) {
    TensorView view = make_contiguous_view(DType::kFloat32, sizes, data);
    view.device = {DeviceType::kCuda, 0};
    EXPECT_OK(method->set_input(index, view));
  };
  set(0, on_x);
  set(1, on_y);
  EXPECT_OK(method->execute());  // makes the memory of the output
  c.world.copies = 0;
  EXPECT_OK(method->execute());
  EXPECT_EQ(c.world.copies, 1);  // what relu reads: nothing between the two engines, nothing at the edge
  EXPECT_EQ(output(*method, 0), (Floats{0, 2, 4, 6}));
  Floats second(4);
  const auto value = method->output(1);
  ASSERT_TRUE(value.ok());
  EXPECT_OK(method->copy_to_host(std::get<TensorView>(*value), second.data(), 16));
  EXPECT_EQ(second, (Floats{-2, -2, -2, -2}));
  method.reset();
  c.program.reset();
  c.library.free(on_x);
  c.library.free(on_y);
}

TEST(Engines, AWeightLiesOnTheDeviceFromTheLoadOn) {
  for (const bool external : {false, true}) {
    Compiled c;
    CompileSettings settings = settings_for("buffer");
    settings.device_outputs = true;
    settings.external_weights = external;
    c.compile(settings);
    EXPECT_EQ(c.data.size(), external ? 1u : 0u);
    auto method = c.method();
    ASSERT_NE(method, nullptr);
    Floats x = {0, 0, 0, 0};
    for (int call = 0; call < 2; ++call) {
      c.world.copies = 0;
      EXPECT_OK(run(*method, {{&x, {4}}}));
      EXPECT_EQ(c.world.copies, 2);  // what the host's sine made, what its tanh reads; not the weight
      const Floats found = output(*method, 0);
      const Floats expected = {0.0f, 0.7615942f, 0.9640276f, 0.9950548f};
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
      method->reset();
    }
    EXPECT_TRUE(method->info().mutable_buffers.empty());
  }
}

TEST(Engines, OneProgramOfThreeBackends) {
  Compiled c;
  CompileSettings settings = settings_for("buffer");
  settings.backends = {"cpu", "null:all"};
  settings.exclusions = {{"cpu", "sin", false}};
  settings.external_weights = true;
  c.compile(settings);
  EXPECT_EQ(c.summary.backends, (std::vector<std::string>{"PteronCpuBackend", "PteronNullBackend", "TensorRTBackend"}));
  ASSERT_EQ(c.data.size(), 1u);
  EXPECT_EQ(c.count("out p_0 add x w"), 0u);  // the engine is in the data file, and so is its weight
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  Floats x = {0.5f, 0.25f, -1, 2};
  EXPECT_OK(run(*method, {{&x, {4}}}));
  const Floats found = output(*method, 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], std::tanh(std::sin(x[i]) + static_cast<float>(i)), 1e-6);
}

TEST(Engines, ACacheMayLieOnTheDevice) {
  Compiled c;
  CompileSettings settings = settings_for("cache");
  settings.device_inputs = true;
  c.compile(settings);
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  EXPECT_EQ(method->info().mutable_buffers[0].device, (Device{DeviceType::kCuda, 0}));
  Floats x = {1, 2, 3, 4};
  for (const float before : {0.0f, 1.0f, 2.0f}) {
    c.world.copies = 0;
    EXPECT_OK(run(*method, {{&x, {4}}}));
    EXPECT_EQ(output(*method, 0), (Floats{1 + before, 2 * (1 + before), 3 * (1 + before), 4 * (1 + before)}));
    EXPECT_EQ(c.world.copies, 2);  // the host's x, the result; not the cache
  }
  method->reset();
  EXPECT_OK(run(*method, {{&x, {4}}}));
  EXPECT_EQ(output(*method, 0), (Floats{1, 2, 3, 4}));
}

TEST(Engines, OldValuesThatAreReadLaterAreNotOverwritten) {
  Compiled c;
  c.compile(settings_for("old_cache"));
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  Floats x = {1, 2, 3, 4}, mine = {1, 1, 1, 1};
  for (const float before : {0.0f, 1.0f}) {
    EXPECT_OK(run(*method, {{&x, {4}}, {&mine, {4}}}));
    const float y = 1 + before + before;  // (x + cache) + cache, of x = 1
    EXPECT_EQ(output(*method, 0), (Floats{y, 2 * y, 3 * y, 4 * y}));
    EXPECT_EQ(output(*method, 1), (Floats{2, 3, 4, 5}));
    EXPECT_EQ(output(*method, 2), (Floats{2, 3, 4, 5}));
    EXPECT_EQ(output(*method, 3), (Floats{2, 2, 2, 2}));
    EXPECT_EQ(mine, (Floats{1, 1, 1, 1}));
  }
}

TEST(Engines, AResultThatRepeatsAnUpdateMayBeLeftOut) {
  Compiled c;
  c.compile(settings_for("elided"));
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  Floats x = {1, 2, 3, 4}, mine = {1, 1, 2, 2};
  EXPECT_OK(run(*method, {{&x, {4}}, {&mine, {4}}}));
  EXPECT_EQ(output(*method, 0), (Floats{3, 4, 7, 8}));      // x + 2 * mine
  EXPECT_EQ(output(*method, 1), (Floats{3, 4, 7, 8}));      // what was written where 2 * mine lay, read behind the call
  EXPECT_EQ(output(*method, 2), (Floats{2, 3, 5, 6}));      // x + mine
  EXPECT_EQ(mine, (Floats{1, 1, 2, 2}));                    // the caller's own is only read,
  const auto after = method->input(1);                      // the program's shows the new value
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_EQ(Floats(after->as<float>(), after->as<float>() + 4), (Floats{2, 3, 5, 6}));
}

TEST(Engines, TwoEnginesHaveTheirOwnDevicesAndSizesThatVary) {
  Compiled c;
  c.compile(settings_for("two"));
  EXPECT_EQ(c.count("cuda:0"), 1u);
  EXPECT_EQ(c.count("cuda:1"), 1u);
  auto method = c.method();
  ASSERT_NE(method, nullptr);
  for (const int64_t batch : {1, 3, 8}) {
    Floats x(static_cast<size_t>(4 * batch), 1);
    EXPECT_OK(run(*method, {{&x, {batch, 4}}}));
    EXPECT_EQ(output(*method, 0), Floats(static_cast<size_t>(4 * batch), 5));
  }
  Floats x(36, 1);
  EXPECT_ERROR(run(*method, {{&x, {9, 4}}}), Code::kInvalidInput, "in 1..8,4]");
}

TEST(Engines, AnEngineInADataFileGivesTheSameBits) {
  Compiled inside, outside;
  inside.compile(settings_for("object"));
  CompileSettings settings = settings_for("object");
  settings.external_weights = true;
  outside.compile(settings);
  ASSERT_EQ(outside.data.size(), 1u);
  EXPECT_EQ(outside.count("out q_1 sub x y"), 0u);
  Floats x = {0.1f, 1.3f, 2.7f, 3.9f}, y = {1.1f, 0.7f, 0.3f, 1.9f};
  auto a = inside.method(), b = outside.method();
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_OK(run(*a, {{&x, {4}}, {&y, {4}}}));
  EXPECT_OK(run(*b, {{&x, {4}}, {&y, {4}}}));
  for (const size_t i : {0, 1}) EXPECT_EQ(output(*a, i), output(*b, i));
  b.reset();
  Status missing = outside.load(false);
  if (missing.ok()) missing = outside.program->load_method("forward").status();
  EXPECT_EQ(missing.code(), Code::kNotFound) << missing.message();
}

TEST(Engines, SettingsAreCheckedAndTravelWithEveryEngine) {
  const auto with = [](std::string key, std::string_view value) {
    CompileSettings settings = settings_for("two");
    const auto bytes = std::as_bytes(std::span(value));
    settings.specs = {{"tensorrt", {}, std::move(key), {bytes.begin(), bytes.end()}}};
    return settings;
  };
  Compiled c;
  c.compile(with("weight_streaming_budget", "8589934592"));
  EXPECT_EQ(c.count("8589934592"), 2u);
  Compiled pinned;
  pinned.compile(with("target_device", "CUDA:3"));
  EXPECT_EQ(pinned.count("CUDA:3"), 2u);
  EXPECT_EQ(pinned.count("cuda:1"), 0u);
  EXPECT_ERROR(export_program(with("weight_streaming_budget", "-1")).status(), Code::kInvalidInput,
               "weight_streaming_budget is a number of bytes below 2^63, found '-1'");
  EXPECT_ERROR(export_program(with("target_device", "gpu0")).status(), Code::kInvalidInput, "target_device is cuda:NUMBER");
  EXPECT_ERROR(export_program(with("external_engine_data", "x")).status(), Code::kInvalidInput, "no compile spec 'external_engine_data'");
}

}  // namespace
}  // namespace pteron::tensorrt::testing
