// var, std, var_mean, std_mean for the compiler: every form becomes the one with a correction. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::variance {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status check(const InferContext& c) {
  const DType dtype = c.type("self").dtype;
  if (dtype == DType::kComplexHalf) return Status(Code::kUnsupported, "variance of complex numbers of 16 bits");
  if (is_floating(dtype) || is_complex(dtype)) return ok_status();
  return Status(Code::kInvalidInput, str_cat("variance of dtype ", dtype_name(dtype), ": only floating and complex dtypes have one"));
}
Status infer_one(InferContext& c) {
  PTERON_TRY(check(c));
  return add_reduced(c, real_dtype(c.type("self").dtype));
}
Status infer_two(InferContext& c) {
  PTERON_TRY(check(c));
  return add_reduced(c, {real_dtype(c.type("self").dtype), c.type("self").dtype});
}

/// The correction form of an op that has `unbiased`.
Ids to_correction(Builder& b, const NodeView& n) {
  const std::string name = n.op().schema.name + ".correction";
  const Arg dim = n.has("dim") ? n.arg("dim") : Arg(std::monostate());
  const bool keepdim = n.has("keepdim") && n.boolean("keepdim");
  return b.ops(name, {n.value("self"), dim, Expr(n.boolean("unbiased") ? 1 : 0), b.boolean(keepdim)});
}

/// For profiles without the kernels: the standard deviation is the root of the variance.
Ids decompose_std(Builder& b, const NodeView& n) {
  const ValueId var = b.op("aten::var.correction", {n.value("self"), n.arg("dim"), n.arg("correction"), n.arg("keepdim")});
  return {b.op("aten::sqrt", {var})};
}
Ids decompose_std_mean(Builder& b, const NodeView& n) {
  Ids both = b.ops("aten::var_mean.correction", {n.value("self"), n.arg("dim"), n.arg("correction"), n.arg("keepdim")});
  if (both.size() == 2) both[0] = b.op("aten::sqrt", {both[0]});
  return both;
}

constexpr OpDef kTable[] = {
    {.schema = "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
     .infer = infer_one,
     .kernel = "aten::var.correction_out"},
    {.schema = "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
     .infer = infer_one,
     .decompose = to_correction},
    {.schema = "aten::var(Tensor self, bool unbiased=True) -> Tensor", .infer = infer_one, .decompose = to_correction},
    {.schema = "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
     .infer = infer_one,
     .decompose = decompose_std,
     .kernel = "aten::std.correction_out"},
    {.schema = "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
     .infer = infer_one,
     .decompose = to_correction},
    {.schema = "aten::std(Tensor self, bool unbiased=True) -> Tensor", .infer = infer_one, .decompose = to_correction},
    {.schema = "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
     .infer = infer_two,
     .kernel = "aten::var_mean.correction_out"},
    {.schema = "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
     .infer = infer_two,
     .decompose = to_correction},
    {.schema = "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", .infer = infer_two, .decompose = to_correction},
    {.schema = "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
     .infer = infer_two,
     .decompose = decompose_std_mean,
     .kernel = "aten::std_mean.correction_out"},
    {.schema = "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
     .infer = infer_two,
     .decompose = to_correction},
    {.schema = "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", .infer = infer_two, .decompose = to_correction},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::variance
