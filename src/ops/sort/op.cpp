// sort, argsort, msort, topk, kthvalue, median, nanmedian, mode for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"
#include "ops/sort/portable.h"

namespace pteron::ops::sort {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status check_ordered(const InferContext& c) {
  if (is_complex(c.type("self").dtype)) return Status(Code::kInvalidInput, "complex numbers have no order");
  return c.has("dim") ? wrap_dim_of(c.integer("dim"), c.type("self").rank()).status() : ok_status();
}

TensorType like_self(const InferContext& c, DType dtype) { return elementwise_type(c, dtype, c.type("self").sizes, {"self"}); }

Status infer_sort(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  c.add(like_self(c, c.type("self").dtype));
  c.add(like_self(c, DType::kInt64));
  return ok_status();
}
Status infer_argsort(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  c.add(like_self(c, DType::kInt64));
  return ok_status();
}
Status infer_msort(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  c.add(like_self(c, c.type("self").dtype));
  return ok_status();
}

Status infer_topk(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  std::vector<Expr> sizes = c.type("self").sizes;
  const Expr k = c.expr("k");
  if (!sizes.empty()) {
    PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), c.type("self").rank()));
    Expr& size = sizes[static_cast<size_t>(dim)];
    if (ir::bounds(size - k).max < 0 || ir::bounds(k).max < 0) {
      return Status(Code::kInvalidInput, str_cat("topk of ", ir::to_text(k), " among ", ir::to_text(size)));
    }
    size = k;
  }
  c.add(c.type("self").dtype, sizes);
  c.add(DType::kInt64, sizes);
  return ok_status();
}

Status infer_pick(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  PTERON_TRY(check_not_empty(c, "an ordering"));
  return add_reduced(c, {c.type("self").dtype, DType::kInt64});
}
Status infer_pick_all(InferContext& c) {
  PTERON_TRY(check_ordered(c));
  c.add(c.type("self").dtype, {});
  return ok_status();
}

Ids decompose_argsort(Builder& b, const NodeView& n) {
  const Ids both = b.ops("aten::sort", {n.value("self"), n.expr("dim"), n.arg("descending")});
  return both.size() == 2 ? Ids{both[1]} : Ids{};
}
Ids decompose_argsort_stable(Builder& b, const NodeView& n) {
  const Ids both = b.ops("aten::sort.stable", {n.value("self"), n.arg("stable"), n.expr("dim"), n.arg("descending")});
  return both.size() == 2 ? Ids{both[1]} : Ids{};
}
Ids decompose_msort(Builder& b, const NodeView& n) {
  const Ids both = b.ops("aten::sort", {n.value("self"), Expr(0), b.boolean(false)});
  return both.size() == 2 ? Ids{both[0]} : Ids{};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
     .infer = infer_sort,
     .decompose = portable_sort,
     .kernel = "aten::sort.values"},
    {.schema = "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
     .infer = infer_sort,
     .decompose = portable_sort,
     .kernel = "aten::sort.values_stable"},
    {.schema = "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", .infer = infer_argsort, .decompose = decompose_argsort},
    {.schema = "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
     .infer = infer_argsort,
     .decompose = decompose_argsort_stable,
     .kernel = "aten::argsort.stable_out"},
    {.schema = "aten::msort(Tensor self) -> Tensor", .infer = infer_msort, .decompose = decompose_msort},
    {.schema = "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
     .infer = infer_topk,
     .kernel = "aten::topk.values"},
    {.schema = "aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_pick,
     .decompose = portable_kthvalue,
     .kernel = "aten::kthvalue.values"},
    {.schema = "aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_pick,
     .decompose = portable_median_dim,
     .kernel = "aten::median.dim_values"},
    {.schema = "aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_pick,
     .decompose = portable_median_dim,
     .kernel = "aten::nanmedian.dim_values"},
    {.schema = "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_pick,
     .decompose = portable_mode,
     .kernel = "aten::mode.values"},
    {.schema = "aten::median(Tensor self) -> Tensor", .infer = infer_pick_all, .decompose = portable_median, .kernel = "aten::median.out"},
    {.schema = "aten::nanmedian(Tensor self) -> Tensor", .infer = infer_pick_all, .decompose = portable_nanmedian, .kernel = "aten::nanmedian.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::sort
