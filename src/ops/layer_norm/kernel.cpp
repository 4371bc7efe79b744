// Kernels of native_layer_norm, native_group_norm and the RMS norms: moments of a row with float lanes and double totals, then one pass
// that scales and shifts. The compiler's half is op.cpp; batch and instance norms are in batch_norm/.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/reduction.h"

namespace pteron::ops::layer_norm {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;

using Axes = RankList<Axis>;

/// Sum of (x - context)^2.
template <typename P>
struct SpreadFold : FoldBase<P, double> {
  P identity() const { return 0; }
  P fold(P acc, P x, P mean) const {
    const P d = x - mean;
    return acc + d * d;
  }
  P join(P a, P b) const { return a + b; }
};

/// The elements of one row: a box of axes in row-major order, in_stride for the input, out_stride[0] for the out.
template <typename P>
struct Row {
  const Axes& axes;
  const void* in;
  void* out;
  LoadFn<P> load;
  StoreRunFn<P> store;

  std::span<const Axis> outer() const {
    const std::span<const Axis> all(axes.begin(), axes.size());
    return all.empty() ? all : all.first(all.size() - 1);
  }
  Axis inner() const { return axes.empty() ? Axis{1, 1, {1, 0}} : axes.back(); }

  /// Elements [from, from + n) of the row at `base`.
  const P* read(int64_t base, int64_t from, int64_t n, P* buffer) const {
    const Axis axis = inner();
    if (axes.size() <= 1) return load(in, base + from * axis.in_stride, axis.in_stride, n, buffer);
    Walker at(outer(), from / axis.size);
    int64_t skip = from % axis.size;
    for (int64_t done = 0; done < n; at.next(), skip = 0) {
      const int64_t piece = std::min(n - done, axis.size - skip);
      const P* p = load(in, base + at.in() + skip * axis.in_stride, axis.in_stride, piece, buffer + done);
      if (p != buffer + done) std::memcpy(buffer + done, p, static_cast<size_t>(piece) * sizeof(P));
      done += piece;
    }
    return buffer;
  }
  void write(int64_t base, int64_t from, int64_t n, const P* values) const {
    const Axis axis = inner();
    if (axes.size() <= 1) return store(out, base + from * axis.out_stride[0], axis.out_stride[0], n, values);
    Walker at(outer(), from / axis.size);
    int64_t skip = from % axis.size;
    for (int64_t done = 0; done < n; at.next(), skip = 0) {
      const int64_t piece = std::min(n - done, axis.size - skip);
      store(out, base + at.out(0) + skip * axis.out_stride[0], axis.out_stride[0], piece, values + done);
      done += piece;
    }
  }
};

struct Moments {
  double mean = 0;
  double variance = 0;
};

template <typename P>
Moments moments(const Row<P>& row, int64_t base, int64_t n, P* buffer) {
  double sum = 0;
  for (int64_t from = 0; from < n; from += kRowBlock) {
    const int64_t m = std::min(kRowBlock, n - from);
    sum += static_cast<double>(detail::fold_block(SumFold<P, double>(), row.read(base, from, m, buffer), m, P(0)));
  }
  const double mean = sum / static_cast<double>(n);
  double spread = 0;
  for (int64_t from = 0; from < n; from += kRowBlock) {
    const int64_t m = std::min(kRowBlock, n - from);
    spread += static_cast<double>(detail::fold_block(SpreadFold<P>(), row.read(base, from, m, buffer), m, static_cast<P>(mean)));
  }
  return {mean, spread / static_cast<double>(n)};
}

template <typename P>
double mean_square(const Row<P>& row, int64_t base, int64_t n, P* buffer) {
  double sum = 0;
  for (int64_t from = 0; from < n; from += kRowBlock) {
    const int64_t m = std::min(kRowBlock, n - from);
    sum += static_cast<double>(detail::fold_block(SpreadFold<P>(), row.read(base, from, m, buffer), m, P(0)));
  }
  return sum / static_cast<double>(n);
}

/// A weight or bias in the row's order; absent ones read as null.
template <typename P>
struct Affine {
  Axes axes;
  const void* data = nullptr;
  LoadFn<P> load = nullptr;

  const P* read(int64_t from, int64_t n, P* buffer) const {
    if (data == nullptr) return nullptr;
    return Row<P>{axes, data, nullptr, load, nullptr}.read(0, from, n, buffer);
  }
};

Axes axes_of(const TensorView& in, const TensorView& out, int first, int last) {
  Axes axes;
  for (int d = first; d < last; ++d) axes.push_back({in.size(d), in.stride(d), {out.stride(d), 0}});
  detail::merge_axes(axes);
  return axes;
}

template <typename P>
Status make_affine(const Tensor* t, std::span<const int64_t> shape, Affine<P>* made) {
  if (t == nullptr) return ok_status();
  if (!std::equal(t->sizes().begin(), t->sizes().end(), shape.begin(), shape.end())) {
    return Status(Code::kInvalidInput, str_cat("weight or bias of shape ", shape_text(t->sizes()), ", expected ", shape_text(shape)));
  }
  made->axes = axes_of(t->view, t->view, 0, t->rank());
  made->data = t->view.data;
  made->load = load_fn<P>(t->dtype());
  return made->load == nullptr ? Status(Code::kUnsupported, str_cat("weight of dtype ", dtype_name(t->dtype()))) : ok_status();
}

/// out = (x - mean) * scale * weight + bias over a row.
template <typename P>
void apply(const Row<P>& row, int64_t in_base, int64_t out_base, int64_t n, P mean, P scale, const Affine<P>& weight, const Affine<P>& bias) {
  alignas(64) P buffer[kRowBlock], weights[kRowBlock], biases[kRowBlock], result[kRowBlock];
  for (int64_t from = 0; from < n; from += kRowBlock) {
    const int64_t m = std::min(kRowBlock, n - from);
    const P* x = row.read(in_base, from, m, buffer);
    const P* w = weight.read(from, m, weights);
    const P* b = bias.read(from, m, biases);
    if (w != nullptr && b != nullptr) {
      for (int64_t i = 0; i < m; ++i) result[i] = (x[i] - mean) * scale * w[i] + b[i];
    } else if (w != nullptr) {
      for (int64_t i = 0; i < m; ++i) result[i] = (x[i] - mean) * scale * w[i];
    } else {
      for (int64_t i = 0; i < m; ++i) result[i] = (x[i] - mean) * scale + (b == nullptr ? P(0) : b[i]);
    }
    row.write(out_base, from, m, result);
  }
}

/// What layer and RMS norms share: rows are the trailing dims.
struct Shape {
  int lead = 0;       ///< dims before the normalised ones
  int64_t rows = 1;
  int64_t n = 1;
};

Status shape_of(const Tensor& input, std::span<const int64_t> normalized, Shape* made) {
  made->lead = input.rank() - static_cast<int>(normalized.size());
  for (int d = 0; d < input.rank(); ++d) {
    if (d >= made->lead && made->lead >= 0 && input.size(d) == normalized[static_cast<size_t>(d - made->lead)]) {
      made->n *= input.size(d);
    } else if (d < made->lead) {
      made->rows *= input.size(d);
    } else {
      made->lead = -1;
    }
  }
  if (made->lead >= 0) return ok_status();
  return Status(Code::kInvalidInput, str_cat("normalized_shape ", shape_text(normalized), " does not fit an input of shape ", shape_text(input.sizes())));
}

/// Loops over rows; out_stride[1] is that of the statistics.
Axes row_loops(const Tensor& input, const Tensor& out, const Tensor* stat, int lead) {
  Axes axes;
  for (int d = 0; d < lead; ++d) axes.push_back({input.size(d), input.stride(d), {out.stride(d), stat == nullptr ? 0 : stat->stride(d)}});
  detail::merge_axes(axes);
  return axes;
}

bool same_strides(const Tensor& a, const Tensor& b) { return std::equal(a.strides().begin(), a.strides().end(), b.strides().begin(), b.strides().end()); }

Status no_dtype(const Tensor& input) { return Status(Code::kUnsupported, str_cat("normalisation of dtype ", dtype_name(input.dtype()))); }

template <typename P>
Status layer_norm_part(KernelContext& c, const Tensor& input, const Shape& shape, const Tensor* weight, const Tensor* bias, double eps,
                       std::span<const int64_t> normalized, Tensor& out, Tensor& mean, Tensor& rstd) {
  const Axes axes = axes_of(input.view, out.view, shape.lead, input.rank());
  const Row<P> row{axes, input.view.data, out.view.data, load_fn<P>(input.dtype()), store_run_fn<P>(out.dtype())};
  const StoreFn<double> store_mean = store_fn<double>(mean.dtype()), store_rstd = store_fn<double>(rstd.dtype());
  if (row.load == nullptr || row.store == nullptr || store_mean == nullptr || store_rstd == nullptr || !same_strides(mean, rstd)) return no_dtype(input);
  Affine<P> w, b;
  PTERON_TRY(make_affine(weight, normalized, &w));
  PTERON_TRY(make_affine(bias, normalized, &b));
  const Axes loops = row_loops(input, out, &mean, shape.lead);
  c.pool->parallel_for(shape.rows, std::max<int64_t>(1, kGrainElems / 2 / std::max<int64_t>(shape.n, 1)), [&](int64_t begin, int64_t end) {
    alignas(64) P buffer[kRowBlock];
    Walker at({loops.begin(), loops.size()}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const Moments m = moments(row, at.in(), shape.n, buffer);
      const double scale = 1.0 / std::sqrt(m.variance + eps);
      apply(row, at.in(), at.out(0), shape.n, static_cast<P>(m.mean), static_cast<P>(scale), w, b);
      store_mean(mean.view.data, at.out(1), m.mean);
      store_rstd(rstd.view.data, at.out(1), scale);
    }
  });
  return ok_status();
}

Status layer_norm(KernelContext& c, const Tensor& input, IntList normalized, const Tensor* weight, const Tensor* bias, double eps, Tensor& out,
                  Tensor& mean, Tensor& rstd) {
  Shape shape;
  PTERON_TRY(shape_of(input, normalized, &shape));
  PTERON_TRY(runtime::resize(out, input.sizes()));
  Sizes stats(input.sizes());
  for (size_t d = static_cast<size_t>(shape.lead); d < stats.size(); ++d) stats[d] = 1;
  PTERON_TRY(runtime::resize(mean, stats));
  PTERON_TRY(runtime::resize(rstd, stats));
  if (!is_floating(input.dtype())) return no_dtype(input);
  return input.dtype() == DType::kFloat64 ? layer_norm_part<double>(c, input, shape, weight, bias, eps, normalized, out, mean, rstd)
                                          : layer_norm_part<float>(c, input, shape, weight, bias, eps, normalized, out, mean, rstd);
}

template <typename P>
Status rms_norm_part(KernelContext& c, const Tensor& input, const Shape& shape, const Tensor* weight, double eps, std::span<const int64_t> normalized,
                     Tensor& out, Tensor* rstd) {
  const Axes axes = axes_of(input.view, out.view, shape.lead, input.rank());
  const Row<P> row{axes, input.view.data, out.view.data, load_fn<P>(input.dtype()), store_run_fn<P>(out.dtype())};
  const StoreFn<double> store = rstd == nullptr ? nullptr : store_fn<double>(rstd->dtype());
  if (row.load == nullptr || row.store == nullptr || (rstd != nullptr && store == nullptr)) return no_dtype(input);
  Affine<P> w;
  const Affine<P> none;
  PTERON_TRY(make_affine(weight, normalized, &w));
  const Axes loops = row_loops(input, out, rstd, shape.lead);
  c.pool->parallel_for(shape.rows, std::max<int64_t>(1, kGrainElems / 2 / std::max<int64_t>(shape.n, 1)), [&](int64_t begin, int64_t end) {
    alignas(64) P buffer[kRowBlock];
    Walker at({loops.begin(), loops.size()}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const double scale = 1.0 / std::sqrt(mean_square(row, at.in(), shape.n, buffer) + eps);
      apply(row, at.in(), at.out(0), shape.n, P(0), static_cast<P>(scale), w, none);
      if (store != nullptr) store(rstd->view.data, at.out(1), scale);
    }
  });
  return ok_status();
}

Status rms_norm_any(KernelContext& c, const Tensor& input, std::span<const int64_t> normalized, const Tensor* weight, std::optional<double> eps,
                    Tensor& out, Tensor* rstd) {
  Shape shape;
  PTERON_TRY(shape_of(input, normalized, &shape));
  PTERON_TRY(runtime::resize(out, input.sizes()));
  if (rstd != nullptr) {
    Sizes stats(input.sizes());
    for (size_t d = static_cast<size_t>(shape.lead); d < stats.size(); ++d) stats[d] = 1;
    PTERON_TRY(runtime::resize(*rstd, stats));
  }
  if (!is_floating(input.dtype())) return no_dtype(input);
  const bool wide = input.dtype() == DType::kFloat64;
  const double small = eps.value_or(wide ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon()));
  return wide ? rms_norm_part<double>(c, input, shape, weight, small, normalized, out, rstd)
              : rms_norm_part<float>(c, input, shape, weight, small, normalized, out, rstd);
}

Status rms_norm(KernelContext& c, const Tensor& input, IntList normalized, const Tensor* weight, std::optional<double> eps, Tensor& out) {
  return rms_norm_any(c, input, normalized, weight, eps, out, nullptr);
}
Status fused_rms_norm(KernelContext& c, const Tensor& input, IntList normalized, const Tensor* weight, std::optional<double> eps, Tensor& out,
                      Tensor& rstd) {
  return rms_norm_any(c, input, normalized, weight, eps, out, &rstd);
}

template <typename P>
Status group_norm_part(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, int64_t groups, double eps, Tensor& out,
                       Tensor& mean, Tensor& rstd) {
  const int64_t batch = input.size(0), channels = input.size(1), per_group = channels / groups;
  // A group's row is [channels of the group, spatial dims].
  Axes axes = axes_of(input.view, out.view, 2, input.rank());
  const Axes spatial = axes;
  axes.insert(0, {per_group, input.stride(1), {out.stride(1), 0}});
  detail::merge_axes(axes);
  int64_t pixels = 1;
  for (int d = 2; d < input.rank(); ++d) pixels *= input.size(d);
  const LoadFn<P> load = load_fn<P>(input.dtype());
  const StoreRunFn<P> store = store_run_fn<P>(out.dtype());
  const StoreFn<double> store_mean = store_fn<double>(mean.dtype()), store_rstd = store_fn<double>(rstd.dtype());
  if (load == nullptr || store == nullptr || store_mean == nullptr || store_rstd == nullptr) return no_dtype(input);
  const Row<P> row{axes, input.view.data, out.view.data, load, store}, channel{spatial, input.view.data, out.view.data, load, store};
  Affine<P> w, b;
  const int64_t shape[] = {channels};
  PTERON_TRY(make_affine(weight, shape, &w));
  PTERON_TRY(make_affine(bias, shape, &b));
  const int64_t n = per_group * pixels;
  c.pool->parallel_for(batch * groups, std::max<int64_t>(1, kGrainElems / 2 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
    alignas(64) P buffer[kRowBlock];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / groups, group = i % groups, first = group * per_group;
      const Moments m = moments(row, image * input.stride(0) + first * input.stride(1), n, buffer);
      const double scale = 1.0 / std::sqrt(m.variance + eps);
      for (int64_t k = first; k < first + per_group; ++k) {
        P one;
        const P weight_k = w.data == nullptr ? P(1) : *w.read(k, 1, &one);
        const P bias_k = b.data == nullptr ? P(0) : *b.read(k, 1, &one);
        const P factor = static_cast<P>(scale) * weight_k;
        const int64_t in_base = image * input.stride(0) + k * input.stride(1), out_base = image * out.stride(0) + k * out.stride(1);
        alignas(64) P result[kRowBlock];
        for (int64_t from = 0; from < pixels; from += kRowBlock) {
          const int64_t count = std::min(kRowBlock, pixels - from);
          const P* x = channel.read(in_base, from, count, buffer);
          const P center = static_cast<P>(m.mean);
          for (int64_t j = 0; j < count; ++j) result[j] = (x[j] - center) * factor + bias_k;
          channel.write(out_base, from, count, result);
        }
      }
      store_mean(mean.view.data, image * mean.stride(0) + group * mean.stride(1), m.mean);
      store_rstd(rstd.view.data, image * rstd.stride(0) + group * rstd.stride(1), scale);
    }
  });
  return ok_status();
}

Status group_norm(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, int64_t, int64_t, int64_t, int64_t groups,
                  double eps, Tensor& out, Tensor& mean, Tensor& rstd) {
  if (input.rank() < 2 || groups < 1 || input.size(1) % groups != 0) {
    return Status(Code::kInvalidInput, str_cat("group_norm of ", shape_text(input.sizes()), " with ", groups, " groups"));
  }
  PTERON_TRY(runtime::resize(out, input.sizes()));
  const int64_t stats[] = {input.size(0), groups};
  PTERON_TRY(runtime::resize(mean, stats));
  PTERON_TRY(runtime::resize(rstd, stats));
  if (!is_floating(input.dtype())) return no_dtype(input);
  return input.dtype() == DType::kFloat64 ? group_norm_part<double>(c, input, weight, bias, groups, eps, out, mean, rstd)
                                          : group_norm_part<float>(c, input, weight, bias, groups, eps, out, mean, rstd);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::native_layer_norm.out", PTERON_KERNEL(layer_norm)},
    {"aten::native_group_norm.out", PTERON_KERNEL(group_norm)},
    {"pteron::rms_norm.out", PTERON_KERNEL(rms_norm)},
    {"pteron::_fused_rms_norm.out", PTERON_KERNEL(fused_rms_norm)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::layer_norm
