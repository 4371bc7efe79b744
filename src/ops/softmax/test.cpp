// softmax, log_softmax, layer, group, RMS and batch norms against plain loops in double, over dims and layouts; infinities.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/call_kernel.h"

namespace pteron::ops {
namespace {

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

Floats random_floats(size_t count, unsigned seed, float shift = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(shift, 2);
  Floats x(count);
  for (float& v : x) v = normal(random);
  return x;
}

TensorView view_of(Floats& x, const Shape& sizes) { return make_contiguous_view(DType::kFloat32, sizes, x.data()); }

/// [N,C,P] data as a [N,C,P] view whose channels lie side by side.
TensorView channels_last(Floats& x, const Shape& sizes) {
  TensorView v = view_of(x, sizes);
  v.stride_array = {sizes[1] * sizes[2], 1, sizes[1]};
  return v;
}

double element(const TensorView& v, int64_t i, int64_t j, int64_t k) {
  return static_cast<double>(v.as<float>()[i * v.stride(0) + j * v.stride(1) + k * v.stride(2)]);
}

void check_softmax(const TensorView& in, int64_t dim, bool log) {
  const Shape sizes(in.sizes().begin(), in.sizes().end());
  Floats out(static_cast<size_t>(in.numel()));
  KernelCallBuilder call;
  call.tensor(in).integer(dim).boolean(false).tensor(view_of(out, sizes));
  const auto two = make_thread_pool(2);
  ASSERT_TRUE(call.call(log ? "aten::_log_softmax.out" : "aten::_softmax.out", *two).ok());
  int64_t index[3];
  for (index[0] = 0; index[0] < sizes[0]; ++index[0]) {
    for (index[1] = 0; index[1] < sizes[1]; ++index[1]) {
      for (index[2] = 0; index[2] < sizes[2]; ++index[2]) {
        int64_t other[3] = {index[0], index[1], index[2]};
        double sum = 0;
        for (other[dim] = 0; other[dim] < sizes[static_cast<size_t>(dim)]; ++other[dim]) sum += std::exp(element(in, other[0], other[1], other[2]));
        const double x = element(in, index[0], index[1], index[2]);
        const double want = log ? x - std::log(sum) : std::exp(x) / sum;
        const double got = out[static_cast<size_t>((index[0] * sizes[1] + index[1]) * sizes[2] + index[2])];
        ASSERT_NEAR(got, want, 2e-6 * (1 + std::fabs(want)));
      }
    }
  }
}

TEST(Softmax, EveryDimAndLayout) {
  for (const Shape& sizes : {Shape{3, 5, 2050}, Shape{2, 300, 70}, Shape{4, 1, 9}, Shape{1, 40, 1}}) {
    Floats x = random_floats(static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]), 3);
    for (int64_t dim = 0; dim < 3; ++dim) {
      for (const bool log : {false, true}) {
        check_softmax(view_of(x, sizes), dim, log);
        check_softmax(channels_last(x, sizes), dim, log);
      }
    }
  }
}

TEST(Softmax, InfinitiesAndLargeNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  Floats x = {1000, 1001, -inf, -inf, -inf, -inf}, out(6);
  KernelCallBuilder call;
  call.tensor(view_of(x, {2, 3})).integer(-1).boolean(false).tensor(view_of(out, {2, 3}));
  ASSERT_TRUE(call.call("aten::_softmax.out", serial_pool()).ok());
  EXPECT_NEAR(out[0], 0.26894142, 1e-6);
  EXPECT_NEAR(out[1], 0.73105858, 1e-6);
  EXPECT_EQ(out[2], 0);
  EXPECT_TRUE(std::isnan(out[3]));
}

struct Stats {
  double mean = 0, var = 0;
};
template <typename At>
Stats stats_of(int64_t n, const At& at) {
  Stats s;
  for (int64_t i = 0; i < n; ++i) s.mean += at(i) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) s.var += (at(i) - s.mean) * (at(i) - s.mean) / static_cast<double>(n);
  return s;
}

TEST(LayerNorm, RowsOfAnyLayoutWithALargeMean) {
  const Shape sizes = {3, 6, 1100};
  Floats x = random_floats(3 * 6 * 1100, 5, 100), w = random_floats(6 * 1100, 6), b = random_floats(6 * 1100, 7);
  for (const TensorView& in : {view_of(x, sizes), channels_last(x, sizes)}) {
    Floats out(x.size()), mean(3), rstd(3);
    KernelCallBuilder call;
    call.tensor(in).integers({6, 1100}).tensor(view_of(w, {6, 1100})).tensor(view_of(b, {6, 1100})).number(1e-5);
    call.tensor(view_of(out, sizes)).tensor(view_of(mean, {3, 1, 1})).tensor(view_of(rstd, {3, 1, 1}));
    ASSERT_TRUE(call.call("aten::native_layer_norm.out", serial_pool()).ok());
    for (int64_t n = 0; n < 3; ++n) {
      const Stats s = stats_of(6600, [&](int64_t i) { return element(in, n, i / 1100, i % 1100); });
      EXPECT_NEAR(mean[static_cast<size_t>(n)], s.mean, 1e-4);
      for (int64_t i = 0; i < 6600; ++i) {
        const auto k = static_cast<size_t>(i);
        const double want = (element(in, n, i / 1100, i % 1100) - s.mean) / std::sqrt(s.var + 1e-5) * w[k] + b[k];
        ASSERT_NEAR(out[static_cast<size_t>(n) * 6600 + k], want, 2e-5 * (1 + std::fabs(want)));
      }
    }
  }
}

TEST(GroupNorm, ChannelsSideBySideOrNot) {
  const Shape sizes = {2, 12, 77};
  Floats x = random_floats(2 * 12 * 77, 8), w = random_floats(12, 9), b = random_floats(12, 10);
  for (const TensorView& in : {view_of(x, sizes), channels_last(x, sizes)}) {
    Floats out(x.size()), mean(6), rstd(6);
    KernelCallBuilder call;
    call.tensor(in).tensor(view_of(w, {12})).tensor(view_of(b, {12})).integer(2).integer(12).integer(77).integer(3).number(1e-5);
    call.tensor(view_of(out, sizes)).tensor(view_of(mean, {2, 3})).tensor(view_of(rstd, {2, 3}));
    ASSERT_TRUE(call.call("aten::native_group_norm.out", serial_pool()).ok());
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t ch = 0; ch < 12; ++ch) {
        const int64_t first = ch / 4 * 4;
        const Stats s = stats_of(4 * 77, [&](int64_t i) { return element(in, n, first + i / 77, i % 77); });
        for (int64_t p = 0; p < 77; ++p) {
          const double want = (element(in, n, ch, p) - s.mean) / std::sqrt(s.var + 1e-5) * w[static_cast<size_t>(ch)] + b[static_cast<size_t>(ch)];
          ASSERT_NEAR(out[static_cast<size_t>((n * 12 + ch) * 77 + p)], want, 1e-5 * (1 + std::fabs(want)));
        }
      }
    }
  }
}

TEST(BatchNorm, TrainingUpdatesRunningStatistics) {
  const Shape sizes = {4, 10, 33};
  Floats x = random_floats(4 * 10 * 33, 11, 3), w = random_floats(10, 12), b = random_floats(10, 13);
  for (const TensorView& in : {view_of(x, sizes), channels_last(x, sizes)}) {
    Floats out(x.size()), mean(10), invstd(10), running_mean(10, 0.5f), running_var(10, 2.0f);
    KernelCallBuilder call;
    call.tensor(in).tensor(view_of(w, {10})).tensor(view_of(b, {10})).tensor(view_of(running_mean, {10})).tensor(view_of(running_var, {10}));
    call.boolean(true).number(0.25).number(1e-3).tensor(view_of(out, sizes)).tensor(view_of(mean, {10})).tensor(view_of(invstd, {10}));
    ASSERT_TRUE(call.call("aten::_native_batch_norm_legit.out", serial_pool()).ok());
    for (int64_t ch = 0; ch < 10; ++ch) {
      const auto k = static_cast<size_t>(ch);
      const int64_t n = 4 * 33;
      const Stats s = stats_of(n, [&](int64_t i) { return element(in, i / 33, ch, i % 33); });
      EXPECT_NEAR(running_mean[k], 0.75 * 0.5 + 0.25 * s.mean, 1e-5);
      EXPECT_NEAR(running_var[k], 0.75 * 2 + 0.25 * s.var * n / (n - 1), 1e-5);
      const double want = (element(in, 3, ch, 7) - s.mean) / std::sqrt(s.var + 1e-3) * w[k] + b[k];
      EXPECT_NEAR(out[static_cast<size_t>((3 * 10 + ch) * 33 + 7)], want, 1e-5 * (1 + std::fabs(want)));
    }
  }
}

TEST(RmsNorm, DefaultEpsilonIsThatOfTheArithmetic) {
  Floats x = {1, 2, 0, 0}, w = {1, 3}, out(4);
  KernelCallBuilder call;
  call.tensor(view_of(x, {2, 2})).integers({2}).tensor(view_of(w, {2})).none().tensor(view_of(out, {2, 2}));
  ASSERT_TRUE(call.call("pteron::rms_norm.out", serial_pool()).ok());
  EXPECT_NEAR(out[0], 0.63245553, 1e-6);
  EXPECT_NEAR(out[1], 3 * 1.2649111, 1e-5);
  EXPECT_EQ(out[2], 0);  // not NaN
}

}  // namespace
}  // namespace pteron::ops
