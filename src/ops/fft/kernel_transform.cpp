// Mixed-radix transform (Stockham's order, so no bit reversal), and Bluestein's for lengths with large prime factors.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/fft/transform.h"

namespace pteron::ops::fft {
namespace {

int64_t padded_size(int64_t n) {
  int64_t m = 1;
  while (m < 2 * n) m *= 2;
  return m;
}

int64_t smallest_factor(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

bool has_small_factors(int64_t n) {
  while (n > 1) {
    const int64_t p = smallest_factor(n);
    if (p > kMaxRadix) return false;
    n /= p;
  }
  return true;
}

/// exp(sign * 2 pi i k / n), exact in the octants.
Complex root(int64_t k, int64_t n, double sign) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), sign * std::sin(angle)};
}

Complex times(Complex a, Complex b) {  // without the checks for infinities of operator*
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// One pass: `length` is what is left to transform, `stride` the product of the factors done.
void pass(const Complex* roots, int64_t n, int64_t length, int64_t stride, int64_t radix, const Complex* from, Complex* to) {
  const int64_t rest = length / radix;
  const int64_t unit = n / radix;
  Complex in[kMaxRadix];
  for (int64_t k = 0; k < rest; ++k) {
    for (int64_t q = 0; q < stride; ++q) {
      for (int64_t r = 0; r < radix; ++r) in[r] = from[q + stride * (k + rest * r)];
      Complex* out = to + q + stride * radix * k;
      if (radix == 2) {
        out[0] = in[0] + in[1];
        out[stride] = times(in[0] - in[1], roots[k * stride]);
        continue;
      }
      if (radix == 4) {
        const Complex a = in[0] + in[2], b = in[0] - in[2], c = in[1] + in[3], d = times(in[1] - in[3], roots[unit]);
        out[0] = a + c;
        out[stride] = times(b + d, roots[k * stride]);
        out[2 * stride] = times(a - c, roots[2 * k * stride]);
        out[3 * stride] = times(b - d, roots[3 * k * stride]);
        continue;
      }
      for (int64_t t = 0; t < radix; ++t) {
        Complex sum = in[0];
        for (int64_t r = 1; r < radix; ++r) sum += times(in[r], roots[r * t % radix * unit]);
        out[t * stride] = times(sum, roots[k * t * stride]);
      }
    }
  }
}

void mixed_radix(const Complex* roots, int64_t n, Complex* line, Complex* other) {
  Complex* from = line;
  Complex* to = other;
  int64_t stride = 1;
  for (int64_t length = n; length > 1;) {
    const int64_t radix = smallest_factor(length);
    pass(roots, n, length, stride, radix, from, to);
    std::swap(from, to);
    length /= radix;
    stride *= radix;
  }
  if (from != line) std::copy(from, from + n, line);
}

}  // namespace

int64_t next_radix(int64_t length) { return smallest_factor(length); }

int64_t table_size(int64_t n) { return std::max<int64_t>(n, 1) + 2 * padded_size(std::max<int64_t>(n, 1)); }
int64_t work_size(int64_t n) { return 2 * padded_size(std::max<int64_t>(n, 1)); }

Plan make_plan(int64_t n, bool forward, Complex* table, Complex* work) {
  const double sign = forward ? -1 : 1;
  Plan plan;
  plan.n = n;
  plan.chirp = !has_small_factors(n);
  if (!plan.chirp) {
    for (int64_t k = 0; k < n; ++k) table[k] = root(k, n, sign);
    plan.roots = table;
    return plan;
  }
  plan.padded = padded_size(n);
  Complex* phases = table;
  Complex* roots = phases + n;
  Complex* kernel = roots + plan.padded;
  for (int64_t k = 0; k < n; ++k) phases[k] = root(k * k % (2 * n), 2 * n, sign);
  for (int64_t k = 0; k < plan.padded; ++k) roots[k] = root(k, plan.padded, -1);
  std::fill(kernel, kernel + plan.padded, Complex());
  for (int64_t k = 0; k < n; ++k) kernel[k] = kernel[(plan.padded - k) % plan.padded] = std::conj(phases[k]);
  mixed_radix(roots, plan.padded, kernel, work);
  for (int64_t k = 0; k < plan.padded; ++k) kernel[k] /= static_cast<double>(plan.padded);
  plan.roots = roots;
  plan.phases = phases;
  plan.kernel = kernel;
  return plan;
}

void transform(const Plan& plan, Complex* line, Complex* work) {
  if (!plan.chirp) {
    mixed_radix(plan.roots, plan.n, line, work);
    return;
  }
  // A product with a chirp, a cyclic convolution with the opposite chirp, and a product again.
  Complex* padded = work;
  Complex* other = work + plan.padded;
  for (int64_t k = 0; k < plan.n; ++k) padded[k] = times(line[k], plan.phases[k]);
  std::fill(padded + plan.n, padded + plan.padded, Complex());
  mixed_radix(plan.roots, plan.padded, padded, other);
  for (int64_t k = 0; k < plan.padded; ++k) padded[k] = std::conj(times(padded[k], plan.kernel[k]));
  mixed_radix(plan.roots, plan.padded, padded, other);  // conjugated twice: the inverse
  for (int64_t k = 0; k < plan.n; ++k) line[k] = times(std::conj(padded[k]), plan.phases[k]);
}

}  // namespace pteron::ops::fft
