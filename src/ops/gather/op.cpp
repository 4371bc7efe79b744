// gather, scatter, scatter_add, scatter_reduce: one index per element along one dim.
#include <algorithm>

#include "base/str_cat.h"
#include "ops/catalog.h"
#include "ops/gather/portable.h"
#include "ops/infer.h"

namespace pteron::ops::gather {
namespace {

using ir::OpDef;

Status infer_gather(InferContext& c) {
  const TensorType& self = c.type("self");
  const TensorType& index = c.type("index");
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), self.rank()));
  const bool empty = std::any_of(index.sizes.begin(), index.sizes.end(), [](Expr e) { return dim_is(e, 0); });
  if (!empty && std::max(self.rank(), 1) != std::max(index.rank(), 1)) {
    return Status(Code::kInvalidInput, str_cat("index of shape ", shape_text(index.sizes), " for a tensor of shape ", shape_text(self.sizes)));
  }
  for (size_t d = 0; !empty && d < index.sizes.size() && d < self.sizes.size(); ++d) {
    if (static_cast<int>(d) != dim && ir::bounds(index.sizes[d] - self.sizes[d]).min > 0) {
      return Status(Code::kInvalidInput, str_cat("index of shape ", shape_text(index.sizes), " is larger than shape ", shape_text(self.sizes)));
    }
  }
  c.add(self.dtype, index.sizes);
  return ok_status();
}

Status infer_scatter(InferContext& c) {
  PTERON_TRY(wrap_dim_of(c.integer("dim"), c.type("self").rank()).status());
  return infer_like_self(c);
}

constexpr OpDef kTable[] = {
    {.schema = "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", .infer = infer_gather, .kernel = "aten::gather.out"},
    {.schema = "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", .infer = infer_scatter, .kernel = "aten::scatter.src_out", .flags = ir::kInPlace},
    {.schema = "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", .infer = infer_scatter, .kernel = "aten::scatter.value_out", .flags = ir::kInPlace},
    {.schema = "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
     .infer = infer_scatter,
     .decompose = portable_scatter_reduce,
     .kernel = "aten::scatter.reduce_out", .flags = ir::kInPlace},
    {.schema = "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
     .infer = infer_scatter,
     .decompose = portable_scatter_reduce,
     .kernel = "aten::scatter.value_reduce_out", .flags = ir::kInPlace},
    {.schema = "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", .infer = infer_scatter, .kernel = "aten::scatter_add.out", .flags = ir::kInPlace},
    {.schema = "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
     .infer = infer_scatter,
     .decompose = portable_scatter_reduce_two,
     .kernel = "aten::scatter_reduce.two_out"},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::gather
