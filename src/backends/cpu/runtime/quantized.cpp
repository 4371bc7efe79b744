// Row loops of products of quantized operands.
#include "backends/cpu/runtime/quantized.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/processor.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"

/// Loops of a few instructions: a call would cost as much as they do.
#define PTERON_CPU_INLINE [[gnu::always_inline]] inline
/// Before a loop of constant length that must become straight code.
#if defined(__clang__)
#define PTERON_CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PTERON_CPU_UNROLL _Pragma("GCC unroll 4")
#endif

namespace pteron::cpu {
namespace {

int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
float sum_of(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
__m256i wide16(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
__m256i wide16(const uint8_t* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

template <typename T>
int32_t dot_bytes(const T* x, const int8_t* w, int64_t depth) {
  __m256i a = _mm256_setzero_si256(), b = a;
  int64_t k = 0;
  for (; k + 32 <= depth; k += 32) {
    a = _mm256_add_epi32(a, _mm256_madd_epi16(wide16(x + k), wide16(w + k)));
    b = _mm256_add_epi32(b, _mm256_madd_epi16(wide16(x + k + 16), wide16(w + k + 16)));
  }
  int32_t sum = sum_of(_mm256_add_epi32(a, b));
  for (; k < depth; ++k) sum += static_cast<int32_t>(x[k]) * w[k];
  return sum;
}

PTERON_CPU_INLINE __m256 eight_floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

template <typename T>
void store_levels(const QuantizedEnd& end, const float* y, int64_t count, T* out) {
  for (int64_t j = 0; j < count; ++j) {
    const float level = std::nearbyint(y[j] * end.inverse) + end.zero;
    out[j] = static_cast<T>(static_cast<int32_t>(level < end.least ? end.least : level > end.most ? end.most : level));
  }
}

enum class Added : uint8_t { kNothing, kFloat, kInt8, kUInt8 };

template <typename T>
void add_levels(const QuantizedEnd& end, const T* residual, int64_t count, float* y) {
  for (int64_t j = 0; j < count; ++j) y[j] += (static_cast<float>(residual[j]) - end.residual_zero) * end.residual_scale;
}

}  // namespace

namespace avx2 {
namespace {

/// Sixteen floats.
struct Floats {
  __m256 a, b;
};
struct V {
  static Floats set(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Floats sums(const int32_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8)))};
  }
  template <bool kSigned>
  static Floats bytes(const std::byte* from) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), high = _mm_srli_si128(all, 8);
    if constexpr (kSigned) return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))};
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(all)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high))};
  }
  static Floats add(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static Floats sub(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static Floats mul(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static Floats min(Floats x, Floats y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static Floats max(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static Floats round(Floats x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
  }
  static void store(Floats x, float* to) {
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
  }
  static void store_bytes(Floats x, std::byte* to) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)), 0xd8);
    const __m256i bytes = _mm256_and_si256(words, _mm256_set1_epi16(255));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
  }
};

#include "backends/cpu/runtime/quantized_end-inl.h"

}  // namespace
}  // namespace avx2

HWY_PUSH_ATTRIBUTES("avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx512vnni")
namespace avx512 {
namespace {

using Floats = __m512;
// Not the plain intrinsics where there are masked ones: g++ 12 warns of what the plain ones start from.
constexpr __mmask16 kAll = 0xffff;
struct V {
  static Floats set(float v) { return _mm512_set1_ps(v); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats of_ints(__m512i v) { return _mm512_maskz_cvtepi32_ps(kAll, v); }
  static Floats sums(const int32_t* from) { return of_ints(_mm512_loadu_si512(from)); }
  template <bool kSigned>
  static Floats bytes(const std::byte* from) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kSigned) return of_ints(_mm512_maskz_cvtepi8_epi32(kAll, all));
    return of_ints(_mm512_maskz_cvtepu8_epi32(kAll, all));
  }
  static Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats sub(Floats x, Floats y) { return _mm512_sub_ps(x, y); }
  static Floats mul(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
  static Floats min(Floats x, Floats y) { return _mm512_maskz_min_ps(kAll, x, y); }
  static Floats max(Floats x, Floats y) { return _mm512_maskz_max_ps(kAll, x, y); }
  static Floats round(Floats x) { return _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static __m512i to_ints(Floats x) { return _mm512_maskz_cvttps_epi32(kAll, x); }
  static void store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
  static void store_bytes(Floats x, std::byte* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi32_epi8(kAll, to_ints(x))); }
};

#include "backends/cpu/runtime/quantized_end-inl.h"

}  // namespace
}  // namespace avx512
HWY_POP_ATTRIBUTES

namespace {

void finish_whole(const QuantizedEnd& end, const SumBlock& b) {
  static const bool wide = has_wide_bytes();
  wide ? avx512::finish_whole(end, b) : avx2::finish_whole(end, b);
}

/// Less than sixteen columns: the same on rows that have sixteen.
void finish_rest(const QuantizedEnd& end, const SumBlock& b) {
  constexpr int64_t kWidth = 16, kRows = 32, kRowBytes = kWidth * static_cast<int64_t>(sizeof(float));
  alignas(64) float factors[kWidth] = {}, bias[kWidth] = {};
  alignas(64) std::byte residual[kRows * kRowBytes] = {}, out[kRows * kRowBytes];
  std::copy_n(b.factors, b.columns, factors);
  if (b.bias != nullptr) std::copy_n(b.bias, b.columns, bias);
  const auto out_bytes = static_cast<int64_t>(dtype_size(end.dtype)), added_bytes = static_cast<int64_t>(dtype_size(b.residual_dtype));
  const auto copy = [&](const std::byte* from, int64_t from_row, int64_t rows, int64_t size, std::byte* to, int64_t to_row) {
    for (int64_t i = 0; i < rows; ++i) std::memcpy(to + i * to_row * size, from + i * from_row * size, static_cast<size_t>(b.columns * size));
  };
  for (int64_t row = 0; row < b.rows; row += kRows) {
    SumBlock part = b;
    part.sums += row * b.sum_row;
    part.rows = std::min(kRows, b.rows - row);
    part.columns = part.row = kWidth;
    part.factors = factors;
    part.bias = bias;
    if (b.residual != nullptr) {
      copy(b.residual + row * b.row * added_bytes, b.row, part.rows, added_bytes, residual, kWidth);
      part.residual = residual;
    }
    part.out = out;
    finish_whole(end, part);
    copy(out, kWidth, part.rows, out_bytes, b.out + row * b.row * out_bytes, b.row);
  }
}

}  // namespace

bool has_wide_bytes() { return processor_units() >= Units::kAvx512Vnni; }

bool is_result_dtype(DType d) { return d == DType::kFloat32 || d == DType::kInt8 || d == DType::kUInt8; }

namespace {
/// low, high, inverse, zero, least, most, zero of the way back, scale; or nothing.
Status read_middle(std::span<const double> list, QuantizedMiddle* middle) {
  if (list.empty()) return ok_status();
  bool sound = list.size() == 8 && list[0] <= list[1] && list[2] > 0 && !std::isinf(list[2]) && list[4] <= list[5] && std::isfinite(list[7]);
  for (size_t i = 3; sound && i < 7; ++i) sound = std::fabs(list[i]) <= 256 && list[i] == std::floor(list[i]);
  if (!sound) return Status(Code::kInvalidFile, "the levels in the middle of a quantized product are unsound");
  const auto at = [&](size_t i) { return static_cast<float>(list[i]); };
  *middle = {true, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
  return ok_status();
}
}  // namespace

Status QuantizedEnd::read(std::span<runtime::Value* const> args) {
  if (args[0]->tag == runtime::Tag::kDoubleList) {
    PTERON_TRY(read_middle(args[0]->doubles, &middle));
  } else if (args[0]->tag != runtime::Tag::kIntList || !args[0]->items.empty()) {  // an empty list has no kind
    return Status(Code::kInvalidFile, "the levels in the middle of a quantized product are no list of floats");
  }
  args = args.subspan(1);
  const std::string_view activation = args[0]->string;
  if (activation != "none" && activation != "clamp") return Status(Code::kInvalidFile, str_cat("activation '", activation, "' of a quantized product is unknown"));
  if (activation == "clamp") {
    low = static_cast<float>(runtime::Unpack<double>::get(*args[1]));
    high = static_cast<float>(runtime::Unpack<double>::get(*args[2]));
  }
  inverse = static_cast<float>(runtime::Unpack<double>::get(*args[3]));
  const int64_t levels[] = {args[4]->integer, args[5]->integer, args[6]->integer};
  dtype = runtime::Unpack<DType>::get(*args[7]);
  if (!is_result_dtype(dtype)) return Status(Code::kInvalidFile, str_cat("a quantized product of dtype ", dtype_name(dtype)));
  if (dtype == DType::kFloat32) return ok_status();
  const int64_t lowest = dtype == DType::kInt8 ? -128 : 0, highest = lowest + 255;
  if (!(inverse > 0) || std::isinf(inverse) || levels[0] < -256 || levels[0] > 256 || levels[1] < lowest || levels[2] > highest || levels[1] > levels[2]) {
    return Status(Code::kInvalidFile, str_cat("levels of a quantized product: zero ", levels[0], ", from ", levels[1], " to ", levels[2], " in ", dtype_name(dtype)));
  }
  zero = static_cast<float>(levels[0]);
  least = static_cast<float>(levels[1]);
  most = static_cast<float>(levels[2]);
  make_table();
  return ok_status();
}

void QuantizedEnd::make_table() {
  has_table = middle.exists && dtype != DType::kFloat32 && middle.most - middle.least <= 255;
  if (!has_table) return;
  QuantizedEnd rest = *this;
  rest.middle.exists = false;
  for (int i = 0; i <= static_cast<int>(middle.most - middle.least); ++i) {
    float y = (middle.least + static_cast<float>(i) - middle.back_zero) * middle.scale;
    rest.finish(&y, nullptr, DType::kFloat32, 1, &table[static_cast<uint8_t>(i - 128)]);
  }
}

Status check_vector(const char* op, const char* name, const runtime::Tensor& t, int64_t count) {
  if (t.read_only && t.rank() == 1 && t.size(0) == count && t.dtype() == DType::kFloat32 && t.view.is_contiguous()) return ok_status();
  return Status(Code::kInvalidFile, str_cat(op, ": ", name, " must be a float32 constant [", count, "], found ", dtype_name(t.dtype()), " ", shape_text(t.sizes())));
}

Status read_residual(const runtime::Value& scale, const runtime::Value& zero, QuantizedEnd* end) {
  if (zero.integer < -256 || zero.integer > 256) return Status(Code::kInvalidFile, str_cat("the residual's zero point is ", zero.integer));
  end->residual_scale = static_cast<float>(runtime::Unpack<double>::get(const_cast<runtime::Value&>(scale)));
  end->residual_zero = static_cast<float>(zero.integer);
  return ok_status();
}

void QuantizedEnd::finish(float* y, const void* residual, DType residual_dtype, int64_t count, void* out) const {
  for (int64_t j = 0; middle.exists && j < count; ++j) {
    const float v = y[j] < middle.low ? middle.low : y[j] > middle.high ? middle.high : y[j];
    const float level = std::nearbyint(v * middle.inverse) + middle.zero;
    y[j] = ((level < middle.least ? middle.least : level > middle.most ? middle.most : level) - middle.back_zero) * middle.scale;
  }
  if (residual != nullptr) {
    if (residual_dtype == DType::kInt8) {
      add_levels(*this, static_cast<const int8_t*>(residual), count, y);
    } else if (residual_dtype == DType::kUInt8) {
      add_levels(*this, static_cast<const uint8_t*>(residual), count, y);
    } else {
      for (int64_t j = 0; j < count; ++j) y[j] += static_cast<const float*>(residual)[j];
    }
  }
  // NaN stays NaN, as in a clamp of floats; where the bounds cross, the upper one counts.
  for (int64_t j = 0; j < count; ++j) {
    const float v = y[j] < low ? low : y[j];
    y[j] = v > high ? high : v;
  }
  if (dtype == DType::kInt8) return store_levels(*this, y, count, static_cast<int8_t*>(out));
  if (dtype == DType::kUInt8) return store_levels(*this, y, count, static_cast<uint8_t*>(out));
  if (out != y) std::copy(y, y + count, static_cast<float*>(out));
}

void finish_block(const QuantizedEnd& end, const SumBlock& block) {
  static const bool wide = has_wide_bytes();
  if (wide && end.dtype != DType::kFloat32 && finish_bytes(end, block)) return;
  SumBlock b = block;
  b.columns = block.columns / 16 * 16;
  if (b.columns > 0) finish_whole(end, b);
  const int64_t rest = block.columns - b.columns;
  if (rest == 0) return;
  b.sums += b.columns;
  b.factors += b.columns;
  if (b.bias != nullptr) b.bias += b.columns;
  if (b.residual != nullptr) b.residual += b.columns * static_cast<int64_t>(dtype_size(b.residual_dtype));
  b.out += b.columns * static_cast<int64_t>(dtype_size(end.dtype));
  b.columns = rest;
  finish_rest(end, b);
}

int32_t dot(const int8_t* x, const int8_t* w, int64_t depth) { return dot_bytes(x, w, depth); }
int32_t dot(const uint8_t* x, const int8_t* w, int64_t depth) { return dot_bytes(x, w, depth); }

void unpack_nibbles(const uint8_t* from, int64_t count, int8_t* to) {
  const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
  int64_t k = 0;
  for (; k + 32 <= count; k += 32) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k / 2));
    const __m128i even = _mm_and_si128(bytes, low), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k), _mm_sub_epi8(_mm_unpacklo_epi8(even, odd), eight));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k + 16), _mm_sub_epi8(_mm_unpackhi_epi8(even, odd), eight));
  }
  for (; k < count; ++k) to[k] = static_cast<int8_t>((from[k / 2] >> (k % 2 * 4) & 15) - 8);
}

namespace {

/// 32 weights of `bits` bits from column k on, as two vectors of int8.
template <int kBits>
PTERON_CPU_INLINE void load_weights(const std::byte* row, int64_t k, __m128i out[2]) {
  if constexpr (kBits == 8) {
    out[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + k));
    out[1] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + k + 16));
    return;
  }
  const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + k / 2));
  const __m128i even = _mm_sub_epi8(_mm_and_si128(bytes, low), eight), odd = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), low), eight);
  out[0] = _mm_unpacklo_epi8(even, odd);
  out[1] = _mm_unpackhi_epi8(even, odd);
}
template <int kBits>
float one_weight(const std::byte* row, int64_t k) {
  if constexpr (kBits == 8) return static_cast<float>(static_cast<int8_t>(row[k]));
  return static_cast<float>((static_cast<int>(row[k / 2]) >> (k % 2 * 4) & 15) - 8);
}

/// Products of 32 weights and x, added up in eight lanes, onto `sum`.
template <int kBits>
PTERON_CPU_INLINE __m256 add_products(const float* x, const std::byte* row, int64_t k, __m256 sum) {
  __m128i w[2];
  load_weights<kBits>(row, k, w);
  sum = _mm256_fmadd_ps(eight_floats(w[0]), _mm256_loadu_ps(x + k), sum);
  sum = _mm256_fmadd_ps(eight_floats(_mm_srli_si128(w[0], 8)), _mm256_loadu_ps(x + k + 8), sum);
  sum = _mm256_fmadd_ps(eight_floats(w[1]), _mm256_loadu_ps(x + k + 16), sum);
  return _mm256_fmadd_ps(eight_floats(_mm_srli_si128(w[1], 8)), _mm256_loadu_ps(x + k + 24), sum);
}

template <int kBits>
float grouped_sum(const float* x, const WeightRow& row) {
  __m256 total = _mm256_setzero_ps();
  float rest = 0;
  for (int64_t k = 0, g = 0; k < row.depth; ++g) {
    const int64_t end = k + row.group;
    const float scale = row.scales[g];
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    for (; k + 128 <= end; k += 128) {
      a = add_products<kBits>(x, row.weights, k, a);
      b = add_products<kBits>(x, row.weights, k + 32, b);
      c = add_products<kBits>(x, row.weights, k + 64, c);
      d = add_products<kBits>(x, row.weights, k + 96, d);
    }
    for (; k + 32 <= end; k += 32) a = add_products<kBits>(x, row.weights, k, a);
    total = _mm256_fmadd_ps(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)), _mm256_set1_ps(scale), total);
    for (; k < end; ++k) rest += x[k] * one_weight<kBits>(row.weights, k) * scale;
  }
  return sum_of(total) + rest;
}

/// byte_rows() for a fixed number of rows.
template <int kRows>
void byte_rows_of(const uint8_t* x, const WeightRow& row, float* out, int64_t out_step) {
  const __m256i low = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8), ones = _mm256_set1_epi16(1);
  const int64_t halves = row.group / (kByteBlock / 2);  // of a block that share a scale
  __m256 sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = _mm256_setzero_ps();
  const float* scale = row.scales;
  int64_t left = halves;
  const auto next = [&] {
    const float* now = scale;
    if (--left == 0) {
      left = halves;
      ++scale;
    }
    return _mm_broadcast_ss(now);
  };
  for (int64_t k = 0; k < row.depth; k += kByteBlock) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.weights + k / 2));
    const __m256i even = _mm256_sub_epi8(_mm256_and_si256(bytes, low), eight), odd = _mm256_sub_epi8(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), low), eight);
    const __m128 first = next(), second = next();
    const __m256 scales = _mm256_set_m128(second, first);
    for (int i = 0; i < kRows; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(x + i * row.depth + k);
      // At most 4 * 255 * 8 a lane: no sum saturates.
      const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_loadu_si256(from), even), _mm256_maddubs_epi16(_mm256_loadu_si256(from + 1), odd));
      sums[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones)), scales, sums[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) out[i * out_step] = sum_of(sums[i]);
}

}  // namespace

float grouped_dot(const float* x, const WeightRow& row) { return row.bits == 8 ? grouped_sum<8>(x, row) : grouped_sum<4>(x, row); }

void arrange_bytes(const uint8_t* x, bool is_signed, int64_t rows, int64_t depth, uint8_t* to) {
  const uint8_t flip = is_signed ? 128 : 0;
  for (int64_t b = 0; b < rows * depth; b += kByteBlock) {
    for (int64_t i = 0; i < kByteBlock / 2; ++i) {
      to[b + i] = static_cast<uint8_t>(x[b + 2 * i] ^ flip);
      to[b + kByteBlock / 2 + i] = static_cast<uint8_t>(x[b + 2 * i + 1] ^ flip);
    }
  }
}

void byte_rows(const uint8_t* x, int64_t rows, const WeightRow& row, float* out, int64_t out_step) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) byte_rows_of<4>(x + i * row.depth, row, out + i * out_step, out_step);
  for (; i < rows; ++i) byte_rows_of<1>(x + i * row.depth, row, out + i * out_step, out_step);
}

}  // namespace pteron::cpu
