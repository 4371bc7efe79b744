// Dense factorisations of small row-major matrices in double: what the kernels of this room are made of. Runtime half only.
#pragma once

#include <cstdint>

namespace pteron::ops::linalg {

/// LU with partial pivoting of m x n in place, multipliers below the diagonal. pivots[min(m, n)]: the 1-based row that was swapped with each row.
/// Returns 0, or the 1-based column of the first pivot that is zero.
int64_t lu_factor(double* a, int64_t m, int64_t n, int32_t* pivots);
/// x[n, k] = inverse(A) x, or of A transposed, from lu_factor's result.
void lu_solve(const double* lu, const int32_t* pivots, int64_t n, double* x, int64_t k, bool transposed);
/// x[n, k] = inverse(T) x for the upper or lower triangle of t, or of its transpose; unit: its diagonal counts as ones.
void triangular_solve(const double* t, int64_t n, double* x, int64_t k, bool upper, bool transposed, bool unit);
/// The lower factor of a symmetric matrix from its lower triangle, in place, zeros above. Returns 0 or the order of the minor that is not positive.
int64_t cholesky(double* a, int64_t n);
/// Householder QR of a[m, n] in place: R above, reflections below, tau[min(m, n)]; signs as LAPACK's.
void qr_factor(double* a, int64_t m, int64_t n, double* tau);
/// The first `columns` columns of the product of `count` reflections stored in a[m, n]; q[m, columns].
void qr_form(const double* a, int64_t m, int64_t n, const double* tau, int64_t count, double* q, int64_t columns);
/// Eigenvalues (ascending) of a symmetric matrix; vectors, if wanted, replace a as rows. work: 3 n + n * n.
/// Returns false if the iteration does not end.
bool symmetric_eigen(double* a, int64_t n, double* values, bool vectors, double* work);
/// Singular values, descending, of the matrix whose columns are the rows of w[n, m] (m >= n): w becomes the left vectors (rows), v[n, n] the right
/// ones (rows). One-sided Jacobi rotations.
bool jacobi_svd(double* w, int64_t n, int64_t m, double* values, double* v);
/// Makes rows [have, want) of q[want, m] orthonormal to the rows before; rows whose norm was zero (row < have, flagged by a zero norm) too.
void complete_basis(double* q, int64_t have, int64_t want, int64_t m);
/// a = exp(a), n x n. work: 3 n * n.
void matrix_exp(double* a, int64_t n, double* work);

}  // namespace pteron::ops::linalg
