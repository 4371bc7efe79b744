// linalg_vector_norm, the older and the matrix norms (which become it), dist and renorm, for the compiler. Runtime half: kernel.cpp.
// Norms made of singular values use aten::linalg_svdvals. Tests: test.cpp.
#include <cmath>
#include <limits>
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::vector_norm {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// dtype of a norm: the given one, or self's; complex gives its real dtype.
DType norm_dtype(const NodeView& n) {
  const DType dtype = n.has("dtype") ? n.dtype("dtype", n.type("self").dtype) : n.type("self").dtype;
  return real_dtype(dtype);
}

Status infer_norm(InferContext& c) {
  const DType dtype = norm_dtype(c);
  if (!is_floating(dtype)) return Status(Code::kInvalidInput, str_cat("norm of dtype ", dtype_name(dtype), ": the dtype must be floating or complex"));
  return add_reduced(c, dtype);
}

Status infer_matrix_norm(InferContext& c) {
  if (c.exprs("dim").size() != 2) return Status(Code::kInvalidInput, "a matrix norm needs two dims");
  return infer_norm(c);
}

/// Without dim and with ord, linalg_norm takes a vector or a matrix.
Status infer_linalg_norm(InferContext& c) { return infer_norm(c); }

Status infer_dist(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "other"}, &sizes));
  const DType dtype = real_dtype(result_type(c, {"self", "other"}));
  if (!is_floating(dtype)) return Status(Code::kInvalidInput, str_cat("dist of dtype ", dtype_name(dtype)));
  c.add(dtype, {});
  return ok_status();
}

Status infer_embedding_renorm(InferContext& c) {
  if (c.type("self").rank() != 2) return Status(Code::kInvalidInput, str_cat("embedding_renorm expects a matrix, found ", shape_text(c.type("self").sizes)));
  return infer_like_self(c);
}

ValueId vector_norm(Builder& b, ValueId x, Expr ord, Arg dim, bool keepdim, Arg dtype = std::monostate()) {
  return b.op("aten::linalg_vector_norm", {x, ord, std::move(dim), b.boolean(keepdim), std::move(dtype)});
}

/// For profiles without the kernel.
Ids decompose_vector_norm(Builder& b, const NodeView& n) {
  const DType out = norm_dtype(n);
  const DType compute = is_reduced_float(out) ? DType::kFloat32 : out;
  const double ord = n.number("ord", 2);
  const Arg dim = n.arg("dim");
  const Arg keepdim = b.boolean(n.boolean("keepdim"));
  const ValueId x = cast_to(b, n.value("self"), compute);
  ValueId norm;
  if (ord == 0) {
    norm = cast_to(b, b.op("aten::sum.dim_IntList", {b.op("aten::ne.Scalar", {x, Expr(0)}), dim, keepdim}), compute);
  } else if (std::isinf(ord)) {
    const Arg dims = std::holds_alternative<std::monostate>(dim) ? Arg(std::vector<Expr>()) : dim;
    norm = b.op(ord > 0 ? "aten::amax" : "aten::amin", {b.op("aten::abs", {x}), dims, keepdim});
  } else if (ord == 1) {
    norm = b.op("aten::sum.dim_IntList", {b.op("aten::abs", {x}), dim, keepdim});
  } else if (ord == 2) {
    norm = b.op("aten::sqrt", {b.op("aten::sum.dim_IntList", {b.op("aten::mul.Tensor", {x, x}), dim, keepdim})});
  } else {
    const ValueId power = b.op("aten::pow.Tensor_Scalar", {b.op("aten::abs", {x}), b.floating(ord)});
    norm = b.op("aten::pow.Tensor_Scalar", {b.op("aten::sum.dim_IntList", {power, dim, keepdim}), b.floating(1.0 / ord)});
  }
  return {cast_to(b, norm, out)};
}

/// aten::norm in all its forms.
Ids decompose_norm(Builder& b, const NodeView& n) {
  const Expr p = n.expr("p", Expr(2));
  const Arg dim = n.has("dim") ? n.arg("dim") : Arg(std::monostate());
  const bool keepdim = n.has("keepdim") && n.boolean("keepdim");
  return {vector_norm(b, n.value("self"), p, dim, keepdim, n.has("dtype") ? n.arg("dtype") : Arg(std::monostate()))};
}

Ids decompose_frobenius(Builder& b, const NodeView& n) {
  return {vector_norm(b, n.value("self"), Expr(2), n.arg("dim"), n.boolean("keepdim"))};
}

/// Singular values of the matrices in dims d0 and d1 of x, in the last dim.
ValueId singular_values(Builder& b, ValueId x, int64_t d0, int64_t d1) {
  const int rank = b.type(x).rank();
  std::vector<Expr> order;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != d0 && d != d1) order.emplace_back(d);
  }
  order.emplace_back(d0);
  order.emplace_back(d1);
  return b.op("aten::linalg_svdvals", {b.op("aten::permute", {x, order})});
}

/// keepdim for a result that lacks dims d0 and d1.
ValueId restore_dims(Builder& b, ValueId x, int64_t d0, int64_t d1) {
  x = b.op("aten::unsqueeze", {x, Expr(std::min(d0, d1))});
  return b.op("aten::unsqueeze", {x, Expr(std::max(d0, d1))});
}

struct MatrixDims {
  int64_t first = 0, second = 1;
};
MatrixDims matrix_dims(const std::vector<int64_t>& dims, int rank) {
  const int64_t r = rank;
  return {floor_mod(dims[0], r), floor_mod(dims[1], r)};
}

ValueId matrix_norm(Builder& b, ValueId self, double ord, MatrixDims d, bool keepdim, const Arg& dtype) {
  if (std::fabs(ord) == 2) {
    ValueId x = self;
    if (const auto* to = std::get_if<DType>(&dtype)) x = cast_to(b, x, *to);
    const ValueId values = singular_values(b, x, d.first, d.second);
    const ValueId norm = b.op(ord > 0 ? "aten::amax" : "aten::amin", {values, one_dim(-1), b.boolean(false)});
    return keepdim ? restore_dims(b, norm, d.first, d.second) : norm;
  }
  if (std::isinf(ord)) std::swap(d.first, d.second);
  if (!keepdim && d.first < d.second) --d.second;  // the first reduction removes a dim before it
  const ValueId sums = vector_norm(b, self, Expr(1), one_dim(d.first), keepdim, dtype);
  return b.op(ord > 0 ? "aten::amax" : "aten::amin", {sums, one_dim(d.second), b.boolean(keepdim)});
}

ValueId matrix_norm_text(Builder& b, ValueId self, std::string_view ord, MatrixDims d, bool keepdim, const Arg& dtype) {
  if (ord == "fro") return vector_norm(b, self, Expr(2), std::vector<Expr>{d.first, d.second}, keepdim, dtype);
  ValueId x = self;
  if (const auto* to = std::get_if<DType>(&dtype)) x = cast_to(b, x, *to);
  const ValueId values = singular_values(b, x, d.first, d.second);
  const ValueId norm = b.op("aten::sum.dim_IntList", {values, one_dim(-1), b.boolean(false)});
  return keepdim ? restore_dims(b, norm, d.first, d.second) : norm;
}

Ids decompose_matrix_norm(Builder& b, const NodeView& n) {
  const MatrixDims d = matrix_dims(n.integers("dim"), n.type("self").rank());
  return {matrix_norm(b, n.value("self"), n.number("ord"), d, n.boolean("keepdim"), n.arg("dtype"))};
}
Ids decompose_matrix_norm_text(Builder& b, const NodeView& n) {
  const MatrixDims d = matrix_dims(n.integers("dim"), n.type("self").rank());
  return {matrix_norm_text(b, n.value("self"), n.text("ord"), d, n.boolean("keepdim"), n.arg("dtype"))};
}

Ids decompose_linalg_norm(Builder& b, const NodeView& n) {
  const ValueId self = n.value("self");
  const bool keepdim = n.boolean("keepdim");
  if (n.is_none("ord")) return {vector_norm(b, self, Expr(2), n.arg("dim"), keepdim, n.arg("dtype"))};
  std::vector<int64_t> dims = n.integers("dim");
  const int rank = n.type("self").rank();
  if (n.is_none("dim") && rank == 2) dims = {0, 1};
  if (dims.size() != 2) return {vector_norm(b, self, n.expr("ord"), n.arg("dim"), keepdim, n.arg("dtype"))};
  return {matrix_norm(b, self, n.number("ord"), matrix_dims(dims, rank), keepdim, n.arg("dtype"))};
}
Ids decompose_linalg_norm_text(Builder& b, const NodeView& n) {
  std::vector<int64_t> dims = n.integers("dim");
  if (dims.empty()) dims = {0, 1};
  if (dims.size() != 2 || n.type("self").rank() < 2) {
    b.fail(Status(Code::kInvalidInput, "linalg_norm with a named norm needs a matrix"));
    return {};
  }
  const MatrixDims d = matrix_dims(dims, n.type("self").rank());
  return {matrix_norm_text(b, n.value("self"), n.text("ord"), d, n.boolean("keepdim"), n.arg("dtype"))};
}

Ids decompose_dist(Builder& b, const NodeView& n) {
  const ValueId difference = b.op("aten::sub.Tensor", {n.value("self"), n.value("other")});
  return {vector_norm(b, difference, n.expr("p"), std::monostate(), false)};
}

/// Slices along `dim` whose norm is over maxnorm are scaled down to it.
Ids decompose_renorm(Builder& b, const NodeView& n) {
  const ValueId self = n.value("self");
  const TensorType type = n.type("self");
  const DType compute = is_reduced_float(type.dtype) ? DType::kFloat32 : type.dtype;
  const int64_t dim = floor_mod(n.integer("dim"), int64_t{std::max(type.rank(), 1)});
  const uint32_t others = ((uint32_t{1} << type.rank()) - 1u) & ~(uint32_t{1} << dim);
  const ValueId norm = vector_norm(b, self, n.expr("p"), mask_dims(others, type.rank()), true, compute);
  const double limit = n.number("maxnorm");
  const ValueId scale = b.op("aten::div.Tensor", {b.scalar_tensor(limit, compute), b.op("aten::add.Scalar", {norm, b.floating(1e-7)})});
  const ValueId over = b.op("aten::gt.Scalar", {norm, b.floating(limit)});
  const ValueId factor = b.op("aten::where.self", {over, scale, b.scalar_tensor(1, compute)});
  return {b.op("aten::mul.Tensor", {self, cast_to(b, factor, type.dtype)})};
}

Status infer_weight_norm(InferContext& c) {
  c.add(c.type("v").dtype, c.type("v").sizes);
  return ok_status();
}
/// The norms come back too: in float for bfloat16.
Status infer_weight_norm_interface(InferContext& c) {
  PTERON_TRY(infer_weight_norm(c));
  const DType dtype = c.type("g").dtype;
  c.add(dtype == DType::kBFloat16 ? DType::kFloat32 : dtype, c.type("g").sizes);
  return ok_status();
}
Status infer_norm_except_dim(InferContext& c) {
  std::vector<Expr> sizes = c.type("v").sizes;
  const int64_t dim = c.integer("dim");
  if (dim == -1) sizes.clear();
  if (dim < -1 || dim >= c.type("v").rank()) return Status(Code::kInvalidInput, str_cat("dim ", dim, " for rank ", c.type("v").rank()));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) != dim) sizes[d] = 1;
  }
  c.add(real_dtype(c.type("v").dtype), std::move(sizes));
  return ok_status();
}

/// Norms over all dims but one (over all of them for -1).
ValueId norm_except(Builder& b, ValueId v, Expr p, int64_t dim) {
  if (dim == -1) return vector_norm(b, v, p, std::monostate(), false);
  std::vector<Expr> dims;
  for (int64_t d = 0; d < b.type(v).rank(); ++d) {
    if (d != dim) dims.emplace_back(d);
  }
  if (dims.empty()) return b.op("aten::abs", {v});
  return vector_norm(b, v, p, std::move(dims), true);
}
Ids decompose_norm_except_dim(Builder& b, const NodeView& n) {
  return {norm_except(b, n.value("v"), n.expr("pow", Expr(2)), n.integer("dim"))};
}
/// v * (g / norm). Along the first or the last dim ATen's kernel keeps everything in float until the result is stored.
Ids weight_norm(Builder& b, const NodeView& n, bool fused) {
  const DType dtype = n.type("v").dtype;
  const DType compute = fused && is_reduced_float(dtype) ? DType::kFloat32 : dtype;
  const ValueId v = cast_to(b, n.value("v"), compute), g = cast_to(b, n.value("g"), compute);
  const ValueId norm = norm_except(b, v, Expr(2), n.integer("dim"));
  return {cast_to(b, b.op("aten::mul.Tensor", {v, b.op("aten::div.Tensor", {g, norm})}), dtype), norm};
}
Ids decompose_weight_norm(Builder& b, const NodeView& n) {
  const int64_t dim = n.integer("dim");
  return {weight_norm(b, n, dim == 0 || dim == n.type("v").rank() - 1)[0]};
}
Ids decompose_weight_norm_interface(Builder& b, const NodeView& n) { return weight_norm(b, n, true); }

Status infer_svdvals(InferContext& c) {
  const TensorType& a = c.type("A");
  if (a.rank() < 2) return Status(Code::kInvalidInput, str_cat("svdvals expects matrices, found ", shape_text(a.sizes)));
  if (a.dtype != DType::kFloat32 && a.dtype != DType::kFloat64) return Status(is_complex(a.dtype) ? Code::kUnsupported : Code::kInvalidInput, str_cat("svdvals of dtype ", dtype_name(a.dtype)));
  std::vector<Expr> sizes(a.sizes.begin(), a.sizes.end() - 2);
  sizes.push_back(dim_min(a.sizes[a.sizes.size() - 2], a.sizes.back()));
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_norm,
     .decompose = decompose_vector_norm,
     .kernel = "aten::linalg_vector_norm.out"},
    {.schema = "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor", .infer = infer_norm, .decompose = decompose_norm},
    {.schema = "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
     .infer = infer_norm,
     .decompose = decompose_norm},
    {.schema = "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
     .infer = infer_norm,
     .decompose = decompose_norm},
    {.schema = "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor", .infer = infer_norm, .decompose = decompose_norm},
    {.schema = "aten::frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", .infer = infer_norm, .decompose = decompose_frobenius},
    {.schema = "aten::linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_linalg_norm,
     .decompose = decompose_linalg_norm},
    {.schema = "aten::linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_linalg_norm,
     .decompose = decompose_linalg_norm_text},
    {.schema = "aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_matrix_norm,
     .decompose = decompose_matrix_norm},
    {.schema = "aten::linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_matrix_norm,
     .decompose = decompose_matrix_norm_text},
    {.schema = "aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", .infer = infer_dist, .decompose = decompose_dist},
    {.schema = "aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", .infer = infer_like_self, .decompose = decompose_renorm},
    {.schema = "aten::embedding_renorm(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
     .infer = infer_embedding_renorm,
     .kernel = "aten::embedding_renorm.out"},
    {.schema = "aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor", .infer = infer_norm_except_dim, .decompose = decompose_norm_except_dim},
    {.schema = "aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", .infer = infer_weight_norm, .decompose = decompose_weight_norm},
    {.schema = "aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)",
     .infer = infer_weight_norm_interface,
     .decompose = decompose_weight_norm_interface},
    {.schema = "aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor", .infer = infer_svdvals, .kernel = "aten::linalg_svdvals.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::vector_norm
