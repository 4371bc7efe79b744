// Kernels of unique, unique_consecutive and unique_dim. Sorting is always done (as ATen's CPU kernels do it); NaN differs from
// everything, itself included, and comes last. The compiler's half is op.cpp.
#include <algorithm>

#include "ops/radix.h"
#include "ops/slices.h"

namespace pteron::ops::unique {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

using Axes = RankList<Axis>;

/// Where the results of a unique go. inverse and counts may be unwanted; they are then empty.
struct Outs {
  Tensor& values;
  Tensor& inverse;
  Tensor& counts;
  bool want_inverse;
  bool want_counts;
};

Axes all_axes(const TensorView& view) {
  Axes axes;
  for (int d = 0; d < view.rank; ++d) axes.push_back({view.size(d), view.stride(d), {0, 0}});
  detail::merge_axes(axes);
  return axes;
}

Status resize_extra(const Outs& outs, std::span<const int64_t> inverse_sizes, int64_t found) {
  const int64_t none[] = {0}, many[] = {found};
  PTERON_TRY(outs.want_inverse ? runtime::resize(outs.inverse, inverse_sizes) : runtime::resize(outs.inverse, none));
  PTERON_TRY(outs.want_counts ? runtime::resize(outs.counts, many) : runtime::resize(outs.counts, none));
  const bool integers = outs.inverse.dtype() == DType::kInt64 && outs.counts.dtype() == DType::kInt64;
  return integers ? ok_status() : Status(Code::kUnsupported, "unique: inverse and counts must be int64");
}

/// Groups of equal neighbours in order[0..n): fills group numbers and counts, returns how many groups. same(a, b) compares elements.
template <typename Same>
int64_t count_groups(const int64_t* order, int64_t n, const Same& same) {
  int64_t groups = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || !same(order[i - 1], order[i])) ++groups;
  }
  return groups;
}

/// Writes inverse and counts for groups in `order`; inverse_at(element) is the offset in the inverse. Calls first(group, element).
template <typename Same, typename InverseAt, typename First>
void write_groups(const int64_t* order, int64_t n, const Outs& outs, const Same& same, const InverseAt& inverse_at, const First& first) {
  int64_t group = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || !same(order[i - 1], order[i])) {
      ++group;
      first(group, order[i]);
      if (outs.want_counts) outs.counts.as<int64_t>()[group * outs.counts.stride(0)] = 0;
    }
    if (outs.want_counts) ++outs.counts.as<int64_t>()[group * outs.counts.stride(0)];
    if (outs.want_inverse) outs.inverse.as<int64_t>()[inverse_at(order[i])] = group;
  }
}

/// Calls fn(values, n, first) for runs of elements in row-major order.
template <typename P, typename Fn>
void each_run(const Tensor& self, LoadFn<P> load, Fn&& fn) {
  constexpr int64_t kRun = 512;
  const Axes axes = all_axes(self.view);
  const Axis inner = axes.empty() ? Axis{} : axes.back();
  Walker row({axes.begin(), axes.empty() ? 0 : axes.size() - 1}, 0);
  P buffer[kRun];
  for (int64_t done = 0; done < self.numel(); row.next()) {
    for (int64_t from = 0; from < inner.size; from += kRun) {
      const int64_t n = std::min(kRun, inner.size - from);
      fn(load(self.view.data, row.in() + from * inner.in_stride, inner.in_stride, n, buffer), n, done);
      done += n;
    }
  }
}

/// Scratch for all elements as items of a sort, kTimes over.
template <size_t kTimes>
size_t flat_workspace(std::span<runtime::Value* const> args) {
  const Tensor& self = args[0]->tensor;
  const size_t item = self.dtype() == DType::kFloat64 || !is_floating(self.dtype()) || self.numel() > UINT32_MAX ? sizeof(PlacedKey<uint64_t>) : sizeof(PlacedKey<uint32_t>);
  return static_cast<size_t>(std::max<int64_t>(self.numel(), 1)) * item * kTimes;
}
/// Scratch for the positions of slices, which empty slices may outnumber; for a tensor without dims, that of flat().
size_t slices_workspace(std::span<runtime::Value* const> args) {
  int64_t most = 1;
  for (const int64_t size : args[0]->tensor.sizes()) most = std::max(most, size);
  return std::max(static_cast<size_t>(most) * sizeof(int64_t), args[0]->tensor.rank() == 0 ? flat_workspace<2>(args) : 0);
}
size_t consecutive_workspace(std::span<runtime::Value* const> args) { return std::max(flat_workspace<1>(args), slices_workspace(args)); }

/// True if items[i] starts a group of equal keys. NaN differs from itself.
template <typename P, typename Item>
bool starts_group(const Item* items, int64_t i) {
  const bool differs = items[i].key != items[i - 1].key;
  if constexpr (std::is_floating_point_v<P>) return differs || items[i].key == kNanKey<P>;
  return differs;
}

/// Fills the outs from items whose equal keys are neighbours; place(i) is the element that items[i] came from. Overwrites the items.
template <typename P, typename Item, typename Place>
Status write_flat(const Tensor& self, Item* items, const Outs& outs, StoreFn<P> store, const Place& place) {
  const int64_t n = self.numel();
  int64_t found = n > 0 ? 1 : 0;
  for (int64_t i = 1; i < n; ++i) found += starts_group<P>(items, i) ? 1 : 0;
  const int64_t sizes[] = {found};
  PTERON_TRY(runtime::resize(outs.values, sizes));
  PTERON_TRY(resize_extra(outs, self.sizes(), found));
  if (outs.want_inverse) {
    const Axes axes = all_axes(outs.inverse.view);
    const bool dense = outs.inverse.view.is_contiguous();
    int64_t* inverse = outs.inverse.as<int64_t>();
    int64_t group = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0) group += starts_group<P>(items, i) ? 1 : 0;
      inverse[dense ? place(i) : Walker({axes.begin(), axes.size()}, place(i)).in()] = group;
    }
  }
  if (outs.want_counts) {
    // The last position of every group, then the differences.
    int64_t* counts = outs.counts.as<int64_t>();
    const int64_t step = outs.counts.stride(0);
    int64_t group = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0) group += starts_group<P>(items, i) ? 1 : 0;
      counts[group * step] = i + 1;
    }
    for (int64_t g = found - 1; g > 0; --g) counts[g * step] -= counts[(g - 1) * step];
  }
  // Keys of groups move to the front.
  int64_t group = 0;
  auto last = n > 0 ? items[0].key : 0;
  for (int64_t i = 1; i < n; ++i) {
    const auto key = items[i].key;
    bool starts = key != last;
    if constexpr (std::is_floating_point_v<P>) starts = starts || key == kNanKey<P>;
    items[group].key = last;
    group += starts ? 1 : 0;
    last = key;
  }
  if (n > 0) items[group].key = last;
  for (int64_t g = 0; g < found; ++g) store(outs.values.view.data, g * outs.values.stride(0), value_of<P>(items[g].key));
  return ok_status();
}

template <typename P>
Status flat_part(KernelContext& c, const Tensor& self, bool sort, const Outs& outs) {
  using K = KeyOf<P>;
  const int64_t n = self.numel();
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = store_fn<P>(outs.values.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("unique of dtype ", dtype_name(self.dtype())));
  if (!sort || !outs.want_inverse) {
    auto* items = reinterpret_cast<Key<K>*>(c.scratch.data());
    each_run(self, load, [&](const P* p, int64_t m, int64_t first) {
      for (int64_t i = 0; i < m; ++i) items[first + i].key = key_of(p[i]);
    });
    if (sort) items = radix_sort(items, items + n, n);
    return write_flat<P>(self, items, outs, store, [](int64_t i) { return i; });
  }
  auto* items = reinterpret_cast<PlacedKey<K>*>(c.scratch.data());
  each_run(self, load, [&](const P* p, int64_t m, int64_t first) {
    for (int64_t i = 0; i < m; ++i) items[first + i] = {key_of(p[i]), static_cast<K>(first + i)};
  });
  items = radix_sort(items, items + n, n);
  return write_flat<P>(self, items, outs, store, [&](int64_t i) { return static_cast<int64_t>(items[i].place); });
}

Status flat(KernelContext& c, const Tensor& self, bool sort, const Outs& outs) {
  if (is_complex(self.dtype())) return Status(Code::kUnsupported, "unique of complex numbers");
  // Positions are as wide as keys: floats beyond 32 bits of them are compared as doubles.
  if (self.dtype() == DType::kFloat64 || (is_floating(self.dtype()) && self.numel() > UINT32_MAX)) return flat_part<double>(c, self, sort, outs);
  if (is_floating(self.dtype())) return flat_part<float>(c, self, sort, outs);
  return self.dtype() == DType::kUInt64 ? flat_part<uint64_t>(c, self, sort, outs) : flat_part<int64_t>(c, self, sort, outs);
}

// ---- along a dim: whole slices are compared

template <typename P>
Status slices_part(KernelContext& c, const Tensor& self, int dim, bool sort, const Outs& outs) {
  const int64_t n = self.size(dim);
  int64_t* order = reinterpret_cast<int64_t*>(c.scratch.data());
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store = store_fn<P>(outs.values.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("unique of dtype ", dtype_name(self.dtype())));
  Axes inside;
  int64_t length = 1;
  for (int d = 0; d < self.rank(); ++d) {
    if (d == dim) continue;
    inside.push_back({self.size(d), self.stride(d), {0, 0}});
    length *= self.size(d);
  }
  detail::merge_axes(inside);
  const int64_t step = self.stride(dim);
  // -1, 0, 1 by the first difference; NaN is last and differs from itself only in same()
  const auto compare = [&](int64_t a, int64_t b) {
    Walker at({inside.begin(), inside.size()}, 0);
    P one, two;
    for (int64_t i = 0; i < length; ++i, at.next()) {
      const P x = *load(self.view.data, at.in() + a * step, 1, 1, &one), y = *load(self.view.data, at.in() + b * step, 1, 1, &two);
      if (x < y || (x == x && y != y)) return -1;
      if (y < x || (y == y && x != x)) return 1;
    }
    return 0;
  };
  const auto same = [&](int64_t a, int64_t b) {
    Walker at({inside.begin(), inside.size()}, 0);
    P one, two;
    for (int64_t i = 0; i < length; ++i, at.next()) {
      const P x = *load(self.view.data, at.in() + a * step, 1, 1, &one), y = *load(self.view.data, at.in() + b * step, 1, 1, &two);
      if (!(x == y)) return false;
    }
    return true;
  };
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  if (sort) {
    std::sort(order, order + n, [&](int64_t a, int64_t b) {
      const int result = compare(a, b);
      return result != 0 ? result < 0 : a < b;
    });
  }
  const int64_t found = count_groups(order, n, same);
  Sizes sizes(self.sizes());
  sizes[static_cast<size_t>(dim)] = found;
  PTERON_TRY(runtime::resize(outs.values, sizes));
  const int64_t inverse_sizes[] = {n};
  PTERON_TRY(resize_extra(outs, inverse_sizes, found));
  Axes copy;  // in: self, out: values
  for (int d = 0; d < self.rank(); ++d) {
    if (d != dim) copy.push_back({self.size(d), self.stride(d), {outs.values.stride(d), 0}});
  }
  const int64_t out_step = outs.values.stride(dim);
  write_groups(order, n, outs, same, [&](int64_t i) { return i * outs.inverse.stride(0); },
               [&](int64_t group, int64_t i) {
                 Walker at({copy.begin(), copy.size()}, 0);
                 P one;
                 for (int64_t k = 0; k < length; ++k, at.next()) {
                   store(outs.values.view.data, at.out(0) + group * out_step, *load(self.view.data, at.in() + i * step, 1, 1, &one));
                 }
               });
  return ok_status();
}

Status slices(KernelContext& c, const Tensor& self, int64_t dim, bool sort, const Outs& outs) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  if (self.rank() == 0) return flat(c, self, sort, outs);
  if (is_complex(self.dtype())) return Status(Code::kUnsupported, "unique of complex numbers");
  if (self.dtype() == DType::kFloat64) return slices_part<double>(c, self, d, sort, outs);
  return is_floating(self.dtype()) ? slices_part<float>(c, self, d, sort, outs) : slices_part<int64_t>(c, self, d, sort, outs);
}

Status unique2(KernelContext& c, const Tensor& self, bool, bool inverse, bool counts, Tensor& values, Tensor& inverse_out, Tensor& counts_out) {
  return flat(c, self, true, {values, inverse_out, counts_out, inverse, counts});
}
Status unique_consecutive(KernelContext& c, const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim, Tensor& values,
                          Tensor& inverse_out, Tensor& counts_out) {
  if (dim.has_value()) return slices(c, self, *dim, false, {values, inverse_out, counts_out, true, true});
  return flat(c, self, false, {values, inverse_out, counts_out, inverse, counts});
}
Status unique_dim(KernelContext& c, const Tensor& self, int64_t dim, bool, bool, bool, Tensor& values, Tensor& inverse_out, Tensor& counts_out) {
  return slices(c, self, dim, true, {values, inverse_out, counts_out, true, true});
}
Status unique_dim_consecutive(KernelContext& c, const Tensor& self, int64_t dim, bool, bool, Tensor& values, Tensor& inverse_out, Tensor& counts_out) {
  return slices(c, self, dim, false, {values, inverse_out, counts_out, true, true});
}

constexpr runtime::Kernel kTable[] = {
    {"aten::_unique2.out", PTERON_KERNEL(unique2), flat_workspace<2>},
    {"aten::unique_consecutive.out", PTERON_KERNEL(unique_consecutive), consecutive_workspace},
    {"aten::unique_dim.out", PTERON_KERNEL(unique_dim), slices_workspace},
    {"aten::unique_dim_consecutive.out", PTERON_KERNEL(unique_dim_consecutive), slices_workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::unique
