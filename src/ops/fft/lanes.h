// The transform of several lines at once, a line a lane: element k of all lines lies together (kLanes real parts, then kLanes imaginary parts), so
// every loop runs along lanes and vectorises whatever the radix and the pass. Used by kernel.cpp for lengths without large prime factors.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/fft/transform.h"

namespace pteron::ops::fft {

/// Lines in one vector register.
template <typename R>
inline constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(R));

template <typename R>
struct Twiddle {
  R re, im;
  explicit Twiddle(Complex w) : re(static_cast<R>(w.real())), im(static_cast<R>(w.imag())) {}
};

/// One pass over lanes: see pass() in kernel_transform.cpp. roots[k * root_step] is the k-th root of order n.
template <typename R>
void lanes_pass(const Complex* roots, int64_t root_step, int64_t n, int64_t length, int64_t stride, int64_t radix, const R* from, R* to) {
  constexpr int64_t L = kLanes<R>;
  const int64_t rest = length / radix, unit = n / radix;
  const auto root_at = [&](int64_t k) { return Twiddle<R>(roots[k * root_step]); };
  const R turn = roots[unit * root_step].imag() < 0 ? R(-1) : R(1);  // radix 4: the root -i or i
  for (int64_t k = 0; k < rest; ++k) {
    const R* in = from + 2 * L * stride * k;
    R* out = to + 2 * L * stride * radix * k;
    const int64_t hop = 2 * L * stride * rest, step = 2 * L * stride;
    if (radix == 2) {
      const Twiddle<R> w = root_at(k * stride);
      for (int64_t q = 0; q < stride; ++q, in += 2 * L, out += 2 * L) {
        for (int64_t l = 0; l < L; ++l) {
          const R ar = in[l], ai = in[L + l], br = in[hop + l], bi = in[hop + L + l];
          const R dr = ar - br, di = ai - bi;
          out[l] = ar + br, out[L + l] = ai + bi;
          out[step + l] = dr * w.re - di * w.im, out[step + L + l] = dr * w.im + di * w.re;
        }
      }
      continue;
    }
    if (radix == 4) {
      const Twiddle<R> w1 = root_at(k * stride), w2 = root_at(2 * k * stride), w3 = root_at(3 * k * stride);
      for (int64_t q = 0; q < stride; ++q, in += 2 * L, out += 2 * L) {
        for (int64_t l = 0; l < L; ++l) {
          const R ar = in[l] + in[2 * hop + l], ai = in[L + l] + in[2 * hop + L + l], br = in[l] - in[2 * hop + l], bi = in[L + l] - in[2 * hop + L + l];
          const R cr = in[hop + l] + in[3 * hop + l], ci = in[hop + L + l] + in[3 * hop + L + l];
          const R er = in[hop + l] - in[3 * hop + l], ei = in[hop + L + l] - in[3 * hop + L + l];
          const R dr = -turn * ei, di = turn * er;  // times the root
          const R sr = br + dr, si = bi + di, tr = ar - cr, ti = ai - ci, ur = br - dr, ui = bi - di;
          out[l] = ar + cr, out[L + l] = ai + ci;
          out[step + l] = sr * w1.re - si * w1.im, out[step + L + l] = sr * w1.im + si * w1.re;
          out[2 * step + l] = tr * w2.re - ti * w2.im, out[2 * step + L + l] = tr * w2.im + ti * w2.re;
          out[3 * step + l] = ur * w3.re - ui * w3.im, out[3 * step + L + l] = ur * w3.im + ui * w3.re;
        }
      }
      continue;
    }
    for (int64_t q = 0; q < stride; ++q, in += 2 * L, out += 2 * L) {
      for (int64_t t = 0; t < radix; ++t) {
        R sum[2 * L];
        for (int64_t l = 0; l < 2 * L; ++l) sum[l] = in[l];
        for (int64_t r = 1; r < radix; ++r) {
          const Twiddle<R> w = root_at(r * t % radix * unit);
          const R* x = in + r * hop;
          for (int64_t l = 0; l < L; ++l) {
            sum[l] += x[l] * w.re - x[L + l] * w.im;
            sum[L + l] += x[l] * w.im + x[L + l] * w.re;
          }
        }
        const Twiddle<R> w = root_at(k * t * stride);
        for (int64_t l = 0; l < L; ++l) {
          out[t * step + l] = sum[l] * w.re - sum[L + l] * w.im;
          out[t * step + L + l] = sum[l] * w.im + sum[L + l] * w.re;
        }
      }
    }
  }
}

/// Transforms n elements of all lanes; the result lies in the buffer that is returned. Requires: n has small factors; both have 2 * n * kLanes values.
template <typename R>
R* lanes_transform(const Complex* roots, int64_t root_step, int64_t n, R* line, R* other) {
  int64_t stride = 1;
  for (int64_t length = n; length > 1;) {
    const int64_t radix = next_radix(length);
    lanes_pass(roots, root_step, n, length, stride, radix, line, other);
    std::swap(line, other);
    length /= radix;
    stride *= radix;
  }
  return line;
}

/// Elements 0..m of the spectrum of 2m real values from the spectrum of m complex ones (pairs of neighbours), in place over m + 1 elements.
/// roots: of order 2m, forward.
template <typename R>
void lanes_split_real(const Complex* roots, int64_t m, R* line) {
  constexpr int64_t L = kLanes<R>;
  std::copy_n(line, 2 * L, line + 2 * L * m);  // the spectrum is periodic
  for (int64_t k = 0; k <= m / 2; ++k) {
    const Twiddle<R> w(roots[k]);
    R* a = line + 2 * L * k;
    R* b = line + 2 * L * (m - k);
    for (int64_t l = 0; l < L; ++l) {
      const R er = R(0.5) * (a[l] + b[l]), ei = R(0.5) * (a[L + l] - b[L + l]);           // even samples
      const R or_ = R(0.5) * (a[L + l] + b[L + l]), oi = R(0.5) * (b[l] - a[l]);           // odd ones
      const R tr = or_ * w.re - oi * w.im, ti = or_ * w.im + oi * w.re;
      a[l] = er + tr, a[L + l] = ei + ti;
      b[l] = er - tr, b[L + l] = ti - ei;
    }
  }
}

/// The opposite: m complex values whose inverse transform has neighbouring pairs of the real line. roots: of order 2m, inverse.
template <typename R>
void lanes_join_real(const Complex* roots, int64_t m, R* line) {
  constexpr int64_t L = kLanes<R>;
  for (int64_t k = 0; k <= m / 2; ++k) {
    const Twiddle<R> w(roots[k]);
    R* a = line + 2 * L * k;
    R* b = line + 2 * L * (m - k);
    for (int64_t l = 0; l < L; ++l) {
      const R er = a[l] + b[l], ei = a[L + l] - b[L + l], dr = a[l] - b[l], di = a[L + l] + b[L + l];
      const R tr = dr * w.re - di * w.im, ti = dr * w.im + di * w.re;  // times the root
      a[l] = er - ti, a[L + l] = ei + tr;
      b[l] = er + ti, b[L + l] = tr - ei;
    }
  }
}

}  // namespace pteron::ops::fft
