// Kernels of two-operand arithmetic: rows.inc, sums with alpha, products, shifts, xlogy, heaviside; and the run functions of rooms divide and
// compare. One function serves the Tensor and the Scalar overloads.
#include "ops/binary/run.h"

namespace pteron::ops::binary {

DType common_dtype(const TensorOrScalar& self, const TensorOrScalar& other) {
  Promotion p;
  self.add_to(p);
  other.add_to(p);
  return p.result();
}

namespace {

/// uint16 and uint32 without functions of their own are computed in int64, which holds their values; results wrap when they are stored.
DType table_dtype(const TileTable& table, DType compute) {
  const bool narrow = compute == DType::kUInt16 || compute == DType::kUInt32;
  return narrow && table.find(compute) == nullptr ? DType::kInt64 : compute;
}

}  // namespace

Status run_binary(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Tensor& out, const TileTable& table,
                  bool to_float, const void* params, Rounding rounding) {
  const DType common = common_dtype(self, other);
  const DType compute = table_dtype(table, to_float ? float_compute_dtype(common) : compute_dtype(common));
  const TileFn fn = table.find(compute);
  if (fn == nullptr) return unsupported_dtype(common);
  const DType number_dtype = rounding == Rounding::kRoundNumbers ? common : compute;
  const std::array<TileInput, 2> inputs = {TileInput(self, compute, number_dtype), TileInput(other, compute, number_dtype)};
  return run_elementwise(context, inputs, out, compute, fn, params, to_float ? kCostlyGrain : kCheapGrain);
}

Status run_compare(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Tensor& out, const TileTable& table) {
  const DType common = common_dtype(self, other);
  const DType compute = table_dtype(table, compute_dtype(common));
  const TileFn fn = table.find(compute);
  if (fn == nullptr) return unsupported_dtype(common);
  const std::array<TileInput, 2> inputs = {TileInput(self, compute, common), TileInput(other, compute, common)};
  return run_elementwise(context, inputs, out, DType::kBool, fn, nullptr);
}

namespace {

#define PTERON_FUNCTOR(f)                        \
  struct f##_fn {                                \
    template <typename T>                        \
    static T apply(T a, T b) {                   \
      return f(a, b);                            \
    }                                            \
  };
#define PLAIN(name, category, f)                                                                                          \
  PTERON_FUNCTOR(f)                                                                                                       \
  constexpr TileTable k_##name = category::table<f##_fn>();                                                               \
  Status name##_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {                  \
    return run_binary(context, self, other, out, k_##name, category::kFloat);                                             \
  }
#define BOTH PLAIN
#include "ops/binary/rows.inc"
PLAIN(copysign, Float, copysign)
PLAIN(xlogy, Float, xlogy)
PLAIN(special_xlog1py, Float, xlog1py)
PLAIN(special_zeta, Float, zeta)
PLAIN(heaviside, Number, heaviside)
PLAIN(bitwise_left_shift, Whole, shift_left)
PLAIN(bitwise_right_shift, Whole, shift_right)
#undef PLAIN
#undef BOTH

// add, sub, rsub with alpha; mul.
struct AlphaParams {
  Scalar alpha;
  template <typename T>
  T as() const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(alpha.to_int());
    if constexpr (!std::is_integral_v<T>) return T(static_cast<RealOf<T>>(alpha.to_double()));
  }
};
struct AddAlpha {
  template <typename T>
  static T apply(T a, T b, T alpha) {
    return add(a, mul(alpha, b));
  }
};
struct SubAlpha {
  template <typename T>
  static T apply(T a, T b, T alpha) {
    return sub(a, mul(alpha, b));
  }
};
struct RsubAlpha {
  template <typename T>
  static T apply(T a, T b, T alpha) {
    return sub(b, mul(alpha, a));
  }
};
template <typename F, typename T>
void alpha_tile(int64_t n, void* const* out, const void* const* in, const void* params) {
  T* to = static_cast<T*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T alpha = static_cast<const AlphaParams*>(params)->as<T>();
  if (alpha == T(1)) {
    PTERON_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] = F::apply(a[i], b[i], T(1));
    return;
  }
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = F::apply(a[i], b[i], alpha);
}
template <typename F, typename... Ts>
constexpr TileTable alpha_table() {
  TileTable t;
  (t.set<Ts>(&alpha_tile<F, Ts>), ...);
  return t;
}
constexpr TileTable kAdd = alpha_table<AddAlpha, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
constexpr TileTable kSub = alpha_table<SubAlpha, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
constexpr TileTable kRsub = alpha_table<RsubAlpha, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();

Status run_alpha(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Scalar alpha, Tensor& out, const TileTable& table) {
  const DType common = common_dtype(self, other);
  if (is_reduced_float(common)) {
    const ConvertFn narrow = find_convert(DType::kFloat32, common), widen = find_convert(common, DType::kFloat32);
    float wide = static_cast<float>(alpha.to_double());
    uint16_t bits = 0;
    narrow(1, &wide, &bits);
    widen(1, &bits, &wide);
    alpha = {Scalar::Kind::kDouble, 0, wide};
  }
  const AlphaParams params{alpha};
  return run_binary(context, self, other, out, table, false, &params);
}
Status add_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Scalar alpha, Tensor& out) {
  return run_alpha(context, self, other, alpha, out, kAdd);
}
Status sub_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Scalar alpha, Tensor& out) {
  return run_alpha(context, self, other, alpha, out, kSub);
}
Status rsub_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Scalar alpha, Tensor& out) {
  return run_alpha(context, self, other, alpha, out, kRsub);
}

PTERON_FUNCTOR(mul)
constexpr TileTable kMul = same_table<mul_fn, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
Status mul_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  // ATen multiplies 16-bit floats by a number in float without rounding the number first.
  return run_binary(context, self, other, out, kMul, false, nullptr, Rounding::kKeepNumbers);
}

// complex(real, imag) and polar(abs, angle).
struct Join {
  template <typename T>
  static std::complex<T> apply(T a, T b) {
    return {a, b};
  }
};
struct Polar {
  template <typename T>
  static std::complex<T> apply(T a, T b) {
    return {a * std::cos(b), a * std::sin(b)};
  }
};
template <typename F>
Status run_join(KernelContext& context, const Tensor& a, const Tensor& b, Tensor& out) {
  const bool wide = out.dtype() == DType::kComplexDouble;
  if (!wide && out.dtype() != DType::kComplexFloat) return unsupported_dtype(out.dtype());
  const DType part = real_dtype(out.dtype());
  const std::array<TileInput, 2> inputs = {TileInput(a, part), TileInput(b, part)};
  return run_elementwise(context, inputs, out, out.dtype(), wide ? &binary_tile<F, CDouble, double> : &binary_tile<F, CFloat, float>, nullptr);
}
Status complex_kernel(KernelContext& context, const Tensor& real, const Tensor& imag, Tensor& out) { return run_join<Join>(context, real, imag, out); }
Status polar_kernel(KernelContext& context, const Tensor& abs, const Tensor& angle, Tensor& out) { return run_join<Polar>(context, abs, angle, out); }

constexpr runtime::Kernel kRows[] = {
#define PLAIN(name, category, f) {"aten::" #name ".out", PTERON_KERNEL(name##_kernel)},
#define BOTH(name, category, f)                                  \
  {"aten::" #name ".Tensor_out", PTERON_KERNEL(name##_kernel)},  \
  {"aten::" #name ".Scalar_out", PTERON_KERNEL(name##_kernel)},  \
  {"aten::" #name ".Scalar_Tensor_out", PTERON_KERNEL(name##_kernel)},
#include "ops/binary/rows.inc"
#undef PLAIN
#undef BOTH
    {"aten::add.out", PTERON_KERNEL(add_kernel)},
    {"aten::add.Scalar_out", PTERON_KERNEL(add_kernel)},
    {"aten::bitwise_left_shift.Tensor_out", PTERON_KERNEL(bitwise_left_shift_kernel)},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", PTERON_KERNEL(bitwise_left_shift_kernel)},
    {"aten::bitwise_left_shift.Scalar_Tensor_out", PTERON_KERNEL(bitwise_left_shift_kernel)},
    {"aten::bitwise_right_shift.Tensor_out", PTERON_KERNEL(bitwise_right_shift_kernel)},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", PTERON_KERNEL(bitwise_right_shift_kernel)},
    {"aten::bitwise_right_shift.Scalar_Tensor_out", PTERON_KERNEL(bitwise_right_shift_kernel)},
    {"aten::complex.out", PTERON_KERNEL(complex_kernel)},
    {"aten::polar.out", PTERON_KERNEL(polar_kernel)},
    {"aten::copysign.out", PTERON_KERNEL(copysign_kernel)},
    {"aten::copysign.Scalar_out", PTERON_KERNEL(copysign_kernel)},
    {"aten::heaviside.out", PTERON_KERNEL(heaviside_kernel)},
    {"aten::mul.out", PTERON_KERNEL(mul_kernel)},
    {"aten::mul.Scalar_out", PTERON_KERNEL(mul_kernel)},
    {"aten::rsub.Tensor_out", PTERON_KERNEL(rsub_kernel)},
    {"aten::rsub.Scalar_out", PTERON_KERNEL(rsub_kernel)},
    {"aten::special_xlog1py.out", PTERON_KERNEL(special_xlog1py_kernel)},
    {"aten::special_xlog1py.other_scalar_out", PTERON_KERNEL(special_xlog1py_kernel)},
    {"aten::special_xlog1py.self_scalar_out", PTERON_KERNEL(special_xlog1py_kernel)},
    {"aten::special_zeta.out", PTERON_KERNEL(special_zeta_kernel)},
    {"aten::special_zeta.other_scalar_out", PTERON_KERNEL(special_zeta_kernel)},
    {"aten::special_zeta.self_scalar_out", PTERON_KERNEL(special_zeta_kernel)},
    {"aten::sub.out", PTERON_KERNEL(sub_kernel)},
    {"aten::sub.Scalar_out", PTERON_KERNEL(sub_kernel)},
    {"aten::xlogy.OutTensor", PTERON_KERNEL(xlogy_kernel)},
    {"aten::xlogy.OutScalar_Other", PTERON_KERNEL(xlogy_kernel)},
    {"aten::xlogy.OutScalar_Self", PTERON_KERNEL(xlogy_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::binary
