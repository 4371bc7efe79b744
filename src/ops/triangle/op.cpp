// Triangles and diagonals: tril, triu, diag, diag_embed, diagflat, fill_diagonal_.
#include "ops/catalog.h"
#include "ops/portable.h"
#include "ops/triangle/portable.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::triangle {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_triangle(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() < 2) return Status(Code::kInvalidInput, str_cat("tril or triu of a tensor of rank ", self.rank()));
  c.add(self.dtype, self.sizes);
  return ok_status();
}

/// Sizes of diag_embed. Errors: kInvalidInput.
Result<std::vector<Expr>> embedded(const std::vector<Expr>& self, int64_t offset, int64_t dim1, int64_t dim2) {
  if (self.empty()) return Status(Code::kInvalidInput, "diag_embed of a tensor of rank 0");
  const int rank = static_cast<int>(self.size()) + 1;
  PTERON_ASSIGN(const int a, wrap_dim_of(dim1, rank));
  PTERON_ASSIGN(const int b, wrap_dim_of(dim2, rank));
  if (a == b) return Status(Code::kInvalidInput, str_cat("diag_embed into dim ", a, " twice"));
  const Expr length = self.back() + Expr(offset < 0 ? -offset : offset);
  std::vector<Expr> sizes(self.begin(), self.end() - 1);
  sizes.insert(sizes.begin() + std::min(a, b), length);
  sizes.insert(sizes.begin() + std::max(a, b), length);
  return sizes;
}

Status infer_diag_embed(InferContext& c) {
  PTERON_ASSIGN(std::vector<Expr> sizes, embedded(c.type("self").sizes, c.integer("offset"), c.integer("dim1"), c.integer("dim2")));
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Status infer_diag(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() == 1) {
    PTERON_ASSIGN(std::vector<Expr> sizes, embedded(self.sizes, c.integer("diagonal"), 0, 1));
    c.add(self.dtype, std::move(sizes));
    return ok_status();
  }
  if (self.rank() != 2) return Status(Code::kInvalidInput, str_cat("diag of a tensor of rank ", self.rank()));
  PTERON_ASSIGN(view::Layout v, view::layout_of(self));
  PTERON_TRY(view::diagonal(v, c.integer("diagonal"), 0, 1));
  c.add(self.dtype, {v.sizes.begin(), v.sizes.end()});
  return ok_status();
}

Ids decompose_diag(Builder& b, const NodeView& n) {
  const bool embeds = n.type("self").rank() == 1;
  return {b.op(embeds ? "aten::diag_embed" : "aten::diagonal", {n.value("self"), n.expr("diagonal"), Expr(0), Expr(1)})};
}

Status infer_diagflat(InferContext& c) {
  PTERON_ASSIGN(std::vector<Expr> sizes, embedded({ir::numel_of(c.type("self").sizes)}, c.integer("offset"), 0, 1));
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_diagflat(Builder& b, const NodeView& n) {
  const ValueId flat = view::view_to(b, n.value("self"), {ir::numel_of(n.type("self").sizes)});
  return {b.op("aten::diag_embed", {flat, n.expr("offset"), Expr(0), Expr(1)})};
}

Status infer_fill_diagonal(InferContext& c) {
  const TensorType self = c.type("self");
  if (self.rank() < 2) return Status(Code::kInvalidInput, str_cat("fill_diagonal_ of a tensor of rank ", self.rank()));
  for (const Expr& size : self.sizes) {
    if (self.rank() > 2 && dim_differ(size, self.sizes[0])) return Status(Code::kInvalidInput, str_cat("fill_diagonal_ of shape ", shape_text(self.sizes)));
  }
  c.add(self);
  return ok_status();
}
/// Where all indices are equal; with wrap, rows of a matrix count from 0 again after each square and one row.
Ids decompose_fill_diagonal(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId self = n.value("self");
  const int rank = f.rank(self);
  if (rank < 2) return {};
  const auto index = [&](int dim) { return f.along(f.arange(f.size(self, dim)), dim, rank); };
  ValueId row = index(0);
  if (n.boolean("wrap") && rank == 2) row = b.op("aten::remainder.Scalar", {row, f.size(self, 1) + Expr(1)});
  ValueId equal = f.compare("eq", row, index(1));
  for (int d = 2; d < rank; ++d) equal = f.both(equal, f.compare("eq", row, index(d)));
  return {b.op("aten::masked_fill.Scalar", {self, equal, n.arg("fill_value")})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor", .infer = infer_triangle, .kernel = "aten::tril.out"},
    {.schema = "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor", .infer = infer_triangle, .decompose = portable_triu, .kernel = "aten::triu.out"},
    {.schema = "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", .infer = infer_diag_embed, .decompose = portable_diag_embed, .kernel = "aten::diag_embed.out"},
    {.schema = "aten::diag(Tensor self, int diagonal=0) -> Tensor", .infer = infer_diag, .decompose = decompose_diag},
    {.schema = "aten::fill_diagonal(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor", .infer = infer_fill_diagonal, .decompose = decompose_fill_diagonal},
    {.schema = "aten::diagflat(Tensor self, int offset=0) -> Tensor", .infer = infer_diagflat, .decompose = decompose_diagflat},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::triangle
