// Kernels of clamp, where, masked_fill, addcmul, addcdiv, lerp. Compile half: op.cpp.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/binary/run.h"

namespace pteron::ops::blend {

using binary::CDouble;
using binary::CFloat;

namespace {

// clamp: NaN in any operand wins; if min > max the result is max.
template <typename T>
T clamp_one(T x, T low, T high) {
  return binary::minimum(binary::maximum(x, low), high);
}
struct Clamp {
  template <typename T>
  static T apply(T x, T low, T high, int) {
    return clamp_one(x, low, high);
  }
};
template <typename F, typename P, typename... Ts>
constexpr TileTable ternary_table() {
  TileTable t;
  (t.set<Ts>(&ternary_params_tile<F, Ts, Ts, P>), ...);
  return t;
}
constexpr TileTable kClamp = ternary_table<Clamp, int, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();

/// The bound that never binds in the dtype of the arithmetic.
template <typename T>
constexpr T no_bound(bool low) {
  if constexpr (std::is_floating_point_v<T>) return low ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  if constexpr (!std::is_floating_point_v<T>) return low ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
}
TileInput bound_input(const TensorOrScalar* bound, DType compute, DType common, bool low) {
  if (bound != nullptr) return TileInput(*bound, compute, common);
  TileInput input(Scalar{}, compute);
  dispatch_real(compute, [&]<typename T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      const T value = no_bound<T>(low);
      std::memcpy(input.value.data(), &value, sizeof value);
    }
  });
  return input;
}

Status clamp(KernelContext& context, const Tensor& self, const TensorOrScalar* low, const TensorOrScalar* high, Tensor& out) {
  Promotion p;
  p.add_tensor(self.dtype(), self.rank());
  if (low != nullptr) low->add_to(p);
  if (high != nullptr) high->add_to(p);
  const DType common = p.result(), compute = compute_dtype(common);
  const TileFn fn = kClamp.find(compute);
  if (fn == nullptr) return unsupported_dtype(common);
  const std::array<TileInput, 3> inputs = {TileInput(self, compute), bound_input(low, compute, common, true), bound_input(high, compute, common, false)};
  const int params = 0;
  return run_elementwise(context, inputs, out, compute, fn, &params);
}
Status clamp_kernel(KernelContext& context, const Tensor& self, std::optional<TensorOrScalar> low, std::optional<TensorOrScalar> high, Tensor& out) {
  return clamp(context, self, low.has_value() ? &*low : nullptr, high.has_value() ? &*high : nullptr, out);
}
Status clamp_min_kernel(KernelContext& context, const Tensor& self, TensorOrScalar low, Tensor& out) { return clamp(context, self, &low, nullptr, out); }
Status clamp_max_kernel(KernelContext& context, const Tensor& self, TensorOrScalar high, Tensor& out) { return clamp(context, self, nullptr, &high, out); }

/// hardtanh: bounds of the dtype of self.
Status hardtanh_kernel(KernelContext& context, const Tensor& self, Scalar low, Scalar high, Tensor& out) {
  const DType compute = compute_dtype(self.dtype());
  const TileFn fn = kClamp.find(compute);
  if (fn == nullptr) return unsupported_dtype(self.dtype());
  const TensorOrScalar bounds[2] = {{nullptr, low}, {nullptr, high}};
  const std::array<TileInput, 3> inputs = {TileInput(self, compute), TileInput(bounds[0], compute, self.dtype()), TileInput(bounds[1], compute, self.dtype())};
  const int params = 0;
  return run_elementwise(context, inputs, out, compute, fn, &params);
}

// where: moves elements; the condition is a bool tile.
template <typename T>
void where_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  T* to = static_cast<T*>(out[0]);
  const bool* condition = static_cast<const bool*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = condition[i] ? a[i] : b[i];
}
/// By element size: the dtype of the arithmetic is the common dtype itself, nothing is computed.
TileFn where_fn(DType dtype) {
  TileFn fn = nullptr;
  dispatch_size(dtype_size(dtype), [&]<typename T>() { fn = &where_tile<T>; });
  return fn;
}
Status where_kernel(KernelContext& context, const Tensor& condition, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  // Operands that already have one dtype move as they are; others meet in the promoted dtype, 16-bit floats as float.
  const DType common = binary::common_dtype(self, other);
  const bool same = (self.tensor == nullptr || self.tensor->dtype() == common) && (other.tensor == nullptr || other.tensor->dtype() == common);
  const DType compute = same && out.dtype() == common ? common : compute_dtype(common);
  const std::array<TileInput, 3> inputs = {TileInput(condition, DType::kBool), TileInput(self, compute, common), TileInput(other, compute, common)};
  return run_elementwise(context, inputs, out, compute, where_fn(compute), nullptr);
}
Status masked_fill_kernel(KernelContext& context, const Tensor& self, const Tensor& mask, TensorOrScalar value, Tensor& out) {
  const DType compute = out.dtype() == self.dtype() && (value.tensor == nullptr || value.tensor->dtype() == self.dtype()) ? self.dtype()
                                                                                                                        : compute_dtype(self.dtype());
  if (value.tensor != nullptr && value.tensor->numel() != 1) return Status(Code::kInvalidInput, "masked_fill: the value has more than one element");
  TileInput filler(value, compute);
  if (!filler.is_value) filler.view.rank = 0;
  const std::array<TileInput, 3> inputs = {TileInput(mask, DType::kBool), filler, TileInput(self, compute)};
  return run_elementwise(context, inputs, out, compute, where_fn(compute), nullptr);
}

// addcmul, addcdiv.
struct ValueParams {
  Scalar value;
  template <typename T>
  T as() const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(value.to_int());
    if constexpr (!std::is_integral_v<T>) return T(static_cast<binary::RealOf<T>>(value.to_double()));
  }
};
struct AddMul {
  template <typename T>
  static T apply(T a, T b, T c, const ValueParams& p) {
    return binary::add(a, binary::mul(binary::mul(p.as<T>(), b), c));
  }
};
struct AddDiv {
  template <typename T>
  static T apply(T a, T b, T c, const ValueParams& p) {
    return a + p.as<T>() * b / c;
  }
};
constexpr TileTable kAddMul = ternary_table<AddMul, ValueParams, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
constexpr TileTable kAddDiv = ternary_table<AddDiv, ValueParams, float, double, CFloat, CDouble>();

Status run_ternary(KernelContext& context, const Tensor& self, const Tensor& b, const TensorOrScalar& c, Tensor& out, const TileTable& table,
                   const void* params) {
  Promotion p;
  p.add_tensor(self.dtype(), self.rank());
  p.add_tensor(b.dtype(), b.rank());
  c.add_to(p);
  const DType compute = compute_dtype(p.result());
  const TileFn fn = table.find(compute);
  if (fn == nullptr) return unsupported_dtype(p.result());
  const std::array<TileInput, 3> inputs = {TileInput(self, compute), TileInput(b, compute), TileInput(c, compute)};
  return run_elementwise(context, inputs, out, compute, fn, params);
}
Status addcmul_kernel(KernelContext& context, const Tensor& self, const Tensor& tensor1, const Tensor& tensor2, Scalar value, Tensor& out) {
  const ValueParams params{value};
  return run_ternary(context, self, tensor1, {&tensor2, {}}, out, kAddMul, &params);
}
Status addcdiv_kernel(KernelContext& context, const Tensor& self, const Tensor& tensor1, const Tensor& tensor2, Scalar value, Tensor& out) {
  const ValueParams params{value};
  return run_ternary(context, self, tensor1, {&tensor2, {}}, out, kAddDiv, &params);
}

// lerp: from the nearer end.
struct Lerp {
  template <typename T>
  static T apply(T a, T b, T w, int) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
    } else {
      return std::abs(w) < typename T::value_type(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
    }
  }
};
constexpr TileTable kLerp = ternary_table<Lerp, int, float, double, CFloat, CDouble>();
Status lerp_kernel(KernelContext& context, const Tensor& self, const Tensor& end, TensorOrScalar weight, Tensor& out) {
  const int params = 0;
  return run_ternary(context, self, end, weight, out, kLerp, &params);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::addcdiv.out", PTERON_KERNEL(addcdiv_kernel)},
    {"aten::addcmul.out", PTERON_KERNEL(addcmul_kernel)},
    {"aten::clamp.Tensor_out", PTERON_KERNEL(clamp_kernel)},
    {"aten::clamp.out", PTERON_KERNEL(clamp_kernel)},
    {"aten::clamp_max.Tensor_out", PTERON_KERNEL(clamp_max_kernel)},
    {"aten::clamp_max.out", PTERON_KERNEL(clamp_max_kernel)},
    {"aten::clamp_min.Tensor_out", PTERON_KERNEL(clamp_min_kernel)},
    {"aten::clamp_min.out", PTERON_KERNEL(clamp_min_kernel)},
    {"aten::hardtanh.out", PTERON_KERNEL(hardtanh_kernel)},
    {"aten::lerp.Scalar_out", PTERON_KERNEL(lerp_kernel)},
    {"aten::lerp.Tensor_out", PTERON_KERNEL(lerp_kernel)},
    {"aten::masked_fill.Scalar_out", PTERON_KERNEL(masked_fill_kernel)},
    {"aten::masked_fill.Tensor_out", PTERON_KERNEL(masked_fill_kernel)},
    {"aten::where.Scalar_out", PTERON_KERNEL(where_kernel)},
    {"aten::where.ScalarOther_out", PTERON_KERNEL(where_kernel)},
    {"aten::where.ScalarSelf_out", PTERON_KERNEL(where_kernel)},
    {"aten::where.self_out", PTERON_KERNEL(where_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::blend
