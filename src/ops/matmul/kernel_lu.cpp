// Determinant and inverse by LU factorisation with partial pivoting, one matrix after the other. Table: kernel.cpp.
#include <algorithm>
#include <cmath>
#include <complex>

#include "base/str_cat.h"
#include "ops/elementwise.h"
#include "ops/matmul/kernels.h"
#include "tensor/dtype.h"

namespace pteron::ops::matmul {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

/// What a matrix of T is factorised in.
template <typename T>
struct WideOf {
  using Type = double;
};
template <typename T>
struct WideOf<std::complex<T>> {
  using Type = std::complex<double>;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

/// Swaps the row with the largest value of column `c` into place. Returns false if the column is zero.
template <typename S>
bool pivot(S* m, S* other, int64_t n, int64_t c, S* sign) {
  int64_t best = c;
  for (int64_t r = c + 1; r < n; ++r) {
    if (std::abs(m[r * n + c]) > std::abs(m[best * n + c])) best = r;
  }
  if (best != c) {
    std::swap_ranges(m + c * n, m + (c + 1) * n, m + best * n);
    if (other != nullptr) std::swap_ranges(other + c * n, other + (c + 1) * n, other + best * n);
    *sign = -*sign;
  }
  return m[c * n + c] != S(0);
}

/// Rows of a panel: what they subtract from another row goes through registers at once.
constexpr int64_t kPanel = 8;

/// row[from, to) -= factors[k] * rows[k], one k after the other.
template <typename S>
PTERON_WIDE void subtract_rows(S* row, const S* rows, int64_t pitch, const S* factors, int64_t count, int64_t from, int64_t to) {
  int64_t k = 0;
  for (; k + kPanel <= count; k += kPanel) {
    const S* panel = rows + k * pitch;
    PTERON_VECTORIZE
    for (int64_t j = from; j < to; ++j) {
      S v = row[j];
      for (int64_t u = 0; u < kPanel; ++u) v -= factors[k + u] * panel[u * pitch + j];
      row[j] = v;
    }
  }
  for (; k < count; ++k) {
    PTERON_VECTORIZE
    for (int64_t j = from; j < to; ++j) row[j] -= factors[k] * rows[k * pitch + j];
  }
}

/// Makes m upper triangular, doing the same to `other`; the factors stay below the diagonal. Returns 0, or the 1-based column whose pivot is zero.
template <typename S>
int64_t eliminate(S* m, S* other, int64_t n, S* sign) {
  int64_t info = 0;
  for (int64_t begin = 0; begin < n; begin += kPanel) {
    const int64_t end = std::min(begin + kPanel, n);
    for (int64_t c = begin; c < end; ++c) {  // the panel's own columns
      if (!pivot(m, other, n, c, sign)) {
        if (info == 0) info = c + 1;
        continue;  // all below are zero: factors, too
      }
      for (int64_t r = c + 1; r < n; ++r) {
        m[r * n + c] /= m[c * n + c];
        subtract_rows(m + r * n, m + c * n, n, m + r * n + c, 1, c + 1, end);
      }
    }
    for (int64_t r = begin + 1; r < n; ++r) {  // all other columns
      const int64_t count = std::min(r, end) - begin;
      subtract_rows(m + r * n, m + begin * n, n, m + r * n + begin, count, end, n);
      if (other != nullptr) subtract_rows(other + r * n, other + begin * n, n, m + r * n + begin, count, 0, n);
    }
  }
  return info;
}

/// other = inverse(upper m) * other.
template <typename S>
void back_substitute(const S* m, S* other, int64_t n) {
  for (int64_t r = n; r-- > 0;) {
    subtract_rows(other + r * n, other + (r + 1) * n, n, m + r * n + r + 1, n - r - 1, 0, n);
    for (int64_t j = 0; j < n; ++j) other[r * n + j] /= m[r * n + r];
  }
}

/// Offset in elements of matrix `index` of a batch.
int64_t batch_offset(const Tensor& t, int64_t index, int dims) {
  int64_t offset = 0;
  for (int d = dims - 1; d >= 0; --d) {
    offset += index % t.size(d) * t.stride(d);
    index /= t.size(d);
  }
  return offset;
}

template <typename T>
void read_matrix(const Tensor& a, int64_t offset, int64_t n, Wide<T>* m) {
  const T* from = a.as<T>() + offset;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) m[i * n + j] = static_cast<Wide<T>>(from[i * a.stride(a.rank() - 2) + j * a.stride(a.rank() - 1)]);
  }
}

Status check_square(const Tensor& a) {
  if (a.rank() < 2 || a.size(a.rank() - 1) != a.size(a.rank() - 2)) {
    return Status(Code::kInvalidInput, str_cat("expected square matrices, got ", shape_text(a.sizes())));
  }
  if (real_dtype(a.dtype()) != DType::kFloat32 && real_dtype(a.dtype()) != DType::kFloat64) {
    return Status(Code::kUnsupported, str_cat("factorisation of ", dtype_name(a.dtype())));
  }
  return ok_status();
}

/// fn.template operator()<T>() for a dtype that check_square takes.
template <typename Fn>
void dispatch_lu(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kFloat32: return fn.template operator()<float>();
    case DType::kComplexFloat: return fn.template operator()<std::complex<float>>();
    case DType::kComplexDouble: return fn.template operator()<std::complex<double>>();
    default: return fn.template operator()<double>();
  }
}

template <typename T>
void determinants(const Tensor& a, const Tensor& out, Wide<T>* m) {
  const int64_t n = a.size(a.rank() - 1);
  for (int64_t i = 0; i < out.numel(); ++i) {
    read_matrix<T>(a, batch_offset(a, i, a.rank() - 2), n, m);
    Wide<T> det = 1;
    eliminate<Wide<T>>(m, nullptr, n, &det);
    for (int64_t d = 0; d < n; ++d) det *= m[d * n + d];
    out.as<T>()[batch_offset(out, i, out.rank())] = static_cast<T>(det);
  }
}

Status det_out(KernelContext& context, const Tensor& a, Tensor& out) {
  PTERON_TRY(check_square(a));
  PTERON_TRY(resize(out, a.sizes().first(static_cast<size_t>(a.rank() - 2))));
  dispatch_lu(a.dtype(), [&]<typename T>() { determinants<T>(a, out, reinterpret_cast<Wide<T>*>(context.scratch.data())); });
  return ok_status();
}

template <typename T>
int64_t inverses(const Tensor& a, const Tensor& out, const Tensor& info, Wide<T>* m) {
  const int64_t n = a.size(a.rank() - 1);
  Wide<T>* inverse = m + n * n;
  int64_t worst = 0;
  for (int64_t i = 0; i < info.numel(); ++i) {
    read_matrix<T>(a, batch_offset(a, i, a.rank() - 2), n, m);
    std::fill(inverse, inverse + n * n, Wide<T>(0));
    for (int64_t d = 0; d < n; ++d) inverse[d * n + d] = 1;
    Wide<T> sign = 1;
    const int64_t failed = eliminate(m, inverse, n, &sign);
    worst = std::max(worst, failed);
    info.as<int32_t>()[batch_offset(info, i, info.rank())] = static_cast<int32_t>(failed);
    back_substitute(m, inverse, n);
    T* to = out.as<T>() + batch_offset(out, i, out.rank() - 2);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < n; ++c) to[r * out.stride(out.rank() - 2) + c * out.stride(out.rank() - 1)] = static_cast<T>(inverse[r * n + c]);
    }
  }
  return worst;
}

Status inverse_out(KernelContext& context, const Tensor& a, bool check_errors, Tensor& inverse, Tensor& info) {
  PTERON_TRY(check_square(a));
  PTERON_TRY(resize(inverse, a.sizes()));
  PTERON_TRY(resize(info, a.sizes().first(static_cast<size_t>(a.rank() - 2))));
  int64_t failed = 0;
  dispatch_lu(a.dtype(), [&]<typename T>() { failed = inverses<T>(a, inverse, info, reinterpret_cast<Wide<T>*>(context.scratch.data())); });
  if (check_errors && failed != 0) {
    return Status(Code::kInvalidInput, str_cat("linalg.inv: the diagonal element ", failed, " is zero, the matrix is singular"));
  }
  return ok_status();
}

}  // namespace

Status det_kernel(KernelContext& context, std::span<Value* const> args) { return PTERON_KERNEL(det_out)(context, args); }
Status inverse_kernel(KernelContext& context, std::span<Value* const> args) { return PTERON_KERNEL(inverse_out)(context, args); }

size_t lu_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  if (a.rank() < 2) return 0;
  const auto n = static_cast<size_t>(a.size(a.rank() - 1));
  return 2 * n * n * sizeof(double) * (is_complex(a.dtype()) ? 2 : 1);
}

}  // namespace pteron::ops::matmul
