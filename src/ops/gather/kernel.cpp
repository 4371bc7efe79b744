// gather and the scatter family. Rows of the index are walked; scatters run in order, so that the last of equal indices stays.
// Reductions of half and bfloat16 accumulate in float in scratch and are rounded once, as ATen does.
#include <algorithm>
#include <limits>

#include "ops/copy.h"
#include "ops/element.h"
#include "ops/index/reader.h"
#include "ops/kernels.h"
#include "ops/walk.h"
#include "tensor/dim_math.h"

namespace pteron::ops::gather {
namespace {

using index::BadIndex;
using index::Reader;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// The walk over an index tensor: `table` is indexed along `dim`, `other` runs with the index. Rank 0 counts as rank 1.
struct Lanes {
  int dim = 0;
  int64_t dim_size = 1, dim_stride = 0;  ///< of the table along `dim`
  Sizes sizes;                           ///< of the index
  Sizes index_strides, table_strides, other_strides;
  Reader reader;
};

Sizes as_rank_1(std::span<const int64_t> list, int64_t filler) { return list.empty() ? Sizes{filler} : Sizes(list); }

/// `other` may be null (a number). Errors: kInvalidInput if shapes do not fit.
Status make_lanes(const TensorView& table, int64_t dim, const Tensor& index, const TensorView* other, Lanes* lanes) {
  PTERON_ASSIGN(lanes->dim, wrap_dim(dim, table.rank));
  lanes->sizes = as_rank_1(index.sizes(), 1);
  lanes->index_strides = as_rank_1(index.strides(), 0);
  if (index.numel() == 0) return ok_status();
  PTERON_TRY(index::make_reader(index, &lanes->reader));
  const Sizes table_sizes = as_rank_1(table.sizes(), 1), table_strides = as_rank_1(table.strides(), 0);
  const Sizes other_sizes = other == nullptr ? lanes->sizes : as_rank_1(other->sizes(), 1);
  lanes->other_strides = other == nullptr ? Sizes(lanes->sizes.size(), 0) : as_rank_1(other->strides(), 0);
  bool fits = table_sizes.size() == lanes->sizes.size() && other_sizes.size() == lanes->sizes.size();
  for (size_t d = 0; fits && d < table_sizes.size(); ++d) {
    fits = lanes->sizes[d] <= other_sizes[d] && (static_cast<int>(d) == lanes->dim || lanes->sizes[d] <= table_sizes[d]);
  }
  if (!fits) {
    return Status(Code::kInvalidInput, str_cat("index of shape ", shape_text(index.sizes()), " does not fit shapes ", shape_text(table.sizes()), " and ",
                                               shape_text(other_sizes)));
  }
  const auto d = static_cast<size_t>(lanes->dim);
  lanes->dim_size = table_sizes[d];
  lanes->dim_stride = table_strides[d];
  lanes->table_strides = table_strides;
  lanes->table_strides[d] = 0;
  return ok_status();
}

/// The loop of for_lanes; pick_at gives the index at an offset of the index tensor.
template <typename PickAt, typename Fn>
void for_picks(const Lanes& lanes, int64_t begin, int64_t end, BadIndex& bad, const PickAt& pick_at, Fn&& fn) {
  const size_t last = lanes.sizes.size() - 1;
  const int64_t n = lanes.sizes[last], index_step = lanes.index_strides[last], table_step = lanes.table_strides[last], other_step = lanes.other_strides[last];
  const std::array<Sizes, 3> strides{without_last(lanes.index_strides), without_last(lanes.table_strides), without_last(lanes.other_strides)};
  walk<3>(without_last(lanes.sizes), strides, begin, end, [&](const std::array<int64_t, 3>& at, const Sizes&) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t pick = pick_at(at[0] + i * index_step);
      if (pick < 0 || pick >= lanes.dim_size) [[unlikely]] {
        bad.note(pick, lanes.dim, lanes.dim_size);
        continue;
      }
      fn(at[1] + i * table_step + pick * lanes.dim_stride, at[2] + i * other_step);
    }
  });
}

/// fn(offset in table, offset in other) for rows [begin, end) of the index; bad indices are noted and skipped.
template <typename Fn>
void for_lanes(const Lanes& lanes, int64_t begin, int64_t end, BadIndex& bad, Fn&& fn) {
  if (lanes.reader.dtype == DType::kInt64) {
    const auto* const picks = static_cast<const int64_t*>(lanes.reader.data);
    return for_picks(lanes, begin, end, bad, [picks](int64_t at) { return picks[at]; }, fn);
  }
  for_picks(lanes, begin, end, bad, [&](int64_t at) { return lanes.reader.at(at); }, fn);
}

int64_t row_count(const Lanes& lanes) { return index_count(without_last(lanes.sizes)); }

Status gather(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, bool, Tensor& out) {
  PTERON_TRY(resize(out, index.sizes()));
  if (index.numel() == 0) return ok_status();
  Lanes lanes;
  PTERON_TRY(make_lanes(self.view, dim, index, &out.view, &lanes));
  BadIndex bad;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(row_count(lanes), row_grain(lanes.sizes.back()), [&](int64_t begin, int64_t end) {
      for_lanes(lanes, begin, end, bad, [&](int64_t from, int64_t to) { out.as<T>()[to] = self.as<T>()[from]; });
    });
  });
  return bad.status();
}

Status start(KernelContext& context, const Tensor& self, Tensor& out) {
  PTERON_TRY(resize(out, self.sizes()));
  if (out.view.data == self.view.data) return ok_status();
  return copy_tensor(context, self.view, out.view);
}

Status check_dtype(const Tensor& self, const Tensor& src) {
  if (self.dtype() == src.dtype()) return ok_status();
  return Status(Code::kInvalidInput, str_cat("scatter of ", dtype_name(src.dtype()), " into ", dtype_name(self.dtype())));
}

Status scatter_src(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, Tensor& out) {
  PTERON_TRY(check_dtype(self, src));
  PTERON_TRY(start(context, self, out));
  Lanes lanes;
  PTERON_TRY(make_lanes(out.view, dim, index, &src.view, &lanes));
  if (index.numel() == 0) return ok_status();
  BadIndex bad;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    for_lanes(lanes, 0, row_count(lanes), bad, [&](int64_t to, int64_t from) { out.as<T>()[to] = src.as<T>()[from]; });
  });
  return bad.status();
}

Status scatter_value(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Scalar value, Tensor& out) {
  Element element;
  PTERON_TRY(element_of(value, self.dtype(), &element));
  PTERON_TRY(start(context, self, out));
  Lanes lanes;
  PTERON_TRY(make_lanes(out.view, dim, index, nullptr, &lanes));
  if (index.numel() == 0) return ok_status();
  BadIndex bad;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    const T fill = *reinterpret_cast<const T*>(element.bytes);
    for_lanes(lanes, 0, row_count(lanes), bad, [&](int64_t to, int64_t) { out.as<T>()[to] = fill; });
  });
  return bad.status();
}

enum class Reduce : uint8_t { kSum, kProd, kMean, kMax, kMin };

Status reduce_of(std::string_view name, Reduce* out) {
  struct Row {
    std::string_view name;
    Reduce reduce;
  };
  constexpr Row kRows[] = {{"add", Reduce::kSum},  {"sum", Reduce::kSum},  {"multiply", Reduce::kProd}, {"prod", Reduce::kProd},
                           {"mean", Reduce::kMean}, {"amax", Reduce::kMax}, {"amin", Reduce::kMin}};
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    *out = row.reduce;
    return ok_status();
  }
  return Status(Code::kUnsupported, str_cat("scatter with reduction ", name));
}

template <typename M>
M neutral(Reduce reduce) {
  if (reduce == Reduce::kSum || reduce == Reduce::kMean) return M(0);
  if (reduce == Reduce::kProd) return M(1);
  if constexpr (std::is_floating_point_v<M>) {
    return reduce == Reduce::kMax ? -std::numeric_limits<M>::infinity() : std::numeric_limits<M>::infinity();
  } else if constexpr (std::is_integral_v<M>) {
    return reduce == Reduce::kMax ? std::numeric_limits<M>::lowest() : std::numeric_limits<M>::max();
  } else {
    return M(0);
  }
}

template <typename M>
M combine(Reduce reduce, M x, M y) {
  switch (reduce) {
    case Reduce::kProd: return static_cast<M>(x * y);
    case Reduce::kSum:
    case Reduce::kMean: return static_cast<M>(x + y);
    default: break;
  }
  if constexpr (std::is_floating_point_v<M>) {
    if (x != x || y != y) return x != x ? x : y;  // NaN wins
  }
  if constexpr (std::is_arithmetic_v<M>) return reduce == Reduce::kMax ? (x < y ? y : x) : (y < x ? y : x);
  return x;
}

/// What a reducing scatter works in: sums of 16-bit floats and counts of means live in scratch, in the out tensor's own positions.
constexpr size_t kScratchPerElement = sizeof(float) + sizeof(int64_t);

size_t reduce_workspace(std::span<Value* const> args) {
  // Out tensors are dense, so positions in their memory are below numel.
  return args[0]->tag == Tag::kTensor ? static_cast<size_t>(args[0]->tensor.numel()) * kScratchPerElement + 64 : 0;
}

struct Reduction {
  Reduce reduce = Reduce::kSum;
  bool include_self = true;
};

template <typename T>
void run_reduce(const Lanes& lanes, const Reduction& how, const T* src, const TensorView& out, int64_t* counts, float* sums, BadIndex& bad) {
  using M = MathOf<T>;
  const int64_t numel = out.numel(), rows = row_count(lanes);
  M* acc = nullptr;
  if constexpr (!std::is_same_v<M, T>) {
    acc = sums;
    for (int64_t i = 0; i < numel; ++i) acc[i] = to_math(out.as<T>()[i]);
  } else {
    acc = out.as<T>();
  }
  if (!how.include_self) {
    for_lanes(lanes, 0, rows, bad, [&](int64_t to, int64_t) { acc[to] = neutral<M>(how.reduce); });
  }
  const bool mean = how.reduce == Reduce::kMean;
  if (mean) std::fill(counts, counts + numel, how.include_self ? 1 : 0);
  for_lanes(lanes, 0, rows, bad, [&](int64_t to, int64_t from) {
    acc[to] = combine<M>(how.reduce, acc[to], to_math(src[from]));
    if (mean) ++counts[to];
  });
  for (int64_t i = 0; mean && i < numel; ++i) {
    if (counts[i] <= 1) continue;
    if constexpr (std::is_floating_point_v<M>) {
      acc[i] /= static_cast<M>(counts[i]);
    } else if constexpr (std::is_integral_v<M> && !std::is_same_v<M, bool>) {
      acc[i] = static_cast<M>(floor_div(static_cast<int64_t>(acc[i]), counts[i]));
    } else if constexpr (!std::is_same_v<M, bool>) {
      acc[i] /= static_cast<typename M::value_type>(counts[i]);
    }
  }
  if constexpr (!std::is_same_v<M, T>) {
    for (int64_t i = 0; i < numel; ++i) out.as<T>()[i] = from_math<T>(acc[i]);
  }
}

Status reduce_into(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor* src, const Scalar& value, Reduction how,
                   Tensor& out) {
  PTERON_TRY(start(context, self, out));
  Lanes lanes;
  PTERON_TRY(make_lanes(out.view, dim, index, src == nullptr ? nullptr : &src->view, &lanes));
  if (index.numel() == 0) return ok_status();
  const auto numel = static_cast<size_t>(out.numel());
  uint64_t extent = 0;
  if (!strided_extent_bytes(out.sizes(), out.strides(), 1, &extent) || extent > numel) return Status(Code::kUnsupported, "scatter into a tensor that is not dense");
  if (context.scratch.size() < numel * kScratchPerElement) return Status(Code::kInternal, "scatter: scratch is too small");
  auto* counts = reinterpret_cast<int64_t*>(context.scratch.data());
  auto* sums = reinterpret_cast<float*>(counts + numel);
  BadIndex bad;
  const bool done = dispatch_dtype(out.dtype(), [&]<typename T>() {
    const T number = scalar_as<T>(value);
    run_reduce<T>(lanes, how, src == nullptr ? &number : src->as<T>(), out.view, counts, sums, bad);
  });
  if (!done) return Status(Code::kUnsupported, str_cat("scatter with a reduction of dtype ", dtype_name(out.dtype())));
  return bad.status();
}

Status scatter_add(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, Tensor& out) {
  PTERON_TRY(check_dtype(self, src));
  return reduce_into(context, self, dim, index, &src, {}, {Reduce::kSum, true}, out);
}

Status scatter_reduce(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self, Tensor& out) {
  Reduction how{Reduce::kSum, include_self};
  PTERON_TRY(reduce_of(reduce, &how.reduce));
  PTERON_TRY(check_dtype(self, src));
  return reduce_into(context, self, dim, index, &src, {}, how, out);
}

Status scatter_src_reduce(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                          Tensor& out) {
  return scatter_reduce(context, self, dim, index, src, reduce, true, out);
}

Status scatter_value_reduce(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Scalar value, std::string_view reduce,
                            Tensor& out) {
  Reduction how;
  PTERON_TRY(reduce_of(reduce, &how.reduce));
  return reduce_into(context, self, dim, index, nullptr, value, how, out);
}

constexpr Kernel kTable[] = {
    {"aten::gather.out", PTERON_KERNEL(gather)},
    {"aten::scatter.src_out", PTERON_KERNEL(scatter_src)},
    {"aten::scatter.value_out", PTERON_KERNEL(scatter_value)},
    {"aten::scatter.reduce_out", PTERON_KERNEL(scatter_src_reduce), reduce_workspace},
    {"aten::scatter.value_reduce_out", PTERON_KERNEL(scatter_value_reduce), reduce_workspace},
    {"aten::scatter_add.out", PTERON_KERNEL(scatter_add), reduce_workspace},
    {"aten::scatter_reduce.two_out", PTERON_KERNEL(scatter_reduce), reduce_workspace},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::gather
