// cumsum, cumprod, cummax, cummin, logcumsumexp for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"
#include "ops/scan/portable.h"

namespace pteron::ops::scan {
namespace {

using ir::OpDef;

/// Running results keep self's sizes and dense layout.
Status add_like(InferContext& c, DType dtype) {
  PTERON_TRY(wrap_dim_of(c.integer("dim"), c.type("self").rank()).status());
  c.add(elementwise_type(c, dtype, c.type("self").sizes, {"self"}));
  return ok_status();
}

Status infer_sum(InferContext& c) {
  const DType in = c.type("self").dtype;
  return add_like(c, c.dtype("dtype", is_integral(in, true) ? DType::kInt64 : in));
}
Status infer_extreme(InferContext& c) {
  const TensorType self = c.type("self");
  if (is_complex(self.dtype)) return Status(Code::kInvalidInput, "complex numbers have no order");
  if (ir::dim_is(ir::numel_of(self.sizes), 0)) {  // PyTorch takes any dim then
    c.add(self.dtype, self.sizes);
    c.add(DType::kInt64, self.sizes);
    return ok_status();
  }
  PTERON_TRY(add_like(c, c.type("self").dtype));
  return add_like(c, DType::kInt64);
}
Status infer_logcumsumexp(InferContext& c) {
  const DType in = c.type("self").dtype;
  if (!is_floating(in)) return Status(is_complex(in) ? Code::kUnsupported : Code::kInvalidInput, str_cat("logcumsumexp of dtype ", dtype_name(in)));
  return add_like(c, in);
}

constexpr OpDef kTable[] = {
    {.schema = "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", .infer = infer_sum, .kernel = "aten::cumsum.out"},
    {.schema = "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", .infer = infer_sum, .decompose = portable_cumprod, .kernel = "aten::cumprod.out"},
    {.schema = "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", .infer = infer_extreme, .decompose = portable_cummax, .kernel = "aten::cummax.out"},
    {.schema = "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", .infer = infer_extreme, .decompose = portable_cummin, .kernel = "aten::cummin.out"},
    {.schema = "aten::logcumsumexp(Tensor self, int dim) -> Tensor", .infer = infer_logcumsumexp, .decompose = portable_logcumsumexp, .kernel = "aten::logcumsumexp.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::scan
