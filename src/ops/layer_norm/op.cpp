// layer_norm, group_norm, rms_norm and their native forms for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <limits>
#include <span>

#include "ops/layer_norm/portable.h"
#include "ops/reduce_infer.h"

namespace pteron::ops::layer_norm {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// dtype of saved statistics: float32 if 16-bit inputs meet float32 parameters, the input's otherwise.
DType stat_dtype(const NodeView& n) {
  const DType in = n.type("input").dtype;
  if (!is_reduced_float(in)) return in;
  for (const std::string_view name : {"weight", "bias"}) {
    if (!n.is_none(name) && n.type(name).dtype == DType::kFloat32) return DType::kFloat32;
  }
  return in;
}

/// Errors: kInvalidInput unless the trailing dims of the input are normalized_shape.
Status check_trailing(const InferContext& c) {
  const TensorType& in = c.type("input");
  const std::vector<Expr> shape = c.exprs("normalized_shape");
  bool fits = !shape.empty() && shape.size() <= in.sizes.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = !dim_differ(shape[shape.size() - 1 - i], in.sizes[in.sizes.size() - 1 - i]);
  if (!fits) {
    return Status(Code::kInvalidInput, str_cat("normalized_shape ", shape_text(shape), " does not fit an input of shape ", shape_text(in.sizes)));
  }
  if (!is_floating(in.dtype)) return Status(Code::kInvalidInput, str_cat("normalisation of dtype ", dtype_name(in.dtype)));
  return ok_status();
}

std::vector<Expr> row_stats(const InferContext& c) {
  std::vector<Expr> sizes = c.type("input").sizes;
  const size_t count = c.exprs("normalized_shape").size();
  for (size_t i = 0; i < count; ++i) sizes[sizes.size() - 1 - i] = 1;
  return sizes;
}

Status infer_layer_norm(InferContext& c) {
  PTERON_TRY(check_trailing(c));
  c.add(c.type("input").dtype, c.type("input").sizes);
  return ok_status();
}
Status infer_native_layer_norm(InferContext& c) {
  PTERON_TRY(infer_layer_norm(c));
  c.add(stat_dtype(c), row_stats(c));
  c.add(stat_dtype(c), row_stats(c));
  return ok_status();
}
Status infer_fused_rms_norm(InferContext& c) {
  PTERON_TRY(infer_layer_norm(c));
  const DType in = c.type("input").dtype;
  c.add(is_reduced_float(in) ? DType::kFloat32 : in, row_stats(c));
  return ok_status();
}

Status check_groups(const InferContext& c, Expr groups) {
  const TensorType& in = c.type("input");
  if (in.rank() < 2 || (in.sizes[1].is_const() && groups.is_const() && (groups.value() < 1 || in.sizes[1].value() % groups.value() != 0))) {
    return Status(Code::kInvalidInput, str_cat("group_norm of ", shape_text(in.sizes), " with ", ir::to_text(groups), " groups"));
  }
  if (!is_floating(in.dtype)) return Status(Code::kInvalidInput, str_cat("normalisation of dtype ", dtype_name(in.dtype)));
  return ok_status();
}
Status infer_group_norm(InferContext& c) {
  PTERON_TRY(check_groups(c, c.expr("num_groups")));
  c.add(elementwise_type(c, c.type("input").dtype, c.type("input").sizes, {"input"}));
  return ok_status();
}
Status infer_native_group_norm(InferContext& c) {
  PTERON_TRY(check_groups(c, c.expr("group")));
  c.add(elementwise_type(c, c.type("input").dtype, c.type("input").sizes, {"input"}));
  for (int i = 0; i < 2; ++i) c.add(stat_dtype(c), {c.expr("N"), c.expr("group")});
  return ok_status();
}

Ids decompose_layer_norm(Builder& b, const NodeView& n) {
  return {b.op("aten::native_layer_norm", {n.value("input"), n.arg("normalized_shape"), n.arg("weight"), n.arg("bias"), n.expr("eps")})};
}

Ids decompose_group_norm(Builder& b, const NodeView& n) {
  const TensorType& in = n.type("input");
  Expr pixels = 1;
  for (size_t d = 2; d < in.sizes.size(); ++d) pixels = pixels * in.sizes[d];
  return {b.op("aten::native_group_norm",
               {n.value("input"), n.arg("weight"), n.arg("bias"), in.sizes[0], in.sizes[1], pixels, n.expr("num_groups"), n.expr("eps")})};
}

/// y and 1/rms, for profiles without the kernel.
Ids rms_parts(Builder& b, const NodeView& n) {
  const DType in = n.type("input").dtype;
  const DType compute = is_reduced_float(in) ? DType::kFloat32 : in;
  const double fallback = compute == DType::kFloat64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
  const Expr eps = n.is_none("eps") ? b.floating(fallback) : n.expr("eps");
  std::vector<Expr> dims;
  const int64_t count = static_cast<int64_t>(n.exprs("normalized_shape").size());
  for (int64_t d = n.type("input").rank() - count; d < n.type("input").rank(); ++d) dims.emplace_back(d);
  const ValueId x = cast_to(b, n.value("input"), compute);
  const ValueId square = b.op("aten::mean.dim", {b.op("aten::mul.Tensor", {x, x}), dims, b.boolean(true)});
  const ValueId scale = b.op("aten::rsqrt", {b.op("aten::add.Scalar", {square, eps})});
  ValueId y = b.op("aten::mul.Tensor", {x, scale});
  if (!n.is_none("weight")) y = b.op("aten::mul.Tensor", {y, cast_to(b, n.value("weight"), compute)});
  return {cast_to(b, y, in), scale};
}
Ids decompose_rms_norm(Builder& b, const NodeView& n) { return {rms_parts(b, n)[0]}; }

constexpr OpDef kTable[] = {
    {.schema = "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
     .infer = infer_native_layer_norm,
     .decompose = portable_layer_norm,
     .kernel = "aten::native_layer_norm.out"},
    {.schema = "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
               "bool cudnn_enable=True) -> Tensor",
     .infer = infer_layer_norm,
     .decompose = decompose_layer_norm},
    {.schema = "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> "
               "(Tensor, Tensor, Tensor)",
     .infer = infer_native_group_norm,
     .decompose = portable_group_norm,
     .kernel = "aten::native_group_norm.out"},
    {.schema = "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
               "bool cudnn_enabled=True) -> Tensor",
     .infer = infer_group_norm,
     .decompose = decompose_group_norm},
    {.schema = "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
     .infer = infer_layer_norm,
     .decompose = decompose_rms_norm,
     .kernel = "pteron::rms_norm.out"},
    {.schema = "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
     .infer = infer_fused_rms_norm,
     .decompose = rms_parts,
     .kernel = "pteron::_fused_rms_norm.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::layer_norm
