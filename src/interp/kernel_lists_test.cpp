// The kernels that the compiler may name against those that the runtime has, per profile. A name on one side only would be a failure at load.
#include <gtest/gtest.h>

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
  for (const std::string_view name : kNames) EXPECT_TRUE(runtime_has(name)) << name;
}

}  // namespace
}  // namespace pteron
