// Comparisons and logical operators: schemas, inference, isclose. Runtime half: kernel.cpp; rows shared by both: rows.inc.
#include "ops/infer.h"

namespace pteron::ops::compare {

namespace {

using ir::Builder;

/// ATen's isclose: equal, or (both NaN if equal_nan), or |self - other| <= atol + |rtol * other| with a finite left side.
std::vector<ValueId> decompose_isclose(Builder& b, const NodeView& n) {
  const ValueId self = n.value("self"), other = n.value("other");
  const double rtol = n.number("rtol"), atol = n.number("atol");
  const DType dtype = n.type("self").dtype;
  const bool floats = is_floating(dtype) || is_complex(dtype);
  ValueId close = b.op("aten::eq.Tensor", {self, other});
  if (n.boolean("equal_nan") && floats) {
    const ValueId both = b.op("aten::logical_and", {b.op("aten::ne.Tensor", {self, self}), b.op("aten::ne.Tensor", {other, other})});
    close = b.op("aten::logical_or", {close, both});
  }
  if (rtol == 0 && atol == 0) return {close};
  ValueId left = self, right = other;
  if (dtype == DType::kBool) {
    // Differences of bools do not exist; ATen takes them as int64.
    left = b.op("aten::_to_copy", {self, DType::kInt64});
    right = b.op("aten::_to_copy", {other, DType::kInt64});
  }
  const ValueId scaled = b.op("aten::abs", {b.op("aten::mul.Scalar", {right, b.floating(rtol)})});
  const ValueId allowed = b.op("aten::add.Scalar", {scaled, b.floating(atol)});
  const ValueId actual = b.op("aten::abs", {b.op("aten::sub.Tensor", {left, right})});
  const ValueId inside = b.op("aten::le.Tensor", {actual, allowed});
  const ValueId finite = b.op("aten::isfinite", {actual});
  return {b.op("aten::logical_or", {close, b.op("aten::logical_and", {finite, inside})})};
}

constexpr ir::OpDef kRows[] = {
#define COMPARE(name, f)                                                                                                                      \
  {.schema = "aten::" #name ".Tensor(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_bool, .kernel = "aten::" #name ".Tensor_out"}, \
  {.schema = "aten::" #name ".Scalar(Tensor self, Scalar other) -> Tensor", .infer = infer_binary_bool, .kernel = "aten::" #name ".Scalar_out"},
#define LOGICAL(name, f) \
  {.schema = "aten::" #name "(Tensor self, Tensor other) -> Tensor", .infer = infer_binary_bool, .kernel = "aten::" #name ".out"},
#include "ops/compare/rows.inc"
#undef COMPARE
#undef LOGICAL
    {.schema = "aten::isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
     .infer = infer_binary_bool,
     .decompose = decompose_isclose},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::compare
