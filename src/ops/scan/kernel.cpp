// Kernels of cumsum, cumprod, cummax, cummin, logcumsumexp: one running state per slice, or a tile of states where slices lie side by
// side. The compiler's half is op.cpp.
#include <cmath>
#include <limits>

#include "ops/slices.h"

namespace pteron::ops::scan {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

/// Part: what elements are read as; State: the running value; result(): what is stored.
template <typename P>
struct SumScan {
  using Part = P;
  P state = 0;
  P step(P x) { return state = wrap_add(state, x); }
};
template <typename P>
struct ProdScan {
  using Part = P;
  P state = 1;
  P step(P x) { return state = wrap_mul(state, x); }
};
/// log(sum(exp)): the larger plus log1p(exp(difference)); equal infinities stay.
struct LogSumExpScan {
  using Part = double;
  double state = -std::numeric_limits<double>::infinity();
  double step(double x) {
    if (std::isnan(x) || std::isnan(state)) return state = std::numeric_limits<double>::quiet_NaN();
    const double low = std::min(x, state), high = std::max(x, state);
    state = low != high || std::isfinite(low) ? high + std::log1p(std::exp(low - high)) : high;
    return state;
  }
};

/// One slice from memory to memory, where nothing but the elements' type stands between (short slices would pay for more).
using SliceFn = void (*)(const void* in, int64_t in_offset, int64_t in_stride, void* out, int64_t out_offset, int64_t out_stride, int64_t n);
template <typename Scan, typename T>
void scan_slice(const void* in, int64_t in_offset, int64_t in_stride, void* out, int64_t out_offset, int64_t out_stride, int64_t n) {
  const T* from = static_cast<const T*>(in) + in_offset;
  T* to = static_cast<T*>(out) + out_offset;
  Scan scan;
  for (int64_t k = 0; k < n; ++k) to[k * out_stride] = convert<T>(scan.step(convert<typename Scan::Part>(from[k * in_stride])));
}
/// Null where the dtypes differ or the accumulator is no wider real number.
template <typename Scan>
SliceFn slice_fn(DType in, DType out) {
  using P = typename Scan::Part;
  if (in != out) return nullptr;
  if constexpr (std::is_same_v<P, double>) {
    if (in == DType::kFloat32) return &scan_slice<Scan, float>;
    if (in == DType::kFloat64) return &scan_slice<Scan, double>;
  }
  if constexpr (std::is_same_v<P, int64_t>) {
    if (in == DType::kInt64) return &scan_slice<Scan, int64_t>;
  }
  return nullptr;
}

template <typename Scan>
Status run(KernelContext& c, const char* what, const Tensor& self, int dim, Tensor& out) {
  using P = typename Scan::Part;
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreRunFn<P> store = store_run_fn<P>(out.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat(what, " of dtype ", dtype_name(self.dtype())));
  const TensorView* const outs[] = {&out.view};
  const Slices s = plan_slices(self.view, dim, outs);
  if (s.count == 0 || s.n == 0) return ok_status();
  const void* in = self.view.data;
  void* to = out.view.data;
  if (!s.side_by_side()) {
    const SliceFn slice = slice_fn<Scan>(self.dtype(), out.dtype());
    c.pool->parallel_for(s.count, std::max<int64_t>(1, kGrainElems / 4 / s.n), [&](int64_t begin, int64_t end) {
      if (slice != nullptr) {
        Walker at(s.axes(), begin);
        for (int64_t i = begin; i < end; ++i, at.next()) slice(in, at.in(), s.in_stride, to, at.out(0), s.out_stride[0], s.n);
        return;
      }
      alignas(64) P buffer[kRowBlock], result[kRowBlock];
      Walker at(s.axes(), begin);
      for (int64_t i = begin; i < end; ++i, at.next()) {
        Scan scan;
        for (int64_t from = 0; from < s.n; from += kRowBlock) {
          const int64_t m = std::min(kRowBlock, s.n - from);
          const P* p = load(in, at.in() + from * s.in_stride, s.in_stride, m, buffer);
          for (int64_t k = 0; k < m; ++k) result[k] = scan.step(p[k]);
          store(to, at.out(0) + from * s.out_stride[0], s.out_stride[0], m, result);
        }
      }
    });
    return ok_status();
  }
  const Axis side = s.outer.back();
  const int64_t per_row = ceil_div(side.size, kTile);
  c.pool->parallel_for(s.count / side.size * per_row, std::max<int64_t>(1, kGrainElems / (s.n * std::min(kTile, side.size))), [&](int64_t begin, int64_t end) {
    alignas(64) P buffer[kTile], result[kTile];
    Walker at(s.axes().first(s.outer.size() - 1), begin / per_row);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % per_row * kTile;
      const int64_t width = std::min(kTile, side.size - first);
      Scan scans[kTile];
      for (int64_t r = 0; r < s.n; ++r) {
        const P* p = load(in, at.in() + first * side.in_stride + r * s.in_stride, side.in_stride, width, buffer);
        for (int64_t j = 0; j < width; ++j) result[j] = scans[j].step(p[j]);
        store(to, at.out(0) + first * side.out_stride[0] + r * s.out_stride[0], side.out_stride[0], width, result);
      }
      if ((tile + 1) % per_row == 0) at.next();
    }
  });
  return ok_status();
}

/// Accumulators: double for floats (ATen's accumulate type on CPU), int64 for integers.
template <template <typename> class Scan>
Status accumulate(KernelContext& c, const char* what, const Tensor& self, int64_t dim, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  PTERON_TRY(runtime::resize(out, self.sizes()));
  if (is_complex(out.dtype())) return run<Scan<std::complex<double>>>(c, what, self, d, out);
  return is_integral(out.dtype(), true) ? run<Scan<int64_t>>(c, what, self, d, out) : run<Scan<double>>(c, what, self, d, out);
}

Status cumsum(KernelContext& c, const Tensor& self, int64_t dim, std::optional<DType>, Tensor& out) { return accumulate<SumScan>(c, "cumsum", self, dim, out); }
Status cumprod(KernelContext& c, const Tensor& self, int64_t dim, std::optional<DType>, Tensor& out) { return accumulate<ProdScan>(c, "cumprod", self, dim, out); }

Status logcumsumexp(KernelContext& c, const Tensor& self, int64_t dim, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  PTERON_TRY(runtime::resize(out, self.sizes()));
  if (!is_floating(self.dtype())) return Status(Code::kUnsupported, str_cat("logcumsumexp of dtype ", dtype_name(self.dtype())));
  return run<LogSumExpScan>(c, "logcumsumexp", self, d, out);
}

/// Running extreme and its latest position; once NaN, always the latest NaN.
template <bool kMax, typename P>
Status extreme_part(KernelContext& c, const Tensor& self, int dim, Tensor& values, Tensor& indices) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreRunFn<P> store = store_run_fn<P>(values.dtype());
  if (load == nullptr || store == nullptr || indices.dtype() != DType::kInt64) return Status(Code::kUnsupported, str_cat("cummax of dtype ", dtype_name(self.dtype())));
  const TensorView* const outs[] = {&values.view, &indices.view};
  const Slices s = plan_slices(self.view, dim, outs);
  if (s.n == 0) return ok_status();
  int64_t* to = indices.as<int64_t>();
  c.pool->parallel_for(s.count, std::max<int64_t>(1, kGrainElems / 4 / s.n), [&](int64_t begin, int64_t end) {
    Walker at(s.axes(), begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      alignas(64) P buffer[kRowBlock], results[kRowBlock];
      P best = *load(self.view.data, at.in(), 1, 1, buffer);
      int64_t place = 0;
      for (int64_t from = 0; from < s.n; from += kRowBlock) {
        const int64_t n = std::min(kRowBlock, s.n - from);
        const P* p = load(self.view.data, at.in() + from * s.in_stride, s.in_stride, n, buffer);
        int64_t* places = to + at.out(1) + from * s.out_stride[1];
        for (int64_t k = 0; k < n; ++k) {
          const P x = p[k];
          const bool better = x != x || (best == best && (kMax ? x >= best : x <= best));
          best = better ? x : best;
          place = better ? from + k : place;
          results[k] = best;
          places[k * s.out_stride[1]] = place;
        }
        store(values.view.data, at.out(0) + from * s.out_stride[0], s.out_stride[0], n, results);
      }
    }
  });
  return ok_status();
}

template <bool kMax>
Status extreme(KernelContext& c, const Tensor& self, int64_t dim, Tensor& values, Tensor& indices) {
  PTERON_TRY(runtime::resize(values, self.sizes()));
  PTERON_TRY(runtime::resize(indices, self.sizes()));
  if (self.numel() == 0) return ok_status();  // PyTorch takes any dim then
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  if (self.dtype() == DType::kFloat64) return extreme_part<kMax, double>(c, self, d, values, indices);
  return is_floating(self.dtype()) ? extreme_part<kMax, float>(c, self, d, values, indices) : extreme_part<kMax, int64_t>(c, self, d, values, indices);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::cumsum.out", PTERON_KERNEL(cumsum)},
    {"aten::cumprod.out", PTERON_KERNEL(cumprod)},
    {"aten::cummax.out", PTERON_KERNEL(extreme<true>)},
    {"aten::cummin.out", PTERON_KERNEL(extreme<false>)},
    {"aten::logcumsumexp.out", PTERON_KERNEL(logcumsumexp)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::scan
