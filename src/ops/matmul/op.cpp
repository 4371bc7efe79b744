// Matrix products for the compiler: inference, and decomposition of the composite ones to mm, bmm and addmm. einsum: op_einsum.cpp.
#include <algorithm>

#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/matmul/rows.h"

namespace pteron::ops::matmul {
namespace {

using ir::Builder;
using ir::OpDef;

Status bad_shapes(const NodeView& c, std::string_view a, std::string_view b) {
  return Status(Code::kInvalidInput, str_cat("shapes ", shape_text(c.type(a).sizes), " and ", shape_text(c.type(b).sizes), " do not fit"));
}

/// [.., m, k] x [.., k, n] for the two named arguments of exactly `rank` dims.
Status infer_product(InferContext& c, std::string_view x, std::string_view y, int rank) {
  const TensorType& a = c.type(x);
  const TensorType& b = c.type(y);
  if (a.rank() != rank || b.rank() != rank) return bad_shapes(c, x, y);
  const auto r = static_cast<size_t>(rank);
  if (dim_differ(a.sizes[r - 1], b.sizes[r - 2]) || (rank == 3 && dim_differ(a.sizes[0], b.sizes[0]))) return bad_shapes(c, x, y);
  if (a.dtype != b.dtype) {
    return Status(Code::kInvalidInput, str_cat("expected equal dtypes, found ", dtype_name(a.dtype), " and ", dtype_name(b.dtype)));
  }
  std::vector<Expr> sizes;
  if (rank == 3) sizes.push_back(a.sizes[0]);
  sizes.push_back(a.sizes[r - 2]);
  sizes.push_back(b.sizes[r - 1]);
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_mm(InferContext& c) { return infer_product(c, "self", "mat2", 2); }
Status infer_bmm(InferContext& c) { return infer_product(c, "self", "mat2", 3); }
Status infer_addmm(InferContext& c) { return infer_product(c, "mat1", "mat2", 2); }
Status infer_baddbmm(InferContext& c) { return infer_product(c, "batch1", "batch2", 3); }

Status infer_addbmm(InferContext& c) {
  PTERON_TRY(infer_product(c, "batch1", "batch2", 3));
  TensorType type = c.results[0].type;
  c.results.clear();
  c.add(type.dtype, {type.sizes[1], type.sizes[2]});
  return ok_status();
}

Status infer_mv_of(InferContext& c, std::string_view mat, std::string_view vec) {
  const TensorType& m = c.type(mat);
  const TensorType& v = c.type(vec);
  if (m.rank() != 2 || v.rank() != 1 || dim_differ(m.sizes[1], v.sizes[0])) return bad_shapes(c, mat, vec);
  c.add(m.dtype, {m.sizes[0]});
  return ok_status();
}
Status infer_mv(InferContext& c) { return infer_mv_of(c, "self", "vec"); }
Status infer_addmv(InferContext& c) { return infer_mv_of(c, "mat", "vec"); }

Status infer_dot_of(InferContext& c, std::string_view other) {
  const TensorType& a = c.type("self");
  const TensorType& b = c.type(other);
  if (a.rank() != 1 || b.rank() != 1 || dim_differ(a.sizes[0], b.sizes[0])) return bad_shapes(c, "self", other);
  c.add(a.dtype, {});
  return ok_status();
}
Status infer_dot(InferContext& c) { return infer_dot_of(c, "tensor"); }
Status infer_vdot(InferContext& c) { return infer_dot_of(c, "other"); }

Status infer_outer(InferContext& c) {
  const TensorType& a = c.type("self");
  const TensorType& b = c.type("vec2");
  if (a.rank() != 1 || b.rank() != 1) return bad_shapes(c, "self", "vec2");
  c.add(result_type(c, {"self", "vec2"}), {a.sizes[0], b.sizes[0]});
  return ok_status();
}

Status infer_addr(InferContext& c) {
  const TensorType& a = c.type("vec1");
  const TensorType& b = c.type("vec2");
  if (a.rank() != 1 || b.rank() != 1) return bad_shapes(c, "vec1", "vec2");
  c.add(result_type(c, {"self", "vec1", "vec2"}), {a.sizes[0], b.sizes[0]});
  return ok_status();
}

/// Sizes of matmul(a, b) for any ranks >= 1.
Status matmul_sizes(std::span<const Expr> a, std::span<const Expr> b, std::vector<Expr>* out) {
  const size_t ra = a.size(), rb = b.size();
  const bool fits = ra >= 1 && rb >= 1 && !dim_differ(a[ra - 1], rb == 1 ? b[0] : b[rb - 2]);
  if (!fits) return Status(Code::kInvalidInput, str_cat("shapes ", shape_text(a), " and ", shape_text(b), " do not multiply"));
  PTERON_TRY(broadcast_exprs(a.first(ra < 2 ? 0 : ra - 2), b.first(rb < 2 ? 0 : rb - 2), out));
  if (ra >= 2) out->push_back(a[ra - 2]);
  if (rb >= 2) out->push_back(b[rb - 1]);
  return ok_status();
}

Status infer_matmul(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(matmul_sizes(c.type("self").sizes, c.type("other").sizes, &sizes));
  if (c.type("self").dtype != c.type("other").dtype) {
    return Status(Code::kInvalidInput, str_cat("expected equal dtypes, found ", dtype_name(c.type("self").dtype), " and ", dtype_name(c.type("other").dtype)));
  }
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Status infer_linear(InferContext& c) {
  const TensorType& x = c.type("input");
  const TensorType& w = c.type("weight");
  if (x.rank() < 1 || w.rank() < 1 || w.rank() > 2 || dim_differ(x.sizes.back(), w.sizes.back())) return bad_shapes(c, "input", "weight");
  if (x.dtype != w.dtype) {
    return Status(Code::kInvalidInput, str_cat("expected input and weight of one dtype, found ", dtype_name(x.dtype), " and ", dtype_name(w.dtype)));
  }
  std::vector<Expr> sizes = sub_sizes(x.sizes, 0, x.sizes.size() - 1);
  if (w.rank() == 2) sizes.push_back(w.sizes[0]);
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}

Status infer_inner(InferContext& c) {
  const TensorType& a = c.type("self");
  const TensorType& b = c.type("other");
  std::vector<Expr> sizes;
  if (a.rank() == 0 || b.rank() == 0) {
    sizes = a.rank() == 0 ? b.sizes : a.sizes;
  } else {
    sizes = sub_sizes(a.sizes, 0, a.sizes.size() - 1);
    sizes.insert(sizes.end(), b.sizes.begin(), b.sizes.end() - 1);
  }
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_tensordot(InferContext& c) {
  const TensorType& a = c.type("self");
  const TensorType& b = c.type("other");
  const auto free_sizes = [&](const TensorType& t, std::string_view dims, std::vector<Expr>* out) -> Status {
    std::vector<bool> summed(t.sizes.size(), false);
    for (const int64_t d : c.integers(dims)) {
      PTERON_ASSIGN(const int dim, wrap_dim_of(d, t.rank()));
      summed[static_cast<size_t>(dim)] = true;
    }
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      if (!summed[d]) out->push_back(t.sizes[d]);
    }
    return ok_status();
  };
  std::vector<Expr> sizes;
  PTERON_TRY(free_sizes(a, "dims_self", &sizes));
  PTERON_TRY(free_sizes(b, "dims_other", &sizes));
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_kron(InferContext& c) {
  const TensorType& a = c.type("self");
  const TensorType& b = c.type("other");
  const size_t rank = std::max(a.sizes.size(), b.sizes.size());
  std::vector<Expr> sizes(rank, Expr(1));
  for (size_t i = 0; i < rank; ++i) {
    Expr s = 1;
    if (i < a.sizes.size()) s = s * a.sizes[a.sizes.size() - 1 - i];
    if (i < b.sizes.size()) s = s * b.sizes[b.sizes.size() - 1 - i];
    sizes[rank - 1 - i] = s;
  }
  c.add(result_type(c, {"self", "other"}), std::move(sizes));
  return ok_status();
}

Status infer_chain(InferContext& c) {
  const std::vector<ValueId> list = c.values(c.op().schema.args[0].name);
  if (list.size() < 2) return Status(Code::kInvalidInput, str_cat("expected at least 2 matrices, found ", list.size()));
  const TensorType& first = c.type(list.front());
  const TensorType& last = c.type(list.back());
  std::vector<Expr> sizes;
  if (first.rank() == 2) sizes.push_back(first.sizes[0]);
  if (last.rank() == 2) sizes.push_back(last.sizes[1]);
  c.add(first.dtype, std::move(sizes));
  return ok_status();
}

Status infer_vecdot(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"x", "y"}, &sizes));
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim", -1), static_cast<int>(sizes.size())));
  if (!sizes.empty()) sizes.erase(sizes.begin() + dim);
  c.add(c.type("x").dtype, std::move(sizes));
  return ok_status();
}

Status infer_bilinear(InferContext& c) {
  const TensorType& x = c.type("input1");
  std::vector<Expr> sizes = sub_sizes(x.sizes, 0, x.sizes.size() - 1);
  sizes.push_back(c.type("weight").sizes[0]);
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}

Status check_square(const TensorType& a) {
  if (a.rank() >= 2 && !dim_differ(a.sizes[a.sizes.size() - 1], a.sizes[a.sizes.size() - 2])) return ok_status();
  return Status(Code::kInvalidInput, str_cat("expected square matrices, found ", shape_text(a.sizes)));
}

Status infer_square(InferContext& c) {
  const TensorType& a = c.type(c.op().schema.args[0].name);
  PTERON_TRY(check_square(a));
  c.add(a.dtype, a.sizes);
  return ok_status();
}

Status infer_det(InferContext& c) {
  const TensorType& a = c.type(c.op().schema.args[0].name);
  PTERON_TRY(check_square(a));
  c.add(a.dtype, sub_sizes(a.sizes, 0, a.sizes.size() - 2));
  return ok_status();
}

Status infer_inv_ex(InferContext& c) {
  const TensorType& a = c.type("A");
  PTERON_TRY(check_square(a));
  const std::vector<Expr> sizes = a.sizes;
  const DType dtype = a.dtype;
  c.add(dtype, sizes);
  c.add(DType::kInt32, sub_sizes(sizes, 0, sizes.size() - 2));
  return ok_status();
}

// ---- decompositions ----

std::vector<ValueId> decompose_mv(Builder& b, const NodeView& n) {
  Compose f(b);
  return {f.squeeze(f.mm(n.value("self"), f.unsqueeze(n.value("vec"), 1)), 1)};
}

/// The dot product of two vectors as a product of matrices.
ValueId dot(Compose& f, ValueId x, ValueId y) {
  return f.view(f.mm(f.view(x, {1, f.size(x, 0)}), f.view(y, {f.size(y, 0), 1})), {});
}
std::vector<ValueId> decompose_dot(Builder& b, const NodeView& n) {
  Compose f(b);
  return {dot(f, n.value("self"), n.value("tensor"))};
}
std::vector<ValueId> decompose_vdot(Builder& b, const NodeView& n) {
  if (is_complex(n.type("self").dtype)) return {};
  Compose f(b);
  return {dot(f, n.value("self"), n.value("other"))};
}

std::vector<ValueId> decompose_outer(Builder& b, const NodeView& n) {
  Compose f(b);
  return {f.mul(f.unsqueeze(n.value("self"), 1), n.value("vec2"))};
}

bool is_value(const NodeView& n, std::string_view name, double value) {
  const Expr e = n.expr(name);
  return ir::is_number(e) && ir::number_of(e) == value;
}

/// beta * self + alpha * product, where a factor of 1 costs nothing and beta == 0 drops self.
ValueId scaled_sum(Compose& f, const NodeView& n, ValueId product) {
  const DType dtype = f.dtype(product);
  const Expr alpha = number_for(f.b, n.expr("alpha"), dtype), beta = number_for(f.b, n.expr("beta"), dtype);
  const auto is = [](Expr e, double value) { return ir::is_number(e) && ir::number_of(e) == value; };
  if (!is(alpha, 1)) product = f.mul(product, alpha);
  if (is(beta, 0)) return f.expand(product, f.sizes(product));
  ValueId self = n.value("self");
  if (!is(beta, 1)) self = f.mul(self, beta);
  return f.add(self, product);
}

std::vector<ValueId> decompose_addmv(Builder& b, const NodeView& n) {
  Compose f(b);
  return {scaled_sum(f, n, f.squeeze(f.mm(n.value("mat"), f.unsqueeze(n.value("vec"), 1)), 1))};
}
std::vector<ValueId> decompose_addr(Builder& b, const NodeView& n) {
  Compose f(b);
  const DType dtype = result_type(n, {"self", "vec1", "vec2"});
  const auto is_plain = [&](const char* name) { return n.type(name).dtype == dtype; };
  const bool plain = (dtype == DType::kFloat32 || dtype == DType::kFloat64) && is_plain("self") && is_plain("vec1") && is_plain("vec2");
  if (plain && is_value(n, "beta", 1)) {  // one pass
    return {b.op("aten::addcmul", {n.value("self"), f.unsqueeze(n.value("vec1"), 1), n.value("vec2"), n.expr("alpha")})};
  }
  return {f.to(scaled_sum(f, n, f.mul(f.unsqueeze(n.value("vec1"), 1), n.value("vec2"))), dtype)};
}
std::vector<ValueId> decompose_baddbmm(Builder& b, const NodeView& n) {
  Compose f(b);
  return {scaled_sum(f, n, f.bmm(n.value("batch1"), n.value("batch2")))};
}

std::vector<ValueId> decompose_addbmm(Builder& b, const NodeView& n) {
  // sum_i b1[i] @ b2[i] is one product over the joined dims (i, k).
  Compose f(b);
  const ValueId x = n.value("batch1"), y = n.value("batch2");
  const Expr batch = f.size(x, 0), m = f.size(x, 1), k = f.size(x, 2), cols = f.size(y, 2);
  const ValueId left = f.view(f.permute(x, std::vector<int64_t>{1, 0, 2}), {m, batch * k});
  const ValueId right = f.view(y, {batch * k, cols});
  return {b.op("aten::addmm", {n.value("self"), left, right, n.arg("beta"), n.arg("alpha")})};
}

/// Batch dims of both broadcast, joined to one, multiplied, and split again.
ValueId batched_matmul(Compose& f, ValueId x, ValueId y) {
  std::vector<Expr> batch;
  Status status = broadcast_exprs(std::span(f.sizes(x)).first(static_cast<size_t>(f.rank(x) - 2)),
                                  std::span(f.sizes(y)).first(static_cast<size_t>(f.rank(y) - 2)), &batch);
  if (!status.ok()) {
    f.b.fail(std::move(status));
    return {};
  }
  const Expr rows = f.size(x, -2), inner_x = f.size(x, -1), inner_y = f.size(y, -2), columns = f.size(y, -1);
  const Expr count = ir::numel_of(batch);
  const auto joined = [&](ValueId v, Expr r, Expr c) {
    std::vector<Expr> full = batch;
    full.push_back(r);
    full.push_back(c);
    return f.view(f.expand(v, full), {count, r, c});
  };
  const ValueId product = f.bmm(joined(x, rows, inner_x), joined(y, inner_y, columns));
  std::vector<Expr> out = batch;
  out.push_back(rows);
  out.push_back(columns);
  return f.view(product, out);
}

bool all_one(std::span<const Expr> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const Expr& e) { return dim_is(e, 1); });
}

}  // namespace

ValueId compose_matmul(Compose& f, ValueId x, ValueId y) {
  const int rx = f.rank(x), ry = f.rank(y);
  if (!x.valid() || !y.valid() || rx == 0 || ry == 0) return {};
  if (rx == 1 && ry == 1) return dot(f, x, y);
  if (ry == 1) {
    const ValueId product = compose_matmul(f, x, f.unsqueeze(y, 1));
    return f.squeeze(product, f.rank(product) - 1);
  }
  if (rx == 1) {
    const ValueId product = compose_matmul(f, f.unsqueeze(x, 0), y);
    return f.squeeze(product, f.rank(product) - 2);
  }
  if (rx == 2 && ry == 2) return f.mm(x, y);
  const std::vector<Expr> x_sizes = f.sizes(x), y_sizes = f.sizes(y);
  const std::span<const Expr> y_batch(y_sizes.data(), y_sizes.size() - 2);
  if (rx >= ry && all_one(y_batch)) {
    // One matrix on the right: the rows of all matrices on the left are one matrix.
    const std::vector<Expr> rows = sub_sizes(x_sizes, 0, x_sizes.size() - 1);
    const ValueId left = f.view(x, {ir::numel_of(rows), x_sizes.back()});
    const ValueId right = f.view(y, {y_sizes[y_sizes.size() - 2], y_sizes.back()});
    std::vector<Expr> out = rows;
    out.push_back(y_sizes.back());
    return f.view(f.mm(left, right), out);
  }
  return batched_matmul(f, x, y);
}

namespace {

std::vector<ValueId> decompose_matmul(Builder& b, const NodeView& n) {
  Compose f(b);
  return {compose_matmul(f, n.value("self"), n.value("other"))};
}

std::vector<ValueId> decompose_linear(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("input"), w = n.value("weight"), bias = n.value("bias");
  if (f.rank(w) == 1) {
    ValueId out = compose_matmul(f, x, w);
    return {bias.valid() ? f.add(out, bias) : out};
  }
  const std::vector<Expr> rows = sub_sizes(f.sizes(x), 0, f.sizes(x).size() - 1);
  const ValueId flat = f.view(x, {ir::numel_of(rows), f.size(x, -1)});
  const ValueId turned = f.permute(w, std::vector<int64_t>{1, 0});
  const ValueId product = bias.valid() ? b.op("aten::addmm", {bias, flat, turned}) : f.mm(flat, turned);
  std::vector<Expr> out = rows;
  out.push_back(f.size(w, 0));
  return {f.view(product, out)};
}

std::vector<ValueId> decompose_inner(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("self"), y = n.value("other");
  if (f.rank(x) == 0 || f.rank(y) == 0) return {f.mul(x, y)};
  if (f.rank(x) == 1 && f.rank(y) == 1) return {b.op("aten::dot", {x, y})};
  const std::vector<Expr> sx = sub_sizes(f.sizes(x), 0, f.sizes(x).size() - 1), sy = sub_sizes(f.sizes(y), 0, f.sizes(y).size() - 1);
  const Expr k = f.size(x, -1);
  const ValueId right = f.permute(f.view(y, {ir::numel_of(sy), k}), std::vector<int64_t>{1, 0});
  std::vector<Expr> out = sx;
  out.insert(out.end(), sy.begin(), sy.end());
  return {f.view(f.mm(f.view(x, {ir::numel_of(sx), k}), right), out)};
}

std::vector<ValueId> decompose_tensordot(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("self"), y = n.value("other");
  std::vector<int64_t> dx = n.integers("dims_self"), dy = n.integers("dims_other");
  for (size_t i = 0; i < dx.size(); ++i) {
    if (dx[i] < 0) dx[i] += f.rank(x);
    if (dy[i] < 0) dy[i] += f.rank(y);
    // A summed dim of size 1 broadcasts: the other side is summed first.
    const bool one_x = dim_is(f.size(x, static_cast<int>(dx[i])), 1), one_y = dim_is(f.size(y, static_cast<int>(dy[i])), 1);
    if (one_x && !one_y) y = f.sum(y, {Expr(dy[i])}, true);
    if (one_y && !one_x) x = f.sum(x, {Expr(dx[i])}, true);
  }
  std::vector<int64_t> order_x, order_y = dy;
  std::vector<Expr> out;
  Expr rows = 1, k = 1, columns = 1;
  for (int64_t d = 0; d < f.rank(x); ++d) {
    if (std::find(dx.begin(), dx.end(), d) != dx.end()) continue;
    order_x.push_back(d);
    out.push_back(f.size(x, static_cast<int>(d)));
    rows = rows * out.back();
  }
  for (const int64_t d : dx) {
    order_x.push_back(d);
    k = k * f.size(x, static_cast<int>(d));
  }
  for (int64_t d = 0; d < f.rank(y); ++d) {
    if (std::find(dy.begin(), dy.end(), d) != dy.end()) continue;
    order_y.push_back(d);
    out.push_back(f.size(y, static_cast<int>(d)));
    columns = columns * out.back();
  }
  if (out.empty()) return {b.op("aten::dot", {f.view(f.permute(x, order_x), {k}), f.view(f.permute(y, order_y), {k})})};
  const ValueId left = f.view(f.permute(x, order_x), {rows, k});
  const ValueId right = f.view(f.permute(y, order_y), {k, columns});
  return {f.view(f.mm(left, right), out)};
}

std::vector<ValueId> decompose_kron(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("self"), y = n.value("other");
  const auto rank = static_cast<size_t>(std::max(f.rank(x), f.rank(y)));
  std::vector<Expr> sx(2 * rank, Expr(1)), sy(2 * rank, Expr(1)), out(rank, Expr(1));
  for (size_t i = 0; i < static_cast<size_t>(f.rank(x)); ++i) sx[2 * (rank - static_cast<size_t>(f.rank(x)) + i)] = f.sizes(x)[i];
  for (size_t i = 0; i < static_cast<size_t>(f.rank(y)); ++i) sy[2 * (rank - static_cast<size_t>(f.rank(y)) + i) + 1] = f.sizes(y)[i];
  for (size_t i = 0; i < rank; ++i) out[i] = sx[2 * i] * sy[2 * i + 1];
  return {f.view(f.mul(f.view(x, sx), f.view(y, sy)), out)};
}

/// Best order of a matrix chain: split[i][j] is the last product of matrices i..j. Unknown sizes count as 64.
std::vector<std::vector<size_t>> chain_order(const std::vector<Expr>& dims) {
  const size_t n = dims.size() - 1;
  const auto size = [&](size_t i) { return dims[i].is_const() ? static_cast<double>(dims[i].value()) : 64.0; };
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      cost[i][j] = -1;
      for (size_t k = i; k < j; ++k) {
        const double total = cost[i][k] + cost[k + 1][j] + size(i) * size(k + 1) * size(j + 1);
        if (cost[i][j] >= 0 && total >= cost[i][j]) continue;
        cost[i][j] = total;
        cut[i][j] = k;
      }
    }
  }
  return cut;
}

ValueId multiply_chain(Compose& f, const std::vector<ValueId>& list, const std::vector<std::vector<size_t>>& cut, size_t i, size_t j) {
  if (i == j) return list[i];
  const size_t k = cut[i][j];
  return f.mm(multiply_chain(f, list, cut, i, k), multiply_chain(f, list, cut, k + 1, j));
}

std::vector<ValueId> decompose_chain(Builder& b, const NodeView& n) {
  Compose f(b);
  std::vector<ValueId> list = n.values(n.op().schema.args[0].name);
  const bool vector_first = f.rank(list.front()) == 1, vector_last = f.rank(list.back()) == 1;
  if (vector_first) list.front() = f.unsqueeze(list.front(), 0);
  if (vector_last) list.back() = f.unsqueeze(list.back(), 1);
  std::vector<Expr> dims{f.size(list[0], 0)};
  for (const ValueId v : list) dims.push_back(f.size(v, 1));
  ValueId out = multiply_chain(f, list, chain_order(dims), 0, list.size() - 1);
  if (vector_last) out = f.squeeze(out, 1);
  if (vector_first) out = f.squeeze(out, 0);
  return {out};
}

std::vector<ValueId> decompose_matrix_power(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("self");
  int64_t power = n.integer("n");
  if (power == 0) {
    const Expr size = f.size(x, -1);
    const ValueId eye = b.op("aten::eye.m", {size, size, f.dtype(x)});
    return {b.op("aten::clone", {f.expand(eye, f.sizes(x))})};
  }
  if (power < 0) {
    x = b.op("aten::linalg_inv_ex", {x, b.boolean(true)});
    power = -power;
  }
  if (power == 1) return {b.op("aten::clone", {x})};
  ValueId out;
  for (ValueId square = x;; square = compose_matmul(f, square, square)) {
    if ((power & 1) != 0) out = out.valid() ? compose_matmul(f, out, square) : square;
    power >>= 1;
    if (power == 0 || !square.valid()) return {out};
  }
}

std::vector<ValueId> decompose_vecdot(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("x"), y = n.value("y");
  if (is_complex(f.dtype(x))) return {};
  if (f.rank(x) == 1 && f.rank(y) == 1 && f.size(x, 0) == f.size(y, 0)) return {dot(f, x, y)};
  return {f.sum(f.mul(x, y), {n.expr("dim", -1)})};
}

std::vector<ValueId> decompose_bilinear(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("input1"), y = n.value("input2"), w = n.value("weight"), bias = n.value("bias");
  const std::vector<Expr> batch = sub_sizes(f.sizes(x), 0, f.sizes(x).size() - 1);
  const Expr count = ir::numel_of(batch), outs = f.size(w, 0), in1 = f.size(w, 1), in2 = f.size(w, 2);
  const ValueId weight = f.view(f.permute(w, std::vector<int64_t>{1, 0, 2}), {in1, outs * in2});
  const ValueId left = f.view(f.mm(f.view(x, {count, in1}), weight), {count, outs, in2});
  std::vector<Expr> sizes = batch;
  sizes.push_back(outs);
  const ValueId out = f.to(f.view(f.bmm(left, f.view(y, {count, in2, 1})), sizes), f.dtype(x));  // products may be narrower inside autocast
  return {bias.valid() ? f.add(out, bias) : out};
}

std::vector<ValueId> decompose_inv(Builder& b, const NodeView& n) {
  return {b.op("aten::linalg_inv_ex", {n.value(n.op().schema.args[0].name), b.boolean(true)})};
}
std::vector<ValueId> decompose_det(Builder& b, const NodeView& n) { return {b.op("aten::linalg_det", {n.value("self")})}; }

constexpr OpDef kTable[] = {
    {.schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor", .infer = infer_mm, .kernel = "aten::mm.out"},
    {.schema = "aten::bmm(Tensor self, Tensor mat2) -> Tensor", .infer = infer_bmm, .kernel = "aten::bmm.out"},
    {.schema = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
     .infer = infer_addmm, .kernel = "aten::addmm.out"},
    {.schema = "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
     .infer = infer_baddbmm, .decompose = decompose_baddbmm, .kernel = "aten::baddbmm.out"},
    {.schema = "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
     .infer = infer_addbmm, .decompose = decompose_addbmm},
    {.schema = "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
     .infer = infer_addmv, .decompose = decompose_addmv},
    {.schema = "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
     .infer = infer_addr, .decompose = decompose_addr},
    {.schema = "aten::mv(Tensor self, Tensor vec) -> Tensor", .infer = infer_mv, .decompose = decompose_mv},
    {.schema = "aten::dot(Tensor self, Tensor tensor) -> Tensor", .infer = infer_dot, .decompose = decompose_dot},
    {.schema = "aten::vdot(Tensor self, Tensor other) -> Tensor", .infer = infer_vdot, .decompose = decompose_vdot},
    {.schema = "aten::inner(Tensor self, Tensor other) -> Tensor", .infer = infer_inner, .decompose = decompose_inner},
    {.schema = "aten::outer(Tensor self, Tensor vec2) -> Tensor", .infer = infer_outer, .decompose = decompose_outer},
    {.schema = "aten::ger(Tensor self, Tensor vec2) -> Tensor", .infer = infer_outer, .decompose = decompose_outer},
    {.schema = "aten::matmul(Tensor self, Tensor other) -> Tensor", .infer = infer_matmul, .decompose = decompose_matmul},
    {.schema = "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor", .infer = infer_matmul, .decompose = decompose_matmul},
    {.schema = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
     .infer = infer_linear, .decompose = decompose_linear, .kernel = "aten::linear.out"},
    {.schema = "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", .infer = infer_einsum, .decompose = decompose_einsum},
    {.schema = "aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
     .infer = infer_tensordot, .decompose = decompose_tensordot},
    {.schema = "aten::kron(Tensor self, Tensor other) -> Tensor", .infer = infer_kron, .decompose = decompose_kron},
    {.schema = "aten::linalg_multi_dot(Tensor[] tensors) -> Tensor", .infer = infer_chain, .decompose = decompose_chain},
    {.schema = "aten::chain_matmul(Tensor[] matrices) -> Tensor", .infer = infer_chain, .decompose = decompose_chain},
    {.schema = "aten::matrix_power(Tensor self, int n) -> Tensor", .infer = infer_square, .decompose = decompose_matrix_power},
    {.schema = "aten::linalg_matrix_power(Tensor self, int n) -> Tensor", .infer = infer_square, .decompose = decompose_matrix_power},
    {.schema = "aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", .infer = infer_vecdot, .decompose = decompose_vecdot},
    {.schema = "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
     .infer = infer_bilinear, .decompose = decompose_bilinear},
    {.schema = "aten::linalg_det(Tensor A) -> Tensor", .infer = infer_det, .kernel = "aten::linalg_det.out"},
    {.schema = "aten::det(Tensor self) -> Tensor", .infer = infer_det, .decompose = decompose_det},
    {.schema = "aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
     .infer = infer_inv_ex, .kernel = "aten::linalg_inv_ex.inverse"},
    {.schema = "aten::linalg_inv(Tensor A) -> Tensor", .infer = infer_square, .decompose = decompose_inv},
    {.schema = "aten::inverse(Tensor self) -> Tensor", .infer = infer_square, .decompose = decompose_inv},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::matmul
