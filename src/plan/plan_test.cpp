// Memory planner: no overlap among live buffers, alignment, and arenas close to the lower bound.
#include "plan/plan.h"

#include <gtest/gtest.h>

namespace pteron::plan {
namespace {

void expect_valid(const std::vector<BufferRequest>& requests, const MemoryPlan& plan, uint64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % alignment, 0u);
    EXPECT_LE(plan.offsets[i] + requests[i].size_bytes, plan.arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool meet = requests[i].first <= requests[j].last && requests[j].first <= requests[i].last;
      if (!meet || requests[i].size_bytes == 0 || requests[j].size_bytes == 0) continue;
      const bool apart = plan.offsets[i] + requests[i].size_bytes <= plan.offsets[j] || plan.offsets[j] + requests[j].size_bytes <= plan.offsets[i];
      EXPECT_TRUE(apart) << i << " and " << j << " overlap";
    }
  }
}

TEST(PlanMemory, ChainReusesTwoBuffers) {
  std::vector<BufferRequest> chain;
  for (uint32_t i = 0; i < 10; ++i) chain.push_back({100, i, i + 1});
  const auto plan = plan_memory(chain, {64});
  ASSERT_TRUE(plan.ok());
  expect_valid(chain, *plan, 64);
  EXPECT_EQ(plan->arena_bytes, 256u);
  EXPECT_EQ(plan->lower_bound_bytes, 256u);
}

TEST(PlanMemory, RandomProgramsStayNearTheBound) {
  uint64_t seed = 7;
  const auto next = [&](uint64_t below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<BufferRequest> requests;
    for (uint32_t i = 0; i < 60; ++i) requests.push_back({1 + next(5000), i, static_cast<uint32_t>(i + 1 + next(6))});
    const auto plan = plan_memory(requests, {16});
    ASSERT_TRUE(plan.ok());
    expect_valid(requests, *plan, 16);
    EXPECT_GE(plan->arena_bytes, plan->lower_bound_bytes);
    EXPECT_LE(static_cast<double>(plan->arena_bytes), 1.15 * static_cast<double>(plan->lower_bound_bytes));
  }
}

// Blocks of a residual network (ConvNeXt), in stages whose images shrink: x stays while two of its size and one four times as large come and go.
// Best fit puts an x into the middle of the arena, and there are too many buffers for the search over orders.
TEST(PlanMemory, ResidualStagesReachTheBound) {
  std::vector<BufferRequest> requests = {{1204224, 1, 2}};
  uint32_t at = 1;
  uint64_t x = 1204224;
  for (const int blocks : {3, 3, 9, 3}) {
    for (int block = 0; block < blocks; ++block) {
      const std::vector<BufferRequest> one = {{x, block == 0 ? at + 1 : at, at + 8}, {x, at + 2, at + 3},     {x, at + 3, at + 4}, {x / 96, at + 3, at + 3},
                                              {x / 96, at + 3, at + 3},              {4 * x, at + 4, at + 6}, {x, at + 6, at + 7}};
      requests.insert(requests.end(), one.begin(), one.end());
      at += 7;
    }
    const std::vector<BufferRequest> down = {{x, at, at + 2}, {x, at + 2, at + 3}, {x / 96, at + 2, at + 2}, {x / 96, at + 2, at + 2}};
    requests.insert(requests.end(), down.begin(), down.end());
    x /= 2;
    at += 2;
  }
  const auto plan = plan_memory(requests, {64});
  ASSERT_TRUE(plan.ok());
  expect_valid(requests, *plan, 64);
  EXPECT_LE(static_cast<double>(plan->arena_bytes), 1.02 * static_cast<double>(plan->lower_bound_bytes));
}

TEST(PlanMemory, EmptyAndZeroSized) {
  const auto nothing = plan_memory({}, {64});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->arena_bytes, 0u);
  const std::vector<BufferRequest> zeros = {{0, 0, 5}, {0, 1, 2}};
  const auto plan = plan_memory(zeros, {64});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 0u);
}

TEST(PlanMemory, RefusesOverflow) {
  const std::vector<BufferRequest> huge = {{~uint64_t{0} - 100, 0, 1}};
  const auto plan = plan_memory(huge, {64});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kUnsupported);
}

TEST(CheckPlan, TakesWhatFitsAndNamesWhatDoesNot) {
  const std::vector<BufferRequest> requests = {{100, 0, 2}, {100, 1, 3}, {64, 3, 4}, {0, 0, 4}};
  const auto plan = check_plan(requests, {0, 128, 0, 64}, {64});  // the third may take the first one's place, the empty one lies anywhere
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->arena_bytes, 256u);
  EXPECT_EQ(plan->lower_bound_bytes, 256u);
  EXPECT_EQ(plan->lower_bound_bytes, plan_memory(requests, {64})->lower_bound_bytes);
  const auto refused = [&](std::vector<uint64_t> offsets, std::string_view text) {
    const auto made = check_plan(requests, std::move(offsets), {64});
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.status().code(), Code::kInvalidInput);
    EXPECT_NE(made.status().message().find(text), std::string_view::npos) << made.status().message();
  };
  refused({0, 128, 0}, "the planner gave 3 offsets for 4 buffers");
  refused({0, 128, 0, 0, 0}, "the planner gave 5 offsets for 4 buffers");
  refused({0, 100, 0, 0}, "buffer 1 (100 bytes, alive from step 1 to 3) at offset 100: a multiple of 64 is expected");
  refused({0, 64, 0, 0}, "buffer 0 (100 bytes, alive from step 0 to 2) at offset 0 and buffer 1 (100 bytes, alive from step 1 to 3) at offset 64 are alive together");
  refused({256, 0, 64, 0}, "buffer 1 (100 bytes, alive from step 1 to 3) at offset 0 and buffer 2");
  refused({0, 128, uint64_t{1} << 62, 0}, "ends beyond 2^62 bytes");
  refused({0, 128, ~uint64_t{63}, 0}, "ends beyond 2^62 bytes");
}

}  // namespace
}  // namespace pteron::plan
