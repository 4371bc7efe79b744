// Small programs for tests of this room: made with the writer of format/, run with kernels of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_sink.h"
#include "format/program.h"
#include "runtime/kernel.h"
#include "runtime/state.h"
#include "runtime/test_kernels.h"

namespace pteron::runtime::testing {

/// Collects one plan.
struct PlanBuilder {
  format::ProgramSpec program;
  format::PlanSpec plan;

  [[gnu::noinline]] int32_t value(format::ValueSpec spec) {
    plan.values.push_back(std::move(spec));
    return static_cast<int32_t>(plan.values.size()) - 1;
  }
  static format::TensorSpec tensor(std::vector<int64_t> sizes, bool dynamic = false) {
    format::TensorSpec spec;
    spec.sizes = std::move(sizes);
    spec.dynamism = dynamic ? format::Dynamism::kBounded : format::Dynamism::kStatic;
    return spec;
  }
  /// A planned tensor at the end of arena 1.
  format::TensorSpec planned(std::vector<int64_t> sizes, bool dynamic = false) {
    format::TensorSpec spec = tensor(std::move(sizes), dynamic);
    if (plan.arenas.empty()) plan.arenas.push_back({});
    spec.allocation = format::Allocation{1, static_cast<uint64_t>(plan.arenas[0].size_bytes)};
    int64_t bytes = static_cast<int64_t>(dtype_size(spec.dtype));
    for (const int64_t size : spec.sizes) bytes *= size;
    plan.arenas[0].size_bytes += (bytes + 63) / 64 * 64;
    return spec;
  }
  int32_t op(std::string name, std::string overload) {
    plan.operators.push_back({std::move(name), std::move(overload)});
    return static_cast<int32_t>(plan.operators.size()) - 1;
  }
  void call(std::string name, std::string overload, std::vector<int32_t> args) {
    const int32_t index = op(std::move(name), std::move(overload));
    plan.instructions.push_back(format::KernelCall{index, std::move(args)});
  }
  /// The file's bytes.
  std::vector<std::byte> bytes() {
    program.plans.push_back(plan);
    MemorySink sink;
    const Status status = format::write_program(program, {}, sink);
    EXPECT_TRUE(status.ok()) << status.message();
    return {sink.bytes().begin(), sink.bytes().end()};
  }
};

/// A loaded program that owns its bytes.
struct Loaded {
  std::vector<std::byte> bytes;
  std::shared_ptr<Program> program;
  std::unique_ptr<Method> method;
};

inline LoadOptions test_options() {
  LoadOptions options;
  options.kernels = &test_kernels();
  options.threads = 1;
  return options;
}

inline Loaded load(PlanBuilder& builder, LoadOptions options = test_options()) {
  Loaded made;
  made.bytes = builder.bytes();
  auto program = load_program(nullptr, made.bytes, "test.pte", options);
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return made;
  made.program = std::move(program).value();
  auto method = made.program->load_method("forward");
  EXPECT_TRUE(method.ok()) << method.status().message();
  if (method.ok()) made.method = std::move(method).value();
  return made;
}

/// The error of loading method forward.
inline Status load_error(PlanBuilder& builder, LoadOptions options = test_options()) {
  const std::vector<std::byte> bytes = builder.bytes();
  auto program = load_program(nullptr, bytes, "test.pte", options);
  if (!program.ok()) return program.status();
  return program.value()->load_method("forward").status();
}

inline TensorView view_of(std::vector<float>& data, std::vector<int64_t> sizes) { return make_contiguous_view(DType::kFloat32, sizes, data.data()); }

/// Row-major elements of a float output.
inline std::vector<float> floats(const Method& method, size_t index) {
  const auto output = method.output(index);
  EXPECT_TRUE(output.ok()) << output.status().message();
  if (!output.ok() || !std::holds_alternative<TensorView>(*output)) return {};
  const TensorView view = std::get<TensorView>(*output);
  std::vector<float> data(static_cast<size_t>(view.numel()));
  copy_strided(view, make_contiguous_view(DType::kFloat32, view.sizes(), data.data()));
  return data;
}

#define EXPECT_OK(expr)                                  \
  do {                                                   \
    const ::pteron::Status status_ = (expr);             \
    EXPECT_TRUE(status_.ok()) << status_.message();      \
  } while (false)

/// Code and a part of the message.
#define EXPECT_ERROR(expr, expected_code, part)                                                    \
  do {                                                                                             \
    const ::pteron::Status status_ = (expr);                                                       \
    EXPECT_EQ(status_.code(), expected_code) << status_.message();                                 \
    EXPECT_NE(status_.message().find(part), std::string_view::npos) << status_.message();          \
  } while (false)

}  // namespace pteron::runtime::testing
