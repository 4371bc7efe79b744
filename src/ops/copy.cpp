// Strided copies: see copy.h.
#include "ops/copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/str_cat.h"
#include "ops/elementwise.h"

namespace pteron::ops {

namespace {

/// Merged dims of a copy, outermost first, in the order of the target's memory.
struct CopyPlan {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t element_bytes = 1;
  int rank = 0;
  std::array<int64_t, kMaxRank> size{}, to_stride{}, from_stride{};
};

CopyPlan make_plan(const TensorView& from, const TensorView& to) {
  CopyPlan plan;
  plan.to = static_cast<std::byte*>(to.data);
  plan.from = static_cast<const std::byte*>(from.data);
  plan.element_bytes = dtype_size(to.dtype);
  RankList<uint8_t> order;
  for (int d = 0; d < to.rank; ++d) order.push_back(static_cast<uint8_t>(d));
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return to.stride(a) > to.stride(b); });
  const int missing = to.rank - from.rank;
  for (const uint8_t d : order) {
    const int64_t size = to.size(d);
    if (size == 1) continue;
    const int own = d - missing;
    const int64_t from_stride = own < 0 || from.size(own) == 1 ? 0 : from.stride(own);
    const int64_t to_stride = to.stride(d);
    const size_t last = static_cast<size_t>(plan.rank) - 1;
    if (plan.rank > 0 && plan.to_stride[last] == to_stride * size && plan.from_stride[last] == from_stride * size) {
      plan.size[last] *= size;
      plan.to_stride[last] = to_stride;
      plan.from_stride[last] = from_stride;
      continue;
    }
    const size_t at = static_cast<size_t>(plan.rank++);
    plan.size[at] = size;
    plan.to_stride[at] = to_stride;
    plan.from_stride[at] = from_stride;
  }
  return plan;
}

template <typename T>
void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    constexpr int64_t kChunk = 32 / sizeof(T);
    if (n > 8 * kChunk) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
    // Short rows: a call would take longer than the copy.
    int64_t i = 0;
    for (; i + kChunk <= n; i += kChunk) std::memcpy(to + i, from + i, kChunk * sizeof(T));
    for (; i < n; ++i) to[i] = from[i];
    return;
  }
  if (to_stride == 1 && from_stride == 0) {
    std::fill_n(to, n, *from);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

/// rows x columns of a matrix whose source runs fastest along rows and whose target runs fastest along columns.
template <typename T>
void transpose_block(const T* from, int64_t from_column, T* to, int64_t to_row, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 64 / sizeof(T) < 8 ? 8 : 64 / sizeof(T);  // a cache line of each side, at least 8
  for (int64_t r = 0; r < rows; r += kBlock) {
    const int64_t row_end = std::min(rows, r + kBlock);
    for (int64_t c = 0; c < columns; c += kBlock) {
      const int64_t column_end = std::min(columns, c + kBlock);
      for (int64_t i = r; i < row_end; ++i) {
        for (int64_t j = c; j < column_end; ++j) to[i * to_row + j] = from[i + j * from_column];
      }
    }
  }
}

/// Index of the outer dim (all but the last `inner` ones) number `flat`: offsets of both sides.
void outer_offsets(const CopyPlan& plan, int inner, int64_t flat, int skip, int64_t* from, int64_t* to) {
  *from = 0;
  *to = 0;
  for (int d = plan.rank - inner - 1; d >= 0; --d) {
    if (d == skip) continue;
    const size_t at = static_cast<size_t>(d);
    const int64_t i = flat % plan.size[at];
    flat /= plan.size[at];
    *from += i * plan.from_stride[at];
    *to += i * plan.to_stride[at];
  }
}

/// Rows shorter than this are copied with the dim around them, so that their place is not computed one by one.
constexpr int64_t kShortRow = 32;

template <typename T>
void copy_short_rows(KernelContext& context, const CopyPlan& plan, const T* from, T* to, int64_t total) {
  const size_t column = static_cast<size_t>(plan.rank) - 1, row = column - 1;
  const int64_t columns = plan.size[column], rows = plan.size[row];
  const int64_t to_column = plan.to_stride[column], from_column = plan.from_stride[column], to_row = plan.to_stride[row], from_row = plan.from_stride[row];
  // Parts are runs of rows of one outer index.
  constexpr int64_t kPartElements = 16384;
  const int64_t run = std::clamp<int64_t>(kPartElements / columns, 1, rows), runs = (rows + run - 1) / run;
  context.pool->parallel_for(total / (rows * columns) * runs, std::max<int64_t>(1, kPartElements / (run * columns)), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t from_at = 0, to_at = 0;
      outer_offsets(plan, 2, part / runs, -1, &from_at, &to_at);
      const int64_t first = part % runs * run, count = std::min(run, rows - first);
      from_at += first * from_row;
      to_at += first * to_row;
      if (columns <= 8 && count > columns) {  // few columns: each in one go
        for (int64_t j = 0; j < columns; ++j) copy_row(from + from_at + j * from_column, from_row, to + to_at + j * to_column, to_row, count);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) copy_row(from + from_at + i * from_row, from_column, to + to_at + i * to_row, to_column, columns);
    }
  });
}

template <typename T>
void copy_planned(KernelContext& context, const CopyPlan& plan) {
  const T* from = reinterpret_cast<const T*>(plan.from);
  T* to = reinterpret_cast<T*>(plan.to);
  if (plan.rank == 0) {
    *to = *from;
    return;
  }
  int64_t total = 1;
  for (int d = 0; d < plan.rank; ++d) total *= plan.size[static_cast<size_t>(d)];
  const int last = plan.rank - 1;
  const size_t column_dim = static_cast<size_t>(last);
  const int64_t columns = plan.size[column_dim];
  // The dim along which the source is dense; a transpose if it is not the last one.
  int row_dim = -1;
  for (int d = 0; d < last; ++d) {
    if (plan.from_stride[static_cast<size_t>(d)] == 1 && plan.size[static_cast<size_t>(d)] >= 4) row_dim = d;
  }
  const bool transpose = row_dim >= 0 && plan.to_stride[column_dim] == 1 && plan.from_stride[column_dim] > 1 && columns >= 4;
  if (columns < kShortRow && plan.rank >= 2 && (!transpose || row_dim == last - 1)) return copy_short_rows(context, plan, from, to, total);
  const int64_t grain_elements = 16384;
  if (plan.rank == 1) {
    context.pool->parallel_for(columns, grain_elements, [&](int64_t begin, int64_t end) {
      copy_row(from + begin * plan.from_stride[0], plan.from_stride[0], to + begin * plan.to_stride[0], plan.to_stride[0], end - begin);
    });
    return;
  }
  if (!transpose) {
    const size_t row_at = static_cast<size_t>(last - 1);
    const int64_t rows_inside = plan.size[row_at];
    context.pool->parallel_for(total / columns, std::max<int64_t>(1, grain_elements / columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end;) {
        int64_t from_at = 0, to_at = 0;
        outer_offsets(plan, 1, r, -1, &from_at, &to_at);
        // Rows up to the end of the dim around them lie evenly.
        const int64_t stop = std::min(end, r - r % rows_inside + rows_inside);
        for (; r < stop; ++r, from_at += plan.from_stride[row_at], to_at += plan.to_stride[row_at]) {
          copy_row(from + from_at, plan.from_stride[column_dim], to + to_at, plan.to_stride[column_dim], columns);
        }
      }
    });
    return;
  }
  // Parts are strips of kStrip rows of one outer index.
  constexpr int64_t kStrip = 32;
  const int64_t rows = plan.size[static_cast<size_t>(row_dim)];
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  const int64_t to_row = plan.to_stride[static_cast<size_t>(row_dim)];
  const int64_t outer = total / (rows * columns);
  context.pool->parallel_for(outer * strips, std::max<int64_t>(1, grain_elements / (kStrip * columns)), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t from_at = 0, to_at = 0;
      outer_offsets(plan, 1, part / strips, row_dim, &from_at, &to_at);
      const int64_t row = (part % strips) * kStrip;
      transpose_block(from + from_at + row, plan.from_stride[column_dim], to + to_at + row * to_row, to_row, std::min(kStrip, rows - row), columns);
    }
  });
}

template <typename T>
void identity_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  if (out[0] != in[0]) std::memcpy(out[0], in[0], static_cast<size_t>(n) * sizeof(T));
}

}  // namespace

Status copy_tensor(KernelContext& context, const TensorView& from, const TensorView& to) {
  Sizes joined;
  PTERON_TRY(broadcast_sizes(from.sizes(), to.sizes(), &joined));
  if (!std::equal(joined.begin(), joined.end(), to.sizes().begin(), to.sizes().end())) {
    return Status(Code::kInvalidInput, str_cat("shape ", shape_text(from.sizes()), " does not broadcast to ", shape_text(to.sizes())));
  }
  if (to.numel() == 0) return ok_status();
  if (from.dtype == to.dtype) {
    if (from.data == to.data && std::equal(from.strides().begin(), from.strides().end(), to.strides().begin(), to.strides().end())) {
      return ok_status();
    }
    const CopyPlan plan = make_plan(from, to);
    const bool known = dispatch_size(plan.element_bytes, [&]<typename T>() { copy_planned<T>(context, plan); });
    return known ? ok_status() : unsupported_dtype(to.dtype);
  }
  // Converted on the way in, except for 16-bit floats, which have no conversion from each other: through float.
  const DType compute = is_reduced_float(from.dtype) ? DType::kFloat32 : from.dtype;
  TileFn fn = nullptr;
  dispatch_size(dtype_size(compute), [&]<typename T>() { fn = &identity_tile<T>; });
  if (fn == nullptr) return unsupported_dtype(from.dtype);
  const TileInput input(from, compute);
  const TileOutput output{to, compute};
  return run_tiles(context, to.sizes(), {&input, 1}, {&output, 1}, fn, nullptr);
}

}  // namespace pteron::ops
