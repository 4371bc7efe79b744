// What loading leaves for the first call: states of kernels, made once, of arguments as they were at load.
#include <gtest/gtest.h>

#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

using Floats = std::vector<float>;

/// Counts what the kernel below is asked. Tests run one after another.
struct Asked {
  int early = 0, made = 0, failures = 0;
  int64_t rows = 0;  ///< of the argument when the state was made
};
Asked asked;

struct Factor final : KernelState {
  float value = 3;
};

Result<std::shared_ptr<const KernelState>> prepare_scaled(const KernelLoad& load, std::span<Value* const> args) {
  if (args[0]->tensor.dtype() != DType::kFloat32) return Status(Code::kInvalidFile, "scaled takes float32");
  if (load.pool == nullptr) {
    ++asked.early;
    return std::shared_ptr<const KernelState>();
  }
  if (asked.failures > 0) {
    --asked.failures;
    return Status(Code::kOutOfMemory, "no memory for a factor");
  }
  ++asked.made;
  asked.rows = args[0]->tensor.size(0);
  return std::shared_ptr<const KernelState>(std::make_shared<Factor>());
}

Status scaled_out(KernelContext& context, const Tensor& self, Tensor& out) {
  if (context.state == nullptr) return Status(Code::kInternal, "no state");
  PTERON_TRY(resize(out, self.sizes()));
  for (int64_t i = 0; i < self.numel(); ++i) out.as<float>()[i] = self.as<float>()[i] * static_cast<const Factor*>(context.state)->value;
  return ok_status();
}

const KernelTable& kernels() {
  static const KernelTable table = [] {
    static constexpr Kernel kRows[] = {{"test::scaled.out", PTERON_KERNEL(scaled_out), nullptr, prepare_scaled}};
    KernelTable made = test_kernels();
    made.add(kRows);
    return made;
  }();
  return table;
}

/// forward(x) = scaled(scaled(x)) for x of up to four elements.
PlanBuilder scaled_twice(DType dtype = DType::kFloat32) {
  PlanBuilder b;
  format::TensorSpec input = b.planned({4}, true);
  input.dtype = dtype;
  const int32_t x = b.value(input), y = b.value(b.planned({4}, true)), out = b.value(b.planned({4}, true));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("test::scaled", "out", {x, y, y});
  b.call("test::scaled", "out", {y, out, out});
  return b;
}

LoadOptions options(bool pack_at_load) {
  asked = {};
  LoadOptions made = test_options();
  made.kernels = &kernels();
  made.pack_at_load = pack_at_load;
  return made;
}

Status call(Method& method, Floats x) {
  PTERON_TRY(method.set_input(0, view_of(x, {static_cast<int64_t>(x.size())})));
  return method.execute();
}

TEST(FinishLoading, MakesStatesBeforeTheFirstCall) {
  PlanBuilder b = scaled_twice();
  Loaded loaded = load(b, options(false));
  ASSERT_NE(loaded.method, nullptr);
  EXPECT_EQ(asked.early, 2);
  EXPECT_EQ(asked.made, 0);
  EXPECT_OK(call(*loaded.method, {1, 2}));
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{9, 18}));
  EXPECT_EQ(asked.made, 2);
  EXPECT_EQ(asked.rows, 4) << "the state is made for the largest sizes, not for those of the first call";
  EXPECT_OK(call(*loaded.method, {1, 2, 3, 4}));
  EXPECT_EQ(asked.made, 2);
}

TEST(FinishLoading, OrAtLoadIfTheCallerSaysSo) {
  PlanBuilder b = scaled_twice();
  Loaded loaded = load(b, options(true));
  ASSERT_NE(loaded.method, nullptr);
  EXPECT_EQ(asked.early, 0);
  EXPECT_EQ(asked.made, 2);
  EXPECT_OK(call(*loaded.method, {1}));
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{9}));
  EXPECT_EQ(asked.made, 2);
}

TEST(FinishLoading, TriesAgainAfterAnError) {
  PlanBuilder b = scaled_twice();
  Loaded loaded = load(b, options(false));
  ASSERT_NE(loaded.method, nullptr);
  asked.failures = 1;
  EXPECT_ERROR(call(*loaded.method, {1}), Code::kOutOfMemory, "method forward: instruction 0 (test::scaled.out): no memory for a factor");
  EXPECT_OK(call(*loaded.method, {1}));
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{9}));
  EXPECT_EQ(asked.made, 2);
}

TEST(FinishLoading, WhatDoesNotFitIsRefusedAtLoad) {
  PlanBuilder b = scaled_twice(DType::kInt32);
  EXPECT_ERROR(load_error(b, options(false)), Code::kInvalidFile, "scaled takes float32");
}

}  // namespace
}  // namespace pteron::runtime::testing
