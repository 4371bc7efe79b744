// Kernels of dense linear algebra over batches of matrices, computed in double one matrix after the other (dense.h). float32 and float64.
// Compile half: op.cpp. Determinants and inverses are in ops/matmul.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/str_cat.h"
#include "ops/cast.h"
#include "ops/linalg/dense.h"
#include "ops/walk.h"
#include "runtime/kernel.h"

namespace pteron::ops::linalg {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

int64_t rows_of(const Tensor& t) { return t.size(t.rank() - 2); }
int64_t columns_of(const Tensor& t) { return t.size(t.rank() - 1); }
Sizes batch_of(const Tensor& t, int matrix_dims = 2) { return Sizes(t.sizes().first(static_cast<size_t>(t.rank() - matrix_dims))); }
Sizes with(Sizes sizes, std::initializer_list<int64_t> more) {
  for (const int64_t n : more) sizes.push_back(n);
  return sizes;
}

Status check_matrices(const Tensor& t, bool square, const char* what) {
  if (t.rank() < 2 || (square && rows_of(t) != columns_of(t))) {
    return Status(Code::kInvalidInput, str_cat(what, ": expected ", square ? "square matrices" : "matrices", ", found ", shape_text(t.sizes())));
  }
  if (t.dtype() != DType::kFloat32 && t.dtype() != DType::kFloat64) return Status(Code::kUnsupported, str_cat(what, " of ", dtype_name(t.dtype())));
  return ok_status();
}

/// Offset in elements of matrix (or vector, number) `index` of the batch `batch`, to which t's leading dims broadcast.
int64_t offset_of(const Tensor& t, std::span<const int64_t> batch, int64_t index, int own_dims) {
  const int lead = t.rank() - own_dims, missing = static_cast<int>(batch.size()) - lead;
  int64_t offset = 0;
  for (int d = static_cast<int>(batch.size()) - 1; d >= 0; --d) {
    const int64_t at = index % batch[static_cast<size_t>(d)];
    index /= batch[static_cast<size_t>(d)];
    if (d >= missing && t.size(d - missing) != 1) offset += at * t.stride(d - missing);
  }
  return offset;
}

/// One matrix of a tensor, as row-major doubles and back; strides may be swapped to read or write it transposed.
void read(const Tensor& t, int64_t offset, int64_t rows, int64_t columns, int64_t row_step, int64_t column_step, double* to) {
  const LoadFn<double> load = load_fn<double>(t.dtype());
  for (int64_t r = 0; r < rows; ++r) {
    const double* run = load(t.view.data, offset + r * row_step, column_step, columns, to + r * columns);
    if (run != to + r * columns) std::copy(run, run + columns, to + r * columns);
  }
}
void read(const Tensor& t, int64_t offset, double* to, bool transposed = false) {
  const int64_t row = t.stride(t.rank() - 2), column = t.stride(t.rank() - 1);
  if (transposed) return read(t, offset, columns_of(t), rows_of(t), column, row, to);
  read(t, offset, rows_of(t), columns_of(t), row, column, to);
}
void write(const double* from, int64_t from_step, Tensor& t, int64_t offset, bool transposed = false) {
  const StoreRunFn<double> store = store_run_fn<double>(t.dtype());
  const int last = t.rank() - 1;
  const int64_t rows = transposed ? columns_of(t) : rows_of(t), columns = transposed ? rows_of(t) : columns_of(t);
  for (int64_t r = 0; r < rows; ++r) {
    store(t.view.data, offset + r * t.stride(transposed ? last : last - 1), t.stride(transposed ? last - 1 : last), columns, from + r * from_step);
  }
}
template <typename T>
void write_vector(const T* from, int64_t n, Tensor& t, int64_t offset) {
  dispatch_real(t.dtype(), [&]<typename To>() {
    for (int64_t i = 0; i < n; ++i) (t.as<To>() + offset)[i * t.stride(t.rank() - 1)] = convert<To>(from[i]);
  });
}
void write_one(Tensor& t, int64_t offset, double value) { store_fn<double>(t.dtype())(t.view.data, offset, value); }

size_t doubles(int64_t n) { return static_cast<size_t>(n) * sizeof(double); }
/// A part of the scratch.
struct Scratch {
  double* at;
  explicit Scratch(KernelContext& context) : at(reinterpret_cast<double*>(context.scratch.data())) {}
  double* take(int64_t n) { return std::exchange(at, at + n); }
  int32_t* take_ints(int64_t n) { return reinterpret_cast<int32_t*>(take(n)); }
};

// LU ------------------------------------------------------------------------------------------------------------------------------------------

/// Factorises every matrix and calls each(index in the batch, position of a zero on the diagonal or 0, factors in double, pivots counted from 1).
template <typename Each>
Status lu_out(KernelContext& context, const Tensor& a, Tensor& lu, Tensor& pivots, Each&& each) {
  PTERON_TRY(check_matrices(a, false, "lu"));
  const Sizes batch = batch_of(a);
  const int64_t m = rows_of(a), n = columns_of(a);
  PTERON_TRY(runtime::resize(lu, a.sizes()));
  PTERON_TRY(runtime::resize(pivots, with(batch, {std::min(m, n)})));
  Scratch scratch(context);
  double* matrix = scratch.take(m * n);
  int32_t* rows = scratch.take_ints(std::min(m, n));
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix);
    const int64_t zero = lu_factor(matrix, m, n, rows);
    write(matrix, n, lu, offset_of(lu, batch, i, 2));
    write_vector(rows, std::min(m, n), pivots, offset_of(pivots, batch, i, 1));
    each(i, zero, matrix, rows);
  }
  return ok_status();
}
/// info has the position of a zero per matrix, `failed` the largest.
Status lu_with_info(KernelContext& context, const Tensor& a, Tensor& lu, Tensor& pivots, Tensor& info, int64_t* failed) {
  PTERON_TRY(check_matrices(a, false, "lu"));
  const Sizes batch = batch_of(a);
  PTERON_TRY(runtime::resize(info, batch));
  return lu_out(context, a, lu, pivots, [&](int64_t i, int64_t zero, const double*, const int32_t*) {
    *failed = std::max(*failed, zero);
    write_one(info, offset_of(info, batch, i, 0), static_cast<double>(zero));
  });
}
Status singular(std::string_view what, int64_t at) { return Status(Code::kInvalidInput, str_cat(what, ": the diagonal element ", at, " is zero, the matrix is singular")); }
Status lu_factor_kernel(KernelContext& context, const Tensor& a, bool pivot, bool check, Tensor& lu, Tensor& pivots, Tensor& info) {
  if (!pivot) return Status(Code::kUnsupported, "lu without pivoting");
  int64_t failed = 0;
  PTERON_TRY(lu_with_info(context, a, lu, pivots, info, &failed));
  return check && failed != 0 ? singular("linalg.lu_factor", failed) : ok_status();
}
size_t matrix_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : doubles(rows_of(a) * columns_of(a) + std::min(rows_of(a), columns_of(a)));
}
/// sign and log of the determinant's size.
Status slogdet_kernel(KernelContext& context, const Tensor& a, Tensor& sign, Tensor& logabs, Tensor& lu, Tensor& pivots) {
  PTERON_TRY(check_matrices(a, true, "slogdet"));
  const Sizes batch = batch_of(a);
  PTERON_TRY(runtime::resize(sign, batch));
  PTERON_TRY(runtime::resize(logabs, batch));
  const int64_t n = rows_of(a);
  return lu_out(context, a, lu, pivots, [&](int64_t i, int64_t, const double* matrix, const int32_t* rows) {
    double s = 1, sum = 0;
    for (int64_t d = 0; d < n; ++d) {
      const double x = matrix[d * n + d];
      s *= (rows[d] != d + 1 ? -1.0 : 1.0) * (x == 0 ? 0.0 : std::copysign(1.0, x));
      sum += std::log(std::abs(x));
    }
    write_one(sign, offset_of(sign, batch, i, 0), s);
    write_one(logabs, offset_of(logabs, batch, i, 0), sum);
  });
}
/// Determinant with its factorisation.
Status det_kernel(KernelContext& context, const Tensor& a, Tensor& det, Tensor& lu, Tensor& pivots) {
  PTERON_TRY(check_matrices(a, true, "det"));
  const Sizes batch = batch_of(a);
  PTERON_TRY(runtime::resize(det, batch));
  const int64_t n = rows_of(a);
  return lu_out(context, a, lu, pivots, [&](int64_t i, int64_t, const double* matrix, const int32_t* rows) {
    double product = 1;
    for (int64_t d = 0; d < n; ++d) product *= (rows[d] != d + 1 ? -1.0 : 1.0) * matrix[d * n + d];
    write_one(det, offset_of(det, batch, i, 0), product);
  });
}

/// What solve needs to know of its operands: A [*, n, n], B a matrix [*, n, k] or a vector [*, n].
struct Solve {
  bool vector = false;
  int64_t n = 0, k = 1;
  Sizes batch, sizes;
};
Status plan_solve(const Tensor& a, const Tensor& b, bool left, Solve* s) {
  PTERON_TRY(check_matrices(a, true, "solve"));
  s->n = rows_of(a);
  const Sizes a_batch = batch_of(a);
  s->vector = b.rank() == 1 || (a.rank() - 1 == b.rank() && with(a_batch, {s->n}) == Sizes(b.sizes()));
  const int own = s->vector ? 1 : 2;
  if (b.rank() < own || b.dtype() != a.dtype() || b.size(b.rank() - (s->vector || !left ? 1 : 2)) != s->n) {
    return Status(Code::kInvalidInput, str_cat("solve: matrices ", shape_text(a.sizes()), " do not fit ", shape_text(b.sizes()), " of ", dtype_name(b.dtype())));
  }
  PTERON_TRY(broadcast_sizes(a_batch, batch_of(b, own), &s->batch));
  s->k = s->vector ? 1 : left ? columns_of(b) : rows_of(b);
  s->sizes = s->vector ? with(s->batch, {s->n}) : left ? with(s->batch, {s->n, s->k}) : with(s->batch, {s->k, s->n});
  return ok_status();
}
void read_right(const Solve& s, const Tensor& b, int64_t index, bool left, double* x) {
  const int64_t offset = offset_of(b, s.batch, index, s.vector ? 1 : 2);
  if (s.vector) return read(b, offset, s.n, 1, b.stride(b.rank() - 1), 1, x);
  read(b, offset, x, !left);
}
void write_right(const Solve& s, const double* x, Tensor& out, int64_t index, bool left) {
  const int64_t offset = offset_of(out, s.batch, index, s.vector ? 1 : 2);
  if (s.vector) return write_vector(x, s.n, out, offset);
  write(x, s.k, out, offset, !left);
}
size_t solve_workspace(std::span<Value* const> args) {
  const Tensor &a = args[0]->tensor, &b = args[1]->tensor;
  if (a.rank() < 2 || b.rank() < 1) return 0;
  const int64_t n = rows_of(a), other = b.rank() < 2 ? 1 : std::max(rows_of(b), columns_of(b));
  return doubles(n * n + n + n * std::max(other, n));
}
Status solve_kernel(KernelContext& context, const Tensor& a, const Tensor& b, bool left, bool check, Tensor& out, Tensor& lu, Tensor& pivots, Tensor& info) {
  Solve s;
  PTERON_TRY(plan_solve(a, b, left, &s));
  int64_t failed = 0;
  PTERON_TRY(lu_with_info(context, a, lu, pivots, info, &failed));
  PTERON_TRY(runtime::resize(out, s.sizes));
  if (failed != 0 && check) return singular("linalg.solve", failed);
  Scratch scratch(context);
  double* matrix = scratch.take(s.n * s.n);
  int32_t* rows = scratch.take_ints(s.n);
  double* x = scratch.take(s.n * s.k);
  for (int64_t i = 0; i < index_count(s.batch); ++i) {
    read(a, offset_of(a, s.batch, i, 2), matrix);
    lu_factor(matrix, s.n, s.n, rows);
    read_right(s, b, i, left, x);
    lu_solve(matrix, rows, s.n, x, s.k, !left);
    write_right(s, x, out, i, left);
  }
  return ok_status();
}
size_t lu_solve_workspace(std::span<Value* const> args) {
  Value* const swapped[] = {args[0], args[2]};
  return solve_workspace(swapped);
}
Status lu_solve_kernel(KernelContext& context, const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint, Tensor& out) {
  Solve s;
  PTERON_TRY(plan_solve(lu, b, left, &s));
  if (pivots.dtype() != DType::kInt32 || pivots.rank() < 1 || columns_of(lu) != pivots.size(pivots.rank() - 1) || s.vector) {
    return Status(Code::kInvalidInput, str_cat("lu_solve: pivots ", shape_text(pivots.sizes()), " or right side ", shape_text(b.sizes()), " do not fit ", shape_text(lu.sizes())));
  }
  PTERON_TRY(runtime::resize(out, s.sizes));
  Scratch scratch(context);
  double* matrix = scratch.take(s.n * s.n);
  int32_t* rows = scratch.take_ints(s.n);
  double* x = scratch.take(s.n * s.k);
  for (int64_t i = 0; i < index_count(s.batch); ++i) {
    read(lu, offset_of(lu, s.batch, i, 2), matrix);
    const int32_t* from = pivots.as<int32_t>() + offset_of(pivots, s.batch, i, 1);
    for (int64_t d = 0; d < s.n; ++d) {
      rows[d] = from[d * pivots.stride(pivots.rank() - 1)];
      if (rows[d] < 1 || rows[d] > s.n) return Status(Code::kInvalidInput, str_cat("lu_solve: pivot ", rows[d], " of ", s.n, " rows"));
    }
    read_right(s, b, i, left, x);
    lu_solve(matrix, rows, s.n, x, s.k, left == adjoint);
    write_right(s, x, out, i, left);
  }
  return ok_status();
}
Status triangular_kernel(KernelContext& context, const Tensor& a, const Tensor& b, bool upper, bool left, bool unit, Tensor& out) {
  Solve s;
  PTERON_TRY(plan_solve(a, b, left, &s));
  if (s.vector && b.rank() < 2) return Status(Code::kInvalidInput, str_cat("solve_triangular: right side of shape ", shape_text(b.sizes())));
  if (s.vector) {  // no vectors here: the sizes only looked like some
    s.vector = false;
    if (b.size(b.rank() - (left ? 2 : 1)) != s.n) return Status(Code::kInvalidInput, str_cat("solve_triangular: ", shape_text(a.sizes()), " and ", shape_text(b.sizes())));
    PTERON_TRY(broadcast_sizes(batch_of(a), batch_of(b), &s.batch));
    s.k = left ? columns_of(b) : rows_of(b);
    s.sizes = left ? with(s.batch, {s.n, s.k}) : with(s.batch, {s.k, s.n});
  }
  PTERON_TRY(runtime::resize(out, s.sizes));
  Scratch scratch(context);
  double* matrix = scratch.take(s.n * s.n);
  double* x = scratch.take(s.n * s.k);
  for (int64_t i = 0; i < index_count(s.batch); ++i) {
    read(a, offset_of(a, s.batch, i, 2), matrix);
    read_right(s, b, i, left, x);
    triangular_solve(matrix, s.n, x, s.k, upper, !left, unit);
    write_right(s, x, out, i, left);
  }
  return ok_status();
}
/// The permutation of lu_factor's pivots as a matrix.
Status permutation_kernel(KernelContext& context, const Tensor& pivots, int64_t n, Tensor& out) {
  if (pivots.rank() < 1 || pivots.dtype() != DType::kInt32 || n < 0) return Status(Code::kInvalidInput, str_cat("lu_unpack: pivots of ", dtype_name(pivots.dtype())));
  const Sizes batch = batch_of(pivots, 1);
  PTERON_TRY(runtime::resize(out, with(batch, {n, n})));
  int32_t* order = Scratch(context).take_ints(n);
  const int64_t steps = pivots.size(pivots.rank() - 1), step = pivots.stride(pivots.rank() - 1);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    const int32_t* from = pivots.as<int32_t>() + offset_of(pivots, batch, i, 1);
    for (int64_t r = 0; r < n; ++r) order[r] = static_cast<int32_t>(r);
    for (int64_t r = 0; r < steps; ++r) {
      const int64_t other = from[r * step] - 1;
      if (other < 0 || other >= n || r >= n) return Status(Code::kInvalidInput, str_cat("lu_unpack: pivot ", other + 1, " of ", n, " rows"));
      std::swap(order[r], order[other]);
    }
    const int64_t at = offset_of(out, batch, i, 2);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < n; ++c) write_one(out, at + r * out.stride(out.rank() - 2) + c * out.stride(out.rank() - 1), order[c] == r ? 1 : 0);
    }
  }
  return ok_status();
}
size_t permutation_workspace(std::span<Value* const> args) { return args[1]->tag == runtime::Tag::kInt && args[1]->integer > 0 ? doubles(std::min<int64_t>(args[1]->integer, 1 << 24)) : 0; }

// Cholesky, QR, eigenvalues, singular values, exponential ---------------------------------------------------------------------------------------

Status cholesky_kernel(KernelContext& context, const Tensor& a, bool upper, bool check, Tensor& factor, Tensor& info) {
  PTERON_TRY(check_matrices(a, true, "cholesky"));
  const Sizes batch = batch_of(a);
  const int64_t n = rows_of(a);
  PTERON_TRY(runtime::resize(factor, a.sizes()));
  PTERON_TRY(runtime::resize(info, batch));
  double* matrix = Scratch(context).take(n * n);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix, upper);
    const int64_t failed = cholesky(matrix, n);
    if (failed != 0 && check) {
      return Status(Code::kInvalidInput, str_cat("linalg.cholesky: the leading minor of order ", failed, " of matrix ", i, " is not positive-definite"));
    }
    write(matrix, n, factor, offset_of(factor, batch, i, 2), upper);
    write_one(info, offset_of(info, batch, i, 0), static_cast<double>(failed));
  }
  return ok_status();
}

size_t qr_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : doubles(rows_of(a) * columns_of(a) + columns_of(a) + rows_of(a) * std::max(rows_of(a), columns_of(a)));
}
Status qr_kernel(KernelContext& context, const Tensor& a, std::string_view mode, Tensor& q, Tensor& r) {
  PTERON_TRY(check_matrices(a, false, "qr"));
  if (mode != "reduced" && mode != "complete" && mode != "r") return Status(Code::kInvalidInput, str_cat("qr: mode '", mode, "'"));
  const Sizes batch = batch_of(a);
  const int64_t m = rows_of(a), n = columns_of(a), small = std::min(m, n), inner = mode == "complete" ? m : small;
  PTERON_TRY(runtime::resize(q, mode == "r" ? Sizes{0} : with(batch, {m, inner})));
  PTERON_TRY(runtime::resize(r, with(batch, {inner, n})));
  Scratch scratch(context);
  double* matrix = scratch.take(m * n);
  double* tau = scratch.take(small);
  double* full = scratch.take(m * inner);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix);
    qr_factor(matrix, m, n, tau);
    if (mode != "r") {
      qr_form(matrix, m, n, tau, small, full, inner);
      write(full, inner, q, offset_of(q, batch, i, 2));
    }
    for (int64_t row = 1; row < inner; ++row) std::fill(matrix + row * n, matrix + row * n + std::min(row, n), 0.0);
    write(matrix, n, r, offset_of(r, batch, i, 2));
  }
  return ok_status();
}
size_t householder_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : doubles(2 * rows_of(a) * columns_of(a) + columns_of(a));
}
Status householder_kernel(KernelContext& context, const Tensor& a, const Tensor& tau, Tensor& out) {
  PTERON_TRY(check_matrices(a, false, "householder_product"));
  const int64_t m = rows_of(a), n = columns_of(a), count = tau.rank() < 1 ? -1 : tau.size(tau.rank() - 1);
  const Sizes batch = batch_of(a);
  if (count < 0 || count > n || n > m || tau.dtype() != a.dtype() || !(batch_of(tau, 1) == batch)) {
    return Status(Code::kInvalidInput, str_cat("householder_product: ", shape_text(a.sizes()), " and factors ", shape_text(tau.sizes())));
  }
  PTERON_TRY(runtime::resize(out, a.sizes()));
  Scratch scratch(context);
  double* matrix = scratch.take(m * n);
  double* factors = scratch.take(n);
  double* q = scratch.take(m * n);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix);
    read(tau, offset_of(tau, batch, i, 1), 1, count, 0, tau.stride(tau.rank() - 1), factors);
    qr_form(matrix, m, n, factors, count, q, n);
    write(q, n, out, offset_of(out, batch, i, 2));
  }
  return ok_status();
}

size_t eigen_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : doubles(2 * rows_of(a) * columns_of(a) + 4 * columns_of(a));
}
Status eigen_kernel(KernelContext& context, const Tensor& a, std::string_view triangle, bool vectors, Tensor& values, Tensor& out) {
  PTERON_TRY(check_matrices(a, true, "eigh"));
  const Sizes batch = batch_of(a);
  const int64_t n = rows_of(a);
  PTERON_TRY(runtime::resize(values, with(batch, {n})));
  PTERON_TRY(runtime::resize(out, vectors ? Sizes(a.sizes()) : Sizes{0}));
  const bool upper = !triangle.empty() && (triangle[0] == 'U' || triangle[0] == 'u');
  Scratch scratch(context);
  double* matrix = scratch.take(n * n);
  double* d = scratch.take(n);
  double* work = scratch.take(n * n + 3 * n);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix, upper);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = r + 1; c < n; ++c) matrix[r * n + c] = matrix[c * n + r];
    }
    if (!symmetric_eigen(matrix, n, d, vectors, work)) return Status(Code::kInvalidInput, str_cat("linalg.eigh: matrix ", i, " has no finite eigenvalues"));
    write_vector(d, n, values, offset_of(values, batch, i, 1));
    if (vectors) write(matrix, n, out, offset_of(out, batch, i, 2), true);
  }
  return ok_status();
}

size_t svd_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  if (a.rank() < 2) return 0;
  const int64_t small = std::min(rows_of(a), columns_of(a)), big = std::max(rows_of(a), columns_of(a));
  return doubles(big * big + small * small + small);
}
Status svd_kernel(KernelContext& context, const Tensor& a, bool full, bool vectors, Value&, Tensor& u, Tensor& values, Tensor& vh) {
  PTERON_TRY(check_matrices(a, false, "svd"));
  const Sizes batch = batch_of(a);
  const int64_t m = rows_of(a), n = columns_of(a), small = std::min(m, n), big = std::max(m, n);
  PTERON_TRY(runtime::resize(values, with(batch, {small})));
  PTERON_TRY(runtime::resize(u, vectors ? with(batch, {m, full ? m : small}) : Sizes{0}));
  PTERON_TRY(runtime::resize(vh, vectors ? with(batch, {full ? n : small, n}) : Sizes{0}));
  const bool tall = m >= n;
  Scratch scratch(context);
  double* w = scratch.take(big * big);
  double* v = scratch.take(small * small);
  double* s = scratch.take(small);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), w, tall);  // rows are the columns of the tall form
    if (!jacobi_svd(w, small, big, s, v)) return Status(Code::kInvalidInput, str_cat("linalg.svd: matrix ", i, " has no finite singular values"));
    write_vector(s, small, values, offset_of(values, batch, i, 1));
    if (!vectors) continue;
    complete_basis(w, small, full ? big : small, big);
    const int64_t u_at = offset_of(u, batch, i, 2), v_at = offset_of(vh, batch, i, 2);
    if (tall) {
      write(w, big, u, u_at, true);
      write(v, small, vh, v_at);
    } else {
      write(v, small, u, u_at, true);
      write(w, big, vh, v_at);
    }
  }
  return ok_status();
}

size_t exponential_workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : doubles(4 * rows_of(a) * columns_of(a));
}
Status exponential_kernel(KernelContext& context, const Tensor& a, Tensor& out) {
  PTERON_TRY(check_matrices(a, true, "matrix_exp"));
  PTERON_TRY(runtime::resize(out, a.sizes()));
  const Sizes batch = batch_of(a);
  const int64_t n = rows_of(a);
  Scratch scratch(context);
  double* matrix = scratch.take(n * n);
  double* work = scratch.take(3 * n * n);
  for (int64_t i = 0; i < index_count(batch); ++i) {
    read(a, offset_of(a, batch, i, 2), matrix);
    matrix_exp(matrix, n, work);
    write(matrix, n, out, offset_of(out, batch, i, 2));
  }
  return ok_status();
}

/// The check that stays in the graph after a decomposition: every info is zero.
Status check_kernel(KernelContext&, const Tensor& info, std::string_view name, bool) {
  if (info.dtype() != DType::kInt32) return Status(Code::kUnsupported, str_cat("_linalg_check_errors of ", dtype_name(info.dtype())));
  Status status;
  walk<1>(info.sizes(), {Sizes(info.strides())}, 0, info.numel(), [&](const std::array<int64_t, 1>& at, const Sizes&) {
    const int32_t found = info.as<int32_t>()[at[0]];
    if (found != 0 && status.ok()) status = Status(Code::kInternal, str_cat(name, ": the factorisation stopped at ", found, "; the matrix is singular or not positive-definite"));
  });
  return status;
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_linalg_check_errors", PTERON_KERNEL(check_kernel)},
    {"aten::_linalg_det.result", PTERON_KERNEL(det_kernel), matrix_workspace},
    {"aten::_linalg_eigh.eigenvalues", PTERON_KERNEL(eigen_kernel), eigen_workspace},
    {"aten::_linalg_slogdet.sign", PTERON_KERNEL(slogdet_kernel), matrix_workspace},
    {"aten::_linalg_solve_ex.result", PTERON_KERNEL(solve_kernel), solve_workspace},
    {"aten::_linalg_svd.U", PTERON_KERNEL(svd_kernel), svd_workspace},
    {"aten::linalg_cholesky_ex.L", PTERON_KERNEL(cholesky_kernel), matrix_workspace},
    {"aten::linalg_householder_product.out", PTERON_KERNEL(householder_kernel), householder_workspace},
    {"aten::linalg_lu_factor_ex.out", PTERON_KERNEL(lu_factor_kernel), matrix_workspace},
    {"aten::linalg_lu_solve.out", PTERON_KERNEL(lu_solve_kernel), lu_solve_workspace},
    {"aten::linalg_matrix_exp.out", PTERON_KERNEL(exponential_kernel), exponential_workspace},
    {"aten::linalg_qr.out", PTERON_KERNEL(qr_kernel), qr_workspace},
    {"aten::linalg_solve_triangular.out", PTERON_KERNEL(triangular_kernel), solve_workspace},
    {"pteron::lu_permutation.out", PTERON_KERNEL(permutation_kernel), permutation_workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::linalg
