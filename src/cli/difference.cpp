// Element by element, in double.
#include "cli/difference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

double default_rtol(DType dtype) {
  if (dtype == DType::kFloat16) return 1e-2;
  if (dtype == DType::kBFloat16) return 5e-2;
  return dtype == DType::kFloat64 ? 1e-7 : dtype == DType::kFloat32 ? 1e-4 : 0;
}

}  // namespace

Difference compare(const TensorView& a, const TensorView& b, const Tolerance& tolerance) {
  const double rtol = tolerance.rtol.value_or(default_rtol(a.dtype)), atol = tolerance.atol;
  Difference out;
  if (a.dtype != b.dtype || !std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end())) {
    out.problem = str_cat(dtype_name(a.dtype), " ", shape_text(a.sizes()), " against ", dtype_name(b.dtype), " ", shape_text(b.sizes()));
    return out;
  }
  out.count = a.numel();
  double dot = 0, norm_a = 0, norm_b = 0;
  const bool exact = is_integral(a.dtype, true);
  const bool known = dispatch_real(a.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < out.count; ++i) {
      const T left = a.as<T>()[i], right = b.as<T>()[i];
      double x = 0, y = 0;
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        x = static_cast<float>(left), y = static_cast<float>(right);
      } else {
        x = static_cast<double>(left), y = static_cast<double>(right);
      }
      out.nan_a += std::isnan(x), out.nan_b += std::isnan(y), out.infinite_a += std::isinf(x), out.infinite_b += std::isinf(y);
      const bool same = std::memcmp(&left, &right, sizeof(T)) == 0 || x == y || (std::isnan(x) && std::isnan(y));
      const double error = same ? 0 : std::abs(x - y);
      const bool bad = !same && (exact || !(error <= atol + rtol * std::abs(y)));
      if (bad && out.first_bad < 0) out.first_bad = i, out.first_a = x, out.first_b = y;
      out.beyond += bad;
      if (std::isfinite(error)) {
        out.max_absolute = std::max(out.max_absolute, error);
        if (y != 0) out.max_relative = std::max(out.max_relative, error / std::abs(y));
      }
      if (std::isfinite(x) && std::isfinite(y)) dot += x * y, norm_a += x * x, norm_b += y * y;
    }
  });
  if (!known) out.problem = str_cat("values of dtype ", dtype_name(a.dtype), " cannot be compared");
  if (norm_a > 0 && norm_b > 0) out.cosine = dot / std::sqrt(norm_a * norm_b);
  return out;
}

std::string index_text(int64_t flat, std::span<const int64_t> sizes) {
  Sizes index(sizes.size(), 0);
  for (size_t d = sizes.size(); d-- > 0;) {
    index[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  return shape_text(index);
}

std::string difference_text(const Difference& d) {
  if (!d.problem.empty()) return d.problem;
  char text[256];
  std::snprintf(text, sizeof text, "max absolute %.3g, max relative %.3g, cosine %.7f, %lld of %lld over tolerance, NaN %lld/%lld, inf %lld/%lld", d.max_absolute,
                d.max_relative, d.cosine, static_cast<long long>(d.beyond), static_cast<long long>(d.count), static_cast<long long>(d.nan_a),
                static_cast<long long>(d.nan_b), static_cast<long long>(d.infinite_a), static_cast<long long>(d.infinite_b));
  return text;
}

}  // namespace pteron::cli
