// Kernels of softmax, log_softmax and logsumexp: row by row where the dim lies densely, in tiles of columns elsewhere. The compiler's
// half is op.cpp.
#include <cmath>
#include <complex>
#include <limits>

#include "ops/complex_parts.h"
#include "ops/elementwise.h"
#include "ops/math_more.h"
#include "ops/slices.h"

namespace pteron::ops::softmax {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

inline float exponential(float x) { return math::exp(x); }
inline double exponential(double x) { return math::fast_exp(x); }

template <typename P>
struct MaxFold : FoldBase<P, P> {
  P identity() const { return -std::numeric_limits<P>::infinity(); }
  P fold(P acc, P x, P) const { return join(acc, x); }
  P join(P a, P b) const {
    const P better = b > a ? b : a;
    return b != b ? b : better;
  }
  P start() const { return identity(); }
  P merge(P total, P acc) const { return join(total, acc); }
  P combine(P a, P b) const { return join(a, b); }
};

/// Sum of exp(x - context).
template <typename P>
struct ExpFold : FoldBase<P, double> {
  const P* shifts = nullptr;
  P context(int64_t linear) const { return shifts[linear]; }
  P identity() const { return 0; }
  P fold(P acc, P x, P shift) const { return acc + exponential(x - shift); }
  P join(P a, P b) const { return a + b; }
  double start() const { return 0; }
  double merge(double total, P acc) const { return total + static_cast<double>(acc); }
  double combine(double a, double b) const { return a + b; }
};

template <typename P>
struct Io {
  const void* in;
  void* out;
  LoadFn<P> load;
  StoreRunFn<P> store;
  bool direct;  ///< out holds P: rows with stride 1 are worked on in place
};

/// One slice with a stride of its own, in blocks.
template <typename P, bool kLog>
PTERON_WIDE void one_row(const Io<P>& io, const Slices& s, int64_t in_base, int64_t out_base) {
  alignas(64) P buffer[kRowBlock];
  const MaxFold<P> max_fold;
  ExpFold<P> exp_fold;
  const auto block = [&](int64_t from) {
    return io.load(io.in, in_base + from * s.in_stride, s.in_stride, std::min(kRowBlock, s.n - from), buffer);
  };
  P max = max_fold.start();
  for (int64_t from = 0; from < s.n; from += kRowBlock) {
    max = max_fold.join(max, detail::fold_block(max_fold, block(from), std::min(kRowBlock, s.n - from), P(0)));
  }
  double sum = 0;
  alignas(64) P result[kRowBlock];
  const bool direct = io.direct && s.out_stride[0] == 1;
  const bool keep = !kLog && (direct || s.n <= kRowBlock);  // exponentials wait in the out row, or here
  P* row = direct ? static_cast<P*>(io.out) + out_base : result;
  for (int64_t from = 0; from < s.n; from += kRowBlock) {
    const int64_t n = std::min(kRowBlock, s.n - from);
    const P* p = block(from);
    if (keep) {
      P* to = row + from;
      for (int64_t i = 0; i < n; ++i) to[i] = exponential(p[i] - max);
      sum += static_cast<double>(detail::fold_block(SumFold<P, double>(), static_cast<const P*>(to), n, P(0)));
    } else {
      sum += static_cast<double>(detail::fold_block(exp_fold, p, n, max));
    }
  }
  const P log_sum = static_cast<P>(std::log(sum));
  const P scale = static_cast<P>(1.0 / sum);
  if (keep) {
    for (int64_t i = 0; i < s.n; ++i) row[i] *= scale;
    if (!direct) io.store(io.out, out_base, s.out_stride[0], s.n, result);
    return;
  }
  for (int64_t from = 0; from < s.n; from += kRowBlock) {
    const int64_t n = std::min(kRowBlock, s.n - from);
    const P* p = block(from);
    for (int64_t i = 0; i < n; ++i) result[i] = kLog ? p[i] - max - log_sum : exponential(p[i] - max) * scale;
    io.store(io.out, out_base + from * s.out_stride[0], s.out_stride[0], n, result);
  }
}

/// `width` neighbouring slices at once.
template <typename P, bool kLog>
PTERON_WIDE void columns(const Io<P>& io, const Slices& s, const Axis& side, int64_t in_base, int64_t out_base, int64_t width) {
  alignas(64) P buffer[kTile], max[kTile], sum[kTile], result[kTile];
  double total[kTile];
  const MaxFold<P> max_fold;
  const auto line = [&](int64_t r) { return io.load(io.in, in_base + r * s.in_stride, side.in_stride, width, buffer); };
  for (int64_t j = 0; j < width; ++j) {
    max[j] = max_fold.start();
    sum[j] = 0;
    total[j] = 0;
  }
  for (int64_t r = 0; r < s.n; ++r) {
    const P* p = line(r);
    for (int64_t j = 0; j < width; ++j) max[j] = max_fold.join(max[j], p[j]);
  }
  for (int64_t r = 0; r < s.n; ++r) {
    const P* p = line(r);
    for (int64_t j = 0; j < width; ++j) sum[j] += exponential(p[j] - max[j]);
    if ((r + 1) % kTileRows != 0 && r + 1 < s.n) continue;
    for (int64_t j = 0; j < width; ++j) {
      total[j] += static_cast<double>(sum[j]);
      sum[j] = 0;
    }
  }
  for (int64_t j = 0; j < width; ++j) sum[j] = static_cast<P>(kLog ? std::log(total[j]) : 1.0 / total[j]);
  for (int64_t r = 0; r < s.n; ++r) {
    const P* p = line(r);
    for (int64_t j = 0; j < width; ++j) result[j] = kLog ? p[j] - max[j] - sum[j] : exponential(p[j] - max[j]) * sum[j];
    io.store(io.out, out_base + r * s.out_stride[0], side.out_stride[0], width, result);
  }
}

template <typename P, bool kLog>
Status run_part(KernelContext& c, const Tensor& self, int dim, Tensor& out) {
  const Io<P> io{self.view.data, out.view.data, load_fn<P>(self.dtype()), store_run_fn<P>(out.dtype()), out.dtype() == kDTypeOf<P>};
  if (!is_floating(self.dtype()) || io.load == nullptr || io.store == nullptr) {
    return Status(Code::kUnsupported, str_cat("softmax of dtype ", dtype_name(self.dtype())));
  }
  const TensorView* const outs[] = {&out.view};
  const Slices s = plan_slices(self.view, dim, outs);
  if (s.count == 0 || s.n == 0) return ok_status();
  if (!s.side_by_side()) {
    c.pool->parallel_for(s.count, std::max<int64_t>(1, kGrainElems / 4 / s.n), [&](int64_t begin, int64_t end) {
      Walker at(s.axes(), begin);
      for (int64_t i = begin; i < end; ++i, at.next()) one_row<P, kLog>(io, s, at.in(), at.out(0));
    });
    return ok_status();
  }
  const Axis side = s.outer.back();
  const int64_t per_row = ceil_div(side.size, kTile);
  const int64_t tiles = s.count / side.size * per_row;
  c.pool->parallel_for(tiles, std::max<int64_t>(1, kGrainElems / 4 / (s.n * std::min(kTile, side.size))), [&](int64_t begin, int64_t end) {
    Walker at(s.axes().first(s.outer.size() - 1), begin / per_row);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % per_row * kTile;
      columns<P, kLog>(io, s, side, at.in() + first * side.in_stride, at.out(0) + first * side.out_stride[0], std::min(kTile, side.size - first));
      if ((tile + 1) % per_row == 0) at.next();
    }
  });
  return ok_status();
}

template <bool kLog>
Status softmax(KernelContext& c, const Tensor& self, int64_t dim, bool, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  PTERON_TRY(runtime::resize(out, self.sizes()));
  const bool wide = self.dtype() == DType::kFloat64 || out.dtype() == DType::kFloat64;
  return wide ? run_part<double, kLog>(c, self, d, out) : run_part<float, kLog>(c, self, d, out);
}

/// One shift per output.
size_t logsumexp_workspace(std::span<runtime::Value* const> args) { return static_cast<size_t>(args[3]->tensor.numel()) * sizeof(double); }

template <typename P>
Status logsumexp_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, Tensor& out) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("logsumexp of dtype ", dtype_name(self.dtype())));
  P* shifts = reinterpret_cast<P*>(c.scratch.data());
  fold_reduce(*c.pool, plan, self.view.data, load, MaxFold<P>(),
              [&](const OutPlace& at, P max) { shifts[at.linear] = std::isinf(max) ? P(0) : max; });
  ExpFold<P> sum;
  sum.shifts = shifts;
  fold_reduce(*c.pool, plan, self.view.data, load, sum, [&](const OutPlace& at, double total) {
    store(out.view.data, at.offset[0], std::log(total) + static_cast<double>(shifts[at.linear]));
  });
  return ok_status();
}

/// Sum of exp(z - context), the context a real number.
struct ComplexExpFold : FoldBase<std::complex<double>, std::complex<double>> {
  const double* shifts = nullptr;
  Part context(int64_t linear) const { return shifts[linear]; }
  Part identity() const { return 0; }
  Part fold(Part acc, Part z, Part shift) const { return acc + std::exp(z - shift); }
  Part join(Part a, Part b) const { return a + b; }
  Total start() const { return 0; }
  Total merge(Total total, Part acc) const { return total + acc; }
  Total combine(Total a, Total b) const { return a + b; }
};

/// Shifted by the largest real part.
Status logsumexp_complex(KernelContext& c, const Tensor& self, uint32_t mask, bool keepdim, Tensor& out) {
  using Complex = std::complex<double>;
  const LoadFn<Complex> load = load_fn<Complex>(self.dtype());
  const StoreFn<Complex> store = store_fn<Complex>(out.dtype());
  if (load == nullptr || !is_complex(out.dtype()) || store == nullptr) return Status(Code::kUnsupported, str_cat("logsumexp of dtype ", dtype_name(self.dtype())));
  const TensorView* const outs[] = {&out.view};
  const TensorView real = complex_part(self.view, 0);
  auto* shifts = reinterpret_cast<double*>(c.scratch.data());
  fold_reduce(*c.pool, plan_reduction(real, mask, keepdim, outs), real.data, load_fn<double>(real.dtype), MaxFold<double>(),
              [&](const OutPlace& at, double max) { shifts[at.linear] = std::isinf(max) ? 0 : max; });
  ComplexExpFold sum;
  sum.shifts = shifts;
  fold_reduce(*c.pool, plan_reduction(self.view, mask, keepdim, outs), self.view.data, load, sum,
              [&](const OutPlace& at, Complex total) { store(out.view.data, at.offset[0], std::log(total) + shifts[at.linear]); });
  return ok_status();
}

Status logsumexp(KernelContext& c, const Tensor& self, runtime::IntList dim, bool keepdim, Tensor& out) {
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dim, self.rank()));
  PTERON_TRY(runtime::resize(out, reduced_sizes(self.sizes(), mask, keepdim)));
  if (is_complex(self.dtype())) return logsumexp_complex(c, self, mask, keepdim, out);
  const TensorView* const outs[] = {&out.view};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs);
  return self.dtype() == DType::kFloat64 ? logsumexp_part<double>(c, self, plan, out) : logsumexp_part<float>(c, self, plan, out);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::_softmax.out", PTERON_KERNEL(softmax<false>)},
    {"aten::_log_softmax.out", PTERON_KERNEL(softmax<true>)},
    {"aten::logsumexp.out", PTERON_KERNEL(logsumexp), logsumexp_workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::softmax
