// Kernels of var, std, var_mean, std_mean: two passes in double, so that a large mean costs no digits; four for complex numbers. The compiler's half is op.cpp.
#include <cmath>
#include <limits>

#include "ops/complex_parts.h"
#include "ops/reduction.h"

namespace pteron::ops::variance {
namespace {

using runtime::KernelContext;
using runtime::OptionalIntList;
using runtime::Scalar;
using runtime::Tensor;

/// Sum of squared distances to each output's mean.
struct SpreadFold : FoldBase<double, double> {
  const double* means;
  double context(int64_t linear) const { return means[linear]; }
  double identity() const { return 0; }
  double fold(double acc, double x, double mean) const {
    const double d = x - mean;
    return acc + d * d;
  }
  double join(double a, double b) const { return a + b; }
  double start() const { return 0; }
  double merge(double total, double acc) const { return total + acc; }
  double combine(double a, double b) const { return a + b; }
};

/// Scratch: one double per output for the means, another for the spread of the real parts of complex numbers. All forms have four arguments,
/// then the out.
size_t workspace(std::span<runtime::Value* const> args) {
  return static_cast<size_t>(args[4]->tensor.numel()) * sizeof(double) * (is_complex(args[0]->tensor.dtype()) ? 2 : 1);
}

/// What one pass works on: a real tensor, or the real or imaginary parts of a complex one.
struct Job {
  TensorView in, out, mean;  ///< mean: the out again if nobody wants it
  bool wants_mean;
  double correction;
  bool root;
  double* means;          ///< scratch, one per output
  double* others;         ///< variances of the real parts; null for real numbers
  bool last;              ///< the results are complete: with those of `others` if there are some
};

Status run_pass(KernelContext& c, const Job& job, uint32_t mask, bool keepdim) {
  const TensorView* const outs[] = {&job.out, &job.mean};
  const ReducePlan plan = plan_reduction(job.in, mask, keepdim, outs);
  const LoadFn<double> load = load_fn<double>(job.in.dtype);
  const StoreFn<double> store = store_fn<double>(job.out.dtype), store_mean = store_fn<double>(job.mean.dtype);
  if (load == nullptr || store == nullptr || store_mean == nullptr) return Status(Code::kUnsupported, str_cat("variance of dtype ", dtype_name(job.in.dtype)));
  const double count = static_cast<double>(plan.count);
  fold_reduce(*c.pool, plan, job.in.data, load, SumFold<double, double>(), [&](const OutPlace& at, double total) {
    job.means[at.linear] = total / count;
    if (job.wants_mean) store_mean(job.mean.data, at.offset[1], total / count);
  });
  SpreadFold spread;
  spread.means = job.means;
  const double divisor = std::max(0.0, count - job.correction);
  fold_reduce(*c.pool, plan, job.in.data, load, spread, [&](const OutPlace& at, double total) {
    double var = total / divisor;
    if (!job.last) {
      job.others[at.linear] = var;
      return;
    }
    if (job.others != nullptr) var += job.others[at.linear];
    store(job.out.data, at.offset[0], job.root ? std::sqrt(var) : var);
  });
  return ok_status();
}

Status run(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, double correction, bool keepdim, bool root, Tensor& out, Tensor* mean) {
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dims, self.rank()));
  const Sizes sizes = reduced_sizes(self.sizes(), mask, keepdim);
  PTERON_TRY(runtime::resize(out, sizes));
  if (mean != nullptr) PTERON_TRY(runtime::resize(*mean, sizes));
  const TensorView mean_view = mean == nullptr ? out.view : mean->view;
  Job job{self.view, out.view, mean_view, mean != nullptr, correction, root, reinterpret_cast<double*>(c.scratch.data()), nullptr, true};
  if (!is_complex(self.dtype())) return run_pass(c, job, mask, keepdim);
  if (self.dtype() == DType::kComplexHalf) return Status(Code::kUnsupported, "variance of complex numbers of 16 bits");
  // The sum of the variances of both parts; the mean is complex.
  job.others = job.means + out.numel();
  for (const int part : {0, 1}) {
    job.in = complex_part(self.view, part);
    if (mean != nullptr) job.mean = complex_part(mean->view, part);
    job.last = part == 1;
    PTERON_TRY(run_pass(c, job, mask, keepdim));
  }
  return ok_status();
}

double correction_of(const std::optional<Scalar>& correction) { return correction.has_value() ? correction->to_double() : 1.0; }

template <bool kRoot>
Status one(KernelContext& c, const Tensor& self, OptionalIntList dim, std::optional<Scalar> correction, bool keepdim, Tensor& out) {
  return run(c, self, dim.list, correction_of(correction), keepdim, kRoot, out, nullptr);
}
template <bool kRoot>
Status two(KernelContext& c, const Tensor& self, OptionalIntList dim, std::optional<Scalar> correction, bool keepdim, Tensor& out, Tensor& mean) {
  return run(c, self, dim.list, correction_of(correction), keepdim, kRoot, out, &mean);
}
template <bool kRoot>
Status unbiased(KernelContext& c, const Tensor& self, OptionalIntList dim, bool is_unbiased, bool keepdim, Tensor& out) {
  return run(c, self, dim.list, is_unbiased ? 1.0 : 0.0, keepdim, kRoot, out, nullptr);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::var.correction_out", PTERON_KERNEL(one<false>), workspace},
    {"aten::std.correction_out", PTERON_KERNEL(one<true>), workspace},
    {"aten::var_mean.correction_out", PTERON_KERNEL(two<false>), workspace},
    {"aten::std_mean.correction_out", PTERON_KERNEL(two<true>), workspace},
    {"aten::var.out", PTERON_KERNEL(unbiased<false>), workspace},
    {"aten::std.out", PTERON_KERNEL(unbiased<true>), workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::variance
