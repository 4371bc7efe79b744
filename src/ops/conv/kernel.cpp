// aten::convolution for the runtime: arguments to passes, choice of the way to compute. Passes: kernel_general.cpp, kernel_depthwise.cpp.
#include "base/str_cat.h"
#include "ops/conv/kernels.h"
#include "ops/conv/shape.h"
#include "ops/gemm.h"

namespace pteron::ops::conv {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

Status expand_list(std::string_view name, const IntList& list, size_t count, int64_t lowest, Sizes* out) {
  if (list.size() != count && list.size() != 1) {
    return Status(Code::kInvalidInput, str_cat("convolution: ", name, " has ", list.size(), " entries for ", count, " spatial dims"));
  }
  for (size_t i = 0; i < count; ++i) {
    out->push_back(list[list.size() == 1 ? 0 : i]);
    if (out->back() < lowest) return Status(Code::kInvalidInput, str_cat("convolution: ", name, " is ", out->back()));
  }
  return ok_status();
}

Status read_params(const Tensor& x, const Tensor& w, const IntList& stride, const IntList& padding, const IntList& dilation, bool transposed,
                   const IntList& output_padding, int64_t groups, Params* p) {
  const int rank = x.rank();
  if (rank < 3 || rank > 5 || w.rank() != rank) {
    return Status(Code::kInvalidInput, str_cat("convolution of input ", shape_text(x.sizes()), " and weight ", shape_text(w.sizes())));
  }
  const auto count = static_cast<size_t>(rank - 2);
  PTERON_TRY(expand_list("stride", stride, count, 1, &p->stride));
  PTERON_TRY(expand_list("padding", padding, count, 0, &p->padding));
  PTERON_TRY(expand_list("dilation", dilation, count, 1, &p->dilation));
  if (transposed) PTERON_TRY(expand_list("output_padding", output_padding, count, 0, &p->output_padding));
  p->transposed = transposed;
  p->groups = groups;
  const int64_t channels = transposed ? w.size(0) : w.size(1) * groups;
  if (groups < 1 || w.size(0) % groups != 0 || x.size(1) != channels) {
    return Status(Code::kInvalidInput, str_cat("convolution: weight ", shape_text(w.sizes()), " with ", groups, " groups expects ", channels,
                                               " input channels, input ", shape_text(x.sizes()), " has ", x.size(1)));
  }
  return ok_status();
}

Sizes output_sizes(const Tensor& x, const Tensor& w, const Params& p) {
  Sizes out{x.size(0), p.transposed ? w.size(1) * p.groups : w.size(0)};
  for (int d = 2; d < x.rank(); ++d) {
    const auto i = static_cast<size_t>(d - 2);
    out.push_back(p.transposed ? transposed_size(x.size(d), w.size(d), p.stride[i], p.padding[i], p.dilation[i], p.output_padding[i])
                               : forward_size(x.size(d), w.size(d), p.stride[i], p.padding[i], p.dilation[i]));
  }
  return out;
}

/// Strides and channel counts; axes hold sizes and strides only.
Geometry base_geometry(const Tensor& x, const Tensor& w, const Tensor* bias, const Tensor& y, const Params& p) {
  Geometry g;
  g.batch = x.size(0), g.groups = p.groups;
  g.group_in = x.size(1) / p.groups, g.group_out = y.size(1) / p.groups;
  g.x_batch = x.stride(0), g.x_channel = x.stride(1), g.y_batch = y.stride(0), g.y_channel = y.stride(1);
  g.w_out = p.transposed ? w.stride(1) : w.stride(0);
  g.w_in = p.transposed ? w.stride(0) : w.stride(1);
  g.w_group = w.stride(0) * (w.size(0) / p.groups);
  g.bias_stride = bias != nullptr ? bias->stride(0) : 0;
  for (int d = 2; d < x.rank(); ++d) {
    Axis& a = g.axis[static_cast<size_t>(d + 3 - x.rank())];
    a.in = x.size(d), a.out = y.size(d), a.taps = w.size(d);
    a.x_stride = x.stride(d), a.w_stride = w.stride(d), a.y_stride = y.stride(d);
  }
  return g;
}

void set_forward(Axis* a, int64_t stride, int64_t padding, int64_t dilation) {
  a->step = stride;
  a->shift0 = -padding;
  a->shift_step = dilation;
}

/// Outputs phase, phase + stride, ... of a transposed convolution: tap t reads input (o + padding - dilation * t) / stride.
void set_phase(Axis* a, int64_t phase, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t kernel = a->taps;
  a->out = phase < a->out ? (a->out - phase - 1) / stride + 1 : 0;
  a->y_offset = phase * a->y_stride;
  a->y_stride *= stride;
  a->w_step = stride / std::gcd(stride, dilation);
  a->w0 = 0;
  while (a->w0 < std::min(kernel, a->w_step) && floor_mod(phase + padding - dilation * a->w0, stride) != 0) ++a->w0;
  const bool any = a->w0 < std::min(kernel, a->w_step);
  a->taps = any ? (kernel - a->w0 - 1) / a->w_step + 1 : 0;
  a->shift0 = any ? floor_div(phase + padding - dilation * a->w0, stride) : 0;
  a->shift_step = -(dilation * a->w_step / stride);
}

bool pointwise(const Geometry& g) {
  for (const Axis& a : g.axis) {
    if (a.taps != 1 || a.step != 1 || a.shift0 != 0 || a.in != a.out) return false;
  }
  return true;
}

/// One stride for all pixels, in row-major order; false if there is none.
bool joined_stride(const Geometry& g, int64_t Axis::*stride, int64_t Axis::*size, int64_t* out) {
  *out = 1;
  int64_t expected = -1;
  for (size_t d = 3; d-- > 0;) {
    const Axis& a = g.axis[d];
    if (a.*size == 1) continue;
    if (expected < 0) {
      *out = a.*stride;
    } else if (a.*stride != expected) {
      return false;
    }
    expected = a.*stride * (a.*size);
  }
  return true;
}

/// A 1x1 convolution without stride or padding: one product per image and group, nothing is copied.
bool pointwise_pass(KernelContext& context, const Geometry& g, const Operands& o) {
  int64_t x_pixel = 1, y_pixel = 1;
  if (!pointwise(g) || !joined_stride(g, &Axis::x_stride, &Axis::in, &x_pixel) || !joined_stride(g, &Axis::y_stride, &Axis::out, &y_pixel)) return false;
  const auto bytes = static_cast<int64_t>(dtype_size(o.dtype));
  const auto call_of = [&](int64_t i) {
    const int64_t image = i / g.groups, group = i % g.groups;
    GemmCall call;
    call.dtype = o.dtype;
    call.m = g.group_out, call.n = g.pixels(), call.k = g.group_in;
    call.a = {static_cast<const std::byte*>(o.w) + (group * g.w_group + g.w_offset()) * bytes, g.w_out, g.w_in, nullptr, nullptr};
    call.b = {static_cast<const std::byte*>(o.x) + (image * g.x_batch + group * g.group_in * g.x_channel) * bytes, x_pixel, g.x_channel, nullptr, nullptr};
    call.c = static_cast<std::byte*>(o.y) + (image * g.y_batch + group * g.group_out * g.y_channel + g.y_offset()) * bytes;
    call.c_m = g.y_channel, call.c_n = y_pixel;
    if (o.bias != nullptr) call.init = static_cast<const std::byte*>(o.bias) + group * g.group_out * g.bias_stride * bytes;
    call.init_m = g.bias_stride;
    return call;
  };
  gemm_batched(call_of(0), g.batch * g.groups, call_of, *context.pool, context.scratch);
  return true;
}

void run_pass(KernelContext& context, const Geometry& g, const Operands& o) {
  if (g.batch == 0 || g.pixels() == 0 || g.group_out == 0) return;
  if (g.group_in == 1 && g.taps() > 0) return depthwise_pass(context, g, o);
  if (pointwise_pass(context, g, o)) return;
  general_pass(context, g, o);
}

/// Calls fn(geometry) for every pass.
template <typename Fn>
void for_each_pass(const Geometry& base, const Params& p, Fn&& fn) {
  const size_t first = 3 - p.stride.size();
  if (!p.transposed) {
    Geometry g = base;
    for (size_t i = 0; i < p.stride.size(); ++i) set_forward(&g.axis[first + i], p.stride[i], p.padding[i], p.dilation[i]);
    fn(g);
    return;
  }
  int64_t phases[3] = {1, 1, 1};
  for (size_t i = 0; i < p.stride.size(); ++i) phases[first + i] = std::max<int64_t>(std::min(p.stride[i], base.axis[first + i].out), 1);
  for (int64_t z = 0; z < phases[0]; ++z) {
    for (int64_t y = 0; y < phases[1]; ++y) {
      for (int64_t x = 0; x < phases[2]; ++x) {
        const int64_t at[3] = {z, y, x};
        Geometry g = base;
        for (size_t i = 0; i < p.stride.size(); ++i) set_phase(&g.axis[first + i], at[first + i], p.stride[i], p.padding[i], p.dilation[i]);
        fn(g);
      }
    }
  }
}

Status convolution_out(KernelContext& context, const Tensor& input, const Tensor& weight, const Tensor* bias, IntList stride, IntList padding,
                       IntList dilation, bool transposed, IntList output_padding, int64_t groups, Tensor& out) {
  Params p;
  PTERON_TRY(read_params(input, weight, stride, padding, dilation, transposed, output_padding, groups, &p));
  if (input.dtype() != weight.dtype() || input.dtype() != out.dtype() || input.dtype() == DType::kBool || is_float8(input.dtype()) ||
      is_complex(input.dtype())) {
    return Status(Code::kUnsupported, str_cat("convolution of ", dtype_name(input.dtype()), " and ", dtype_name(weight.dtype())));
  }
  const Sizes sizes = output_sizes(input, weight, p);
  for (const int64_t size : sizes) {
    if (size < 0) return Status(Code::kInvalidInput, str_cat("convolution: input ", shape_text(input.sizes()), " is smaller than the kernel"));
  }
  PTERON_TRY(resize(out, sizes));
  if (bias != nullptr && (bias->rank() != 1 || bias->size(0) != sizes[1] || bias->dtype() != out.dtype())) {
    return Status(Code::kInvalidInput, str_cat("convolution: bias ", shape_text(bias->sizes()), " for ", sizes[1], " channels"));
  }
  const Operands operands{input.dtype(), input.view.data, weight.view.data, bias != nullptr ? bias->view.data : nullptr, out.view.data};
  for_each_pass(base_geometry(input, weight, bias, out, p), p, [&](const Geometry& g) { run_pass(context, g, operands); });
  return ok_status();
}

/// A list argument at load; missing entries count as given.
IntList list_of(const Value& v) { return runtime::Unpack<IntList>::fits(v) ? runtime::Unpack<IntList>::get(const_cast<Value&>(v)) : IntList{}; }

size_t workspace(std::span<Value* const> args) {
  const Tensor& x = args[0]->tensor;
  const Tensor& w = args[1]->tensor;
  Params p;
  if (!read_params(x, w, list_of(*args[3]), list_of(*args[4]), list_of(*args[5]), args[6]->integer != 0, list_of(*args[7]), args[8]->integer, &p).ok()) return 0;
  Tensor y = args[9]->tensor;
  const Sizes sizes = output_sizes(x, w, p);
  for (size_t d = 0; d < sizes.size(); ++d) y.view.size_array[d] = std::max<int64_t>(sizes[d], 0);
  size_t bytes = 0;
  for_each_pass(base_geometry(x, w, nullptr, y, p), p, [&](const Geometry& g) {
    const bool depthwise = g.group_in == 1 && g.taps() > 0;
    bytes = std::max(bytes, depthwise ? depthwise_workspace(x.dtype(), g) : general_workspace(x.dtype(), g));
    bytes = std::max(bytes, gemm_workspace(x.dtype(), g.group_out, g.pixels(), g.group_in));
  });
  return bytes;
}

constexpr runtime::Kernel kRows[] = {{"aten::convolution.out", PTERON_KERNEL(convolution_out), workspace}};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::conv
