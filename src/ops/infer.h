// Inference helpers shared by op rooms (compile half): promotion, broadcasting, dims, common InferFns.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "tensor/promote.h"

namespace pteron::ops {

using ir::Expr;
using ir::InferContext;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

/// at::result_type over the named arguments: tensors, lists of tensors and scalars; None is skipped.
DType result_type(const NodeView& node, std::initializer_list<std::string_view> names);
/// The dtype of a float result: integers and bool become float32, the rest stays (ATen's promote_integer_inputs_to_float).
DType to_float_dtype(DType dtype);
/// dtype and rank of Python number expressions: kInt64, kFloat32 or kBool.
DType scalar_dtype(Expr e);

/// Broadcast of sizes; symbolic dims broadcast when equal or when one is the constant 1.
/// Errors: kInvalidInput with both shapes.
Status broadcast_exprs(std::span<const Expr> a, std::span<const Expr> b, std::vector<Expr>* out);
/// Broadcast over the named tensor arguments (None and scalars are skipped).
Status broadcast_args(const NodeView& node, std::initializer_list<std::string_view> names, std::vector<Expr>* out);
/// A type of that dtype and sizes whose strides keep the dim order of the first named dense tensor of the same sizes (ATen's
/// TensorIterator for elementwise ops); row-major if there is none.
TensorType elementwise_type(const NodeView& node, DType dtype, std::vector<Expr> sizes, std::initializer_list<std::string_view> names);

/// dim in [-rank, rank) to [0, rank); rank 0 accepts 0 and -1. Errors: kInvalidInput.
Result<int> wrap_dim_of(int64_t dim, int rank);
/// "[2,s0,4]".
std::string shape_text(std::span<const Expr> sizes);

/// Result like argument 0 (or `self`): same dtype, sizes and dense layout.
Status infer_like_self(InferContext& c);
/// The same with float dtype for integers (exp, sin, ...).
Status infer_float_like_self(InferContext& c);
/// The same with bool dtype (isnan, logical_not).
Status infer_bool_like_self(InferContext& c);
/// Broadcast and promotion of `self` and `other`.
Status infer_binary(InferContext& c);
/// The same with integer results made float (div, atan2).
Status infer_binary_float(InferContext& c);
/// Broadcast of `self` and `other` with bool results.
Status infer_binary_bool(InferContext& c);

}  // namespace pteron::ops
