// Kernels of var, std, var_mean, std_mean: two passes in double, so that a large mean costs no digits. The compiler's half is op.cpp.
#include <cmath>
#include <limits>

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

/// Scratch: one double per output for the means. All forms have four arguments, then the out.
size_t workspace(std::span<runtime::Value* const> args) { return static_cast<size_t>(args[4]->tensor.numel()) * sizeof(double); }

Status run(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, double correction, bool keepdim, bool root, Tensor& out, Tensor* mean) {
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dims, self.rank()));
  const Sizes sizes = reduced_sizes(self.sizes(), mask, keepdim);
  PTERON_TRY(runtime::resize(out, sizes));
  if (mean != nullptr) PTERON_TRY(runtime::resize(*mean, sizes));
  const TensorView* const outs[] = {&out.view, mean == nullptr ? &out.view : &mean->view};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs);
  const LoadFn<double> load = load_fn<double>(self.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  const StoreFn<double> store_mean = mean == nullptr ? store : store_fn<double>(mean->dtype());
  if (load == nullptr || store == nullptr || store_mean == nullptr) {
    return Status(Code::kUnsupported, str_cat("variance of dtype ", dtype_name(self.dtype())));
  }
  double* means = reinterpret_cast<double*>(c.scratch.data());
  const double count = static_cast<double>(plan.count);
  fold_reduce(*c.pool, plan, self.view.data, load, SumFold<double, double>(), [&](const OutPlace& at, double total) {
    means[at.linear] = total / count;
    if (mean != nullptr) store_mean(mean->view.data, at.offset[1], total / count);
  });
  SpreadFold spread;
  spread.means = means;
  const double divisor = std::max(0.0, count - correction);
  fold_reduce(*c.pool, plan, self.view.data, load, spread, [&](const OutPlace& at, double total) {
    const double var = total / divisor;
    store(out.view.data, at.offset[0], root ? std::sqrt(var) : var);
  });
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
