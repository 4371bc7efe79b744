// The reduction engine of the runtime half: any set of dims, any strides, one or two outs. A reduction is planned once (axes merged,
// largest stride first) and then folded either row by row (reduced elements side by side) or in tiles of columns (kept elements side by
// side), with many accumulators per block and a wider total, in parts that do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/str_cat.h"
#include "ops/cast.h"
#include "runtime/kernel.h"
#include "tensor/dim_math.h"

namespace pteron::ops {

/// One loop of a reduction.
/// Units:   strides in elements.
struct Axis {
  int64_t size = 1;
  int64_t in_stride = 0;
  int64_t out_stride[2] = {0, 0};
};

/// Bit d is set for every dim to reduce; an empty list means all dims. Errors: kInvalidInput (out of range, twice).
inline Result<uint32_t> reduce_mask(std::span<const int64_t> dims, int rank) {
  uint32_t mask = 0;
  if (dims.empty()) return (uint32_t{1} << rank) - 1u;
  for (const int64_t dim : dims) {
    PTERON_ASSIGN(const int d, wrap_dim(dim, rank));
    if ((mask >> d & 1u) != 0) return Status(Code::kInvalidInput, str_cat("dim ", d, " appears twice"));
    mask |= uint32_t{1} << d;
  }
  return rank == 0 ? 0u : mask;
}

/// Sizes of the result.
inline Sizes reduced_sizes(std::span<const int64_t> sizes, uint32_t mask, bool keepdim) {
  Sizes out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if ((mask >> d & 1u) == 0) {
      out.push_back(sizes[d]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

/// Loops of a reduction, outermost first.
struct ReducePlan {
  RankList<Axis> kept, reduced;
  int64_t outputs = 1;  ///< product of kept sizes
  int64_t count = 1;    ///< product of reduced sizes
};

namespace detail {

inline void sort_axes(RankList<Axis>& axes) {
  for (size_t i = 1; i < axes.size(); ++i) {
    for (size_t k = i; k > 0 && axes[k - 1].in_stride < axes[k].in_stride; --k) std::swap(axes[k - 1], axes[k]);
  }
}

inline void merge_axes(RankList<Axis>& axes) {
  RankList<Axis> merged;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    if (!merged.empty()) {
      Axis& last = merged.back();
      if (last.in_stride == axis.in_stride * axis.size && last.out_stride[0] == axis.out_stride[0] * axis.size &&
          last.out_stride[1] == axis.out_stride[1] * axis.size) {
        last = {last.size * axis.size, axis.in_stride, {axis.out_stride[0], axis.out_stride[1]}};
        continue;
      }
    }
    merged.push_back(axis);
  }
  axes = merged;
}

}  // namespace detail

/// Plans the reduction of the dims in `mask`. `outs` (one or two, same sizes) hold the kept dims, or all dims if keepdim.
/// in_order keeps the reduced axes in row-major order, for reductions whose result names a position.
inline ReducePlan plan_reduction(const TensorView& in, uint32_t mask, bool keepdim, std::span<const TensorView* const> outs,
                                 bool in_order = false) {
  ReducePlan plan;
  int out_dim = 0;
  for (int d = 0; d < in.rank; ++d) {
    const bool reduced = (mask >> d & 1u) != 0;
    Axis axis{in.size(d), in.stride(d), {0, 0}};
    if (!reduced) {
      for (size_t k = 0; k < outs.size(); ++k) axis.out_stride[k] = outs[k]->stride(out_dim);
    }
    if (!reduced || keepdim) ++out_dim;
    (reduced ? plan.reduced : plan.kept).push_back(axis);
    (reduced ? plan.count : plan.outputs) *= axis.size;
  }
  detail::sort_axes(plan.kept);
  if (!in_order) detail::sort_axes(plan.reduced);
  detail::merge_axes(plan.kept);
  detail::merge_axes(plan.reduced);
  return plan;
}

/// Visits the positions of a box of axes in order, from any starting position.
class Walker {
 public:
  Walker(std::span<const Axis> axes, int64_t start) : axes_(axes) {
    index_.resize(axes.size());
    for (size_t d = axes.size(); d-- > 0;) {
      const int64_t size = std::max<int64_t>(axes[d].size, 1);
      index_[d] = start % size;
      start /= size;
      move(axes[d], index_[d]);
    }
  }
  int64_t in() const { return in_; }
  int64_t out(int k) const { return out_[k]; }
  void next() {
    for (size_t d = axes_.size(); d-- > 0;) {
      const Axis& axis = axes_[d];
      if (++index_[d] < axis.size) {
        move(axis, 1);
        return;
      }
      move(axis, 1 - index_[d]);
      index_[d] = 0;
    }
  }

 private:
  void move(const Axis& axis, int64_t steps) {
    in_ += steps * axis.in_stride;
    out_[0] += steps * axis.out_stride[0];
    out_[1] += steps * axis.out_stride[1];
  }
  std::span<const Axis> axes_;
  Sizes index_;
  int64_t in_ = 0;
  int64_t out_[2] = {0, 0};
};

inline constexpr int64_t kRowBlock = 1024;     ///< elements folded into one set of accumulators
inline constexpr int64_t kTile = 128;          ///< columns of a tile
inline constexpr int64_t kTileRows = 128;      ///< rows folded before the accumulators go into the totals
inline constexpr int64_t kGrainElems = 32768;  ///< elements worth a part of a parallel loop

/// Where a result goes: position among the outputs (in the plan's order) and offsets in the outs.
struct OutPlace {
  int64_t linear;
  int64_t offset[2];
};

namespace detail {

/// Folds n contiguous elements with many accumulators.
template <typename Op>
typename Op::Part fold_block(const Op& op, const typename Op::Element* p, int64_t n, typename Op::Part context) {
  using Part = typename Op::Part;
  constexpr int kLanes = static_cast<int>(std::max<size_t>(128 / sizeof(Part), 32));  // 16 and fewer are unrolled before they can become vectors
  if (n < kLanes) {
    Part acc = op.identity();
    for (int64_t i = 0; i < n; ++i) acc = op.fold(acc, p[i], context);
    return acc;
  }
  Part acc[kLanes];
  for (int l = 0; l < kLanes; ++l) acc[l] = op.identity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) acc[l] = op.fold(acc[l], p[i + l], context);
  }
  for (int l = 0; i < n; ++i, ++l) acc[l] = op.fold(acc[l], p[i], context);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) acc[l] = op.join(acc[l], acc[l + half]);
  }
  return acc[0];
}

/// A reduction bound to its input.
template <typename Op>
struct Folding {
  const ReducePlan& plan;
  const void* data;
  LoadFn<typename Op::Element> load;
  const Op& op;

  std::span<const Axis> outer_reduced() const {
    const std::span<const Axis> all(plan.reduced.begin(), plan.reduced.size());
    return all.empty() ? all : all.first(all.size() - 1);
  }
  Axis inner() const { return plan.reduced.empty() ? Axis{} : plan.reduced.back(); }
  int64_t blocks_per_row() const { return std::max<int64_t>(1, ceil_div(inner().size, kRowBlock)); }
  int64_t unit_count() const {
    int64_t rows = plan.count == 0 ? 0 : 1;
    for (const Axis& axis : outer_reduced()) rows *= axis.size;
    return rows * blocks_per_row();
  }

  /// Folds the blocks [begin, end) of the output whose elements start at `base`.
  typename Op::Total rows(int64_t base, typename Op::Part context, int64_t begin, int64_t end) const {
    const Axis axis = inner();
    const int64_t per_row = blocks_per_row();
    Walker row(outer_reduced(), begin / per_row);
    int64_t block = begin % per_row;
    typename Op::Total total = op.start();
    alignas(64) typename Op::Element buffer[kRowBlock];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t from = block * kRowBlock;
      const int64_t n = std::min(kRowBlock, axis.size - from);
      const auto* p = load(data, base + row.in() + from * axis.in_stride, axis.in_stride, n, buffer);
      total = op.merge(total, fold_block(op, p, n, context));
      if (++block == per_row) {
        block = 0;
        row.next();
      }
    }
    return total;
  }

  /// Folds reduced positions [begin, end) of `width` outputs side by side (column_stride apart, numbered from `linear`) into totals.
  void columns(int64_t base, int64_t column_stride, int64_t width, int64_t linear, int64_t begin, int64_t end, typename Op::Total* totals) const {
    using Part = typename Op::Part;
    alignas(64) Part acc[kTile], contexts[kTile];
    alignas(64) typename Op::Element buffer[kTile];
    for (int64_t j = 0; j < width; ++j) {
      contexts[j] = op.context(linear + j);
      totals[j] = op.start();
      acc[j] = op.identity();
    }
    Walker row({plan.reduced.begin(), plan.reduced.size()}, begin);
    int64_t folded = 0;
    for (int64_t r = begin; r < end; ++r) {
      const auto* p = load(data, base + row.in(), column_stride, width, buffer);
      for (int64_t j = 0; j < width; ++j) acc[j] = op.fold(acc[j], p[j], contexts[j]);
      row.next();
      if (++folded < kTileRows && r + 1 < end) continue;
      folded = 0;
      for (int64_t j = 0; j < width; ++j) {
        totals[j] = op.merge(totals[j], acc[j]);
        acc[j] = op.identity();
      }
    }
  }
};

/// A reduction without its types, for the loops over outputs that are the same for all. Totals are values of total_bytes, at most kMaxTotalBytes.
struct FoldLoops {
  const void* bound;
  size_t total_bytes;
  /// Blocks [begin, end) of output number `linear`, whose elements start at `base`.
  void (*rows)(const void* bound, int64_t base, int64_t linear, int64_t begin, int64_t end, void* total);
  /// As Folding::columns().
  void (*columns)(const void* bound, int64_t base, int64_t column_stride, int64_t width, int64_t linear, int64_t begin, int64_t end, void* totals);
  /// totals[i] = combine(totals[i], others[i])
  void (*combine)(const void* bound, void* totals, const void* others, int64_t count);
  void (*sink)(const void* bound, const OutPlace& place, const void* total);
};
inline constexpr size_t kMaxTotalBytes = 16;

/// Runs all outputs of the plan; `units`: of Folding::unit_count(). Threads: as fold_reduce().
void run_fold(ThreadPool& pool, const ReducePlan& plan, int64_t units, const FoldLoops& loops);

template <typename Op, typename Sink>
struct BoundFold {
  using Total = typename Op::Total;
  static_assert(sizeof(Total) <= kMaxTotalBytes && alignof(Total) <= kMaxTotalBytes && std::is_trivially_copyable_v<Total>);
  Folding<Op> folding;
  const Sink& sink;

  static const BoundFold& of(const void* bound) { return *static_cast<const BoundFold*>(bound); }
  static void rows(const void* bound, int64_t base, int64_t linear, int64_t begin, int64_t end, void* total) {
    const Folding<Op>& folding = of(bound).folding;
    *static_cast<Total*>(total) = folding.rows(base, folding.op.context(linear), begin, end);
  }
  static void columns(const void* bound, int64_t base, int64_t column_stride, int64_t width, int64_t linear, int64_t begin, int64_t end, void* totals) {
    of(bound).folding.columns(base, column_stride, width, linear, begin, end, static_cast<Total*>(totals));
  }
  static void combine(const void* bound, void* totals, const void* others, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Total& total = static_cast<Total*>(totals)[i];
      total = of(bound).folding.op.combine(total, static_cast<const Total*>(others)[i]);
    }
  }
  static void put(const void* bound, const OutPlace& place, const void* total) { of(bound).sink(place, *static_cast<const Total*>(total)); }
  FoldLoops loops() const { return {this, sizeof(Total), rows, columns, combine, put}; }
};

}  // namespace detail

/// True if outputs, not reduced elements, lie side by side in memory.
bool prefers_columns(const ReducePlan& plan);

/// Folds every output of the plan and hands sink(OutPlace, Total) the totals (an empty reduction gives op.start()).
/// Op: types Element (what is read), Part (accumulators) and Total; identity(), fold(acc, element, context), join(acc, acc), start(),
/// merge(total, acc), combine(total, total), context(linear) -> Part (a number that every fold of that output gets).
/// Threads: sink is called from several threads, once per output.
template <typename Op, typename Sink>
void fold_reduce(ThreadPool& pool, const ReducePlan& plan, const void* data, LoadFn<typename Op::Element> load, const Op& op, const Sink& sink) {
  if (plan.outputs == 0) return;
  const detail::BoundFold<Op, Sink> bound{{plan, data, load, op}, sink};
  detail::run_fold(pool, plan, bound.folding.unit_count(), bound.loops());
}

/// Op parts that most folds share.
template <typename P, typename T, typename E = P>
struct FoldBase {
  using Element = E;
  using Part = P;
  using Total = T;
  P context(int64_t) const { return P(); }
};

/// x + y for accumulators; integers wrap.
template <typename T>
inline T wrap_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <typename T>
inline T wrap_mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

/// Sum of elements, each taken as P; float parts go into a double total.
template <typename P, typename T, typename E = P>
struct SumFold : FoldBase<P, T, E> {
  P identity() const { return P(0); }
  P fold(P acc, E x, P) const { return wrap_add(acc, static_cast<P>(x)); }
  P join(P a, P b) const { return wrap_add(a, b); }
  T start() const { return T(0); }
  T merge(T total, P acc) const { return wrap_add(total, static_cast<T>(acc)); }
  T combine(T a, T b) const { return wrap_add(a, b); }
};

}  // namespace pteron::ops
