// Kernels of argmax, argmin and of max and min along a dim with positions. The first of equal elements counts, the first NaN wins.
// The compiler's half is op.cpp.
#include <limits>

#include "ops/reduction.h"

namespace pteron::ops::arg_reduce {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

/// True if b beats a, which comes before it.
template <bool kMax, typename P>
inline bool beats(P b, P a) {
  if constexpr (std::is_floating_point_v<P>) return (kMax ? b > a : b < a) || (b != b && a == a);
  return kMax ? b > a : b < a;
}

template <typename P>
struct Best {
  P value;
  int64_t index;
};

/// Best of n contiguous elements: the extreme by lanes, then its first place.
template <bool kMax, typename P>
Best<P> best_of_block(const P* p, int64_t n) {
  constexpr int kLanes = 16;
  P acc[kLanes];
  for (int l = 0; l < kLanes; ++l) acc[l] = p[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const P x = p[i + l];
      const P better = kMax ? (x > acc[l] ? x : acc[l]) : (x < acc[l] ? x : acc[l]);
      acc[l] = x != x ? x : better;
    }
  }
  P best = acc[0];
  for (int l = 1; l < kLanes; ++l) best = beats<kMax>(acc[l], best) ? acc[l] : best;
  for (; i < n; ++i) best = beats<kMax>(p[i], best) ? p[i] : best;
  int64_t at = 0;
  if (best != best) {
    while (p[at] == p[at]) ++at;
  } else {
    while (!(p[at] == best)) ++at;
  }
  return {p[at], at};
}

template <typename P>
struct Search {
  const ReducePlan& plan;
  const void* data;
  LoadFn<P> load;
};

template <bool kMax, typename P>
Best<P> best_of_rows(const Search<P>& s, int64_t base) {
  const std::span<const Axis> all(s.plan.reduced.begin(), s.plan.reduced.size());
  const Axis inner = all.empty() ? Axis{} : all.back();
  const std::span<const Axis> outer = all.empty() ? all : all.first(all.size() - 1);
  Walker row(outer, 0);
  alignas(64) P buffer[kRowBlock];
  Best<P> best{};
  bool has = false;
  const int64_t rows = s.plan.count / inner.size;
  for (int64_t r = 0; r < rows; ++r, row.next()) {
    for (int64_t from = 0; from < inner.size; from += kRowBlock) {
      const int64_t n = std::min(kRowBlock, inner.size - from);
      const P* p = s.load(s.data, base + row.in() + from * inner.in_stride, inner.in_stride, n, buffer);
      const Best<P> here = best_of_block<kMax>(p, n);
      if (has && !beats<kMax>(here.value, best.value)) continue;
      best = {here.value, r * inner.size + from + here.index};
      has = true;
    }
  }
  return best;
}

template <bool kMax, typename P>
void best_of_columns(const Search<P>& s, int64_t base, int64_t stride, int64_t width, P* values, int64_t* indices) {
  Walker row({s.plan.reduced.begin(), s.plan.reduced.size()}, 0);
  alignas(64) P buffer[kTile];
  for (int64_t r = 0; r < s.plan.count; ++r, row.next()) {
    const P* p = s.load(s.data, base + row.in(), stride, width, buffer);
    if (r == 0) {
      for (int64_t j = 0; j < width; ++j) values[j] = p[j];
      for (int64_t j = 0; j < width; ++j) indices[j] = 0;
      continue;
    }
    for (int64_t j = 0; j < width; ++j) {
      const bool take = beats<kMax>(p[j], values[j]);
      values[j] = take ? p[j] : values[j];
      indices[j] = take ? r : indices[j];
    }
  }
}

template <bool kMax, typename P, typename Sink>
void search(ThreadPool& pool, const Search<P>& s, const Sink& sink) {
  const ReducePlan& plan = s.plan;
  if (plan.outputs == 0) return;
  if (!prefers_columns(plan)) {
    pool.parallel_for(plan.outputs, std::max<int64_t>(1, kGrainElems / plan.count), [&](int64_t begin, int64_t end) {
      Walker at({plan.kept.begin(), plan.kept.size()}, begin);
      for (int64_t i = begin; i < end; ++i, at.next()) sink(at.out(0), at.out(1), best_of_rows<kMax>(s, at.in()));
    });
    return;
  }
  const Axis side = plan.kept.back();
  const int64_t tiles_per_row = ceil_div(side.size, kTile);
  const int64_t tiles = plan.outputs / side.size * tiles_per_row;
  pool.parallel_for(tiles, std::max<int64_t>(1, kGrainElems / (plan.count * std::min(kTile, side.size))), [&](int64_t begin, int64_t end) {
    Walker at({plan.kept.begin(), plan.kept.size() - 1}, begin / tiles_per_row);
    alignas(64) P values[kTile];
    alignas(64) int64_t indices[kTile];
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % tiles_per_row * kTile;
      const int64_t width = std::min(kTile, side.size - first);
      best_of_columns<kMax>(s, at.in() + first * side.in_stride, side.in_stride, width, values, indices);
      for (int64_t j = 0; j < width; ++j) {
        sink(at.out(0) + (first + j) * side.out_stride[0], at.out(1) + (first + j) * side.out_stride[1], Best<P>{values[j], indices[j]});
      }
      if ((tile + 1) % tiles_per_row == 0) at.next();
    }
  });
}

/// values may be null.
template <bool kMax, typename P>
Status run_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, Tensor* values, Tensor& indices) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = values == nullptr ? nullptr : store_fn<P>(values->dtype());
  if (load == nullptr || indices.dtype() != DType::kInt64 || (values != nullptr && store == nullptr)) {
    return Status(Code::kUnsupported, str_cat("positions of the extreme of dtype ", dtype_name(self.dtype())));
  }
  int64_t* to = indices.as<int64_t>();
  search<kMax>(*c.pool, Search<P>{plan, self.view.data, load}, [&](int64_t index_at, int64_t value_at, const Best<P>& best) {
    to[index_at] = best.index;
    if (store != nullptr) store(values->view.data, value_at, best.value);
  });
  return ok_status();
}

template <bool kMax>
Status run(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor* values, Tensor& indices) {
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dims, self.rank()));
  const Sizes sizes = reduced_sizes(self.sizes(), mask, keepdim);
  PTERON_TRY(runtime::resize(indices, sizes));
  if (values != nullptr) PTERON_TRY(runtime::resize(*values, sizes));
  const TensorView* const outs[] = {&indices.view, values == nullptr ? &indices.view : &values->view};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs, true);
  if (plan.count == 0 && plan.outputs > 0) return Status(Code::kInvalidInput, "position of an extreme among no elements");
  if (self.dtype() == DType::kFloat64) return run_part<kMax, double>(c, self, plan, values, indices);
  if (is_floating(self.dtype())) return run_part<kMax, float>(c, self, plan, values, indices);
  return run_part<kMax, int64_t>(c, self, plan, values, indices);
}

template <bool kMax>
Status arg_extreme(KernelContext& c, const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  const int64_t list[] = {dim.value_or(0)};
  return run<kMax>(c, self, dim.has_value() ? std::span<const int64_t>(list) : std::span<const int64_t>(), keepdim, nullptr, out);
}

template <bool kMax>
Status extreme_dim(KernelContext& c, const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  const int64_t list[] = {dim};
  return run<kMax>(c, self, list, keepdim, &values, indices);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::argmax.out", PTERON_KERNEL(arg_extreme<true>)},
    {"aten::argmin.out", PTERON_KERNEL(arg_extreme<false>)},
    {"aten::max.dim_max", PTERON_KERNEL(extreme_dim<true>)},
    {"aten::min.dim_min", PTERON_KERNEL(extreme_dim<false>)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::arg_reduce
