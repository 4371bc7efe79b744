// The kernels that the compiler may name against those that the runtime has, per profile. A name on one side only would be a failure at load.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "compiler/profile.h"
#include "emit/emit.h"
#include "ir/op.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "runtime/prim_ops.h"

namespace pteron {
namespace {

bool runtime_has(std::string_view kernel) { return runtime::prim_kernels().find(kernel) != nullptr || ops::portable_kernels().find(kernel) != nullptr; }

TEST(KernelLists, HelpersOfOurProfileAreInTheRuntime) {
  for (const std::string_view name : emit::helper_kernels(emit::Profile::kPteron)) EXPECT_TRUE(runtime_has(name)) << name;
}

TEST(KernelLists, HelpersOfTheOfficialProfileAreOfficialKernels) {
  for (const std::string_view name : emit::helper_kernels(emit::Profile::kExecutorch)) EXPECT_TRUE(compiler::executorch_has_kernel(name)) << name;
}

TEST(KernelLists, KernelsOfTheCatalogAreInTheRuntime) {
  auto catalog = ops::make_catalog();
  ASSERT_TRUE(catalog.ok());
  size_t named = 0;
  for (const ir::Op* op : catalog->all()) {
    if (op->kernel.empty()) continue;
    ++named;
    EXPECT_TRUE(runtime_has(op->kernel)) << op->name << " names " << op->kernel;
  }
  EXPECT_GT(named, 300u);
}

TEST(KernelLists, OfficialKernelsRunHereAsWell) {
  constexpr std::string_view kNames[] = {
#define EXECUTORCH_KERNEL(name) name,
#include "compiler/executorch_kernels.inc"
#undef EXECUTORCH_KERNEL
  };
  // Random results are refused by name; gradients are for training, which this runtime does not do.
  constexpr std::string_view kGaps[] = {"aten::convolution_backward.out", "aten::max_pool2d_with_indices_backward.grad_input", "aten::native_dropout.out",
                                        "aten::rand.out", "aten::randn.out"};
  for (const std::string_view name : kNames) {
    const bool is_gap = std::find(std::begin(kGaps), std::end(kGaps), name) != std::end(kGaps);
    EXPECT_NE(runtime_has(name), is_gap) << name;
  }
}

}  // namespace
}  // namespace pteron
