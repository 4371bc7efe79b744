// Words for architectures, names and lines of kernels, the spelling of numbers and conversions. Whole kernels: tests/programs/test_cuda.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cuda/aot/kernel_sources.h"
#include "backends/cuda/aot/nvrtc.h"
#include "backends/cuda/aot/scalar_ops.h"

namespace pteron::cuda {
namespace {

TEST(Targets, AreReadFromAList) {
  const auto read = parse_targets("sm_90a,compute_80,source");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].kind, Target::Kind::kCubin);
  EXPECT_EQ((*read)[0].sm, 90u);
  EXPECT_EQ((*read)[0].text, "sm_90a");
  EXPECT_EQ((*read)[1].kind, Target::Kind::kPtx);
  EXPECT_EQ((*read)[1].sm, 80u);
  EXPECT_EQ((*read)[2].kind, Target::Kind::kSource);
  for (const char* bad : {"", ",", "sm_90,", "sm_", "sm_90x", "sm_90ab", "sm_9", "sm_99999999999", "90", "compute_80,compute_80"}) {
    EXPECT_EQ(parse_targets(bad).status().code(), Code::kInvalidInput) << bad;
  }
}

TEST(KernelSources, EqualBodiesShareAName) {
  KernelSources sources;
  const std::string first = sources.add("a b", "PTERON_KERNEL @NAME@() { PTERON_BEGIN(); }\n", "node1");
  EXPECT_EQ(first, "a_b_0");
  EXPECT_EQ(sources.add("other", "PTERON_KERNEL @NAME@() { PTERON_BEGIN(); }\n", "node2"), first);
  const std::string second = sources.add("a b", "PTERON_KERNEL @NAME@(int* out) {\nPTERON_BEGIN();\n*out = 1;\n}\n", "node3");
  EXPECT_EQ(second, "a_b_1");
  EXPECT_EQ(sources.size(), 2u);
  const std::string text = sources.text();
  EXPECT_EQ(text.find("@NAME@"), std::string::npos);
  const auto line_of = [&](std::string_view what) {
    return static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<long>(text.find(what)), '\n')) + 1;
  };
  EXPECT_EQ(sources.node_at(line_of("a_b_0(")), "node1");
  EXPECT_EQ(sources.node_at(line_of("*out = 1")), "node3");
  EXPECT_EQ(sources.node_at(1), "");
}

TEST(Literals, HoldTheNumberOfTheirDtype) {
  EXPECT_EQ(literal(0.1, DType::kFloat32), "0.1f");
  EXPECT_EQ(literal(0.1, DType::kFloat64), "0.1");
  EXPECT_EQ(literal(0.1, DType::kBFloat16, true), "0.100097656f");
  EXPECT_EQ(literal(-2, DType::kFloat32), "(-2.0f)");
  EXPECT_EQ(literal(-0.0, DType::kFloat32), "(-0.0f)");
  EXPECT_EQ(literal(std::numeric_limits<double>::infinity(), DType::kFloat32), "P_INF");
  EXPECT_EQ(literal(-1e300, DType::kFloat32), "(-P_INF)");
  EXPECT_EQ(literal(std::nan(""), DType::kFloat64), "P_DNAN");
  EXPECT_EQ(literal(ir::Expr(std::numeric_limits<int64_t>::min()), DType::kInt64), "(-9223372036854775807ll - 1)");
  EXPECT_EQ(literal(ir::Expr(3), DType::kInt8), "((i8)3ll)");
  EXPECT_EQ(literal(ir::Expr(3), DType::kBool), "true");
}

TEST(Conversions, RoundAndTruncate) {
  EXPECT_EQ(converted("x", DType::kFloat32, DType::kFloat32), "x");
  EXPECT_EQ(converted("x", DType::kFloat16, DType::kFloat32), "x");
  EXPECT_EQ(converted("x", DType::kFloat32, DType::kBFloat16), "p_round_bf16((float)(x))");
  EXPECT_EQ(converted("x", DType::kFloat32, DType::kUInt8), "(u8)p_trunc64(x)");
  EXPECT_EQ(converted("x", DType::kFloat32, DType::kBool), "((x) != 0)");
  EXPECT_EQ(converted("x", DType::kInt64, DType::kInt32), "(int)(x)");
}

TEST(ScalarOps, AreFoundByName) {
  ASSERT_NE(find_scalar_op("add.Tensor"), nullptr);
  EXPECT_EQ(find_scalar_op("add"), nullptr);
  EXPECT_TRUE(find_scalar_op("tanh")->is_costly);
  EXPECT_EQ(find_scalar_op("lt.Scalar")->compute, Compute::kCommon);
}

}  // namespace
}  // namespace pteron::cuda
