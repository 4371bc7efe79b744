// From integer sums to bytes with AVX-512: four vectors of sums become one of bytes, bounds are folded into few instructions. Also depthwise sums of
// bytes, whose sums stay in registers. Called by quantized.cpp and quantized_conv.cpp where has_wide_bytes() says so.
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/runtime/quantized.h"
#include "base/processor.h"
#include "tensor/dtype.h"

/// Loops of a few instructions: a call would cost as much as they do.
#define PTERON_CPU_INLINE [[gnu::always_inline]] inline
/// Before a loop of constant length that must become straight code.
#if defined(__clang__)
#define PTERON_CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PTERON_CPU_UNROLL _Pragma("GCC unroll 4")
#endif

HWY_PUSH_ATTRIBUTES("avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx512vnni")
namespace pteron::cpu {
namespace {

using Floats = __m512;
using Ints = __m512i;
// Not the plain intrinsics where there are masked ones: g++ 12 warns of what the plain ones start from.
constexpr __mmask16 kAll = 0xffff;
constexpr float kWhole = 12582912;  // 1.5 * 2^23: floats near it are whole numbers, and it is an even one
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
PTERON_CPU_INLINE Floats set(float v) { return _mm512_set1_ps(v); }
PTERON_CPU_INLINE Floats of_ints(Ints v) { return _mm512_maskz_cvtepi32_ps(kAll, v); }
PTERON_CPU_INLINE Floats between(Floats v, Floats low, Floats high) { return _mm512_maskz_min_ps(kAll, high, _mm512_maskz_max_ps(kAll, low, v)); }

/// Bytes of two vectors by the low seven bits of `at`. Not the intrinsic: what else stands here must not need VBMI.
PTERON_CPU_INLINE Ints look_up(Ints at, Ints low, Ints high) {
  asm("vpermi2b %2, %1, %0" : "+v"(at) : "v"(low), "v"(high));
  return at;
}

enum class Added : uint8_t { kNothing, kInt8, kUInt8 };
/// Levels in the middle: none, counted through, or looked up (a processor with VBMI, no residual).
enum class Middle : uint8_t { kNone, kFloat, kTable };

/// What a sum goes through, in registers: stores of bytes may change anything else, as far as the compiler knows. Clamps before levels are clamps of
/// levels (rounding is monotone), and levels are clamped before the zero point is added, where a float still cannot leave the integers upwards;
/// downwards, packing saturates. So the results are those of QuantizedEnd::finish(). Requires: is_plain().
template <Added kAdded, Middle kMiddle>
class ByteEnd {
 public:
  explicit ByteEnd(const QuantizedEnd& e) {
    const QuantizedMiddle& m = e.middle;
    if constexpr (kMiddle == Middle::kTable) {  // to the middle's levels, counted from -128 on
      set_levels(m.low, m.high, m.inverse, m.zero, m.least, m.most, static_cast<int>(m.least) + 128);
      for (size_t i = 0; i < 4; ++i) table_[i] = _mm512_loadu_si512(e.table.data() + i * 64);
    } else {
      set_levels(e.low, e.high, e.inverse, e.zero, e.least, e.most, e.dtype == DType::kUInt8 ? 128 : 0);  // unsigned ones are 128 less on the way
      flip_ = _mm512_set1_epi8(e.dtype == DType::kUInt8 ? -128 : 0);
    }
    added_zero_ = set(e.residual_zero);
    added_scale_ = set(e.residual_scale);
    middle_inverse_ = set(m.inverse);
    middle_low_ = set(level(m.low, m.inverse, m.zero, m.least, m.most) - m.zero);
    middle_high_ = set(level(m.high, m.inverse, m.zero, m.least, m.most) - m.zero);
    middle_back_ = set(kWhole - (m.zero - m.back_zero));
    middle_scale_ = set(m.scale);
  }

  /// Levels less the zero point, not yet clamped from below. `residual` has sixteen bytes.
  PTERON_CPU_INLINE Ints levels(Ints sums, Floats factors, Floats bias, __m128i residual) const {
    Floats y = _mm512_add_ps(_mm512_mul_ps(of_ints(sums), factors), bias);
    if constexpr (kMiddle == Middle::kFloat) {
      // Adding a number whose last place is one rounds.
      const Floats level = between(_mm512_mul_ps(y, middle_inverse_), middle_low_, middle_high_);
      y = _mm512_mul_ps(_mm512_sub_ps(_mm512_add_ps(level, set(kWhole)), middle_back_), middle_scale_);
    }
    if constexpr (kAdded != Added::kNothing) {
      const Ints wide = kAdded == Added::kInt8 ? _mm512_maskz_cvtepi8_epi32(kAll, residual) : _mm512_maskz_cvtepu8_epi32(kAll, residual);
      y = _mm512_add_ps(y, _mm512_mul_ps(_mm512_sub_ps(of_ints(wide), added_zero_), added_scale_));
    }
    return _mm512_maskz_cvt_roundps_epi32(kAll, _mm512_maskz_min_ps(kAll, high_, _mm512_mul_ps(y, inverse_)), kNearest);
  }
  /// Bytes of four vectors of levels: of every 16 bytes four are of a, then of b, c, d.
  PTERON_CPU_INLINE Ints bytes(Ints a, Ints b, Ints c, Ints d) const {
    const Ints ab = _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero_), cd = _mm512_adds_epi16(_mm512_packs_epi32(c, d), zero_);
    const Ints levels = _mm512_max_epi8(_mm512_packs_epi16(ab, cd), least_);
    if constexpr (kMiddle != Middle::kTable) return _mm512_xor_si512(levels, flip_);
    const Ints low = look_up(levels, table_[0], table_[1]), high = look_up(levels, table_[2], table_[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(levels), high);
  }

 private:
  /// `offset` is what levels are less on the way.
  void set_levels(float low, float high, float inverse, float zero, float least, float most, int offset) {
    inverse_ = set(inverse);
    high_ = set(level(high, inverse, zero, least, most) - zero);
    zero_ = _mm512_set1_epi16(static_cast<int16_t>(static_cast<int>(zero) - offset));
    least_ = _mm512_set1_epi8(static_cast<char>(static_cast<int>(level(low, inverse, zero, least, most)) - offset));
  }
  static float level(float v, float inverse, float zero, float least, float most) { return std::clamp(std::nearbyint(v * inverse) + zero, least, most); }
  Floats inverse_, high_, added_zero_, added_scale_, middle_inverse_, middle_low_, middle_high_, middle_back_, middle_scale_;
  Ints zero_, least_, flip_, table_[4];
};

/// Sixteen constants of a column, those behind the end as zero.
struct Columns {
  Columns() = default;
  Columns(const SumBlock& b, int64_t at, __mmask16 exist)
      : factors(_mm512_maskz_loadu_ps(exist, b.factors + at)), bias(b.bias != nullptr ? _mm512_maskz_loadu_ps(exist, b.bias + at) : _mm512_setzero_ps()) {}
  /// Whether no number is infinite or NaN.
  bool are_finite() const {
    const Floats rest = _mm512_add_ps(_mm512_sub_ps(factors, factors), _mm512_sub_ps(bias, bias));
    return _mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q) == kAll;
  }
  Floats factors, bias;
};

/// Part `i` of four of a vector to memory.
template <int kPart, int kVectors, bool kWhole>
PTERON_CPU_INLINE void store_part(Ints v, __mmask32 exist, std::byte* to) {
  if constexpr (kVectors == 2) {
    const __m256i half = _mm512_maskz_extracti64x4_epi64(0xf, v, kPart);
    kWhole ? _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half) : _mm256_mask_storeu_epi8(to, exist, half);
  } else {
    const __m128i quarter = _mm512_maskz_extracti32x4_epi32(0xf, v, kPart);
    kWhole ? _mm_storeu_si128(reinterpret_cast<__m128i*>(to), quarter) : _mm_mask_storeu_epi8(to, static_cast<__mmask16>(exist), quarter);
  }
}

/// Up to sixteen (kVectors 1) or 32 columns from `at` on; kWhole: exactly so many.
template <Added kAdded, Middle kMiddle, int kVectors, bool kWhole>
void finish_columns(const QuantizedEnd& e, const SumBlock& b, int64_t at, __mmask32 exist) {
  constexpr int kRows = 4 / kVectors;
  const ByteEnd<kAdded, kMiddle> end(e);
  const __mmask16 masks[2] = {static_cast<__mmask16>(exist), static_cast<__mmask16>(exist >> 16)};
  Columns columns[kVectors];
  PTERON_CPU_UNROLL
  for (int v = 0; v < kVectors; ++v) columns[v] = Columns(b, at + v * 16, masks[v]);
  // Packing leaves four bytes of each vector together; whole rows are wanted.
  const Ints order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const int32_t* sums = b.sums + at;
  const std::byte* residual = kAdded == Added::kNothing ? nullptr : b.residual + at;
  std::byte* out = b.out + at;
  for (int64_t i = 0; i < b.rows; i += kRows) {
    Ints levels[4];
    int64_t rows[kRows];
    PTERON_CPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      rows[r] = std::min(i + r, b.rows - 1);  // the last row again where there is none
      PTERON_CPU_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        __m128i added = _mm_setzero_si128();
        if constexpr (kAdded != Added::kNothing) {
          const std::byte* from = residual + rows[r] * b.row + v * 16;
          added = kWhole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)) : _mm_maskz_loadu_epi8(masks[v], from);
        }
        levels[r * kVectors + v] = end.levels(_mm512_loadu_si512(sums + rows[r] * b.sum_row + v * 16), columns[v].factors, columns[v].bias, added);
      }
    }
    const Ints bytes = _mm512_maskz_permutexvar_epi32(kAll, order, end.bytes(levels[0], levels[1], levels[2], levels[3]));
    store_part<0, kVectors, kWhole>(bytes, exist, out + rows[0] * b.row);
    store_part<1, kVectors, kWhole>(bytes, exist, out + rows[1] * b.row);
    if constexpr (kRows == 4) {
      store_part<2, kVectors, kWhole>(bytes, exist, out + rows[2] * b.row);
      store_part<3, kVectors, kWhole>(bytes, exist, out + rows[3] * b.row);
    }
  }
}

template <Added kAdded, Middle kMiddle>
void finish_all(const QuantizedEnd& e, const SumBlock& b) {
  int64_t at = 0;
  for (; at + 32 <= b.columns; at += 32) finish_columns<kAdded, kMiddle, 2, true>(e, b, at, ~__mmask32{0});
  const int64_t rest = b.columns - at;
  const auto exist = static_cast<__mmask32>((uint64_t{1} << rest) - 1);
  if (rest > 16) return finish_columns<kAdded, kMiddle, 2, false>(e, b, at, exist);
  if (rest == 16) return finish_columns<kAdded, kMiddle, 1, true>(e, b, at, exist);
  if (rest > 0) finish_columns<kAdded, kMiddle, 1, false>(e, b, at, exist);
}

/// Whether no NaN can arise: levels of those depend on the order of the steps.
bool is_plain(const QuantizedEnd& e) {
  constexpr float kLarge = 1e30f;
  return e.low <= e.high && std::fabs(e.residual_scale) < kLarge && (!e.middle.exists || std::fabs(e.middle.scale) < kLarge);
}
bool can_look_up(const QuantizedEnd& e) {
  static const bool has_vbmi = __builtin_cpu_supports("avx512vbmi") != 0;
  return e.has_table && has_vbmi;
}
bool are_finite(const SumBlock& b) {
  bool finite = true;
  for (int64_t at = 0; at < b.columns; at += 16) {
    finite = finite && Columns(b, at, static_cast<__mmask16>((uint64_t{1} << std::min<int64_t>(16, b.columns - at)) - 1)).are_finite();
  }
  return finite;
}

/// Sums of 64 channels to bytes. Places are such that packing puts the channels into their order.
template <Middle kMiddle>
PTERON_CPU_INLINE void store_pixel(const ByteEnd<Added::kNothing, kMiddle>& end, const DepthwiseBytes& d, const Ints sums[4], __mmask64 exist, std::byte* out) {
  Ints levels[4];
  PTERON_CPU_UNROLL
  for (int i = 0; i < 4; ++i) levels[i] = end.levels(sums[i], _mm512_loadu_ps(d.factors + i * 16), _mm512_loadu_ps(d.bias + i * 16), _mm_setzero_si128());
  _mm512_mask_storeu_epi8(out, exist, end.bytes(levels[0], levels[1], levels[2], levels[3]));
}

/// Every 32-bit lane of a vector has four taps of a channel.
template <bool kSigned, Middle kMiddle>
class Depthwise {
 public:
  Depthwise(const QuantizedEnd& e, const DepthwiseBytes& d)
      : d_(d),
        end_(e),
        exist_(d.channels >= kDepthwiseChannels ? ~__mmask64{0} : (__mmask64{1} << d.channels) - 1),
        flip_(_mm512_set1_epi8(kSigned ? -128 : 0)) {}

  /// Any taps, pixel by pixel.
  void run() const {
    const uint8_t* window = d_.window;
    std::byte* out = d_.out;
    for (int64_t pixel = 0; pixel < d_.pixels; ++pixel, window += d_.step, out += d_.out_step) {
      Ints sums[4];
      begin(sums);
      for (int64_t tap = 0; tap < d_.taps; tap += 4) {
        Ints quads[4];
        const int64_t* at = d_.offsets + tap;
        interleave(load(window + at[0]), load(window + at[1]), load(window + at[2]), load(window + at[3]), quads);
        add(quads, tap / 4, sums);
      }
      store_pixel(end_, d_, sums, exist_, out);
    }
  }
  /// Windows of three columns of three pixels: neighbouring pixels share what is interleaved of a column.
  template <int kStride>
  void run_columns() const {
    const int64_t column = d_.step / kStride;
    const uint8_t* window = d_.window;
    std::byte* out = d_.out;
    Ints a[4], b[4], c[4];
    load_column(window, a);
    if constexpr (kStride == 2) {
      for (int64_t pixel = 0;; ++pixel, window += d_.step) {
        load_column(window + column, b);
        load_column(window + 2 * column, c);
        store(a, b, c, &out);
        if (pixel + 1 == d_.pixels) return;
        PTERON_CPU_UNROLL
        for (int i = 0; i < 4; ++i) a[i] = c[i];
      }
    }
    load_column(window + column, b);
    window += 2 * column;
    for (int64_t pixel = d_.pixels;; window += 3 * column) {
      load_column(window, c);
      store(a, b, c, &out);
      if (--pixel == 0) return;
      load_column(window + column, a);
      store(b, c, a, &out);
      if (--pixel == 0) return;
      load_column(window + 2 * column, b);
      store(c, a, b, &out);
      if (--pixel == 0) return;
    }
  }

 private:
  PTERON_CPU_INLINE Ints load(const uint8_t* from) const {
    const Ints bytes = _mm512_maskz_loadu_epi8(exist_, from);
    return kSigned ? _mm512_xor_si512(bytes, flip_) : bytes;
  }
  PTERON_CPU_INLINE static void interleave(Ints a, Ints b, Ints c, Ints e, Ints quads[4]) {
    const Ints ab[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)}, ce[2] = {_mm512_unpacklo_epi8(c, e), _mm512_unpackhi_epi8(c, e)};
    PTERON_CPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      quads[2 * i] = _mm512_unpacklo_epi16(ab[i], ce[i]);
      quads[2 * i + 1] = _mm512_unpackhi_epi16(ab[i], ce[i]);
    }
  }
  PTERON_CPU_INLINE void load_column(const uint8_t* from, Ints quads[4]) const {
    const Ints last = load(from + d_.offsets[2]);
    interleave(load(from + d_.offsets[0]), load(from + d_.offsets[1]), last, last, quads);
  }
  PTERON_CPU_INLINE void begin(Ints sums[4]) const {
    PTERON_CPU_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = _mm512_loadu_si512(d_.start + i * 16);
  }
  PTERON_CPU_INLINE void add(const Ints quads[4], int64_t quad, Ints sums[4]) const {
    PTERON_CPU_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], quads[i], _mm512_loadu_si512(d_.weights + (quad * 4 + i) * 64));
  }
  PTERON_CPU_INLINE void store(const Ints a[4], const Ints b[4], const Ints c[4], std::byte** out) const {
    Ints sums[4];
    begin(sums);
    add(a, 0, sums);
    add(b, 1, sums);
    add(c, 2, sums);
    store_pixel(end_, d_, sums, exist_, *out);
    *out += d_.out_step;
  }

  const DepthwiseBytes d_;
  const ByteEnd<Added::kNothing, kMiddle> end_;
  const __mmask64 exist_;
  const Ints flip_;
};

template <bool kSigned, Middle kMiddle>
void depthwise(const QuantizedEnd& end, const DepthwiseBytes& d) {
  const Depthwise<kSigned, kMiddle> sums(end, d);
  if (d.column_stride == 1) return sums.template run_columns<1>();
  if (d.column_stride == 2) return sums.template run_columns<2>();
  sums.run();
}

}  // namespace

bool finish_bytes(const QuantizedEnd& e, const SumBlock& b) {
  if (!is_plain(e) || (b.residual != nullptr && b.residual_dtype == DType::kFloat32) || !are_finite(b)) return false;
  const auto finish = [&]<Middle kMiddle>() {
    if (b.residual == nullptr) return finish_all<Added::kNothing, kMiddle>(e, b);
    b.residual_dtype == DType::kInt8 ? finish_all<Added::kInt8, kMiddle>(e, b) : finish_all<Added::kUInt8, kMiddle>(e, b);
  };
  if (!e.middle.exists) {
    finish.template operator()<Middle::kNone>();
  } else if (b.residual == nullptr && can_look_up(e)) {
    finish_all<Added::kNothing, Middle::kTable>(e, b);
  } else {
    finish.template operator()<Middle::kFloat>();
  }
  return true;
}

bool depthwise_bytes(const QuantizedEnd& end, const DepthwiseBytes& d, bool is_signed) {
  SumBlock constants;
  constants.columns = kDepthwiseChannels;
  constants.factors = d.factors;
  constants.bias = d.bias;
  if (!is_plain(end) || !are_finite(constants)) return false;
  if (d.pixels == 0) return true;
  const auto run = [&]<Middle kMiddle>() { is_signed ? depthwise<true, kMiddle>(end, d) : depthwise<false, kMiddle>(end, d); };
  if (!end.middle.exists) {
    run.template operator()<Middle::kNone>();
  } else if (can_look_up(end)) {
    run.template operator()<Middle::kTable>();
  } else {
    run.template operator()<Middle::kFloat>();
  }
  return true;
}

}  // namespace pteron::cpu
HWY_POP_ATTRIBUTES
