// The gradient of a convolution, plain or transposed. Both relate a big side ("large": input of a plain one, output of a transposed one) and a
// small side by large[y * stride - padding + k * dilation] ~ small[y], with the weight stored as [small channel, large channel of the group, k].
#include <algorithm>
#include <array>

#include "base/str_cat.h"
#include "ops/cast.h"
#include "ops/gradient_window/kernels.h"
#include "ops/walk.h"

namespace pteron::ops::gradient_window {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

struct Geometry {
  int64_t batch = 0, small_channels = 0, large_channels = 0, groups = 1;
  std::array<int64_t, 3> small{1, 1, 1}, large{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  int64_t small_area() const { return small[0] * small[1] * small[2]; }
  int64_t large_area() const { return large[0] * large[1] * large[2]; }
  int64_t kernel_area() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t large_group() const { return large_channels / groups; }
  int64_t small_group() const { return small_channels / groups; }
};

/// fn(k, small offset, large offset, count): runs of `count` neighbours on the small side and every stride[2]-th on the large side.
template <typename Fn>
void for_runs(const Geometry& g, Fn&& fn) {
  int64_t k = 0;
  for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
    for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
      for (int64_t kx = 0; kx < g.kernel[2]; ++kx, ++k) {
        const int64_t shift = kx * g.dilation[2] - g.padding[2];
        const int64_t first = shift >= 0 ? 0 : (-shift + g.stride[2] - 1) / g.stride[2];
        const int64_t room = g.large[2] - 1 - shift;  // x * stride <= room
        const int64_t last = room < 0 ? 0 : std::min(g.small[2], room / g.stride[2] + 1);
        if (last <= first) continue;
        for (int64_t z = 0; z < g.small[0]; ++z) {
          const int64_t lz = z * g.stride[0] - g.padding[0] + kz * g.dilation[0];
          if (lz < 0 || lz >= g.large[0]) continue;
          for (int64_t y = 0; y < g.small[1]; ++y) {
            const int64_t ly = y * g.stride[1] - g.padding[1] + ky * g.dilation[1];
            if (ly < 0 || ly >= g.large[1]) continue;
            fn(k, (z * g.small[1] + y) * g.small[2] + first, (lz * g.large[1] + ly) * g.large[2] + first * g.stride[2] + shift, last - first);
          }
        }
      }
    }
  }
}

template <typename T>
T dot_run(const T* a, const T* b, int64_t step, int64_t n) {
  constexpr int64_t kLanes = 8;
  T sum[kLanes] = {};
  int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) sum[l] += a[i + l] * b[i + l];
    }
  }
  for (; i < n; ++i) sum[i % kLanes] += a[i] * b[i * step];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sum[l] += sum[l + half];
  }
  return sum[0];
}

template <typename T>
void large_gradient(ThreadPool& pool, const Geometry& g, const T* small, const T* weight, T* large) {
  pool.parallel_for(g.batch * g.large_channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / g.large_channels, l = i % g.large_channels, group = l / g.large_group();
      T* to = large + i * g.large_area();
      std::fill(to, to + g.large_area(), T(0));
      for (int64_t s = group * g.small_group(); s < (group + 1) * g.small_group(); ++s) {
        const T* from = small + (n * g.small_channels + s) * g.small_area();
        const T* w = weight + (s * g.large_group() + l % g.large_group()) * g.kernel_area();
        for_runs(g, [&](int64_t k, int64_t a, int64_t b, int64_t count) {
          const T factor = w[k];
          if (g.stride[2] == 1) {
            for (int64_t x = 0; x < count; ++x) to[b + x] += factor * from[a + x];
          } else {
            for (int64_t x = 0; x < count; ++x) to[b + x * g.stride[2]] += factor * from[a + x];
          }
        });
      }
    }
  });
}

template <typename T>
void small_gradient(ThreadPool& pool, const Geometry& g, const T* large, const T* weight, T* small) {
  pool.parallel_for(g.batch * g.small_channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / g.small_channels, s = i % g.small_channels, group = s / g.small_group();
      T* to = small + i * g.small_area();
      std::fill(to, to + g.small_area(), T(0));
      for (int64_t l = 0; l < g.large_group(); ++l) {
        const T* from = large + (n * g.large_channels + group * g.large_group() + l) * g.large_area();
        const T* w = weight + (s * g.large_group() + l) * g.kernel_area();
        for_runs(g, [&](int64_t k, int64_t a, int64_t b, int64_t count) {
          const T factor = w[k];
          for (int64_t x = 0; x < count; ++x) to[a + x] += factor * from[b + x * g.stride[2]];
        });
      }
    }
  });
}

template <typename T>
void weight_gradient(ThreadPool& pool, const Geometry& g, const T* small, const T* large, T* weight) {
  pool.parallel_for(g.small_channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t group = s / g.small_group();
      for (int64_t l = 0; l < g.large_group(); ++l) {
        T* to = weight + (s * g.large_group() + l) * g.kernel_area();
        std::fill(to, to + g.kernel_area(), T(0));
        for (int64_t n = 0; n < g.batch; ++n) {
          const T* a = small + (n * g.small_channels + s) * g.small_area();
          const T* b = large + (n * g.large_channels + group * g.large_group() + l) * g.large_area();
          for_runs(g, [&](int64_t k, int64_t i, int64_t j, int64_t count) { to[k] += dot_run(a + i, b + j, g.stride[2], count); });
        }
      }
    }
  });
}

/// Row-major elements of a tensor as T.
template <typename T>
void gather(const Tensor& from, T* to) {
  const LoadFn<T> load = load_fn<T>(from.dtype());
  if (from.numel() == 0) return;
  const int64_t n = from.size(from.rank() - 1), step = from.stride(from.rank() - 1);
  const Sizes lead = without_last(from.sizes());
  int64_t row = 0;
  walk<1>(lead, {without_last(from.strides())}, 0, index_count(lead), [&](const std::array<int64_t, 1>& at, const Sizes&) {
    T* place = to + row++ * n;
    const T* read = load(from.view.data, at[0], step, n, place);
    if (read != place) std::copy(read, read + n, place);
  });
}
template <typename T>
void scatter(const T* from, Tensor& to) {
  const StoreRunFn<T> store = store_run_fn<T>(to.dtype());
  if (to.numel() == 0) return;
  const int64_t n = to.size(to.rank() - 1), step = to.stride(to.rank() - 1);
  const Sizes lead = without_last(to.sizes());
  int64_t row = 0;
  walk<1>(lead, {without_last(to.strides())}, 0, index_count(lead), [&](const std::array<int64_t, 1>& at, const Sizes&) { store(to.view.data, at[0], step, n, from + row++ * n); });
}

size_t compute_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

/// The out at `place`, or null for None (not wanted).
Status wanted(Value& value, const char* what, Tensor** out) {
  *out = nullptr;
  if (value.tag == Tag::kNone) return ok_status();
  if (value.tag != Tag::kTensor || value.tensor.read_only) return Status(Code::kInvalidFile, str_cat("convolution_backward: the gradient of the ", what, " is no tensor to write"));
  *out = &value.tensor;
  return ok_status();
}

Status read_geometry(const Tensor& grad, const Tensor& input, const Tensor& weight, const IntList* lists[3], bool transposed, int64_t groups, Geometry* g) {
  const int rank = input.rank();
  const auto bad = [&](const char* why) {
    return Status(Code::kInvalidInput, str_cat("convolution_backward: ", why, " (gradient ", shape_text(grad.sizes()), ", input ", shape_text(input.sizes()), ", weight ", shape_text(weight.sizes()), ")"));
  };
  if (rank < 3 || rank > 5 || grad.rank() != rank || weight.rank() != rank || groups < 1) return bad("ranks do not fit");
  const Tensor& small = transposed ? input : grad;
  const Tensor& large = transposed ? grad : input;
  g->batch = input.size(0), g->groups = groups, g->small_channels = small.size(1), g->large_channels = large.size(1);
  if (grad.size(0) != g->batch || g->small_channels % groups != 0 || g->large_channels % groups != 0) return bad("batches or groups do not fit");
  if (weight.size(0) != g->small_channels || weight.size(1) != g->large_group()) return bad("channels do not fit");
  const int spatial = rank - 2;
  for (int d = 0; d < spatial; ++d) {
    const auto to = static_cast<size_t>(3 - spatial + d);
    g->small[to] = small.size(2 + d), g->large[to] = large.size(2 + d), g->kernel[to] = weight.size(2 + d);
    std::array<int64_t, 3>* const targets[3] = {&g->stride, &g->padding, &g->dilation};
    for (size_t k = 0; k < 3; ++k) {
      const IntList& list = *lists[k];
      if (list.size() != 1 && list.size() != static_cast<size_t>(spatial)) return bad("stride, padding or dilation of another length");
      (*targets[k])[to] = list.size() == 1 ? list[0] : list[static_cast<size_t>(d)];
    }
    if (g->stride[to] < 1 || g->dilation[to] < 1 || g->padding[to] < 0) return bad("stride, padding or dilation out of range");
  }
  return ok_status();
}

template <typename T>
void run(KernelContext& context, const Geometry& g, const Tensor& grad, const Tensor& input, const Tensor& weight, bool transposed, Tensor* const outs[3]) {
  T* at = reinterpret_cast<T*>(context.scratch.data());
  const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
  T* grads = take(grad.numel());
  T* inputs = take(input.numel());
  T* weights = take(weight.numel());
  T* result = take(std::max(input.numel(), weight.numel()));
  gather(grad, grads);
  gather(input, inputs);
  gather(weight, weights);
  if (outs[0] != nullptr) {
    if (transposed) {
      small_gradient(*context.pool, g, grads, weights, result);
    } else {
      large_gradient(*context.pool, g, grads, weights, result);
    }
    scatter(result, *outs[0]);
  }
  if (outs[1] != nullptr) {
    weight_gradient(*context.pool, g, transposed ? inputs : grads, transposed ? grads : inputs, result);
    scatter(result, *outs[1]);
  }
  if (outs[2] == nullptr) return;
  const StoreFn<double> store = store_fn<double>(outs[2]->dtype());
  const int64_t area = transposed ? g.large_area() : g.small_area(), channels = grad.size(1);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      const T* plane = grads + (n * channels + c) * area;
      for (int64_t i = 0; i < area; ++i) sum += static_cast<double>(plane[i]);
    }
    store(outs[2]->view.data, c * outs[2]->stride(0), sum);
  }
}

Status convolution(KernelContext& context, const Tensor& grad, const Tensor& input, const Tensor& weight, Value&, IntList stride, IntList padding, IntList dilation, bool transposed,
                   Value&, int64_t groups, Value&, Value& input_out, Value& weight_out, Value& bias_out) {
  Geometry g;
  const IntList* lists[3] = {&stride, &padding, &dilation};
  PTERON_TRY(read_geometry(grad, input, weight, lists, transposed, groups, &g));
  if (!is_floating(input.dtype()) || is_float8(input.dtype())) return Status(Code::kUnsupported, str_cat("convolution_backward of dtype ", dtype_name(input.dtype())));
  Tensor* outs[3];
  PTERON_TRY(wanted(input_out, "input", &outs[0]));
  PTERON_TRY(wanted(weight_out, "weight", &outs[1]));
  PTERON_TRY(wanted(bias_out, "bias", &outs[2]));
  if (outs[0] != nullptr) PTERON_TRY(runtime::resize(*outs[0], input.sizes()));
  if (outs[1] != nullptr) PTERON_TRY(runtime::resize(*outs[1], weight.sizes()));
  if (outs[2] != nullptr) PTERON_TRY(runtime::resize(*outs[2], Sizes{grad.size(1)}));
  if (input.dtype() == DType::kFloat64) {
    run<double>(context, g, grad, input, weight, transposed, outs);
  } else {
    run<float>(context, g, grad, input, weight, transposed, outs);
  }
  return ok_status();
}

}  // namespace

Status convolution_kernel(KernelContext& context, std::span<Value* const> args) { return PTERON_KERNEL(convolution)(context, args); }

size_t convolution_workspace(std::span<Value* const> args) {
  const auto count = [&](size_t i) { return static_cast<size_t>(args[i]->tensor.numel()); };
  return (count(0) + count(1) + count(2) + std::max(count(1), count(2))) * compute_bytes(args[1]->tensor.dtype());
}

}  // namespace pteron::ops::gradient_window
