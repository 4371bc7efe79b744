// The engine's kernels against plain loops: odd sizes, strides, padding, groups, layouts, activations; and what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "backends/cpu/payload.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/product.h"
#include "backends/cpu/runtime/test_floats.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"

namespace pteron::cpu {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// Values of one call; tensors borrow their data.
struct Call {
  std::vector<Value> values;
  std::vector<std::vector<Value>> lists;
  std::vector<std::vector<Value*>> pointers;
  runtime::StateCache cache;

  explicit Call(size_t count) : values(count), lists(count), pointers(count) {}

  void tensor(size_t at, std::vector<int64_t> sizes, float* data, bool constant, bool channels_last = false) {
    Tensor& t = values[at].tensor;
    values[at].tag = Tag::kTensor;
    t.view = make_contiguous_view(DType::kFloat32, sizes, data);
    for (size_t d = 0; d < sizes.size(); ++d) {
      t.bound[d] = sizes[d];
      t.dim_order[d] = static_cast<uint8_t>(d);
    }
    if (channels_last) {
      const std::array<uint8_t, 4> order = {0, 2, 3, 1};
      std::copy(order.begin(), order.end(), t.dim_order.begin());
      t.view.stride_array[0] = sizes[1] * sizes[2] * sizes[3];
      t.view.stride_array[1] = 1;
      t.view.stride_array[2] = sizes[3] * sizes[1];
      t.view.stride_array[3] = sizes[1];
    }
    t.read_only = constant;
  }
  void pair(size_t at, int64_t a, int64_t b) {
    lists[at].resize(2);
    for (size_t i = 0; i < 2; ++i) lists[at][i].tag = Tag::kInt;
    lists[at][0].integer = a;
    lists[at][1].integer = b;
    pointers[at] = {&lists[at][0], &lists[at][1]};
    values[at].tag = Tag::kIntList;
    values[at].items = pointers[at];
  }
  void integer(size_t at, int64_t v) {
    values[at].tag = Tag::kInt;
    values[at].integer = v;
  }
  void activation(size_t at, std::string_view name, double low, double high) {
    values[at].tag = Tag::kString;
    values[at].string = name;
    values[at + 1].tag = values[at + 2].tag = Tag::kDouble;
    values[at + 1].floating = low;
    values[at + 2].floating = high;
  }

  Status run(const Kernel& kernel, int threads) {
    std::vector<Value*> args;
    for (Value& v : values) args.push_back(&v);
    const std::unique_ptr<ThreadPool> pool = make_thread_pool(threads);
    PTERON_ASSIGN(const auto state, kernel.prepare({pool.get(), &cache}, args));
    PTERON_ASSIGN(Buffer scratch, Buffer::create(kernel.workspace(args)));
    KernelContext context;
    context.pool = pool.get();
    context.scratch = scratch.span();
    context.state = state.get();
    return kernel.fn(context, args);
  }
};

/// The activation's name without kThenResidual.
std::string_view plain_name(std::string_view name) { return name.substr(0, name.find('+')); }
/// The same as the kernels spell it.
std::string kernel_name(std::string_view name) { return name.starts_with("relu6") ? str_cat("clamp", name.substr(5)) : std::string(name); }

float activate(std::string_view name, float x) {
  name = plain_name(name);
  if (name == "relu6") return std::fmin(std::fmax(x, 0.0f), 6.0f);
  if (name == "gelu") return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
  if (name == "silu") return x / (1.0f + std::exp(-x));
  return x;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5f * (1.0f + std::fabs(want[i]))) << what << " at " << i;
}

/// A linear of one size, on one thread or several, against a loop.
void check_linear(int64_t m, int64_t n, int64_t k, bool adds_last = false) {
  const Kernel& kernel = linear_kernels()[0];
  std::vector<float> x = random_floats(static_cast<size_t>(m * k), 1), w = random_floats(static_cast<size_t>(n * k), 2), b = random_floats(static_cast<size_t>(n), 3),
                     r = random_floats(static_cast<size_t>(m * n), 4), y(static_cast<size_t>(m * n)), want(y.size());
  const bool residual = adds_last || (m + n) % 2 == 0;
  std::string name = n % 3 == 0 ? "relu6" : n % 3 == 1 ? "gelu" : adds_last ? "silu" : "none";
  if (adds_last) name += kThenResidual;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = b[static_cast<size_t>(j)];
      for (int64_t e = 0; e < k; ++e) sum += static_cast<double>(x[static_cast<size_t>(i * k + e)]) * w[static_cast<size_t>(j * k + e)];
      const auto at = static_cast<size_t>(i * n + j);
      if (residual && !adds_last) sum += r[at];
      want[at] = activate(name, static_cast<float>(sum)) + (adds_last ? r[at] : 0.0f);
    }
  }
  Call call(8);
  call.tensor(0, {m, k}, x.data(), false);
  call.tensor(1, {n, k}, w.data(), true);
  call.tensor(2, {n}, b.data(), true);
  if (residual) call.tensor(3, {m, n}, r.data(), false);
  const std::string spelled = kernel_name(name);
  call.activation(4, spelled, 0, 6);
  call.tensor(7, {m, n}, y.data(), false);
  for (const int threads : {1, 2, 3}) {
    if (threads > 1 && m < 64) break;
    std::fill(y.begin(), y.end(), NAN);
    const Status status = call.run(kernel, threads);
    ASSERT_TRUE(status.ok()) << status.message();
    expect_near(y, want, str_cat("m ", m, " n ", n, " k ", k, " threads ", threads));
  }
}

TEST(CpuLinear, EqualsLoops) {
  for (const int64_t m : {1, 2, 5, 7, 13, 64}) {
    for (const int64_t n : {1, 3, 8, 9, 16, 17, 40, 65}) {
      for (const int64_t k : {1, 5, 33, 128}) {
        check_linear(m, n, k);
        check_linear(m, n, k, true);
      }
    }
  }
}

TEST(CpuLinear, DeepOnesRunInBlocks) {
  for (const int64_t m : {1, 3, 31, 197}) {
    for (const int64_t k : {384, 385, 700, 1024, 1031}) {  // 1024: rows a page apart are gathered
      for (const int64_t n : {20, 150, 201}) {
        check_linear(m, n, k);
        check_linear(m, n, k, true);
      }
    }
  }
}

TEST(CpuLinear, NaNPassesClamps) {
  for (const int64_t n : {1, 16, 21}) {
    std::vector<float> x{1, std::nanf(""), 1, 1}, w(static_cast<size_t>(2 * n), 1.0f), y(static_cast<size_t>(2 * n));
    Call call(8);
    call.tensor(0, {2, 2}, x.data(), false);
    call.tensor(1, {n, 2}, w.data(), true);
    call.activation(4, "clamp", 0, 6);
    call.tensor(7, {2, n}, y.data(), false);
    ASSERT_TRUE(call.run(linear_kernels()[0], 1).ok());
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_TRUE(std::isnan(y[static_cast<size_t>(j)])) << n;
      EXPECT_EQ(y[static_cast<size_t>(n + j)], 2.0f) << n;
    }
  }
}

struct ConvCase {
  int64_t n, c, h, w, o, kh, kw, stride, padding, dilation, groups;
  bool x_last, y_last, residual;
  std::string_view activation;
  int64_t gap = 0;  ///< elements between the pixels of result and residual, which are then channels-last
};

/// Channels-last images with `gap` elements between pixels.
void with_gaps(Tensor& t, int64_t gap) {
  const int64_t pixel = t.size(1) + gap;
  const int64_t strides[] = {t.size(2) * t.size(3) * pixel, 1, t.size(3) * pixel, pixel};
  std::copy(std::begin(strides), std::end(strides), t.view.stride_array.begin());
}

void check_conv(const ConvCase& t) {
  const int64_t oh = (t.h + 2 * t.padding - t.dilation * (t.kh - 1) - 1) / t.stride + 1, ow = (t.w + 2 * t.padding - t.dilation * (t.kw - 1) - 1) / t.stride + 1;
  const int64_t cg = t.c / t.groups, og = t.o / t.groups;
  std::vector<float> x = random_floats(static_cast<size_t>(t.n * t.c * t.h * t.w), 1), w = random_floats(static_cast<size_t>(t.o * cg * t.kh * t.kw), 2),
                     b = random_floats(static_cast<size_t>(t.o), 3), r = random_floats(static_cast<size_t>(t.n * (t.o + t.gap) * oh * ow), 4), y(r.size(), 77.0f);
  const bool adds_last = t.activation.ends_with(kThenResidual);
  Call call(12);
  call.tensor(0, {t.n, t.c, t.h, t.w}, x.data(), false, t.x_last);
  call.tensor(1, {t.o, cg, t.kh, t.kw}, w.data(), true);
  call.tensor(2, {t.o}, b.data(), true);
  if (t.residual) call.tensor(3, {t.n, t.o, oh, ow}, r.data(), false, !t.y_last);  // the other layout: it has to be converted
  call.pair(4, t.stride, t.stride);
  call.pair(5, t.padding, t.padding);
  call.pair(6, t.dilation, t.dilation);
  call.integer(7, t.groups);
  const std::string spelled = kernel_name(t.activation);
  call.activation(8, spelled, 0, 6);
  call.tensor(11, {t.n, t.o, oh, ow}, y.data(), false, t.y_last);
  if (t.gap != 0) {
    with_gaps(call.values[11].tensor, t.gap);
    if (t.residual) with_gaps(call.values[3].tensor, t.gap);
  }
  const Status status = call.run(conv_kernels()[0], 2);
  ASSERT_TRUE(status.ok()) << status.message();
  // Winograd's transforms round more: by the size of the terms, not of their sum.
  const bool winograd = t.kh == 3 && t.kw == 3 && t.stride == 1 && t.dilation == 1 && t.groups == 1;
  const float tolerance = winograd ? 1e-4f : 3e-5f;
  const TensorView &xv = call.values[0].tensor.view, &yv = call.values[11].tensor.view, &rv = call.values[3].tensor.view;
  for (int64_t n = 0; n < t.n; ++n) {
    for (int64_t o = 0; o < t.o; ++o) {
      for (int64_t i = 0; i < oh; ++i) {
        for (int64_t j = 0; j < ow; ++j) {
          double sum = b[static_cast<size_t>(o)];
          for (int64_t c = 0; c < cg; ++c) {
            for (int64_t p = 0; p < t.kh; ++p) {
              for (int64_t q = 0; q < t.kw; ++q) {
                const int64_t yy = i * t.stride - t.padding + p * t.dilation, xx = j * t.stride - t.padding + q * t.dilation;
                if (yy < 0 || yy >= t.h || xx < 0 || xx >= t.w) continue;
                const int64_t at = n * xv.stride(0) + (o / og * cg + c) * xv.stride(1) + yy * xv.stride(2) + xx * xv.stride(3);
                sum += static_cast<double>(x[static_cast<size_t>(at)]) * w[static_cast<size_t>(((o * cg + c) * t.kh + p) * t.kw + q)];
              }
            }
          }
          const float added = t.residual ? r[static_cast<size_t>(n * rv.stride(0) + o * rv.stride(1) + i * rv.stride(2) + j * rv.stride(3))] : 0.0f;
          if (!adds_last) sum += added;
          const float want = activate(t.activation, static_cast<float>(sum)) + (adds_last ? added : 0.0f);
          const float got = y[static_cast<size_t>(n * yv.stride(0) + o * yv.stride(1) + i * yv.stride(2) + j * yv.stride(3))];
          ASSERT_NEAR(got, want, tolerance * (1.0f + std::fabs(want))) << "n " << n << " o " << o << " y " << i << " x " << j;
        }
      }
    }
  }
  for (size_t i = 0; i < y.size() && t.gap != 0; ++i) {
    if (static_cast<int64_t>(i) % (t.o + t.gap) >= t.o) {
      ASSERT_EQ(y[i], 77.0f) << "the gap at " << i << " was written";
    }
  }
}

TEST(CpuConv2d, EqualsLoops) {
  const ConvCase cases[] = {
      {1, 3, 9, 11, 8, 3, 3, 2, 1, 1, 1, false, true, false, "relu6"},   // first layer: three channels, row-major images
      {2, 16, 7, 7, 24, 1, 1, 1, 0, 1, 1, true, true, true, "none"},     // pointwise, both images at once
      {2, 16, 7, 9, 17, 1, 1, 2, 0, 1, 1, true, false, false, "silu"},   // strided pointwise to row-major
      {1, 8, 6, 5, 33, 3, 3, 1, 1, 1, 1, true, true, true, "relu6"},
      {1, 8, 9, 9, 16, 3, 3, 1, 2, 2, 1, true, true, false, "gelu"},     // dilated: taps do not join
      {2, 12, 8, 8, 24, 3, 3, 1, 1, 1, 3, true, true, true, "none"},     // groups
      {1, 20, 8, 9, 20, 3, 3, 1, 1, 1, 20, true, true, false, "relu6"},  // depthwise, channels no multiple of a vector
      {2, 33, 9, 7, 33, 5, 5, 2, 2, 1, 33, false, true, false, "none"},  // depthwise from row-major
      {1, 4, 5, 5, 4, 3, 3, 1, 4, 2, 4, true, false, false, "silu"},     // depthwise: windows wholly in the padding
      {2, 24, 11, 16, 24, 7, 7, 1, 3, 1, 24, true, true, false, "relu6"},  // depthwise blocks: whole and cut ones
      {1, 19, 15, 31, 19, 3, 3, 2, 1, 1, 19, false, true, false, "gelu"},
      {1, 8, 4, 3, 8, 5, 5, 1, 4, 1, 8, true, true, false, "none"},        // narrower than the kernel
      {1, 12, 9, 20, 12, 3, 7, 2, 0, 1, 12, true, true, false, "none"},
      {1, 5, 4, 4, 3, 4, 4, 1, 0, 1, 1, false, false, false, "none"},    // one output pixel
      {1, 3, 20, 37, 8, 3, 3, 1, 1, 1, 1, false, true, false, "none"},   // three channels, rows longer than a vector
      {1, 6, 3, 20, 7, 2, 5, 3, 3, 1, 1, true, true, false, "none"},
      {1, 300, 3, 3, 140, 3, 3, 2, 1, 1, 1, true, true, true, "relu6"},  // deep: taps in several blocks
      {1, 60, 5, 5, 130, 5, 5, 2, 2, 1, 1, false, true, false, "none"},  // deep: whole taps a block, gathered
      {1, 16, 16, 16, 16, 3, 3, 1, 1, 1, 1, true, true, false, "relu6"},   // Winograd: whole tiles
      {2, 17, 13, 10, 35, 3, 3, 1, 1, 1, 1, true, true, true, "silu"},     // Winograd: cut tiles, odd channels, two images
      {1, 24, 18, 17, 40, 3, 3, 1, 0, 1, 1, false, false, true, "none"},   // Winograd: no padding, row-major
      {1, 16, 3, 60, 16, 3, 3, 1, 2, 1, 1, true, true, false, "gelu"},     // Winograd: more padding than kernel
      // The residual behind the activation.
      {2, 16, 7, 7, 24, 1, 1, 1, 0, 1, 1, true, true, true, "silu+residual"},
      {1, 8, 6, 5, 33, 3, 3, 2, 1, 1, 1, true, true, true, "relu6+residual"},
      {2, 12, 8, 8, 24, 3, 3, 1, 1, 1, 3, true, true, true, "gelu+residual"},
      {1, 300, 3, 3, 140, 3, 3, 2, 1, 1, 1, true, false, true, "silu+residual"},
      {2, 17, 13, 10, 35, 3, 3, 1, 1, 1, 1, true, true, true, "silu+residual"},   // Winograd
      {1, 24, 18, 17, 40, 3, 3, 1, 0, 1, 1, false, false, true, "relu6+residual"},
      // Part of more channels.
      {2, 16, 7, 7, 21, 1, 1, 1, 0, 1, 1, true, true, true, "silu", 5},
      {2, 16, 7, 7, 24, 1, 1, 2, 1, 1, 1, true, true, true, "relu6+residual", 8},
      {2, 12, 8, 8, 24, 3, 3, 1, 1, 1, 3, false, true, true, "none", 3},
      {1, 300, 3, 3, 140, 3, 3, 2, 1, 1, 1, true, true, true, "silu+residual", 16},
      {2, 17, 13, 10, 35, 3, 3, 1, 1, 1, 1, true, true, true, "silu+residual", 29},  // Winograd
      {1, 16, 16, 16, 16, 3, 3, 1, 1, 1, 1, true, true, false, "relu6", 1},
      {1, 20, 8, 9, 20, 3, 3, 1, 1, 1, 20, true, true, false, "relu6", 7},           // depthwise
      {2, 33, 9, 7, 33, 5, 5, 2, 2, 1, 33, false, true, false, "silu", 12},
      {1, 4, 5, 5, 4, 3, 3, 1, 4, 2, 4, true, true, false, "silu", 4},
      {1, 5, 4, 4, 1, 3, 3, 1, 0, 1, 1, true, true, false, "none", 6},               // one channel of several
  };
  for (const ConvCase& t : cases) {
    SCOPED_TRACE(str_cat("case ", static_cast<int64_t>(&t - cases)));
    check_conv(t);
  }
}

struct GatedCase {
  int64_t n, c, h, w, o;
  bool x_last, y_last, gate_apart, residual;
  std::string_view activation;
};

void check_gated(const GatedCase& t, int threads) {
  const int64_t pixels = t.h * t.w, step = t.gate_apart ? 3 : 1;
  std::vector<float> x = random_floats(static_cast<size_t>(t.n * t.c * pixels), 1), w = random_floats(static_cast<size_t>(t.o * t.c), 2), b = random_floats(static_cast<size_t>(t.o), 3),
                     r = random_floats(static_cast<size_t>(t.n * t.o * pixels), 4), g = random_floats(static_cast<size_t>(t.n * t.c * step), 5), y(r.size());
  Call call(9);
  call.tensor(0, {t.n, t.c, t.h, t.w}, x.data(), false, t.x_last);
  call.tensor(1, {t.n, t.c, 1, 1}, g.data(), false);
  call.values[1].tensor.view.stride_array[0] = t.c * step;
  call.values[1].tensor.view.stride_array[1] = step;
  call.tensor(2, {t.o, t.c, 1, 1}, w.data(), true);
  call.tensor(3, {t.o}, b.data(), true);
  if (t.residual) call.tensor(4, {t.n, t.o, t.h, t.w}, r.data(), false, t.y_last);
  const std::string spelled = kernel_name(t.activation);
  call.activation(5, spelled, 0, 6);
  call.tensor(8, {t.n, t.o, t.h, t.w}, y.data(), false, t.y_last);
  const Status status = call.run(conv_kernels()[1], threads);
  ASSERT_TRUE(status.ok()) << status.message();
  const bool adds_last = t.activation.ends_with(kThenResidual);
  const auto at = [&](int64_t n, int64_t channel, int64_t pixel, int64_t channels, bool last) {
    return static_cast<size_t>(last ? (n * pixels + pixel) * channels + channel : (n * channels + channel) * pixels + pixel);
  };
  for (int64_t n = 0; n < t.n; ++n) {
    for (int64_t o = 0; o < t.o; ++o) {
      for (int64_t i = 0; i < pixels; ++i) {
        double sum = b[static_cast<size_t>(o)];
        for (int64_t c = 0; c < t.c; ++c) {
          sum += static_cast<double>(x[at(n, c, i, t.c, t.x_last)]) * g[static_cast<size_t>((n * t.c + c) * step)] * w[static_cast<size_t>(o * t.c + c)];
        }
        const float added = t.residual ? r[at(n, o, i, t.o, t.y_last)] : 0.0f;
        const float want = activate(t.activation, static_cast<float>(sum) + (adds_last ? 0.0f : added)) + (adds_last ? added : 0.0f);
        ASSERT_NEAR(y[at(n, o, i, t.o, t.y_last)], want, 3e-5f * (1.0f + std::fabs(want))) << n << " " << o << " " << i;
      }
    }
  }
}

TEST(CpuConv2d, GatesMultiplyTheChannels) {
  const GatedCase cases[] = {
      {1, 32, 14, 15, 16, true, true, false, false, "none"},          {2, 20, 5, 7, 19, true, true, false, true, "silu"},
      {3, 12, 4, 4, 40, true, false, true, true, "relu6+residual"},   {1, 700, 7, 7, 130, true, true, false, true, "none"},
      {2, 1024, 3, 5, 33, true, true, true, false, "gelu"},           {2, 9, 6, 4, 8, false, true, false, false, "none"},
      {1, 48, 1, 1, 20, true, true, false, false, "silu"},            {1, 16, 60, 61, 24, true, true, false, true, "silu+residual"},
  };
  for (const GatedCase& t : cases) {
    SCOPED_TRACE(str_cat("case ", static_cast<int64_t>(&t - cases)));
    for (const int threads : {1, 2}) check_gated(t, threads);
  }
}

TEST(CpuConv2d, GatesThatDoNotFitAreRefused) {
  std::vector<float> x(64), g(64), w(64), y(64);
  const auto make = [&](Call& call) {
    call.tensor(0, {1, 4, 4, 4}, x.data(), false);
    call.tensor(1, {1, 4, 1, 1}, g.data(), false);
    call.tensor(2, {4, 4, 1, 1}, w.data(), true);
    call.activation(5, "none", 0, 0);
    call.tensor(8, {1, 4, 4, 4}, y.data(), false);
  };
  const Kernel& kernel = conv_kernels()[1];
  Call good(9);
  make(good);
  EXPECT_TRUE(good.run(kernel, 1).ok());
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 3, 1, 1}, {2, 4, 1, 1}, {1, 4, 1, 2}, {4}, {1, 4, 1}}) {
    Call gate(9);
    make(gate);
    gate.tensor(1, sizes, g.data(), false);
    EXPECT_EQ(gate.run(kernel, 1).code(), Code::kInvalidInput);
  }
  Call window(9);
  make(window);
  window.tensor(2, {4, 4, 1, 2}, w.data(), true);
  EXPECT_EQ(window.run(kernel, 1).code(), Code::kInvalidFile);
  Call writable(9);
  make(writable);
  writable.values[2].tensor.read_only = false;
  EXPECT_EQ(writable.run(kernel, 1).code(), Code::kInvalidFile);
}

TEST(CpuConv2d, InfinitiesAndNaNReachOnlyTheirWindows) {
  constexpr int64_t kChannels = 24, kHeight = 18, kWidth = 23;
  std::vector<float> x = random_floats(kChannels * kHeight * kWidth, 1), w = random_floats(kChannels * kChannels * 9, 2), y(x.size());
  const auto at = [&](int64_t row, int64_t column) { return static_cast<size_t>(row * kWidth + column); };
  x[at(5, 7)] = std::numeric_limits<float>::infinity();
  x[at(13, 17)] = std::nanf("");
  Call call(12);
  call.tensor(0, {1, kChannels, kHeight, kWidth}, x.data(), false);
  call.tensor(1, {kChannels, kChannels, 3, 3}, w.data(), true);
  std::vector<float> r = random_floats(y.size(), 3);
  call.tensor(3, {1, kChannels, kHeight, kWidth}, r.data(), false);
  for (const size_t i : {4u, 5u, 6u}) call.pair(i, 1, 1);
  call.integer(7, 1);
  call.activation(8, "clamp+residual", -kUnbounded, kUnbounded);
  call.tensor(11, {1, kChannels, kHeight, kWidth}, y.data(), false);
  ASSERT_TRUE(call.run(conv_kernels()[0], 2).ok());
  for (int64_t o = 0; o < kChannels; ++o) {
    for (int64_t i = 0; i < kHeight; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        const float got = y[static_cast<size_t>(o) * kHeight * kWidth + at(i, j)];
        const bool near_infinity = std::abs(i - 5) <= 1 && std::abs(j - 7) <= 1, near_nan = std::abs(i - 13) <= 1 && std::abs(j - 17) <= 1;
        EXPECT_EQ(std::isinf(got), near_infinity) << o << " " << i << " " << j;
        EXPECT_EQ(std::isnan(got), near_nan) << o << " " << i << " " << j;
      }
    }
  }
}

TEST(CpuConv2d, RefusesWhatPayloadsMayNotHold) {
  std::vector<float> x(64), w(64), y(64);
  const auto make = [&](Call& call) {
    call.tensor(0, {1, 4, 4, 4}, x.data(), false);
    call.tensor(1, {4, 4, 1, 1}, w.data(), true);
    for (const size_t at : {4u, 6u}) call.pair(at, 1, 1);
    call.pair(5, 0, 0);
    call.integer(7, 1);
    call.activation(8, "none", 0, 0);
    call.tensor(11, {1, 4, 4, 4}, y.data(), false);
  };
  const Kernel& kernel = conv_kernels()[0];
  Call good(12);
  make(good);
  EXPECT_TRUE(good.run(kernel, 1).ok());
  Call writable(12);
  make(writable);
  writable.values[1].tensor.read_only = false;
  EXPECT_EQ(writable.run(kernel, 1).code(), Code::kInvalidFile);
  Call stride(12);
  make(stride);
  stride.pair(4, 0, 1);
  EXPECT_EQ(stride.run(kernel, 1).code(), Code::kInvalidFile);
  Call groups(12);
  make(groups);
  groups.integer(7, 3);
  EXPECT_EQ(groups.run(kernel, 1).code(), Code::kInvalidFile);
  Call unknown(12);
  make(unknown);
  for (const std::string_view name : {"softplus", "softplus+residual", "+residual", "silu+", "silu+residual+residual", "none+residual"}) {
    unknown.activation(8, name, 0, 0);
    EXPECT_EQ(unknown.run(kernel, 1).code(), Code::kInvalidFile) << name;
  }
}

TEST(StateCache, SharesLivingStates) {
  struct State final : runtime::KernelState {
    uint64_t memory_bytes() const override { return 100; }
  };
  runtime::StateCache cache;
  int made = 0;
  const auto make = [&]() -> Result<std::shared_ptr<const runtime::KernelState>> {
    ++made;
    return std::shared_ptr<const runtime::KernelState>(std::make_shared<State>());
  };
  auto first = cache.find_or_make("a", make);
  auto again = cache.find_or_make("a", make);
  EXPECT_EQ(first.value(), again.value());
  EXPECT_EQ(made, 1);
  first.value().reset();
  again.value().reset();
  EXPECT_TRUE(cache.find_or_make("a", make).ok());
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace pteron::cpu
