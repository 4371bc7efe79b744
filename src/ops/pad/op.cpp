// Padding: constant_pad_nd, reflection_pad1d-3d, replication_pad1d-3d, and the composites pad, _pad_enum and _pad_circular.
#include "ops/catalog.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::pad {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// Sizes after padding; `pads` holds (left, right) pairs from the last dim on.
Result<std::vector<Expr>> padded_sizes(const TensorType& self, const std::vector<Expr>& pads) {
  if (pads.size() % 2 != 0 || pads.size() / 2 > self.sizes.size()) {
    return Status(Code::kInvalidInput, str_cat(pads.size(), " pad widths for a tensor of rank ", self.rank()));
  }
  std::vector<Expr> sizes = self.sizes;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    Expr& size = sizes[sizes.size() - 1 - i];
    size = size + pads[2 * i] + pads[2 * i + 1];
    if (ir::bounds(size).max < 0) return Status(Code::kInvalidInput, str_cat("padding makes a dim of size ", ir::to_text(size)));
  }
  return sizes;
}

Status infer_constant(InferContext& c) {
  const TensorType& self = c.type("self");
  PTERON_ASSIGN(std::vector<Expr> sizes, padded_sizes(self, c.NodeView::exprs("pad")));
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Status infer_mapped(InferContext& c) {  // reflection and replication
  const TensorType& self = c.type("self");
  const std::vector<Expr> pads = c.NodeView::exprs("padding");
  const auto dims = static_cast<int>(pads.size() / 2);
  if (self.rank() != dims + 1 && self.rank() != dims + 2) {
    return Status(Code::kInvalidInput, str_cat("padding of ", dims, " dims for a tensor of rank ", self.rank()));
  }
  PTERON_ASSIGN(std::vector<Expr> sizes, padded_sizes(self, pads));
  if (c.op().schema.name.starts_with("aten::reflection")) {
    for (size_t i = 0; i < pads.size(); ++i) {
      const Expr size = self.sizes[self.sizes.size() - 1 - i / 2];
      if (ir::bounds(pads[i] - size).min >= 0) {
        return Status(Code::kInvalidInput, str_cat("reflection of width ", ir::to_text(pads[i]), " in a dim of size ", ir::to_text(size)));
      }
    }
  }
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

/// Negative widths as slices, then the others. For profiles whose kernel takes no negative ones.
Ids decompose_constant(Builder& b, const NodeView& n) {
  ValueId self = n.value("self");
  std::vector<Expr> pads = n.exprs("pad");
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const Expr left = pads[2 * i], right = pads[2 * i + 1];
    if (!left.is_const() || !right.is_const() || !self.valid()) return {};
    const auto dim = static_cast<int64_t>(b.type(self).sizes.size() - 1 - i);
    const Expr size = b.type(self).sizes[static_cast<size_t>(dim)];
    const Expr from = left.value() < 0 ? -left : Expr(0), to = right.value() < 0 ? size + right : size;
    if (!dim_is(from, 0) || !(to == size)) self = view::slice_to(b, self, dim, from, to);
    pads[2 * i] = dim_max(left, Expr(0));
    pads[2 * i + 1] = dim_max(right, Expr(0));
  }
  return {b.op("aten::constant_pad_nd", {self, std::move(pads), n.arg("value")})};
}

Ids circular(Builder& b, ValueId self, const std::vector<Expr>& pads) {
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    if (!self.valid()) return {};
    const auto dim = static_cast<int64_t>(b.type(self).sizes.size() - 1 - i);
    const Expr size = b.type(self).sizes[static_cast<size_t>(dim)], left = pads[2 * i], right = pads[2 * i + 1];
    if (dim_is(left, 0) && dim_is(right, 0)) continue;
    // Negative widths crop first; the wrapped parts come from what is left.
    const Expr from = ir::bounds(left).max < 0 ? -left : Expr(0), to = ir::bounds(right).max < 0 ? size + right : size;
    const ValueId center = dim_is(from, 0) && to == size ? self : view::slice_to(b, self, dim, from, to);
    const Expr width = to - from;
    Ids parts;
    if (ir::bounds(left).min > 0) parts.push_back(view::slice_to(b, center, dim, width - left, width));
    parts.push_back(center);
    if (ir::bounds(right).min > 0) parts.push_back(view::slice_to(b, center, dim, 0, right));
    self = parts.size() == 1 ? parts[0] : b.op("aten::cat", {std::move(parts), Expr(dim)});
  }
  return {self};
}

Ids decompose_circular(Builder& b, const NodeView& n) { return circular(b, n.value("self"), n.exprs("pad")); }

/// The op and padded dims of reflect and replicate.
Ids mapped(Builder& b, ValueId self, std::vector<Expr> pads, std::string_view family) {
  const size_t dims = pads.size() / 2;
  if (dims < 1 || dims > 3) {
    b.fail(Status(Code::kUnsupported, str_cat(family, " padding of ", dims, " dims")));
    return {};
  }
  const char* const names[2][3] = {{"aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d"},
                                   {"aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d"}};
  return {b.op(names[family == "replicate" ? 1 : 0][dims - 1], {self, std::move(pads)})};
}

Ids padded(Builder& b, const NodeView& n, std::string_view mode) {
  const ValueId self = n.value("self");
  std::vector<Expr> pads = n.exprs("pad");
  if (mode == "constant") return {b.op("aten::constant_pad_nd", {self, std::move(pads), n.expr("value", 0)})};
  if (mode == "circular") return circular(b, self, pads);
  if (mode == "reflect" || mode == "replicate") return mapped(b, self, std::move(pads), mode);
  b.fail(Status(Code::kUnsupported, str_cat("padding mode ", mode)));
  return {};
}

Ids decompose_pad(Builder& b, const NodeView& n) { return padded(b, n, n.text("mode")); }
Ids decompose_pad_enum(Builder& b, const NodeView& n) {
  const char* const modes[] = {"constant", "reflect", "replicate", "circular"};
  const int64_t mode = n.integer("mode");
  return padded(b, n, mode >= 0 && mode < 4 ? modes[mode] : "of unknown number");
}

constexpr OpDef kTable[] = {
    {.schema = "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", .infer = infer_constant, .decompose = decompose_constant, .kernel = "aten::constant_pad_nd.out"},
    {.schema = "aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::reflection_pad1d.out"},
    {.schema = "aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::reflection_pad2d.out"},
    {.schema = "aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::reflection_pad3d.out"},
    {.schema = "aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::replication_pad1d.out"},
    {.schema = "aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::replication_pad2d.out"},
    {.schema = "aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", .infer = infer_mapped, .kernel = "aten::replication_pad3d.out"},
    {.schema = "aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor", .infer = infer_constant, .decompose = decompose_pad},
    {.schema = "aten::_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor", .infer = infer_constant, .decompose = decompose_pad_enum},
    {.schema = "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor", .infer = infer_constant, .decompose = decompose_circular},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::pad
