// Inner kernels of the matrix product in Highway: compiled for the baseline and for AVX-512 where the baseline is x86; chosen at run time.
#include "ops/gemm_micro.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm_micro.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pteron::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 512 bits, two vectors a row: 6 x 2 registers of 16, or 12 x 2 of 32.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
inline constexpr int kMr = 6;
#else
inline constexpr int kMr = 12;
#endif

template <typename T>
void tile(int64_t depth, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* c, int64_t ldc, const T* init, int64_t init_m, int64_t init_n) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::CappedTag<T, 64 / sizeof(T)>()));
  V acc[kMr][2];
  for (int i = 0; i < kMr; ++i) {
    acc[i][0] = hn::Zero(d);
    acc[i][1] = hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + kLanes);
#if HWY_COMPILER_CLANG
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int i = 0; i < kMr; ++i) {
      const V x = hn::Set(d, a[i]);
      acc[i][0] = hn::MulAdd(x, b0, acc[i][0]);
      acc[i][1] = hn::MulAdd(x, b1, acc[i][1]);
    }
    a += kMr;
    b += 2 * kLanes;
  }
  if (init != nullptr) {
    for (int i = 0; i < kMr; ++i) {
      const T* from = init + i * init_m;
      acc[i][0] = hn::Add(acc[i][0], init_n == 1 ? hn::LoadU(d, from) : hn::Set(d, *from));
      acc[i][1] = hn::Add(acc[i][1], init_n == 1 ? hn::LoadU(d, from + kLanes) : hn::Set(d, *from));
    }
  }
  for (int i = 0; i < kMr; ++i) {
    hn::StoreU(acc[i][0], d, c + i * ldc);
    hn::StoreU(acc[i][1], d, c + i * ldc + kLanes);
  }
}

template <typename T>
T dot(const T* x, const T* y, int64_t n) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * lanes), hn::LoadU(d, y + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * lanes), hn::LoadU(d, y + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

template <typename T>
void axpy(T alpha, const T* x, T* y, int64_t n) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, alpha);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(scale, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] += alpha * x[i];
}

template <typename T>
GemmMicro<T> make_micro() {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::CappedTag<T, 64 / sizeof(T)>()));
  static_assert(kMr <= kGemmMaxMr && 2 * kLanes <= kGemmMaxNr);
  return {kMr, 2 * kLanes, tile<T>, dot<T>, axpy<T>};
}
GemmMicro<float> micro_float() { return make_micro<float>(); }
GemmMicro<double> micro_double() { return make_micro<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pteron::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::ops {
template <>
GemmMicro<float> gemm_micro<float>() {
  return PTERON_HWY_CALL(micro_float);
}
template <>
GemmMicro<double> gemm_micro<double>() {
  return PTERON_HWY_CALL(micro_double);
}
}  // namespace pteron::ops
#endif
