// Walking several strided tensors over one index space, for kernels that are not plain copies. Offsets are in elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/shape.h"

namespace pteron::ops {

/// Calls fn(offsets, index) for the row-major indices [begin, end) of `sizes`; offsets[k] = sum of index * strides[k]. Strides may be negative.
template <size_t K, typename Fn>
void walk(std::span<const int64_t> sizes, const std::array<Sizes, K>& strides, int64_t begin, int64_t end, Fn&& fn) {
  const size_t rank = sizes.size();
  Sizes index(rank, 0);
  std::array<int64_t, K> offsets{};
  int64_t rest = begin;
  for (size_t d = rank; d-- > 0;) {
    index[d] = sizes[d] == 0 ? 0 : rest % sizes[d];
    rest = sizes[d] == 0 ? 0 : rest / sizes[d];
    for (size_t k = 0; k < K; ++k) offsets[k] += index[d] * strides[k][d];
  }
  for (int64_t i = begin; i < end; ++i) {
    fn(static_cast<const std::array<int64_t, K>&>(offsets), static_cast<const Sizes&>(index));
    for (size_t d = rank; d-- > 0;) {
      for (size_t k = 0; k < K; ++k) offsets[k] += strides[k][d];
      if (++index[d] < sizes[d]) break;
      for (size_t k = 0; k < K; ++k) offsets[k] -= sizes[d] * strides[k][d];
      index[d] = 0;
    }
  }
}

/// Number of indices of `sizes`.
inline int64_t index_count(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

/// The list without its last item (empty stays empty).
inline Sizes without_last(std::span<const int64_t> list) { return Sizes(list.empty() ? list : list.first(list.size() - 1)); }

/// Grain for parallel_for over rows of `row_elements` elements: about 16 Ki elements a part.
inline int64_t row_grain(int64_t row_elements) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(row_elements, 1)); }

}  // namespace pteron::ops
