// Kernels of activation functions: computed in float for 16-bit floats, in double for double. Compile half: op.cpp.
#include <array>
#include <cmath>

#include "base/str_cat.h"
#include "ops/elementwise.h"
#include "ops/unary/special.h"

namespace pteron::ops::activation {

namespace {

/// Up to three numbers of an activation, in double; the loop casts them once.
struct Numbers {
  double a = 0, b = 0, c = 0;
};

template <typename F, typename... Ts>
constexpr TileTable table() {
  TileTable t;
  (t.set<Ts>(&unary_params_tile<F, Ts, Ts, Numbers>), ...);
  return t;
}

Status run(KernelContext& context, const Tensor& self, Tensor& out, const TileTable& functions, const Numbers& numbers = {},
           int64_t grain = kCheapGrain) {
  const DType compute = compute_dtype(self.dtype());
  const TileFn fn = functions.find(compute);
  if (fn == nullptr) return unsupported_dtype(self.dtype());
  const TileInput input(self, compute);
  return run_elementwise(context, {&input, 1}, out, compute, fn, &numbers, grain);
}

struct LeakyRelu {
  template <typename T>
  static T apply(T x, const Numbers& p) {
    return x > 0 ? x : x * static_cast<T>(p.a);
  }
};
struct Elu {  // a: factor below zero, b: factor above, c: factor of the input
  template <typename T>
  static T apply(T x, const Numbers& p) {
    const T negative = math::expm1(x * static_cast<T>(p.c)) * static_cast<T>(p.a);
    return x < 0 ? negative : x * static_cast<T>(p.b);
  }
};
struct Gelu {
  template <typename T>
  static T apply(T x, const Numbers&) {
    return x * T(0.5) * (T(1) + math::erf(x * static_cast<T>(0.70710678118654752440)));
  }
};
struct GeluTanh {
  template <typename T>
  static T apply(T x, const Numbers&) {
    const T inner = static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + math::tanh(inner));
  }
};
struct Silu {
  template <typename T>
  static T apply(T x, const Numbers&) {
    return x / (T(1) + special::fast_exp(-x));
  }
};
struct Mish {  // tanh(log(1 + e)) = n / (n + 2) with n = e * (e + 2); from x = 20 on it rounds to 1
  template <typename T>
  static T apply(T x, const Numbers&) {
    const T e = math::exp(x > T(20) ? T(20) : x);
    const T n = e * (e + T(2));
    return x * (n / (n + T(2)));
  }
};
template <typename T>
T clamp_to_six(T x) {
  x = x < T(0) ? T(0) : x;
  return x > T(6) ? T(6) : x;
}
struct HardSwish {
  template <typename T>
  static T apply(T x, const Numbers&) {
    return x * clamp_to_six(x + T(3)) / T(6);
  }
};
struct HardSigmoid {
  template <typename T>
  static T apply(T x, const Numbers&) {
    return clamp_to_six(x + T(3)) / T(6);
  }
};
struct HardShrink {
  template <typename T>
  static T apply(T x, const Numbers& p) {
    const T bound = static_cast<T>(p.a);
    return x >= -bound && x <= bound ? T(0) : x;
  }
};
struct SoftShrink {
  template <typename T>
  static T apply(T x, const Numbers& p) {
    const T bound = static_cast<T>(p.a);
    return x > bound ? x - bound : (x < -bound ? x + bound : x * T(0));
  }
};
struct Softplus {  // a: beta, b: threshold
  template <typename T>
  static T apply(T x, const Numbers& p) {
    const T beta = static_cast<T>(p.a);
    const T scaled = x * beta;
    const T soft = math::log1p(math::exp(scaled)) / beta;
    return scaled > static_cast<T>(p.b) ? x : soft;
  }
};
struct Threshold {
  template <typename T>
  static T apply(T x, const Numbers& p) {
    return x <= static_cast<T>(p.a) ? static_cast<T>(p.b) : x;
  }
};
struct LogSigmoid {
  template <typename T>
  static T apply(T x, const Numbers&) {
    const T low = x < T(0) ? x : (x != x ? x : T(0));
    return low - math::log1p(math::exp(-std::fabs(x)));
  }
};

constexpr TileTable kLeakyRelu = table<LeakyRelu, float, double>();
constexpr TileTable kElu = table<Elu, float, double>();
constexpr TileTable kGelu = table<Gelu, float, double>();
constexpr TileTable kGeluTanh = table<GeluTanh, float, double>();
constexpr TileTable kSilu = table<Silu, float, double>();
constexpr TileTable kMish = table<Mish, float, double>();
constexpr TileTable kHardSwish = table<HardSwish, float, double>();
constexpr TileTable kHardSigmoid = table<HardSigmoid, float, double>();
constexpr TileTable kHardShrink = table<HardShrink, float, double>();
constexpr TileTable kSoftShrink = table<SoftShrink, float, double>();
constexpr TileTable kSoftplus = table<Softplus, float, double>();
constexpr TileTable kThreshold = table<Threshold, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
constexpr TileTable kLogSigmoid = table<LogSigmoid, float, double>();

Status leaky_relu_kernel(KernelContext& context, const Tensor& self, Scalar slope, Tensor& out) {
  return run(context, self, out, kLeakyRelu, {slope.to_double(), 0, 0});
}
Status elu_kernel(KernelContext& context, const Tensor& self, Scalar alpha, Scalar scale, Scalar input_scale, Tensor& out) {
  return run(context, self, out, kElu, {alpha.to_double() * scale.to_double(), scale.to_double(), input_scale.to_double()}, kCostlyGrain);
}
Status gelu_kernel(KernelContext& context, const Tensor& self, std::string_view approximate, Tensor& out) {
  if (approximate != "none" && approximate != "tanh") return Status(Code::kInvalidInput, str_cat("gelu: approximate is none or tanh, found ", approximate));
  return run(context, self, out, approximate == "tanh" ? kGeluTanh : kGelu, {}, kCostlyGrain);
}
Status silu_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run(context, self, out, kSilu, {}, kCostlyGrain); }
Status mish_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run(context, self, out, kMish, {}, kCostlyGrain); }
Status hardswish_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run(context, self, out, kHardSwish); }
Status hardsigmoid_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run(context, self, out, kHardSigmoid); }
Status hardshrink_kernel(KernelContext& context, const Tensor& self, Scalar bound, Tensor& out) {
  return run(context, self, out, kHardShrink, {bound.to_double(), 0, 0});
}
Status softshrink_kernel(KernelContext& context, const Tensor& self, Scalar bound, Tensor& out) {
  return run(context, self, out, kSoftShrink, {bound.to_double(), 0, 0});
}
Status softplus_kernel(KernelContext& context, const Tensor& self, Scalar beta, Scalar threshold, Tensor& out) {
  return run(context, self, out, kSoftplus, {beta.to_double(), threshold.to_double(), 0}, kCostlyGrain);
}
Status threshold_kernel(KernelContext& context, const Tensor& self, Scalar threshold, Scalar value, Tensor& out) {
  return run(context, self, out, kThreshold, {threshold.to_double(), value.to_double(), 0});
}
Status log_sigmoid_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run(context, self, out, kLogSigmoid, {}, kCostlyGrain); }

struct Prelu {
  template <typename T>
  static T apply(T x, T w) {
    return x > 0 ? x : w * x;
  }
};
struct Glu {
  template <typename T>
  static T apply(T a, T b) {
    return a * math::sigmoid(b);
  }
};
Status run_pair(KernelContext& context, const TensorView& a, const TensorView& b, Tensor& out, TileFn narrow, TileFn wide) {
  const DType compute = compute_dtype(a.dtype);
  if (compute != DType::kFloat32 && compute != DType::kFloat64) return unsupported_dtype(a.dtype);
  const std::array<TileInput, 2> inputs = {TileInput(a, compute), TileInput(b, compute)};
  return run_elementwise(context, inputs, out, compute, compute == DType::kFloat32 ? narrow : wide, nullptr);
}
Status prelu_kernel(KernelContext& context, const Tensor& self, const Tensor& weight, Tensor& out) {
  return run_pair(context, self.view, weight.view, out, &binary_tile<Prelu, float, float>, &binary_tile<Prelu, double, double>);
}
Status glu_kernel(KernelContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  if (self.rank() == 0 || self.size(d) % 2 != 0) return Status(Code::kInvalidInput, "glu halves an even size");
  TensorView first = self.view;
  first.size_array[static_cast<size_t>(d)] /= 2;
  TensorView second = first;
  second.data = first.as<std::byte>() + static_cast<size_t>(first.size(d) * first.stride(d)) * dtype_size(first.dtype);
  return run_pair(context, first, second, out, &binary_tile<Glu, float, float>, &binary_tile<Glu, double, double>);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_prelu_kernel.out", PTERON_KERNEL(prelu_kernel)},
    {"aten::elu.out", PTERON_KERNEL(elu_kernel)},
    {"aten::gelu.out", PTERON_KERNEL(gelu_kernel)},
    {"aten::glu.out", PTERON_KERNEL(glu_kernel)},
    {"aten::hardshrink.out", PTERON_KERNEL(hardshrink_kernel)},
    {"aten::hardsigmoid.out", PTERON_KERNEL(hardsigmoid_kernel)},
    {"aten::hardswish.out", PTERON_KERNEL(hardswish_kernel)},
    {"aten::leaky_relu.out", PTERON_KERNEL(leaky_relu_kernel)},
    {"aten::log_sigmoid.out", PTERON_KERNEL(log_sigmoid_kernel)},
    {"aten::mish.out", PTERON_KERNEL(mish_kernel)},
    {"aten::silu.out", PTERON_KERNEL(silu_kernel)},
    {"aten::softplus.out", PTERON_KERNEL(softplus_kernel)},
    {"aten::softshrink.out", PTERON_KERNEL(softshrink_kernel)},
    {"aten::threshold.out", PTERON_KERNEL(threshold_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::activation
