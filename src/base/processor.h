// What the processor can do, as far as kernels choose by it. PTERON_CPU_MAX in the environment (avx2, avx512, avx512_vnni, avx512_bf16, amx) caps
// what they choose, so that tests and measurements run what a smaller processor would run. Asked by kernels; the cap is checked by Program::load.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "pteron/status.h"

namespace pteron {

/// Vector and matrix units, each with all before it.
enum class Units : uint8_t {
  kAvx2,
  kAvx512,      ///< F, VL, DQ, BW, CD
  kAvx512Vnni,  ///< products of 8-bit integers
  kAvx512Bf16,  ///< products of bfloat16
  kAmx,         ///< tiles of both; the system lets this process use them
};

/// "avx2", "avx512", ...: as in PTERON_CPU_MAX.
std::string_view units_name(Units units);
/// Nothing for other names.
std::optional<Units> units_of_name(std::string_view name);

/// Errors: kInvalidInput (PTERON_CPU_MAX is set to something else than a name of units).
Status check_cpu_cap();

/// Whether the processor has what the compiler uses in AVX-512 versions of kernels (hwy/set_macros-inl.h), and the cap allows it; asked once.
/// Threads: any.
bool use_avx512();

/// Whether products of bfloat16 in vector registers are faster than those of the same numbers widened to float: by vendor. Measured on one core: a Xeon of
/// 2025 starts a quarter as many VDPBF16PS as multiply-adds of float (1.3 and 5.2 G a second; 85 against 150 GFLOP/s), Zen 4 as many (3.69 G; 215 against 105).
bool has_fast_bf16();

/// The best of this processor and system below the cap; asked once. Threads: any.
Units processor_units();

}  // namespace pteron
