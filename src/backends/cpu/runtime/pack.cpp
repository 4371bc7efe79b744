// Packing reads rows along memory, eight at a time, and turns blocks of 8 x 8 in registers: reads and writes are whole vectors.
#include "backends/cpu/runtime/pack.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace pteron::cpu {
namespace {

constexpr int64_t kBlock = 8;
// Elements of a row per round: what a round writes stays in the first-level cache until its lines are whole.
constexpr int64_t kChunk = 128;

void transpose(__m256 v[kBlock]) {
  const __m256 a0 = _mm256_unpacklo_ps(v[0], v[1]), a1 = _mm256_unpackhi_ps(v[0], v[1]);
  const __m256 a2 = _mm256_unpacklo_ps(v[2], v[3]), a3 = _mm256_unpackhi_ps(v[2], v[3]);
  const __m256 a4 = _mm256_unpacklo_ps(v[4], v[5]), a5 = _mm256_unpackhi_ps(v[4], v[5]);
  const __m256 a6 = _mm256_unpacklo_ps(v[6], v[7]), a7 = _mm256_unpackhi_ps(v[6], v[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
  v[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
  v[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
  v[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
  v[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
  v[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  v[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  v[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  v[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

}  // namespace

PanelPacker::PanelPacker(std::span<const int64_t> offsets) : offsets_(offsets), place_of_(offsets.size(), -1) {
  const auto depth = static_cast<int64_t>(offsets.size());
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t m = offsets[static_cast<size_t>(k)];
    if (m < 0 || m >= depth || place_of_[static_cast<size_t>(m)] >= 0) {
      place_of_.clear();
      return;
    }
    place_of_[static_cast<size_t>(m)] = k;
  }
}

void PanelPacker::pack(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const {
  if (stride == 1) return pack_columns(rows, count, width, to);
  if (!place_of_.empty() && width % kBlock == 0) return pack_dense(rows, stride, count, width, to);
  pack_any(rows, stride, count, width, to);
}

void PanelPacker::pack_columns(const float* rows, int64_t count, int64_t width, float* to) const {
  for (const int64_t offset : offsets_) {
    std::copy(rows + offset, rows + offset + count, to);
    std::fill(to + count, to + width, 0.0f);
    to += width;
  }
}

void PanelPacker::pack_dense(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const {
  const auto depth = static_cast<int64_t>(place_of_.size());
  const int64_t* place = place_of_.data();
  for (int64_t begin = 0; begin < depth; begin += kChunk) {
    const int64_t end = std::min(depth, begin + kChunk);
    for (int64_t j = 0; j < width; j += kBlock) {
      const int64_t real = std::clamp<int64_t>(count - j, 0, kBlock);
      const float* from = rows + j * stride;
      int64_t m = begin;
      for (; m + kBlock <= end; m += kBlock) {
        __m256 v[kBlock];
        for (int64_t r = 0; r < kBlock; ++r) v[r] = r < real ? _mm256_loadu_ps(from + r * stride + m) : _mm256_setzero_ps();
        transpose(v);
        for (int64_t r = 0; r < kBlock; ++r) _mm256_storeu_ps(to + place[m + r] * width + j, v[r]);
      }
      for (; m < end; ++m) {
        for (int64_t r = 0; r < kBlock; ++r) to[place[m] * width + j + r] = r < real ? from[r * stride + m] : 0.0f;
      }
    }
  }
}

void PanelPacker::pack_any(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const {
  const auto depth = static_cast<int64_t>(offsets_.size());
  for (int64_t begin = 0; begin < depth; begin += kChunk) {
    const int64_t end = std::min(depth, begin + kChunk);
    for (int64_t j = 0; j < width; ++j) {
      const float* from = rows + j * stride;
      for (int64_t k = begin; k < end; ++k) to[k * width + j] = j < count ? from[offsets_[static_cast<size_t>(k)]] : 0.0f;
    }
  }
}

}  // namespace pteron::cpu
