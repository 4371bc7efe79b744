// Operators that make tensors from numbers and sizes: full, zeros, arange, linspace, eye, new_*, *_like, fill. Runtime half: kernel.cpp.
#include <cmath>

#include "base/str_cat.h"
#include "ops/factory/portable.h"
#include "ops/infer.h"
#include "ops/layout.h"

namespace pteron::ops::factory {

namespace {

using ir::Arg;
using ir::Builder;

#define PTERON_OPTIONS ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define PTERON_LONG_OPTIONS ", *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None"

/// dtype of a result made from a Python number.
DType number_dtype(const Arg& value) {
  if (const auto* e = std::get_if<Expr>(&value)) return scalar_dtype(*e);
  return std::holds_alternative<std::complex<double>>(value) ? DType::kComplexFloat : DType::kFloat32;
}

Status check_sizes(std::span<const Expr> sizes) {
  for (const Expr& size : sizes) {
    if (size.is_const() && size.value() < 0) return Status(Code::kInvalidInput, str_cat("negative size in ", shape_text(sizes)));
  }
  return ok_status();
}

Status infer_full(InferContext& c) {
  PTERON_TRY(check_sizes(c.exprs("size")));
  c.add(c.dtype("dtype", number_dtype(c.arg("fill_value"))), c.exprs("size"));
  return ok_status();
}
Status infer_sized(InferContext& c) {
  TensorType type = ir::contiguous_type(c.dtype("dtype", DType::kFloat32), c.exprs("size"));
  PTERON_TRY(check_sizes(type.sizes));
  const auto* format = c.has("memory_format") ? std::get_if<ir::MemoryFormat>(&c.arg("memory_format")) : nullptr;
  if (format != nullptr) {
    PTERON_ASSIGN(type.strides, strides_of_format(type.sizes, *format));
  }
  c.add(std::move(type));
  return ok_status();
}
Status infer_new(InferContext& c) {
  PTERON_TRY(check_sizes(c.exprs("size")));
  TensorType type = ir::contiguous_type(c.dtype("dtype", c.type("self").dtype), c.exprs("size"), c.type("self").device);
  if (c.has("stride")) type.strides = c.exprs("stride");
  c.add(std::move(type));
  return ok_status();
}
Status infer_empty_strided(InferContext& c) {
  TensorType type = ir::contiguous_type(c.dtype("dtype", DType::kFloat32), c.exprs("size"));
  type.strides = c.exprs("stride");
  if (type.strides.size() != type.sizes.size()) return Status(Code::kInvalidInput, "size and stride of different length");
  c.add(std::move(type));
  return ok_status();
}
Status infer_empty_permuted(InferContext& c) {
  TensorType type = ir::contiguous_type(c.dtype("dtype", DType::kFloat32), c.exprs("size"));
  const std::vector<int64_t> order = c.integers("physical_layout");
  if (order.size() != type.sizes.size()) return Status(Code::kInvalidInput, "size and physical_layout of different length");
  Expr stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(order.size())) return Status(Code::kInvalidInput, "physical_layout is no permutation");
    const size_t d = static_cast<size_t>(order[i]);
    type.strides[d] = stride;
    stride = stride * dim_max(type.sizes[d], 1);
  }
  c.add(std::move(type));
  return ok_status();
}
Status infer_like(InferContext& c) {
  PTERON_ASSIGN(TensorType type, formatted_type(c, c.dtype("dtype", c.type("self").dtype), "self"));
  c.add(std::move(type));
  return ok_status();
}
Status infer_scalar_tensor(InferContext& c) {
  // ATen's default is the default dtype, whatever the number is.
  c.add(c.dtype("dtype", DType::kFloat32), {});
  return ok_status();
}

/// Number of steps of a range: ceil((end - start) / step).
Status infer_range(InferContext& c, Expr start, Expr end, Expr step) {
  const bool integers = start.type() != ir::ExprType::kFloat && end.type() != ir::ExprType::kFloat && step.type() != ir::ExprType::kFloat;
  const DType dtype = c.dtype("dtype", integers ? DType::kInt64 : DType::kFloat32);
  if (integers) {
    if (dim_is(step, 0)) return Status(Code::kInvalidInput, "step is zero");
    const Expr count = ceil_div(end - start, step);
    if (count.is_const() && count.value() < 0) return Status(Code::kInvalidInput, "bounds and step of a range disagree in sign");
    c.add(dtype, {ir::bounds(count).min >= 0 ? count : dim_max(count, 0)});
    return ok_status();
  }
  if (!ir::is_number(start) || !ir::is_number(end) || !ir::is_number(step)) {
    return Status(Code::kUnsupported, "a range of floats whose bounds are known only at run time");
  }
  const double span = ir::number_of(end) - ir::number_of(start), by = ir::number_of(step);
  if (by == 0 || !std::isfinite(span / by) || span / by < 0) return Status(Code::kInvalidInput, "bounds and step of a range disagree");
  c.add(dtype, {Expr(static_cast<int64_t>(std::ceil(span / by)))});
  return ok_status();
}
Status infer_arange(InferContext& c) { return infer_range(c, 0, c.expr("end"), 1); }
Status infer_arange_start(InferContext& c) { return infer_range(c, c.expr("start"), c.expr("end"), 1); }
Status infer_arange_step(InferContext& c) { return infer_range(c, c.expr("start"), c.expr("end"), c.expr("step", 1)); }

Status infer_steps(InferContext& c) {
  PTERON_TRY(check_sizes({{c.expr("steps")}}));
  c.add(c.dtype("dtype", DType::kFloat32), {c.expr("steps")});
  return ok_status();
}
Status infer_eye(InferContext& c) {
  const Expr n = c.expr("n");
  c.add(c.dtype("dtype", DType::kFloat32), {n, c.has("m") ? c.expr("m") : n});
  return ok_status();
}

/// Elements of a row x col matrix on or below diagonal `offset`.
int64_t lower_count(int64_t row, int64_t col, int64_t offset) {
  int64_t count = 0;
  for (int64_t i = 0; i < row; ++i) count += std::clamp<int64_t>(i + offset + 1, 0, col);
  return count;
}
Status infer_triangle(InferContext& c, bool lower) {
  const int64_t row = c.integer("row"), col = c.integer("col"), offset = c.integer("offset");
  if (row < 0 || col < 0) return Status(Code::kInvalidInput, "negative size");
  const int64_t count = lower ? lower_count(row, col, offset) : row * col - lower_count(row, col, offset - 1);
  c.add(c.dtype("dtype", DType::kInt64), {Expr(2), Expr(count)});
  return ok_status();
}
Status infer_tril_indices(InferContext& c) { return infer_triangle(c, true); }
Status infer_triu_indices(InferContext& c) { return infer_triangle(c, false); }

// Decompositions into the kernels that official files know too: full, full_like, empty, arange.start_step.
std::vector<ValueId> decompose_new(Builder& b, const NodeView& n, Arg value) {
  return {b.op("aten::full", {n.exprs("size"), std::move(value), n.dtype("dtype", n.type("self").dtype)})};
}
std::vector<ValueId> decompose_new_full(Builder& b, const NodeView& n) { return decompose_new(b, n, n.arg("fill_value")); }
std::vector<ValueId> decompose_new_zeros(Builder& b, const NodeView& n) { return decompose_new(b, n, Expr(0)); }
std::vector<ValueId> decompose_new_ones(Builder& b, const NodeView& n) { return decompose_new(b, n, Expr(1)); }
std::vector<ValueId> decompose_like(Builder& b, const NodeView& n, Expr value) {
  return {b.op("aten::full_like", {n.value("self"), value, n.dtype("dtype", n.type("self").dtype), {}, {}, {}, n.arg("memory_format")})};
}
std::vector<ValueId> decompose_zeros_like(Builder& b, const NodeView& n) { return decompose_like(b, n, 0); }
std::vector<ValueId> decompose_ones_like(Builder& b, const NodeView& n) { return decompose_like(b, n, 1); }
std::vector<ValueId> decompose_empty(Builder& b, const NodeView& n) {
  const DType dtype = n.has("self") ? n.dtype("dtype", n.type("self").dtype) : n.dtype("dtype", DType::kFloat32);
  const std::vector<Expr> size = n.has("size") ? n.exprs("size") : n.type("self").sizes;
  return {b.op("aten::empty.memory_format", {size, dtype})};
}
std::vector<ValueId> decompose_zero(Builder& b, const NodeView& n) { return {b.op("aten::full_like", {n.value("self"), Expr(0)})}; }
std::vector<ValueId> decompose_arange_start(Builder& b, const NodeView& n) {
  return {b.op("aten::arange.start_step", {n.arg("start"), n.arg("end"), Expr(1), n.arg("dtype")})};
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::arange(Scalar end" PTERON_OPTIONS ") -> Tensor", .infer = infer_arange, .kernel = "aten::arange.out"},
    {.schema = "aten::arange.start(Scalar start, Scalar end" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_arange_start,
     .decompose = decompose_arange_start},
    {.schema = "aten::arange.start_step(Scalar start, Scalar end, Scalar step=1" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_arange_step,
     .kernel = "aten::arange.start_out"},
    {.schema = "aten::empty.memory_format(SymInt[] size" PTERON_OPTIONS ", MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_sized,
     .kernel = "aten::empty.out"},
    {.schema = "aten::empty_like(Tensor self" PTERON_OPTIONS ", MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_like,
     .decompose = decompose_empty},
    {.schema = "aten::empty_permuted(SymInt[] size, int[] physical_layout" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_empty_permuted,
     .decompose = decompose_empty},
    {.schema = "aten::empty_strided(SymInt[] size, SymInt[] stride" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_empty_strided,
     .decompose = decompose_empty},
    {.schema = "aten::eye(SymInt n" PTERON_OPTIONS ") -> Tensor", .infer = infer_eye, .decompose = portable_eye, .kernel = "aten::eye.out"},
    {.schema = "aten::eye.m(SymInt n, SymInt m" PTERON_OPTIONS ") -> Tensor", .infer = infer_eye, .decompose = portable_eye, .kernel = "aten::eye.m_out"},
    {.schema = "aten::fill.Scalar(Tensor self, Scalar value) -> Tensor", .infer = infer_like_self, .kernel = "aten::fill.Scalar_out"},
    {.schema = "aten::fill.Tensor(Tensor self, Tensor value) -> Tensor", .infer = infer_like_self, .kernel = "aten::fill.Tensor_out"},
    {.schema = "aten::full(SymInt[] size, Scalar fill_value" PTERON_OPTIONS ") -> Tensor", .infer = infer_full, .kernel = "aten::full.out"},
    {.schema = "aten::full_like(Tensor self, Scalar fill_value" PTERON_OPTIONS ", MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_like,
     .kernel = "aten::full_like.out"},
    {.schema = "aten::linspace(Scalar start, Scalar end, int steps" PTERON_OPTIONS ") -> Tensor", .infer = infer_steps, .kernel = "aten::linspace.out"},
    {.schema = "aten::linspace.Scalar_Tensor(Scalar start, Tensor end, int steps" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::linspace.Scalar_Tensor_out"},
    {.schema = "aten::linspace.Tensor_Scalar(Tensor start, Scalar end, int steps" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::linspace.Tensor_Scalar_out"},
    {.schema = "aten::linspace.Tensor_Tensor(Tensor start, Tensor end, int steps" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::linspace.Tensor_Tensor_out"},
    {.schema = "aten::logspace(Scalar start, Scalar end, int steps, float base=10." PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::logspace.out"},
    {.schema = "aten::logspace.Scalar_Tensor(Scalar start, Tensor end, int steps, float base=10." PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::logspace.Scalar_Tensor_out"},
    {.schema = "aten::logspace.Tensor_Scalar(Tensor start, Scalar end, int steps, float base=10." PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::logspace.Tensor_Scalar_out"},
    {.schema = "aten::logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, float base=10." PTERON_OPTIONS ") -> Tensor",
     .infer = infer_steps,
     .kernel = "aten::logspace.Tensor_Tensor_out"},
    {.schema = "aten::new_empty(Tensor self, SymInt[] size" PTERON_OPTIONS ") -> Tensor", .infer = infer_new, .decompose = decompose_empty},
    {.schema = "aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_new,
     .decompose = decompose_empty},
    {.schema = "aten::new_full(Tensor self, SymInt[] size, Scalar fill_value" PTERON_OPTIONS ") -> Tensor",
     .infer = infer_new,
     .decompose = decompose_new_full},
    {.schema = "aten::new_ones(Tensor self, SymInt[] size" PTERON_OPTIONS ") -> Tensor", .infer = infer_new, .decompose = decompose_new_ones},
    {.schema = "aten::new_zeros(Tensor self, SymInt[] size" PTERON_OPTIONS ") -> Tensor", .infer = infer_new, .decompose = decompose_new_zeros},
    {.schema = "aten::ones(SymInt[] size" PTERON_OPTIONS ") -> Tensor", .infer = infer_sized, .kernel = "aten::ones.out"},
    {.schema = "aten::ones_like(Tensor self" PTERON_OPTIONS ", MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_like,
     .decompose = decompose_ones_like},
    {.schema = "aten::scalar_tensor(Scalar s" PTERON_OPTIONS ") -> Tensor", .infer = infer_scalar_tensor, .kernel = "aten::scalar_tensor.out"},
    {.schema = "aten::tril_indices(int row, int col, int offset=0" PTERON_LONG_OPTIONS ") -> Tensor",
     .infer = infer_tril_indices,
     .kernel = "aten::tril_indices.out"},
    {.schema = "aten::triu_indices(int row, int col, int offset=0" PTERON_LONG_OPTIONS ") -> Tensor",
     .infer = infer_triu_indices,
     .kernel = "aten::triu_indices.out"},
    {.schema = "aten::zero(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_zero},
    {.schema = "aten::zeros(SymInt[] size" PTERON_OPTIONS ") -> Tensor", .infer = infer_sized, .kernel = "aten::zeros.out"},
    {.schema = "aten::zeros_like(Tensor self" PTERON_OPTIONS ", MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_like,
     .decompose = decompose_zeros_like},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::factory
