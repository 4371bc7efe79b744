// Kernels of the operators in rows.inc, and of the one-tensor operators with parameters. Compile half: op.cpp.
#include <array>

#include "ops/elementwise.h"
#include "ops/unary/special.h"

namespace pteron::ops::unary {

namespace {

template <typename F, typename... Ts>
constexpr TileTable same_table() {
  TileTable table;
  (table.set<Ts>(unary_fn<F, Ts, Ts>()), ...);
  return table;
}
template <typename F, typename... Ts>
constexpr TileTable test_table() {
  TileTable table;
  (table.set<Ts>(&unary_tile<F, bool, Ts>), ...);
  return table;
}

using CFloat = std::complex<float>;
using CDouble = std::complex<double>;
struct Identity {
  template <typename T>
  static T apply(T x) {
    return x;
  }
};

enum class Domain : uint8_t { kFloat, kOwn, kTest };

struct Float {
  static constexpr Domain kDomain = Domain::kFloat;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, float, double>();
  }
};
struct FloatComplex {
  static constexpr Domain kDomain = Domain::kFloat;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, float, double, CFloat, CDouble>();
  }
};
struct Round {
  static constexpr Domain kDomain = Domain::kOwn;
  template <typename F>
  static constexpr TileTable table() {
    TileTable t = same_table<Identity, bool, uint8_t, int8_t, int16_t, int32_t, int64_t>();
    t.set<float>(&unary_tile<F, float, float>);
    t.set<double>(&unary_tile<F, double, double>);
    return t;
  }
};
struct Real {
  static constexpr Domain kDomain = Domain::kOwn;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, float, double>();
  }
};
struct Number {
  static constexpr Domain kDomain = Domain::kOwn;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
  }
};
struct NumberComplex {
  static constexpr Domain kDomain = Domain::kOwn;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
  }
};
struct TestReal {
  static constexpr Domain kDomain = Domain::kTest;
  template <typename F>
  static constexpr TileTable table() {
    return test_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
  }
};
struct Test {
  static constexpr Domain kDomain = Domain::kTest;
  template <typename F>
  static constexpr TileTable table() {
    return test_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
  }
};

Status run_unary(KernelContext& context, const Tensor& self, Tensor& out, const TileTable& table, Domain domain, const void* params = nullptr) {
  const DType compute = domain == Domain::kFloat ? float_compute_dtype(self.dtype()) : compute_dtype(self.dtype());
  const TileFn fn = table.find(compute);
  if (fn == nullptr) return unsupported_dtype(self.dtype());
  const TileInput input(self, compute);
  return run_elementwise(context, {&input, 1}, out, domain == Domain::kTest ? DType::kBool : compute, fn, params,
                         domain == Domain::kFloat ? kCostlyGrain : kCheapGrain);
}

#define UNARY(name, category, expression)                                        \
  struct name##_fn {                                                             \
    template <typename T>                                                        \
    static auto apply(T x) {                                                     \
      return expression;                                                         \
    }                                                                            \
  };                                                                             \
  constexpr TileTable k_##name = category::table<name##_fn>();                   \
  Status name##_kernel(KernelContext& context, const Tensor& self, Tensor& out) { \
    return run_unary(context, self, out, k_##name, category::kDomain);           \
  }
#include "ops/unary/rows.inc"
#undef UNARY

// sin, cos and tan: fast for the usual range, the C library when an argument needs a longer reduction of pi.
enum class Wave : uint8_t { kSin, kCos, kTan };
/// sin and cos of doubles up to this: pi/2 in three parts loses nothing.
constexpr double kMaxWideTrig = 1e5;
template <Wave wave>
struct Trig {
  template <typename T>
  static T apply(T x) {
    if constexpr (wave == Wave::kSin) return std::sin(x);
    if constexpr (wave == Wave::kCos) return std::cos(x);
    if constexpr (wave == Wave::kTan) return std::tan(x);
  }
  static float fast(float x) {
    if constexpr (wave == Wave::kSin) return math::sin(x);
    if constexpr (wave == Wave::kCos) return math::cos(x);
    if constexpr (wave == Wave::kTan) return math::tan(x);
  }
  static double fast(double x) {
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
    constexpr double kSinTail[] = {-0.16666666666666663, 0.00833333333332905, -0.00019841269833688246, 2.7557314344746028e-06, -2.5050664928835018e-08,
                                   1.585903975401669e-10, 2.8857000112836054e-13};  // (sin(x)/x - 1)/x^2 in x^2 on [0, pi/4], error 6e-17
    constexpr double kCosTail[] = {0.041666666666666685, -0.0013888888888892391, 2.4801587300151194e-05, -2.755731474735559e-07, 2.0874615988804485e-09,
                                   -1.1086890850748961e-11, -1.888994415281044e-13};  // (cos(x) - 1 + x^2/2)/x^4
    const double shifted = std::fma(x, 0.63661977236758134308, kShift);
    const double n = shifted - kShift;
    double r = std::fma(-n, 1.57079632673412561417e+00, x);  // 33 bits of pi/2, 33 more, the rest
    r = std::fma(-n, 6.07710050630396597660e-11, r);
    r = std::fma(-n, 2.02226624879595063154e-21, r);
    const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) + (wave == Wave::kCos ? 1 : 0);
    const double z = r * r;
    const double s = std::fma(r * z, math::polynomial(z, kSinTail), r);
    const double c = std::fma(z * z, math::polynomial(z, kCosTail), std::fma(-0.5, z, 1.0));
    const double value = (quadrant & 1) != 0 ? c : s;
    return (quadrant & 2) != 0 ? -value : value;
  }
  static void wide_tile(int64_t n, void* const* out, const void* const* in, const void*) {
    double* to = static_cast<double*>(out[0]);
    const double* a = static_cast<const double*>(in[0]);
    int64_t large = 0;
    for (int64_t i = 0; i < n; ++i) large |= std::fabs(a[i]) < kMaxWideTrig ? 0 : 1;
    if (large != 0) {
      for (int64_t i = 0; i < n; ++i) to[i] = apply(a[i]);
      return;
    }
    PTERON_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] = fast(a[i]);
  }
  static void tile(int64_t n, void* const* out, const void* const* in, const void*) {
    float* to = static_cast<float*>(out[0]);
    const float* a = static_cast<const float*>(in[0]);
    int32_t large = 0;
    for (int64_t i = 0; i < n; ++i) large |= std::fabs(a[i]) > math::kMaxTrig ? 1 : 0;
    if (large != 0) {
      for (int64_t i = 0; i < n; ++i) to[i] = apply(a[i]);
      return;
    }
    PTERON_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] = fast(a[i]);
  }
  static constexpr TileTable table() {
    TileTable t = same_table<Trig, double, CFloat, CDouble>();
    t.set<float>(&Trig::tile);
    if (wave != Wave::kTan) t.set<double>(&Trig::wide_tile);
    return t;
  }
};
constexpr TileTable kSin = Trig<Wave::kSin>::table();
constexpr TileTable kCos = Trig<Wave::kCos>::table();
constexpr TileTable kTan = Trig<Wave::kTan>::table();
Status sin_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run_unary(context, self, out, kSin, Domain::kFloat); }
Status cos_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run_unary(context, self, out, kCos, Domain::kFloat); }
Status tan_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run_unary(context, self, out, kTan, Domain::kFloat); }

// abs and angle: complex numbers give real results.
struct Abs {
  template <typename T>
  static auto apply(T x) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, uint8_t>) {
      return x;
    } else if constexpr (std::is_integral_v<T>) {
      return x < 0 ? special::neg(x) : x;
    } else {
      return std::abs(x);
    }
  }
};
struct Angle {
  template <typename T>
  static auto apply(T x) {
    if constexpr (special::kIsComplex<T>) {
      return std::arg(x);
    } else {
      return x != x ? x : (x < T(0) ? static_cast<T>(3.14159265358979323846) : T(0));
    }
  }
};
constexpr TileTable kAbs = [] {
  TileTable t = same_table<Abs, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
  t.set<CFloat>(&unary_tile<Abs, float, CFloat>);
  t.set<CDouble>(&unary_tile<Abs, double, CDouble>);
  return t;
}();
// 16-bit floats lose their sign bit without a detour through float.
void abs_bits_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  auto* to = static_cast<uint16_t*>(out[0]);
  const auto* a = static_cast<const uint16_t*>(in[0]);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint16_t>(a[i] & 0x7fff);
}
constexpr TileTable kAngle = [] {
  TileTable t = same_table<Angle, float, double>();
  t.set<CFloat>(&unary_tile<Angle, float, CFloat>);
  t.set<CDouble>(&unary_tile<Angle, double, CDouble>);
  return t;
}();
Status run_to_real(KernelContext& context, const Tensor& self, Tensor& out, const TileTable& table, DType compute) {
  const TileFn fn = table.find(compute);
  if (fn == nullptr) return unsupported_dtype(self.dtype());
  const TileInput input(self, compute);
  return run_elementwise(context, {&input, 1}, out, real_dtype(compute), fn, nullptr);
}
Status abs_kernel(KernelContext& context, const Tensor& self, Tensor& out) {
  if (is_reduced_float(self.dtype()) && out.dtype() == self.dtype()) {
    PTERON_TRY(runtime::resize(out, self.sizes()));
    TensorView from = self.view, to = out.view;
    from.dtype = to.dtype = DType::kUInt16;
    const TileInput input(from, DType::kUInt16);
    const TileOutput output{to, DType::kUInt16};
    return run_tiles(context, out.sizes(), {&input, 1}, {&output, 1}, &abs_bits_tile, nullptr);
  }
  return run_to_real(context, self, out, kAbs, compute_dtype(self.dtype()));
}
Status angle_kernel(KernelContext& context, const Tensor& self, Tensor& out) {
  return run_to_real(context, self, out, kAngle, float_compute_dtype(self.dtype()));
}

// bitwise_not, logical_not.
struct BitNot {
  template <typename T>
  static T apply(T x) {
    if constexpr (std::is_same_v<T, bool>) return !x;
    if constexpr (!std::is_same_v<T, bool>) return static_cast<T>(~x);
  }
};
struct LogicalNot {
  static uint8_t apply(uint8_t x) { return x == 0 ? 1 : 0; }  // bools as bytes: loops over bools do not vectorise
};
constexpr TileTable kBitNot = same_table<BitNot, bool, uint8_t, int8_t, int16_t, int32_t, int64_t>();
Status bitwise_not_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return run_unary(context, self, out, kBitNot, Domain::kOwn); }
Status logical_not_kernel(KernelContext& context, const Tensor& self, Tensor& out) {
  const TileInput input(self, DType::kBool);
  return run_elementwise(context, {&input, 1}, out, DType::kBool, &unary_tile<LogicalNot, uint8_t, uint8_t>, nullptr);
}

// Operators with parameters. Params are double; the loop casts them once.
template <typename F, typename P, typename... Ts>
constexpr TileTable params_table() {
  TileTable table;
  (table.set<Ts>(&unary_params_tile<F, Ts, Ts, P>), ...);
  return table;
}

struct LogitParams {
  bool clamp = false;
  double low = 0, high = 1;
};
struct Logit {
  template <typename T>
  static T apply(T x, const LogitParams& p) {
    if (p.clamp) {
      const T low = static_cast<T>(p.low), high = static_cast<T>(p.high);
      x = x < low ? low : (x > high ? high : x);
    }
    return math::log(x / (T(1) - x));
  }
};
constexpr TileTable kLogit = params_table<Logit, LogitParams, float, double>();
Status logit_kernel(KernelContext& context, const Tensor& self, std::optional<double> eps, Tensor& out) {
  LogitParams params;
  if (eps.has_value()) params = {true, *eps, 1 - *eps};
  if (eps.has_value() && is_floating(self.dtype()) && self.dtype() != DType::kFloat64) {
    params.high = 1.0f - static_cast<float>(*eps);  // ATen's bound in the dtype of the arithmetic
  }
  return run_unary(context, self, out, kLogit, Domain::kFloat, &params);
}

struct NanParams {
  double nan = 0, posinf = 0, neginf = 0;
};
struct NanToNum {
  template <typename T>
  static T apply(T x, const NanParams& p) {
    if (x != x) return static_cast<T>(p.nan);
    if (x == std::numeric_limits<T>::infinity()) return static_cast<T>(p.posinf);
    return x == -std::numeric_limits<T>::infinity() ? static_cast<T>(p.neginf) : x;
  }
};
constexpr TileTable kNanToNum = [] {
  TileTable t = params_table<NanToNum, NanParams, float, double>();
  const TileTable whole = same_table<Identity, bool, uint8_t, int8_t, int16_t, int32_t, int64_t>();
  for (size_t i = 0; i < TileTable::kCount; ++i) {
    if (whole.fns[i] != nullptr) t.fns[i] = whole.fns[i];
  }
  return t;
}();
double largest_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 65504.0;
    case DType::kBFloat16: return 3.38953138925153547590e38;  // 0x7f7f
    case DType::kFloat32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}
Status nan_to_num_kernel(KernelContext& context, const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                         std::optional<double> neginf, Tensor& out) {
  const double largest = largest_of(self.dtype());
  const NanParams params{nan.value_or(0), posinf.value_or(largest), neginf.value_or(-largest)};
  return run_unary(context, self, out, kNanToNum, Domain::kOwn, &params);
}

struct RoundParams {
  double scale = 1;
  bool divide = false;
};
struct RoundDecimals {
  template <typename T>
  static T apply(T x, const RoundParams& p) {
    const T scale = static_cast<T>(p.scale);
    return p.divide ? std::nearbyint(x / scale) * scale : std::nearbyint(x * scale) / scale;
  }
};
constexpr TileTable kRoundDecimals = params_table<RoundDecimals, RoundParams, float, double>();
Status round_decimals_kernel(KernelContext& context, const Tensor& self, int64_t decimals, Tensor& out) {
  if (is_integral(self.dtype(), true)) return run_unary(context, self, out, k_round, Domain::kOwn);
  const RoundParams params{std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals)), decimals < 0};
  return run_unary(context, self, out, kRoundDecimals, Domain::kOwn, &params);
}

struct PolygammaParams {
  int64_t n = 0;
};
struct Polygamma {
  template <typename T>
  static T apply(T x, const PolygammaParams& p) {
    return static_cast<T>(special::polygamma(p.n, x));
  }
};
constexpr TileTable kPolygamma = params_table<Polygamma, PolygammaParams, float, double>();
Status polygamma_kernel(KernelContext& context, int64_t n, const Tensor& self, Tensor& out) {
  const PolygammaParams params{n};
  return run_unary(context, self, out, kPolygamma, Domain::kFloat, &params);
}

// square: bool gives int64.
struct Square {
  template <typename T>
  static T apply(T x) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
    if constexpr (!std::is_integral_v<T>) return x * x;
  }
};
constexpr TileTable kSquare = same_table<Square, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
Status square_kernel(KernelContext& context, const Tensor& self, Tensor& out) {
  const DType compute = self.dtype() == DType::kBool ? DType::kInt64 : compute_dtype(self.dtype());
  const TileFn fn = kSquare.find(compute);
  if (fn == nullptr) return unsupported_dtype(self.dtype());
  const TileInput input(self, compute);
  return run_elementwise(context, {&input, 1}, out, compute, fn, nullptr);
}

/// frexp: mantissa in [0.5, 1) and exponent.
template <typename T>
void frexp_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  T* mantissa = static_cast<T*>(out[0]);
  int32_t* exponent = static_cast<int32_t*>(out[1]);
  const T* a = static_cast<const T*>(in[0]);
  for (int64_t i = 0; i < n; ++i) {
    int e = 0;
    mantissa[i] = std::frexp(a[i], &e);
    exponent[i] = e;
  }
}
Status frexp_kernel(KernelContext& context, const Tensor& self, Tensor& mantissa, Tensor& exponent) {
  const DType compute = compute_dtype(self.dtype());
  if (compute != DType::kFloat32 && compute != DType::kFloat64) return unsupported_dtype(self.dtype());
  PTERON_TRY(runtime::resize(mantissa, self.sizes()));
  PTERON_TRY(runtime::resize(exponent, self.sizes()));
  const TileInput input(self, compute);
  const std::array<TileOutput, 2> outs = {TileOutput{mantissa.view, compute}, TileOutput{exponent.view, DType::kInt32}};
  return run_tiles(context, self.sizes(), {&input, 1}, outs, compute == DType::kFloat32 ? &frexp_tile<float> : &frexp_tile<double>, nullptr);
}

constexpr runtime::Kernel kRows[] = {
#define UNARY(name, category, expression) {"aten::" #name ".out", PTERON_KERNEL(name##_kernel)},
#include "ops/unary/rows.inc"
#undef UNARY
    {"aten::_conj_physical.out", PTERON_KERNEL(conj_physical_kernel)},
    {"aten::abs.out", PTERON_KERNEL(abs_kernel)},
    {"aten::angle.out", PTERON_KERNEL(angle_kernel)},
    {"aten::bitwise_not.out", PTERON_KERNEL(bitwise_not_kernel)},
    {"aten::cos.out", PTERON_KERNEL(cos_kernel)},
    {"aten::frexp.Tensor_out", PTERON_KERNEL(frexp_kernel)},
    {"aten::logical_not.out", PTERON_KERNEL(logical_not_kernel)},
    {"aten::logit.out", PTERON_KERNEL(logit_kernel)},
    {"aten::nan_to_num.out", PTERON_KERNEL(nan_to_num_kernel)},
    {"aten::polygamma.out", PTERON_KERNEL(polygamma_kernel)},
    {"aten::round.decimals_out", PTERON_KERNEL(round_decimals_kernel)},
    {"aten::sin.out", PTERON_KERNEL(sin_kernel)},
    {"aten::square.out", PTERON_KERNEL(square_kernel)},
    {"aten::tan.out", PTERON_KERNEL(tan_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::unary
