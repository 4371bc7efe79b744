// diff, gradient, trapezoid and cumulative_trapezoid, cov, corrcoef: composites of slices and sums. No kernels of their own.
// Tests: test.cpp.
#include <algorithm>
#include <span>

#include "ops/compose.h"
#include "ops/reduce_infer.h"

namespace pteron::ops::calculus {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// Elements [from, to) along a dim, counted from the end where negative; `to` 0 means the end.
ValueId part(Builder& b, ValueId x, int dim, int64_t from, int64_t to) {
  const TensorType& type = b.type(x);
  const Expr n = static_cast<size_t>(dim) < type.sizes.size() ? type.sizes[static_cast<size_t>(dim)] : Expr(1);
  const Expr start = from < 0 ? n + Expr(from) : Expr(from);
  const Expr stop = to <= 0 ? n + Expr(to) : Expr(to);
  return b.op("aten::slice.Tensor", {x, Expr(dim), start, stop, Expr(1)});
}

int dim_of(const NodeView& n, std::string_view tensor) {
  const int64_t rank = std::max(n.type(tensor).rank(), 1);
  return static_cast<int>(floor_mod(n.integer("dim"), rank));
}

// ---- diff

Status infer_diff(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() == 0) return Status(Code::kInvalidInput, "diff expects at least one dim");
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), self.rank()));
  std::vector<Expr> sizes = self.sizes;
  Expr& n = sizes[static_cast<size_t>(dim)];
  for (const std::string_view name : {"prepend", "append"}) {
    if (c.is_none(name)) continue;
    if (c.type(name).rank() != self.rank()) return Status(Code::kInvalidInput, str_cat("diff: ", name, " must have the rank of the input"));
    n = n + c.type(name).sizes[static_cast<size_t>(dim)];
  }
  if (c.integer("n", 1) < 0) return Status(Code::kInvalidInput, "diff: the order must not be negative");
  if (c.integer("n", 1) == 0) {  // a copy of the input alone
    c.add(self.dtype, self.sizes);
    return ok_status();
  }
  n = dim_max(n - Expr(c.integer("n", 1)), Expr(0));
  c.add(result_type(c, {"self", "prepend", "append"}), std::move(sizes));
  return ok_status();
}

Ids decompose_diff(Builder& b, const NodeView& n) {
  const int dim = dim_of(n, "self");
  ValueId x = n.value("self");
  const int64_t order = n.integer("n", 1);
  if (order == 0) return {b.op("aten::clone", {x})};
  const bool has_before = !n.is_none("prepend"), has_after = !n.is_none("append");
  if (has_before || has_after) {
    std::vector<ValueId> parts;
    if (has_before) parts.push_back(n.value("prepend"));
    parts.push_back(x);
    if (has_after) parts.push_back(n.value("append"));
    x = b.op("aten::cat", {parts, Expr(dim)});
  }
  for (int64_t i = 0; i < order && b.status().ok(); ++i) {
    if (dim_is(b.type(x).sizes[static_cast<size_t>(dim)], 0)) break;
    const ValueId after = part(b, x, dim, 1, 0), before = part(b, x, dim, 0, -1);
    x = b.type(x).dtype == DType::kBool ? b.op("aten::logical_xor", {after, before}) : b.op("aten::sub.Tensor", {after, before});
  }
  return {x};
}

// ---- gradient

std::vector<int> gradient_dims(const NodeView& n) {
  const int rank = n.type("self").rank();
  std::vector<int> dims;
  for (const int64_t d : n.integers("dim")) dims.push_back(static_cast<int>(floor_mod(d, int64_t{std::max(rank, 1)})));
  if (n.is_none("dim")) {
    for (int d = 0; d < rank; ++d) dims.push_back(d);
  }
  return dims;
}

Status infer_gradient(InferContext& c) {
  const TensorType& self = c.type("self");
  Promotion p;
  p.add_tensor(self.dtype, self.rank());
  if (c.has("spacing")) {
    for (const ValueId id : c.values("spacing")) p.add_tensor(c.type(id).dtype, c.type(id).rank());
  }
  const DType dtype = to_float_dtype(p.result());
  const int64_t order = c.integer("edge_order", 1);
  if (order != 1 && order != 2) return Status(Code::kInvalidInput, "gradient: edge_order must be 1 or 2");
  for (const int dim : gradient_dims(c)) {
    const Expr n = self.sizes[static_cast<size_t>(dim)];
    if (n.is_const() && n.value() <= order) return Status(Code::kInvalidInput, str_cat("gradient along dim ", dim, " needs more than ", order, " elements"));
    c.add(dtype, self.sizes);
  }
  return ok_status();
}

/// Evenly spaced samples, `spacing` apart.
ValueId even_gradient(Builder& b, ValueId x, int dim, Expr spacing, int64_t order) {
  Compose m(b);
  const auto over = [&](ValueId y) { return b.op("aten::div.Scalar", {y, spacing}); };
  const ValueId center = b.op("aten::div.Scalar", {over(m.sub(part(b, x, dim, 2, 0), part(b, x, dim, 0, -2))), Expr(2)});
  ValueId first, last;
  if (order == 1) {
    first = over(m.sub(part(b, x, dim, 1, 2), part(b, x, dim, 0, 1)));
    last = over(m.sub(part(b, x, dim, -1, 0), part(b, x, dim, -2, -1)));
  } else {
    const auto times = [&](ValueId y, double f) { return m.mul(y, b.floating(f)); };
    first = over(m.add(m.add(times(part(b, x, dim, 0, 1), -1.5), times(part(b, x, dim, 1, 2), 2)), times(part(b, x, dim, 2, 3), -0.5)));
    last = over(m.add(m.add(times(part(b, x, dim, -3, -2), 0.5), times(part(b, x, dim, -2, -1), -2)), times(part(b, x, dim, -1, 0), 1.5)));
  }
  return m.cat({first, center, last}, dim);
}

/// Samples at the places `at`.
ValueId uneven_gradient(Builder& b, ValueId x, int dim, ValueId at, int64_t order) {
  Compose m(b);
  std::vector<Expr> shape(b.type(x).sizes.size(), Expr(1));
  const ValueId steps = m.sub(part(b, at, 0, 1, 0), part(b, at, 0, 0, -1));
  const auto along = [&](ValueId factor) {
    std::vector<Expr> to = shape;
    to[static_cast<size_t>(dim)] = m.size(factor, 0);
    return m.view(factor, to);
  };
  const auto step = [&](int64_t from, int64_t to) { return part(b, steps, 0, from, to); };
  const ValueId d1 = step(0, -1), d2 = step(1, 0);
  const ValueId sum = m.add(d1, d2);
  const ValueId a = along(m.div(b.op("aten::neg", {d2}), m.mul(d1, sum)));
  const ValueId c0 = along(m.div(m.sub(d2, d1), m.mul(d1, d2)));
  const ValueId c1 = along(m.div(d1, m.mul(d2, sum)));
  const ValueId center = m.add(m.add(m.mul(a, part(b, x, dim, 0, -2)), m.mul(c0, part(b, x, dim, 1, -1))), m.mul(c1, part(b, x, dim, 2, 0)));
  if (order == 1) {
    const ValueId first = m.div(m.sub(part(b, x, dim, 1, 2), part(b, x, dim, 0, 1)), along(step(0, 1)));
    const ValueId last = m.div(m.sub(part(b, x, dim, -1, 0), part(b, x, dim, -2, -1)), along(step(-1, 0)));
    return m.cat({first, center, last}, dim);
  }
  // three-point formulas at both ends; p and q are the steps next to the end and one further in
  const auto edge = [&](ValueId p, ValueId q, bool start) {
    const ValueId both = m.add(p, q);
    const ValueId outer = m.div(m.add(m.mul(p, b.floating(2.0)), q), m.mul(p, both));
    const ValueId middle = m.div(both, m.mul(p, q));
    const ValueId inner = m.div(p, m.mul(q, both));
    const auto negative = [&](ValueId y) { return b.op("aten::neg", {y}); };
    if (start) {
      return m.add(m.add(m.mul(along(negative(outer)), part(b, x, dim, 0, 1)), m.mul(along(middle), part(b, x, dim, 1, 2))),
                   m.mul(along(negative(inner)), part(b, x, dim, 2, 3)));
    }
    return m.add(m.add(m.mul(along(inner), part(b, x, dim, -3, -2)), m.mul(along(negative(middle)), part(b, x, dim, -2, -1))),
                 m.mul(along(outer), part(b, x, dim, -1, 0)));
  };
  const ValueId first = edge(step(0, 1), step(1, 2), true);
  const ValueId last = edge(step(-1, 0), step(-2, -1), false);
  return m.cat({first, center, last}, dim);
}

Ids decompose_gradient(Builder& b, const NodeView& n) {
  const std::vector<int> dims = gradient_dims(n);
  const int64_t order = n.integer("edge_order", 1);
  const ValueId self = n.value("self");
  std::vector<Expr> spacing;
  std::vector<ValueId> places;
  if (n.has("spacing") && !n.is_none("spacing")) {
    places = n.values("spacing");
    if (places.empty()) spacing = n.exprs("spacing");
  }
  if (spacing.size() == 1) spacing.resize(dims.size(), spacing[0]);
  if (spacing.empty()) spacing.resize(dims.size(), Expr(1));
  Ids out;
  for (size_t i = 0; i < dims.size(); ++i) {
    const ValueId y = places.size() == dims.size() ? uneven_gradient(b, self, dims[i], places[i], order) : even_gradient(b, self, dims[i], spacing[i], order);
    if (!b.status().ok()) return {};
    out.push_back(y);
  }
  return out;
}

// ---- trapezoid

DType integral_dtype(const NodeView& n) {
  return to_float_dtype(n.has("x") ? result_type(n, {"y", "x"}) : n.type("y").dtype);
}

/// Sizes of (left + right) * dx: y's without one sample, broadcast with x's.
Status panel_sizes(InferContext& c, int dim, std::vector<Expr>* out) {
  std::vector<Expr> sizes = c.type("y").sizes;
  Expr& n = sizes[static_cast<size_t>(dim)];
  n = dim_max(n - Expr(1), Expr(0));
  if (c.has("x") && c.type("x").rank() != 1) {
    std::vector<Expr> x = c.type("x").sizes;
    const int64_t from_end = c.type("y").rank() - dim;
    if (static_cast<size_t>(from_end) <= x.size()) {
      Expr& m = x[x.size() - static_cast<size_t>(from_end)];
      if (!dim_is(m, 1)) m = dim_max(m - Expr(1), Expr(0));
    }
    PTERON_TRY(broadcast_exprs(sizes, x, &sizes));
  }
  *out = std::move(sizes);
  return ok_status();
}

Status infer_trapezoid(InferContext& c) {
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), c.type("y").rank()));
  std::vector<Expr> sizes;
  PTERON_TRY(panel_sizes(c, dim, &sizes));
  sizes.erase(sizes.begin() + dim);
  const bool none = dim_is(c.type("y").sizes[static_cast<size_t>(dim)], 0);
  c.add(none ? c.type("y").dtype : integral_dtype(c), std::move(sizes));
  return ok_status();
}
Status infer_cumulative(InferContext& c) {
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), c.type("y").rank()));
  std::vector<Expr> sizes;
  PTERON_TRY(panel_sizes(c, dim, &sizes));
  c.add(integral_dtype(c), std::move(sizes));
  return ok_status();
}

/// x's steps, shaped to multiply y's panels.
ValueId steps_of(Builder& b, const NodeView& n, int dim) {
  const int rank = n.type("y").rank();
  ValueId x = n.value("x");
  const TensorType& type = b.type(x);
  if (type.rank() == 1 || type.rank() < rank) {
    std::vector<Expr> shape(static_cast<size_t>(rank), Expr(1));
    if (type.rank() == 1) {
      shape[static_cast<size_t>(dim)] = type.sizes[0];
    } else {
      std::copy(type.sizes.begin(), type.sizes.end(), shape.end() - type.rank());
    }
    x = b.op("aten::view", {b.op("aten::clone", {x, ir::MemoryFormat::kContiguous}), shape});
  }
  return b.op("aten::sub.Tensor", {part(b, x, dim, 1, 0), part(b, x, dim, 0, -1)});
}

ValueId panels(Builder& b, const NodeView& n, int dim) {
  const ValueId y = n.value("y");
  return b.op("aten::add.Tensor", {part(b, y, dim, 0, -1), part(b, y, dim, 1, 0)});
}

Ids decompose_trapezoid_x(Builder& b, const NodeView& n) {
  const int dim = dim_of(n, "y");
  if (dim_is(n.type("y").sizes[static_cast<size_t>(dim)], 0)) {
    return {b.op("aten::sum.dim_IntList", {n.value("y"), one_dim(dim), b.boolean(false), n.type("y").dtype})};
  }
  const ValueId area = b.op("aten::mul.Tensor", {panels(b, n, dim), steps_of(b, n, dim)});
  return {b.op("aten::div.Scalar", {b.op("aten::sum.dim_IntList", {area, one_dim(dim)}), b.floating(2)})};
}

Ids decompose_trapezoid_dx(Builder& b, const NodeView& n) {
  const int dim = dim_of(n, "y");
  const ValueId y = n.value("y");
  if (dim_is(n.type("y").sizes[static_cast<size_t>(dim)], 0)) {
    return {b.op("aten::sum.dim_IntList", {y, one_dim(dim), b.boolean(false), n.type("y").dtype})};
  }
  const Expr last = n.type("y").sizes[static_cast<size_t>(dim)] - Expr(1);
  const ValueId ends = b.op("aten::add.Tensor", {b.op("aten::select.int", {y, Expr(dim), Expr(0)}), b.op("aten::select.int", {y, Expr(dim), last})});
  const ValueId sum = b.op("aten::sum.dim_IntList", {y, one_dim(dim)});
  const ValueId rest = b.op("aten::sub.Tensor", {sum, b.op("aten::mul.Scalar", {ends, b.floating(0.5)})});
  return {b.op("aten::mul.Scalar", {rest, b.floating(n.number("dx", 1))})};
}

Ids decompose_cumulative_x(Builder& b, const NodeView& n) {
  const int dim = dim_of(n, "y");
  const ValueId area = b.op("aten::mul.Tensor", {steps_of(b, n, dim), panels(b, n, dim)});
  return {b.op("aten::div.Scalar", {b.op("aten::cumsum", {area, Expr(dim)}), b.floating(2)})};
}
Ids decompose_cumulative_dx(Builder& b, const NodeView& n) {
  const int dim = dim_of(n, "y");
  const ValueId area = b.op("aten::mul.Scalar", {panels(b, n, dim), b.floating(n.number("dx", 1) / 2)});
  return {b.op("aten::cumsum", {area, Expr(dim)})};
}

// ---- covariance

Status infer_cov(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() > 2 || is_complex(self.dtype)) return Status(Code::kInvalidInput, str_cat("cov of shape ", shape_text(self.sizes)));
  std::vector<Expr> sizes;
  if (self.rank() == 2 && !dim_is(self.sizes[0], 1)) sizes = {self.sizes[0], self.sizes[0]};
  DType dtype = to_float_dtype(self.dtype);
  if (c.has("aweights") && !c.is_none("aweights")) dtype = to_float_dtype(result_type(c, {"self", "aweights"}));
  c.add(dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_cov(Builder& b, const NodeView& n) {
  Compose m(b);
  const DType dtype = to_float_dtype(n.type("self").dtype);
  ValueId x = cast_to(b, n.value("self"), dtype);
  if (m.rank(x) < 2) x = m.view(b.op("aten::clone", {x, ir::MemoryFormat::kContiguous}), {Expr(1), ir::numel_of(n.type("self").sizes)});
  const Expr count = m.size(x, 1);
  const double correction = n.number("correction", 1);
  ValueId w;
  if (!n.is_none("fweights")) w = cast_to(b, n.value("fweights"), dtype);
  if (!n.is_none("aweights")) w = w.valid() ? m.mul(w, n.value("aweights")) : n.value("aweights");
  const ValueId weighted = w.valid() ? m.mul(x, w) : x;
  const ValueId total = b.op("aten::sum.dim_IntList", {weighted, one_dim(1), b.boolean(true)});
  if (!w.valid()) {
    const ValueId centered = m.sub(x, b.op("aten::div.Scalar", {total, count}));
    const ValueId product = m.mm(centered, m.transpose(centered, 0, 1));
    const Expr factor = dim_max(count - Expr(static_cast<int64_t>(correction)), Expr(0));
    const ValueId cov = b.op("aten::div.Scalar", {product, factor});
    return {dim_is(m.size(x, 0), 1) ? m.view(cov, {}) : cov};
  }
  const ValueId w_sum = b.op("aten::sum.dim_IntList", {w, std::monostate()});
  ValueId norm = b.op("aten::sub.Scalar", {w_sum, b.floating(correction)});
  if (!n.is_none("aweights") && correction != 0) {
    const ValueId spread = b.op("aten::sum.dim_IntList", {m.mul(w, n.value("aweights")), std::monostate()});
    norm = m.sub(w_sum, m.div(m.mul(spread, b.floating(correction)), w_sum));
  }
  norm = b.op("aten::clamp", {norm, b.floating(0)});
  const ValueId centered = m.sub(x, m.div(total, w_sum));
  const ValueId product = m.mm(centered, m.transpose(m.mul(centered, w), 0, 1));
  const ValueId cov = m.div(product, norm);
  return {dim_is(m.size(x, 0), 1) ? m.view(cov, {}) : cov};
}

Ids decompose_corrcoef(Builder& b, const NodeView& n) {
  Compose m(b);
  const ValueId c = b.op("aten::cov", {n.value("self")});
  if (m.rank(c) == 0) return {m.div(c, c)};
  const ValueId deviation = b.op("aten::sqrt", {b.op("aten::diagonal", {c})});
  const ValueId rows = m.div(c, m.unsqueeze(deviation, 1));
  return {b.op("aten::clamp", {m.div(rows, m.unsqueeze(deviation, 0)), b.floating(-1), b.floating(1)})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
     .infer = infer_diff,
     .decompose = decompose_diff},
    {.schema = "aten::gradient.scalarint(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::gradient.array(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]", .infer = infer_gradient, .decompose = decompose_gradient},
    {.schema = "aten::gradient.scalarrayint(Tensor self, *, Scalar[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::gradient.scalarrayarray(Tensor self, *, Scalar[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::gradient.tensorarrayint(Tensor self, *, Tensor[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::gradient.tensorarray(Tensor self, *, Tensor[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
     .infer = infer_gradient,
     .decompose = decompose_gradient},
    {.schema = "aten::trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", .infer = infer_trapezoid, .decompose = decompose_trapezoid_x},
    {.schema = "aten::trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", .infer = infer_trapezoid, .decompose = decompose_trapezoid_dx},
    {.schema = "aten::trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", .infer = infer_trapezoid, .decompose = decompose_trapezoid_x},
    {.schema = "aten::trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor", .infer = infer_trapezoid, .decompose = decompose_trapezoid_dx},
    {.schema = "aten::cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
     .infer = infer_cumulative,
     .decompose = decompose_cumulative_x},
    {.schema = "aten::cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
     .infer = infer_cumulative,
     .decompose = decompose_cumulative_dx},
    {.schema = "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
     .infer = infer_cov,
     .decompose = decompose_cov},
    {.schema = "aten::corrcoef(Tensor self) -> Tensor", .infer = infer_cov, .decompose = decompose_corrcoef},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::calculus
