// Inner loops of narrow products: AVX2, AVX-512 (VNNI, BF16) and AMX, all compiled here, chosen at run time.
#include "backends/cpu/runtime/narrow_kernels.h"

#include <hwy/base.h>
#include <immintrin.h>

/// Before a loop of constant length that must become straight code.
#if defined(__clang__)
#define PTERON_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PTERON_UNROLL _Pragma("GCC unroll 16")
#endif

namespace pteron::cpu {
namespace {
/// Bits of floats.
using Bits [[gnu::may_alias]] = uint32_t;
}  // namespace

namespace avx2 {
namespace {

#include "backends/cpu/runtime/narrow_tile-inl.h"

/// Weights widened to float on the way.
struct Bf16 {
  using Vec = __m256;
  static constexpr int kVectors = 2, kMaxPanels = 1, kRows = 6, kGroups = 5, kSteps = 2;
  static Vec load(const int32_t* from) { return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))); }
  static void store(Vec v, int32_t* to) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castps_si256(v)); }
  static Vec weights(const std::byte* from, int step) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_castsi256_ps(step == 0 ? _mm256_slli_epi32(w, 16) : _mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static Vec broadcast(const std::byte* from) { return _mm256_broadcast_ss(reinterpret_cast<const float*>(from)); }
  static Vec add(Vec acc, Vec x, Vec w) { return _mm256_fmadd_ps(x, w, acc); }
};

struct Half : Bf16 {
  static Vec weights(const std::byte* from, int step) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + step * 16))); }
};

/// Products of 16-bit pairs: exact, where vpmaddubsw would saturate.
struct Int8 {
  using Vec = __m256i;
  static constexpr int kVectors = 2, kMaxPanels = 1, kRows = 6, kGroups = 5, kSteps = 2;
  static Vec load(const int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static void store(Vec v, int32_t* to) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
  static Vec weights(const std::byte* from, int step) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_srai_epi16(step == 0 ? _mm256_slli_epi16(w, 8) : w, 8);
  }
  static Vec broadcast(const std::byte* from) { return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(from))); }
  static Vec add(Vec acc, Vec x, Vec w) { return _mm256_add_epi32(acc, _mm256_madd_epi16(x, w)); }
};

}  // namespace
}  // namespace avx2

HWY_PUSH_ATTRIBUTES("avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx512vnni,avx512bf16")
namespace avx512 {
namespace {

#include "backends/cpu/runtime/narrow_tile-inl.h"

using Lanes [[gnu::vector_size(64)]] = uint32_t;

struct Bf16Wide {
  using Vec = __m512;
  static constexpr int kVectors = 1, kMaxPanels = 2, kRows = 12, kGroups = 2, kSteps = 2;
  static Vec load(const int32_t* from) { return _mm512_castsi512_ps(_mm512_loadu_si512(from)); }
  static void store(Vec v, int32_t* to) { _mm512_storeu_si512(to, _mm512_castps_si512(v)); }
  static Vec weights(const std::byte* from, int step) {
    const auto w = reinterpret_cast<Lanes>(_mm512_loadu_si512(from));
    return reinterpret_cast<__m512>(step == 0 ? w << 16 : w & 0xffff0000u);
  }
  static Vec broadcast(const std::byte* from) { return _mm512_set1_ps(*reinterpret_cast<const float*>(from)); }
  static Vec add(Vec acc, Vec x, Vec w) { return _mm512_fmadd_ps(x, w, acc); }
};

struct HalfWide : Bf16Wide {
  static Vec weights(const std::byte* from, int step) {
    const auto* at = reinterpret_cast<const __m128i*>(from + step * 16);
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at)), _mm_loadu_si128(at + 2),
                                                                 1));  // not the plain one: g++ 12 warns of what it starts from
  }
};

/// Quads as they lie, for instructions that take them whole.
struct Quads {
  using Vec = __m512i;
  static constexpr int kVectors = 1, kMaxPanels = 2, kRows = 12, kGroups = 2, kSteps = 1;
  static Vec load(const int32_t* from) { return _mm512_loadu_si512(from); }
  static void store(Vec v, int32_t* to) { _mm512_storeu_si512(to, v); }
  static Vec weights(const std::byte* from, int) { return _mm512_loadu_si512(from); }
  static Vec broadcast(const std::byte* from) { return _mm512_set1_epi32(*reinterpret_cast<const Bits*>(from)); }
};

/// Subnormal numbers count as zero in these instructions, and sums of two products are rounded once.
struct Bf16 : Quads {
  static Vec add(Vec acc, Vec x, Vec w) {
    // Not the intrinsic: clang 16 crashes on vectors of bfloat16 (its pass VectorCombine).
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
    return acc;
  }
};

struct Int8 : Quads {
  static Vec add(Vec acc, Vec x, Vec w) { return _mm512_dpbusd_epi32(acc, x, w); }
};

void copy_rows(const ByteRows& r) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(r.flip));
  const auto rest = static_cast<__mmask64>(r.run % 64 == 0 ? 0 : ~uint64_t{0} >> (64 - r.run % 64));
  for (int64_t i = 0; i < r.count; ++i) {
    const std::byte* from = r.rows[i];
    std::byte* to = r.to + i * r.to_row;
    for (int64_t t = 0; t < r.taps; ++t) {
      int64_t k = 0;
      for (; k + 64 <= r.run; k += 64) _mm512_storeu_si512(to + k, _mm512_xor_si512(_mm512_loadu_si512(from + k), flip));
      if (rest != 0) _mm512_mask_storeu_epi8(to + k, rest, _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, from + k), flip));
      from += r.steps[t];
      to += r.run;
    }
  }
}

}  // namespace
}  // namespace avx512
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,bmi,bmi2,amx-tile,amx-int8,amx-bf16")
namespace amx {
namespace {

// Tiles by number: sums 0 to 3 (row tile * 2 + panel), rows 4 and 5, panels 6 and 7. Written as assembly, since intrinsics do not tell compilers of
// this age which memory they read.
template <int kTile>
inline void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
enum class Rows : uint8_t { kBf16, kUInt8, kInt8 };
template <Rows kRows, int kSum, int kRow, int kPanel>
inline void multiply() {
  if constexpr (kRows == Rows::kBf16) {
    asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kPanel), "i"(kRow), "i"(kSum));
  } else if constexpr (kRows == Rows::kUInt8) {
    asm volatile("tdpbusd %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kPanel), "i"(kRow), "i"(kSum));
  } else {
    asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kPanel), "i"(kRow), "i"(kSum));
  }
}

struct Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Config) == 64);

int64_t rows_of_tile(int64_t rows) {
  const int64_t tiles = (rows + 15) / 16;
  return (rows + tiles - 1) / tiles;
}

void begin(int64_t rows) {
  Config config;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes[tile] = 64;
    config.rows[tile] = tile < 6 ? static_cast<uint8_t>(rows) : 16;
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

void end() { asm volatile("tilerelease" : : : "memory"); }

template <Rows kRows, bool kTwoRows, bool kTwoPanels>
void run_tiles(const NarrowRun& r) {
  constexpr int64_t kPanelStart = kNarrowColumns * 4;
  const auto* start = static_cast<const std::byte*>(r.start);
  load_tile<0>(start, 0);
  if constexpr (kTwoPanels) load_tile<1>(start + kPanelStart, 0);
  if constexpr (kTwoRows) load_tile<2>(start, 0);
  if constexpr (kTwoRows && kTwoPanels) load_tile<3>(start + kPanelStart, 0);
  const std::byte *b = r.b, *next = r.next;
  for (int64_t chunk = 0; chunk < r.chunks; ++chunk) {
    const int64_t at = r.chunk_offsets[chunk];
    load_tile<6>(b, kQuadLine);
    load_tile<4>(r.a + at, r.a_row);
    multiply<kRows, 0, 4, 6>();
    if constexpr (kTwoRows) {
      load_tile<5>(r.second + at, r.a_row);
      multiply<kRows, 2, 5, 6>();
    }
    if constexpr (kTwoPanels) {
      load_tile<7>(b + r.panel_bytes, kQuadLine);
      multiply<kRows, 1, 4, 7>();
      if constexpr (kTwoRows) multiply<kRows, 3, 5, 7>();
    }
    for (int64_t i = 0; i < r.next_lines; ++i, next += kQuadLine) __builtin_prefetch(next, 0, 2);
    b += kQuadChunk * kQuadLine;
  }
}

void store(const NarrowRun& r) {
  constexpr int64_t kPanelStart = kNarrowColumns * 4, kRowBytes = kNarrowResultRow * 4;
  auto* out = static_cast<std::byte*>(r.out);
  const bool two_rows = r.rows > r.tile_rows, two_panels = r.panels == 2;
  store_tile<0>(out, kRowBytes);
  if (two_panels) store_tile<1>(out + kPanelStart, kRowBytes);
  if (!two_rows) return;
  out += r.tile_rows * kRowBytes;
  store_tile<2>(out, kRowBytes);
  if (two_panels) store_tile<3>(out + kPanelStart, kRowBytes);
}

/// The height of the row tiles is that of begin(): rows of a run are at most two tiles of it, and those of a, second and out exist.
template <Rows kRows>
void run(const NarrowRun& r) {
  if (r.rows > r.tile_rows) {
    r.panels == 2 ? run_tiles<kRows, true, true>(r) : run_tiles<kRows, true, false>(r);
  } else {
    r.panels == 2 ? run_tiles<kRows, false, true>(r) : run_tiles<kRows, false, false>(r);
  }
  store(r);
}

}  // namespace
}  // namespace amx
HWY_POP_ATTRIBUTES

namespace {

/// `k` for rows of bytes as they are.
NarrowKernels with_bytes(NarrowKernels k) {
  k.copy_rows = avx512::copy_rows;
  return k;
}

template <amx::Rows kRows>
NarrowKernels tiles() {
  NarrowKernels k = kRows == amx::Rows::kBf16 ? avx512::kernels_of<avx512::Bf16>(false) : avx512::kernels_of<avx512::Int8>(false);
  k.rows = 32;
  k.run = amx::run<kRows>;
  k.is_signed = kRows == amx::Rows::kInt8;
  k.begin = amx::begin;
  k.end = amx::end;
  k.rows_of_tile = amx::rows_of_tile;
  return k;
}

}  // namespace

const NarrowKernels& narrow_kernels(NarrowKind kind, Units units, bool is_signed) {
  static const NarrowKernels bf16[] = {avx2::kernels_of<avx2::Bf16>(true), avx512::kernels_of<avx512::Bf16Wide>(true), avx512::kernels_of<avx512::Bf16>(false),
                                       tiles<amx::Rows::kBf16>()};
  static const NarrowKernels int8[] = {avx2::kernels_of<avx2::Int8>(true), with_bytes(avx512::kernels_of<avx512::Int8>(false)),
                                       with_bytes(tiles<amx::Rows::kUInt8>()), with_bytes(tiles<amx::Rows::kInt8>())};
  static const NarrowKernels half[] = {avx2::kernels_of<avx2::Half>(true), avx512::kernels_of<avx512::HalfWide>(true)};
  if (kind == NarrowKind::kHalf) return half[units < Units::kAvx512Vnni ? 0 : 1];
  if (kind == NarrowKind::kBf16) {
    // AVX-512 without VNNI shares the region of the wider ones, and so needs VNNI.
    if (units < Units::kAvx512Vnni) return bf16[0];
    return bf16[units == Units::kAmx ? 3 : units == Units::kAvx512Bf16 && has_fast_bf16() ? 2 : 1];
  }
  if (units < Units::kAvx512Vnni) return int8[0];
  return int8[units < Units::kAmx ? 1 : is_signed ? 3 : 2];
}

}  // namespace pteron::cpu
