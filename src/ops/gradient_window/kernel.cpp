// Kernels of the gradients of pools, and the table. Convolutions: kernel_convolution.cpp. Compile half: op.cpp.
#include <algorithm>
#include <array>

#include "base/str_cat.h"
#include "ops/element.h"
#include "ops/gradient_window/kernels.h"
#include "ops/walk.h"

namespace pteron::ops::gradient_window {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

/// Two values from a list of one or two.
struct Pair {
  int64_t y = 0, x = 0;
};
Status read_pair(const IntList& list, const char* what, Pair* out) {
  if (list.size() != 1 && list.size() != 2) return Status(Code::kInvalidInput, str_cat(what, " has ", list.size(), " entries, expected 1 or 2"));
  *out = {list[0], list[list.size() - 1]};
  return ok_status();
}

/// Planes of a gradient and of the input's gradient: [N, C, H, W] or [C, H, W].
struct Planes {
  Planes(const Tensor& gradient, Tensor& result) : grad(gradient), out(result) {}
  const Tensor& grad;
  Tensor& out;
  int64_t count = 1;
  Sizes lead;
  std::array<Sizes, 2> strides;
  int64_t in_h = 0, in_w = 0, out_h = 0, out_w = 0;  ///< of the pool: in is the bigger side
};
Status plan_planes(const Tensor& grad, const Tensor& self, Planes* p) {
  const int rank = self.rank();
  if ((rank != 3 && rank != 4) || grad.rank() != rank) {
    return Status(Code::kInvalidInput, str_cat("gradient of a pool: shapes ", shape_text(grad.sizes()), " and ", shape_text(self.sizes()), ", expected rank 3 or 4"));
  }
  for (int d = 0; d < rank - 2; ++d) {
    if (grad.size(d) != self.size(d)) return Status(Code::kInvalidInput, str_cat("gradient of a pool: shapes ", shape_text(grad.sizes()), " and ", shape_text(self.sizes())));
  }
  if (grad.dtype() != self.dtype() || p->out.dtype() != self.dtype()) return Status(Code::kUnsupported, "gradient of a pool: mixed dtypes");
  PTERON_TRY(runtime::resize(p->out, self.sizes()));
  p->lead = Sizes(self.sizes().first(static_cast<size_t>(rank - 2)));
  p->strides = {Sizes(grad.strides().first(p->lead.size())), Sizes(p->out.strides().first(p->lead.size()))};
  p->count = index_count(p->lead);
  p->in_h = self.size(rank - 2), p->in_w = self.size(rank - 1), p->out_h = grad.size(rank - 2), p->out_w = grad.size(rank - 1);
  return ok_status();
}

/// Zeroes every plane of the out, then lets fn add to it.
template <typename T, typename Fn>
void for_planes(KernelContext& context, const Planes& p, Fn&& fn) {
  const int rank = p.out.rank();
  const int64_t row = p.out.stride(rank - 2), column = p.out.stride(rank - 1);
  context.pool->parallel_for(p.count, row_grain(p.in_h * p.in_w), [&](int64_t begin, int64_t end) {
    walk<2>(p.lead, p.strides, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes& index) {
      T* to = p.out.as<T>() + at[1];
      for (int64_t y = 0; y < p.in_h; ++y) {
        for (int64_t x = 0; x < p.in_w; ++x) to[y * row + x * column] = T(0);
      }
      fn(p.grad.as<T>() + at[0], to, index);
    });
  });
}
template <typename T>
void add_to(T& place, MathOf<T> value) {
  place = from_math<T>(static_cast<MathOf<T>>(to_math(place) + value));
}
Status unsupported(const Tensor& t) { return Status(Code::kUnsupported, str_cat("gradient of a pool of dtype ", dtype_name(t.dtype()))); }

Status max_pool(KernelContext& context, const Tensor& grad, const Tensor& self, Value&, Value&, Value&, Value&, bool, const Tensor& indices, Tensor& out) {
  Planes p(grad, out);
  PTERON_TRY(plan_planes(grad, self, &p));
  if (indices.dtype() != DType::kInt64 || !std::ranges::equal(indices.sizes(), grad.sizes())) {
    return Status(Code::kInvalidInput, str_cat("gradient of a pool: indices of shape ", shape_text(indices.sizes()), ", expected int64 ", shape_text(grad.sizes())));
  }
  const int rank = grad.rank();
  const int64_t area = p.in_h * p.in_w;
  for (int64_t i = 0; i < indices.numel(); ++i) {  // checked before any write
    int64_t offset = 0, rest = i;
    for (int d = rank - 1; d >= 0; --d) offset += rest % indices.size(d) * indices.stride(d), rest /= indices.size(d);
    const int64_t at = indices.as<int64_t>()[offset];
    if (at < 0 || at >= area) return Status(Code::kInvalidInput, str_cat("gradient of a pool: index ", at, " outside of a plane of ", area));
  }
  const bool done = dispatch_floating(self.dtype(), [&]<typename T>() {
    for_planes<T>(context, p, [&](const T* from, T* to, const Sizes& index) {
      const int64_t* where = indices.as<int64_t>();
      for (size_t d = 0; d < index.size(); ++d) where += index[d] * indices.stride(static_cast<int>(d));
      for (int64_t y = 0; y < p.out_h; ++y) {
        for (int64_t x = 0; x < p.out_w; ++x) {
          const int64_t at = where[y * indices.stride(rank - 2) + x * indices.stride(rank - 1)];
          add_to(to[at / p.in_w * out.stride(rank - 2) + at % p.in_w * out.stride(rank - 1)], to_math(from[y * grad.stride(rank - 2) + x * grad.stride(rank - 1)]));
        }
      }
    });
  });
  return done ? ok_status() : unsupported(self);
}

/// Spreads every element of the gradient over the window [y0, y1) x [x0, x1) that window_of gives, divided by its divisor.
template <typename WindowOf>
Status spread_windows(KernelContext& context, const Planes& p, const WindowOf& window_of) {
  const int rank = p.grad.rank();
  const int64_t row = p.out.stride(rank - 2), column = p.out.stride(rank - 1);
  const bool done = dispatch_floating(p.grad.dtype(), [&]<typename T>() {
    for_planes<T>(context, p, [&](const T* from, T* to, const Sizes&) {
      for (int64_t y = 0; y < p.out_h; ++y) {
        for (int64_t x = 0; x < p.out_w; ++x) {
          int64_t box[4];
          const int64_t divisor = window_of(y, x, box);
          const auto part = static_cast<MathOf<T>>(to_math(from[y * p.grad.stride(rank - 2) + x * p.grad.stride(rank - 1)]) / static_cast<MathOf<T>>(divisor));
          for (int64_t i = box[0]; i < box[1]; ++i) {
            for (int64_t j = box[2]; j < box[3]; ++j) add_to(to[i * row + j * column], part);
          }
        }
      }
    });
  });
  return done ? ok_status() : unsupported(p.grad);
}

Status avg_pool(KernelContext& context, const Tensor& grad, const Tensor& self, IntList kernel_size, IntList stride_list, IntList padding_list, bool, bool include_pad,
                std::optional<int64_t> divisor, Tensor& out) {
  Planes p(grad, out);
  PTERON_TRY(plan_planes(grad, self, &p));
  Pair kernel, stride, padding;
  PTERON_TRY(read_pair(kernel_size, "kernel_size", &kernel));
  PTERON_TRY(read_pair(stride_list.empty() ? kernel_size : stride_list, "stride", &stride));
  PTERON_TRY(read_pair(padding_list, "padding", &padding));
  if (divisor && *divisor == 0) return Status(Code::kInvalidInput, "gradient of a pool: the divisor is zero");
  return spread_windows(context, p, [&](int64_t y, int64_t x, int64_t* box) {
    const int64_t y0 = y * stride.y - padding.y, x0 = x * stride.x - padding.x;
    const int64_t y1 = std::min(y0 + kernel.y, p.in_h + padding.y), x1 = std::min(x0 + kernel.x, p.in_w + padding.x);
    box[0] = std::max<int64_t>(y0, 0), box[1] = std::min(y1, p.in_h), box[2] = std::max<int64_t>(x0, 0), box[3] = std::min(x1, p.in_w);
    if (divisor) return *divisor;
    return include_pad ? (y1 - y0) * (x1 - x0) : (box[1] - box[0]) * (box[3] - box[2]);
  });
}

Status adaptive_avg_pool(KernelContext& context, const Tensor& grad, const Tensor& self, Tensor& out) {
  Planes p(grad, out);
  PTERON_TRY(plan_planes(grad, self, &p));
  return spread_windows(context, p, [&](int64_t y, int64_t x, int64_t* box) {
    box[0] = y * p.in_h / p.out_h, box[1] = ((y + 1) * p.in_h + p.out_h - 1) / p.out_h;
    box[2] = x * p.in_w / p.out_w, box[3] = ((x + 1) * p.in_w + p.out_w - 1) / p.out_w;
    return (box[1] - box[0]) * (box[3] - box[2]);
  });
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_adaptive_avg_pool2d_backward.out", PTERON_KERNEL(adaptive_avg_pool)},
    {"aten::avg_pool2d_backward.grad_input", PTERON_KERNEL(avg_pool)},
    {"aten::convolution_backward.out", convolution_kernel, convolution_workspace},
    {"aten::max_pool2d_with_indices_backward.grad_input", PTERON_KERNEL(max_pool)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::gradient_window
