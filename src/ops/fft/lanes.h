// The transform of several lines at once, a line a lane: element k of all lines lies together (kLanes real parts, then kLanes imaginary parts), so
// every loop runs along lanes and vectorises whatever the radix and the pass. Used by kernel.cpp for lengths without large prime factors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/fft/transform.h"

namespace pteron::ops::fft {

/// Lines in one vector register.
template <typename R>
inline constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(R));

/// One part (real or imaginary) of one element of all lines. Spelled out, since g++ unrolls loops over so few lanes before it looks for vectors.
template <typename R>
struct LaneVector {
  typedef R Type __attribute__((vector_size(32)));
};
template <typename R>
using Lane = typename LaneVector<R>::Type;

template <typename R>
inline Lane<R> load_lane(const R* from) {
  Lane<R> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename R>
inline void store_lane(R* to, const Lane<R>& v) {
  std::memcpy(to, &v, sizeof v);
}

template <typename R>
struct Twiddle {
  R re, im;
  explicit Twiddle(Complex w) : re(static_cast<R>(w.real())), im(static_cast<R>(w.imag())) {}
};

/// An element of all lines.
template <typename R>
struct LaneComplex {
  Lane<R> re, im;

  static LaneComplex load(const R* from) { return {load_lane(from), load_lane(from + kLanes<R>)}; }
  void store(R* to) const {
    store_lane(to, re);
    store_lane(to + kLanes<R>, im);
  }
  LaneComplex operator+(const LaneComplex& o) const { return {re + o.re, im + o.im}; }
  LaneComplex operator-(const LaneComplex& o) const { return {re - o.re, im - o.im}; }
  LaneComplex operator*(const Twiddle<R>& w) const { return {re * w.re - im * w.im, re * w.im + im * w.re}; }
};

/// Where a pass is: see pass() in kernel_transform.cpp. roots[k * root_step] is the k-th root of order n.
struct LanePass {
  const Complex* roots;
  int64_t root_step, n, length, stride;
};

template <typename R>
void lanes_pass2(const LanePass& p, const R* from, R* to) {
  using C = LaneComplex<R>;
  constexpr int64_t L = kLanes<R>;
  const int64_t rest = p.length / 2, step = 2 * L * p.stride, hop = step * rest;
  for (int64_t k = 0; k < rest; ++k) {
    const Twiddle<R> w(p.roots[k * p.stride * p.root_step]);
    const R* in = from + step * k;
    R* out = to + 2 * step * k;
    for (int64_t q = 0; q < p.stride; ++q, in += 2 * L, out += 2 * L) {
      const C a = C::load(in), b = C::load(in + hop);
      (a + b).store(out);
      ((a - b) * w).store(out + step);
    }
  }
}

template <typename R>
void lanes_pass4(const LanePass& p, const R* from, R* to) {
  using C = LaneComplex<R>;
  constexpr int64_t L = kLanes<R>;
  const int64_t rest = p.length / 4, step = 2 * L * p.stride, hop = step * rest;
  const R turn = p.roots[p.n / 4 * p.root_step].imag() < 0 ? R(-1) : R(1);  // the root -i or i
  const auto root_at = [&](int64_t k) { return Twiddle<R>(p.roots[k * p.stride * p.root_step]); };
  for (int64_t k = 0; k < rest; ++k) {
    const Twiddle<R> w1 = root_at(k), w2 = root_at(2 * k), w3 = root_at(3 * k);
    const R* in = from + step * k;
    R* out = to + 4 * step * k;
    for (int64_t q = 0; q < p.stride; ++q, in += 2 * L, out += 2 * L) {
      const C x0 = C::load(in), x1 = C::load(in + hop), x2 = C::load(in + 2 * hop), x3 = C::load(in + 3 * hop);
      const C a = x0 + x2, b = x0 - x2, c = x1 + x3, e = x1 - x3;
      const C d{-turn * e.im, turn * e.re};
      (a + c).store(out);
      ((b + d) * w1).store(out + step);
      ((a - c) * w2).store(out + 2 * step);
      ((b - d) * w3).store(out + 3 * step);
    }
  }
}

/// An odd radix: of x[r] and x[radix - r] only the sum and the difference matter.
template <typename R>
void lanes_pass_odd(const LanePass& p, int64_t radix, const R* from, R* to) {
  using C = LaneComplex<R>;
  constexpr int64_t L = kLanes<R>;
  const int64_t rest = p.length / radix, step = 2 * L * p.stride, hop = step * rest, half = radix / 2;
  R cosine[kMaxRadix], sine[kMaxRadix];
  for (int64_t r = 0; r < radix; ++r) {
    const Twiddle<R> w(p.roots[p.n / radix * r * p.root_step]);
    cosine[r] = w.re, sine[r] = w.im;
  }
  C sums[kMaxRadix / 2 + 1], differences[kMaxRadix / 2 + 1];
  for (int64_t k = 0; k < rest; ++k) {
    const R* in = from + step * k;
    R* out = to + radix * step * k;
    for (int64_t q = 0; q < p.stride; ++q, in += 2 * L, out += 2 * L) {
      const C first = C::load(in);
      C all = first;
      for (int64_t r = 1; r <= half; ++r) {
        const C a = C::load(in + r * hop), b = C::load(in + (radix - r) * hop);
        sums[r] = a + b, differences[r] = a - b;
        all = all + sums[r];
      }
      all.store(out);
      for (int64_t t = 1; t <= half; ++t) {
        C even = first, odd{};
        for (int64_t r = 1, at = t; r <= half; ++r, at = at + t < radix ? at + t : at + t - radix) {
          even.re += sums[r].re * cosine[at], even.im += sums[r].im * cosine[at];
          odd.re -= differences[r].im * sine[at], odd.im += differences[r].re * sine[at];
        }
        ((even + odd) * Twiddle<R>(p.roots[k * t * p.stride * p.root_step])).store(out + t * step);
        ((even - odd) * Twiddle<R>(p.roots[k * (radix - t) * p.stride * p.root_step])).store(out + (radix - t) * step);
      }
    }
  }
}

/// Transforms n elements of all lanes; the result lies in the buffer that is returned. Requires: n has small factors; both have 2 * n * kLanes values.
template <typename R>
R* lanes_transform(const Complex* roots, int64_t root_step, int64_t n, R* line, R* other) {
  LanePass pass{roots, root_step, n, n, 1};
  while (pass.length > 1) {
    const int64_t radix = next_radix(pass.length);
    if (radix == 2) {
      lanes_pass2(pass, line, other);
    } else if (radix == 4) {
      lanes_pass4(pass, line, other);
    } else {
      lanes_pass_odd(pass, radix, line, other);
    }
    std::swap(line, other);
    pass.length /= radix;
    pass.stride *= radix;
  }
  return line;
}

/// Elements 0..m of the spectrum of 2m real values from the spectrum of m complex ones (pairs of neighbours), in place over m + 1 elements.
/// roots: of order 2m, forward.
template <typename R>
void lanes_split_real(const Complex* roots, int64_t m, R* line) {
  using C = LaneComplex<R>;
  constexpr int64_t L = kLanes<R>;
  std::copy_n(line, 2 * L, line + 2 * L * m);  // the spectrum is periodic
  for (int64_t k = 0; k <= m / 2; ++k) {
    R* low = line + 2 * L * k;
    R* high = line + 2 * L * (m - k);
    const C a = C::load(low), b = C::load(high);
    const C even{R(0.5) * (a.re + b.re), R(0.5) * (a.im - b.im)}, odd{R(0.5) * (a.im + b.im), R(0.5) * (b.re - a.re)};  // of the samples
    const C turned = odd * Twiddle<R>(roots[k]);
    (even + turned).store(low);
    C{even.re - turned.re, turned.im - even.im}.store(high);
  }
}

/// The opposite: m complex values whose inverse transform has neighbouring pairs of the real line. roots: of order 2m, inverse.
template <typename R>
void lanes_join_real(const Complex* roots, int64_t m, R* line) {
  using C = LaneComplex<R>;
  constexpr int64_t L = kLanes<R>;
  for (int64_t k = 0; k <= m / 2; ++k) {
    R* low = line + 2 * L * k;
    R* high = line + 2 * L * (m - k);
    const C a = C::load(low), b = C::load(high);
    const C even{a.re + b.re, a.im - b.im}, difference{a.re - b.re, a.im + b.im};
    const C turned = difference * Twiddle<R>(roots[k]);
    C{even.re - turned.im, even.im + turned.re}.store(low);
    C{even.re + turned.im, turned.re - even.im}.store(high);
  }
}

// ---- lines in memory and lanes: kLanes lines are a matrix that is turned block by block

namespace detail {

/// Turns a square block of numbers: v[i][j] becomes v[j][i].
inline void turn_block(Lane<float>* v) {
  Lane<float> a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    b[i + 2] = __builtin_shufflevector(a[i + 1], a[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    b[i + 3] = __builtin_shufflevector(a[i + 1], a[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
inline void turn_block(Lane<double>* v) {
  Lane<double> a[4];
  for (int i = 0; i < 4; i += 2) {
    a[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 4, 2, 6);
    a[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 1, 5, 3, 7);
  }
  for (int i = 0; i < 2; ++i) {
    v[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 4, 5);
    v[i + 2] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 6, 7);
  }
}

inline void part_lanes(const Lane<float>& a, const Lane<float>& b, LaneComplex<float>* out) {
  out->re = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  out->im = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
inline void part_lanes(const Lane<double>& a, const Lane<double>& b, LaneComplex<double>* out) {
  out->re = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  out->im = __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
inline void pair_lanes(const LaneComplex<float>& v, Lane<float>* a, Lane<float>* b) {
  *a = __builtin_shufflevector(v.re, v.im, 0, 8, 1, 9, 2, 10, 3, 11);
  *b = __builtin_shufflevector(v.re, v.im, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline void pair_lanes(const LaneComplex<double>& v, Lane<double>* a, Lane<double>* b) {
  *a = __builtin_shufflevector(v.re, v.im, 0, 4, 1, 5);
  *b = __builtin_shufflevector(v.re, v.im, 2, 6, 3, 7);
}

}  // namespace detail

/// count numbers of each of kLanes dense lines (complex ones are pairs of numbers): number k of all lines comes to line[k * kLanes].
template <typename R>
void read_dense_lines(const R* const* from, int64_t count, R* line) {
  constexpr int64_t L = kLanes<R>;
  int64_t k = 0;
  for (; k + L <= count; k += L) {
    Lane<R> block[L];
    for (int64_t l = 0; l < L; ++l) block[l] = load_lane(from[l] + k);
    detail::turn_block(block);
    for (int64_t l = 0; l < L; ++l) store_lane(line + (k + l) * L, block[l]);
  }
  for (; k < count; ++k) {
    for (int64_t l = 0; l < L; ++l) line[k * L + l] = from[l][k];
  }
}
/// The opposite, every number times `factor`.
template <typename R>
void write_dense_lines(const R* line, int64_t count, R factor, R* const* to) {
  constexpr int64_t L = kLanes<R>;
  int64_t k = 0;
  for (; k + L <= count; k += L) {
    Lane<R> block[L];
    for (int64_t l = 0; l < L; ++l) block[l] = load_lane(line + (k + l) * L) * factor;
    detail::turn_block(block);
    for (int64_t l = 0; l < L; ++l) store_lane(to[l] + k, block[l]);
  }
  for (; k < count; ++k) {
    for (int64_t l = 0; l < L; ++l) to[l][k] = line[k * L + l] * factor;
  }
}

/// count elements of kLanes complex lines that lie side by side, `hop` numbers from element to element.
template <typename R>
void read_near_lines(const R* from, int64_t hop, int64_t count, R* line) {
  constexpr int64_t L = kLanes<R>;
  for (int64_t k = 0; k < count; ++k) {
    LaneComplex<R> v;
    detail::part_lanes(load_lane(from + k * hop), load_lane(from + k * hop + L), &v);
    v.store(line + 2 * L * k);
  }
}
/// The opposite, every element times `factor`.
template <typename R>
void write_near_lines(const R* line, int64_t count, R factor, R* to, int64_t hop) {
  constexpr int64_t L = kLanes<R>;
  for (int64_t k = 0; k < count; ++k) {
    Lane<R> a, b;
    LaneComplex<R> v = LaneComplex<R>::load(line + 2 * L * k);
    v.re *= factor, v.im *= factor;
    detail::pair_lanes(v, &a, &b);
    store_lane(to + k * hop, a);
    store_lane(to + k * hop + L, b);
  }
}

}  // namespace pteron::ops::fft
