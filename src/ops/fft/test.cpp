// Fourier transforms against the sums of the definition: every kind of length (powers of two, odd factors, primes that take a chirp), one line and
// several, lines that are dense, that lie side by side, and that have gaps.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>
#include <vector>

#include "ops/call_kernel.h"

namespace pteron::ops {
namespace {

using Wide = std::complex<double>;

/// Where element k of line i lies: i * line + k * element.
struct LineLayout {
  int64_t line, element;
};
TensorView view_of(DType dtype, int64_t lines, int64_t n, const LineLayout& layout, void* data) {
  TensorView view = make_contiguous_view(dtype, std::vector<int64_t>{lines, n}, data);
  view.stride_array[0] = layout.line;
  view.stride_array[1] = layout.element;
  return view;
}

std::vector<Wide> transform_of(const std::vector<Wide>& x, bool forward) {
  const size_t n = x.size();
  std::vector<Wide> roots(n), out(n);
  for (size_t k = 0; k < n; ++k) roots[k] = std::polar(1.0, (forward ? -2 : 2) * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < n; ++i) out[k] += x[i] * roots[i * k % n];
  }
  return out;
}

enum class FftKind { kForward, kInverse, kRealHalf, kRealFull, kToReal };

template <typename T>
struct FftCase {
  FftKind kind;
  int64_t lines, n;
  std::mt19937 random{7};

  int64_t in_count() const { return kind == FftKind::kToReal ? n / 2 + 1 : n; }
  int64_t out_count() const { return kind == FftKind::kRealHalf ? n / 2 + 1 : n; }
  bool reads_real() const { return kind == FftKind::kRealHalf || kind == FftKind::kRealFull; }

  std::vector<Wide> make_line() {
    std::vector<Wide> x(static_cast<size_t>(n));
    std::uniform_real_distribution<float> number(-1, 1);
    for (Wide& v : x) v = Wide(number(random), reads_real() ? 0.0f : number(random));
    if (kind != FftKind::kToReal) return x;
    const auto size = static_cast<size_t>(n);
    for (size_t k = 0; k < size; ++k) {  // conjugate symmetric
      if (k == 0 || 2 * k == size) x[k] = x[k].real();
      if (2 * k > size) x[k] = std::conj(x[size - k]);
    }
    return x;
  }

  void check(const LineLayout& in, const LineLayout& out) {
    constexpr DType kReal = std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;
    constexpr DType kComplex = std::is_same_v<T, float> ? DType::kComplexFloat : DType::kComplexDouble;
    std::vector<std::vector<Wide>> x;
    std::vector<std::complex<T>> from(static_cast<size_t>((lines + 1) * (in_count() + 1) * 3)), to(static_cast<size_t>(lines * out_count()));
    for (int64_t i = 0; i < lines; ++i) {
      x.push_back(make_line());
      for (int64_t k = 0; k < in_count(); ++k) {
        const Wide v = x.back()[static_cast<size_t>(k)];
        const auto at = static_cast<size_t>(i * in.line + k * in.element);
        if (reads_real()) {
          reinterpret_cast<T*>(from.data())[at] = static_cast<T>(v.real());
        } else {
          // Imaginary parts that cannot be in the spectrum of real numbers do not count.
          const bool ignored = kind == FftKind::kToReal && (k == 0 || 2 * k == n);
          from[at] = {static_cast<T>(v.real()), ignored ? T(9) : static_cast<T>(v.imag())};
        }
      }
    }
    KernelCallBuilder call;
    call.tensor(view_of(reads_real() ? kReal : kComplex, lines, in_count(), in, from.data())).integers({1}).integer(0);
    if (kind == FftKind::kToReal) {
      call.integer(n);
    } else {
      call.boolean(kind == FftKind::kForward || kind == FftKind::kRealHalf);
    }
    call.tensor(view_of(kind == FftKind::kToReal ? kReal : kComplex, lines, out_count(), out, to.data()));
    const Status status = call.call(kind == FftKind::kToReal ? "aten::_fft_c2r.out" : reads_real() ? "aten::_fft_r2c.out" : "aten::_fft_c2c.out", serial_pool());
    ASSERT_TRUE(status.ok()) << status.message();
    const double tolerance = (std::is_same_v<T, float> ? 1e-6 : 1e-13) * (1 + std::sqrt(static_cast<double>(n)));
    for (int64_t i = 0; i < lines; ++i) {
      const std::vector<Wide> expected = transform_of(x[static_cast<size_t>(i)], kind != FftKind::kInverse && kind != FftKind::kToReal);
      for (int64_t k = 0; k < out_count(); ++k) {
        const auto at = static_cast<size_t>(i * out.line + k * out.element);
        const Wide found = kind == FftKind::kToReal ? Wide(reinterpret_cast<const T*>(to.data())[at]) : Wide(to[at]);
        ASSERT_LE(std::abs(found - expected[static_cast<size_t>(k)]), tolerance)
            << "kind " << static_cast<int>(kind) << ", " << lines << " lines of " << n << ", line " << i << " element " << k << ", strides " << in.line << " " << in.element;
      }
    }
  }
};

template <typename T>
void check_length(int64_t n) {
  for (const FftKind kind : {FftKind::kForward, FftKind::kInverse, FftKind::kRealHalf, FftKind::kRealFull, FftKind::kToReal}) {
    for (const int64_t lines : {1, 3, 8, 13}) {
      FftCase<T> one{kind, lines, n};
      const int64_t in = one.in_count(), out = one.out_count();
      one.check({in, 1}, {out, 1});
      one.check({1, lines}, {1, lines});
      one.check({2 * in + 1, 2}, {1, lines});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Fft, SmallFactors) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 16, 21, 25, 32, 49, 61, 64, 75, 90, 122, 128, 250, 256}) {
    check_length<float>(n);
    check_length<double>(n);
  }
}

TEST(Fft, LargePrimeFactors) {
  for (const int64_t n : {67, 71, 101, 134, 201, 257}) {
    check_length<float>(n);
    check_length<double>(n);
  }
}

TEST(Fft, EmptyLinesAndBadSizes) {
  std::vector<std::complex<float>> x(4), out(4);
  KernelCallBuilder none;
  none.tensor(make_contiguous_view(DType::kComplexFloat, std::vector<int64_t>{0, 4}, x.data())).integers({1}).integer(0).boolean(true);
  none.tensor(make_contiguous_view(DType::kComplexFloat, std::vector<int64_t>{0, 4}, out.data()));
  EXPECT_TRUE(none.call("aten::_fft_c2c.out", serial_pool()).ok());
  KernelCallBuilder scalar;
  scalar.tensor(make_contiguous_view(DType::kComplexFloat, {}, x.data())).integers({0}).integer(0).boolean(true);
  scalar.tensor(make_contiguous_view(DType::kComplexFloat, {}, out.data()));
  EXPECT_EQ(scalar.call("aten::_fft_c2c.out", serial_pool()).code(), Code::kInvalidInput);
  KernelCallBuilder wrong;
  wrong.tensor(make_contiguous_view(DType::kComplexFloat, std::vector<int64_t>{4}, x.data())).integers({0}).integer(0).integer(9);
  wrong.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{8}, out.data()));
  EXPECT_EQ(wrong.call("aten::_fft_c2r.out", serial_pool()).code(), Code::kInvalidInput);
}

}  // namespace
}  // namespace pteron::ops
