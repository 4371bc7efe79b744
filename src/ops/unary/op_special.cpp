// Special functions in terms of the kernels that the official runtime has, computed in double: series, continued products and polynomials that
// hold for float32 results (their relative error is under 1e-7 where nothing else is said). float64 has them only where they hold for it.
#include <cmath>
#include <span>

#include "ops/portable.h"
#include "ops/unary/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::unary {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr double kPiInDouble = 3.14159265358979323846;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// fn(x in double) cast to the result's float dtype; nothing for complex numbers, and for float64 unless fn is exact enough for it.
template <typename Fn>
Ids in_double(Builder& b, const NodeView& n, bool exact, Fn&& fn) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (is_complex(f.dtype(x)) || (f.dtype(x) == DType::kFloat64 && !exact)) return {};
  return {f.to(fn(f, f.to(x, DType::kFloat64)), to_float_dtype(f.dtype(x)))};
}

/// c[0] x^k + c[1] x^(k-1) + ...
ValueId polynomial(Portable& f, ValueId x, std::span<const double> c) {
  ValueId y = f.shift(f.scale(x, c[0]), c.size() > 1 ? c[1] : 0);
  for (size_t i = 2; i < c.size(); ++i) y = f.shift(f.mul(y, x), c[i]);
  return y;
}
ValueId absolute(Portable& f, ValueId x) { return f.unary("aten::abs", x); }
ValueId exponential(Portable& f, ValueId x) { return f.unary("aten::exp", x); }
ValueId minus(Portable& f, double a, ValueId x) { return f.b.op("aten::rsub.Scalar", {x, f.b.floating(a)}); }
ValueId negative(Portable& f, ValueId x) { return f.unary("aten::neg", x); }

/// log of the gamma function for x >= 1/2: Lanczos with g = 7.
ValueId lanczos(Portable& f, ValueId x) {
  constexpr double kTerms[] = {676.5203681218851,    -1259.1392167224028,    771.32342877765313,   -176.61502916214059,
                               12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  const ValueId z = f.shift(x, -1);
  ValueId sum;
  for (size_t i = 0; i < std::size(kTerms); ++i) {
    const ValueId term = f.scale(f.unary("aten::reciprocal", f.shift(z, static_cast<double>(i + 1))), kTerms[i]);
    sum = i == 0 ? f.shift(term, 0.99999999999980993) : f.add(sum, term);
  }
  const ValueId t = f.shift(z, 7.5);
  const ValueId log_t = f.unary("aten::log", t);
  constexpr double kHalfLogTwoPi = 0.91893853320467274178;
  return f.add(f.shift(f.sub(f.mul(f.shift(z, 0.5), log_t), t), kHalfLogTwoPi), f.unary("aten::log", sum));
}
/// sin(pi x) with the argument reduced first, so that it is exactly 0 at integers.
ValueId sine_pi(Portable& f, ValueId x) { return f.unary("aten::sin", f.scale(f.sub(x, f.unary("aten::round", x)), kPiInDouble)); }

/// The complementary error function for x >= 0: Chebyshev fit with relative error 1.2e-7 (Numerical Recipes, erfc).
ValueId upper_erfc(Portable& f, ValueId x) {
  constexpr double kTerms[] = {0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223};
  const ValueId t = f.unary("aten::reciprocal", f.shift(f.scale(x, 0.5), 1));
  return f.mul(t, exponential(f, f.sub(polynomial(f, t, kTerms), f.mul(x, x))));
}

/// I0 and I1: polynomials up to 3.75, a factor of exp(x) / sqrt(x) beyond (Abramowitz and Stegun 9.8). scaled: times exp(-|x|).
ValueId bessel(Portable& f, ValueId x, int order, bool scaled) {
  constexpr double kSmall0[] = {0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0};
  constexpr double kLarge0[] = {0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228};
  constexpr double kSmall1[] = {0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5};
  constexpr double kLarge1[] = {-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228};
  const ValueId size = absolute(f, x), ratio = f.scale(x, 1 / 3.75), square = f.mul(ratio, ratio);
  ValueId small = polynomial(f, square, order == 0 ? std::span<const double>(kSmall0) : std::span<const double>(kSmall1));
  if (order == 1) small = f.mul(small, x);
  const ValueId safe = f.b.op("aten::clamp_min", {size, f.b.floating(3.75)});
  ValueId large = polynomial(f, f.scale(f.unary("aten::reciprocal", safe), 3.75), order == 0 ? std::span<const double>(kLarge0) : std::span<const double>(kLarge1));
  large = f.mul(large, f.unary("aten::rsqrt", safe));
  if (order == 1) large = f.mul(large, f.unary("aten::sign", x));
  if (scaled) {
    small = f.mul(small, exponential(f, negative(f, size)));
  } else {
    large = f.mul(large, exponential(f, size));
  }
  return f.where(f.compare("le", size, 3.75), small, large);
}

/// Inverse of the error function: Giles' polynomials (float accuracy), then two steps of Newton in double.
ValueId inverse_erf(Portable& f, ValueId y) {
  constexpr double kCentre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
  constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
  const ValueId w = negative(f, f.unary("aten::log", f.mul(minus(f, 1, y), f.shift(y, 1))));
  const ValueId centre = polynomial(f, f.shift(w, -2.5), kCentre), tail = polynomial(f, f.shift(f.unary("aten::sqrt", w), -3), kTail);
  ValueId x = f.mul(f.where(f.compare("lt", w, 5.0), centre, tail), y);
  for (int step = 0; step < 2; ++step) {
    constexpr double kHalfRootPi = 0.88622692545275801365;
    const ValueId slope = f.scale(exponential(f, f.mul(x, x)), kHalfRootPi);
    x = f.sub(x, f.mul(f.sub(f.unary("aten::erf", x), y), slope));
  }
  const ValueId size = absolute(f, y);
  x = f.where(f.compare("eq", size, 1.0), f.mul(y, f.number(kInfinity, DType::kFloat64)), x);
  return f.where(f.compare("gt", size, 1.0), kNan, x);
}

}  // namespace

Ids portable_erfc(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) {
    const ValueId upper = upper_erfc(f, absolute(f, x));
    return f.where(f.compare("ge", x, 0.0), upper, minus(f, 2, upper));
  });
}
/// exp(x * x) * erfc(x); large for negative x.
Ids portable_erfcx(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) {
    constexpr double kTerms[] = {0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223};
    const ValueId t = f.unary("aten::reciprocal", f.shift(f.scale(absolute(f, x), 0.5), 1));
    const ValueId upper = f.mul(t, exponential(f, polynomial(f, t, kTerms)));
    return f.where(f.compare("ge", x, 0.0), upper, f.sub(f.scale(exponential(f, f.mul(x, x)), 2), upper));
  });
}
Ids portable_lgamma(Builder& b, const NodeView& n) {
  return in_double(b, n, true, [](Portable& f, ValueId x) {
    const ValueId low = f.compare("lt", x, 0.5);
    const ValueId upper = lanczos(f, f.where(low, minus(f, 1, x), x));
    const ValueId reflected = f.sub(minus(f, std::log(kPiInDouble), f.unary("aten::log", absolute(f, sine_pi(f, x)))), upper);
    const ValueId y = f.where(low, reflected, upper);
    return f.where(f.unary("aten::isinf", x), kInfinity, y);
  });
}
Ids portable_digamma(Builder& b, const NodeView& n) {
  return in_double(b, n, true, [](Portable& f, ValueId x) {
    // psi(x) = psi(1 - x) - pi / tan(pi x); psi(x) = psi(x + 1) - 1 / x up to 10; then the asymptotic series.
    const ValueId low = f.compare("lt", x, 0.5);
    ValueId z = f.where(low, minus(f, 1, x), x), below = f.number(0.0, DType::kFloat64);
    for (int i = 0; i < 10; ++i) {
      const ValueId step = f.compare("lt", z, 10.0);
      below = f.add(below, f.where(step, f.unary("aten::reciprocal", z), 0.0));
      z = f.where(step, f.shift(z, 1), z);
    }
    constexpr double kSeries[] = {8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3,
                                  3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2};
    const ValueId inverse = f.unary("aten::reciprocal", z), square = f.mul(inverse, inverse);
    ValueId y = f.sub(f.sub(f.unary("aten::log", z), f.scale(inverse, 0.5)), f.mul(square, polynomial(f, square, kSeries)));
    y = f.sub(y, below);
    const ValueId whole = f.sub(x, f.unary("aten::round", x));
    const ValueId reflected = f.sub(y, f.div(f.number(kPiInDouble, DType::kFloat64), f.unary("aten::tan", f.scale(whole, kPiInDouble))));
    y = f.where(low, reflected, y);
    y = f.where(f.both(f.compare("eq", whole, 0.0), f.compare("lt", x, 0.0)), kNan, y);
    return f.where(f.compare("eq", x, 0.0), f.mul(f.unary("aten::reciprocal", x), f.number(-1.0, DType::kFloat64)), y);
  });
}
Ids portable_erfinv(Builder& b, const NodeView& n) { return in_double(b, n, true, inverse_erf); }
Ids portable_i0(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) { return bessel(f, x, 0, false); });
}
Ids portable_i0e(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) { return bessel(f, x, 0, true); });
}
Ids portable_i1(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) { return bessel(f, x, 1, false); });
}
Ids portable_i1e(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) { return bessel(f, x, 1, true); });
}
/// log of the normal distribution function: through erfc where it is not tiny, through its logarithm where it is.
Ids portable_log_ndtr(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) {
    constexpr double kTerms[] = {0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223};
    constexpr double kRootHalf = 0.70710678118654752440, kLogTwo = 0.69314718055994530942;
    const ValueId z = f.scale(absolute(f, x), kRootHalf), t = f.unary("aten::reciprocal", f.shift(f.scale(z, 0.5), 1));
    const ValueId log_upper = f.add(f.unary("aten::log", t), f.sub(polynomial(f, t, kTerms), f.mul(z, z)));  // log erfc(z)
    const ValueId low = f.shift(log_upper, -kLogTwo);
    const ValueId high = f.unary("aten::log1p", f.scale(exponential(f, log_upper), -0.5));
    return f.where(f.compare("lt", x, 0.0), low, high);
  });
}
/// Inverse of the normal distribution function: sqrt(2) erfinv(2 p - 1).
Ids portable_ndtri(Builder& b, const NodeView& n) {
  return in_double(b, n, false, [](Portable& f, ValueId x) { return f.scale(inverse_erf(f, f.shift(f.scale(x, 2), -1)), 1.41421356237309504880); });
}
/// Below zero, or a zero whose reciprocal is.
Ids portable_signbit(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (is_complex(f.dtype(x))) return {};
  if (!is_floating(f.dtype(x))) return {f.dtype(x) == DType::kBool ? b.op("aten::full_like", {x, b.boolean(false)}) : f.compare("lt", x, Expr(0))};
  const ValueId zero = f.both(f.compare("eq", x, 0.0), f.compare("lt", f.unary("aten::reciprocal", f.wide(x)), 0.0));
  return {f.either(f.compare("lt", x, 0.0), zero)};
}

}  // namespace pteron::ops::unary
