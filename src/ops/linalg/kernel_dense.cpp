// Dense factorisations: see dense.h. Inner loops run along rows, so that the compiler vectorises them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/linalg/dense.h"

namespace pteron::ops::linalg {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// y -= factor * x.
void subtract(double* y, const double* x, double factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}
double dot(const double* a, const double* b, int64_t n) {
  double sum[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int64_t l = 0; l < 4; ++l) sum[l] += a[i + l] * b[i + l];
  }
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
/// (a, b) = (c a - s b, s a + c b).
void rotate(double* a, double* b, double c, double s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double x = a[i], y = b[i];
    a[i] = c * x - s * y;
    b[i] = s * x + c * y;
  }
}
void swap_rows(double* a, int64_t n, int64_t i, int64_t j) {
  if (i != j) std::swap_ranges(a + i * n, a + (i + 1) * n, a + j * n);
}
void set_identity(double* a, int64_t n) {
  std::fill(a, a + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) a[i * n + i] = 1;
}

}  // namespace

int64_t lu_factor(double* a, int64_t m, int64_t n, int32_t* pivots) {
  int64_t info = 0;
  for (int64_t c = 0; c < std::min(m, n); ++c) {
    int64_t best = c;
    for (int64_t r = c + 1; r < m; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[best * n + c])) best = r;
    }
    pivots[c] = static_cast<int32_t>(best + 1);
    swap_rows(a, n, c, best);
    const double pivot = a[c * n + c];
    if (pivot == 0) {
      if (info == 0) info = c + 1;
      continue;
    }
    for (int64_t r = c + 1; r < m; ++r) {
      const double factor = a[r * n + c] / pivot;
      a[r * n + c] = factor;
      if (factor != 0) subtract(a + r * n + c + 1, a + c * n + c + 1, factor, n - c - 1);
    }
  }
  return info;
}

void triangular_solve(const double* t, int64_t n, double* x, int64_t k, bool upper, bool transposed, bool unit) {
  const bool backward = upper != transposed;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t r = backward ? n - 1 - step : step;
    double* row = x + r * k;
    for (int64_t j = backward ? r + 1 : 0; j < (backward ? n : r); ++j) {
      const double factor = transposed ? t[j * n + r] : t[r * n + j];
      if (factor != 0) subtract(row, x + j * k, factor, k);
    }
    if (unit) continue;
    const double diagonal = t[r * n + r];
    for (int64_t i = 0; i < k; ++i) row[i] /= diagonal;
  }
}

void lu_solve(const double* lu, const int32_t* pivots, int64_t n, double* x, int64_t k, bool transposed) {
  if (!transposed) {
    for (int64_t i = 0; i < n; ++i) swap_rows(x, k, i, pivots[i] - 1);
    triangular_solve(lu, n, x, k, false, false, true);
    triangular_solve(lu, n, x, k, true, false, false);
    return;
  }
  triangular_solve(lu, n, x, k, true, true, false);
  triangular_solve(lu, n, x, k, false, true, true);
  for (int64_t i = n; i-- > 0;) swap_rows(x, k, i, pivots[i] - 1);
}

int64_t cholesky(double* a, int64_t n) {
  int64_t info = 0;
  for (int64_t j = 0; j < n; ++j) {
    double* row = a + j * n;
    for (int64_t c = 0; c < j; ++c) row[c] = (row[c] - dot(row, a + c * n, c)) / a[c * n + c];
    const double rest = row[j] - dot(row, row, j);
    if (!(rest > 0) && info == 0) info = j + 1;
    row[j] = std::sqrt(rest);
    std::fill(row + j + 1, row + n, 0.0);
  }
  return info;
}

void qr_factor(double* a, int64_t m, int64_t n, double* tau) {
  for (int64_t c = 0; c < std::min(m, n); ++c) {
    double below = 0;
    for (int64_t r = c + 1; r < m; ++r) below += a[r * n + c] * a[r * n + c];
    const double alpha = a[c * n + c];
    if (below == 0) {
      tau[c] = 0;
      continue;
    }
    const double beta = -std::copysign(std::sqrt(alpha * alpha + below), alpha);
    tau[c] = (beta - alpha) / beta;
    for (int64_t r = c + 1; r < m; ++r) a[r * n + c] /= alpha - beta;
    a[c * n + c] = beta;
    for (int64_t j = c + 1; j < n; ++j) {
      double sum = a[c * n + j];
      for (int64_t r = c + 1; r < m; ++r) sum += a[r * n + c] * a[r * n + j];
      sum *= tau[c];
      a[c * n + j] -= sum;
      for (int64_t r = c + 1; r < m; ++r) a[r * n + j] -= sum * a[r * n + c];
    }
  }
}

void qr_form(const double* a, int64_t m, int64_t n, const double* tau, int64_t count, double* q, int64_t columns) {
  std::fill(q, q + m * columns, 0.0);
  for (int64_t i = 0; i < std::min(m, columns); ++i) q[i * columns + i] = 1;
  for (int64_t c = count; c-- > 0;) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = q[c * columns + j];
      for (int64_t r = c + 1; r < m; ++r) sum += a[r * n + c] * q[r * columns + j];
      sum *= tau[c];
      if (sum == 0) continue;
      q[c * columns + j] -= sum;
      for (int64_t r = c + 1; r < m; ++r) q[r * columns + j] -= sum * a[r * n + c];
    }
  }
}

namespace {

/// Symmetric a (both triangles) to tridiagonal d, e (e[i] between i and i + 1); rows of z become the rows of the transformation's transpose.
void tridiagonalize(double* a, int64_t n, double* d, double* e, double* p, double* z) {
  for (int64_t k = 0; k + 2 < n; ++k) {
    double* v = a + k * n;  // row k right of the diagonal holds the reflection
    const double norm = std::sqrt(dot(v + k + 1, v + k + 1, n - k - 1));
    e[k] = norm == 0 ? 0 : -std::copysign(norm, v[k + 1]);
    v[k + 1] -= e[k];
    const double square = dot(v + k + 1, v + k + 1, n - k - 1);
    d[k] = square == 0 ? 0 : 2 / square;
    if (square == 0) continue;
    for (int64_t i = k + 1; i < n; ++i) p[i] = d[k] * dot(a + i * n + k + 1, v + k + 1, n - k - 1);
    const double half = d[k] * 0.5 * dot(p + k + 1, v + k + 1, n - k - 1);
    for (int64_t i = k + 1; i < n; ++i) p[i] -= half * v[i];
    for (int64_t i = k + 1; i < n; ++i) {
      double* row = a + i * n;
      for (int64_t j = k + 1; j < n; ++j) row[j] -= v[i] * p[j] + p[i] * v[j];
    }
  }
  if (n > 1) e[n - 2] = a[(n - 2) * n + n - 1];
  if (z != nullptr) {
    set_identity(z, n);
    for (int64_t k = n - 2; k-- > 0;) {  // z = z * H_k, rows right of k
      const double* v = a + k * n;
      if (d[k] == 0) continue;
      for (int64_t i = k + 1; i < n; ++i) subtract(z + i * n + k + 1, v + k + 1, d[k] * dot(z + i * n + k + 1, v + k + 1, n - k - 1), n - k - 1);
    }
  }
  for (int64_t i = 0; i < n; ++i) d[i] = a[i * n + i];
}

/// Implicit QL on d, e; rotations go to neighbouring rows of z.
bool implicit_ql(double* d, double* e, int64_t n, double* z) {
  if (n > 0) e[n - 1] = 0;
  for (int64_t l = 0; l < n; ++l) {
    for (int step = 0;; ++step) {
      int64_t m = l;
      while (m + 1 < n && std::abs(e[m]) > kEpsilon * (std::abs(d[m]) + std::abs(d[m + 1]))) ++m;
      if (m == l) break;
      if (step == 60) return false;
      double g = (d[l + 1] - d[l]) / (2 * e[l]);
      double r = std::hypot(g, 1.0);
      g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      int64_t i = m;
      while (i-- > l) {
        const double f = s * e[i], b = c * e[i];
        r = std::hypot(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        if (z != nullptr) rotate(z + i * n, z + (i + 1) * n, c, s, n);
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  return true;
}

}  // namespace

bool symmetric_eigen(double* a, int64_t n, double* values, bool vectors, double* work) {
  double *e = work, *p = work + n, *z = vectors ? work + 2 * n : nullptr;
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(a[i])) return false;
  }
  tridiagonalize(a, n, values, e, p, z);
  if (!implicit_ql(values, e, n, z)) return false;
  for (int64_t i = 0; i < n; ++i) {  // ascending
    const int64_t best = std::min_element(values + i, values + n) - values;
    std::swap(values[i], values[best]);
    if (vectors) swap_rows(z, n, i, best);
  }
  if (vectors) std::copy(z, z + n * n, a);
  return true;
}

bool jacobi_svd(double* w, int64_t n, int64_t m, double* values, double* v) {
  set_identity(v, n);
  for (int64_t i = 0; i < n * m; ++i) {
    if (!std::isfinite(w[i])) return false;
  }
  bool turned = n > 1;
  for (int sweep = 0; turned; ++sweep) {
    if (sweep == 60) return false;
    turned = false;
    for (int64_t p = 0; p + 1 < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        double *a = w + p * m, *b = w + q * m;
        const double aa = dot(a, a, m), bb = dot(b, b, m), ab = dot(a, b, m);
        if (ab == 0 || std::abs(ab) <= 4 * kEpsilon * std::sqrt(aa * bb)) continue;
        turned = true;
        const double theta = (bb - aa) / (2 * ab);
        const double t = std::copysign(1 / (std::abs(theta) + std::sqrt(theta * theta + 1)), theta);
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        rotate(a, b, c, s, m);
        rotate(v + p * n, v + q * n, c, s, n);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) values[i] = std::sqrt(dot(w + i * m, w + i * m, m));
  for (int64_t i = 0; i < n; ++i) {  // descending
    const int64_t best = std::max_element(values + i, values + n) - values;
    std::swap(values[i], values[best]);
    swap_rows(w, m, i, best);
    swap_rows(v, n, i, best);
  }
  const double small = n == 0 ? 0 : values[0] * kEpsilon * static_cast<double>(m);
  for (int64_t i = 0; i < n; ++i) {
    const double scale = values[i] > small ? 1 / values[i] : 0;  // directions of no size are made up by complete_basis
    for (int64_t j = 0; j < m; ++j) w[i * m + j] *= scale;
  }
  return true;
}

void complete_basis(double* q, int64_t have, int64_t want, int64_t m) {
  int64_t next = 0;  // axis to try
  for (int64_t r = 0; r < want; ++r) {
    double* row = q + r * m;
    if (r < have && dot(row, row, m) > 0.25) continue;
    for (; next < m; ++next) {
      std::fill(row, row + m, 0.0);
      row[next] = 1;
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t other = 0; other < want; ++other) {
          if (other == r || (other > r && other >= have)) continue;
          subtract(row, q + other * m, dot(row, q + other * m, m), m);
        }
      }
      const double norm = std::sqrt(dot(row, row, m));
      if (norm < 1e-3 / std::sqrt(static_cast<double>(m))) continue;
      for (int64_t j = 0; j < m; ++j) row[j] /= norm;
      ++next;
      break;
    }
  }
}

void matrix_exp(double* a, int64_t n, double* work) {
  double *term = work, *sum = work + n * n, *next = work + 2 * n * n;
  double norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    double column = 0;
    for (int64_t i = 0; i < n; ++i) column += std::abs(a[i * n + j]);
    norm = std::max(norm, column);
  }
  int halvings = 0;
  for (; norm > 0.5 && halvings < 1100 && std::isfinite(norm); ++halvings) norm /= 2;
  for (int64_t i = 0; i < n * n; ++i) a[i] = std::ldexp(a[i], -halvings);
  const auto multiply = [&](const double* x, const double* y, double* out) {
    std::fill(out, out + n * n, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < n; ++k) subtract(out + i * n, y + k * n, -x[i * n + k], n);
    }
  };
  set_identity(sum, n);
  set_identity(term, n);
  for (int k = 1; k <= 18; ++k) {  // 0.5^19 / 19! is below the last bit
    multiply(term, a, next);
    for (int64_t i = 0; i < n * n; ++i) {
      term[i] = next[i] / k;
      sum[i] += term[i];
    }
  }
  for (int s = 0; s < halvings; ++s) {
    multiply(sum, sum, next);
    std::swap(sum, next);
  }
  std::copy(sum, sum + n * n, a);
}

}  // namespace pteron::ops::linalg
