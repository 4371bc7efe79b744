// sum, mean, prod, amax, amin, max, min, aminmax, any, all, count_nonzero, nansum, nanmean, trace, sum_to_size for the compiler.
// Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::reduce {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

DType self_dtype(const NodeView& n) { return n.type("self").dtype; }

/// dtype of sums: integers and bool widen to int64 unless the dtype is given.
DType sum_dtype(const NodeView& n) {
  const DType in = self_dtype(n);
  return n.dtype("dtype", is_integral(in, true) ? DType::kInt64 : in);
}

Status infer_sum(InferContext& c) { return add_reduced(c, sum_dtype(c)); }

Status infer_nansum(InferContext& c) {
  if (is_complex(self_dtype(c))) return Status(Code::kInvalidInput, "nansum of a complex tensor");
  return infer_sum(c);
}

Status infer_mean(InferContext& c) {
  const DType dtype = c.dtype("dtype", self_dtype(c));
  if (!is_floating(dtype) && !is_complex(dtype)) {
    return Status(Code::kInvalidInput, str_cat("mean of dtype ", dtype_name(dtype), ": the dtype must be floating or complex"));
  }
  return add_reduced(c, dtype);
}

Status infer_extreme(InferContext& c) {
  if (is_complex(self_dtype(c))) return Status(Code::kInvalidInput, "complex numbers have no order");
  PTERON_TRY(check_not_empty(c, "maximum or minimum"));
  return add_reduced(c, self_dtype(c));
}

Status infer_aminmax(InferContext& c) {
  PTERON_TRY(infer_extreme(c));
  return add_reduced(c, self_dtype(c));
}

Status infer_truth(InferContext& c) { return add_reduced(c, self_dtype(c) == DType::kUInt8 ? DType::kUInt8 : DType::kBool); }

/// any.dims and all.dims: None is all dims, an empty list none.
Status infer_truth_dims(InferContext& c) {
  if (!c.is_none("dim") && c.exprs("dim").empty()) {
    c.add(self_dtype(c) == DType::kUInt8 ? DType::kUInt8 : DType::kBool, c.type("self").sizes);
    return ok_status();
  }
  return infer_truth(c);
}

/// _is_all_true and _is_any_true: what ATen asserts.
Status infer_is_true(InferContext& c) {
  if (c.type("self").dtype != DType::kBool) return Status(Code::kInvalidInput, str_cat("bool is expected, found ", dtype_name(c.type("self").dtype)));
  return infer_truth(c);
}
Status infer_count(InferContext& c) { return add_reduced(c, DType::kInt64); }

Status infer_trace(InferContext& c) {
  if (c.type("self").rank() != 2) return Status(Code::kInvalidInput, str_cat("trace expects a matrix, found ", shape_text(c.type("self").sizes)));
  const DType in = self_dtype(c);
  c.add(is_integral(in, true) ? DType::kInt64 : in, {});
  return ok_status();
}

Status infer_sum_to_size(InferContext& c) {
  // dims that are summed widen integers as every sum does; without one self comes back as it is
  const std::vector<Expr> size = c.exprs("size");
  const std::vector<Expr>& from = c.type("self").sizes;
  bool sums = size.empty() || size.size() != from.size();
  for (size_t d = 0; !sums && d < size.size(); ++d) sums = dim_is(size[d], 1) && !dim_is(from[d], 1);
  c.add(sums && is_integral(self_dtype(c), true) ? DType::kInt64 : self_dtype(c), size);
  return ok_status();
}

Ids decompose_sum(Builder& b, const NodeView& n) {
  return {b.op("aten::sum.dim_IntList", {n.value("self"), std::monostate(), b.boolean(false), n.arg("dtype")})};
}
Ids decompose_mean(Builder& b, const NodeView& n) {
  return {b.op("aten::mean.dim", {n.value("self"), std::monostate(), b.boolean(false), n.arg("dtype")})};
}

/// x with 0 for NaN; integers have none.
ValueId without_nan(Builder& b, ValueId x) {
  if (!is_floating(b.type(x).dtype)) return x;
  return b.op("aten::where.self", {b.op("aten::isnan", {x}), b.scalar_tensor(0, b.type(x).dtype), x});
}

Ids decompose_nansum(Builder& b, const NodeView& n) {
  const ValueId clean = without_nan(b, n.value("self"));
  return {b.op("aten::sum.dim_IntList", {clean, n.arg("dim"), b.boolean(n.boolean("keepdim")), n.arg("dtype")})};
}

Ids decompose_nanmean(Builder& b, const NodeView& n) {
  const ValueId self = n.value("self");
  const Arg keepdim = b.boolean(n.boolean("keepdim"));
  const ValueId valid = b.op("aten::logical_not", {b.op("aten::isnan", {self})});
  const ValueId count = b.op("aten::sum.dim_IntList", {valid, n.arg("dim"), keepdim});
  const ValueId total = b.op("aten::nansum", {self, n.arg("dim"), keepdim, n.arg("dtype")});
  return {b.op("aten::div.Tensor", {total, count})};
}

Ids decompose_aminmax(Builder& b, const NodeView& n) {
  std::vector<Expr> dims;
  if (!n.is_none("dim")) dims.push_back(n.expr("dim"));
  const Arg keepdim = b.boolean(n.boolean("keepdim"));
  return {b.op("aten::amin", {n.value("self"), dims, keepdim}), b.op("aten::amax", {n.value("self"), dims, keepdim})};
}

/// all(x) = not any(not x), for profiles that only have any.
ValueId all_by_any(Builder& b, const NodeView& n, std::string_view any, std::vector<Arg> rest) {
  std::vector<Arg> args = {b.op("aten::logical_not", {n.value("self")})};
  for (Arg& arg : rest) args.push_back(std::move(arg));
  const ValueId all = b.op("aten::logical_not", {b.op(any, std::move(args))});
  return cast_to(b, all, self_dtype(n) == DType::kUInt8 ? DType::kUInt8 : DType::kBool);
}
Ids decompose_all(Builder& b, const NodeView& n) { return {all_by_any(b, n, "aten::any", {})}; }
Ids decompose_all_dim(Builder& b, const NodeView& n) {
  return {all_by_any(b, n, "aten::any.dim", {n.expr("dim"), b.boolean(n.boolean("keepdim"))})};
}
Ids decompose_is_all_true(Builder& b, const NodeView& n) { return {b.op("aten::all", {n.value("self")})}; }
Ids decompose_is_any_true(Builder& b, const NodeView& n) { return {b.op("aten::any", {n.value("self")})}; }
Ids decompose_all_dims(Builder& b, const NodeView& n) {
  return {all_by_any(b, n, "aten::any.dims", {n.arg("dim"), b.boolean(n.boolean("keepdim"))})};
}

Ids decompose_count_list(Builder& b, const NodeView& n) {
  const ValueId truth = b.op("aten::ne.Scalar", {n.value("self"), Expr(0)});
  return {b.op("aten::sum.dim_IntList", {truth, n.arg("dim"), b.boolean(false), DType::kInt64})};
}
Ids decompose_count(Builder& b, const NodeView& n) {
  std::vector<Expr> dims;
  if (!n.is_none("dim")) dims.push_back(n.expr("dim"));
  return {b.op("aten::count_nonzero.dim_IntList", {n.value("self"), dims})};
}

Ids decompose_trace(Builder& b, const NodeView& n) {
  return {b.op("aten::sum", {b.op("aten::diagonal", {n.value("self")})})};
}

/// Dims that `size` lacks or has as 1 are summed; the rest must be equal.
Ids decompose_sum_to_size(Builder& b, const NodeView& n) {
  const TensorType& self = n.type("self");
  const std::vector<Expr> size = n.exprs("size");
  const size_t lead = self.sizes.size() - std::min(self.sizes.size(), size.size());
  std::vector<Expr> dims;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (d < lead || (dim_is(size[d - lead], 1) && !dim_is(self.sizes[d], 1))) dims.emplace_back(static_cast<int64_t>(d));
  }
  if (dims.empty() && !size.empty()) return {b.op("aten::clone", {n.value("self")})};
  ValueId sum = b.op("aten::sum.dim_IntList", {n.value("self"), dims, b.boolean(true)});
  if (lead > 0) sum = b.op("aten::view", {sum, size});
  return {sum};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_sum,
     .kernel = "aten::sum.IntList_out"},
    {.schema = "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", .infer = infer_sum, .decompose = decompose_sum},
    {.schema = "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_nansum,
     .decompose = decompose_nansum,
     .kernel = "aten::nansum.out"},
    {.schema = "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_mean,
     .kernel = "aten::mean.out"},
    {.schema = "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", .infer = infer_mean, .decompose = decompose_mean},
    {.schema = "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_mean,
     .decompose = decompose_nanmean},
    {.schema = "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor", .infer = infer_sum, .kernel = "aten::prod.out"},
    {.schema = "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_sum,
     .kernel = "aten::prod.int_out"},
    {.schema = "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", .infer = infer_extreme, .kernel = "aten::amax.out"},
    {.schema = "aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", .infer = infer_extreme, .kernel = "aten::amin.out"},
    {.schema = "aten::max(Tensor self) -> Tensor", .infer = infer_extreme, .kernel = "aten::max.unary_out"},
    {.schema = "aten::min(Tensor self) -> Tensor", .infer = infer_extreme, .kernel = "aten::min.unary_out"},
    {.schema = "aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
     .infer = infer_aminmax,
     .decompose = decompose_aminmax,
     .kernel = "aten::aminmax.out"},
    {.schema = "aten::_is_all_true(Tensor self) -> Tensor", .infer = infer_is_true, .decompose = decompose_is_all_true},
    {.schema = "aten::_is_any_true(Tensor self) -> Tensor", .infer = infer_is_true, .decompose = decompose_is_any_true},
    {.schema = "aten::any(Tensor self) -> Tensor", .infer = infer_truth, .kernel = "aten::any.all_out"},
    {.schema = "aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", .infer = infer_truth, .kernel = "aten::any.out"},
    {.schema = "aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", .infer = infer_truth_dims, .kernel = "aten::any.dims_out"},
    {.schema = "aten::all(Tensor self) -> Tensor", .infer = infer_truth, .decompose = decompose_all, .kernel = "aten::all.all_out"},
    {.schema = "aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor",
     .infer = infer_truth,
     .decompose = decompose_all_dim,
     .kernel = "aten::all.out"},
    {.schema = "aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
     .infer = infer_truth_dims,
     .decompose = decompose_all_dims,
     .kernel = "aten::all.dims_out"},
    {.schema = "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
     .infer = infer_count,
     .decompose = decompose_count_list,
     .kernel = "aten::count_nonzero.dim_IntList_out"},
    {.schema = "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor", .infer = infer_count, .decompose = decompose_count},
    {.schema = "aten::trace(Tensor self) -> Tensor", .infer = infer_trace, .decompose = decompose_trace},
    {.schema = "aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor", .infer = infer_sum_to_size, .decompose = decompose_sum_to_size},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::reduce
