// Second names of pointwise operators (rows.inc): each becomes the operator it stands for, so that passes know one name only.
#include <array>
#include <string>

#include "base/str_cat.h"
#include "ops/infer.h"

namespace pteron::ops::alias_names {

namespace {

using ir::Builder;

Status infer_absolute(InferContext& c) {
  c.add(elementwise_type(c, real_dtype(c.type("self").dtype), c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_clip(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "min", "max"}, &sizes));
  c.add(elementwise_type(c, result_type(c, {"self", "min", "max"}), std::move(sizes), {"self", "min", "max"}));
  return ok_status();
}
Status infer_divide_mode(InferContext& c) { return c.is_none("rounding_mode") ? infer_binary_float(c) : infer_binary(c); }
Status infer_polygamma(InferContext& c) {
  c.add(elementwise_type(c, to_float_dtype(c.type("self").dtype), c.type("self").sizes, {"self"}));
  return ok_status();
}

struct Name {
  std::string_view alias;  ///< schema text without "aten::"
  std::string_view real;
};
constexpr auto kNames = std::to_array<Name>({
#define ALIAS(schema, infer, real) {schema, real},
#include "ops/alias_names/rows.inc"
#undef ALIAS
});

std::vector<ValueId> rename(Builder& b, const NodeView& n) {
  const std::string wanted = n.op().name.substr(6) + "(";  // without "aten::"
  for (const Name& name : kNames) {
    if (!name.alias.starts_with(wanted)) continue;
    return {b.op(str_cat("aten::", name.real), {n.args().begin(), n.args().end()})};
  }
  return {};
}

constexpr ir::OpDef kRows[] = {
#define ALIAS(text, inference, real) {.schema = "aten::" text, .infer = inference, .decompose = rename},
#include "ops/alias_names/rows.inc"
#undef ALIAS
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::alias_names
