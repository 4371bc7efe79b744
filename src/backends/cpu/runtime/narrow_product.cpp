// Packing, conversion of rows, blocks, threads. Loops: narrow_kernels.cpp.
#include "backends/cpu/runtime/narrow_product.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/cpu/runtime/pack.h"
#include "base/no_memory.h"
#include "tensor/dim_math.h"
#include "tensor/half.h"

namespace pteron::cpu {
namespace {

// Converted rows of a block stay in the second-level cache beside two panels: 512 KB of it at least; 2 MB where there are tiles.
constexpr int64_t kRowBytes = 192 << 10;
constexpr int64_t kRowBytesWithTiles = 640 << 10;
constexpr int64_t kMaxRows = 256;
constexpr int64_t kCachedWeightBytes = 192 << 10;
constexpr int64_t kLowBlock = 128;
// Rows so far apart share few places of the first-level cache: 32 of them would push each other out.
constexpr int64_t kCrowdedStride = 2048;
// Below this many multiplications a second thread costs more than it saves.
constexpr double kThreadGrain = 1 << 18;

int64_t elements_of_quad(NarrowKind kind) { return kind == NarrowKind::kInt8 ? 4 : 2; }

/// Whether offsets of every quad's elements are neighbours, so that quads can be moved as a whole.
bool quads_are_dense(std::span<const int64_t> offsets, int64_t per_quad) {
  if (static_cast<int64_t>(offsets.size()) % per_quad != 0) return false;
  for (size_t k = 0; k < offsets.size(); ++k) {
    const auto in_quad = static_cast<int64_t>(k) % per_quad;
    if (in_quad == 0 ? offsets[k] % per_quad != 0 : offsets[k] != offsets[k - 1] + 1) return false;
  }
  return true;
}

template <typename T>
void pack_elements(const T* data, int64_t stride, int64_t count, std::span<const int64_t> offsets, T* to) {
  constexpr int64_t kPerQuad = 4 / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kChunk = 256;  // of the depth: what a round writes stays in the first-level cache
  const auto depth = static_cast<int64_t>(offsets.size());
  for (int64_t begin = 0; begin < depth; begin += kChunk) {
    const int64_t end = std::min(depth, begin + kChunk);
    for (int64_t j = 0; j < count; ++j) {
      const T* from = data + j * stride;
      for (int64_t k = begin; k < end; ++k) {
        const int64_t offset = offsets[static_cast<size_t>(k)];
        if (offset >= 0) to[(k / kPerQuad * kNarrowColumns + j) * kPerQuad + k % kPerQuad] = from[offset];
      }
    }
  }
}

/// The lines of a panel from pairs by column to the form of kHalf.
void part_pairs(std::byte* panel, int64_t bytes) {
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  for (int64_t at = 0; at < bytes; at += 32) {
    auto* to = reinterpret_cast<__m256i*>(panel + at);
    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(_mm256_shuffle_epi8(_mm256_loadu_si256(to), _mm256_broadcastsi128_si256(order)), 0xd8));
  }
}

/// Where converted rows lie, and what all blocks of a task share.
struct Rows {
  std::byte* data = nullptr;
  int64_t stride = 0;                ///< bytes
  std::byte* raw = nullptr;          ///< room for one row as it is
  const int32_t* starts = nullptr;   ///< what the sums of all columns begin with: floats or int32
  const int64_t* chunks = nullptr;   ///< bytes from a row's begin to each chunk, with tiles
  const NarrowLines* lines = nullptr;  ///< not null: rows are read where they are
  /// Row `row` of a block that begins with `first`.
  const std::byte* at(int64_t first, int64_t row) const {
    if (lines == nullptr) return data + (row - first) * stride;
    return lines->data + row / lines->length * lines->line_step + row % lines->length * lines->row_step;
  }
};

/// Row form: bytes of a row of whole chunks. An odd number of lines, so that neighbouring rows never push each other out of the first-level cache.
int64_t row_stride(const NarrowMatrix& weights, const NarrowKernels& kernels) { return (weights.chunks() * (kernels.wide ? 2 : 1) | 1) * kQuadLine; }

/// Calls fn(from, to_element, count) for the runs of a row.
template <typename T, typename Fn>
inline void for_runs(const NarrowProduct& p, const std::byte* row, Fn&& fn) {
  const int64_t run = p.weights->depth() / p.taps;
  const T* from = reinterpret_cast<const T*>(row);
  for (int64_t t = 0; t < p.taps; ++t) {
    fn(from, t * run, run);
    from += p.steps[t];
  }
}

void convert_bf16(const NarrowProduct& p, const NarrowKernels& kernels, const std::byte* row, std::byte* to) {
  auto* floats = reinterpret_cast<float*>(to);
  auto* halves = reinterpret_cast<uint16_t*>(to);
  if (p.type == DType::kFloat32) {
    for_runs<float>(p, row, [&](const float* from, int64_t at, int64_t count) {
      kernels.wide ? kernels.float_to_rounded(from, floats + at, count) : kernels.float_to_bf16(from, halves + at, count);
    });
    return;
  }
  for_runs<uint16_t>(p, row, [&](const uint16_t* from, int64_t at, int64_t count) {
    if (kernels.wide) return kernels.bf16_to_float(from, floats + at, count);
    std::memcpy(halves + at, from, static_cast<size_t>(count) * 2);
  });
}

void half_to_float(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = half_bits_to_float(from[i]);
}

void convert_half(const NarrowProduct& p, const std::byte* row, std::byte* to) {
  auto* floats = reinterpret_cast<float*>(to);
  if (p.type == DType::kFloat32) {
    return for_runs<float>(p, row, [&](const float* from, int64_t at, int64_t count) { std::memcpy(floats + at, from, static_cast<size_t>(count) * sizeof(float)); });
  }
  for_runs<uint16_t>(p, row, [&](const uint16_t* from, int64_t at, int64_t count) { half_to_float(from, floats + at, count); });
}

/// Zeros in [begin, end) of a row, both multiples of 8 bytes.
inline void clear(std::byte* row, int64_t begin, int64_t end) {
  for (; end - begin >= 32; end -= 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + end - 32), _mm256_setzero_si256());
  for (; begin < end; begin += 8) _mm_storel_epi64(reinterpret_cast<__m128i*>(row + begin), _mm_setzero_si128());
}

/// A row of bytes as int16.
void widen_row(const NarrowProduct& p, const NarrowKernels& kernels, const std::byte* row, std::byte* to, std::byte* raw) {
  for_runs<std::byte>(p, row, [&](const std::byte* from, int64_t at, int64_t count) { std::memcpy(raw + at, from, static_cast<size_t>(count)); });
  const int64_t quads = ceil_div(p.weights->depth(), int64_t{4});
  if (p.type == DType::kInt8) return kernels.int8_to_wide(reinterpret_cast<const int8_t*>(raw), reinterpret_cast<int16_t*>(to), quads);
  kernels.uint8_to_wide(reinterpret_cast<const uint8_t*>(raw), reinterpret_cast<int16_t*>(to), quads);
}

/// Rows [first, last) in the kernels' form; what pads the depth is zero (0 times a NaN would be one).
void convert_rows(const NarrowProduct& p, const NarrowKernels& kernels, int64_t first, int64_t last, const Rows& rows) {
  constexpr int64_t kBatch = 64;
  const std::byte* pointers[kBatch];
  const NarrowKind kind = p.weights->kind();
  const int64_t depth = p.weights->depth() * 4 / elements_of_quad(kind) * (kernels.wide ? 2 : 1);  // bytes of it
  // Tiles read whole chunks, other units whole quads.
  const int64_t end = kernels.begin != nullptr ? rows.stride : ceil_div(depth, int64_t{8}) * 8;
  ByteRows bytes{pointers, 0, p.taps, p.steps, p.weights->depth() / p.taps, 0, nullptr, rows.stride};
  // Units that read unsigned bytes get signed ones as 128 more.
  if (!kernels.is_signed && p.type == DType::kInt8) bytes.flip = 128;
  for (int64_t row = first; row < last; row += kBatch) {
    const int64_t count = std::min(kBatch, last - row);
    p.rows_of(p.context, row, count, pointers);
    std::byte* const begin = rows.data + (row - first) * rows.stride;
    for (int64_t i = 0; depth < end && i < count; ++i) clear(begin + i * rows.stride, depth / 8 * 8, end);
    if (kernels.copy_rows != nullptr) {
      bytes.count = count;
      bytes.to = begin;
      kernels.copy_rows(bytes);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      std::byte* to = begin + i * rows.stride;
      if (kind == NarrowKind::kBf16) {
        convert_bf16(p, kernels, pointers[i], to);
      } else if (kind == NarrowKind::kHalf) {
        convert_half(p, pointers[i], to);
      } else {
        widen_row(p, kernels, pointers[i], to, rows.raw);
      }
    }
  }
}

int64_t chunk_offset(const NarrowLines& lines, int64_t chunk) { return chunk / lines.run_chunks * lines.tap_step + chunk % lines.run_chunks * kQuadLine; }
/// Whether a product's rows lie in several lines.
bool has_lines(const NarrowProduct& p) { return p.lines != nullptr && p.lines->length < p.rows; }
/// Rows of tiles for a block of `count` rows.
int64_t tile_rows(const NarrowProduct& p, const NarrowKernels& kernels, const Rows& rows, int64_t count) {
  return rows.lines != nullptr && has_lines(p) ? rows_of_line_tile(p.lines->length) : kernels.rows_of_tile(count);
}
/// Whether tiles can read rows [first, last), and those that fill up the last tile, where they are.
bool can_read_in_place(const NarrowProduct& p, const NarrowKernels& kernels, int64_t first, int64_t last) {
  if (p.lines == nullptr || kernels.begin == nullptr || p.weights->kind() != NarrowKind::kInt8 || p.lines->row_step % kCrowdedStride == 0) return false;
  Rows rows;
  rows.lines = p.lines;
  const int64_t height = tile_rows(p, kernels, rows, last - first);
  if (height == 0) return false;
  const int64_t end = first + ceil_div(last - first, height) * height;
  return p.lines->end - rows.at(first, end - 1) >= chunk_offset(*p.lines, p.weights->chunks() - 1) + kQuadLine;
}

/// Tiles of this thread as kernels.begin() sets them up, once for blocks of one height: it takes as long as hundreds of multiplications.
class TileHeight {
 public:
  explicit TileHeight(const NarrowKernels& kernels) : kernels_(kernels) {}
  TileHeight(const TileHeight&) = delete;
  TileHeight& operator=(const TileHeight&) = delete;
  ~TileHeight() {
    if (rows_ != 0) kernels_.end();
  }
  void set(int64_t rows) {
    if (rows_ != rows) kernels_.begin(rows);
    rows_ = rows;
  }

 private:
  const NarrowKernels& kernels_;
  int64_t rows_ = 0;
};

/// Rows [first, last), converted already, of panels [panel, end).
void run_panels(const NarrowProduct& p, const NarrowKernels& kernels, int64_t first, int64_t last, int64_t panel, int64_t end, const Rows& rows, TileHeight* height) {
  alignas(64) int32_t result[kNarrowResultRows * kNarrowResultRow];
  const NarrowMatrix& weights = *p.weights;
  NarrowRun run;
  run.a_row = rows.stride;
  run.chunks = weights.chunks();
  run.quads = ceil_div(weights.depth(), elements_of_quad(weights.kind()));
  run.panel_bytes = weights.panel_bytes();
  const bool tiles = kernels.begin != nullptr;
  run.tile_rows = tiles ? tile_rows(p, kernels, rows, last - first) : 0;
  run.chunk_offsets = rows.chunks;
  // Without tiles all groups of rows are of nearly the same height: a low one at the end would leave most units idle.
  const int64_t step = tiles ? 2 * run.tile_rows : ceil_div(last - first, ceil_div(last - first, int64_t{kernels.height})) * (kernels.rows / kernels.height);
  const int64_t groups = ceil_div(last - first, step);
  if (tiles) height->set(run.tile_rows);
  run.out = result;
  for (; panel < end; panel += run.panels) {
    run.panels = static_cast<int>(std::min<int64_t>(2, end - panel));
    run.b = weights.panel(panel);
    const int64_t column = panel * kNarrowColumns;
    run.start = rows.starts + column;
    // Every group of rows fetches its share of the next panels.
    const int64_t next_panels = std::min<int64_t>(2, end - panel - run.panels);
    run.next_lines = ceil_div(next_panels * kQuadChunk, groups);
    const int64_t columns = std::min(weights.columns() - column, run.panels * kNarrowColumns);
    for (int64_t row = first, group = 0; row < last; row += step, ++group) {
      run.a = rows.at(first, row);
      if (tiles) run.second = rows.at(first, row + run.tile_rows);
      run.rows = std::min(step, last - row);
      run.next = run.b + run.panels * run.panel_bytes + group * run.next_lines * run.chunks * kQuadLine;
      NarrowResult part;
      part.values = result;
      part.row = row;
      part.rows = run.rows;
      part.column = column;
      part.columns = columns;
      if (p.fetch != nullptr) p.fetch(p.store_context, part);
      kernels.run(run);
      p.store(p.store_context, part);
    }
  }
}

/// Elements that are stored as 16 bits.
struct Bf16Bits {
  uint16_t bits;
};
struct HalfBits {
  uint16_t bits;
};

__m256 load8(const float* from) { return _mm256_loadu_ps(from); }
__m256 load8(const HalfBits* from) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
__m256 load8(const Bf16Bits* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), 16));
}
void store8(__m256 v, float* to) { _mm256_storeu_ps(to, v); }
void store8(__m256 v, HalfBits* to) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
void store8(__m256 v, Bf16Bits* to) {
  const __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  const __m256i rounded = _mm256_srli_epi32(_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan)), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}
float widened(float v) { return v; }
float widened(Bf16Bits v) { return bfloat16_bits_to_float(v.bits); }
float widened(HalfBits v) { return half_bits_to_float(v.bits); }
void put(float v, float* to) { *to = v; }
void put(float v, Bf16Bits* to) { to->bits = float_to_bfloat16_bits(v); }
void put(float v, HalfBits* to) { to->bits = float_to_half_bits(v); }

/// to[j] = clamp(from[j] + residual[j]). NaN stays NaN: the instructions give their second operand if one is NaN.
template <typename R, typename C>
void finish_row(const float* from, const R* residual, float low, float high, int64_t count, C* to) {
  const __m256 lows = _mm256_set1_ps(low), highs = _mm256_set1_ps(high);
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) {
    __m256 v = _mm256_loadu_ps(from + j);
    if constexpr (!std::is_void_v<R>) v = _mm256_add_ps(v, load8(residual + j));
    store8(_mm256_min_ps(highs, _mm256_max_ps(lows, v)), to + j);
  }
  for (; j < count; ++j) {
    float v = from[j];
    if constexpr (!std::is_void_v<R>) v += widened(residual[j]);
    v = v < low ? low : v;
    put(v > high ? high : v, to + j);
  }
}

/// R: element of the residual, or void. C: of the result.
template <typename R, typename C>
void store_sums(const FloatStore& s, const NarrowResult& part) {
  const auto* values = static_cast<const float*>(part.values);
  const auto residual_of = [&](int64_t i) -> const R* {
    if constexpr (std::is_void_v<R>) {
      return nullptr;
    } else {
      return static_cast<const R*>(s.residual) + (part.row + i) * s.residual_row + part.column;
    }
  };
  float low = s.epilogue.low, high = s.epilogue.high;
  alignas(32) float made[kNarrowResultRows * kNarrowResultRow];
  const bool adds_last = s.epilogue.adds_last, in_between = s.epilogue.function != nullptr || adds_last;
  if (in_between) {  // on all rows at once: calls for 32 values each would cost more than the values
    for (int64_t i = 0; i < part.rows; ++i) {
      float* const to = made + i * kNarrowResultRow;
      if (adds_last) {
        finish_row<void>(values + i * kNarrowResultRow, nullptr, low, high, part.columns, to);
      } else {
        finish_row<R>(values + i * kNarrowResultRow, residual_of(i), low, high, part.columns, to);
      }
      std::fill(to + part.columns, to + kNarrowResultRow, 0.0f);
    }
    if (s.epilogue.function != nullptr) s.epilogue.function(made, nullptr, nullptr, 0, made, static_cast<size_t>(part.rows * kNarrowResultRow));
    values = made;
    low = -std::numeric_limits<float>::infinity();
    high = -low;
  }
  for (int64_t i = 0; i < part.rows; ++i) {
    C* to = static_cast<C*>(s.c) + (part.row + i) * s.c_row + part.column;
    if (in_between && !adds_last) {
      finish_row<void>(values + i * kNarrowResultRow, nullptr, low, high, part.columns, to);
    } else {
      finish_row<R>(values + i * kNarrowResultRow, residual_of(i), low, high, part.columns, to);
    }
  }
}

template <typename R>
void store_result(const FloatStore& s, const NarrowResult& part) {
  if (s.c_type == DType::kFloat32) return store_sums<R, float>(s, part);
  if (s.c_type == DType::kFloat16) return store_sums<R, HalfBits>(s, part);
  store_sums<R, Bf16Bits>(s, part);
}

}  // namespace

int64_t NarrowMatrix::panel_count() const { return ceil_div(n_, kNarrowColumns); }
int64_t NarrowMatrix::chunks() const { return ceil_div(depth_, elements_of_quad(kind_) * kQuadChunk); }

Result<std::shared_ptr<const NarrowMatrix>> NarrowMatrix::make(NarrowKind kind, const void* data, int64_t n, int64_t stride_n, std::span<const int64_t> offsets,
                                                               const float* bias, int64_t bias_stride, ThreadPool& pool) {
  auto made = std::make_shared<NarrowMatrix>();
  made->kind_ = kind;
  made->n_ = n;
  made->depth_ = static_cast<int64_t>(offsets.size());
  PTERON_ASSIGN(made->panels_, Buffer::create_zeroed(static_cast<uint64_t>(std::max<int64_t>(made->panel_count() * made->panel_bytes(), 1))));
  PTERON_ASSIGN(made->starts_, Buffer::create_zeroed(static_cast<uint64_t>(std::max<int64_t>(made->panel_count(), 1) * kNarrowColumns) * 4));
  const int64_t per_quad = elements_of_quad(kind), size = 4 / per_quad;
  const auto* bytes = static_cast<const std::byte*>(data);
  std::vector<int64_t> quads;
  if (stride_n % per_quad == 0 && quads_are_dense(offsets, per_quad)) {
    for (size_t k = 0; k < offsets.size(); k += static_cast<size_t>(per_quad)) quads.push_back(offsets[k] / per_quad);
  }
  const PanelPacker packer(quads);
  pool.parallel_for(made->panel_count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = panel * kNarrowColumns, count = std::min(kNarrowColumns, n - column);
      const std::byte* from = bytes + column * stride_n * size;
      std::byte* to = made->panels_.data() + panel * made->panel_bytes();
      if (!quads.empty()) {
        packer.pack(reinterpret_cast<const float*>(from), stride_n / per_quad, count, kNarrowColumns, reinterpret_cast<float*>(to));
      } else if (kind != NarrowKind::kInt8) {
        pack_elements(reinterpret_cast<const uint16_t*>(from), stride_n, count, offsets, reinterpret_cast<uint16_t*>(to));
      } else {
        pack_elements(reinterpret_cast<const int8_t*>(from), stride_n, count, offsets, reinterpret_cast<int8_t*>(to));
      }
      if (kind == NarrowKind::kHalf) part_pairs(to, made->panel_bytes());
      if (kind != NarrowKind::kInt8) continue;
      auto* sums = reinterpret_cast<int32_t*>(made->starts_.data()) + column;
      const auto* packed = reinterpret_cast<const int8_t*>(to);
      for (int64_t quad = 0; quad < made->chunks() * kQuadChunk; ++quad, packed += kQuadLine) {
        for (int64_t j = 0; j < kNarrowColumns; ++j) sums[j] += packed[4 * j] + packed[4 * j + 1] + packed[4 * j + 2] + packed[4 * j + 3];
      }
    }
  });
  if (kind != NarrowKind::kInt8 && bias != nullptr) {
    auto* starts = reinterpret_cast<float*>(made->starts_.data());
    for (int64_t j = 0; j < n; ++j) starts[j] = bias[j * bias_stride];
  }
  return std::shared_ptr<const NarrowMatrix>(std::move(made));
}

int64_t rows_of_line_tile(int64_t length) {
  constexpr int64_t kMost = 16, kLeast = 10;
  int64_t rows = std::min(kMost, length);
  while (rows >= kLeast && length % rows != 0) --rows;
  return rows >= kLeast ? rows : 0;
}

void EvenNarrowRows::get(const void* context, int64_t first, int64_t count, const std::byte** out) {
  const EvenNarrowRows& rows = *static_cast<const EvenNarrowRows*>(context);
  for (int64_t i = 0; i < count; ++i) out[i] = rows.data + (first + i) * rows.stride_bytes;
}

Status run_narrow_product(const NarrowProduct& p, ThreadPool& pool) {
  const NarrowMatrix& weights = *p.weights;
  if (p.rows == 0 || weights.columns() == 0) return ok_status();
  const NarrowKernels& kernels = narrow_kernels(weights.kind(), p.units, p.type == DType::kInt8);
  const int64_t panels = weights.panel_count(), stride = row_stride(weights, kernels);
  const bool tiles = kernels.begin != nullptr;
  int64_t block = std::clamp<int64_t>((tiles ? kRowBytesWithTiles : kRowBytes) / stride, kernels.rows, kMaxRows);
  // Small weights stay in the caches: low blocks then keep neighbouring lines of the result together.
  if (panels * weights.panel_bytes() <= kCachedWeightBytes) block = std::max<int64_t>(std::min<int64_t>(block, kLowBlock), kernels.rows);
  const double work = static_cast<double>(p.rows) * static_cast<double>(weights.columns()) * static_cast<double>(weights.depth());
  const auto threads = static_cast<int64_t>(std::clamp(work / kThreadGrain, 1.0, static_cast<double>(pool.thread_count())));
  // Threads share the rows, or the panels if these are more bytes; each task converts its rows, so there is one a thread.
  if (threads > 1 && p.rows >= weights.columns()) block = std::min(block, ceil_div(p.rows, threads));
  // Blocks of nearly the same height, of whole groups of rows.
  const int64_t line_tile = tiles && has_lines(p) ? rows_of_line_tile(p.lines->length) : 0, group = line_tile > 0 ? 2 * line_tile : kernels.rows;
  block = ceil_div(ceil_div(p.rows, ceil_div(p.rows, block)), group) * group;
  const int64_t blocks = ceil_div(p.rows, block);
  const int64_t parts = std::min(ceil_div(panels, int64_t{2}), ceil_div(threads, blocks));
  const int64_t part = ceil_div(ceil_div(panels, int64_t{2}), parts) * 2;
  const int64_t room = std::min(block, p.rows) + (tiles ? kNarrowResultRows : 0);  // tiles read rows up to their height
  const bool integers = weights.kind() == NarrowKind::kInt8;
  const int64_t starts_bytes = integers ? panels * kNarrowColumns * 4 : 0, chunks_bytes = (weights.chunks() * 8 + kQuadLine - 1) / kQuadLine * kQuadLine;
  // What the units read as unsigned is 128 more than it was.
  const auto shift = static_cast<uint32_t>(p.zero_point) + (p.type == DType::kInt8 && !kernels.wide && !kernels.is_signed ? 128u : 0u);
  std::atomic<bool> failed = false;
  const auto run = [&](int64_t begin, int64_t end) {
    const WorkBuffers::Loan loan(p.work, ((room + 1) * stride + starts_bytes + 2 * chunks_bytes) / 4);
    if (loan.floats() == nullptr) {
      failed = true;
      return;
    }
    auto* memory = reinterpret_cast<std::byte*>(loan.floats());
    auto* starts = reinterpret_cast<int32_t*>(memory);
    for (int64_t j = 0; integers && j < panels * kNarrowColumns; ++j) starts[j] = static_cast<int32_t>(0u - static_cast<uint32_t>(weights.column_sums()[j]) * shift);
    if (!integers) starts = const_cast<int32_t*>(reinterpret_cast<const int32_t*>(weights.bias()));
    memory += starts_bytes;
    auto* chunks = reinterpret_cast<int64_t*>(memory);
    auto* line_chunks = reinterpret_cast<int64_t*>(memory + chunks_bytes);
    for (int64_t c = 0; c < weights.chunks(); ++c) {
      chunks[c] = c * kQuadLine;
      line_chunks[c] = p.lines != nullptr ? chunk_offset(*p.lines, c) : 0;
    }
    memory += 2 * chunks_bytes;
    const Rows rows{memory + stride, stride, memory, starts, chunks, nullptr};
    const Rows in_place{nullptr, p.lines != nullptr ? p.lines->row_step : 0, nullptr, starts, line_chunks, p.lines};
    int64_t converted = -1;
    TileHeight height(kernels);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts * block, panel = i % parts * part, last = std::min(p.rows, row + block);
      if (panel >= panels) continue;
      if (can_read_in_place(p, kernels, row, last)) {
        run_panels(p, kernels, row, last, panel, std::min(panels, panel + part), in_place, &height);
        continue;
      }
      if (row != converted) convert_rows(p, kernels, row, last, rows);
      converted = row;
      run_panels(p, kernels, row, last, panel, std::min(panels, panel + part), rows, &height);
    }
  };
  if (threads == 1) {
    run(0, blocks * parts);
  } else {
    pool.parallel_for(blocks * parts, 1, run);
  }
  return failed ? no_memory(static_cast<uint64_t>((room + 1) * stride)).with_context("converted rows of a product") : ok_status();
}

void FloatStore::fetch(const void* context, const NarrowResult& part) {
  const FloatStore& s = *static_cast<const FloatStore*>(context);
  const auto near = [&](const void* data, DType type, int64_t row_elements) {
    const auto size = static_cast<int64_t>(dtype_size(type));
    const auto* from = static_cast<const std::byte*>(data) + (part.row * row_elements + part.column) * size;
    for (int64_t i = 0; i < part.rows; ++i, from += row_elements * size) {
      for (int64_t at = 0; at < part.columns * size; at += kQuadLine) __builtin_prefetch(from + at, 0, 2);
    }
  };
  near(s.c, s.c_type, s.c_row);
  if (s.residual != nullptr) near(s.residual, s.residual_type, s.residual_row);
}

void FloatStore::store(const void* context, const NarrowResult& part) {
  const FloatStore& s = *static_cast<const FloatStore*>(context);
  if (s.residual == nullptr) return store_result<void>(s, part);
  if (s.residual_type == DType::kFloat32) return store_result<float>(s, part);
  if (s.residual_type == DType::kFloat16) return store_result<HalfBits>(s, part);
  store_result<Bf16Bits>(s, part);
}

}  // namespace pteron::cpu
