// Ops whose result sizes depend on data: nonzero and its forms, masked_select; and what is made of masks: masked_scatter, one_hot.
#include "ops/catalog.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::nonzero {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// A new symbol for a count of elements of a tensor of these sizes.
Expr count_of(InferContext& c, const std::vector<Expr>& sizes) { return c.exprs().fresh_symbol("u", {0, ir::bounds(ir::numel_of(sizes)).max}); }

Status infer_nonzero(InferContext& c) {
  const TensorType& self = c.type("self");
  c.add(DType::kInt64, {count_of(c, self.sizes), Expr(self.rank())});
  return ok_status();
}

Ids decompose_argwhere(Builder& b, const NodeView& n) { return {b.op("aten::nonzero", {n.value("self")})}; }

Status infer_nonzero_static(InferContext& c) {
  c.add(DType::kInt64, {c.expr("size"), Expr(c.type("self").rank())});
  return ok_status();
}

/// One index vector per dim (a tensor of rank 0 counts as rank 1).
Status infer_nonzero_numpy(InferContext& c) {
  const TensorType& self = c.type(view::first_value(c));
  const Expr count = count_of(c, self.sizes);
  for (int d = 0; d < std::max(self.rank(), 1); ++d) c.add(DType::kInt64, {count});
  return ok_status();
}

Ids decompose_nonzero_numpy(Builder& b, const NodeView& n) {
  ValueId self = view::first_value(n);
  if (n.type(self).rank() == 0) self = b.op("aten::unsqueeze", {self, Expr(0)});
  const ValueId rows = b.op("aten::nonzero", {self});
  Ids ids;
  for (int d = 0; d < b.type(self).rank(); ++d) ids.push_back(b.op("aten::select.int", {rows, Expr(1), Expr(d)}));
  return ids;
}

Status infer_masked_select(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "mask"}, &sizes));
  c.add(c.type("self").dtype, {count_of(c, sizes)});
  return ok_status();
}

Status infer_masked_scatter(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "mask"}, &sizes));
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Status infer_one_hot(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  const Expr classes = c.expr("num_classes");
  sizes.push_back(classes.is_const() && classes.value() < 0 ? c.exprs().fresh_symbol("u", {0, ir::Range::kMax}) : classes);
  c.add(DType::kInt64, std::move(sizes));
  return ok_status();
}

Ids decompose_one_hot(Builder& b, const NodeView& n) {
  const Expr classes = n.expr("num_classes");
  if (classes.is_const() && classes.value() < 0) {
    b.fail(Status(Code::kUnsupported, "one_hot without num_classes"));
    return {};
  }
  const ValueId range = b.op("aten::arange.start_step", {Expr(0), classes, Expr(1), DType::kInt64});
  const ValueId column = b.op("aten::unsqueeze", {n.value("self"), Expr(n.type("self").rank())});
  return {b.op("aten::_to_copy", {b.op("aten::eq.Tensor", {column, range}), DType::kInt64})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::nonzero(Tensor self) -> Tensor", .infer = infer_nonzero, .kernel = "aten::nonzero.out", .flags = ir::kDataDependent},
    {.schema = "aten::argwhere(Tensor self) -> Tensor", .infer = infer_nonzero, .decompose = decompose_argwhere, .flags = ir::kDataDependent},
    {.schema = "aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor",
     .infer = infer_nonzero_static,
     .kernel = "aten::nonzero_static.out"},
    {.schema = "aten::nonzero_numpy(Tensor self) -> Tensor[]", .infer = infer_nonzero_numpy, .decompose = decompose_nonzero_numpy, .flags = ir::kDataDependent},
    {.schema = "aten::where(Tensor condition) -> Tensor[]", .infer = infer_nonzero_numpy, .decompose = decompose_nonzero_numpy, .flags = ir::kDataDependent},
    {.schema = "aten::masked_select(Tensor self, Tensor mask) -> Tensor",
     .infer = infer_masked_select,
     .kernel = "aten::masked_select.out",
     .flags = ir::kDataDependent},
    {.schema = "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", .infer = infer_masked_scatter, .kernel = "aten::masked_scatter.out", .flags = ir::kInPlace},
    {.schema = "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", .infer = infer_one_hot, .decompose = decompose_one_hot},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::nonzero
