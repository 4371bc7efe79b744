// Dense linear algebra: factorisations and solutions that have kernels, and what ATen makes of them. Determinant and inverse: ops/matmul.
#include <algorithm>
#include <cmath>

#include "ops/portable.h"
#include "ops/reduce_infer.h"
#include "tensor/dtype.h"

namespace pteron::ops::linalg {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;
using Dims = std::vector<Expr>;

std::string_view matrix_name(const NodeView& n) { return n.op().schema.args[0].name; }

/// Errors: kInvalidInput unless the type is of matrices (square ones) of floats.
Status check(const TensorType& t, bool square) {
  if (t.rank() < 2 || (square && dim_differ(t.sizes[t.sizes.size() - 1], t.sizes[t.sizes.size() - 2]))) {
    return Status(Code::kInvalidInput, str_cat("expected ", square ? "square matrices" : "matrices", ", found ", shape_text(t.sizes)));
  }
  if (t.dtype != DType::kFloat32 && t.dtype != DType::kFloat64) return Status(Code::kUnsupported, str_cat("linear algebra of ", dtype_name(t.dtype)));
  return ok_status();
}
// An archive may state no sizes at all; inference of what is built from them refuses it.
/// Sizes of the batch, with more behind.
Dims batch(const TensorType& t, std::initializer_list<Expr> more = {}, size_t own = 2) {
  Dims out = sub_sizes(t.sizes, 0, t.sizes.size() - std::min(own, t.sizes.size()));
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
Expr rows(const TensorType& t) { return t.sizes.size() < 2 ? Expr(1) : t.sizes[t.sizes.size() - 2]; }
Expr columns(const TensorType& t) { return t.sizes.empty() ? Expr(1) : t.sizes.back(); }
Expr smaller(const TensorType& t) { return dim_min(rows(t), columns(t)); }

/// True if the sizes say that there is no element: there are no norms and no largest values then.
bool has_none(const TensorType& t) { return ir::dim_is(ir::numel_of(t.sizes), 0); }

template <bool square>
Status infer_same(InferContext& c) {
  const TensorType& a = c.type(matrix_name(c));
  PTERON_TRY(check(a, square));
  c.add(a.dtype, a.sizes);
  return ok_status();
}
Status infer_with_info(InferContext& c) {
  PTERON_TRY(infer_same<true>(c));
  c.add(DType::kInt32, batch(c.type(matrix_name(c))));
  return ok_status();
}
void add_lu(InferContext& c, const TensorType& a) {
  c.add(a.dtype, a.sizes);
  c.add(DType::kInt32, batch(a, {smaller(a)}));
}
template <bool info>
Status infer_lu_factor(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  add_lu(c, a);
  if (info) c.add(DType::kInt32, batch(a));
  return ok_status();
}
void add_lu_parts(InferContext& c, const TensorType& lu) {
  c.add(lu.dtype, batch(lu, {rows(lu), rows(lu)}));
  c.add(lu.dtype, batch(lu, {rows(lu), smaller(lu)}));
  c.add(lu.dtype, batch(lu, {smaller(lu), columns(lu)}));
}
Status infer_lu(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  add_lu_parts(c, a);
  return ok_status();
}
template <bool with_lu, bool with_sign>
Status infer_determinant(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, true));
  c.add(a.dtype, batch(a));
  if (with_sign) c.add(a.dtype, batch(a));
  if (with_lu) add_lu(c, a);
  return ok_status();
}

/// A vector on the right: rank 1, or the sizes of A without its last dim.
bool is_vector(const TensorType& a, const TensorType& b) {
  if (b.rank() == 1) return true;
  if (a.rank() - 1 != b.rank()) return false;
  for (size_t d = 0; d < b.sizes.size(); ++d) {
    if (!(a.sizes[d] == b.sizes[d])) return false;
  }
  return true;
}
Status solution(const TensorType& a, const TensorType& b, bool left, bool may_be_vector, TensorType* out) {
  PTERON_TRY(check(a, true));
  if (a.dtype != b.dtype) return Status(Code::kInvalidInput, str_cat("a matrix of ", dtype_name(a.dtype), " and a right side of ", dtype_name(b.dtype)));
  const bool vector = may_be_vector && is_vector(a, b);
  if (!vector && b.rank() < 2) return Status(Code::kInvalidInput, str_cat("right side of shape ", shape_text(b.sizes)));
  const size_t own = vector ? 1 : 2;
  const Expr size = vector ? b.sizes.back() : left ? rows(b) : columns(b);
  if (dim_differ(size, columns(a))) return Status(Code::kInvalidInput, str_cat("matrices ", shape_text(a.sizes), " and right side ", shape_text(b.sizes)));
  Dims sizes;
  PTERON_TRY(broadcast_exprs(batch(a), batch(b, {}, own), &sizes));
  for (size_t d = b.sizes.size() - own; d < b.sizes.size(); ++d) sizes.push_back(b.sizes[d]);
  *out = ir::contiguous_type(a.dtype, std::move(sizes));
  return ok_status();
}
template <bool with_lu, bool with_info>
Status infer_solve(InferContext& c) {
  const TensorType a = c.type("A");
  TensorType x;
  PTERON_TRY(solution(a, c.type("B"), c.boolean("left"), true, &x));
  c.add(x);
  if (with_lu) add_lu(c, a);
  if (with_info) c.add(DType::kInt32, batch(a));
  return ok_status();
}
Status infer_lu_solve(InferContext& c) {
  TensorType x;
  const bool old = c.has("LU_data");
  PTERON_TRY(solution(c.type(old ? "LU_data" : "LU"), c.type(old ? "self" : "B"), old || c.boolean("left"), false, &x));
  c.add(x);
  return ok_status();
}
Status infer_solve_triangular(InferContext& c) {
  TensorType x;
  PTERON_TRY(solution(c.type("self"), c.type("B"), c.boolean("left"), false, &x));
  c.add(x);
  return ok_status();
}
Status infer_old_triangular(InferContext& c) {
  TensorType x;
  PTERON_TRY(solution(c.type("A"), c.type("self"), true, false, &x));
  c.add(x);
  c.add(x.dtype, batch(x, {rows(c.type("A")), columns(c.type("A"))}));
  return ok_status();
}
Status infer_cholesky_solve(InferContext& c) {
  TensorType x;
  PTERON_TRY(solution(c.type("input2"), c.type("self"), true, false, &x));
  c.add(x);
  return ok_status();
}

Status infer_eigh(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, true));
  c.add(a.dtype, batch(a, {columns(a)}));
  if (c.has("compute_v") && !c.boolean("compute_v")) {
    c.add(a.dtype, {Expr(0)});
  } else {
    c.add(a.dtype, a.sizes);
  }
  return ok_status();
}
Status infer_eigvalsh(InferContext& c) {
  const TensorType a = c.type("self");
  PTERON_TRY(check(a, true));
  c.add(a.dtype, batch(a, {columns(a)}));
  return ok_status();
}
/// The old svd gives V instead of its transpose, and zeros for vectors that nobody wants.
Status infer_svd(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  const bool old = c.has("some"), full = old ? !c.boolean("some") : c.boolean("full_matrices");
  const bool vectors = !c.has("compute_uv") || c.boolean("compute_uv");
  const Expr m = rows(a), n = columns(a), small = smaller(a);
  const Expr left = full || (old && !vectors) ? m : small, right = full || (old && !vectors) ? n : small;
  c.add(a.dtype, vectors || old ? batch(a, {m, left}) : Dims{Expr(0)});
  c.add(a.dtype, batch(a, {small}));
  c.add(a.dtype, !vectors && !old ? Dims{Expr(0)} : old ? batch(a, {n, right}) : batch(a, {right, n}));
  return ok_status();
}
Status infer_qr(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  const std::string_view mode = c.has("mode") ? c.text("mode") : c.boolean("some") ? "reduced" : "complete";
  const Expr inner = mode == "complete" ? rows(a) : smaller(a);
  c.add(a.dtype, mode == "r" ? Dims{Expr(0)} : batch(a, {rows(a), inner}));
  c.add(a.dtype, batch(a, {inner, columns(a)}));
  return ok_status();
}
Status infer_pinv(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  c.add(a.dtype, batch(a, {columns(a), rows(a)}));
  return ok_status();
}
template <DType dtype>
Status infer_number(InferContext& c) {
  const TensorType a = c.type(matrix_name(c));
  PTERON_TRY(check(a, false));
  c.add(dtype == DType::kFloat32 ? a.dtype : dtype, batch(a));
  return ok_status();
}
Status infer_nuclear(InferContext& c) {
  const TensorType a = c.type("self");
  PTERON_ASSIGN(const uint32_t mask, dims_mask(c, "dim", a.rank()));
  c.add(a.dtype, reduced_exprs(a.sizes, mask, c.boolean("keepdim")));
  return ok_status();
}
Status infer_permutation(InferContext& c) {
  const TensorType& pivots = c.type("pivots");
  c.add(c.dtype("dtype", DType::kFloat32), batch(pivots, {c.expr("n"), c.expr("n")}, 1));
  return ok_status();
}
Status infer_lu_unpack(InferContext& c) {
  const TensorType lu = c.type("LU_data");
  PTERON_TRY(check(lu, false));
  const bool data = c.boolean("unpack_data"), pivots = c.boolean("unpack_pivots");
  c.add(lu.dtype, pivots ? batch(lu, {rows(lu), rows(lu)}) : Dims{Expr(0)});
  c.add(lu.dtype, data ? batch(lu, {rows(lu), smaller(lu)}) : Dims{Expr(0)});
  c.add(lu.dtype, data ? batch(lu, {smaller(lu), columns(lu)}) : Dims{Expr(0)});
  return ok_status();
}
Status infer_vander(InferContext& c) {
  const TensorType x = c.type("x");
  if (x.rank() < 1) return Status(Code::kInvalidInput, "vander of a tensor of rank 0");
  Dims sizes = x.sizes;
  sizes.push_back(c.is_none("N") ? x.sizes.back() : c.expr("N"));
  c.add(is_integral(x.dtype, true) ? DType::kInt64 : x.dtype, std::move(sizes));
  return ok_status();
}
Status infer_tensorinv(InferContext& c) {
  const TensorType a = c.type("self");
  const auto ind = static_cast<size_t>(c.integer("ind", 2));
  if (ind < 1 || ind >= a.sizes.size()) return Status(Code::kInvalidInput, str_cat("tensorinv of ", shape_text(a.sizes), " at ", ind));
  Dims sizes = sub_sizes(a.sizes, ind, a.sizes.size());
  const Dims back = sub_sizes(a.sizes, 0, ind);
  sizes.insert(sizes.end(), back.begin(), back.end());
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}
/// The sizes of a tensorsolve's result: those of self (with the dims that the call names moved to the end) behind as many as other has.
Dims tensorsolve_order(const NodeView& n, std::vector<int64_t>* order) {
  const TensorType a = n.type("self");
  const int64_t rank = a.rank();
  std::vector<int64_t> moved;
  if (n.has("dims") && !n.is_none("dims")) moved = n.integers("dims");
  for (int64_t& d : moved) d += d < 0 ? rank : 0;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(moved.begin(), moved.end(), d) == moved.end()) order->push_back(d);
  }
  order->insert(order->end(), moved.begin(), moved.end());
  Dims sizes;
  for (const int64_t d : *order) sizes.push_back(d < 0 || d >= rank ? Expr(1) : a.sizes[static_cast<size_t>(d)]);
  return sizes;
}
Status infer_tensorsolve(InferContext& c) {
  const TensorType a = c.type("self"), other = c.type("other");
  PTERON_TRY(other.rank() > a.rank() ? Status(Code::kInvalidInput, "tensorsolve: other has more dims than self") : ok_status());
  std::vector<int64_t> order;
  const Dims sizes = tensorsolve_order(c, &order);
  if (order.size() != a.sizes.size()) return Status(Code::kInvalidInput, "tensorsolve: a dim is named twice or is outside");
  c.add(a.dtype, sub_sizes(sizes, other.sizes.size(), sizes.size()));
  return ok_status();
}
Status infer_nothing(InferContext&) { return ok_status(); }

ValueId matrix(const NodeView& n) { return n.value(matrix_name(n)); }
Ids first(Ids ids, size_t count = 1) {
  ids.resize(std::min(ids.size(), count));
  return ids;
}

Ids cholesky(Builder& b, const NodeView& n) { return first(b.ops("aten::linalg_cholesky_ex", {matrix(n), n.expr("upper"), b.boolean(true)})); }
Ids eigh(Builder& b, const NodeView& n) { return b.ops("aten::_linalg_eigh", {matrix(n), n.arg("UPLO"), b.boolean(true)}); }
Ids eigvalsh(Builder& b, const NodeView& n) { return first(b.ops("aten::_linalg_eigh", {matrix(n), n.arg("UPLO"), b.boolean(false)})); }
Ids solve(Builder& b, const NodeView& n) { return first(b.ops("aten::_linalg_solve_ex", {n.value("A"), n.value("B"), n.expr("left"), b.boolean(true)})); }
Ids solve_ex(Builder& b, const NodeView& n) {
  const Ids all = b.ops("aten::_linalg_solve_ex", {n.value("A"), n.value("B"), n.expr("left"), n.expr("check_errors")});
  return all.size() == 4 ? Ids{all[0], all[3]} : Ids{};
}
Ids svd(Builder& b, const NodeView& n) { return b.ops("aten::_linalg_svd", {matrix(n), n.expr("full_matrices"), b.boolean(true)}); }
Ids old_svd(Builder& b, const NodeView& n) {
  Compose f(b);
  if (!n.boolean("compute_uv")) {
    const TensorType a = n.type("self");
    const auto zeros = [&](const Expr& size) { return b.op("aten::full", {batch(a, {size, size}), Expr(0), a.dtype}); };
    const Ids values = b.ops("aten::_linalg_svd", {matrix(n), b.boolean(false), b.boolean(false)});
    return values.size() == 3 ? Ids{zeros(rows(a)), values[1], zeros(columns(a))} : Ids{};
  }
  Ids all = b.ops("aten::_linalg_svd", {matrix(n), b.boolean(!n.boolean("some")), b.boolean(true)});
  if (all.size() == 3) all[2] = f.transpose(all[2], -2, -1);
  return all;
}
Ids qr(Builder& b, const NodeView& n) { return b.ops("aten::linalg_qr", {matrix(n), std::string(n.boolean("some") ? "reduced" : "complete")}); }
Ids slogdet(Builder& b, const NodeView& n) { return first(b.ops("aten::_linalg_slogdet", {matrix(n)}), 2); }
Ids logdet(Builder& b, const NodeView& n) {
  Portable f(b);
  const Ids parts = b.ops("aten::_linalg_slogdet", {matrix(n)});
  if (parts.size() < 2) return {};
  return {f.where(f.compare("eq", parts[0], -1.0), std::numeric_limits<double>::quiet_NaN(), parts[1])};
}
Ids lu_factor(Builder& b, const NodeView& n) { return first(b.ops("aten::linalg_lu_factor_ex", {matrix(n), n.expr("pivot"), b.boolean(true)}), 2); }
Ids old_lu(Builder& b, const NodeView& n) { return b.ops("aten::linalg_lu_factor_ex", {matrix(n), n.expr("pivot"), n.expr("check_errors")}); }

/// L (unit lower) and U from a factorisation.
Ids triangles(Builder& b, ValueId lu) {
  Compose f(b);
  const TensorType t = b.type(lu);
  const Expr small = smaller(t);
  const ValueId left = f.slice(lu, t.rank() - 1, 0, small), right = f.slice(lu, t.rank() - 2, 0, small);
  const ValueId ones = b.op("aten::eye.m", {rows(t), small, t.dtype});
  return {f.add(b.op("aten::tril", {left, Expr(-1)}), ones), b.op("aten::triu", {right})};
}
ValueId permutation(Builder& b, ValueId pivots, Expr size, DType dtype) { return b.op("pteron::lu_permutation", {pivots, size, dtype}); }
Ids lu(Builder& b, const NodeView& n) {
  const Ids factors = b.ops("aten::linalg_lu_factor_ex", {matrix(n), n.expr("pivot"), b.boolean(false)});
  if (factors.size() != 3) return {};
  const Ids parts = triangles(b, factors[0]);
  return {permutation(b, factors[1], rows(n.type("A")), n.type("A").dtype), parts[0], parts[1]};
}
Ids lu_unpack(Builder& b, const NodeView& n) {
  const TensorType t = n.type("LU_data");
  const auto nothing = [&] { return b.op("aten::full", {Dims{Expr(0)}, Expr(0), t.dtype}); };
  const ValueId p = n.boolean("unpack_pivots") ? permutation(b, n.value("LU_pivots"), rows(t), t.dtype) : nothing();
  if (!n.boolean("unpack_data")) return {p, nothing(), nothing()};
  const Ids parts = triangles(b, n.value("LU_data"));
  return {p, parts[0], parts[1]};
}
Ids old_lu_solve(Builder& b, const NodeView& n) { return {b.op("aten::linalg_lu_solve", {n.value("LU_data"), n.value("LU_pivots"), n.value("self")})}; }
ValueId substitute(Builder& b, ValueId t, ValueId x, bool upper, bool transposed) {
  Compose f(b);
  return b.op("aten::linalg_solve_triangular", {transposed ? f.transpose(t, -2, -1) : t, x, b.boolean(upper != transposed)});
}
Ids old_triangular(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId a = n.value("A");
  const bool upper = n.boolean("upper"), transposed = n.boolean("transpose");
  const ValueId x = b.op("aten::linalg_solve_triangular", {transposed ? f.transpose(a, -2, -1) : a, n.value("self"), b.boolean(upper != transposed), b.boolean(true), n.expr("unitriangular")});
  const TensorType& t = b.type(x);
  return {x, b.op("aten::clone", {f.expand(a, batch(t, {rows(n.type("A")), columns(n.type("A"))}))})};
}
Ids cholesky_solve(Builder& b, const NodeView& n) {
  const bool upper = n.boolean("upper");
  const ValueId half = substitute(b, n.value("input2"), n.value("self"), upper, upper);
  return {substitute(b, n.value("input2"), half, upper, !upper)};
}
Ids cholesky_inverse(Builder& b, const NodeView& n) {
  const TensorType t = n.type("self");
  const ValueId eye = b.op("aten::eye.m", {rows(t), columns(t), t.dtype});
  return {b.op("aten::cholesky_solve", {eye, n.value("self"), n.expr("upper")})};
}
Ids matrix_exp(Builder& b, const NodeView& n) { return {b.op("aten::linalg_matrix_exp", {matrix(n)})}; }
Ids householder(Builder& b, const NodeView& n) { return {b.op("aten::linalg_householder_product", {n.value("self"), n.value("input2")})}; }

/// A tolerance of pinv and matrix_rank: None, a number or a tensor.
struct Tolerance {
  bool given = false;
  ValueId tensor;
  double number = 0;
};
Tolerance tolerance(const NodeView& n, std::string_view name) {
  Tolerance t;
  if (!n.has(name) || n.is_none(name)) return t;
  t.given = true;
  if (n.is_value(name)) {
    t.tensor = n.value(name);
  } else {
    t.number = n.number(name);
  }
  return t;
}
ValueId as_tensor(Portable& f, const Tolerance& t, DType dtype) { return t.tensor.valid() ? f.to(t.tensor, dtype) : f.number(t.number, dtype); }

/// max(atol, rtol * largest) [..., 1]; rtol is epsilon times the longer side unless one of the two is given.
ValueId threshold(Portable& f, const NodeView& n, ValueId largest) {
  Tolerance atol = tolerance(n, "atol"), rtol = tolerance(n, "rtol");
  if (n.has("tol")) atol = tolerance(n, "tol"), rtol.given = true;  // the old form: rtol is 0
  if (n.has("rcond")) rtol = tolerance(n, "rcond");
  const TensorType a = n.type(matrix_name(n));
  const DType dtype = a.dtype;
  const double epsilon = dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
  ValueId relative;
  if (rtol.given) {
    relative = as_tensor(f, rtol, dtype);
  } else {
    relative = f.scale(f.number(dim_max(rows(a), columns(a)), dtype), epsilon);
    if (atol.tensor.valid()) relative = f.where(f.compare("gt", f.to(atol.tensor, dtype), 0.0), 0.0, relative);
    if (!atol.tensor.valid() && atol.number > 0) relative = f.number(0.0, dtype);
  }
  const auto column = [&](ValueId v) { return f.rank(v) == 0 ? v : f.unsqueeze(v, -1); };
  ValueId limit = f.mul(column(relative), largest);
  if (atol.given) limit = f.b.op("aten::maximum", {limit, column(as_tensor(f, atol, dtype))});
  return limit;
}
/// Singular values (or the sizes of eigenvalues) with the largest, [..., k] and [..., 1].
ValueId spectrum(Portable& f, const NodeView& n, ValueId* largest) {
  const bool hermitian = n.boolean("hermitian");
  const Ids parts = hermitian ? f.b.ops("aten::_linalg_eigh", {matrix(n), std::string("L"), f.b.boolean(false)})
                              : f.b.ops("aten::_linalg_svd", {matrix(n), f.b.boolean(false), f.b.boolean(false)});
  if (parts.size() < 2) return {};
  const ValueId values = hermitian ? f.unary("aten::abs", parts[0]) : parts[1];
  *largest = f.b.op("aten::amax", {values, Dims{Expr(-1)}, f.b.boolean(true)});
  return values;
}
Ids matrix_rank(Builder& b, const NodeView& n) {
  Portable f(b);
  const TensorType a = n.type(matrix_name(n));
  if (has_none(a)) return {b.op("aten::full", {batch(a), Expr(0), DType::kInt64})};
  ValueId largest;
  const ValueId values = spectrum(f, n, &largest);
  if (!values.valid()) return {};
  const ValueId over = f.compare("gt", values, threshold(f, n, largest));
  return {b.op("aten::sum.dim_IntList", {over, Dims{Expr(-1)}, b.boolean(false), DType::kInt64})};
}
Ids pinv(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId a = matrix(n);
  const TensorType type = n.type(matrix_name(n));
  if (has_none(type)) return {b.op("aten::full", {batch(type, {columns(type), rows(type)}), b.floating(0.0), type.dtype})};
  if (n.has("hermitian") && n.boolean("hermitian")) {
    const Ids parts = b.ops("aten::_linalg_eigh", {a, std::string("L"), b.boolean(true)});
    if (parts.size() != 2) return {};
    const ValueId sizes = f.unary("aten::abs", parts[0]), largest = b.op("aten::amax", {sizes, Dims{Expr(-1)}, b.boolean(true)});
    const ValueId inverse = f.where(f.compare("gt", sizes, threshold(f, n, largest)), f.unary("aten::reciprocal", parts[0]), 0.0);
    return {b.op("aten::matmul", {f.mul(parts[1], f.unsqueeze(inverse, -2)), f.transpose(parts[1], -2, -1)})};
  }
  const Ids parts = b.ops("aten::_linalg_svd", {a, b.boolean(false), b.boolean(true)});
  if (parts.size() != 3) return {};
  const ValueId largest = f.slice(parts[1], f.rank(parts[1]) - 1, 0, Expr(1));
  const ValueId inverse = f.where(f.compare("gt", parts[1], threshold(f, n, largest)), f.unary("aten::reciprocal", parts[1]), 0.0);
  return {b.op("aten::matmul", {f.mul(f.transpose(parts[2], -2, -1), f.unsqueeze(inverse, -2)), f.transpose(parts[0], -2, -1)})};
}
/// norm(A) * norm(inverse of A), infinity for a singular matrix.
ValueId condition_number(Portable& f, ValueId a, std::string_view op, const ir::Arg& order) {
  const Ids inverse = f.b.ops("aten::linalg_inv_ex", {a});
  if (inverse.size() != 2) return {};
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueId singular = f.unsqueeze(f.unsqueeze(f.compare("gt", inverse[1], Expr(0)), -1), -1);
  const auto norm = [&](ValueId x) { return f.b.op(op, {x, order}); };
  const ValueId product = f.mul(norm(a), norm(f.where(singular, infinity, inverse[0])));
  return f.b.op("aten::nan_to_num", {product, f.b.floating(infinity), f.b.floating(infinity), f.b.floating(-infinity)});
}
Ids cond(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId a = matrix(n);
  const std::string order = n.op().name == "aten::linalg_cond.p_str" ? std::string(n.text("p")) : std::string();
  const double p = !order.empty() ? 0 : n.is_none("p") ? 2 : n.number("p");
  if (has_none(n.type("self"))) {
    return {b.op("aten::full", {batch(n.type("self")), b.floating(0.0), n.type("self").dtype})};
  }
  if (order == "nuc" || std::abs(p) == 2) {
    const Ids parts = b.ops("aten::_linalg_svd", {a, b.boolean(false), b.boolean(false)});
    if (parts.size() != 3) return {};
    const auto total = [&](ValueId x) { return b.op("aten::sum.dim_IntList", {x, Dims{Expr(-1)}}); };
    if (order == "nuc") return {f.mul(total(parts[1]), total(f.unary("aten::reciprocal", parts[1])))};
    const ValueId high = f.select(parts[1], -1, Expr(0)), low = f.select(parts[1], -1, Expr(-1));
    return {p > 0 ? f.div(high, low) : f.div(low, high)};
  }
  if (!order.empty()) return {condition_number(f, a, "aten::linalg_matrix_norm.str_ord", order)};
  return {condition_number(f, a, "aten::linalg_matrix_norm", b.floating(p))};
}
Ids nuclear(Builder& b, const NodeView& n) {
  const ir::Arg dim = n.has("dim") ? n.arg("dim") : ir::Arg(Dims{Expr(0), Expr(1)});
  return {b.op("aten::linalg_matrix_norm.str_ord", {n.value("self"), std::string("nuc"), dim, n.expr("keepdim")})};
}
Ids vander(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("x");
  if (is_integral(f.dtype(x), true)) x = f.to(x, DType::kInt64);
  const Expr count = n.is_none("N") ? f.size(x, -1) : n.expr("N");
  const bool increasing = !n.has("increasing") || n.boolean("increasing");
  if (count.is_const() && count.value() >= 2) {  // products are cheaper than powers, and what ATen computes
    Dims first = f.sizes(x), sizes = first;
    first.push_back(Expr(1)), sizes.push_back(Expr(count.value() - 1));
    const ValueId ones = b.op("aten::full", {first, Expr(1), f.dtype(x)});
    ValueId products = b.op("aten::cumprod", {f.expand(f.unsqueeze(x, -1), sizes), Expr(-1)});
    if (!increasing) products = b.op("aten::flip", {products, Dims{Expr(f.rank(products) - 1)}});
    return {increasing ? f.cat({ones, products}, -1) : f.cat({products, ones}, -1)};
  }
  const ValueId powers = b.op("aten::arange.start_step", {Expr(0), count, Expr(1), DType::kInt64});
  const ValueId y = b.op("aten::pow.Tensor_Tensor", {f.unsqueeze(x, -1), f.to(powers, f.dtype(x))});
  if (increasing) return {y};
  return {b.op("aten::flip", {y, Dims{Expr(f.rank(y) - 1)}})};
}
Ids tensorinv(Builder& b, const NodeView& n) {
  Compose f(b);
  const TensorType a = n.type("self");
  const auto ind = std::min(static_cast<size_t>(n.integer("ind", 2)), a.sizes.size());
  const Expr size = ir::numel_of(sub_sizes(a.sizes, ind, a.sizes.size()));
  const ValueId inverse = b.op("aten::linalg_inv", {f.view(n.value("self"), {ir::numel_of(sub_sizes(a.sizes, 0, ind)), size})});
  Dims sizes = sub_sizes(a.sizes, ind, a.sizes.size());
  const Dims back = sub_sizes(a.sizes, 0, ind);
  sizes.insert(sizes.end(), back.begin(), back.end());
  return {f.view(inverse, sizes)};
}

Ids tensorsolve(Builder& b, const NodeView& n) {
  Compose f(b);
  std::vector<int64_t> order;
  const Dims sizes = tensorsolve_order(n, &order);
  const TensorType other = n.type("other");
  const Dims result = sub_sizes(sizes, std::min(other.sizes.size(), sizes.size()), sizes.size());
  const Expr count = ir::numel_of(other.sizes);
  const ValueId moved = b.op("aten::permute", {n.value("self"), Dims(order.begin(), order.end())});
  const ValueId a = b.op("aten::reshape", {moved, Dims{count, ir::numel_of(result)}});
  const ValueId x = b.op("aten::linalg_solve", {a, b.op("aten::reshape", {n.value("other"), Dims{count}})});
  return {f.view(x, result)};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()", .infer = infer_nothing, .kernel = "aten::_linalg_check_errors", .flags = ir::kEffect},
    {.schema = "aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", .infer = infer_determinant<true, false>, .kernel = "aten::_linalg_det.result"},
    {.schema = "aten::_linalg_eigh(Tensor A, str UPLO='L', bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)", .infer = infer_eigh,
     .kernel = "aten::_linalg_eigh.eigenvalues"},
    {.schema = "aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)", .infer = infer_determinant<true, true>,
     .kernel = "aten::_linalg_slogdet.sign"},
    {.schema = "aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)",
     .infer = infer_solve<true, true>, .kernel = "aten::_linalg_solve_ex.result"},
    {.schema = "aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)", .infer = infer_svd,
     .kernel = "aten::_linalg_svd.U"},
    {.schema = "aten::_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots, Tensor info)", .infer = infer_lu_factor<true>, .decompose = old_lu},
    {.schema = "aten::cholesky(Tensor self, bool upper=False) -> Tensor", .infer = infer_same<true>, .decompose = cholesky},
    {.schema = "aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor", .infer = infer_same<true>, .decompose = cholesky_inverse},
    {.schema = "aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor", .infer = infer_cholesky_solve, .decompose = cholesky_solve},
    {.schema = "aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", .infer = infer_same<true>, .decompose = cholesky},
    {.schema = "aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)", .infer = infer_with_info,
     .kernel = "aten::linalg_cholesky_ex.L"},
    {.schema = "aten::linalg_cond(Tensor self, Scalar? p=None) -> Tensor", .infer = infer_number<DType::kFloat32>, .decompose = cond},
    {.schema = "aten::linalg_cond.p_str(Tensor self, str p) -> Tensor", .infer = infer_number<DType::kFloat32>, .decompose = cond},
    {.schema = "aten::linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)", .infer = infer_eigh, .decompose = eigh},
    {.schema = "aten::linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor", .infer = infer_eigvalsh, .decompose = eigvalsh},
    {.schema = "aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor", .infer = infer_same<false>, .kernel = "aten::linalg_householder_product.out"},
    {.schema = "aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", .infer = infer_lu, .decompose = lu},
    {.schema = "aten::linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", .infer = infer_lu_factor<false>, .decompose = lu_factor},
    {.schema = "aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)", .infer = infer_lu_factor<true>,
     .kernel = "aten::linalg_lu_factor_ex.out"},
    {.schema = "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor", .infer = infer_lu_solve, .kernel = "aten::linalg_lu_solve.out"},
    {.schema = "aten::linalg_matrix_exp(Tensor self) -> Tensor", .infer = infer_same<true>, .kernel = "aten::linalg_matrix_exp.out"},
    {.schema = "aten::linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor", .infer = infer_number<DType::kInt64>, .decompose = matrix_rank},
    {.schema = "aten::linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", .infer = infer_number<DType::kInt64>,
     .decompose = matrix_rank},
    {.schema = "aten::linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", .infer = infer_number<DType::kInt64>,
     .decompose = matrix_rank},
    {.schema = "aten::linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor", .infer = infer_number<DType::kInt64>, .decompose = matrix_rank},
    {.schema = "aten::linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor", .infer = infer_pinv, .decompose = pinv},
    {.schema = "aten::linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", .infer = infer_pinv, .decompose = pinv},
    {.schema = "aten::linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", .infer = infer_pinv, .decompose = pinv},
    {.schema = "aten::linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor", .infer = infer_pinv, .decompose = pinv},
    {.schema = "aten::linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)", .infer = infer_qr, .kernel = "aten::linalg_qr.out"},
    {.schema = "aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", .infer = infer_determinant<false, true>, .decompose = slogdet},
    {.schema = "aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", .infer = infer_solve<false, false>, .decompose = solve},
    {.schema = "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)", .infer = infer_solve<false, true>,
     .decompose = solve_ex},
    {.schema = "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor", .infer = infer_solve_triangular,
     .kernel = "aten::linalg_solve_triangular.out"},
    {.schema = "aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)", .infer = infer_svd, .decompose = svd},
    {.schema = "aten::linalg_tensorinv(Tensor self, int ind=2) -> Tensor", .infer = infer_tensorinv, .decompose = tensorinv},
    {.schema = "aten::linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor", .infer = infer_tensorsolve, .decompose = tensorsolve},
    {.schema = "aten::linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor", .infer = infer_vander, .decompose = vander},
    {.schema = "aten::logdet(Tensor self) -> Tensor", .infer = infer_determinant<false, false>, .decompose = logdet},
    {.schema = "aten::lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", .infer = infer_lu_solve, .decompose = old_lu_solve},
    {.schema = "aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)", .infer = infer_lu_unpack,
     .decompose = lu_unpack},
    {.schema = "aten::matrix_exp(Tensor self) -> Tensor", .infer = infer_same<true>, .decompose = matrix_exp},
    {.schema = "aten::nuclear_norm(Tensor self, bool keepdim=False) -> Tensor", .infer = infer_number<DType::kFloat32>, .decompose = nuclear},
    {.schema = "aten::nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor", .infer = infer_nuclear, .decompose = nuclear},
    {.schema = "aten::orgqr(Tensor self, Tensor input2) -> Tensor", .infer = infer_same<false>, .decompose = householder},
    {.schema = "aten::pinverse(Tensor self, float rcond=1e-15) -> Tensor", .infer = infer_pinv, .decompose = pinv},
    {.schema = "aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)", .infer = infer_qr, .decompose = qr},
    {.schema = "aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", .infer = infer_determinant<false, true>, .decompose = slogdet},
    {.schema = "aten::svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)", .infer = infer_svd, .decompose = old_svd},
    {.schema = "aten::triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
     .infer = infer_old_triangular, .decompose = old_triangular},
    {.schema = "aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor", .infer = infer_vander, .decompose = vander},
    {.schema = "pteron::lu_permutation(Tensor pivots, SymInt n, *, ScalarType? dtype=None, Layout? layout=None) -> Tensor", .infer = infer_permutation, .kernel = "pteron::lu_permutation.out"},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::linalg
