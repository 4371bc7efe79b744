// Kernels of quantile and nanquantile: sorted slices, then interpolation between neighbours in self's dtype as ATen does it.
// The compiler's half is op.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/slices.h"

namespace pteron::ops::quantile {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

enum class Mode { kLinear, kLower, kHigher, kMidpoint, kNearest };

Result<Mode> mode_of(std::string_view text) {
  if (text == "linear") return Mode::kLinear;
  if (text == "lower") return Mode::kLower;
  if (text == "higher") return Mode::kHigher;
  if (text == "midpoint") return Mode::kMidpoint;
  if (text == "nearest") return Mode::kNearest;
  return Status(Code::kInvalidInput, str_cat("interpolation '", text, "'"));
}

/// The quantile q of n sorted values, of which the first `valid` are not NaN.
template <typename P>
P pick(const P* sorted, int64_t n, int64_t valid, bool skip_nan, P q, Mode mode) {
  P rank = q * static_cast<P>(n - 1);
  if (skip_nan) {
    rank = q * static_cast<P>(valid - 1);
    if (rank < P(0)) rank = P(0);
  } else if (valid < n) {
    rank = static_cast<P>(n - 1);
  }
  if (mode == Mode::kLower) rank = std::floor(rank);
  if (mode == Mode::kHigher) rank = std::ceil(rank);
  if (mode == Mode::kNearest) rank = std::nearbyint(rank);
  if (!(rank >= P(0) && rank <= static_cast<P>(n - 1))) return std::numeric_limits<P>::quiet_NaN();  // q outside [0, 1]
  const int64_t below = static_cast<int64_t>(rank);
  const P low = sorted[below];
  if (mode != Mode::kLinear && mode != Mode::kMidpoint) return low;
  const P weight = mode == Mode::kMidpoint ? P(0.5) : rank - static_cast<P>(below);
  const P high = sorted[static_cast<int64_t>(std::ceil(rank))];
  return weight < P(0.5) ? low + weight * (high - low) : high - (high - low) * (P(1) - weight);
}

/// q_strides: input and out stride between quantiles; q may be one number without a tensor.
struct Points {
  const Tensor* tensor = nullptr;
  double number = 0;
  int64_t count = 1;
  int64_t out_stride = 0;
};

template <typename P>
Status run_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, const Points& points, bool skip_nan, Mode mode, Tensor& out) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const LoadFn<P> load_q = points.tensor == nullptr ? load : load_fn<P>(points.tensor->dtype());
  const int64_t q_stride = points.tensor == nullptr || points.tensor->rank() == 0 ? 0 : points.tensor->stride(0);
  Slices s;
  s.outer = plan.kept;
  s.count = plan.outputs;
  s.n = plan.count;
  P* scratch = reinterpret_cast<P*>(c.scratch.data());
  for_each_slice(*c.pool, s, s.n * 16, [&](const Walker& at, int64_t lane) {
    P* values = scratch + lane * s.n;
    Walker inside({plan.reduced.begin(), plan.reduced.size()}, 0);
    P one;
    for (int64_t i = 0; i < s.n; ++i, inside.next()) values[i] = *load(self.view.data, at.in() + inside.in(), 1, 1, &one);
    P* end = std::partition(values, values + s.n, [](P x) { return x == x; });
    std::sort(values, end);
    for (int64_t k = 0; k < points.count; ++k) {
      const P q = points.tensor == nullptr ? static_cast<P>(points.number) : *load_q(points.tensor->view.data, k * q_stride, 1, 1, &one);
      out.as<P>()[at.out(0) + k * points.out_stride] = pick(values, s.n, static_cast<int64_t>(end - values), skip_nan, q, mode);
    }
  });
  return ok_status();
}

Status run(KernelContext& c, const Tensor& self, Points points, std::optional<int64_t> dim, bool keepdim, bool skip_nan, std::string_view interpolation,
           Tensor& out) {
  PTERON_ASSIGN(const Mode mode, mode_of(interpolation));
  const int64_t list[] = {dim.value_or(0)};
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dim.has_value() ? std::span<const int64_t>(list) : std::span<const int64_t>(), self.rank()));
  Sizes sizes = reduced_sizes(self.sizes(), mask, keepdim);
  TensorView one;  // the out of one quantile
  const bool many = points.tensor != nullptr && points.tensor->rank() == 1;
  if (many) sizes.insert(0, points.tensor->size(0));
  PTERON_TRY(runtime::resize(out, sizes));
  one = out.view;
  if (many) {
    points.count = points.tensor->size(0);
    points.out_stride = out.stride(0);
    for (int d = 1; d < out.rank(); ++d) {
      one.size_array[static_cast<size_t>(d - 1)] = out.size(d);
      one.stride_array[static_cast<size_t>(d - 1)] = out.stride(d);
    }
    --one.rank;
  }
  const TensorView* const outs[] = {&one};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs);
  if (plan.count == 0) return Status(Code::kInvalidInput, "quantile of no elements");
  if (self.dtype() == DType::kFloat64 && out.dtype() == DType::kFloat64) return run_part<double>(c, self, plan, points, skip_nan, mode, out);
  if (self.dtype() == DType::kFloat32 && out.dtype() == DType::kFloat32) return run_part<float>(c, self, plan, points, skip_nan, mode, out);
  return Status(Code::kUnsupported, str_cat("quantile of dtype ", dtype_name(self.dtype()), " (float32 and float64 have one)"));
}

size_t workspace(std::span<runtime::Value* const> args) {
  const Tensor& self = args[0]->tensor;
  const int64_t numel = self.numel();
  if (args[2]->tag != runtime::Tag::kInt || self.rank() == 0 || numel == 0) return static_cast<size_t>(numel) * sizeof(double);
  const auto dim = wrap_dim(args[2]->integer, self.rank());
  if (!dim.ok()) return 0;  // refused by the kernel
  const int64_t n = self.size(*dim);
  return static_cast<size_t>(scratch_lanes(numel / n) * n) * sizeof(double);
}

template <bool kSkipNan>
Status by_tensor(KernelContext& c, const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation,
                 Tensor& out) {
  if (q.rank() > 1 || load_fn<double>(q.dtype()) == nullptr) return Status(Code::kInvalidInput, "quantile: q must be a number or one-dimensional");
  return run(c, self, {&q, 0, 1, 0}, dim, keepdim, kSkipNan, interpolation, out);
}
template <bool kSkipNan>
Status by_number(KernelContext& c, const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim, std::string_view interpolation, Tensor& out) {
  return run(c, self, {nullptr, q, 1, 0}, dim, keepdim, kSkipNan, interpolation, out);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::quantile.out", PTERON_KERNEL(by_tensor<false>), workspace},
    {"aten::quantile.scalar_out", PTERON_KERNEL(by_number<false>), workspace},
    {"aten::nanquantile.out", PTERON_KERNEL(by_tensor<true>), workspace},
    {"aten::nanquantile.scalar_out", PTERON_KERNEL(by_number<true>), workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::quantile
