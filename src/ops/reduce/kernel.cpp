// Kernels of simple reductions: sum, nansum, mean, prod, amax/amin and their full forms, aminmax, any, all, count_nonzero. The compiler's half
// is op.cpp. Reductions that name positions are in arg_reduce/, variances in variance/, norms in vector_norm/.
#include <limits>

#include "ops/reduction.h"

namespace pteron::ops::reduce {
namespace {

using runtime::KernelContext;
using runtime::OptionalIntList;
using runtime::Tensor;

/// E: the elements' type, widened one by one.
template <typename P, typename E = P>
struct ProdFold : FoldBase<P, P, E> {
  P identity() const { return P(1); }
  P fold(P acc, E x, P) const { return wrap_mul(acc, static_cast<P>(x)); }
  P join(P a, P b) const { return wrap_mul(a, b); }
  P start() const { return P(1); }
  P merge(P total, P acc) const { return wrap_mul(total, acc); }
  P combine(P a, P b) const { return wrap_mul(a, b); }
};

/// Largest (or smallest) element; NaN wins.
template <typename P, bool kMax>
struct ExtremeFold : FoldBase<P, P> {
  P identity() const {
    using Limits = std::numeric_limits<P>;
    if constexpr (Limits::has_infinity) return kMax ? -Limits::infinity() : Limits::infinity();
    return kMax ? Limits::lowest() : Limits::max();
  }
  P fold(P acc, P x, P) const { return join(acc, x); }
  P join(P a, P b) const {
    if constexpr (std::is_floating_point_v<P>) {
      const P better = kMax ? (b > a ? b : a) : (b < a ? b : a);  // keeps a NaN in a
      return b != b ? b : better;
    } else {
      return kMax ? std::max(a, b) : std::min(a, b);
    }
  }
  P start() const { return identity(); }
  P merge(P total, P acc) const { return join(total, acc); }
  P combine(P a, P b) const { return join(a, b); }
};

/// Sum of the elements that are numbers.
template <typename P, typename T, typename E = P>
struct NumberFold : SumFold<P, T, E> {
  P fold(P acc, E x, P) const { return wrap_add(acc, x == x ? static_cast<P>(x) : P(0)); }
};

template <bool kAll>
struct TruthFold : FoldBase<uint8_t, uint8_t> {
  uint8_t identity() const { return kAll ? 1 : 0; }
  uint8_t fold(uint8_t acc, uint8_t x, uint8_t) const { return join(acc, x); }
  uint8_t join(uint8_t a, uint8_t b) const { return static_cast<uint8_t>(kAll ? a & b : a | b); }
  uint8_t start() const { return identity(); }
  uint8_t merge(uint8_t total, uint8_t acc) const { return join(total, acc); }
  uint8_t combine(uint8_t a, uint8_t b) const { return join(a, b); }
};

Status no_dtype(const char* what, const Tensor& self) {
  return Status(Code::kUnsupported, str_cat(what, " of dtype ", dtype_name(self.dtype())));
}

/// What all reductions to one out share: dims, the out's size, the plan.
struct Reduction {
  uint32_t mask = 0;
  ReducePlan plan;
};

Status prepare(const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor& out, Reduction* made) {
  PTERON_ASSIGN(made->mask, reduce_mask(dims, self.rank()));
  PTERON_TRY(runtime::resize(out, reduced_sizes(self.sizes(), made->mask, keepdim)));
  const TensorView* const outs[] = {&out.view};
  made->plan = plan_reduction(self.view, made->mask, keepdim, outs);
  return ok_status();
}

/// Folds into `out`; finish turns a total into the stored value.
template <typename Op, typename Finish>
Status fold_into(KernelContext& c, const char* what, const Tensor& self, const ReducePlan& plan, Tensor& out, LoadFn<typename Op::Element> load,
                 const Op& op, const Finish& finish) {
  using Stored = decltype(finish(typename Op::Total()));
  const StoreFn<Stored> store = store_fn<Stored>(out.dtype());
  if (load == nullptr || store == nullptr) return no_dtype(what, self);
  fold_reduce(*c.pool, plan, self.view.data, load, op,
              [&](const OutPlace& at, typename Op::Total total) { store(out.view.data, at.offset[0], finish(total)); });
  return ok_status();
}

/// Sum of `self` as elements of out's dtype, divided by the count if `mean`.
Status sum_into(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, bool keepdim, bool mean, Tensor& out) {
  Reduction r;
  PTERON_TRY(prepare(self, dims, keepdim, out, &r));
  const DType in = self.dtype();
  const double scale = mean ? static_cast<double>(r.plan.count) : 1.0;
  const auto finish = [scale](double total) { return total / scale; };
  if (is_complex(out.dtype())) {
    using Complex = std::complex<double>;
    return fold_into(c, "sum", self, r.plan, out, load_fn<Complex>(in), SumFold<Complex, Complex>(), [scale](Complex t) { return t / scale; });
  }
  if (is_integral(out.dtype(), true)) {
    return fold_into(c, "sum", self, r.plan, out, load_fn<int64_t>(in), SumFold<int64_t, int64_t>(), [](int64_t t) { return t; });
  }
  if (in == DType::kFloat64 || out.dtype() == DType::kFloat64 || is_integral(in, true)) {
    return fold_into(c, "sum", self, r.plan, out, load_fn<double>(in), SumFold<double, double>(), finish);
  }
  return fold_into(c, "sum", self, r.plan, out, load_fn<float>(in), SumFold<float, double>(), finish);
}

Status sum_dims(KernelContext& c, const Tensor& self, OptionalIntList dim, bool keepdim, std::optional<DType>, Tensor& out) {
  return sum_into(c, self, dim.list, keepdim, false, out);
}
Status sum_all(KernelContext& c, const Tensor& self, std::optional<DType>, Tensor& out) { return sum_into(c, self, {}, false, false, out); }

Status mean_dims(KernelContext& c, const Tensor& self, OptionalIntList dim, bool keepdim, std::optional<DType>, Tensor& out) {
  if (!is_floating(out.dtype()) && !is_complex(out.dtype())) return no_dtype("mean into a result", out);
  return sum_into(c, self, dim.list, keepdim, true, out);
}
Status mean_all(KernelContext& c, const Tensor& self, std::optional<DType> dtype, Tensor& out) { return mean_dims(c, self, {}, false, dtype, out); }

Status nansum(KernelContext& c, const Tensor& self, OptionalIntList dim, bool keepdim, std::optional<DType> dtype, Tensor& out) {
  if (!is_floating(self.dtype()) || is_complex(out.dtype())) return sum_dims(c, self, dim, keepdim, dtype, out);  // without NaN
  Reduction r;
  PTERON_TRY(prepare(self, dim.list, keepdim, out, &r));
  const auto same = [](auto total) { return total; };
  if (is_integral(out.dtype(), true)) {
    return fold_into(c, "nansum", self, r.plan, out, load_fn<double>(self.dtype()), NumberFold<int64_t, int64_t, double>(), same);
  }
  if (self.dtype() == DType::kFloat64 || out.dtype() == DType::kFloat64) {
    return fold_into(c, "nansum", self, r.plan, out, load_fn<double>(self.dtype()), NumberFold<double, double>(), same);
  }
  return fold_into(c, "nansum", self, r.plan, out, load_fn<float>(self.dtype()), NumberFold<float, double>(), same);
}

Status prod_into(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor& out) {
  Reduction r;
  PTERON_TRY(prepare(self, dims, keepdim, out, &r));
  const auto same = [](auto total) { return total; };
  if (is_complex(out.dtype())) {
    using Complex = std::complex<double>;
    return fold_into(c, "prod", self, r.plan, out, load_fn<Complex>(self.dtype()), ProdFold<Complex>(), same);
  }
  if (is_integral(out.dtype(), true)) {
    return fold_into(c, "prod", self, r.plan, out, load_fn<int64_t>(self.dtype()), ProdFold<int64_t>(), same);
  }
  // double accumulators: a float product that leaves float's range on the way and comes back is right here
  if (is_floating(self.dtype()) && self.dtype() != DType::kFloat64) {
    return fold_into(c, "prod", self, r.plan, out, load_fn<float>(self.dtype()), ProdFold<double, float>(), same);
  }
  return fold_into(c, "prod", self, r.plan, out, load_fn<double>(self.dtype()), ProdFold<double>(), same);
}

Status prod_all(KernelContext& c, const Tensor& self, std::optional<DType>, Tensor& out) { return prod_into(c, self, {}, false, out); }
Status prod_dim(KernelContext& c, const Tensor& self, int64_t dim, bool keepdim, std::optional<DType>, Tensor& out) {
  const int64_t dims[] = {dim};
  return prod_into(c, self, dims, keepdim, out);
}

template <bool kMax, typename P>
Status extreme_part(KernelContext& c, const Tensor& self, const ReducePlan& plan, Tensor& out) {
  return fold_into(c, "amax/amin", self, plan, out, load_fn<P>(self.dtype()), ExtremeFold<P, kMax>(), [](P total) { return total; });
}

template <bool kMax>
Status extreme_into(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor& out) {
  Reduction r;
  PTERON_TRY(prepare(self, dims, keepdim, out, &r));
  if (r.plan.count == 0 && r.plan.outputs > 0) return Status(Code::kInvalidInput, "maximum or minimum over no elements");
  if (self.dtype() == DType::kFloat64) return extreme_part<kMax, double>(c, self, r.plan, out);
  if (is_floating(self.dtype())) return extreme_part<kMax, float>(c, self, r.plan, out);
  switch (self.dtype()) {  // in their own type: more of them fit a register
    case DType::kUInt8: return extreme_part<kMax, uint8_t>(c, self, r.plan, out);
    case DType::kInt8: return extreme_part<kMax, int8_t>(c, self, r.plan, out);
    case DType::kInt16: return extreme_part<kMax, int16_t>(c, self, r.plan, out);
    case DType::kInt32: return extreme_part<kMax, int32_t>(c, self, r.plan, out);
    default: break;
  }
  return self.dtype() == DType::kUInt64 ? extreme_part<kMax, uint64_t>(c, self, r.plan, out) : extreme_part<kMax, int64_t>(c, self, r.plan, out);
}

template <bool kMax>
Status extreme_dims(KernelContext& c, const Tensor& self, runtime::IntList dim, bool keepdim, Tensor& out) {
  return extreme_into<kMax>(c, self, dim, keepdim, out);
}
template <bool kMax>
Status extreme_all(KernelContext& c, const Tensor& self, Tensor& out) {
  return extreme_into<kMax>(c, self, {}, false, out);
}

Status aminmax(KernelContext& c, const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& min, Tensor& max) {
  const int64_t list[] = {dim.value_or(0)};
  const std::span<const int64_t> dims = dim.has_value() ? std::span<const int64_t>(list) : std::span<const int64_t>();
  // without a dim, keepdim gives a shape of ones
  PTERON_TRY(extreme_into<false>(c, self, dims, keepdim, min));
  return extreme_into<true>(c, self, dims, keepdim, max);
}

template <bool kAll>
Status truth_into(KernelContext& c, const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor& out) {
  Reduction r;
  PTERON_TRY(prepare(self, dims, keepdim, out, &r));
  return fold_into(c, "any/all", self, r.plan, out, load_truth_fn<uint8_t>(self.dtype()), TruthFold<kAll>(), [](uint8_t t) { return t; });
}
template <bool kAll>
Status truth_all(KernelContext& c, const Tensor& self, Tensor& out) {
  return truth_into<kAll>(c, self, {}, false, out);
}
template <bool kAll>
Status truth_dim(KernelContext& c, const Tensor& self, int64_t dim, bool keepdim, Tensor& out) {
  const int64_t dims[] = {dim};
  return truth_into<kAll>(c, self, dims, keepdim, out);
}
template <bool kAll>
Status truth_dims(KernelContext& c, const Tensor& self, OptionalIntList dim, bool keepdim, Tensor& out) {
  // An empty list is not "all dims" here: nothing is reduced and elements become truth values.
  if (dim.has && dim.list.empty()) {
    PTERON_TRY(runtime::resize(out, self.sizes()));
    const TensorView* const outs[] = {&out.view};
    return fold_into(c, "any/all", self, plan_reduction(self.view, 0, keepdim, outs), out, load_truth_fn<uint8_t>(self.dtype()),
                     TruthFold<kAll>(), [](uint8_t t) { return t; });
  }
  return truth_into<kAll>(c, self, dim.list, keepdim, out);
}

Status count_nonzero_dims(KernelContext& c, const Tensor& self, runtime::IntList dim, Tensor& out) {
  Reduction r;
  PTERON_TRY(prepare(self, dim, false, out, &r));
  return fold_into(c, "count_nonzero", self, r.plan, out, load_truth_fn<int32_t>(self.dtype()), SumFold<int32_t, int64_t>(),
                   [](int64_t t) { return t; });
}
Status count_nonzero_dim(KernelContext& c, const Tensor& self, std::optional<int64_t> dim, Tensor& out) {
  runtime::IntList dims;
  if (dim.has_value()) dims.push_back(*dim);
  return count_nonzero_dims(c, self, dims, out);
}

constexpr runtime::Kernel kTable[] = {
    {"aten::sum.IntList_out", PTERON_KERNEL(sum_dims)},
    {"aten::sum.out", PTERON_KERNEL(sum_all)},
    {"aten::mean.out", PTERON_KERNEL(mean_dims)},
    {"aten::mean.dtype_out", PTERON_KERNEL(mean_all)},
    {"aten::nansum.out", PTERON_KERNEL(nansum)},
    {"aten::prod.out", PTERON_KERNEL(prod_all)},
    {"aten::prod.int_out", PTERON_KERNEL(prod_dim)},
    {"aten::amax.out", PTERON_KERNEL(extreme_dims<true>)},
    {"aten::amin.out", PTERON_KERNEL(extreme_dims<false>)},
    {"aten::max.unary_out", PTERON_KERNEL(extreme_all<true>)},
    {"aten::min.unary_out", PTERON_KERNEL(extreme_all<false>)},
    {"aten::aminmax.out", PTERON_KERNEL(aminmax)},
    {"aten::any.all_out", PTERON_KERNEL(truth_all<false>)},
    {"aten::any.out", PTERON_KERNEL(truth_dim<false>)},
    {"aten::any.dims_out", PTERON_KERNEL(truth_dims<false>)},
    {"aten::all.all_out", PTERON_KERNEL(truth_all<true>)},
    {"aten::all.out", PTERON_KERNEL(truth_dim<true>)},
    {"aten::all.dims_out", PTERON_KERNEL(truth_dims<true>)},
    {"aten::count_nonzero.dim_IntList_out", PTERON_KERNEL(count_nonzero_dims)},
    {"aten::count_nonzero.out", PTERON_KERNEL(count_nonzero_dim)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::reduce
