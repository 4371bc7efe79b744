// Products of groups of rows, columns or summed elements with one matrix each (mixtures of experts), for the compiler. Runtime half: kernel.cpp.
// transformers::grouped_mm_fallback is what the library of that name registers for dtypes other than bfloat16.
#include "base/str_cat.h"
#include "ops/infer.h"

namespace pteron::ops::grouped_matmul {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_groups(InferContext& c, std::string_view x, std::string_view y, bool has_groups) {
  const TensorType& a = c.type(x);
  const TensorType& b = c.type(y);
  const bool grouped = a.rank() != 3 || b.rank() != 3;
  if (a.rank() < 2 || a.rank() > 3 || b.rank() < 2 || b.rank() > 3 || grouped != has_groups || a.dtype != b.dtype ||
      dim_differ(a.sizes.back(), b.sizes[b.sizes.size() - 2])) {
    return Status(Code::kInvalidInput, str_cat("grouped product of ", dtype_name(a.dtype), shape_text(a.sizes), " and ", dtype_name(b.dtype), shape_text(b.sizes),
                                               has_groups ? " with offsets" : " without offsets"));
  }
  std::vector<Expr> sizes;
  if (a.rank() == b.rank()) sizes.push_back(a.rank() == 3 ? a.sizes[0] : c.type("offs").sizes[0]);
  sizes.push_back(a.sizes[a.sizes.size() - 2]);
  sizes.push_back(b.sizes.back());
  c.add(a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_grouped_mm(InferContext& c) {
  if (!c.is_none("bias")) return Status(Code::kUnsupported, "grouped product with a bias");
  if (c.dtype("out_dtype", c.type("self").dtype) != c.type("self").dtype) return Status(Code::kUnsupported, "grouped product into another dtype");
  return infer_groups(c, "self", "mat2", !c.is_none("offs"));
}
Status infer_fallback(InferContext& c) { return infer_groups(c, "input", "weight", true); }
Status infer_kernel(InferContext& c) { return infer_groups(c, "self", "mat2", true); }

Ids decompose_grouped_mm(Builder& b, const NodeView& n) {
  if (n.is_none("offs")) return {b.op("aten::bmm", {n.value("self"), n.value("mat2")})};
  return {b.op("pteron::grouped_mm", {n.value("self"), n.value("mat2"), n.value("offs")})};
}
Ids decompose_fallback(Builder& b, const NodeView& n) {
  return {b.op("pteron::grouped_mm", {n.value("input"), n.value("weight"), n.value("offs")})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor",
     .infer = infer_grouped_mm,
     .decompose = decompose_grouped_mm},
    {.schema = "transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
     .infer = infer_fallback,
     .decompose = decompose_fallback},
    {.schema = "pteron::grouped_mm(Tensor self, Tensor mat2, Tensor offs) -> Tensor", .infer = infer_kernel, .kernel = "pteron::grouped_mm.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::grouped_matmul
