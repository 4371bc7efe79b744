// Activations, clamps and factories against numbers of PyTorch 2.13 (float32, CPU).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ops/call_kernel.h"
#include "ops/math.h"

namespace pteron::ops {
namespace {

using math::kNaN;

constexpr std::array<float, 8> kPoints = {-7.0f, -1.5f, -0.25f, 0.0f, 0.25f, 1.5f, 7.0f, 25.0f};

struct Row {
  std::string_view kernel;
  std::vector<double> numbers;
  std::array<float, 8> expected;
  std::string_view text = {};
};
const Row kRows[] = {
    {"aten::gelu.out", {}, {0, -0.10021086f, -0.100323431f, 0, 0.149676561f, 1.39978909f, 7, 25}, "none"},
    {"aten::gelu.out", {}, {-0.0f, -0.100428432f, -0.100324646f, 0, 0.149675354f, 1.39957154f, 7, 25}, "tanh"},
    {"aten::silu.out", {}, {-0.00637735846f, -0.273638278f, -0.109455876f, 0, 0.140544131f, 1.22636163f, 6.99362278f, 25}},
    {"aten::mish.out", {}, {-0.00638026372f, -0.298099756f, -0.129926965f, 0, 0.169572398f, 1.40337825f, 6.99998856f, 25}},
    {"aten::hardswish.out", {}, {-0.0f, -0.375f, -0.114583336f, 0, 0.135416672f, 1.125f, 7, 25}},
    {"aten::hardsigmoid.out", {}, {0, 0.25f, 0.458333343f, 0.5f, 0.541666687f, 0.75f, 1, 1}},
    {"aten::log_sigmoid.out", {}, {-7.00091124f, -1.70141327f, -0.825939417f, -0.693147182f, -0.575939417f, -0.201413289f, -0.000911466486f, -1.38879437e-11f}},
    {"aten::elu.out", {1.5, 2.0, 0.5}, {-2.90940785f, -1.58290029f, -0.35250929f, 0, 0.5f, 3, 14, 50}},
    {"aten::leaky_relu.out", {0.2}, {-1.39999998f, -0.300000012f, -0.0500000007f, 0, 0.25f, 1.5f, 7, 25}},
    {"aten::softplus.out", {2.0, 20.0}, {4.15764191e-07f, 0.024293676f, 0.237038493f, 0.346573591f, 0.487038493f, 1.52429366f, 7.00000048f, 25}},
    {"aten::hardshrink.out", {0.5}, {-7, -1.5f, 0, 0, 0, 1.5f, 7, 25}},
    {"aten::softshrink.out", {0.5}, {-6.5f, -1, -0.0f, 0, 0, 1, 6.5f, 24.5f}},
    {"aten::threshold.out", {0.1, -3.0}, {-3, -3, -3, -3, 0.25f, 1.5f, 7, 25}},
    {"aten::hardtanh.out", {-1.0, 6.0}, {-1, -1, -0.25f, 0, 0.25f, 1.5f, 6, 6}},
};

TEST(Activation, MatchesPyTorch) {
  const std::array<int64_t, 1> sizes = {8};
  for (const Row& row : kRows) {
    std::array<float, 8> x = kPoints, y{};
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(DType::kFloat32, sizes, x.data()));
    for (const double number : row.numbers) call.number(number);
    if (!row.text.empty()) call.text(row.text);
    call.tensor(make_contiguous_view(DType::kFloat32, sizes, y.data()));
    ASSERT_TRUE(call.call(row.kernel, serial_pool()).ok()) << row.kernel;
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], row.expected[i], 2e-7 + 1.3e-6 * std::fabs(row.expected[i])) << row.kernel << " at " << x[i];
  }
}

TEST(Activation, NanStaysNan) {
  for (const Row& row : kRows) {
    float x = kNaN, y = 0;
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(DType::kFloat32, {}, &x));
    for (const double number : row.numbers) call.number(number);
    if (!row.text.empty()) call.text(row.text);
    call.tensor(make_contiguous_view(DType::kFloat32, {}, &y));
    ASSERT_TRUE(call.call(row.kernel, serial_pool()).ok()) << row.kernel;
    EXPECT_TRUE(std::isnan(y)) << row.kernel;
  }
}

TEST(Clamp, BoundsAndNan) {
  std::array<float, 4> x = {-2, 0.5f, 9, kNaN}, y{};
  const std::array<int64_t, 1> sizes = {4};
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kFloat32, sizes, x.data())).integer(0).none();
  call.tensor(make_contiguous_view(DType::kFloat32, sizes, y.data()));
  ASSERT_TRUE(call.call("aten::clamp.out", serial_pool()).ok());
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0.5f);
  EXPECT_EQ(y[2], 9);
  EXPECT_TRUE(std::isnan(y[3]));
  KernelCallBuilder crossed;  // min above max gives max
  crossed.tensor(make_contiguous_view(DType::kFloat32, sizes, x.data())).integer(5).integer(1);
  crossed.tensor(make_contiguous_view(DType::kFloat32, sizes, y.data()));
  ASSERT_TRUE(crossed.call("aten::clamp.out", serial_pool()).ok());
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[2], 1);
}

TEST(Factory, RangesMatchPyTorch) {
  std::array<float, 6> line{};
  KernelCallBuilder call;
  call.number(-1).number(2.5).integer(6).tensor(make_contiguous_view(DType::kFloat32, std::array<int64_t, 1>{6}, line.data()));
  ASSERT_TRUE(call.call("aten::linspace.out", serial_pool()).ok());
  constexpr std::array<float, 6> kLine = {-1.0f, -0.30000001192092896f, 0.3999999761581421f, 1.100000023841858f, 1.7999999523162842f, 2.5f};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(line[i], kLine[i], 1e-7);

  std::array<int64_t, 6> lower{};
  KernelCallBuilder triangle;
  triangle.integer(3).integer(4).integer(-1).tensor(make_contiguous_view(DType::kInt64, std::array<int64_t, 2>{2, 3}, lower.data()));
  ASSERT_TRUE(triangle.call("aten::tril_indices.out", serial_pool()).ok());
  EXPECT_EQ(lower, (std::array<int64_t, 6>{1, 2, 2, 0, 0, 1}));

  std::array<int32_t, 4> steps{};
  KernelCallBuilder range;
  range.integer(7).integer(-4).integer(-3).tensor(make_contiguous_view(DType::kInt32, std::array<int64_t, 1>{4}, steps.data()));
  ASSERT_TRUE(range.call("aten::arange.start_out", serial_pool()).ok());
  EXPECT_EQ(steps, (std::array<int32_t, 4>{7, 4, 1, -2}));

  std::array<float, 6> identity{};
  KernelCallBuilder eye;
  eye.integer(2).integer(3).tensor(make_contiguous_view(DType::kFloat32, std::array<int64_t, 2>{2, 3}, identity.data()));
  ASSERT_TRUE(eye.call("aten::eye.m_out", serial_pool()).ok());
  EXPECT_EQ(identity, (std::array<float, 6>{1, 0, 0, 0, 1, 0}));
}

}  // namespace
}  // namespace pteron::ops
