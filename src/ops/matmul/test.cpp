// Tests of the matrix product: every orientation, odd sizes, narrow and integer dtypes, threads.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/buffer.h"
#include "ops/catalog.h"
#include "ops/gemm.h"

namespace pteron::ops {
namespace {

struct Case {
  int64_t m, n, k;
  bool a_turned, b_turned, c_turned;
};

template <typename T>
T make(double v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(v));
  } else {
    return static_cast<T>(v);
  }
}
template <typename T>
double value(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(v);
  } else {
    return static_cast<double>(v);
  }
}

template <typename T>
void check(const Case& c, double tolerance, ThreadPool& pool) {
  const auto sa = static_cast<size_t>(c.m * c.k), sb = static_cast<size_t>(c.k * c.n), sc = static_cast<size_t>(c.m * c.n);
  std::vector<T> a(sa), b(sb), out(sc), bias(static_cast<size_t>(c.n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = make<T>(static_cast<double>(i * 7 % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = make<T>(static_cast<double>(i * 5 % 11) - 5);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = make<T>(static_cast<double>(i % 9));
  GemmCall call;
  call.dtype = kDTypeOf<T>;
  call.m = c.m, call.n = c.n, call.k = c.k;
  call.a = {a.data(), c.a_turned ? 1 : c.k, c.a_turned ? c.m : 1, nullptr, nullptr};
  call.b = {b.data(), c.b_turned ? c.k : 1, c.b_turned ? 1 : c.n, nullptr, nullptr};
  call.c = out.data();
  call.c_m = c.c_turned ? 1 : c.n, call.c_n = c.c_turned ? c.m : 1;
  call.init = bias.data(), call.init_n = 1;
  call.alpha = 2, call.beta = 3;
  auto scratch = Buffer::create(gemm_workspace(call.dtype, c.m, c.n, c.k));
  ASSERT_TRUE(scratch.ok());
  gemm(call, pool, std::span(scratch->data(), scratch->size()));
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        sum += value(a[static_cast<size_t>(c.a_turned ? k * c.m + i : i * c.k + k)]) * value(b[static_cast<size_t>(c.b_turned ? j * c.k + k : k * c.n + j)]);
      }
      const double want = 2 * sum + 3 * value(bias[static_cast<size_t>(j)]);
      const double got = value(out[static_cast<size_t>(c.c_turned ? j * c.m + i : i * c.n + j)]);
      ASSERT_NEAR(got, want, tolerance * (1 + std::abs(want))) << c.m << "x" << c.n << "x" << c.k << " at " << i << "," << j;
    }
  }
}

template <typename T>
void check_all(double tolerance) {
  const auto two = make_thread_pool(2);
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 3}, {1, 70, 300}, {70, 2, 300}, {37, 45, 513}, {150, 170, 90}, {3, 300, 20}, {8, 8, 0}, {0, 4, 4}};
  for (const auto& s : shapes) {
    for (int mode = 0; mode < 8; ++mode) {
      const Case c{s[0], s[1], s[2], (mode & 1) != 0, (mode & 2) != 0, (mode & 4) != 0};
      check<T>(c, tolerance, serial_pool());
      check<T>(c, tolerance, *two);
    }
  }
}

TEST(Gemm, Float) { check_all<float>(1e-6); }
TEST(Gemm, Double) { check_all<double>(1e-14); }
TEST(Gemm, Half) { check_all<Half>(1e-3); }
TEST(Gemm, BFloat16) { check_all<BFloat16>(1e-2); }
TEST(Gemm, Int64) { check_all<int64_t>(0); }

TEST(Gemm, IntegersWrap) {
  const uint8_t a[2] = {200, 100}, b[2] = {3, 5};
  uint8_t out = 0;
  GemmCall call;
  call.dtype = DType::kUInt8;
  call.m = call.n = 1, call.k = 2;
  call.a = {a, 2, 1, nullptr, nullptr};
  call.b = {b, 2, 1, nullptr, nullptr};
  call.c = &out;
  alignas(64) std::byte scratch[65536];
  ASSERT_LE(gemm_slot_bytes(call.dtype, 1, 1, 2), sizeof scratch);
  gemm_serial(call, scratch);
  EXPECT_EQ(out, static_cast<uint8_t>(200 * 3 + 100 * 5));
}

TEST(Catalog, EveryRowParses) {
  const auto catalog = make_catalog();
  ASSERT_TRUE(catalog.ok()) << catalog.status().message();
  EXPECT_NE(catalog->find("aten::einsum"), nullptr);
}

}  // namespace
}  // namespace pteron::ops
