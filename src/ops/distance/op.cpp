// cdist, pdist, cross for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::distance {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_cdist(InferContext& c) {
  const TensorType& a = c.type("x1");
  const TensorType& b = c.type("x2");
  if (a.rank() < 2 || b.rank() < 2 || dim_differ(a.sizes.back(), b.sizes.back()) || c.number("p", 2) < 0 || !is_floating(a.dtype)) {
    return Status(Code::kInvalidInput, str_cat("cdist of shapes ", shape_text(a.sizes), " and ", shape_text(b.sizes), ", dtype ", dtype_name(a.dtype)));
  }
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_exprs(std::span(a.sizes).first(a.sizes.size() - 2), std::span(b.sizes).first(b.sizes.size() - 2), &sizes));
  sizes.push_back(a.sizes[a.sizes.size() - 2]);
  sizes.push_back(b.sizes[b.sizes.size() - 2]);
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_pdist(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() != 2 || !is_floating(self.dtype) || c.number("p", 2) < 0) {
    return Status(Code::kInvalidInput, str_cat("pdist of shape ", shape_text(self.sizes), " and dtype ", dtype_name(self.dtype)));
  }
  const Expr n = self.sizes[0];
  c.add(self.dtype, {floor_div(n * (n - Expr(1)), Expr(2))});
  return ok_status();
}

/// The given dim, or the first of size 3.
Result<int> cross_dim(const NodeView& n) {
  const TensorType& self = n.type("self");
  if (!n.is_none("dim")) return wrap_dim_of(n.integer("dim"), self.rank());
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (dim_is(self.sizes[d], 3)) return static_cast<int>(d);
  }
  return Status(Code::kInvalidInput, str_cat("cross: no dim of size 3 in ", shape_text(self.sizes)));
}

Status infer_cross(InferContext& c) {
  const TensorType& self = c.type("self");
  const TensorType& other = c.type("other");
  PTERON_ASSIGN(const int dim, cross_dim(c));
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "other"}, &sizes));
  if (self.rank() == 0 || self.rank() != other.rank() || dim_differ(self.sizes[static_cast<size_t>(dim)], 3) || dim_differ(other.sizes[static_cast<size_t>(dim)], 3)) {
    return Status(Code::kInvalidInput, str_cat("cross of shapes ", shape_text(self.sizes), " and ", shape_text(other.sizes), " along dim ", dim));
  }
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_cdist(Builder& b, const NodeView& n) {
  return {b.op("aten::_cdist_forward", {n.value("x1"), n.value("x2"), n.expr("p"), n.arg("compute_mode")})};
}
Ids decompose_pdist(Builder& b, const NodeView& n) { return {b.op("aten::_pdist_forward", {n.value("self"), n.expr("p")})}; }
Ids decompose_cross(Builder& b, const NodeView& n) {
  auto dim = cross_dim(n);
  if (!dim.ok()) return {};
  return {b.op("aten::linalg_cross", {n.value("self"), n.value("other"), Expr(*dim)})};
}

/// For profiles without the kernel: products of the components, taken cyclically.
Ids decompose_linalg_cross(Builder& b, const NodeView& n) {
  auto dim = cross_dim(n);
  if (!dim.ok()) return {};
  const auto pick = [&](std::string_view name, int k) { return b.op("aten::select.int", {n.value(name), Expr(*dim), Expr(k)}); };
  std::vector<ValueId> parts;
  for (int k = 0; k < 3; ++k) {
    const int i = (k + 1) % 3, j = (k + 2) % 3;
    parts.push_back(b.op("aten::sub.Tensor", {b.op("aten::mul.Tensor", {pick("self", i), pick("other", j)}),
                                              b.op("aten::mul.Tensor", {pick("self", j), pick("other", i)})}));
  }
  return {b.op("aten::stack", {parts, Expr(*dim)})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", .infer = infer_cdist, .kernel = "aten::_cdist_forward.out"},
    {.schema = "aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor", .infer = infer_cdist, .decompose = decompose_cdist},
    {.schema = "aten::_pdist_forward(Tensor self, float p=2.) -> Tensor", .infer = infer_pdist, .kernel = "aten::_pdist_forward.out"},
    {.schema = "aten::pdist(Tensor self, float p=2.) -> Tensor", .infer = infer_pdist, .decompose = decompose_pdist},
    {.schema = "aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
     .infer = infer_cross,
     .decompose = decompose_linalg_cross,
     .kernel = "aten::linalg_cross.out"},
    {.schema = "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor", .infer = infer_cross, .decompose = decompose_cross},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::distance
