// Asks the processor (CPUID) and, for tiles, the system.
#include "base/processor.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pteron {
namespace {

#if defined(__x86_64__)
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  if ((d & kAll) != kAll) return false;
#if defined(__linux__)
  // The state of the tiles is large: Linux keeps it only for processes that ask (arch_prctl, ARCH_REQ_XCOMP_PERM, component 18).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Units find_units(Units cap) {
  if (!has_avx512() || cap < Units::kAvx512) return Units::kAvx2;
  if (__builtin_cpu_supports("avx512vnni") == 0 || cap < Units::kAvx512Vnni) return Units::kAvx512;
  if (__builtin_cpu_supports("avx512bf16") == 0 || cap < Units::kAvx512Bf16) return Units::kAvx512Vnni;
  if (cap < Units::kAmx || !has_tiles()) return Units::kAvx512Bf16;
  return Units::kAmx;
}
#else
Units find_units(Units) { return Units::kAvx2; }
#endif

Units cap_of_environment() {
  const char* text = std::getenv("PTERON_CPU_MAX");
  const std::string_view cap = text != nullptr ? text : "";
  if (cap == "avx2") return Units::kAvx2;
  if (cap == "avx512") return Units::kAvx512;
  if (cap == "avx512_vnni") return Units::kAvx512Vnni;
  if (cap == "avx512_bf16") return Units::kAvx512Bf16;
  return Units::kAmx;
}

}  // namespace

bool has_fast_bf16() {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_is("intel") == 0;
  return fast;
#else
  return false;
#endif
}

Units processor_units() {
  static const Units units = find_units(cap_of_environment());
  return units;
}

}  // namespace pteron
