// One-tensor kernels: special functions against numbers of PyTorch 2.13 (float64, CPU), vectorised functions against the C library.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "ops/call_kernel.h"
#include "ops/math.h"

namespace pteron::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<double, 8> kPoints = {-2.5, -0.75, -0.1, 0.0, 0.3, 0.9, 1.7, 6.0};

struct Golden {
  std::string_view kernel;
  std::array<double, 8> expected;
};
// torch.<name>(torch.tensor(kPoints, dtype=torch.float64)); the Bessel functions at 6 are the exact values, from which PyTorch differs by 1e-7.
constexpr Golden kGolden[] = {
    {"aten::digamma.out", {1.1031566406452433, -2.8941202000429316, 9.245073050052948, -kInf, -3.502524222200133, -0.7549269499470513, 0.20854787487349372, 1.7061176684318002}},
    {"aten::erfinv.out", {kNoNumber, -0.8134198475976185, -0.08885599049425769, 0.0, 0.2724627147267543, 1.1630871536766743, kNoNumber, kNoNumber}},
    {"aten::i0.out", {3.289839144050123, 1.1456467780440012, 1.0025015629340956, 1.0, 1.0226268793515967, 1.2129851657286845, 1.8639649620738397, 67.23440697647797}},
    {"aten::lgamma.out", {-0.05624371649767405, 1.5757045971498584, 2.3689613327287886, kInf, 1.0957979948180756, 0.06637623973474295, -0.09580769740706588, 4.787491742782046}},
    {"aten::sinc.out", {0.12732395447351627, 0.3001054387190354, 0.983631643083466, 1.0, 0.8583936913341398, 0.10929240478705181, -0.15148123964720117, -3.8981718325193755e-17}},
    {"aten::special_entr.out", {-kInf, -kInf, -kInf, 0.0, 0.3611918412977808, 0.09482446409204366, -0.9020680268056896, -10.75055681536833}},
    {"aten::special_erfcx.out", {1035.8148429726227, 3.003171663627452, 1.123643354199209, 1.0, 0.7345993345676554, 0.456531651323117, 0.2916632970753434, 0.09277656780053836}},
    {"aten::special_i0e.out", {0.27004644161220276, 0.5411652192034953, 0.9071009257823011, 1.0, 0.7575806251825477, 0.4931629661007054, 0.3405156879824709, 0.16665743263981656}},
    {"aten::special_i1.out", {-2.5167162452886984, -0.4019924615809222, -0.050062526047092694, 0.0, 0.15169384000359282, 0.4971264481609644, 1.1963465656344825, 61.3419367776402}},
    {"aten::special_i1e.out", {-0.20658464953126654, -0.189887793304855, -0.045298446808809324, 0.0, 0.11237756063983881, 0.20211653087685585, 0.21855280659849347, 0.1520514593085058}},
    {"aten::special_log_ndtr.out", {-5.081648277278691, -1.4844482299196564, -0.7761545927302733, -0.6931471805599453, -0.48141016158848127, -0.20341460975574688, -0.045589029170068934, -9.865876455243713e-10}},
    {"aten::special_ndtri.out", {kNoNumber, kNoNumber, kNoNumber, -kInf, -0.5244005127080409, 1.2815515655446004, kNoNumber, kNoNumber}},
    {"aten::special_bessel_j0.out", {-0.048383776468256645, 0.8642422751666485, 0.99750156206604, 1.0, 0.9776262465382961, 0.8075237981225448, 0.39798485944611056, 0.1506452572509969}},
    {"aten::special_bessel_y1.out", {kNoNumber, kNoNumber, kNoNumber, -kInf, -2.2931051383885293, -0.8731265824563288, -0.28472624506406835, -0.1750103443003983}},
    {"aten::acosh.out", {kNoNumber, kNoNumber, kNoNumber, kNoNumber, kNoNumber, kNoNumber, 1.123230982587296, 2.477888730288475}},
    {"aten::erfc.out", {1.999593047982555, 1.7111556336535152, 1.112462916018285, 1.0, 0.6713732405408726, 0.20309178757716786, 0.01620954140922544, 2.1519736712498913e-17}},
    {"aten::log1p.out", {kNoNumber, -1.3862943611198906, -0.10536051565782631, 0.0, 0.26236426446749106, 0.6418538861723948, 0.9932517730102833, 1.9459101490553132}},
    {"aten::rsqrt.out", {kNoNumber, kNoNumber, kNoNumber, kInf, 1.8257418583505538, 1.0540925533894598, 0.7669649888473704, 0.4082482904638631}},
    {"aten::sgn.out", {-1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 1.0, 1.0}},
    {"aten::round.out", {-2.0, -1.0, -0.0, 0.0, 0.0, 1.0, 2.0, 6.0}},
    {"aten::frac.out", {-0.5, -0.75, -0.1, 0.0, 0.3, 0.9, 0.7, 0.0}},
};

TEST(Unary, SpecialFunctionsMatchPyTorch) {
  for (const Golden& g : kGolden) {
    std::array<double, 8> x = kPoints, y{};
    const std::array<int64_t, 1> sizes = {8};
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(DType::kFloat64, sizes, x.data())).tensor(make_contiguous_view(DType::kFloat64, sizes, y.data()));
    ASSERT_TRUE(call.call(g.kernel, serial_pool()).ok()) << g.kernel;
    for (size_t i = 0; i < 8; ++i) {
      if (std::isnan(g.expected[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << g.kernel << " at " << x[i] << " gives " << y[i];
      } else if (std::isinf(g.expected[i])) {
        EXPECT_EQ(y[i], g.expected[i]) << g.kernel << " at " << x[i];
      } else {
        EXPECT_NEAR(y[i], g.expected[i], 1e-13 + 4e-13 * std::fabs(g.expected[i])) << g.kernel << " at " << x[i];
      }
    }
  }
}

/// Largest error of fn against reference in units in the last place of float, over random points of [low, high].
double max_ulp(float (*fn)(float), double (*reference)(double), float low, float high) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> points(low, high);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const float x = points(random);
    const double want = reference(static_cast<double>(x));
    if (want == 0) continue;
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    worst = std::max(worst, std::fabs(static_cast<double>(fn(x)) - want) / ulp);
  }
  return worst;
}

TEST(Math, FloatFunctionsStayWithinThreeUnits) {
  EXPECT_LT(max_ulp(math::exp, std::exp, -103.0f, 88.7f), 1.5);
  EXPECT_LT(max_ulp(math::exp2, std::exp2, -140.0f, 127.9f), 1.5);
  EXPECT_LT(max_ulp(math::expm1, std::expm1, -20.0f, 88.7f), 2.0);
  EXPECT_LT(max_ulp(math::expm1, std::expm1, -0.5f, 0.5f), 2.0);
  EXPECT_LT(max_ulp(math::log, std::log, 1e-44f, 3.0f), 1.5);
  EXPECT_LT(max_ulp(math::log, std::log, 0.9f, 1.1f), 1.5);
  EXPECT_LT(max_ulp(math::log2, std::log2, 0.4f, 3.0f), 2.5);
  EXPECT_LT(max_ulp(math::log1p, std::log1p, -0.999f, 4.0f), 2.0);
  EXPECT_LT(max_ulp(math::tanh, std::tanh, -12.0f, 12.0f), 3.0);
  EXPECT_LT(max_ulp(math::erf, std::erf, -5.0f, 5.0f), 3.0);
  EXPECT_LT(max_ulp(math::sin, std::sin, -1e5f, 1e5f), 2.0);
  EXPECT_LT(max_ulp(math::tan, std::tan, -1.5f, 1.5f), 4.0);
  EXPECT_LT(max_ulp(math::tan, std::tan, -1e4f, 1e4f), 4.0);
  EXPECT_LT(max_ulp(math::cos, std::cos, -1e8f, 1e8f), 2.0);
}

TEST(Math, FloatFunctionsKeepSpecialValues) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp(inf), inf);
  EXPECT_EQ(math::exp(-inf), 0.0f);
  EXPECT_EQ(math::exp(89.0f), inf);
  EXPECT_EQ(math::exp(-103.9f), 1.40129846e-45f);
  EXPECT_EQ(math::expm1(inf), inf);
  EXPECT_EQ(math::expm1(-inf), -1.0f);
  EXPECT_EQ(math::log(0.0f), -inf);
  EXPECT_EQ(math::log(inf), inf);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::log1p(-1.0f), -inf);
  EXPECT_EQ(math::log1p(inf), inf);
  EXPECT_EQ(math::tanh(-inf), -1.0f);
  EXPECT_EQ(math::erf(inf), 1.0f);
  EXPECT_EQ(math::sigmoid(-inf), 0.0f);
  using Function = float (*)(float);
  for (const Function fn : std::initializer_list<Function>{math::exp, math::exp2, math::expm1, math::log, math::log2, math::log1p, math::tanh, math::erf, math::sin, math::cos}) {
    EXPECT_TRUE(std::isnan(fn(std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(Unary, LargeAnglesAreReducedExactly) {
  std::array<float, 3> x = {1e10f, -3.4e38f, 5e9f}, y{};
  const std::array<int64_t, 1> sizes = {3};
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kFloat32, sizes, x.data())).tensor(make_contiguous_view(DType::kFloat32, sizes, y.data()));
  ASSERT_TRUE(call.call("aten::sin.out", serial_pool()).ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], std::sin(static_cast<double>(x[i])), 1e-6);
}

TEST(Unary, BoolIsRefusedWhereAtenHasNone) {
  bool x = true, y = false;
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kBool, {}, &x)).tensor(make_contiguous_view(DType::kBool, {}, &y));
  EXPECT_EQ(call.call("aten::frac.out", serial_pool()).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace pteron::ops
