// Special functions in double. Methods: power series where all terms have one sign, asymptotic series, recurrences, Euler-Maclaurin sums,
// Lentz continued fractions, Newton and Halley steps on the C library's erf and erfc. Errors are a few units of 1e-15 relative.
#include <array>
#include <cmath>
#include <limits>

#include "ops/unary/special.h"

namespace pteron::ops::special {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// Even Bernoulli numbers B2, B4, ... B24.
constexpr std::array<double, 12> kBernoulli = {1.0 / 6,  -1.0 / 30,       1.0 / 42,  -1.0 / 30,          5.0 / 66,      -691.0 / 2730,
                                               7.0 / 6,  -3617.0 / 510,   43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730};

/// I_order(x) * exp(-x) for x >= 0 and order 0 or 1.
double scaled_bessel_i(int order, double x) {
  if (x <= 20) {
    double term = order == 0 ? 1.0 : x / 2;
    double sum = term;
    const double square = x * x / 4;
    for (int k = 1; k < 200 && term > sum * 1e-18; ++k) {
      term *= square / (static_cast<double>(k) * (k + order));
      sum += term;
    }
    return sum * std::exp(-x);
  }
  // Asymptotic series; at x >= 20 its smallest term is below exp(-40).
  const double mu = order == 0 ? 0 : 4;
  double term = 1, sum = 1;
  for (int k = 1; k < 60; ++k) {
    const double odd = 2.0 * k - 1;
    const double next = -term * (mu - odd * odd) / (8.0 * x * k);
    if (std::fabs(next) >= std::fabs(term)) break;
    term = next;
    sum += term;
    if (std::fabs(term) < 1e-18 * std::fabs(sum)) break;
  }
  return sum / std::sqrt(2 * kPi * x);
}

/// Winitzki's approximation of the inverse error function, a start within 2e-3; one_minus = 1 - |x|.
double erfinv_start(double log_one_minus_square) {
  constexpr double a = 0.147;
  const double t = 2 / (kPi * a) + log_one_minus_square / 2;
  return std::sqrt(std::sqrt(t * t - log_one_minus_square / a) - t);
}

/// y > 0 with erfc(y) = q, q in (0, 1].
double erfcinv_positive(double q) {
  double y = erfinv_start(std::log(q * (2 - q)));
  for (int step = 0; step < 4; ++step) {
    // Newton on log(erfc): the tail is nearly straight there.
    const double value = std::erfc(y);
    if (value <= 0) break;
    const double slope = kTwoOverSqrtPi * std::exp(-y * y) / value;
    y += std::log(value / q) / slope;
    if (y < 0) y = 0;
  }
  return y;
}

}  // namespace

double erfinv(double x) {
  if (!(std::fabs(x) <= 1)) return kNotANumber;
  if (std::fabs(x) == 1) return std::copysign(kInfinity, x);
  const double a = std::fabs(x);
  if (a > 0.5) return std::copysign(erfcinv_positive(1 - a), x);
  double y = erfinv_start(std::log1p(-a * a));
  for (int step = 0; step < 3; ++step) {
    const double error = std::erf(y) - a;
    const double slope = kTwoOverSqrtPi * std::exp(-y * y);
    y -= error / (slope + y * error);
  }
  return std::copysign(a == 0 ? 0 : y, x);
}

double erfcinv(double x) {
  if (!(x >= 0 && x <= 2)) return kNotANumber;
  if (x == 0) return kInfinity;
  if (x == 2) return -kInfinity;
  if (x > 0.5 && x < 1.5) return erfinv(1 - x);
  return x < 1 ? erfcinv_positive(x) : -erfcinv_positive(2 - x);
}

double ndtri(double x) { return -1.41421356237309504880 * erfcinv(2 * x); }

double digamma(double x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (x < 0) {
    if (x == std::trunc(x)) return kNotANumber;
    double whole;
    const double fraction = std::modf(x, &whole);
    return digamma(1 - x) - kPi / std::tan(kPi * fraction);
  }
  if (!(x < kInfinity)) return x;
  double result = 0;
  while (x < 10) {
    result -= 1 / x;
    x += 1;
  }
  const double square = 1 / (x * x);
  double power = square, tail = 0;
  for (int k = 0; k < 8; ++k) {
    tail += kBernoulli[static_cast<size_t>(k)] / (2 * (k + 1)) * power;
    power *= square;
  }
  return result + std::log(x) - 0.5 / x - tail;
}

double trigamma(double x) {
  if (x < 0.5) {
    const double s = std::sin(kPi * x);
    return kPi * kPi / (s * s) - trigamma(1 - x);
  }
  return zeta(2, x);
}

double zeta(double x, double q) {
  if (x == 1) return kInfinity;
  if (!(x > 1)) return kNotANumber;
  if (q <= 0) {
    if (q == std::floor(q)) return kInfinity;
    if (x != std::floor(x)) return kNotANumber;
  }
  // Terms up to a >= 12, then Euler-Maclaurin.
  double sum = 0, a = q;
  int count = 0;
  while (a < 12 || count < 10) {
    sum += std::pow(a, -x);
    a += 1;
    ++count;
  }
  const double power = std::pow(a, -x);
  sum += power * a / (x - 1) + 0.5 * power;
  double factor = x, scale = power / a;
  double factorial = 2;
  for (int k = 0; k < 12; ++k) {
    const double term = kBernoulli[static_cast<size_t>(k)] / factorial * factor * scale;
    sum += term;
    if (std::fabs(term) < 1e-18 * std::fabs(sum)) break;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2);
    scale /= a * a;
    factorial *= (2.0 * k + 3) * (2.0 * k + 4);
  }
  return sum;
}

double polygamma(int64_t n, double x) {
  if (n == 0) return digamma(x);
  if (n == 1) return trigamma(x);
  const double size = std::exp(lgamma(static_cast<double>(n) + 1)) * zeta(static_cast<double>(n) + 1, x);
  return n % 2 == 0 ? -size : size;
}

double i0e(double x) { return std::isnan(x) ? x : scaled_bessel_i(0, std::fabs(x)); }
double i0(double x) { return i0e(x) * std::exp(std::fabs(x)); }
double i1e(double x) { return std::isnan(x) ? x : std::copysign(scaled_bessel_i(1, std::fabs(x)), x); }
double i1(double x) { return i1e(x) * std::exp(std::fabs(x)); }

double lgamma(double x) {
  int sign = 0;  // the reentrant form: std::lgamma writes a global
  return ::lgamma_r(x, &sign);
}

double bessel_j0(double x) { return ::j0(x); }
double bessel_j1(double x) { return ::j1(x); }
double bessel_y0(double x) { return ::y0(x); }
double bessel_y1(double x) { return ::y1(x); }

double erfcx(double x) {
  if (x < 20) return std::exp(x * x) * std::erfc(x);
  const double square = 1 / (2 * x * x);
  double term = 1, sum = 1;
  for (int k = 1; k < 12; ++k) {
    term *= -(2.0 * k - 1) * square;
    sum += term;
  }
  return x < kInfinity ? sum / (x * 1.77245385090551602730) : (x > 0 ? 0 : x);
}

double log_ndtr(double x) {
  const double t = x * 0.70710678118654752440;
  if (x < -1) return std::log(erfcx(-t) / 2) - t * t;
  return std::log1p(-std::erfc(t) / 2);
}

namespace {

double igamma_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (int k = 1; k < 2000; ++k) {
    term *= x / (a + k);
    sum += term;
    if (term < sum * 1e-17) break;
  }
  return sum * std::exp(a * std::log(x) - x - lgamma(a));
}

double igammac_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, h = d;
  for (int k = 1; k < 2000; ++k) {
    const double an = -k * (k - a);
    b += 2;
    d = an * d + b;
    if (std::fabs(d) < kTiny) d = kTiny;
    c = b + an / c;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double delta = d * c;
    h *= delta;
    if (std::fabs(delta - 1) < 1e-16) break;
  }
  return h * std::exp(a * std::log(x) - x - lgamma(a));
}

}  // namespace

double igamma(double a, double x) {
  if (!(a >= 0) || !(x >= 0)) return kNotANumber;
  if (a == 0) return x > 0 ? 1 : kNotANumber;
  if (x == 0) return 0;
  if (std::isinf(a)) return std::isinf(x) ? kNotANumber : 0;
  if (std::isinf(x)) return 1;
  return x < a + 1 ? igamma_series(a, x) : 1 - igammac_fraction(a, x);
}

double igammac(double a, double x) {
  if (!(a >= 0) || !(x >= 0)) return kNotANumber;
  if (a == 0) return x > 0 ? 0 : kNotANumber;
  if (x == 0) return 1;
  if (std::isinf(a)) return std::isinf(x) ? kNotANumber : 1;
  if (std::isinf(x)) return 0;
  return x < a + 1 ? 1 - igamma_series(a, x) : igammac_fraction(a, x);
}

}  // namespace pteron::ops::special
