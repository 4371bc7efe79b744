// Checks and scalars read from tensors. Runtime half: kernel.cpp.
#include <string>

#include "base/str_cat.h"
#include "ops/infer.h"

namespace pteron::ops::guard {

namespace {

using ir::Builder;

Status infer_nothing(InferContext&) { return ok_status(); }

/// A symbol that no expression of the program uses yet.
Expr fresh_symbol(InferContext& c, DType dtype) {
  if (is_integral(dtype, false)) return c.exprs().fresh_symbol("u", {});
  const ir::ExprType type = dtype == DType::kBool ? ir::ExprType::kBool : ir::ExprType::kFloat;
  const std::string_view prefix = dtype == DType::kBool ? "b" : "f";
  for (size_t i = c.exprs().symbols().size();; ++i) {
    const std::string name = str_cat(prefix, i);
    bool taken = false;
    for (const Expr& symbol : c.exprs().symbols()) taken = taken || symbol.node()->name == name;
    if (!taken) return c.exprs().symbol(name, type);
  }
}
Status infer_item(InferContext& c) {
  c.add_scalar(fresh_symbol(c, c.type("self").dtype));
  return ok_status();
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::_assert_async(Tensor self) -> ()", .infer = infer_nothing, .kernel = "pteron::_assert_async.out", .flags = ir::kEffect},
    {.schema = "aten::_assert_async.msg(Tensor self, str assert_msg) -> ()",
     .infer = infer_nothing,
     .kernel = "pteron::_assert_async.msg_out",
     .flags = ir::kEffect},
    {.schema = "aten::_assert_scalar(Scalar self, str assert_msg) -> ()",
     .infer = infer_nothing,
     .kernel = "pteron::_assert_scalar.out",
     .flags = ir::kEffect},
    {.schema = "aten::_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, "
               "Device? device=None, Layout? layout=None) -> ()",
     .infer = infer_nothing,
     .flags = ir::kDrop},
    {.schema = "aten::_local_scalar_dense(Tensor self) -> Scalar", .infer = infer_item, .kernel = "aten::_local_scalar_dense"},
    // What they give is a dtype or bool that the exporter has used already.
    {.schema = "aten::can_cast(ScalarType from_, ScalarType to) -> bool", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::item(Tensor self) -> Scalar", .infer = infer_item, .kernel = "aten::_local_scalar_dense"},
    {.schema = "aten::promote_types(ScalarType type1, ScalarType type2) -> ScalarType", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::result_type.Scalar(Tensor tensor, Scalar other) -> ScalarType", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::result_type.Scalar_Scalar(Scalar scalar1, Scalar scalar2) -> ScalarType", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::result_type.Scalar_Tensor(Scalar scalar, Tensor tensor) -> ScalarType", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::result_type.Tensor(Tensor tensor, Tensor other) -> ScalarType", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()", .infer = infer_nothing, .flags = ir::kDrop},
    {.schema = "aten::sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()",
     .infer = infer_nothing,
     .flags = ir::kDrop},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::guard
