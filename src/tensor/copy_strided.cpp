// copy_strided: dims are ordered and merged by the target's strides; where source and target run along different dims, square tiles keep both
// in cache. Used where files are written and read; kernels have their own parallel copy.
#include <algorithm>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron {

namespace {

/// Elements of a tile's side: 32 rows of 32 elements of up to 8 bytes are half an L1 cache on both sides.
constexpr int64_t kTile = 32;

struct Dim {
  int64_t size = 1, from = 0, to = 0;  // strides in elements
};

using Dims = RankList<Dim>;

/// Dims without those of size 1, outermost in the target first, neighbours merged where both tensors run on.
Dims merged_dims(const TensorView& from, const TensorView& to) {
  Dims all;
  for (int d = 0; d < from.rank; ++d) {
    if (from.size(d) != 1) all.push_back({from.size(d), from.stride(d), to.stride(d)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Dim& a, const Dim& b) { return a.to != b.to ? a.to > b.to : a.from > b.from; });
  Dims out;
  for (const Dim& dim : all) {
    if (!out.empty() && out.back().from == dim.size * dim.from && out.back().to == dim.size * dim.to) {
      out.back() = {out.back().size * dim.size, dim.from, dim.to};
    } else {
      out.push_back(dim);
    }
  }
  return out;
}

/// Calls fn(source offset, target offset) for every index over dims, in elements.
template <typename Fn>
void for_each_offset(const Dims& dims, Fn&& fn) {
  RankList<int64_t> index(dims.size(), 0);
  int64_t from = 0, to = 0;
  for (;;) {
    fn(from, to);
    size_t d = dims.size();
    for (; d > 0; --d) {
      from += dims[d - 1].from;
      to += dims[d - 1].to;
      if (++index[d - 1] < dims[d - 1].size) break;
      from -= dims[d - 1].size * dims[d - 1].from;
      to -= dims[d - 1].size * dims[d - 1].to;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

template <typename T>
void copy_run(const std::byte* from, std::byte* to, const Dim& dim) {
  if (dim.from == 1 && dim.to == 1) {
    std::memcpy(to, from, static_cast<size_t>(dim.size) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < dim.size; ++i) {
    std::memcpy(to + i * dim.to * static_cast<int64_t>(sizeof(T)), from + i * dim.from * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }
}

/// `along` runs along the source, `across` along the target.
template <typename T>
void copy_tiled(const std::byte* from, std::byte* to, const Dim& along, const Dim& across) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  for (int64_t a = 0; a < along.size; a += kTile) {
    for (int64_t b = 0; b < across.size; b += kTile) {
      const int64_t a_end = std::min(a + kTile, along.size), b_end = std::min(b + kTile, across.size);
      for (int64_t i = a; i < a_end; ++i) {
        const std::byte* source = from + i * along.from * kBytes;
        std::byte* target = to + i * along.to * kBytes;
        for (int64_t j = b; j < b_end; ++j) std::memcpy(target + j * across.to * kBytes, source + j * across.from * kBytes, sizeof(T));
      }
    }
  }
}

template <typename T>
void copy_typed(Dims dims, const std::byte* from, std::byte* to) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const Dim inner = dims.empty() ? Dim() : dims.back();
  if (!dims.empty()) dims.pop_back();
  const auto along = std::min_element(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.from < b.from; });
  if (along == dims.end() || along->from >= inner.from || along->from == 0) {
    for_each_offset(dims, [&](int64_t f, int64_t t) { copy_run<T>(from + f * kBytes, to + t * kBytes, inner); });
    return;
  }
  const Dim outer = *along;
  dims.erase(static_cast<size_t>(along - dims.begin()));
  for_each_offset(dims, [&](int64_t f, int64_t t) { copy_tiled<T>(from + f * kBytes, to + t * kBytes, outer, inner); });
}

}  // namespace

void copy_strided(const TensorView& from, const TensorView& to) {
  if (from.numel() == 0) return;
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.data, from.data, from.size_bytes());
    return;
  }
  const Dims dims = merged_dims(from, to);
  const bool known = dispatch_size(dtype_size(from.dtype), [&]<typename T>() { copy_typed<T>(dims, from.as<const std::byte>(), to.as<std::byte>()); });
  PTERON_CHECK(known);
}

}  // namespace pteron
