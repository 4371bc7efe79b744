// quantile and nanquantile for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/quantile/portable.h"
#include "ops/reduce_infer.h"

namespace pteron::ops::quantile {
namespace {

using ir::OpDef;

Status infer(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.dtype != DType::kFloat32 && self.dtype != DType::kFloat64) {
    return Status(Code::kInvalidInput, str_cat("quantile of dtype ", dtype_name(self.dtype), ": expected float32 or float64"));
  }
  PTERON_ASSIGN(const uint32_t mask, dims_mask(c, "dim", self.rank()));
  std::vector<Expr> sizes = reduced_exprs(self.sizes, mask, c.boolean("keepdim"));
  if (c.is_value("q") && c.type("q").rank() == 1) sizes.insert(sizes.begin(), c.type("q").sizes[0]);
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "aten::quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor",
     .infer = infer,
     .decompose = portable_quantile,
     .kernel = "aten::quantile.out"},
    {.schema = "aten::quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor",
     .infer = infer,
     .decompose = portable_quantile,
     .kernel = "aten::quantile.scalar_out"},
    {.schema = "aten::nanquantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor",
     .infer = infer,
     .decompose = portable_quantile,
     .kernel = "aten::nanquantile.out"},
    {.schema = "aten::nanquantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor",
     .infer = infer,
     .decompose = portable_quantile,
     .kernel = "aten::nanquantile.scalar_out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::quantile
