// Kernels of the batch norms: statistics per channel through the reduction engine (or the running ones), then x * alpha + beta. The
// compiler's half is op.cpp.
#include <cmath>

#include "ops/reduction.h"

namespace pteron::ops::batch_norm {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

/// Sum of squared distances to each channel's mean.
struct SpreadFold : FoldBase<double, double> {
  const double* means = nullptr;
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

/// The arguments that all forms share; absent ones are null.
struct Call {
  const Tensor& input;
  const Tensor* weight;
  const Tensor* bias;
  double eps;
  Tensor& out;
  int64_t channels = 0;
  int64_t count = 0;  ///< elements of a channel
};

/// Per-channel numbers in scratch.
struct Channels {
  double* mean;
  double* variance;  ///< biased
  double* alpha;
  double* beta;
  void* factors;     ///< room for alpha and beta in the type of the arithmetic
};

size_t workspace(std::span<runtime::Value* const> args) {
  const Tensor& input = args[0]->tensor;
  return input.rank() < 2 ? 0 : static_cast<size_t>(input.size(1)) * 6 * sizeof(double);
}

Channels channels_of(KernelContext& c, int64_t count) {
  double* base = reinterpret_cast<double*>(c.scratch.data());
  return {base, base + count, base + 2 * count, base + 3 * count, base + 4 * count};
}

/// Reads or writes one number per channel.
double read_channel(const Tensor& t, int64_t channel) {
  double one;
  return *load_fn<double>(t.dtype())(t.view.data, channel * t.stride(0), 1, 1, &one);
}
void write_channel(Tensor& t, int64_t channel, double value) { store_fn<double>(t.dtype())(t.view.data, channel * t.stride(0), value); }

Status check_parameter(const Tensor* t, int64_t channels, const char* what) {
  if (t == nullptr) return ok_status();
  if (t->rank() == 1 && t->size(0) == channels && is_floating(t->dtype()) && load_fn<double>(t->dtype()) != nullptr) return ok_status();
  return Status(Code::kInvalidInput, str_cat("batch_norm: ", what, " of shape ", shape_text(t->sizes()), " and dtype ", dtype_name(t->dtype()), ", expected [",
                                             channels, "] floating"));
}

Status begin(Call& call) {
  const Tensor& in = call.input;
  if ((in.rank() < 2 && in.numel() > 0) || in.rank() == 0 || !is_floating(in.dtype()) || load_fn<double>(in.dtype()) == nullptr) {
    return Status(Code::kUnsupported, str_cat("batch_norm of shape ", shape_text(in.sizes()), " and dtype ", dtype_name(in.dtype())));
  }
  if (in.numel() == 0 && in.rank() == 1) return runtime::resize(call.out, in.sizes());  // nothing has any shape
  call.channels = in.size(1);
  call.count = in.size(0);
  for (int d = 2; d < in.rank(); ++d) call.count *= in.size(d);
  PTERON_TRY(check_parameter(call.weight, call.channels, "weight"));
  PTERON_TRY(check_parameter(call.bias, call.channels, "bias"));
  return runtime::resize(call.out, in.sizes());
}

/// Mean and biased variance of every channel.
void batch_statistics(KernelContext& c, const Call& call, const Channels& ch) {
  const uint32_t all = (uint32_t{1} << call.input.rank()) - 1u;
  // One out of stride 1 per channel: the offset is the channel.
  TensorView stats = make_contiguous_view(DType::kFloat64, std::array<int64_t, 1>{call.channels}, ch.mean);
  const TensorView* const outs[] = {&stats};
  const ReducePlan plan = plan_reduction(call.input.view, all & ~2u, false, outs);
  const LoadFn<double> load = load_fn<double>(call.input.dtype());
  const double n = static_cast<double>(call.count);
  fold_reduce(*c.pool, plan, call.input.view.data, load, SumFold<double, double>(), [&](const OutPlace& at, double total) { ch.mean[at.linear] = total / n; });
  SpreadFold spread;
  spread.means = ch.mean;
  fold_reduce(*c.pool, plan, call.input.view.data, load, spread, [&](const OutPlace& at, double total) { ch.variance[at.linear] = total / n; });
}

void running_statistics(const Call& call, const Tensor& mean, const Tensor& var, const Channels& ch) {
  for (int64_t k = 0; k < call.channels; ++k) {
    ch.mean[k] = read_channel(mean, k);
    ch.variance[k] = read_channel(var, k);
  }
}

/// new = (1 - momentum) * old + momentum * now, with the unbiased variance.
void update_running(const Call& call, const Channels& ch, double momentum, const Tensor& mean, const Tensor& var, Tensor& mean_out, Tensor& var_out) {
  const double n = static_cast<double>(call.count);
  for (int64_t k = 0; k < call.channels; ++k) {
    const double unbiased = ch.variance[k] * (n / (n - 1.0));
    write_channel(mean_out, k, (1.0 - momentum) * read_channel(mean, k) + momentum * ch.mean[k]);
    write_channel(var_out, k, (1.0 - momentum) * read_channel(var, k) + momentum * unbiased);
  }
}

/// Loops over everything but channels.
RankList<Axis> other_axes(const Call& call) {
  RankList<Axis> axes;
  for (int d = 0; d < call.input.rank(); ++d) {
    if (d != 1) axes.push_back({call.input.size(d), call.input.stride(d), {call.out.stride(d), 0}});
  }
  detail::sort_axes(axes);
  detail::merge_axes(axes);
  return axes;
}

template <typename P>
void scale_shift(KernelContext& c, const Call& call, const Channels& ch) {
  const RankList<Axis> axes = other_axes(call);
  const Axis inner = axes.empty() ? Axis{1, 0, {0, 0}} : axes.back();
  const std::span<const Axis> outer(axes.begin(), axes.empty() ? 0 : axes.size() - 1);
  const int64_t in_step = call.input.stride(1), out_step = call.out.stride(1), channels = call.channels;
  const LoadFn<P> load = load_fn<P>(call.input.dtype());
  const StoreRunFn<P> store = store_run_fn<P>(call.out.dtype());
  const void* in = call.input.view.data;
  void* out = call.out.view.data;
  if (call.count == 0 || channels == 0) return;
  if (channels >= 8 && in_step < inner.in_stride) {  // channels side by side
    P* alpha = static_cast<P*>(ch.factors);
    P* beta = alpha + channels;
    for (int64_t k = 0; k < channels; ++k) {
      alpha[k] = static_cast<P>(ch.alpha[k]);
      beta[k] = static_cast<P>(ch.beta[k]);
    }
    c.pool->parallel_for(call.count, std::max<int64_t>(1, kGrainElems / channels), [&](int64_t from, int64_t to) {
      alignas(64) P buffer[kRowBlock], result[kRowBlock];
      Walker at({axes.begin(), axes.size()}, from);
      for (int64_t i = from; i < to; ++i, at.next()) {
        for (int64_t first = 0; first < channels; first += kRowBlock) {
          const int64_t m = std::min(kRowBlock, channels - first);
          const P* x = load(in, at.in() + first * in_step, in_step, m, buffer);
          for (int64_t j = 0; j < m; ++j) result[j] = x[j] * alpha[first + j] + beta[first + j];
          store(out, at.out(0) + first * out_step, out_step, m, result);
        }
      }
    });
    return;
  }
  const int64_t rows = call.count / inner.size * channels;
  c.pool->parallel_for(rows, std::max<int64_t>(1, kGrainElems / inner.size), [&](int64_t from, int64_t to) {
    alignas(64) P buffer[kRowBlock], result[kRowBlock];
    Walker at(outer, from / channels);
    for (int64_t i = from; i < to; ++i) {
      const int64_t k = i % channels;
      const P alpha = static_cast<P>(ch.alpha[k]), beta = static_cast<P>(ch.beta[k]);
      for (int64_t first = 0; first < inner.size; first += kRowBlock) {
        const int64_t m = std::min(kRowBlock, inner.size - first);
        const P* x = load(in, at.in() + k * in_step + first * inner.in_stride, inner.in_stride, m, buffer);
        for (int64_t j = 0; j < m; ++j) result[j] = x[j] * alpha + beta;
        store(out, at.out(0) + k * out_step + first * inner.out_stride[0], inner.out_stride[0], m, result);
      }
      if (k + 1 == channels) at.next();
    }
  });
}

double inverse_std(const Call& call, const Channels& ch, int64_t channel) { return 1.0 / std::sqrt(ch.variance[channel] + call.eps); }

void normalize(KernelContext& c, const Call& call, const Channels& ch) {
  for (int64_t k = 0; k < call.channels; ++k) {
    const double weight = call.weight == nullptr ? 1.0 : read_channel(*call.weight, k);
    const double bias = call.bias == nullptr ? 0.0 : read_channel(*call.bias, k);
    ch.alpha[k] = weight * inverse_std(call, ch, k);
    ch.beta[k] = bias - ch.mean[k] * ch.alpha[k];
  }
  if (call.input.dtype() == DType::kFloat64) {
    scale_shift<double>(c, call, ch);
  } else {
    scale_shift<float>(c, call, ch);
  }
}

/// Saved statistics: one per channel after training, none after inference.
Status save(const Call& call, const Channels& ch, bool training, Tensor& mean, Tensor& invstd) {
  const int64_t sizes[] = {training ? call.channels : 0};
  PTERON_TRY(runtime::resize(mean, sizes));
  PTERON_TRY(runtime::resize(invstd, sizes));
  if (!training) return ok_status();
  PTERON_TRY(check_parameter(&mean, call.channels, "saved mean"));
  PTERON_TRY(check_parameter(&invstd, call.channels, "saved inverse deviation"));
  for (int64_t k = 0; k < call.channels; ++k) {
    write_channel(mean, k, ch.mean[k]);
    write_channel(invstd, k, inverse_std(call, ch, k));
  }
  return ok_status();
}

/// running_*: read in inference; *_out: written in training; null where there are none.
struct Running {
  const Tensor* mean = nullptr;
  const Tensor* var = nullptr;
  Tensor* mean_out = nullptr;
  Tensor* var_out = nullptr;
  double momentum = 0;
};

Status run(KernelContext& c, Call call, bool training, const Running& running, Tensor& mean, Tensor& invstd) {
  PTERON_TRY(begin(call));
  PTERON_TRY(check_parameter(running.mean, call.channels, "running mean"));
  PTERON_TRY(check_parameter(running.var, call.channels, "running variance"));
  const Channels ch = channels_of(c, call.channels);
  const bool empty = call.input.numel() == 0;  // leaves the running statistics as they are
  if (call.channels == 0) {
    // no statistics to make or to read
  } else if (training) {
    batch_statistics(c, call, ch);
  } else {
    if (running.mean == nullptr || running.var == nullptr) return Status(Code::kInvalidInput, "batch_norm without training needs running statistics");
    running_statistics(call, *running.mean, *running.var, ch);
  }
  if (running.mean_out != nullptr && running.var_out != nullptr) {
    PTERON_TRY(runtime::resize(*running.mean_out, running.mean->sizes()));
    PTERON_TRY(runtime::resize(*running.var_out, running.var->sizes()));
    if (training && !empty) {
      update_running(call, ch, running.momentum, *running.mean, *running.var, *running.mean_out, *running.var_out);
    } else if (running.mean_out != running.mean) {
      for (int64_t k = 0; k < call.channels; ++k) {
        write_channel(*running.mean_out, k, read_channel(*running.mean, k));
        write_channel(*running.var_out, k, read_channel(*running.var, k));
      }
    }
  }
  PTERON_TRY(save(call, ch, training, mean, invstd));
  normalize(c, call, ch);
  return ok_status();
}

Status native(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, const Tensor* running_mean, const Tensor* running_var,
              bool training, double, double eps, Tensor& out, Tensor& mean, Tensor& invstd) {
  return run(c, {input, weight, bias, eps, out}, training, {running_mean, running_var}, mean, invstd);
}

/// The form that writes its running statistics in place.
Status legit(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, Tensor& running_mean, Tensor& running_var, bool training,
             double momentum, double eps, Tensor& out, Tensor& mean, Tensor& invstd) {
  Running running{&running_mean, &running_var, nullptr, nullptr, momentum};
  if (training) {
    running.mean_out = &running_mean;
    running.var_out = &running_var;
  }
  return run(c, {input, weight, bias, eps, out}, training, running, mean, invstd);
}

Status no_stats(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, bool, double, double eps, Tensor& out, Tensor& mean,
                Tensor& invstd) {
  return run(c, {input, weight, bias, eps, out}, true, {}, mean, invstd);
}

Status no_training(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, const Tensor& running_mean,
                   const Tensor& running_var, double, double eps, Tensor& out, Tensor& mean, Tensor& invstd) {
  return run(c, {input, weight, bias, eps, out}, false, {&running_mean, &running_var}, mean, invstd);
}

Status functional(KernelContext& c, const Tensor& input, const Tensor* weight, const Tensor* bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps, Tensor& out, Tensor& mean, Tensor& invstd, Tensor& mean_out,
                  Tensor& var_out) {
  return run(c, {input, weight, bias, eps, out}, training, {&running_mean, &running_var, &mean_out, &var_out, momentum}, mean, invstd);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::native_batch_norm.out", PTERON_KERNEL(native), workspace},
    {"aten::_native_batch_norm_legit.out", PTERON_KERNEL(legit), workspace},
    {"aten::_native_batch_norm_legit.no_stats_out", PTERON_KERNEL(no_stats), workspace},
    {"aten::_native_batch_norm_legit_no_training.out", PTERON_KERNEL(no_training), workspace},
    {"pteron::_native_batch_norm_legit_functional.out", PTERON_KERNEL(functional), workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::batch_norm
