// Kernels of cdist, pdist and linalg_cross. Distances are summed directly (no products of matrices), in float with double totals per
// block. The compiler's half is op.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/elementwise.h"
#include "ops/slices.h"

namespace pteron::ops::distance {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

enum class Kind { kZero, kOne, kTwo, kMax, kPower };

Kind kind_of(double p) {
  if (p == 0) return Kind::kZero;
  if (p == 1) return Kind::kOne;
  if (p == 2) return Kind::kTwo;
  return std::isinf(p) ? Kind::kMax : Kind::kPower;
}

template <typename P, Kind kKind>
double distance_of(const P* a, const P* b, int64_t n, P p) {
  constexpr int kLanes = 16;
  double total = 0;
  for (int64_t from = 0; from < n; from += kRowBlock) {
    const int64_t m = std::min(kRowBlock, n - from);
    P acc[kLanes] = {};
    int64_t i = 0;
    const auto fold = [&](P& into, int64_t at) {
      const P d = std::fabs(a[from + at] - b[from + at]);
      if constexpr (kKind == Kind::kZero) into += d != P(0) ? P(1) : P(0);
      if constexpr (kKind == Kind::kOne) into += d;
      if constexpr (kKind == Kind::kTwo) into += d * d;
      if constexpr (kKind == Kind::kMax) into = d > into || d != d ? d : into;
      if constexpr (kKind == Kind::kPower) into += std::pow(d, p);
    };
    for (; i + kLanes <= m; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) fold(acc[l], i + l);
    }
    for (int l = 0; i < m; ++i, ++l) fold(acc[l], i);
    for (const P part : acc) {
      const double d = static_cast<double>(part);
      total = kKind == Kind::kMax ? (d > total || d != d ? d : total) : total + d;
    }
  }
  if (kKind == Kind::kTwo) return std::sqrt(total);
  return kKind == Kind::kPower ? std::pow(total, 1.0 / static_cast<double>(p)) : total;
}

template <typename P>
using DistanceFn = double (*)(const P* a, const P* b, int64_t n, P p);
template <typename P>
DistanceFn<P> distance_fn(double p) {
  switch (kind_of(p)) {
    case Kind::kZero: return &distance_of<P, Kind::kZero>;
    case Kind::kOne: return &distance_of<P, Kind::kOne>;
    case Kind::kTwo: return &distance_of<P, Kind::kTwo>;
    case Kind::kMax: return &distance_of<P, Kind::kMax>;
    case Kind::kPower: break;
  }
  return &distance_of<P, Kind::kPower>;
}

constexpr int64_t kColumns = 32;  // rows of b that one row of a meets at once: two sums side by side hide the latency of an addition

size_t cdist_workspace(std::span<runtime::Value* const> args) {
  const Tensor& x = args[0]->tensor;
  constexpr int64_t kRows = kColumns + 1;  // of b, and one of a
  return x.rank() < 2 ? 0 : static_cast<size_t>(kScratchLanes * kRows * std::max<int64_t>(x.size(x.rank() - 1), 1)) * sizeof(double);
}
size_t two_rows(int64_t n) { return static_cast<size_t>(kScratchLanes * 2 * std::max<int64_t>(n, 1)) * sizeof(double); }
size_t workspace(std::span<runtime::Value* const> args) {
  const Tensor& x = args[0]->tensor;
  return x.rank() < 2 ? 0 : two_rows(x.size(x.rank() - 1));
}

/// 64 bytes of numbers: one vector, or two where the processor has no AVX-512. Spelled out, since g++ unrolls a loop over so few columns before it looks for vectors.
template <typename P>
struct Lanes {
  static constexpr int64_t kCount = 64 / static_cast<int64_t>(sizeof(P));
  typedef P Vector __attribute__((vector_size(64)));
};

/// Adds |x - b| to `into` as the kind says.
template <Kind kKind, typename V, typename P>
inline void fold_lanes(V& into, const V& b, P x, P p) {
  const V d = x - b;
  if constexpr (kKind == Kind::kTwo) {
    into += d * d;
    return;
  }
  const V size = d < 0 ? -d : d;
  if constexpr (kKind == Kind::kZero) into += d != 0 ? V{} + 1 : V{};
  if constexpr (kKind == Kind::kOne) into += size;
  if constexpr (kKind == Kind::kMax) into = ((size > into) | (size != size)) ? size : into;
  if constexpr (kKind == Kind::kPower) {
    for (int64_t j = 0; j < Lanes<P>::kCount; ++j) into[j] += std::pow(size[j], p);
  }
}

/// Distances of one row to kColumns others that lie side by side.
template <typename P, Kind kKind>
PTERON_WIDE void block_distances(const P* a, const P* turned, int64_t n, P p, double* totals) {
  using V = typename Lanes<P>::Vector;
  constexpr int64_t kLanes = Lanes<P>::kCount, kVectors = kColumns / kLanes;
  for (int64_t from = 0; from < n; from += kRowBlock) {
    V acc[kVectors] = {};
    for (int64_t k = from; k < std::min(n, from + kRowBlock); ++k) {
      for (int64_t v = 0; v < kVectors; ++v) {
        V b;
        std::memcpy(&b, turned + k * kColumns + v * kLanes, sizeof b);
        fold_lanes<kKind>(acc[v], b, a[k], p);
      }
    }
    P parts[kColumns];
    std::memcpy(parts, acc, sizeof parts);
    for (int64_t j = 0; j < kColumns; ++j) {
      const auto part = static_cast<double>(parts[j]);
      if constexpr (kKind == Kind::kMax) {
        totals[j] = part > totals[j] || part != part ? part : totals[j];
      } else {
        totals[j] += part;
      }
    }
  }
  for (int64_t j = 0; j < kColumns; ++j) {
    if constexpr (kKind == Kind::kTwo) totals[j] = std::sqrt(totals[j]);
    if constexpr (kKind == Kind::kPower) totals[j] = std::pow(totals[j], 1.0 / static_cast<double>(p));
  }
}
template <typename P>
auto block_fn(double p) {
  switch (kind_of(p)) {
    case Kind::kZero: return &block_distances<P, Kind::kZero>;
    case Kind::kOne: return &block_distances<P, Kind::kOne>;
    case Kind::kTwo: return &block_distances<P, Kind::kTwo>;
    case Kind::kMax: return &block_distances<P, Kind::kMax>;
    default: return &block_distances<P, Kind::kPower>;
  }
}

/// Rows of `a` against rows of `b` in every batch.
template <typename P>
Status cdist_part(KernelContext& c, const Tensor& a, const Tensor& b, double p, Tensor& out) {
  const LoadFn<P> load_a = load_fn<P>(a.dtype()), load_b = load_fn<P>(b.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  if (load_a == nullptr || load_b == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("cdist of dtype ", dtype_name(a.dtype())));
  const int r = out.rank();
  const int64_t n = a.size(a.rank() - 1), rows = out.size(r - 2), cols = out.size(r - 1);
  const auto stride_of = [](const Tensor& t, int from_end) {
    const int d = t.rank() - from_end;
    return d < 0 || t.size(d) == 1 ? int64_t{0} : t.stride(d);
  };
  RankList<Axis> batch;  // in: of a; out[0]: of out; out[1]: of b
  for (int d = 0; d < r - 2; ++d) batch.push_back({out.size(d), stride_of(a, r - d), {out.stride(d), stride_of(b, r - d)}});
  if (out.numel() == 0) return ok_status();
  const int64_t blocks = ceil_div(cols, kColumns), units = out.numel() / (rows * cols) * blocks;
  const int64_t lanes = rows * units * kColumns * std::max<int64_t>(n, 1) < kGrainElems ? 1 : scratch_lanes(units);
  P* scratch = reinterpret_cast<P*>(c.scratch.data());
  const auto fold = block_fn<P>(p);
  const bool direct = dtype_size(out.dtype()) == sizeof(P) && out.stride(r - 1) == 1;
  c.pool->parallel_for(lanes, 1, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      P* turned = scratch + lane * (kColumns + 1) * n;  // rows of b side by side: [n, kColumns]
      P* buffer = turned + kColumns * n;
      for (int64_t unit = units * lane / lanes; unit < units * (lane + 1) / lanes; ++unit) {
        const Walker at({batch.begin(), batch.size()}, unit / blocks);
        const int64_t from = unit % blocks * kColumns, count = std::min(kColumns, cols - from);
        std::fill(turned, turned + kColumns * n, P(0));
        for (int64_t j = 0; j < count; ++j) {
          const P* row = load_b(b.view.data, at.out(1) + (from + j) * b.stride(b.rank() - 2), b.stride(b.rank() - 1), n, buffer);
          for (int64_t k = 0; k < n; ++k) turned[k * kColumns + j] = row[k];
        }
        for (int64_t i = 0; i < rows; ++i) {
          const P* row = load_a(a.view.data, at.in() + i * stride_of(a, 2), a.stride(a.rank() - 1), n, buffer);
          double totals[kColumns] = {};
          fold(row, turned, n, static_cast<P>(p), totals);
          const int64_t to = at.out(0) + i * out.stride(r - 2) + from * out.stride(r - 1);
          if (direct) {
            for (int64_t j = 0; j < count; ++j) out.as<P>()[to + j] = static_cast<P>(totals[j]);
          } else {
            for (int64_t j = 0; j < count; ++j) store(out.view.data, to + j * out.stride(r - 1), totals[j]);
          }
        }
      }
    }
  });
  return ok_status();
}

Status cdist(KernelContext& c, const Tensor& a, const Tensor& b, double p, std::optional<int64_t>, Tensor& out) {
  if (a.rank() < 2 || b.rank() < 2 || a.size(a.rank() - 1) != b.size(b.rank() - 1) || p < 0) {
    return Status(Code::kInvalidInput, str_cat("cdist of shapes ", shape_text(a.sizes()), " and ", shape_text(b.sizes()), " with p ", p));
  }
  Sizes sizes;
  PTERON_TRY(broadcast_sizes(a.sizes().first(static_cast<size_t>(a.rank() - 2)), b.sizes().first(static_cast<size_t>(b.rank() - 2)), &sizes));
  sizes.push_back(a.size(a.rank() - 2));
  sizes.push_back(b.size(b.rank() - 2));
  PTERON_TRY(runtime::resize(out, sizes));
  if (!is_floating(a.dtype())) return Status(Code::kUnsupported, str_cat("cdist of dtype ", dtype_name(a.dtype())));
  return a.dtype() == DType::kFloat64 ? cdist_part<double>(c, a, b, p, out) : cdist_part<float>(c, a, b, p, out);
}

template <typename P>
Status pdist_part(KernelContext& c, const Tensor& self, double p, Tensor& out) {
  const LoadFn<P> load = load_fn<P>(self.dtype());
  const StoreFn<double> store = store_fn<double>(out.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("pdist of dtype ", dtype_name(self.dtype())));
  const int64_t rows = self.size(0), n = self.size(1);
  P* buffer_a = reinterpret_cast<P*>(c.scratch.data());
  P* buffer_b = buffer_a + n;
  const DistanceFn<P> distance = distance_fn<P>(p);
  int64_t place = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const P* a = load(self.view.data, i * self.stride(0), self.stride(1), n, buffer_a);
    for (int64_t j = i + 1; j < rows; ++j, ++place) {
      const P* b = load(self.view.data, j * self.stride(0), self.stride(1), n, buffer_b);
      store(out.view.data, place * out.stride(0), distance(a, b, n, static_cast<P>(p)));
    }
  }
  return ok_status();
}

Status pdist(KernelContext& c, const Tensor& self, double p, Tensor& out) {
  if (self.rank() != 2 || !is_floating(self.dtype()) || p < 0) return Status(Code::kInvalidInput, str_cat("pdist of shape ", shape_text(self.sizes())));
  const int64_t rows = self.size(0);
  const int64_t sizes[] = {rows < 2 ? 0 : rows * (rows - 1) / 2};
  PTERON_TRY(runtime::resize(out, sizes));
  return self.dtype() == DType::kFloat64 ? pdist_part<double>(c, self, p, out) : pdist_part<float>(c, self, p, out);
}

template <typename P>
Status cross_part(KernelContext& c, const Tensor& self, const Tensor& other, int dim, Tensor& out) {
  const LoadFn<P> load_a = load_fn<P>(self.dtype()), load_b = load_fn<P>(other.dtype());
  const StoreFn<P> store = store_fn<P>(out.dtype());
  if (load_a == nullptr || load_b == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("cross of dtype ", dtype_name(self.dtype())));
  const auto stride_of = [](const Tensor& t, int d) { return t.size(d) == 1 ? int64_t{0} : t.stride(d); };
  RankList<Axis> axes;
  int64_t count = 1;
  for (int d = 0; d < out.rank(); ++d) {
    if (d == dim) continue;
    axes.push_back({out.size(d), stride_of(self, d), {out.stride(d), stride_of(other, d)}});
    count *= out.size(d);
  }
  const int64_t sa = self.stride(dim), sb = other.stride(dim), so = out.stride(dim);
  c.pool->parallel_for(count, kGrainElems / 8, [&](int64_t begin, int64_t end) {
    Walker at({axes.begin(), axes.size()}, begin);
    P a_buffer[3], b_buffer[3];
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const P* a = load_a(self.view.data, at.in(), sa, 3, a_buffer);
      const P* b = load_b(other.view.data, at.out(1), sb, 3, b_buffer);
      const auto minor = [&](int j, int k) {
        if constexpr (std::is_integral_v<P>) return static_cast<P>(static_cast<uint64_t>(a[j]) * static_cast<uint64_t>(b[k]) - static_cast<uint64_t>(a[k]) * static_cast<uint64_t>(b[j]));
        else return a[j] * b[k] - a[k] * b[j];
      };
      const P result[3] = {minor(1, 2), minor(2, 0), minor(0, 1)};
      for (int k = 0; k < 3; ++k) store(out.view.data, at.out(0) + k * so, result[k]);
    }
  });
  return ok_status();
}

Status cross(KernelContext& c, const Tensor& self, const Tensor& other, int64_t dim, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  Sizes sizes;
  PTERON_TRY(broadcast_sizes(self.sizes(), other.sizes(), &sizes));
  if (self.rank() != other.rank() || self.rank() == 0 || self.size(d) != 3 || other.size(d) != 3) {
    return Status(Code::kInvalidInput, str_cat("cross of shapes ", shape_text(self.sizes()), " and ", shape_text(other.sizes()), " along dim ", d));
  }
  PTERON_TRY(runtime::resize(out, sizes));
  if (is_complex(out.dtype())) return cross_part<std::complex<double>>(c, self, other, d, out);
  if (is_integral(out.dtype(), true)) return cross_part<int64_t>(c, self, other, d, out);
  return out.dtype() == DType::kFloat64 ? cross_part<double>(c, self, other, d, out) : cross_part<float>(c, self, other, d, out);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::_cdist_forward.out", PTERON_KERNEL(cdist), cdist_workspace},
    {"aten::_pdist_forward.out", PTERON_KERNEL(pdist), workspace},
    {"aten::linalg_cross.out", PTERON_KERNEL(cross)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::distance
