// Kernels of searchsorted, bucketize, isin, histc and bincount. The compiler's half is op.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/slices.h"

namespace pteron::ops::search {
namespace {

using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tensor;
using runtime::Value;

template <typename P>
P read_one(LoadFn<P> load, const Tensor& t, int64_t offset) {
  P one;
  return *load(t.view.data, offset, 1, 1, &one);
}

void store_index(Tensor& out, int64_t offset, int64_t value) {
  if (out.dtype() == DType::kInt32) {
    out.as<int32_t>()[offset] = static_cast<int32_t>(value);
  } else {
    out.as<int64_t>()[offset] = value;
  }
}

/// Loops over all elements of a tensor, with the strides of an out of the same shape.
RankList<Axis> element_axes(const TensorView& in, const TensorView& out) {
  RankList<Axis> axes;
  for (int d = 0; d < in.rank; ++d) axes.push_back({in.size(d), in.stride(d), {out.stride(d), 0}});
  detail::merge_axes(axes);
  return axes;
}

// ---- searchsorted and bucketize

/// One sorted row, read through an optional permutation.
template <typename P>
struct SortedRow {
  const Tensor& values;
  LoadFn<P> load;
  int64_t base, stride, n;
  const int64_t* sorter;
  int64_t sorter_stride;

  P at(int64_t i) const { return read_one(load, values, base + stride * (sorter == nullptr ? i : sorter[i * sorter_stride])); }
  /// First position whose element is not below x (right: is above x); comparisons with NaN are false, as in ATen.
  int64_t find(P x, bool right) const {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const P element = at(middle);
      const bool before = right ? !(element > x) : !(element >= x);
      if (before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

template <typename P>
Status search_part(KernelContext& c, const Tensor& sorted, const Tensor& queries, const Tensor* sorter, bool right, Tensor& out) {
  const LoadFn<P> load_sorted = load_fn<P>(sorted.dtype()), load_query = load_fn<P>(queries.dtype());
  if (load_sorted == nullptr || load_query == nullptr) {
    return Status(Code::kUnsupported, str_cat("searchsorted of dtypes ", dtype_name(sorted.dtype()), " and ", dtype_name(queries.dtype())));
  }
  const int last = sorted.rank() - 1;
  const int64_t n = sorted.size(last);
  const bool shared = sorted.rank() == 1;
  RankList<Axis> axes;  // every query; in_stride: queries
  for (int d = 0; d < queries.rank(); ++d) axes.push_back({queries.size(d), queries.stride(d), {out.stride(d), 0}});
  const int64_t per_row = shared || queries.rank() == 0 ? 1 : std::max<int64_t>(queries.size(queries.rank() - 1), 1);
  RankList<Axis> rows;  // rows of sorted; out_stride[0]: the sorter's
  for (int d = 0; d < last; ++d) rows.push_back({sorted.size(d), sorted.stride(d), {sorter == nullptr ? 0 : sorter->stride(d), 0}});
  const std::span<const Axis> all(axes.begin(), axes.size()), row_axes(rows.begin(), rows.size());
  const int64_t* permutation = sorter == nullptr ? nullptr : sorter->as<int64_t>();
  c.pool->parallel_for(queries.numel(), 2048, [&](int64_t begin, int64_t end) {
    Walker at(all, begin);
    Walker row(row_axes, shared ? 0 : begin / per_row);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const SortedRow<P> line{sorted, load_sorted, row.in(), sorted.stride(last), n, permutation == nullptr ? nullptr : permutation + row.out(0),
                              sorter == nullptr ? 0 : sorter->stride(last)};
      store_index(out, at.out(0), line.find(read_one(load_query, queries, at.in()), right));
      if (!shared && (i + 1) % per_row == 0) row.next();
    }
  });
  return ok_status();
}

/// Errors: kInvalidInput if a position is outside the sequence.
Status check_sorter(const Tensor& sorter, int64_t n) {
  const RankList<Axis> axes = element_axes(sorter.view, sorter.view);
  Walker at({axes.begin(), axes.size()}, 0);
  for (int64_t i = 0; i < sorter.numel(); ++i, at.next()) {
    const int64_t place = sorter.as<int64_t>()[at.in()];
    if (place < 0 || place >= n) return Status(Code::kInvalidInput, str_cat("searchsorted: sorter names position ", place, " of ", n));
  }
  return ok_status();
}

Status search(KernelContext& c, const Tensor& sorted, const Tensor& queries, const Tensor* sorter, bool right, Tensor& out) {
  PTERON_TRY(runtime::resize(out, queries.sizes()));
  if (sorted.rank() < 1 || (sorted.rank() > 1 && sorted.rank() != queries.rank())) {
    return Status(Code::kInvalidInput, str_cat("searchsorted: sequences of shape ", shape_text(sorted.sizes()), " and values of ", shape_text(queries.sizes())));
  }
  for (int d = 0; d + 1 < sorted.rank(); ++d) {
    if (sorted.size(d) != queries.size(d)) {
      return Status(Code::kInvalidInput, str_cat("searchsorted: sequences of shape ", shape_text(sorted.sizes()), " and values of ", shape_text(queries.sizes())));
    }
  }
  if (sorter != nullptr) {
    if (sorter->dtype() != DType::kInt64 || !std::equal(sorter->sizes().begin(), sorter->sizes().end(), sorted.sizes().begin(), sorted.sizes().end())) {
      return Status(Code::kInvalidInput, "searchsorted: the sorter must be int64 and of the sequence's shape");
    }
    PTERON_TRY(check_sorter(*sorter, sorted.size(sorted.rank() - 1)));
  }
  const bool floats = is_floating(sorted.dtype()) || is_floating(queries.dtype());
  return floats ? search_part<double>(c, sorted, queries, sorter, right, out) : search_part<int64_t>(c, sorted, queries, sorter, right, out);
}

/// side wins over right, as in ATen.
bool is_right(bool right, const std::optional<std::string_view>& side) { return right || (side.has_value() && *side == "right"); }

/// A number as a tensor of rank 0 whose value lives in `storage`.
Tensor number_tensor(const Scalar& x, double* storage) {
  Tensor t;
  if (x.kind == Scalar::Kind::kDouble) {
    *storage = x.floating;
    t.view = make_contiguous_view(DType::kFloat64, {}, storage);
  } else {
    std::memcpy(storage, &x.integer, sizeof x.integer);
    t.view = make_contiguous_view(DType::kInt64, {}, storage);
  }
  return t;
}

Status searchsorted(KernelContext& c, const Tensor& sorted, const Tensor& self, bool, bool right, std::optional<std::string_view> side,
                    const Tensor* sorter, Tensor& out) {
  return search(c, sorted, self, sorter, is_right(right, side), out);
}
Status searchsorted_number(KernelContext& c, const Tensor& sorted, Scalar self, bool, bool right, std::optional<std::string_view> side,
                           const Tensor* sorter, Tensor& out) {
  double storage;
  return search(c, sorted, number_tensor(self, &storage), sorter, is_right(right, side), out);
}
Status bucketize(KernelContext& c, const Tensor& self, const Tensor& boundaries, bool, bool right, Tensor& out) {
  return search(c, boundaries, self, nullptr, right, out);
}
Status bucketize_number(KernelContext& c, Scalar self, const Tensor& boundaries, bool, bool right, Tensor& out) {
  double storage;
  return search(c, boundaries, number_tensor(self, &storage), nullptr, right, out);
}

// ---- isin: test elements sorted in scratch, then binary search

template <typename P>
Status isin_part(KernelContext& c, const Tensor& elements, const Tensor& tests, bool invert, Tensor& out) {
  const LoadFn<P> load = load_fn<P>(elements.dtype()), load_test = load_fn<P>(tests.dtype());
  if (load == nullptr || load_test == nullptr || out.dtype() != DType::kBool) {
    return Status(Code::kUnsupported, str_cat("isin of dtypes ", dtype_name(elements.dtype()), " and ", dtype_name(tests.dtype())));
  }
  P* sorted = reinterpret_cast<P*>(c.scratch.data());
  const int64_t count = tests.numel();
  const RankList<Axis> test_axes = element_axes(tests.view, tests.view);
  Walker from({test_axes.begin(), test_axes.size()}, 0);
  for (int64_t i = 0; i < count; ++i, from.next()) sorted[i] = read_one(load_test, tests, from.in());
  P* end = std::partition(sorted, sorted + count, [](P x) { return x == x; });  // NaN equals nothing
  std::sort(sorted, end);
  const RankList<Axis> axes = element_axes(elements.view, out.view);
  bool* to = out.as<bool>();
  c.pool->parallel_for(elements.numel(), 2048, [&](int64_t begin, int64_t stop) {
    Walker at({axes.begin(), axes.size()}, begin);
    for (int64_t i = begin; i < stop; ++i, at.next()) {
      const P x = read_one(load, elements, at.in());
      to[at.out(0)] = (x == x && std::binary_search(sorted, end, x)) != invert;
    }
  });
  return ok_status();
}

Status isin(KernelContext& c, const Tensor& elements, const Tensor& tests, bool, bool invert, Tensor& out) {
  PTERON_TRY(runtime::resize(out, elements.sizes()));
  const bool floats = is_floating(elements.dtype()) || is_floating(tests.dtype());
  return floats ? isin_part<double>(c, elements, tests, invert, out) : isin_part<int64_t>(c, elements, tests, invert, out);
}
Status isin_number(KernelContext& c, const Tensor& elements, Scalar test, bool assume_unique, bool invert, Tensor& out) {
  double storage;
  return isin(c, elements, number_tensor(test, &storage), assume_unique, invert, out);
}
Status isin_of_number(KernelContext& c, Scalar element, const Tensor& tests, bool assume_unique, bool invert, Tensor& out) {
  double storage;
  return isin(c, number_tensor(element, &storage), tests, assume_unique, invert, out);
}
size_t isin_workspace(std::span<Value* const> args) {
  return args[1]->tag == runtime::Tag::kTensor ? static_cast<size_t>(args[1]->tensor.numel()) * sizeof(double) : sizeof(double);
}

// ---- histc and bincount

/// Counts in the arithmetic of self's dtype (float for 16-bit ones).
template <typename P>
Status histc_part(KernelContext& c, const Tensor& self, int64_t bins, double low_in, double high_in, Tensor& out) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const RankList<Axis> axes = element_axes(self.view, self.view);
  const int64_t numel = self.numel();
  P low = static_cast<P>(low_in), high = static_cast<P>(high_in);
  if (low == high && numel > 0) {
    Walker at({axes.begin(), axes.size()}, 0);
    low = high = read_one(load, self, 0);
    for (int64_t i = 0; i < numel; ++i, at.next()) {
      const P x = read_one(load, self, at.in());
      if (x != x) {
        low = high = x;
        break;
      }
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  if (low == high) {
    low -= P(1);
    high += P(1);
  }
  if (!std::isfinite(low) || !std::isfinite(high)) return Status(Code::kInvalidInput, "histc: the range is not finite");
  if (!(low < high)) return Status(Code::kInvalidInput, "histc: max must be larger than min");
  int64_t* counts = reinterpret_cast<int64_t*>(c.scratch.data());
  std::fill_n(counts, bins, int64_t{0});
  Walker at({axes.begin(), axes.size()}, 0);
  for (int64_t i = 0; i < numel; ++i, at.next()) {
    const P x = read_one(load, self, at.in());
    if (!(x >= low && x <= high)) continue;
    const int64_t place = static_cast<int64_t>((x - low) / (high - low) * static_cast<P>(bins));
    ++counts[std::min(place, bins - 1)];
  }
  const StoreFn<int64_t> store = store_fn<int64_t>(out.dtype());
  for (int64_t b = 0; b < bins; ++b) store(out.view.data, b * out.stride(0), counts[b]);
  return ok_status();
}

Status histc(KernelContext& c, const Tensor& self, int64_t bins, Scalar min, Scalar max, Tensor& out) {
  if (bins < 1) return Status(Code::kInvalidInput, "histc: bins must be positive");
  const int64_t sizes[] = {bins};
  PTERON_TRY(runtime::resize(out, sizes));
  if (!is_floating(self.dtype()) || load_fn<double>(self.dtype()) == nullptr) return Status(Code::kUnsupported, str_cat("histc of dtype ", dtype_name(self.dtype())));
  return self.dtype() == DType::kFloat64 ? histc_part<double>(c, self, bins, min.to_double(), max.to_double(), out)
                                         : histc_part<float>(c, self, bins, min.to_double(), max.to_double(), out);
}
size_t histc_workspace(std::span<Value* const> args) { return static_cast<size_t>(std::max<int64_t>(args[1]->integer, 0)) * sizeof(int64_t); }

Status bincount(KernelContext&, const Tensor& self, const Tensor* weights, int64_t minlength, Tensor& out) {
  const LoadFn<int64_t> load = load_fn<int64_t>(self.dtype());
  if (self.rank() != 1 || !is_integral(self.dtype(), false) || load == nullptr || minlength < 0) {
    return Status(Code::kInvalidInput, "bincount expects a one-dimensional tensor of integers and minlength >= 0");
  }
  if (weights != nullptr && (weights->rank() != 1 || weights->size(0) != self.size(0))) return Status(Code::kInvalidInput, "bincount: one weight per element");
  const LoadFn<double> load_weight = weights == nullptr ? nullptr : load_fn<double>(weights->dtype());
  if (weights != nullptr && load_weight == nullptr) return Status(Code::kUnsupported, "bincount: weights of this dtype");
  constexpr int64_t kBlock = 512;
  const int64_t n = self.size(0);
  const bool counts_only = weights == nullptr || n == 0, into_float = out.dtype() == DType::kFloat32 || out.dtype() == DType::kFloat64;
  if (counts_only ? out.dtype() != DType::kInt64 && (weights == nullptr || !into_float) : !into_float) return Status(Code::kInvalidInput, str_cat("bincount into ", dtype_name(out.dtype())));
  if (n == 0 && into_float) return Status(Code::kInvalidInput, "bincount of no elements with weights: PyTorch gives int64 there, the program has a float");
  alignas(64) int64_t numbers[kBlock];
  int64_t least = 0, most = -1;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t count = std::min(kBlock, n - from);
    const int64_t* x = load(self.view.data, from * self.stride(0), self.stride(0), count, numbers);
    for (int64_t i = 0; i < count; ++i) {
      least = std::min(least, x[i]);
      most = std::max(most, x[i]);
    }
  }
  if (least < 0) return Status(Code::kInvalidInput, str_cat("bincount of a negative number, ", least));
  const int64_t sizes[] = {std::max(minlength, most < INT64_MAX ? most + 1 : most)};
  PTERON_TRY(runtime::resize(out, sizes));
  std::memset(out.view.data, 0, out.view.size_bytes());
  const int64_t step = out.stride(0);
  alignas(64) double heavy[kBlock];
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t count = std::min(kBlock, n - from);
    const int64_t* x = load(self.view.data, from * self.stride(0), self.stride(0), count, numbers);
    if (weights == nullptr) {
      int64_t* counts = out.as<int64_t>();
      for (int64_t i = 0; i < count; ++i) ++counts[x[i] * step];
      continue;
    }
    const double* w = load_weight(weights->view.data, from * weights->stride(0), weights->stride(0), count, heavy);
    if (out.dtype() == DType::kFloat32) {
      for (int64_t i = 0; i < count; ++i) out.as<float>()[x[i] * step] += static_cast<float>(w[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) out.as<double>()[x[i] * step] += w[i];
    }
  }
  return ok_status();
}

constexpr runtime::Kernel kTable[] = {
    {"aten::searchsorted.Tensor_out", PTERON_KERNEL(searchsorted)},
    {"aten::searchsorted.Scalar_out", PTERON_KERNEL(searchsorted_number)},
    {"aten::bucketize.Tensor_out", PTERON_KERNEL(bucketize)},
    {"aten::bucketize.Scalar_out", PTERON_KERNEL(bucketize_number)},
    {"aten::isin.Tensor_Tensor_out", PTERON_KERNEL(isin), isin_workspace},
    {"aten::isin.Tensor_Scalar_out", PTERON_KERNEL(isin_number), isin_workspace},
    {"aten::isin.Scalar_Tensor_out", PTERON_KERNEL(isin_of_number), isin_workspace},
    {"aten::histc.out", PTERON_KERNEL(histc), histc_workspace},
    {"aten::bincount.out", PTERON_KERNEL(bincount)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::search
