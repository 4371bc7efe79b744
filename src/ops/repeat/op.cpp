// Ops that repeat or reorder whole slices: repeat, tile, repeat_interleave, roll, rot90, flip, fliplr, flipud.
#include <algorithm>

#include "ops/catalog.h"
#include "ops/constant_ints.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::repeat {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_repeat(InferContext& c) {
  const TensorType& self = c.type("self");
  const std::vector<Expr> repeats = c.NodeView::exprs("repeats");
  if (repeats.size() < self.sizes.size()) {
    return Status(Code::kInvalidInput, str_cat("repeat with ", repeats.size(), " counts for a tensor of rank ", self.rank()));
  }
  std::vector<Expr> sizes = repeats;
  const size_t lead = repeats.size() - self.sizes.size();
  for (size_t i = 0; i < self.sizes.size(); ++i) sizes[lead + i] = sizes[lead + i] * self.sizes[i];
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Status infer_tile(InferContext& c) {
  const TensorType& self = c.type("self");
  std::vector<Expr> sizes = c.NodeView::exprs("dims");
  if (sizes.size() < self.sizes.size()) sizes.insert(sizes.begin(), self.sizes.size() - sizes.size(), Expr(1));
  const size_t lead = sizes.size() - self.sizes.size();
  for (size_t i = 0; i < self.sizes.size(); ++i) sizes[lead + i] = sizes[lead + i] * self.sizes[i];
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_tile(Builder& b, const NodeView& n) {
  std::vector<Expr> repeats = n.exprs("dims");
  const size_t rank = n.type("self").sizes.size();
  if (repeats.size() < rank) repeats.insert(repeats.begin(), rank - repeats.size(), Expr(1));
  return {b.op("aten::repeat", {n.value("self"), std::move(repeats)})};
}

/// repeats as numbers if they are constant.
std::optional<Expr> constant_total(const NodeView& n, std::string_view name) {
  const auto numbers = constant_ints(n.graph(), n.value(name));
  if (!numbers) return std::nullopt;
  int64_t total = 0;
  for (const int64_t v : *numbers) total += v;
  return Expr(total);
}

/// Number of results of repeat_interleave.Tensor: given, known from constants, or a new symbol.
Expr interleaved_count(InferContext& c) {
  if (!c.is_none("output_size")) return c.expr("output_size");
  if (const auto total = constant_total(c, "repeats")) return *total;
  return c.exprs().fresh_symbol("u", {0, ir::Range::kMax});
}

Status infer_interleave(InferContext& c) {
  const TensorType& repeats = c.type("repeats");
  if (repeats.rank() != 1 || !is_integral(repeats.dtype, false)) return Status(Code::kInvalidInput, "repeat_interleave: repeats must be integers of rank 1");
  c.add(repeats.dtype, {interleaved_count(c)});
  return ok_status();
}

/// dim None flattens.
Result<size_t> interleave_dim(const NodeView& n, std::vector<Expr>* sizes) {
  *sizes = n.type("self").sizes;
  if (n.is_none("dim")) {
    *sizes = {ir::numel_of(*sizes)};
    return size_t{0};
  }
  PTERON_ASSIGN(const int dim, wrap_dim_of(n.integer("dim"), static_cast<int>(sizes->size())));
  if (sizes->empty()) sizes->assign(1, Expr(1));
  return static_cast<size_t>(dim);
}

Status infer_self_interleave(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_ASSIGN(const size_t dim, interleave_dim(c, &sizes));
  if (c.is_value("repeats")) {
    const auto numbers = constant_ints(c.graph(), c.value("repeats"));
    const bool one = c.type("repeats").sizes.empty() || dim_is(c.type("repeats").sizes[0], 1);
    if (!c.is_none("output_size")) {
      sizes[dim] = c.expr("output_size");
    } else if (numbers && one && !numbers->empty()) {
      sizes[dim] = sizes[dim] * Expr((*numbers)[0]);
    } else {
      sizes[dim] = interleaved_count(c);
    }
  } else {
    sizes[dim] = sizes[dim] * c.expr("repeats");
  }
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

/// One count for all: a new dim behind `dim`, expanded and merged.
ValueId interleave_equally(Builder& b, ValueId self, size_t dim, Expr repeats) {
  const std::vector<Expr> sizes = b.type(self).sizes;
  if (dim >= sizes.size()) return self;
  std::vector<Expr> wide = sizes, merged = sizes;
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(dim) + 1, repeats);
  merged[dim] = merged[dim] * repeats;
  const ValueId column = b.op("aten::unsqueeze", {self, Expr(static_cast<int64_t>(dim) + 1)});
  return b.op("aten::view", {b.op("aten::expand", {column, std::move(wide), b.boolean(false)}), std::move(merged)});
}

Ids decompose_self_interleave(Builder& b, const NodeView& n) {
  std::vector<Expr> sizes;
  auto dim = interleave_dim(n, &sizes);
  if (!dim.ok()) {
    b.fail(std::move(dim).status());
    return {};
  }
  const ValueId self = view::view_to(b, n.value("self"), sizes);
  if (!n.is_value("repeats")) return {interleave_equally(b, self, *dim, n.expr("repeats"))};
  ValueId repeats = n.value("repeats");
  const auto numbers = constant_ints(n.graph(), repeats);
  const bool one = n.type("repeats").sizes.empty() || dim_is(n.type("repeats").sizes[0], 1);
  if (numbers && one && !numbers->empty()) return {interleave_equally(b, self, *dim, (*numbers)[0])};
  if (one) {
    repeats = b.op("aten::expand", {view::view_to(b, repeats, {Expr(1)}), std::vector<Expr>{sizes[*dim]}, b.boolean(false)});
  }
  const ValueId index = b.op("aten::repeat_interleave.Tensor", {repeats, n.arg("output_size")});
  return {b.op("aten::index_select", {self, Expr(static_cast<int64_t>(*dim)), index})};
}

Status infer_self_row_major(InferContext& c) {
  c.add(c.type("self").dtype, c.type("self").sizes);
  return ok_status();
}

Status infer_flip(InferContext& c) {
  for (const int64_t d : c.integers("dims")) PTERON_TRY(wrap_dim_of(d, c.type("self").rank()).status());
  return infer_like_self(c);
}

Ids decompose_fliplr(Builder& b, const NodeView& n) { return {b.op("aten::flip", {n.value("self"), std::vector<Expr>{Expr(1)}})}; }
Ids decompose_flipud(Builder& b, const NodeView& n) { return {b.op("aten::flip", {n.value("self"), std::vector<Expr>{Expr(0)}})}; }

Status rot90_dims(const NodeView& n, int* first, int* second) {
  const std::vector<int64_t> dims = n.integers("dims");
  const int rank = n.type("self").rank();
  if (dims.size() != 2 || rank < 2) return Status(Code::kInvalidInput, "rot90 needs two dims");
  PTERON_ASSIGN(*first, wrap_dim_of(dims[0], rank));
  PTERON_ASSIGN(*second, wrap_dim_of(dims[1], rank));
  if (*first == *second) return Status(Code::kInvalidInput, "rot90 needs two different dims");
  return ok_status();
}

Status infer_rot90(InferContext& c) {
  int first = 0, second = 0;
  PTERON_TRY(rot90_dims(c, &first, &second));
  std::vector<Expr> sizes = c.type("self").sizes;
  if (floor_mod(c.integer("k"), 2) == 1) std::swap(sizes[static_cast<size_t>(first)], sizes[static_cast<size_t>(second)]);
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_rot90(Builder& b, const NodeView& n) {
  int first = 0, second = 0;
  if (Status s = rot90_dims(n, &first, &second); !s.ok()) {
    b.fail(std::move(s));
    return {};
  }
  const int64_t turns = floor_mod(n.integer("k"), 4);
  const ValueId self = n.value("self");
  if (turns == 0) return {self};
  if (turns == 2) return {b.op("aten::flip", {self, std::vector<Expr>{Expr(first), Expr(second)}})};
  const ValueId flipped = b.op("aten::flip", {self, std::vector<Expr>{Expr(turns == 1 ? second : first)}});
  return {b.op("aten::transpose.int", {flipped, Expr(first), Expr(second)})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor", .infer = infer_repeat, .kernel = "aten::repeat.out"},
    {.schema = "aten::tile(Tensor self, SymInt[] dims) -> Tensor", .infer = infer_tile, .decompose = decompose_tile},
    {.schema = "aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
     .infer = infer_interleave,
     .kernel = "aten::repeat_interleave.Tensor_out",
     .flags = ir::kDataDependent},
    {.schema = "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
     .infer = infer_self_interleave,
     .decompose = decompose_self_interleave,
     .flags = ir::kDataDependent},
    {.schema = "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
     .infer = infer_self_interleave,
     .decompose = decompose_self_interleave},
    {.schema = "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", .infer = infer_self_row_major, .kernel = "aten::roll.out"},
    {.schema = "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", .infer = infer_rot90, .decompose = decompose_rot90},
    {.schema = "aten::flip(Tensor self, int[] dims) -> Tensor", .infer = infer_flip, .kernel = "aten::flip.out"},
    {.schema = "aten::fliplr(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_fliplr},
    {.schema = "aten::flipud(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_flipud},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::repeat
