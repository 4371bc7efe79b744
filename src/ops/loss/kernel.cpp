// Kernels of losses that would take many passes as pointwise operators: smooth_l1, huber, multilabel_margin. Other losses decompose (op.cpp).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/checked_math.h"
#include "ops/elementwise.h"
#include "ops/slices.h"

namespace pteron::ops::loss {
namespace {

using runtime::Value;

/// Numbers of at::Reduction.
enum Reduction : int64_t { kNone = 0, kMean = 1 };

// ---- pointwise losses with a reduction

struct SmoothL1 {
  template <typename T>
  static T apply(T a, T b, T beta) {
    const T z = std::abs(a - b);
    return z < beta ? T(0.5) * z * z / beta : z - T(0.5) * beta;
  }
};
struct Huber {
  template <typename T>
  static T apply(T a, T b, T delta) {
    const T z = std::abs(a - b);
    return z <= delta ? T(0.5) * z * z : delta * (z - T(0.5) * delta);
  }
};

/// Bytes of `count` elements; more than any memory has if the product overflows, so that the program is refused at load.
size_t bytes_of(int64_t count, size_t each) {
  size_t bytes = 0;
  return count >= 0 && checked_mul(static_cast<size_t>(count), each, &bytes) ? bytes : std::numeric_limits<size_t>::max();
}

/// Scratch: the elements' losses, if they are reduced. Sizes are bounds, and those of two symbols may differ where the sizes of a call do not:
/// so the larger one of each dim counts.
size_t pair_workspace(std::span<Value* const> args) {
  if (args[2]->integer == kNone) return 0;
  const TensorView &self = args[0]->tensor.view, &target = args[1]->tensor.view;
  Sizes sizes;
  for (int d = 0; d < std::max<int>(self.rank, target.rank); ++d) {  // counted from the last dim
    const int64_t a = d < self.rank ? self.size(self.rank - 1 - d) : 1, b = d < target.rank ? target.size(target.rank - 1 - d) : 1;
    sizes.push_back(std::max(a, b));
  }
  int64_t count = 0;
  return bytes_of(checked_numel(sizes, &count) ? count : -1, dtype_size(args.back()->tensor.dtype()));
}

/// out = sum of the elements / divisor.
Status sum_elements(KernelContext& c, const TensorView& elements, double divisor, Tensor& out) {
  const TensorView* const outs[] = {&out.view};
  const ReducePlan plan = plan_reduction(elements, elements.rank == 0 ? 0 : 1, false, outs);
  const StoreFn<double> store = store_fn<double>(out.dtype());
  const auto sink = [&](const OutPlace& at, double total) { store(out.view.data, at.offset[0], total / divisor); };
  if (elements.dtype == DType::kFloat64) {
    fold_reduce(*c.pool, plan, elements.data, load_fn<double>(elements.dtype), SumFold<double, double>(), sink);
  } else {
    fold_reduce(*c.pool, plan, elements.data, load_fn<float>(elements.dtype), SumFold<float, double>(), sink);
  }
  return ok_status();
}

template <typename F>
Status pair_loss(KernelContext& c, const Tensor& self, const Tensor& target, int64_t reduction, double parameter, Tensor& out) {
  if (!is_floating(out.dtype()) || is_float8(out.dtype())) return unsupported_dtype(out.dtype());
  const DType compute = compute_dtype(out.dtype());
  const TileInput inputs[] = {{self, compute}, {target, compute}};
  const auto single = static_cast<float>(parameter);
  const bool wide = compute == DType::kFloat64;
  const TileFn fn = wide ? &binary_params_tile<F, double, double, double> : &binary_params_tile<F, float, float, float>;
  const void* params = wide ? static_cast<const void*>(&parameter) : &single;
  if (reduction == kNone) return run_elementwise(c, inputs, out, compute, fn, params);
  Sizes sizes;
  PTERON_TRY(broadcast_inputs(inputs, &sizes));
  PTERON_TRY(runtime::resize(out, {}));
  int64_t count = 0;
  if (!checked_numel(sizes, &count) || bytes_of(count, dtype_size(out.dtype())) > c.scratch.size()) return Status(Code::kInternal, "loss: scratch is too small");
  const TileOutput terms{make_contiguous_view(out.dtype(), sizes, c.scratch.data()), compute};
  PTERON_TRY(run_tiles(c, sizes, inputs, {&terms, 1}, fn, params));
  const int64_t flat[] = {count};
  return sum_elements(c, make_contiguous_view(out.dtype(), flat, c.scratch.data()), reduction == kMean ? static_cast<double>(count) : 1.0, out);
}

// ---- multilabel_margin

int64_t sample_count(const Tensor& self) { return self.rank() < 2 ? 1 : self.size(0); }
int64_t class_count(const Tensor& self) { return self.rank() == 0 ? 1 : self.size(self.rank() - 1); }

/// Scratch: a loss a sample, then a row of values and a row of flags for every lane.
size_t multilabel_workspace(std::span<Value* const> args) {
  const Tensor& self = args[0]->tensor;
  int64_t rows = 0, count = 0;
  const bool fits = checked_mul(2 * scratch_lanes(sample_count(self)), class_count(self), &rows) && checked_add(sample_count(self), rows, &count);
  return bytes_of(fits ? count : -1, sizeof(double));
}

/// Sum over the classes that are no target (free: 1, others 0) of how far they come within 1 of `own`.
template <typename P>
double margin_sum(const P* x, const P* free, int64_t n, P own) {
  constexpr int64_t kLanes = 16, kRun = 1024;
  double total = 0;
  for (int64_t from = 0; from < n; from += kRun) {
    const int64_t end = std::min(n, from + kRun);
    P sums[kLanes] = {};
    int64_t i = from;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        const P z = P(1) - own + x[i + l];
        sums[l] += ((z > P(0)) & (free[i + l] > P(0))) ? z : P(0);
      }
    }
    for (int64_t l = 0; i < end; ++i, ++l) {
      const P z = P(1) - own + x[i];
      sums[l] += z > P(0) && free[i] > P(0) ? z : P(0);
    }
    for (const P sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

template <typename P>
Status multilabel_part(KernelContext& c, const Tensor& self, const Tensor& target, int64_t reduction, Tensor& output, Tensor& is_target) {
  const int64_t samples = sample_count(self), classes = class_count(self);
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<P> store_flag = store_fn<P>(is_target.dtype());
  const StoreFn<double> store = store_fn<double>(output.dtype());
  const auto steps = [](const Tensor& t) { return std::pair(t.rank() < 2 ? 0 : t.stride(0), t.rank() == 0 ? 0 : t.stride(t.rank() - 1)); };
  const auto [x_row, x_step] = steps(self);
  const auto [target_row, target_step] = steps(target);
  const auto [flag_row, flag_step] = steps(is_target);
  auto* losses = reinterpret_cast<double*>(c.scratch.data());
  std::atomic<bool> bad{false};
  const int64_t lanes = scratch_lanes(samples);
  const auto one_sample = [&](int64_t sample, P* values, P* free) {
    const P* x = load(self.view.data, sample * x_row, x_step, classes, values);
    std::fill_n(free, classes, P(1));
    const int64_t* labels = target.as<int64_t>() + sample * target_row;
    int64_t count = 0;  // labels before the first -1
    for (; count < classes && labels[count * target_step] != -1; ++count) {
      const int64_t label = labels[count * target_step];
      if (label < 0 || label >= classes) return bad.store(true);
      free[label] = P(0);
    }
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += margin_sum(x, free, classes, x[labels[i * target_step]]);
    losses[sample] = sum / static_cast<double>(classes);
    for (int64_t i = 0; i < classes; ++i) store_flag(is_target.view.data, sample * flag_row + i * flag_step, P(1) - free[i]);
  };
  c.pool->parallel_for(lanes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) {
      P* values = reinterpret_cast<P*>(losses + samples) + 2 * lane * classes;
      for (int64_t sample = samples * lane / lanes; sample < samples * (lane + 1) / lanes; ++sample) one_sample(sample, values, values + classes);
    }
  });
  if (bad.load()) return Status(Code::kInvalidInput, str_cat("multilabel_margin_loss: a target is not in -1..", classes - 1));
  if (reduction == kNone) {
    for (int64_t i = 0; i < samples; ++i) store(output.view.data, output.rank() == 0 ? 0 : i * output.stride(0), losses[i]);
    return ok_status();
  }
  double total = 0;
  for (int64_t i = 0; i < samples; ++i) total += losses[i];
  store(output.view.data, 0, reduction == kMean ? total / static_cast<double>(samples) : total);
  return ok_status();
}

Status multilabel(KernelContext& c, const Tensor& self, const Tensor& target, int64_t reduction, Tensor& output, Tensor& is_target) {
  const bool fits = self.rank() <= 2 && class_count(target) == class_count(self) && sample_count(target) == sample_count(self) && target.rank() <= 2;
  if (!fits) return Status(Code::kInvalidInput, str_cat("multilabel_margin_loss of ", shape_text(self.sizes()), " and targets ", shape_text(target.sizes())));
  if (target.dtype() != DType::kInt64 || !is_floating(self.dtype()) || is_float8(self.dtype())) return unsupported_dtype(self.dtype());
  PTERON_TRY(runtime::resize(is_target, target.sizes()));
  const int64_t many[] = {sample_count(self)};
  PTERON_TRY(reduction == kNone && self.rank() == 2 ? runtime::resize(output, many) : runtime::resize(output, {}));
  if (self.dtype() == DType::kFloat64) return multilabel_part<double>(c, self, target, reduction, output, is_target);
  return multilabel_part<float>(c, self, target, reduction, output, is_target);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::huber_loss.out", PTERON_KERNEL(pair_loss<Huber>), pair_workspace},
    {"aten::multilabel_margin_loss_forward.output", PTERON_KERNEL(multilabel), multilabel_workspace},
    {"aten::smooth_l1_loss.out", PTERON_KERNEL(pair_loss<SmoothL1>), pair_workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::loss
