// Choosing and mixing: clamp, where, masked_fill, addcmul, addcdiv, lerp. Schemas and inference; runtime half: kernel.cpp.
#include "ops/blend/portable.h"
#include "ops/infer.h"

namespace pteron::ops::blend {

namespace {

using ir::Builder;

Status infer_over(InferContext& c, DType dtype, std::initializer_list<std::string_view> names) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, names, &sizes));
  c.add(elementwise_type(c, dtype, std::move(sizes), names));
  return ok_status();
}

Status infer_clamp(InferContext& c) {
  if (c.is_none("min") && c.is_none("max")) return Status(Code::kInvalidInput, "at least one of min and max must not be None");
  return infer_over(c, result_type(c, {"self", "min", "max"}), {"self", "min", "max"});
}
Status infer_clamp_min(InferContext& c) { return infer_over(c, result_type(c, {"self", "min"}), {"self", "min"}); }
Status infer_clamp_max(InferContext& c) { return infer_over(c, result_type(c, {"self", "max"}), {"self", "max"}); }
Status infer_where(InferContext& c) {
  // ATen gives the layout of the condition first.
  return infer_over(c, result_type(c, {"self", "other"}), {"condition", "self", "other"});
}
Status infer_masked_fill(InferContext& c) { return infer_over(c, c.type("self").dtype, {"self", "mask"}); }
Status infer_addc(InferContext& c) { return infer_over(c, result_type(c, {"self", "tensor1", "tensor2"}), {"self", "tensor1", "tensor2"}); }
Status infer_lerp(InferContext& c) { return infer_over(c, c.type("self").dtype, {"self", "end", "weight"}); }

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
     .infer = infer_addc,
     .decompose = portable_addcdiv,
     .kernel = "aten::addcdiv.out", .flags = ir::kInPlace},
    {.schema = "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
     .infer = infer_addc,
     .decompose = portable_addcmul,
     .kernel = "aten::addcmul.out", .flags = ir::kInPlace},
    {.schema = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", .infer = infer_clamp, .kernel = "aten::clamp.out", .flags = ir::kInPlace},
    {.schema = "aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
     .infer = infer_clamp,
     .kernel = "aten::clamp.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::clamp_max(Tensor self, Scalar max) -> Tensor", .infer = infer_clamp_max, .decompose = portable_clamp_limit, .kernel = "aten::clamp_max.out", .flags = ir::kInPlace},
    {.schema = "aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", .infer = infer_clamp_max, .decompose = portable_clamp_limit, .kernel = "aten::clamp_max.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::clamp_min(Tensor self, Scalar min) -> Tensor", .infer = infer_clamp_min, .decompose = portable_clamp_limit, .kernel = "aten::clamp_min.out", .flags = ir::kInPlace},
    {.schema = "aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", .infer = infer_clamp_min, .decompose = portable_clamp_limit, .kernel = "aten::clamp_min.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", .infer = infer_lerp, .decompose = portable_lerp, .kernel = "aten::lerp.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", .infer = infer_lerp, .decompose = portable_lerp, .kernel = "aten::lerp.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
     .infer = infer_masked_fill,
     .kernel = "aten::masked_fill.Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
     .infer = infer_masked_fill,
     .decompose = portable_masked_fill,
     .kernel = "aten::masked_fill.Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", .infer = infer_where, .decompose = portable_where, .kernel = "aten::where.Scalar_out"},
    {.schema = "aten::where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
     .infer = infer_where,
     .decompose = portable_where,
     .kernel = "aten::where.ScalarOther_out"},
    {.schema = "aten::where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
     .infer = infer_where,
     .decompose = portable_where,
     .kernel = "aten::where.ScalarSelf_out"},
    {.schema = "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", .infer = infer_where, .kernel = "aten::where.self_out"},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::blend
