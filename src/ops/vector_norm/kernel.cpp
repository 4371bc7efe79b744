// Kernels of linalg_vector_norm, embedding_renorm and singular values. The compiler's half is op.cpp.
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/reduction.h"

namespace pteron::ops::vector_norm {
namespace {

using runtime::KernelContext;
using runtime::OptionalIntList;
using runtime::Scalar;
using runtime::Tensor;

enum class Kind { kZero, kOne, kTwo, kMax, kMin, kPower };

Kind kind_of(double ord) {
  if (ord == 0) return Kind::kZero;
  if (ord == 1) return Kind::kOne;
  if (ord == 2) return Kind::kTwo;
  if (std::isinf(ord)) return ord > 0 ? Kind::kMax : Kind::kMin;
  return Kind::kPower;
}

/// Folds |x|^p, or the largest or smallest |x|, where NaN wins.
template <typename P, Kind kKind>
struct NormFold : FoldBase<P, double> {
  P ord;
  static constexpr bool kExtreme = kKind == Kind::kMax || kKind == Kind::kMin;
  P identity() const { return kKind == Kind::kMin ? std::numeric_limits<P>::infinity() : P(0); }
  P fold(P acc, P x, P) const {
    if constexpr (kKind == Kind::kZero) return acc + (x != P(0) ? P(1) : P(0));
    if constexpr (kKind == Kind::kTwo) return acc + x * x;
    if constexpr (kKind == Kind::kPower) return acc + std::pow(std::fabs(x), ord);
    return join(acc, std::fabs(x));
  }
  P join(P a, P b) const { return pick(a, b); }
  double start() const { return static_cast<double>(identity()); }
  double merge(double total, P acc) const { return pick(total, static_cast<double>(acc)); }
  double combine(double a, double b) const { return pick(a, b); }

 private:
  template <typename T>
  static T pick(T a, T b) {
    if constexpr (!kExtreme) return a + b;
    const T better = kKind == Kind::kMax ? (b > a ? b : a) : (b < a ? b : a);
    return b != b ? b : better;
  }
};

/// The norm from the total.
double finish(Kind kind, double total, double ord) {
  if (kind == Kind::kTwo) return std::sqrt(total);
  return kind == Kind::kPower ? std::pow(total, 1.0 / ord) : total;
}

template <typename P, Kind kKind>
void norm_kind(KernelContext& c, const Tensor& self, const ReducePlan& plan, LoadFn<P> load, double ord, StoreFn<double> store, Tensor& out) {
  NormFold<P, kKind> fold;
  fold.ord = static_cast<P>(ord);
  fold_reduce(*c.pool, plan, self.view.data, load, fold,
              [&](const OutPlace& at, double total) { store(out.view.data, at.offset[0], finish(kKind, total, ord)); });
}

/// |z| for complex elements.
template <typename P, typename T>
const P* load_abs(const void* data, int64_t offset, int64_t stride, int64_t n, P* buffer) {
  const auto* from = static_cast<const std::complex<T>*>(data) + offset;
  for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<P>(std::hypot(from[i * stride].real(), from[i * stride].imag()));
  return buffer;
}
template <typename P>
LoadFn<P> load_magnitude(DType dtype) {
  if (dtype == DType::kComplexFloat) return &load_abs<P, float>;
  if (dtype == DType::kComplexDouble) return &load_abs<P, double>;
  return load_fn<P>(dtype);
}

template <typename P>
Status norm_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, double ord, Tensor& out) {
  const LoadFn<P> load = load_magnitude<P>(self.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("norm of dtype ", dtype_name(self.dtype())));
  switch (kind_of(ord)) {
    case Kind::kZero: norm_kind<P, Kind::kZero>(c, self, plan, load, ord, store, out); break;
    case Kind::kOne: norm_kind<P, Kind::kOne>(c, self, plan, load, ord, store, out); break;
    case Kind::kTwo: norm_kind<P, Kind::kTwo>(c, self, plan, load, ord, store, out); break;
    case Kind::kMax: norm_kind<P, Kind::kMax>(c, self, plan, load, ord, store, out); break;
    case Kind::kMin: norm_kind<P, Kind::kMin>(c, self, plan, load, ord, store, out); break;
    case Kind::kPower: norm_kind<P, Kind::kPower>(c, self, plan, load, ord, store, out); break;
  }
  return ok_status();
}

Status vector_norm(KernelContext& c, const Tensor& self, Scalar ord, OptionalIntList dim, bool keepdim, std::optional<DType>, Tensor& out) {
  PTERON_ASSIGN(const uint32_t mask, reduce_mask(dim.list, self.rank()));
  PTERON_TRY(runtime::resize(out, reduced_sizes(self.sizes(), mask, keepdim)));
  const TensorView* const outs[] = {&out.view};
  const ReducePlan plan = plan_reduction(self.view, mask, keepdim, outs);
  const double p = ord.to_double();
  if (plan.count == 0 && plan.outputs > 0 && (p < 0 || std::isinf(p))) {
    return Status(Code::kInvalidInput, str_cat("norm of order ", p, " of no elements"));
  }
  const bool wide = self.dtype() == DType::kFloat64 || self.dtype() == DType::kComplexDouble || out.dtype() == DType::kFloat64;
  return wide ? norm_part<double>(c, self, plan, p, out) : norm_part<float>(c, self, plan, p, out);
}

// ---- embedding_renorm

size_t renorm_workspace(std::span<runtime::Value* const> args) {
  return static_cast<size_t>(args[0]->tensor.rank() > 0 ? args[0]->tensor.size(0) : 0);  // one mark per row
}

double row_norm(const TensorView& t, int64_t row, double ord) {
  const LoadFn<double> load = load_fn<double>(t.dtype);
  const Kind kind = kind_of(ord);
  double buffer[256];
  double total = kind == Kind::kMin ? std::numeric_limits<double>::infinity() : 0;
  for (int64_t from = 0; from < t.size(1); from += 256) {
    const int64_t n = std::min<int64_t>(256, t.size(1) - from);
    const double* p = load(t.data, row * t.stride(0) + from * t.stride(1), t.stride(1), n, buffer);
    for (int64_t i = 0; i < n; ++i) {
      const double a = std::fabs(p[i]);
      switch (kind) {
        case Kind::kZero: total += a != 0 ? 1 : 0; break;
        case Kind::kOne: total += a; break;
        case Kind::kTwo: total += a * a; break;
        case Kind::kMax: total = std::fmax(total, a); break;
        case Kind::kMin: total = std::fmin(total, a); break;
        case Kind::kPower: total += std::pow(a, ord); break;
      }
    }
  }
  return finish(kind, total, ord);
}

/// self with the rows that `indices` name scaled down to max_norm.
Status embedding_renorm(KernelContext& c, const Tensor& self, const Tensor& indices, double max_norm, double norm_type, Tensor& out) {
  if (self.rank() != 2 || !is_floating(self.dtype()) || out.dtype() != self.dtype() || load_fn<double>(self.dtype()) == nullptr) {
    return Status(Code::kUnsupported, "embedding_renorm expects a matrix of floating numbers");
  }
  PTERON_TRY(runtime::resize(out, self.sizes()));
  if (out.view.data != self.view.data) copy_strided(self.view, out.view);
  const int64_t rows = self.size(0);
  std::byte* marks = c.scratch.data();
  if (rows > 0) std::memset(marks, 0, static_cast<size_t>(rows));
  const LoadFn<int64_t> load_index = load_fn<int64_t>(indices.dtype());
  if (load_index == nullptr || !is_integral(indices.dtype(), false)) return Status(Code::kUnsupported, "embedding_renorm expects integer indices");
  RankList<Axis> axes;
  for (int d = 0; d < indices.rank(); ++d) axes.push_back({indices.size(d), indices.stride(d), {0, 0}});
  Walker at({axes.begin(), axes.size()}, 0);
  const LoadFn<double> load = load_fn<double>(self.dtype());
  const StoreFn<double> store = store_fn<double>(self.dtype());
  for (int64_t i = 0; i < indices.numel(); ++i, at.next()) {
    int64_t row;
    row = *load_index(indices.view.data, at.in(), 1, 1, &row);
    if (row < 0 || row >= rows) return Status(Code::kInvalidInput, str_cat("index ", row, " is outside [0,", rows, ")"));
    if (marks[row] != std::byte{0}) continue;
    marks[row] = std::byte{1};
    // ATen has norm and scale as numbers of the rows' dtype.
    const auto rounded = [&](double x) {
      dispatch_floating(self.dtype(), [&]<typename T>() { x = convert<double>(convert<T>(x)); });
      return x;
    };
    const double norm = rounded(row_norm(out.view, row, norm_type));
    if (!(norm > max_norm)) continue;
    const double scale = rounded(max_norm / (norm + 1e-7));
    for (int64_t k = 0; k < out.size(1); ++k) {
      const int64_t place = row * out.stride(0) + k * out.stride(1);
      double x;
      x = *load(out.view.data, place, 1, 1, &x);
      store(out.view.data, place, self.dtype() == DType::kFloat64 ? x * scale : static_cast<double>(static_cast<float>(x) * static_cast<float>(scale)));
    }
  }
  return ok_status();
}

// ---- singular values: one-sided Jacobi on the columns of a tall matrix, in double

constexpr int64_t kMaxSweeps = 60;

size_t svd_workspace(std::span<runtime::Value* const> args) {
  const Tensor& a = args[0]->tensor;
  return a.rank() < 2 ? 0 : static_cast<size_t>(a.size(a.rank() - 2) * a.size(a.rank() - 1)) * sizeof(double);
}

/// Makes columns p and q orthogonal; true if they were not.
bool rotate(double* p, double* q, int64_t n) {
  double pp = 0, qq = 0, pq = 0;
  for (int64_t i = 0; i < n; ++i) {
    pp += p[i] * p[i];
    qq += q[i] * q[i];
    pq += p[i] * q[i];
  }
  if (!(std::fabs(pq) > 1e-15 * std::sqrt(pp * qq))) return false;
  const double zeta = (qq - pp) / (2 * pq);
  const double t = (zeta >= 0 ? 1.0 : -1.0) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
  const double cosine = 1 / std::sqrt(1 + t * t);
  const double sine = cosine * t;
  for (int64_t i = 0; i < n; ++i) {
    const double x = p[i];
    p[i] = cosine * x - sine * q[i];
    q[i] = sine * x + cosine * q[i];
  }
  return true;
}

Status svdvals(KernelContext& c, const Tensor& a, runtime::Value&, Tensor& out) {
  const int rank = a.rank();
  if (rank < 2 || (a.dtype() != DType::kFloat32 && a.dtype() != DType::kFloat64)) return Status(Code::kUnsupported, "svdvals expects float matrices");
  const int64_t rows = a.size(rank - 2), cols = a.size(rank - 1);
  const bool tall = rows >= cols;
  const int64_t length = std::max(rows, cols), count = std::min(rows, cols);
  Sizes sizes(a.sizes().first(static_cast<size_t>(rank - 2)));
  sizes.push_back(count);
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  double* columns = reinterpret_cast<double*>(c.scratch.data());
  const LoadFn<double> load = load_fn<double>(a.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  RankList<Axis> batch;
  for (int d = 0; d < rank - 2; ++d) batch.push_back({a.size(d), a.stride(d), {out.stride(d), 0}});
  Walker at({batch.begin(), batch.size()}, 0);
  for (int64_t b = 0; b < out.numel() / count; ++b, at.next()) {
    const int64_t along = a.stride(tall ? rank - 2 : rank - 1), across = a.stride(tall ? rank - 1 : rank - 2);
    for (int64_t k = 0; k < count; ++k) {
      const double* p = load(a.view.data, at.in() + k * across, along, length, columns + k * length);
      if (p != columns + k * length) std::memcpy(columns + k * length, p, static_cast<size_t>(length) * sizeof(double));
    }
    bool changed = true;
    for (int64_t sweep = 0; changed && sweep < kMaxSweeps; ++sweep) {
      changed = false;
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t q = p + 1; q < count; ++q) changed = rotate(columns + p * length, columns + q * length, length) || changed;
      }
    }
    for (int64_t k = 0; k < count; ++k) {
      double square = 0;
      for (int64_t i = 0; i < length; ++i) square += columns[k * length + i] * columns[k * length + i];
      columns[k * length] = std::sqrt(square);
    }
    for (int64_t k = 0; k < count; ++k) {  // largest first
      int64_t best = k;
      for (int64_t m = k + 1; m < count; ++m) best = columns[m * length] > columns[best * length] ? m : best;
      std::swap(columns[k * length], columns[best * length]);
      store(out.view.data, at.out(0) + k * out.stride(rank - 2), columns[k * length]);
    }
  }
  return ok_status();
}

constexpr runtime::Kernel kTable[] = {
    {"aten::linalg_vector_norm.out", PTERON_KERNEL(vector_norm)},
    {"aten::embedding_renorm.out", PTERON_KERNEL(embedding_renorm), renorm_workspace},
    {"aten::linalg_svdvals.out", PTERON_KERNEL(svdvals), svd_workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::vector_norm
