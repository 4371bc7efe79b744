// What the tests of this folder share: payloads made of an engine's text, tensors in host and device memory, a log, loading.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/tensorrt/blob.h"
#include "backends/tensorrt/runtime/backend.h"
#include "backends/tensorrt/runtime/fake_library.h"
#include "pteron/host.h"
#include "runtime/value.h"

#define EXPECT_OK(expr)                             \
  do {                                              \
    const ::pteron::Status status_ = (expr);        \
    EXPECT_TRUE(status_.ok()) << status_.message(); \
  } while (false)
#define EXPECT_ERROR(expr, expected_code, part)                                           \
  do {                                                                                    \
    const ::pteron::Status status_ = (expr);                                              \
    EXPECT_EQ(status_.code(), expected_code) << status_.message();                        \
    EXPECT_NE(status_.message().find(part), std::string_view::npos) << status_.message(); \
  } while (false)

namespace pteron::tensorrt::testing {

using Floats = std::vector<float>;
inline constexpr std::string_view kAdd = "in x f32 4\nin y f32 4\nout z add x y\n";
inline constexpr std::string_view kCache = "in x f32 4\nin c f32 4\nout z copy x\nout n add c x\nalias n c\n";

struct Lines final : LogSink {
  std::vector<std::string> lines;
  void log(LogLevel, std::string_view message) override { lines.emplace_back(message); }
  bool has(std::string_view part) const {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
};

/// Bytes under keys.
struct Files final : NamedData {
  std::map<std::string, std::string, std::less<>> bytes;
  std::optional<std::span<const std::byte>> find(std::string_view key) const override {
    const auto found = bytes.find(key);
    if (found == bytes.end()) return std::nullopt;
    return std::as_bytes(std::span(found->second));
  }
};

/// A tensor argument. Sizes default to one dim.
struct Argument {
  runtime::Value value;
  void make(float* data, std::vector<int64_t> sizes, const std::vector<int64_t>& bound) {
    value.tag = runtime::Tag::kTensor;
    value.tensor.view = make_contiguous_view(DType::kFloat32, sizes, data);
    value.tensor.dynamic = true;
    for (size_t d = 0; d < bound.size(); ++d) value.tensor.bound[d] = bound[d], value.tensor.dim_order[d] = static_cast<uint8_t>(d);
  }
  std::vector<float> values() const {
    const auto* data = static_cast<const float*>(value.tensor.view.data);
    return {data, data + value.tensor.numel()};
  }
};
struct Host : Argument {
  float* data = nullptr;  ///< at a multiple of 256, room for 64
  explicit Host(Floats values) : Host(values, {static_cast<int64_t>(values.size())}, {static_cast<int64_t>(values.size())}) {}
  Host(const Floats& values, std::vector<int64_t> sizes, const std::vector<int64_t>& bound) : data(static_cast<float*>(std::aligned_alloc(256, 256))) {
    std::ranges::copy(values, data);
    make(data, std::move(sizes), bound);
  }
  ~Host() { std::free(data); }
  Host(const Host&) = delete;
};

/// What a payload is made of.
struct Given {
  std::string_view engine;
  std::vector<Alias> aliases = {};
  std::vector<std::string> hidden = {};                            ///< outputs that the payload does not list
  std::vector<std::pair<std::string, std::string>> settings = {};  ///< compile specs
  int64_t device = 0;
  std::string key = {};                ///< of the engine in a data file
  std::vector<Binding> bindings = {};  ///< instead of the engine's own
};

struct World {
  FakeWorld world;
  FakeLibrary library{world};
  TensorRtOptions options;
  Lines log;
  Files files;
  std::vector<std::vector<std::byte>> payloads;  ///< alive as long as the delegates
  std::vector<std::unique_ptr<DelegateBackend>> backends;
  std::vector<runtime::Value*> arguments;

  World() { payloads.reserve(64); }

  std::vector<std::byte> payload(const Given& given) const {
    Metadata metadata;
    metadata.device_id = given.device;
    metadata.aliases = given.aliases;
    metadata.engine_key = given.key;
    metadata.bindings = given.bindings;
    if (metadata.bindings.empty() && given.engine.starts_with("in ")) {
      for (const EngineTensor& tensor : fake_plan(given.engine).tensors) {
        if (std::ranges::find(given.hidden, tensor.name) == given.hidden.end()) metadata.bindings.push_back({tensor.name, tensor.is_input});
      }
    }
    if (metadata.bindings.empty()) metadata.bindings = {{"x", true}};
    const auto head = blob_head(metadata, given.key.empty() ? given.engine.size() : 0);
    EXPECT_TRUE(head.ok()) << head.status().message();
    std::string bytes = *head;
    if (given.key.empty()) bytes += given.engine;
    const auto view = std::as_bytes(std::span(bytes));
    return {view.begin(), view.end()};
  }

  Result<std::unique_ptr<Delegate>> load(const Given& given) {
    backends.push_back(make_backend(library, options));
    return load(given, *backends.back());
  }
  Result<std::unique_ptr<Delegate>> load(const Given& given, const DelegateBackend& backend) { return load_bytes(payload(given), given, backend); }
  Result<std::unique_ptr<Delegate>> load_bytes(std::vector<std::byte> bytes, const Given& given, const DelegateBackend& backend) {
    payloads.push_back(std::move(bytes));
    std::vector<DelegateSetting> settings;
    for (const auto& [key, value] : given.settings) settings.push_back({key, std::as_bytes(std::span(value))});
    return backend.load({payloads.back(), settings, "forward", files, serial_pool(), &log});
  }
  std::unique_ptr<Delegate> load_ok(const Given& given) {
    auto made = load(given);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }
  std::span<runtime::Value* const> args(std::vector<std::reference_wrapper<Argument>> list) {
    arguments.clear();
    for (Argument& argument : list) arguments.push_back(&argument.value);
    return arguments;
  }
};

/// On the device, `offset` bytes behind a multiple of 256.
struct OnDevice : Argument {
  World& world;
  char* block = nullptr;
  void* address = nullptr;
  OnDevice(World& w, std::vector<float> values, size_t offset = 0) : world(w) {
    block = static_cast<char*>(w.library.allocate(values.size() * sizeof(float) + offset));
    address = block + offset;
    std::copy(values.begin(), values.end(), static_cast<float*>(address));
    const auto count = static_cast<int64_t>(values.size());
    make(static_cast<float*>(address), {count}, {count});
  }
  ~OnDevice() { world.library.free(block); }
  OnDevice(const OnDevice&) = delete;
};

}  // namespace pteron::tensorrt::testing
