// Advanced indexing and indexing along one dim: index, index_put and their _unsafe forms, index_select, index_add, index_copy, index_fill,
// index_reduce, take, put, take_along_dim.
#include <algorithm>

#include "ops/catalog.h"
#include "ops/index/portable.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::index {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

bool is_mask(DType d) { return d == DType::kBool || d == DType::kUInt8; }

/// Sizes of self[indices] by ATen's rules; masks give a new symbol.
Result<std::vector<Expr>> indexed_sizes(InferContext& c) {
  const TensorType& self = c.type("self");
  std::vector<Expr> positions, rest;  // index dims; dims of self that stay
  size_t dim = 0, first = 0;
  int groups = 0;  // runs of indexed dims
  bool in_group = false;
  std::optional<Expr> count;
  for (const ValueId id : c.values("indices")) {
    const bool given = id.valid() && c.graph()[id].kind == ir::ValueKind::kTensor;
    const size_t covered = given && is_mask(c.type(id).dtype) ? c.type(id).sizes.size() : 1;
    if (dim + covered > self.sizes.size()) {
      return Status(Code::kInvalidInput, str_cat("too many indices for a tensor of rank ", self.rank()));
    }
    if (!given) {
      rest.push_back(self.sizes[dim++]);
      in_group = false;
      continue;
    }
    const TensorType& type = c.type(id);
    if (!is_mask(type.dtype) && !is_integral(type.dtype, false)) {
      return Status(Code::kInvalidInput, str_cat("tensors used as indices must be integers or masks, found ", dtype_name(type.dtype)));
    }
    if (is_mask(type.dtype)) {
      for (size_t i = 0; i < covered; ++i) {
        if (dim_differ(type.sizes[i], self.sizes[dim + i])) {
          return Status(Code::kInvalidInput, str_cat("mask of shape ", shape_text(type.sizes), " does not match shape ", shape_text(self.sizes), " at dim ", dim));
        }
      }
      if (!count) count = c.exprs().fresh_symbol("u", {0, ir::bounds(ir::numel_of(type.sizes)).max});
      PTERON_TRY(broadcast_exprs(positions, std::vector<Expr>{*count}, &positions));
    } else {
      PTERON_TRY(broadcast_exprs(positions, type.sizes, &positions));
    }
    if (!in_group && groups++ == 0) first = dim;
    in_group = true;
    dim += covered;
  }
  rest.insert(rest.end(), self.sizes.begin() + static_cast<std::ptrdiff_t>(dim), self.sizes.end());
  if (groups == 0) return Status(Code::kInvalidInput, "index without indices");
  rest.insert(groups == 1 ? rest.begin() + static_cast<std::ptrdiff_t>(first) : rest.begin(), positions.begin(), positions.end());
  return rest;
}

Status infer_index(InferContext& c) {
  PTERON_ASSIGN(std::vector<Expr> sizes, indexed_sizes(c));
  c.add(c.type("self").dtype, std::move(sizes));
  return ok_status();
}

Ids decompose_unsafe_index(Builder& b, const NodeView& n) { return {b.op("aten::index.Tensor", {n.value("self"), n.values("indices")})}; }
Ids decompose_unsafe_index_put(Builder& b, const NodeView& n) {
  return {b.op("aten::index_put", {n.value("self"), n.values("indices"), n.value("values"), n.arg("accumulate")})};
}

/// Indices clamped into self's dims; `lowest` 0 or -1 (counted in dim sizes).
Ids clamped_indices(Builder& b, const NodeView& n, int64_t lowest) {
  Ids ids = n.values("indices");
  const std::vector<Expr> sizes = n.type("self").sizes;
  for (size_t d = 0; d < ids.size() && d < sizes.size(); ++d) {
    if (ids[d].valid()) ids[d] = b.op("aten::clamp", {ids[d], sizes[d] * Expr(lowest), sizes[d] - Expr(1)});
  }
  return ids;
}

Ids decompose_masked_index(Builder& b, const NodeView& n) {
  const ValueId taken = b.op("aten::index.Tensor", {n.value("self"), clamped_indices(b, n, 0)});
  return {b.op("aten::masked_fill.Scalar", {taken, b.op("aten::logical_not", {n.value("mask")}), n.expr("fill")})};
}

Ids decompose_masked_index_put(Builder& b, const NodeView& n) {
  const ValueId values = b.op("aten::masked_fill.Scalar", {n.value("values"), b.op("aten::logical_not", {n.value("mask")}), Expr(0)});
  return {b.op("aten::index_put", {n.value("self"), clamped_indices(b, n, -1), values, b.boolean(true)})};
}

Status infer_index_select(InferContext& c) {
  const TensorType& self = c.type("self");
  const TensorType& index = c.type("index");
  if (index.rank() > 1) return Status(Code::kInvalidInput, str_cat("index of rank ", index.rank(), ", expected 0 or 1"));
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), self.rank()));
  std::vector<Expr> sizes = self.sizes;
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.sizes.empty() ? Expr(1) : index.sizes[0];
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Status infer_along_dim(InferContext& c) {
  PTERON_TRY(wrap_dim_of(c.integer("dim"), c.type("self").rank()).status());
  return infer_like_self(c);
}

Status infer_take(InferContext& c) {
  c.add(c.type("self").dtype, c.type("index").sizes);
  return ok_status();
}

/// self and indices broadcast against each other in all dims but `dim`.
Status along_dim_sizes(const NodeView& n, int* dim, std::vector<Expr>* self, std::vector<Expr>* indices) {
  *self = n.type("self").sizes;
  *indices = n.type("indices").sizes;
  if (self->size() != indices->size()) {
    return Status(Code::kInvalidInput, str_cat("take_along_dim of shapes ", shape_text(*self), " and ", shape_text(*indices)));
  }
  PTERON_ASSIGN(*dim, wrap_dim_of(n.integer("dim"), static_cast<int>(self->size())));
  for (size_t d = 0; d < self->size(); ++d) {
    if (static_cast<int>(d) == *dim) continue;
    std::vector<Expr> both;
    PTERON_TRY(broadcast_exprs(std::vector<Expr>{(*self)[d]}, std::vector<Expr>{(*indices)[d]}, &both));
    (*self)[d] = (*indices)[d] = both[0];
  }
  return ok_status();
}

Status infer_take_along_dim(InferContext& c) {
  if (c.is_none("dim")) {
    c.add(c.type("self").dtype, {ir::numel_of(c.type("indices").sizes)});
    return ok_status();
  }
  int dim = 0;
  std::vector<Expr> self, indices;
  PTERON_TRY(along_dim_sizes(c, &dim, &self, &indices));
  c.add(c.type("self").dtype, std::move(indices));
  return ok_status();
}

Ids decompose_take_along_dim(Builder& b, const NodeView& n) {
  ValueId self = n.value("self"), indices = n.value("indices");
  int dim = 0;
  if (n.is_none("dim")) {
    self = view::view_to(b, self, {ir::numel_of(n.type("self").sizes)});
    indices = view::view_to(b, indices, {ir::numel_of(n.type("indices").sizes)});
  } else {
    std::vector<Expr> self_sizes, index_sizes;
    if (Status s = along_dim_sizes(n, &dim, &self_sizes, &index_sizes); !s.ok()) {
      b.fail(std::move(s));
      return {};
    }
    if (self_sizes != n.type("self").sizes) self = b.op("aten::expand", {self, self_sizes, b.boolean(false)});
    if (index_sizes != n.type("indices").sizes) indices = b.op("aten::expand", {indices, index_sizes, b.boolean(false)});
  }
  return {b.op("aten::gather", {self, Expr(dim), indices})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
     .infer = infer_index,
     .kernel = "aten::index.Tensor_out",
     .flags = ir::kDataDependent},
    {.schema = "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
     .infer = infer_like_self,
     .kernel = "aten::index_put.out", .flags = ir::kInPlace},
    {.schema = "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
     .infer = infer_index,
     .decompose = decompose_unsafe_index,
     .flags = ir::kDataDependent},
    {.schema = "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
     .infer = infer_like_self,
     .decompose = decompose_unsafe_index_put},
    {.schema = "aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
     .infer = infer_index,
     .decompose = decompose_masked_index},
    {.schema = "aten::_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
     .infer = infer_like_self,
     .decompose = decompose_masked_index_put},
    {.schema = "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor", .infer = infer_index_select, .kernel = "aten::index_select.out"},
    {.schema = "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
     .infer = infer_along_dim,
     .decompose = portable_index_add,
     .kernel = "aten::index_add.out", .flags = ir::kInPlace},
    {.schema = "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", .infer = infer_along_dim, .decompose = portable_index_copy, .kernel = "aten::index_copy.out", .flags = ir::kInPlace},
    {.schema = "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
     .infer = infer_along_dim,
     .decompose = portable_index_fill,
     .kernel = "aten::index_fill.int_Scalar_out", .flags = ir::kInPlace},
    {.schema = "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
     .infer = infer_along_dim,
     .decompose = portable_index_fill,
     .kernel = "aten::index_fill.int_Tensor_out", .flags = ir::kInPlace},
    {.schema = "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
     .infer = infer_along_dim,
     .decompose = portable_index_reduce,
     .kernel = "aten::index_reduce.out"},
    {.schema = "aten::take(Tensor self, Tensor index) -> Tensor", .infer = infer_take, .decompose = portable_take, .kernel = "aten::take.out"},
    {.schema = "aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", .infer = infer_like_self, .decompose = portable_put, .kernel = "aten::put.out", .flags = ir::kInPlace},
    {.schema = "aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
     .infer = infer_take_along_dim,
     .decompose = decompose_take_along_dim},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::index
