// argmax, argmin, and max and min along a dim, for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::arg_reduce {
namespace {

using ir::OpDef;

Status infer_arg(InferContext& c) {
  PTERON_TRY(check_not_empty(c, "position of an extreme"));
  return add_reduced(c, DType::kInt64);
}

Status infer_extreme_dim(InferContext& c) {
  PTERON_TRY(check_not_empty(c, "maximum or minimum"));
  return add_reduced(c, {c.type("self").dtype, DType::kInt64});
}

constexpr OpDef kTable[] = {
    {.schema = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", .infer = infer_arg, .kernel = "aten::argmax.out"},
    {.schema = "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", .infer = infer_arg, .kernel = "aten::argmin.out"},
    {.schema = "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_extreme_dim,
     .kernel = "aten::max.dim_max"},
    {.schema = "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     .infer = infer_extreme_dim,
     .kernel = "aten::min.dim_min"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::arg_reduce
