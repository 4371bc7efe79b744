// Asks the processor (CPUID) and, for tiles, the system.
#include "base/processor.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pteron {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"};  // by Units

std::string_view cap_text() {
  const char* text = std::getenv("PTERON_CPU_MAX");
  return text != nullptr ? text : "";
}

/// No cap where the environment has none, or an unknown one, which check_cpu_cap() refuses.
Units cap_of_environment() { return units_of_name(cap_text()).value_or(Units::kAmx); }

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("bmi2") != 0;
}

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
  if (!use_avx512()) return Units::kAvx2;
  if (__builtin_cpu_supports("avx512vnni") == 0 || cap < Units::kAvx512Vnni) return Units::kAvx512;
  if (__builtin_cpu_supports("avx512bf16") == 0 || cap < Units::kAvx512Bf16) return Units::kAvx512Vnni;
  if (cap < Units::kAmx || !has_tiles()) return Units::kAvx512Bf16;
  return Units::kAmx;
}
#else
Units find_units(Units) { return Units::kAvx2; }
#endif

}  // namespace

std::string_view units_name(Units units) { return kNames[static_cast<size_t>(units)]; }

std::optional<Units> units_of_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Units>(found - kNames.begin());
}

Status check_cpu_cap() {
  const std::string_view text = cap_text();
  if (text.empty() || units_of_name(text)) return ok_status();
  std::string known;
  for (const std::string_view name : kNames) str_append(known, known.empty() ? "" : ", ", name);
  return Status(Code::kInvalidInput, str_cat("the environment's PTERON_CPU_MAX is '", text, "', expected one of ", known));
}

bool use_avx512() {
#if defined(__x86_64__)
  static const bool use = has_avx512() && cap_of_environment() >= Units::kAvx512;
  return use;
#else
  return false;
#endif
}

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
