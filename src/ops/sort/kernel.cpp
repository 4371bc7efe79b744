// Kernels of sort, argsort, topk, kthvalue, median, nanmedian and mode. NaN is larger than every number. Slices are gathered into
// scratch as pairs of value and position. Where equal elements leave a choice of position, the library algorithms are called the way
// ATen calls them, so that the same one is chosen. The compiler's half is op.cpp.
#include <algorithm>
#include <limits>
#include <utility>

#include "ops/slices.h"

namespace pteron::ops::sort {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

/// A value and where it came from.
template <typename P>
using Item = std::pair<P, int64_t>;
static_assert(sizeof(Item<float>) == 16 && sizeof(Item<double>) == 16 && sizeof(Item<int64_t>) == 16);

inline constexpr int64_t kSortCost = 16;  ///< work of an element beside that of a sum

template <typename P>
bool is_nan(P x) {
  return x != x;
}
/// NaN after everything.
template <typename P>
bool below(P a, P b) {
  return a < b || (!is_nan(a) && is_nan(b));
}
/// NaN before everything.
template <typename P>
bool above(P a, P b) {
  return a > b || (is_nan(a) && !is_nan(b));
}

template <typename P>
void gather(const Slices& s, LoadFn<P> load, const void* data, int64_t base, Item<P>* items) {
  P buffer[256];
  for (int64_t from = 0; from < s.n; from += 256) {
    const int64_t m = std::min<int64_t>(256, s.n - from);
    const P* p = load(data, base + from * s.in_stride, s.in_stride, m, buffer);
    for (int64_t i = 0; i < m; ++i) items[from + i] = {p[i], from + i};
  }
}

/// Calls fn<P>() for the type that orders a dtype's values.
template <typename Fn>
Status dispatch_order(const Tensor& self, Fn&& fn) {
  if (is_complex(self.dtype()) || load_fn<double>(self.dtype()) == nullptr) {
    return Status(Code::kUnsupported, str_cat("ordering of dtype ", dtype_name(self.dtype())));
  }
  if (self.dtype() == DType::kFloat64) return fn.template operator()<double>();
  if (is_floating(self.dtype())) return fn.template operator()<float>();
  return self.dtype() == DType::kUInt64 ? fn.template operator()<uint64_t>() : fn.template operator()<int64_t>();
}

size_t slice_bytes(const Tensor& self, int64_t n) {
  const int64_t slices = n == 0 ? 0 : self.numel() / n;
  return static_cast<size_t>(scratch_lanes(slices) * n) * sizeof(Item<double>);
}
/// 0 for a dim that the tensor does not have: the kernel refuses it.
int64_t dim_size(const Tensor& self, int64_t dim) {
  const auto known = wrap_dim(dim, self.rank());
  if (!known.ok()) return 0;
  return self.rank() == 0 ? 1 : self.size(*known);
}
/// Scratch for slices along the int argument at `kPosition`, or for the whole tensor where there is none.
template <size_t kPosition>
size_t workspace(std::span<runtime::Value* const> args) {
  const Tensor& self = args[0]->tensor;
  if constexpr (kPosition == 0) return slice_bytes(self, self.numel());
  return slice_bytes(self, dim_size(self, args[kPosition]->integer));
}

template <typename P>
Item<P>* lane_items(KernelContext& c, int64_t lane, int64_t n) {
  return reinterpret_cast<Item<P>*>(c.scratch.data()) + lane * n;
}

/// values and indices may be null.
Status check_results(const Tensor& self, const Tensor* values, const Tensor* indices) {
  if ((values == nullptr || values->dtype() == self.dtype()) && (indices == nullptr || indices->dtype() == DType::kInt64)) return ok_status();
  return Status(Code::kInvalidInput,
                str_cat("ordering of ", dtype_name(self.dtype()), ": values of ", dtype_name(values == nullptr ? self.dtype() : values->dtype()),
                        " and positions of ", dtype_name(indices == nullptr ? DType::kInt64 : indices->dtype())));
}

// ---- sort, argsort

/// values may be null.
template <typename P>
Status sort_part(KernelContext& c, const Tensor& self, int dim, bool descending, Tensor* values, Tensor& indices) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = values == nullptr ? nullptr : store_fn<P>(values->dtype());
  const TensorView* const outs[] = {&indices.view, values == nullptr ? &indices.view : &values->view};
  const Slices s = plan_slices(self.view, dim, outs);
  int64_t* to = indices.as<int64_t>();
  for_each_slice(*c.pool, s, s.n * kSortCost, [&](const Walker& at, int64_t lane) {
    Item<P>* items = lane_items<P>(c, lane, s.n);
    gather(s, load, self.view.data, at.in(), items);
    // positions decide between equal values: the sort is stable
    if (descending) {
      std::sort(items, items + s.n,
                [](const Item<P>& a, const Item<P>& b) { return above(a.first, b.first) || (!above(b.first, a.first) && a.second < b.second); });
    } else {
      std::sort(items, items + s.n,
                [](const Item<P>& a, const Item<P>& b) { return below(a.first, b.first) || (!below(b.first, a.first) && a.second < b.second); });
    }
    for (int64_t i = 0; i < s.n; ++i) to[at.out(0) + i * s.out_stride[0]] = items[i].second;
    if (store == nullptr) return;
    for (int64_t i = 0; i < s.n; ++i) store(values->view.data, at.out(1) + i * s.out_stride[1], items[i].first);
  });
  return ok_status();
}

Status sort_any(KernelContext& c, const Tensor& self, int64_t dim, bool descending, Tensor* values, Tensor& indices) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  PTERON_TRY(check_results(self, values, &indices));
  if (values != nullptr) PTERON_TRY(runtime::resize(*values, self.sizes()));
  PTERON_TRY(runtime::resize(indices, self.sizes()));
  return dispatch_order(self, [&]<typename P>() { return sort_part<P>(c, self, d, descending, values, indices); });
}

Status sort(KernelContext& c, const Tensor& self, int64_t dim, bool descending, Tensor& values, Tensor& indices) {
  return sort_any(c, self, dim, descending, &values, indices);
}
Status sort_stable(KernelContext& c, const Tensor& self, std::optional<bool>, int64_t dim, bool descending, Tensor& values, Tensor& indices) {
  return sort_any(c, self, dim, descending, &values, indices);
}
Status argsort_stable(KernelContext& c, const Tensor& self, bool, int64_t dim, bool descending, Tensor& indices) {
  return sort_any(c, self, dim, descending, nullptr, indices);
}

// ---- topk

template <typename P, typename Before>
void select_first(Item<P>* items, int64_t n, int64_t k, bool sorted, const Before& before) {
  const auto compare = [&](const Item<P>& a, const Item<P>& b) { return before(a.first, b.first); };
  if (k * 64 <= n) {
    std::partial_sort(items, items + k, items + n, compare);
    return;
  }
  std::nth_element(items, items + k - 1, items + n, compare);
  if (sorted) std::sort(items, items + k - 1, compare);
}

template <typename P>
Status topk_part(KernelContext& c, const Tensor& self, int64_t k, int dim, bool largest, bool sorted, Tensor& values, Tensor& indices) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = store_fn<P>(values.dtype());
  const TensorView* const outs[] = {&indices.view, &values.view};
  const Slices s = plan_slices(self.view, dim, outs);
  int64_t* to = indices.as<int64_t>();
  for_each_slice(*c.pool, s, s.n * kSortCost / 2, [&](const Walker& at, int64_t lane) {
    Item<P>* items = lane_items<P>(c, lane, s.n);
    gather(s, load, self.view.data, at.in(), items);
    if (largest) {
      select_first(items, s.n, k, sorted, above<P>);
    } else {
      select_first(items, s.n, k, sorted, below<P>);
    }
    for (int64_t i = 0; i < k; ++i) {
      to[at.out(0) + i * s.out_stride[0]] = items[i].second;
      store(values.view.data, at.out(1) + i * s.out_stride[1], items[i].first);
    }
  });
  return ok_status();
}

Status topk(KernelContext& c, const Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted, Tensor& values, Tensor& indices) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  PTERON_TRY(check_results(self, &values, &indices));
  if (k < 0 || k > dim_size(self, d)) return Status(Code::kInvalidInput, str_cat("topk of ", k, " among ", dim_size(self, d)));
  Sizes sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(d)] = k;
  PTERON_TRY(runtime::resize(values, sizes));
  PTERON_TRY(runtime::resize(indices, sizes));
  if (values.numel() == 0) return ok_status();
  return dispatch_order(self, [&]<typename P>() { return topk_part<P>(c, self, k, d, largest, sorted, values, indices); });
}

// ---- kthvalue, median, nanmedian, mode: one element of every slice

/// Quickselect with the median of three as pivot: item k (from 0) in its place.
template <typename P>
void quick_select(Item<P>* items, int64_t n, int64_t k) {
  const auto more = [&](int64_t a, int64_t b) { return above(items[a].first, items[b].first); };
  int64_t low = 0, high = n - 1;
  while (high > low) {
    if (high == low + 1) {
      if (more(low, high)) std::swap(items[low], items[high]);
      return;
    }
    std::swap(items[low + (high - low) / 2], items[low + 1]);
    if (more(low + 1, high)) std::swap(items[low + 1], items[high]);
    if (more(low, high)) std::swap(items[low], items[high]);
    if (more(low + 1, low)) std::swap(items[low + 1], items[low]);
    int64_t i = low + 1, j = high;
    const P pivot = items[low].first;
    for (;;) {
      do ++i;
      while (above(pivot, items[i].first));
      do --j;
      while (above(items[j].first, pivot));
      if (j < i) break;
      std::swap(items[i], items[j]);
    }
    std::swap(items[low], items[j]);
    if (j <= k) low = i;
    if (j >= k) high = j - 1;
  }
}

template <typename P>
Item<P> kth_of(Item<P>* items, int64_t n, int64_t k) {
  quick_select(items, n, k);
  return items[k];
}

template <typename P>
Item<P> median_of(Item<P>* items, int64_t n, bool skip_nan) {
  int64_t valid = n;
  if constexpr (std::is_floating_point_v<P>) {
    const Item<P>* nan = std::find_if(items, items + n, [](const Item<P>& item) { return is_nan(item.first); });
    if (nan != items + n) {
      if (!skip_nan) return *nan;
      valid = n - std::count_if(items, items + n, [](const Item<P>& item) { return is_nan(item.first); });
    }
  }
  Item<P>* middle = items + (std::max<int64_t>(valid, 1) - 1) / 2;
  std::nth_element(items, middle, items + n, [](const Item<P>& a, const Item<P>& b) { return below(a.first, b.first); });
  return *middle;
}

/// The most frequent value, the smallest of several.
template <typename P>
Item<P> mode_of(Item<P>* items, int64_t n) {
  std::sort(items, items + n, [](const Item<P>& a, const Item<P>& b) { return below(a.first, b.first); });
  Item<P> best{};
  int64_t most = 0, run = 0;
  for (int64_t i = 0; i < n; ++i) {
    ++run;
    if (i + 1 < n && items[i].first == items[i + 1].first) continue;
    if (run > most) {
      most = run;
      best = items[i];
    }
    run = 0;
  }
  return best;
}

enum class Pick { kKth, kMedian, kNanMedian, kMode };

template <typename P>
Status pick_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, Pick pick, int64_t k, Tensor& values, Tensor* indices) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = store_fn<P>(values.dtype());
  Slices s;
  s.outer = plan.kept;
  s.count = plan.outputs;
  s.n = plan.count;
  const bool one_axis = plan.reduced.size() <= 1;
  s.in_stride = plan.reduced.empty() ? 1 : plan.reduced.back().in_stride;
  for_each_slice(*c.pool, s, s.n * kSortCost / 2, [&](const Walker& at, int64_t lane) {
    Item<P>* items = lane_items<P>(c, lane, s.n);
    if (one_axis) {
      gather(s, load, self.view.data, at.in(), items);
    } else {
      Walker inside({plan.reduced.begin(), plan.reduced.size()}, 0);
      P one;
      for (int64_t i = 0; i < s.n; ++i, inside.next()) items[i] = {*load(self.view.data, at.in() + inside.in(), 1, 1, &one), i};
    }
    Item<P> found{};
    switch (pick) {
      case Pick::kKth:
        found = kth_of(items, s.n, k - 1);
        break;
      case Pick::kMedian:
        found = median_of(items, s.n, false);
        break;
      case Pick::kNanMedian:
        found = median_of(items, s.n, true);
        break;
      case Pick::kMode:
        found = mode_of(items, s.n);
        break;
    }
    store(values.view.data, at.out(0), found.first);
    if (indices != nullptr) indices->as<int64_t>()[at.out(1)] = found.second;
  });
  return ok_status();
}

/// Along a dim, or over all elements without indices.
Status pick_any(KernelContext& c, const Tensor& self, std::optional<int64_t> dim, bool keepdim, Pick pick, int64_t k, Tensor& values, Tensor* indices) {
  const int64_t list[] = {dim.value_or(0)};
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dim.has_value() ? std::span<const int64_t>(list) : std::span<const int64_t>(), self.rank()));
  const Sizes sizes = reduced_sizes(self.sizes(), mask, keepdim);
  PTERON_TRY(check_results(self, &values, indices));
  PTERON_TRY(runtime::resize(values, sizes));
  if (indices != nullptr) PTERON_TRY(runtime::resize(*indices, sizes));
  const TensorView* const outs[] = {&values.view, indices == nullptr ? &values.view : &indices->view};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs, true);
  if (plan.outputs == 0) return ok_status();
  if (pick == Pick::kKth && (k < 1 || k > plan.count)) return Status(Code::kInvalidInput, str_cat("kthvalue of ", k, " among ", plan.count));
  if (plan.count == 0) {
    if (indices != nullptr || !is_floating(self.dtype())) return Status(Code::kInvalidInput, "median or mode of no elements");
    store_fn<float>(values.dtype())(values.view.data, 0, std::numeric_limits<float>::quiet_NaN());
    return ok_status();
  }
  return dispatch_order(self, [&]<typename P>() { return pick_part<P>(c, self, plan, pick, k, values, indices); });
}

Status kthvalue(KernelContext& c, const Tensor& self, int64_t k, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  return pick_any(c, self, dim, keepdim, Pick::kKth, k, values, &indices);
}
template <Pick kPick>
Status pick_dim(KernelContext& c, const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  return pick_any(c, self, dim, keepdim, kPick, 0, values, &indices);
}
template <Pick kPick>
Status pick_all(KernelContext& c, const Tensor& self, Tensor& out) {
  return pick_any(c, self, std::nullopt, false, kPick, 0, out, nullptr);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::sort.values", PTERON_KERNEL(sort), workspace<1>},
    {"aten::sort.values_stable", PTERON_KERNEL(sort_stable), workspace<2>},
    {"aten::argsort.stable_out", PTERON_KERNEL(argsort_stable), workspace<2>},
    {"aten::topk.values", PTERON_KERNEL(topk), workspace<2>},
    {"aten::kthvalue.values", PTERON_KERNEL(kthvalue), workspace<2>},
    {"aten::median.dim_values", PTERON_KERNEL(pick_dim<Pick::kMedian>), workspace<1>},
    {"aten::nanmedian.dim_values", PTERON_KERNEL(pick_dim<Pick::kNanMedian>), workspace<1>},
    {"aten::mode.values", PTERON_KERNEL(pick_dim<Pick::kMode>), workspace<1>},
    {"aten::median.out", PTERON_KERNEL(pick_all<Pick::kMedian>), workspace<0>},
    {"aten::nanmedian.out", PTERON_KERNEL(pick_all<Pick::kNanMedian>), workspace<0>},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::sort
