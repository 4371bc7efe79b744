// Two loops: multiply-adds that stay in registers, and a copy of large buffers. The best of several rounds counts.
#include "cli/probe.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/buffer.h"

namespace pteron::cli {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 5;
constexpr int64_t kSteps = 400000;
constexpr int kSums = 12;  // enough to hide the latency of a multiply-add on two units; written out, since loops are not always unrolled
constexpr size_t kCopyBytes = 64 << 20;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Multiply-adds of kSteps rounds; the sum keeps the compiler from leaving them out.
__attribute__((target("avx2,fma"))) float multiply_add_8(float seed) {
  const __m256 a = _mm256_set1_ps(seed), b = _mm256_set1_ps(0.999f);
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < kSteps; ++step) {
    sums[0] = _mm256_fmadd_ps(sums[0], b, a);
    sums[1] = _mm256_fmadd_ps(sums[1], b, a);
    sums[2] = _mm256_fmadd_ps(sums[2], b, a);
    sums[3] = _mm256_fmadd_ps(sums[3], b, a);
    sums[4] = _mm256_fmadd_ps(sums[4], b, a);
    sums[5] = _mm256_fmadd_ps(sums[5], b, a);
    sums[6] = _mm256_fmadd_ps(sums[6], b, a);
    sums[7] = _mm256_fmadd_ps(sums[7], b, a);
    sums[8] = _mm256_fmadd_ps(sums[8], b, a);
    sums[9] = _mm256_fmadd_ps(sums[9], b, a);
    sums[10] = _mm256_fmadd_ps(sums[10], b, a);
    sums[11] = _mm256_fmadd_ps(sums[11], b, a);
  }
  float out = 0;
  for (int i = 0; i < kSums; ++i) out += _mm256_cvtss_f32(sums[i]);
  return out;
}

__attribute__((target("avx512f"))) float multiply_add_16(float seed) {
  const __m512 a = _mm512_set1_ps(seed), b = _mm512_set1_ps(0.999f);
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < kSteps; ++step) {
    sums[0] = _mm512_fmadd_ps(sums[0], b, a);
    sums[1] = _mm512_fmadd_ps(sums[1], b, a);
    sums[2] = _mm512_fmadd_ps(sums[2], b, a);
    sums[3] = _mm512_fmadd_ps(sums[3], b, a);
    sums[4] = _mm512_fmadd_ps(sums[4], b, a);
    sums[5] = _mm512_fmadd_ps(sums[5], b, a);
    sums[6] = _mm512_fmadd_ps(sums[6], b, a);
    sums[7] = _mm512_fmadd_ps(sums[7], b, a);
    sums[8] = _mm512_fmadd_ps(sums[8], b, a);
    sums[9] = _mm512_fmadd_ps(sums[9], b, a);
    sums[10] = _mm512_fmadd_ps(sums[10], b, a);
    sums[11] = _mm512_fmadd_ps(sums[11], b, a);
  }
  float out = 0;
  for (int i = 0; i < kSums; ++i) out += _mm512_cvtss_f32(sums[i]);
  return out;
}

double measure_flops(ThreadPool& pool) {
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  const int64_t threads = pool.thread_count();
  std::vector<float> results(static_cast<size_t>(threads));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) results[static_cast<size_t>(i)] = wide ? multiply_add_16(0.5f) : multiply_add_8(0.5f);
    });
    best = std::max(best, static_cast<double>(threads * kSteps * kSums * (wide ? 16 : 8) * 2) / seconds_since(begin));
  }
  return results[0] > 0 ? best : 0;
}

double measure_bytes(ThreadPool& pool) {
  auto from = Buffer::create_zeroed(kCopyBytes), to = Buffer::create_zeroed(kCopyBytes);
  if (!from.ok() || !to.ok()) return 0;
  std::memset(from->data(), 1, kCopyBytes);  // untouched pages would all be one
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(static_cast<int64_t>(kCopyBytes >> 16), 1, [&](int64_t first, int64_t last) {
      std::memcpy(to->data() + (first << 16), from->data() + (first << 16), static_cast<size_t>(last - first) << 16);
    });
    best = std::max(best, 2.0 * static_cast<double>(kCopyBytes) / seconds_since(begin));
  }
  return best;
}

}  // namespace

Machine probe_machine(ThreadPool& pool) { return {measure_flops(pool), measure_bytes(pool)}; }

}  // namespace pteron::cli
