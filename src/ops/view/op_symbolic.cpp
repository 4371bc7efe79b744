// Symbolic halves of the view rules: negative indexes, layouts of types, and the bodies behind symbolic.h.
#include "ops/view/symbolic.h"

namespace pteron::ops::view {

template <>
Expr wrapped(Expr index, Expr size) {
  if (index.is_const()) return index.value() < 0 ? index + size : index;
  const ir::Range r = ir::bounds(index);
  if (r.min >= 0) return index;
  if (r.max < 0) return index + size;
  ir::ExprContext& exprs = *index.node()->context;
  const Expr compared[] = {index, Expr(0)};
  const Expr choice[] = {exprs.make(ir::ExprOp::kLt, compared), index + size, index};
  return exprs.make(ir::ExprOp::kIte, choice);
}

Result<Layout> layout_of(const TensorType& type) {
  if (type.rank() > kMaxRank) return Status(Code::kUnsupported, str_cat("rank ", type.rank(), ", the limit is ", kMaxRank));
  Layout v;
  v.sizes = RankList<Expr>(std::span<const Expr>(type.sizes));
  v.strides = RankList<Expr>(std::span<const Expr>(type.strides));
  return v;
}

TensorType type_of(const Layout& v, DType dtype, Device device) {
  TensorType type;
  type.dtype = dtype;
  type.sizes.assign(v.sizes.begin(), v.sizes.end());
  type.strides.assign(v.strides.begin(), v.strides.end());
  type.device = device;
  return type;
}

ValueId first_value(const NodeView& node) {
  const auto* id = std::get_if<ValueId>(&node.args()[0]);
  return id == nullptr ? ValueId{} : *id;
}

Result<Layout> shaped(const NodeView& node, size_t result, Shaper fn) {
  PTERON_ASSIGN(Layout v, layout_of(node.type(first_value(node))));
  bool aliases = true;
  PTERON_TRY(fn(node, result, v, &aliases));
  return v;
}

bool run_view(const NodeView& node, const ir::ViewLayout& input, size_t result, ir::ViewLayout* out, Shaper fn) {
  if (input.sizes.size() > kMaxRank) return false;
  Layout v;
  v.sizes = RankList<Expr>(std::span<const Expr>(input.sizes));
  v.strides = RankList<Expr>(std::span<const Expr>(input.strides));
  v.offset = input.offset;
  bool aliases = true;
  if (!fn(node, result, v, &aliases).ok() || !aliases) return false;
  out->sizes.assign(v.sizes.begin(), v.sizes.end());
  out->strides.assign(v.strides.begin(), v.strides.end());
  out->offset = v.offset;
  return true;
}

Status run_infer(InferContext& c, size_t count, Shaper fn, bool row_major_results) {
  const TensorType self = c.type(first_value(c));
  for (size_t i = 0; i < count; ++i) {
    PTERON_ASSIGN(Layout v, shaped(c, i, fn));
    if (row_major_results) v.strides = row_major<Expr>(v.sizes);
    c.add(type_of(v, self.dtype, self.device));
  }
  return ok_status();
}

std::optional<Expr> optional_expr(const NodeView& node, std::string_view name) {
  if (node.is_none(name)) return std::nullopt;
  return node.expr(name);
}

std::vector<Expr> expr_list(std::span<const int64_t> ints) { return {ints.begin(), ints.end()}; }

ValueId view_to(ir::Builder& b, ValueId self, std::vector<Expr> sizes) {
  if (b.type(self).sizes == sizes) return self;
  return b.op("aten::view", {self, std::move(sizes)});
}

ValueId permute_to(ir::Builder& b, ValueId self, const std::vector<int64_t>& dims) {
  bool moves = false;
  for (size_t i = 0; i < dims.size(); ++i) moves = moves || dims[i] != static_cast<int64_t>(i);
  if (!moves) return self;
  return b.op("aten::permute", {self, expr_list(dims)});
}

ValueId slice_to(ir::Builder& b, ValueId self, int64_t dim, Expr start, Expr end) {
  return b.op("aten::slice.Tensor", {self, Expr(dim), start, end, Expr(1)});
}

std::vector<ValueId> decompose_copy(ir::Builder& b, const NodeView& node) {
  std::string name = node.op().name;
  const size_t at = name.find("_copy");
  if (at == std::string::npos) return {};
  name.erase(at, 5);
  return b.ops(name, {node.args().begin(), node.args().end()});
}

std::vector<ValueId> view_of_shaped(ir::Builder& b, const NodeView& node, Shaper fn) {
  auto v = shaped(node, 0, fn);
  if (!v.ok()) {
    b.fail(std::move(v).status());
    return {};
  }
  return {view_to(b, first_value(node), {v->sizes.begin(), v->sizes.end()})};
}

}  // namespace pteron::ops::view
