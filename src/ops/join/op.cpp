// cat, stack and the ops that end in them: hstack, vstack, dstack, column_stack, block_diag, cartesian_prod, combinations.
#include <algorithm>

#include "ops/catalog.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::join {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;
using SizesList = std::vector<std::vector<Expr>>;

/// cat ignores tensors of shape [0] (an old rule of ATen).
bool is_skipped(std::span<const Expr> sizes) { return sizes.size() == 1 && dim_is(sizes[0], 0); }

Result<std::vector<Expr>> cat_sizes(const SizesList& list, int64_t dim) {
  if (list.empty()) return Status(Code::kInvalidInput, "cat of no tensors");
  std::vector<Expr> out = list[0];
  bool first = true;
  Expr total = 0;
  for (const std::vector<Expr>& sizes : list) {
    if (is_skipped(sizes)) continue;
    if (sizes.empty()) return Status(Code::kInvalidInput, "cat of a tensor of rank 0");
    PTERON_ASSIGN(const int at, wrap_dim_of(dim, static_cast<int>(sizes.size())));
    const auto d = static_cast<size_t>(at);
    if (first) out = sizes;
    if (sizes.size() != out.size()) return Status(Code::kInvalidInput, str_cat("cat of shapes ", shape_text(out), " and ", shape_text(sizes)));
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (i == d) continue;
      if (dim_differ(sizes[i], out[i])) return Status(Code::kInvalidInput, str_cat("cat along dim ", d, " of shapes ", shape_text(out), " and ", shape_text(sizes)));
      if (sizes[i].is_const()) out[i] = sizes[i];
    }
    first = false;
    total = total + sizes[d];
    out[d] = total;
  }
  return out;
}

SizesList sizes_of(const NodeView& n) {
  SizesList list;
  for (const ValueId id : n.values("tensors")) list.push_back(n.type(id).sizes);
  return list;
}

/// Channels-last strides for rank 4 and 5; empty otherwise.
std::vector<Expr> channels_last_strides(std::span<const Expr> sizes) {
  if (sizes.size() != 4 && sizes.size() != 5) return {};
  std::vector<Expr> strides(sizes.size(), Expr(1));
  Expr stride = sizes[1];
  for (size_t d = sizes.size() - 1; d >= 2; --d) {
    strides[d] = stride;
    stride = stride * sizes[d];
  }
  strides[0] = stride;
  return strides;
}

bool all_channels_last(const NodeView& n) {
  const Ids ids = n.values("tensors");
  return std::all_of(ids.begin(), ids.end(), [&](ValueId id) {
    const TensorType& type = n.type(id);
    return !ir::is_contiguous(type) && type.strides == channels_last_strides(type.sizes);
  });
}

Status infer_cat(InferContext& c) {
  PTERON_ASSIGN(std::vector<Expr> sizes, cat_sizes(sizes_of(c), c.integer("dim")));
  TensorType type = ir::contiguous_type(result_type(c, {"tensors"}), std::move(sizes));
  if (all_channels_last(c)) type.strides = channels_last_strides(type.sizes);
  c.add(std::move(type));
  return ok_status();
}

Ids decompose_to_cat(Builder& b, const NodeView& n) { return {b.op("aten::cat", {n.values("tensors"), n.expr("dim")})}; }

Status infer_stack(InferContext& c) {
  const SizesList list = sizes_of(c);
  if (list.empty()) return Status(Code::kInvalidInput, "stack of no tensors");
  std::vector<Expr> sizes = list[0];
  for (const std::vector<Expr>& other : list) {
    const bool same = other.size() == sizes.size() && std::equal(other.begin(), other.end(), sizes.begin(), [](Expr a, Expr b) { return !dim_differ(a, b); });
    if (!same) return Status(Code::kInvalidInput, str_cat("stack of shapes ", shape_text(sizes), " and ", shape_text(other)));
  }
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), static_cast<int>(sizes.size()) + 1));
  sizes.insert(sizes.begin() + dim, Expr(static_cast<int64_t>(list.size())));
  c.add(result_type(c, {"tensors"}), std::move(sizes));
  return ok_status();
}

std::vector<Expr> at_least(std::vector<Expr> sizes, int rank) {
  if (sizes.empty()) sizes.assign(1, Expr(1));
  if (sizes.size() == 1 && rank >= 2) sizes.insert(sizes.begin(), Expr(1));
  if (sizes.size() == 2 && rank == 3) sizes.emplace_back(1);
  return sizes;
}

/// What an Xstack op does to its tensors before cat, and the dim of cat.
struct StackRule {
  SizesList sizes;
  int64_t dim = 0;
};

StackRule stack_rule(const NodeView& n) {
  StackRule rule{sizes_of(n), 0};
  const std::string_view name = n.op().schema.name;
  for (std::vector<Expr>& sizes : rule.sizes) {
    if (name == "aten::hstack") sizes = at_least(sizes, 1);
    if (name == "aten::vstack" || name == "aten::row_stack") sizes = at_least(sizes, 2);
    if (name == "aten::dstack") sizes = at_least(sizes, 3);
    if (name == "aten::column_stack" && sizes.size() <= 1) sizes = {sizes.empty() ? Expr(1) : sizes[0], Expr(1)};
  }
  if (name == "aten::hstack") rule.dim = !rule.sizes.empty() && rule.sizes[0].size() == 1 ? 0 : 1;
  if (name == "aten::dstack") rule.dim = 2;
  if (name == "aten::column_stack") rule.dim = 1;
  return rule;
}

Status infer_xstack(InferContext& c) {
  const StackRule rule = stack_rule(c);
  PTERON_ASSIGN(std::vector<Expr> sizes, cat_sizes(rule.sizes, rule.dim));
  c.add(result_type(c, {"tensors"}), std::move(sizes));
  return ok_status();
}

Ids decompose_xstack(Builder& b, const NodeView& n) {
  StackRule rule = stack_rule(n);
  Ids ids = n.values("tensors");
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = view::view_to(b, ids[i], std::move(rule.sizes[i]));
  return {b.op("aten::cat", {std::move(ids), Expr(rule.dim)})};
}

Status infer_block_diag(InferContext& c) {
  Expr rows = 0, columns = 0;
  for (const ValueId id : c.values("tensors")) {
    const std::vector<Expr> sizes = at_least(c.type(id).sizes, 2);
    if (sizes.size() != 2) return Status(Code::kInvalidInput, str_cat("block_diag of a tensor of rank ", sizes.size()));
    rows = rows + sizes[0];
    columns = columns + sizes[1];
  }
  c.add(result_type(c, {"tensors"}), {rows, columns});
  return ok_status();
}

Ids decompose_block_diag(Builder& b, const NodeView& n) {
  Ids ids = n.values("tensors");
  Expr columns = 0;
  for (const ValueId id : ids) columns = columns + at_least(n.type(id).sizes, 2).back();
  Expr left = 0;
  for (ValueId& id : ids) {
    id = view::view_to(b, id, at_least(b.type(id).sizes, 2));
    if (!id.valid()) return {};
    const Expr width = b.type(id).sizes[1];
    id = b.op("aten::constant_pad_nd", {id, std::vector<Expr>{left, columns - left - width}, Expr(0)});
    left = left + width;
  }
  return {b.op("aten::cat", {std::move(ids), Expr(0)})};
}

Status infer_cartesian_prod(InferContext& c) {
  const Ids ids = c.values("tensors");
  if (ids.empty()) return Status(Code::kInvalidInput, "cartesian_prod of no tensors");
  Expr count = 1;
  for (const ValueId id : ids) {
    if (c.type(id).rank() != 1) return Status(Code::kInvalidInput, str_cat("cartesian_prod of a tensor of rank ", c.type(id).rank()));
    count = count * c.type(id).sizes[0];
  }
  std::vector<Expr> sizes{count};
  if (ids.size() > 1) sizes.emplace_back(static_cast<int64_t>(ids.size()));
  c.add(result_type(c, {"tensors"}), std::move(sizes));
  return ok_status();
}

Ids decompose_cartesian_prod(Builder& b, const NodeView& n) {
  Ids ids = n.values("tensors");
  if (ids.size() == 1) return ids;
  ids = b.ops("aten::meshgrid", {ids});
  for (ValueId& id : ids) id = view::view_to(b, id, {ir::numel_of(b.type(id).sizes)});
  return {b.op("aten::stack", {std::move(ids), Expr(1)})};
}

/// Index tuples of combinations of r out of n, row-major. Errors: kUnsupported (too many).
Result<std::vector<int64_t>> combination_indices(int64_t n, int64_t r, bool replace, int64_t* rows) {
  constexpr int64_t kLimit = 1 << 22;
  std::vector<int64_t> out;
  *rows = 0;
  if (r == 0 || n == 0 || (!replace && r > n)) return out;
  if (r > kLimit) return Status(Code::kUnsupported, str_cat("combinations of ", r));
  std::vector<int64_t> pick(static_cast<size_t>(r), 0);
  for (int64_t i = 0; i < r && !replace; ++i) pick[static_cast<size_t>(i)] = i;
  for (;;) {
    out.insert(out.end(), pick.begin(), pick.end());
    ++*rows;
    if (static_cast<int64_t>(out.size()) > kLimit) return Status(Code::kUnsupported, str_cat("more than ", kLimit, " combinations"));
    int64_t at = r - 1;
    const auto last_of = [&](int64_t i) { return replace ? n - 1 : n - r + i; };
    while (at >= 0 && pick[static_cast<size_t>(at)] == last_of(at)) --at;
    if (at < 0) return out;
    ++pick[static_cast<size_t>(at)];
    for (int64_t i = at + 1; i < r; ++i) pick[static_cast<size_t>(i)] = pick[static_cast<size_t>(i - 1)] + (replace ? 0 : 1);
  }
}

Result<std::vector<int64_t>> combinations_of(const NodeView& n, int64_t* rows) {
  const TensorType& self = n.type("self");
  if (self.rank() != 1) return Status(Code::kInvalidInput, str_cat("combinations of a tensor of rank ", self.rank()));
  if (n.integer("r") < 0) return Status(Code::kInvalidInput, str_cat("combinations of ", n.integer("r")));
  if (!self.sizes[0].is_const()) return Status(Code::kUnsupported, str_cat("combinations of a symbolic number of elements ", ir::to_text(self.sizes[0])));
  return combination_indices(self.sizes[0].value(), n.integer("r"), n.boolean("with_replacement"), rows);
}

std::vector<Expr> combination_sizes(const NodeView& n, int64_t rows) {
  if (n.integer("r") == 0) return {Expr(0)};
  return {Expr(rows), n.expr("r")};
}

Status infer_combinations(InferContext& c) {
  int64_t rows = 0;
  PTERON_TRY(combinations_of(c, &rows).status());
  c.add(c.type("self").dtype, combination_sizes(c, rows));
  return ok_status();
}

Ids decompose_combinations(Builder& b, const NodeView& n) {
  int64_t rows = 0;
  auto indices = combinations_of(n, &rows);
  if (!indices.ok()) {
    b.fail(std::move(indices).status());
    return {};
  }
  const auto count = static_cast<int64_t>(indices->size());
  const ValueId index = b.constant(DType::kInt64, {count}, std::as_bytes(std::span<const int64_t>(*indices)), "combinations");
  return {view::view_to(b, b.op("aten::index_select", {n.value("self"), Expr(0), index}), combination_sizes(n, rows))};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor", .infer = infer_cat, .kernel = "aten::cat.out"},
    {.schema = "aten::concat(Tensor[] tensors, int dim=0) -> Tensor", .infer = infer_cat, .decompose = decompose_to_cat},
    {.schema = "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor", .infer = infer_cat, .decompose = decompose_to_cat},
    {.schema = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor", .infer = infer_stack, .kernel = "aten::stack.out"},
    {.schema = "aten::hstack(Tensor[] tensors) -> Tensor", .infer = infer_xstack, .decompose = decompose_xstack},
    {.schema = "aten::vstack(Tensor[] tensors) -> Tensor", .infer = infer_xstack, .decompose = decompose_xstack},
    {.schema = "aten::row_stack(Tensor[] tensors) -> Tensor", .infer = infer_xstack, .decompose = decompose_xstack},
    {.schema = "aten::dstack(Tensor[] tensors) -> Tensor", .infer = infer_xstack, .decompose = decompose_xstack},
    {.schema = "aten::column_stack(Tensor[] tensors) -> Tensor", .infer = infer_xstack, .decompose = decompose_xstack},
    {.schema = "aten::block_diag(Tensor[] tensors) -> Tensor", .infer = infer_block_diag, .decompose = decompose_block_diag},
    {.schema = "aten::cartesian_prod(Tensor[] tensors) -> Tensor", .infer = infer_cartesian_prod, .decompose = decompose_cartesian_prod},
    {.schema = "aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor",
     .infer = infer_combinations,
     .decompose = decompose_combinations},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::join
