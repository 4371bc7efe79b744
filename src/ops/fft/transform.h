// Discrete Fourier transform of one line of any length, in double. Runtime half; used by kernel.cpp.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

namespace pteron::ops::fft {

using Complex = std::complex<double>;

/// Largest prime factor that has a pass of its own; larger ones cost too much as plain sums of products.
inline constexpr int64_t kMaxRadix = 61;

/// The radix of the next pass of a transform of `length` elements.
int64_t next_radix(int64_t length);

/// Values that the tables of a transform of length n or less need.
int64_t table_size(int64_t n);
/// Values that each line's work needs.
int64_t work_size(int64_t n);

/// Tables of one length and direction, in memory of the caller.
struct Plan {
  int64_t n = 0;
  bool chirp = false;           ///< Bluestein's form: n has a prime factor that is too large
  int64_t padded = 0;           ///< length of its convolution, a power of two
  const Complex* roots = nullptr;         ///< exp(-+ 2 pi i k / n), or of the padded length (always forward) if chirp
  const Complex* phases = nullptr;        ///< chirp: exp(-+ pi i k^2 / n)
  const Complex* kernel = nullptr;        ///< chirp: transform of the conjugate phases, divided by padded
};

/// Requires: table has table_size(n) values, work has work_size(n).
Plan make_plan(int64_t n, bool forward, Complex* table, Complex* work);
/// Transforms line[0, n) in place. Requires: work has work_size(n) values, line has n.
void transform(const Plan& plan, Complex* line, Complex* work);

}  // namespace pteron::ops::fft
