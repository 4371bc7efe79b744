// Casts, copies and aliases: to, _to_copy, clone, copy, contiguous, detach, ... Runtime half: kernel.cpp.
#include "base/str_cat.h"
#include "ops/infer.h"
#include "ops/layout.h"
#include "tensor/dtype.h"

namespace pteron::ops::cast {

namespace {

using ir::Builder;
using ir::MemoryFormat;

/// The very type of argument 0, strides included.
Status infer_alias(InferContext& c) {
  c.add(c.type(c.op().schema.args[0].name));
  return ok_status();
}

/// self with another dtype in the asked memory format.
Status cast_type(InferContext& c, DType dtype) {
  PTERON_ASSIGN(TensorType type, formatted_type(c, dtype, "self"));
  c.add(std::move(type));
  return ok_status();
}
Status infer_like_format(InferContext& c) { return cast_type(c, c.type("self").dtype); }
/// Errors: kUnsupported (half complex numbers are only moved).
Status infer_to_copy(InferContext& c) {
  const DType from = c.type("self").dtype, to = c.dtype("dtype", from);
  if (from != to && (from == DType::kComplexHalf || to == DType::kComplexHalf)) {
    return Status(Code::kUnsupported, str_cat("no conversion from ", dtype_name(from), " to ", dtype_name(to)));
  }
  return cast_type(c, to);
}
Status infer_to_other(InferContext& c) { return cast_type(c, c.type("other").dtype); }
Status infer_type_as(InferContext& c) {
  c.add(elementwise_type(c, c.type("other").dtype, c.type("self").sizes, {"self"}));
  return ok_status();
}

bool asks_format(const NodeView& n) {
  const auto* format = n.has("memory_format") ? std::get_if<MemoryFormat>(&n.arg("memory_format")) : nullptr;
  return format != nullptr && *format != MemoryFormat::kPreserve;
}

/// The input itself if nothing changes, else _to_copy.
std::vector<ValueId> cast_to(Builder& b, const NodeView& n, DType dtype) {
  const ValueId self = n.value("self");
  const TensorType& type = n.type("self");
  const bool copy = n.has("copy") && n.boolean("copy");
  if (type.dtype == dtype && !copy && !asks_format(n)) return {self};
  const ir::Arg format = n.has("memory_format") ? n.arg("memory_format") : ir::Arg();
  if (type.dtype == dtype) return {b.op("aten::clone", {self, format})};
  return {b.op("aten::_to_copy", {self, dtype, {}, {}, {}, b.boolean(false), format})};
}
std::vector<ValueId> decompose_to(Builder& b, const NodeView& n) { return cast_to(b, n, n.dtype("dtype", n.type("self").dtype)); }
std::vector<ValueId> decompose_to_other(Builder& b, const NodeView& n) { return cast_to(b, n, n.type("other").dtype); }

std::vector<ValueId> decompose_contiguous(Builder& b, const NodeView& n) {
  const auto* format = std::get_if<MemoryFormat>(&n.arg("memory_format"));
  const MemoryFormat wanted = format == nullptr ? MemoryFormat::kContiguous : *format;
  if (wanted == MemoryFormat::kPreserve) return {n.value("self")};
  return {b.op("aten::clone", {n.value("self"), wanted})};
}
std::vector<ValueId> decompose_alias(Builder&, const NodeView& n) { return {n.value(n.op().schema.args[0].name)}; }
std::vector<ValueId> decompose_lift(Builder& b, const NodeView& n) { return {b.op("aten::clone", {n.value("self")})}; }

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
               "bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_to_copy,
     .kernel = "aten::_to_copy.out"},
    {.schema = "aten::alias(Tensor(a) self) -> Tensor(a)", .infer = infer_alias, .decompose = decompose_alias, .flags = ir::kAlias},
    {.schema = "aten::alias_copy(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::alias_copy.out"},
    {.schema = "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", .infer = infer_like_format, .kernel = "aten::clone.out"},
    {.schema = "aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)",
     .infer = infer_like_format,
     .decompose = decompose_contiguous},
    {.schema = "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", .infer = infer_like_self, .kernel = "aten::copy.out"},
    {.schema = "aten::detach(Tensor(a) self) -> Tensor(a)", .infer = infer_alias, .decompose = decompose_alias, .flags = ir::kAlias},
    {.schema = "aten::detach_copy(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::detach_copy.out"},
    {.schema = "aten::lift(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_lift},
    {.schema = "aten::lift_fresh(Tensor(a) self) -> Tensor(a)", .infer = infer_alias, .decompose = decompose_alias, .flags = ir::kAlias},
    {.schema = "aten::lift_fresh_copy(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::lift_fresh_copy.out"},
    {.schema = "aten::to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, "
               "MemoryFormat? memory_format=None) -> Tensor(a)",
     .infer = infer_to_copy,
     .decompose = decompose_to},
    {.schema = "aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
               "MemoryFormat? memory_format=None) -> Tensor(a)",
     .infer = infer_to_copy,
     .decompose = decompose_to},
    {.schema = "aten::to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
               "bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
     .infer = infer_to_copy,
     .decompose = decompose_to},
    {.schema = "aten::to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, "
               "MemoryFormat? memory_format=None) -> Tensor(a)",
     .infer = infer_to_other,
     .decompose = decompose_to_other},
    {.schema = "aten::type_as(Tensor self, Tensor other) -> Tensor", .infer = infer_type_as, .decompose = decompose_to_other},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::cast
