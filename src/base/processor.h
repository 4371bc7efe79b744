// What the processor can do, as far as kernels choose by it. PTERON_CPU_MAX in the environment (avx2, avx512, avx512_vnni, avx512_bf16, amx) caps
// what products in narrow types choose, so that tests and measurements run what a smaller processor would run.
#pragma once

#include <cstdint>

namespace pteron {

/// Vector and matrix units, each with all before it.
enum class Units : uint8_t {
  kAvx2,
  kAvx512,      ///< F, VL, DQ, BW, CD
  kAvx512Vnni,  ///< products of 8-bit integers
  kAvx512Bf16,  ///< products of bfloat16
  kAmx,         ///< tiles of both; the system lets this process use them
};

/// What the compiler may use in AVX-512 versions of kernels (hwy/set_macros-inl.h), whatever the cap is. Threads: any.
inline bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("bmi2") != 0;
#else
  return false;
#endif
}

/// Whether products of bfloat16 in vector registers are faster than those of the same numbers widened to float. Measured on a Xeon of 2025: 85
/// against 150 GFLOP/s on one core.
bool has_fast_bf16();

/// The best of this processor and system below the cap; asked once. Threads: any.
Units processor_units();

}  // namespace pteron
