// Kernels of division in all rounding modes, remainders and powers. Compile half: op.cpp.
#include <atomic>

#include "ops/binary/run.h"

namespace pteron::ops::divide {

using namespace binary;  // NOLINT: the vocabulary of two-operand kernels

namespace {

/// Loops over integers note a division by zero here; the result of that element is 0.
struct DivideParams {
  std::atomic<bool>* by_zero;
};

struct Divide {
  template <typename T>
  static T apply(T a, T b) {
    return a / b;
  }
};
struct FloorDivide {
  template <typename T>
  static T by_mod(T a, T b, T mod) {
    return floor_quotient_of(a, b, mod);
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return b == 0 ? a / b : by_mod(a, b, std::fmod(a, b));
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return special::neg(a);  // the most negative value wraps
      }
      const T quotient = static_cast<T>(a / b);
      return a % b != 0 && (a < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
    }
  }
};
struct TruncDivide {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::trunc(a / b);
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return special::neg(a);
      }
      return static_cast<T>(a / b);
    }
  }
};
struct Remainder {
  template <typename T>
  static T by_mod(T, T b, T mod) {
    return remainder_of(b, mod);
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return by_mod(a, b, std::fmod(a, b));
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      const T rest = static_cast<T>(a % b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    }
  }
};
struct Fmod {
  template <typename T>
  static T by_mod(T, T, T mod) {
    return mod;
  }
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    }
  }
};

template <typename F, typename T>
void integer_divide_tile(int64_t n, void* const* out, const void* const* in, const void* params) {
  T* to = static_cast<T*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  bool by_zero = false;
  for (int64_t i = 0; i < n; ++i) {
    if (b[i] == 0) {
      by_zero = true;
      to[i] = 0;
    } else {
      to[i] = F::apply(a[i], b[i]);
    }
  }
  if (by_zero) static_cast<const DivideParams*>(params)->by_zero->store(true, std::memory_order_relaxed);
}
/// Floats: blocks of small quotients in a loop that vectorises, others by the C library.
template <typename F, typename T>
void mod_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  constexpr int64_t kBlock = 256;
  T* to = static_cast<T*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    int32_t hard = 0;
    for (int64_t i = begin; i < end; ++i) hard |= is_easy_fmod(a[i], b[i]) ? 0 : 1;
    if (hard != 0) {
      for (int64_t i = begin; i < end; ++i) to[i] = F::apply(a[i], b[i]);
      continue;
    }
    PTERON_VECTORIZE
    for (int64_t i = begin; i < end; ++i) to[i] = F::by_mod(a[i], b[i], fast_fmod(a[i], b[i]));
  }
}

template <typename F, typename... Ts>
constexpr TileTable trunc_table() {
  TileTable t = same_table<F, float, double>();
  (t.set<Ts>(&integer_divide_tile<F, Ts>), ...);
  return t;
}
template <typename F, typename... Ts>
constexpr TileTable divide_table() {
  TileTable t;
  t.set<float>(&mod_tile<F, float>);
  t.set<double>(&mod_tile<F, double>);
  (t.set<Ts>(&integer_divide_tile<F, Ts>), ...);
  return t;
}

constexpr TileTable kTrueDivide = same_table<Divide, float, double, CFloat, CDouble>();
constexpr TileTable kFloorDivide = divide_table<FloorDivide, uint8_t, int8_t, int16_t, int32_t, int64_t>();
constexpr TileTable kTruncDivide = trunc_table<TruncDivide, uint8_t, int8_t, int16_t, int32_t, int64_t>();
constexpr TileTable kRemainder = divide_table<Remainder, uint8_t, int8_t, int16_t, int32_t, int64_t>();
constexpr TileTable kFmod = divide_table<Fmod, uint8_t, int8_t, int16_t, int32_t, int64_t>();

Status run_divide(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Tensor& out, const TileTable& table,
                  Rounding rounding) {
  std::atomic<bool> by_zero = false;
  const DivideParams params{&by_zero};
  PTERON_TRY(run_binary(context, self, other, out, table, false, &params, rounding));
  return by_zero.load() ? Status(Code::kInvalidInput, "integer division by zero") : ok_status();
}

Status div_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  return run_binary(context, self, other, out, kTrueDivide, true, nullptr, Rounding::kKeepNumbers);
}
Status div_mode_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, std::optional<std::string_view> mode, Tensor& out) {
  if (!mode.has_value()) return div_kernel(context, self, other, out);
  if (*mode == "floor") return run_divide(context, self, other, out, kFloorDivide, Rounding::kKeepNumbers);
  if (*mode == "trunc") return run_divide(context, self, other, out, kTruncDivide, Rounding::kKeepNumbers);
  return Status(Code::kInvalidInput, "rounding_mode is neither floor nor trunc");
}
Status floor_divide_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  return run_divide(context, self, other, out, kFloorDivide, Rounding::kKeepNumbers);
}
Status remainder_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  return run_divide(context, self, other, out, kRemainder, Rounding::kRoundNumbers);
}
Status fmod_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {
  return run_divide(context, self, other, out, kFmod, Rounding::kRoundNumbers);
}

// Powers.
struct Pow {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return integer_power(a, b);
    if constexpr (!std::is_integral_v<T>) return std::pow(a, b);
  }
};
constexpr TileTable kPow = same_table<Pow, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();

#define PTERON_POWER(name, expression)                      \
  struct name##_fn {                                        \
    template <typename T>                                   \
    static T apply(T x, T) {                                \
      return expression;                                    \
    }                                                       \
  };                                                        \
  constexpr TileTable k##name = same_table<name##_fn, float, double>();
PTERON_POWER(Square, x* x)
PTERON_POWER(Cube, x* x* x)
PTERON_POWER(Root, std::sqrt(x))
PTERON_POWER(InverseRoot, T(1) / std::sqrt(x))
PTERON_POWER(Inverse, T(1) / x)
PTERON_POWER(InverseSquare, T(1) / (x * x))
#undef PTERON_POWER

/// The table for a floating base and this exponent: ATen's short forms.
const TileTable& power_table(double exponent) {
  if (exponent == 2) return kSquare;
  if (exponent == 3) return kCube;
  if (exponent == 0.5) return kRoot;
  if (exponent == -0.5) return kInverseRoot;
  if (exponent == -1) return kInverse;
  return exponent == -2 ? kInverseSquare : kPow;
}

Status pow_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar exponent, Tensor& out) {
  if (exponent.tensor != nullptr) return run_binary(context, self, exponent, out, kPow, false);
  const DType common = common_dtype(self, exponent);
  if (is_integral(common, true) && exponent.scalar.to_int() < 0) {
    return Status(Code::kInvalidInput, "integers to negative integer powers are not allowed");
  }
  if (!is_floating(common)) return run_binary(context, self, exponent, out, kPow, false);
  return run_binary(context, self, exponent, out, power_table(exponent.scalar.to_double()), false);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::div.out", PTERON_KERNEL(div_kernel)},
    {"aten::div.Scalar_out", PTERON_KERNEL(div_kernel)},
    {"aten::div.out_mode", PTERON_KERNEL(div_mode_kernel)},
    {"aten::div.Scalar_mode_out", PTERON_KERNEL(div_mode_kernel)},
    {"aten::floor_divide.out", PTERON_KERNEL(floor_divide_kernel)},
    {"aten::floor_divide.Scalar_out", PTERON_KERNEL(floor_divide_kernel)},
    {"aten::fmod.Tensor_out", PTERON_KERNEL(fmod_kernel)},
    {"aten::fmod.Scalar_out", PTERON_KERNEL(fmod_kernel)},
    {"aten::pow.Tensor_Tensor_out", PTERON_KERNEL(pow_kernel)},
    {"aten::pow.Tensor_Scalar_out", PTERON_KERNEL(pow_kernel)},
    {"aten::pow.Scalar_out", PTERON_KERNEL(pow_kernel)},
    {"aten::remainder.Tensor_out", PTERON_KERNEL(remainder_kernel)},
    {"aten::remainder.Scalar_out", PTERON_KERNEL(remainder_kernel)},
    {"aten::remainder.Scalar_Tensor_out", PTERON_KERNEL(remainder_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::divide
