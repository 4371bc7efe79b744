// Schemas and inference of the launches of generated kernels.
#include "backends/cuda/aot/operators.h"

#include "backends/cuda/payload.h"
#include "base/str_cat.h"
#include "ir/builder.h"

namespace pteron::cuda {
namespace {

using ir::InferContext;

Status check_launch(InferContext& c) {
  if (c.exprs("grid").size() != 3) return Status(Code::kInvalidInput, "a launch has three grid sizes");
  if (static_cast<int64_t>(c.values("inputs").size() + c.exprs("values").size()) > kMaxLaunchArguments) {
    return Status(Code::kInvalidInput, str_cat("a launch has at most ", kMaxLaunchArguments, " arguments"));
  }
  return ok_status();
}

Status infer_launch(InferContext& c) {
  PTERON_TRY(check_launch(c));
  c.add(c.dtype("dtype", DType::kFloat32), c.exprs("sizes"));
  return ok_status();
}

Status infer_update(InferContext& c) {
  PTERON_TRY(check_launch(c));
  c.add(c.type("self"));
  return ok_status();
}

constexpr ir::OpDef kRows[] = {
    {.schema = "pteron_cuda::launch(Tensor[] inputs, SymInt[] sizes, SymInt[] values, str kernel, SymInt[] grid, int threads, int shared, ScalarType dtype) -> Tensor",
     .infer = infer_launch, .kernel = "pteron_cuda::launch.out"},
    {.schema = "pteron_cuda::update(Tensor self, Tensor[] inputs, SymInt[] values, str kernel, SymInt[] grid, int threads, int shared) -> Tensor",
     .infer = infer_update, .kernel = "pteron_cuda::update.out", .flags = ir::kInPlace},
};

}  // namespace

std::span<const ir::OpDef> operators() { return kRows; }

}  // namespace pteron::cuda
