// torchvision's operators of detectors: nms (sizes depend on data), roi_align, roi_pool. Kernels: kernel.cpp.
#include "base/str_cat.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::ops::detection {
namespace {

using ir::OpDef;

Status infer_nms(InferContext& c) {
  const TensorType &boxes = c.type("dets"), &scores = c.type("scores");
  if (boxes.rank() != 2 || scores.rank() != 1 || dim_differ(boxes.sizes[1], Expr(4)) || dim_differ(boxes.sizes[0], scores.sizes[0])) {
    return Status(Code::kInvalidInput, str_cat("nms: boxes ", shape_text(boxes.sizes), " and scores ", shape_text(scores.sizes), ", expected [N,4] and [N]"));
  }
  c.add(DType::kInt64, {c.exprs().fresh_symbol("u", {0, ir::bounds(boxes.sizes[0]).max})});
  return ok_status();
}

Status infer_roi(InferContext& c) {
  const TensorType &input = c.type("input"), &rois = c.type("rois");
  if (input.rank() != 4 || rois.rank() != 2 || dim_differ(rois.sizes[1], Expr(5))) {
    return Status(Code::kInvalidInput, str_cat("roi operators: input ", shape_text(input.sizes), " and boxes ", shape_text(rois.sizes), ", expected [N,C,H,W] and [K,5]"));
  }
  if (input.dtype != rois.dtype) return Status(Code::kInvalidInput, str_cat("roi operators: input of ", dtype_name(input.dtype), " and boxes of ", dtype_name(rois.dtype)));
  const std::vector<Expr> sizes{rois.sizes[0], input.sizes[1], c.expr("pooled_height"), c.expr("pooled_width")};
  c.add(input.dtype, sizes);
  if (c.op().schema.returns.size() == 2) c.add(DType::kInt32, sizes);
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", .infer = infer_nms, .kernel = "torchvision::nms.out", .flags = ir::kDataDependent},
    {.schema = "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
     .infer = infer_roi, .kernel = "torchvision::roi_align.out"},
    {.schema = "torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)", .infer = infer_roi,
     .kernel = "torchvision::roi_pool.out"},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::detection
