// Layout functions of the view ops with one result: arguments of the node to calls of shape.h.
#include "ops/view/shapers.h"

#include <algorithm>
#include <numeric>

namespace pteron::ops::view {

namespace {

std::span<const Expr> span_of(const RankList<Expr>& list) { return list; }

const TensorType& self_type(const NodeView& n) { return n.type(first_value(n)); }

std::vector<int64_t> identity(const NodeView& n) {
  std::vector<int64_t> dims(static_cast<size_t>(self_type(n).rank()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return dims;
}

}  // namespace

Status shape_view(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const std::vector<Expr> sizes = n.exprs("size");
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

Status shape_reshape(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const std::vector<Expr> sizes = n.exprs("shape");
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

Status shape_like_other(const NodeView& n, size_t, Layout& v, bool* aliases) {
  return reshape(v, std::span<const Expr>(n.type("other").sizes), aliases);
}

Result<std::vector<Expr>> flattened(std::span<const Expr> sizes, int64_t start, int64_t end) {
  if (sizes.empty()) return std::vector<Expr>{Expr(1)};
  PTERON_ASSIGN(const int first, wrap_dim_of(start, static_cast<int>(sizes.size())));
  PTERON_ASSIGN(const int last, wrap_dim_of(end, static_cast<int>(sizes.size())));
  if (first > last) return Status(Code::kInvalidInput, str_cat("flatten from dim ", first, " to dim ", last));
  std::vector<Expr> out(sizes.begin(), sizes.begin() + first);
  out.push_back(product<Expr>(sizes.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first + 1))));
  out.insert(out.end(), sizes.begin() + last + 1, sizes.end());
  return out;
}

Status shape_flatten(const NodeView& n, size_t, Layout& v, bool* aliases) {
  PTERON_ASSIGN(const std::vector<Expr> sizes, flattened(span_of(v.sizes), n.integer("start_dim"), n.integer("end_dim")));
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

Status shape_unflatten(const NodeView& n, size_t, Layout& v, bool* aliases) {
  PTERON_ASSIGN(const int dim, wrap_dim_of(n.integer("dim"), v.rank()));
  const std::vector<Expr> parts = n.exprs("sizes");
  if (v.rank() == 0 || parts.size() + v.sizes.size() > kMaxRank + 1) return Status(Code::kInvalidInput, "unflatten: rank");
  RankList<Expr> inner{std::span<const Expr>(parts)};
  const Expr whole[] = {v.sizes[static_cast<size_t>(dim)]};
  PTERON_TRY(infer_unknown_size<Expr>(whole, inner));
  std::vector<Expr> sizes(v.sizes.begin(), v.sizes.end());
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, inner.begin(), inner.end());
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

Status shape_ravel(const NodeView&, size_t, Layout& v, bool* aliases) {
  const Expr sizes[] = {product<Expr>(span_of(v.sizes))};
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

namespace {

Status at_least(Layout& v, int rank, bool* aliases) {
  if (v.rank() >= rank) return ok_status();
  std::vector<Expr> sizes(v.sizes.begin(), v.sizes.end());
  if (sizes.empty()) sizes.assign(1, Expr(1));
  if (sizes.size() == 1 && rank >= 2) sizes.insert(sizes.begin(), Expr(1));
  if (sizes.size() == 2 && rank == 3) sizes.emplace_back(1);
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

}  // namespace

Status shape_atleast_1d(const NodeView&, size_t, Layout& v, bool* aliases) { return at_least(v, 1, aliases); }
Status shape_atleast_2d(const NodeView&, size_t, Layout& v, bool* aliases) { return at_least(v, 2, aliases); }
Status shape_atleast_3d(const NodeView&, size_t, Layout& v, bool* aliases) { return at_least(v, 3, aliases); }

Status shape_squeeze(const NodeView& n, size_t, Layout& v, bool*) {
  return squeeze(v, std::span<const int64_t>(identity(n)));
}

Status shape_squeeze_dims(const NodeView& n, size_t, Layout& v, bool*) {
  const std::vector<int64_t> dims = n.integers("dim");
  return squeeze(v, std::span<const int64_t>(dims));
}

Status shape_unsqueeze(const NodeView& n, size_t, Layout& v, bool*) { return unsqueeze(v, n.integer("dim")); }

Status shape_expand(const NodeView& n, size_t, Layout& v, bool*) {
  const std::vector<Expr> sizes = n.exprs("size");
  return expand(v, std::span<const Expr>(sizes));
}

Status shape_expand_as(const NodeView& n, size_t, Layout& v, bool*) { return expand(v, std::span<const Expr>(n.type("other").sizes)); }

Status shape_select(const NodeView& n, size_t, Layout& v, bool*) { return select(v, n.integer("dim"), n.expr("index")); }

Status shape_slice(const NodeView& n, size_t, Layout& v, bool*) {
  return slice(v, n.integer("dim"), optional_expr(n, "start"), optional_expr(n, "end"), n.expr("step"));
}

Status shape_narrow(const NodeView& n, size_t, Layout& v, bool*) { return narrow(v, n.integer("dim"), n.expr("start"), n.expr("length")); }

Status shape_diagonal(const NodeView& n, size_t, Layout& v, bool*) {
  return diagonal(v, n.integer("offset"), n.integer("dim1"), n.integer("dim2"));
}

Status shape_unfold(const NodeView& n, size_t, Layout& v, bool*) { return unfold(v, n.integer("dimension"), n.expr("size"), n.expr("step")); }

Status shape_as_strided(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const std::vector<Expr> sizes = n.exprs("size"), strides = n.exprs("stride");
  if (sizes.size() != strides.size() || sizes.size() > kMaxRank) {
    return Status(Code::kInvalidInput, str_cat("as_strided with ", sizes.size(), " sizes and ", strides.size(), " strides"));
  }
  // Strides and offset count in the memory that PyTorch gave argument 0: another layout cannot express them.
  const TensorType& self = self_type(n);
  *aliases = std::equal(self.strides.begin(), self.strides.end(), v.strides.begin(), v.strides.end());
  v.sizes = RankList<Expr>(std::span<const Expr>(sizes));
  v.strides = RankList<Expr>(std::span<const Expr>(strides));
  v.offset = n.expr("storage_offset", v.offset);
  return ok_status();
}

Status shape_reshape_alias(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const std::vector<Expr> sizes = n.exprs("size");
  return reshape(v, std::span<const Expr>(sizes), aliases);
}

Result<std::vector<int64_t>> dims_of_permute(const NodeView& n) { return n.integers("dims"); }

namespace {

Result<std::vector<int64_t>> swapped(const NodeView& n, int64_t a, int64_t b) {
  std::vector<int64_t> dims = identity(n);
  PTERON_ASSIGN(const int first, wrap_dim_of(a, static_cast<int>(dims.size())));
  PTERON_ASSIGN(const int second, wrap_dim_of(b, static_cast<int>(dims.size())));
  if (!dims.empty()) std::swap(dims[static_cast<size_t>(first)], dims[static_cast<size_t>(second)]);
  return dims;
}

}  // namespace

Result<std::vector<int64_t>> dims_of_transpose(const NodeView& n) {  // transpose.int, swapdims, swapaxes: the dims are arguments 1 and 2
  const auto& args = n.op().schema.args;
  return swapped(n, n.integer(args[1].name), n.integer(args[2].name));
}

Result<std::vector<int64_t>> dims_of_t(const NodeView& n) {
  const int rank = self_type(n).rank();
  if (rank > 2) return Status(Code::kInvalidInput, str_cat("t() of a tensor of rank ", rank));
  return dims_reversed(n);
}

Result<std::vector<int64_t>> dims_reversed(const NodeView& n) {
  std::vector<int64_t> dims = identity(n);
  std::reverse(dims.begin(), dims.end());
  return dims;
}

Result<std::vector<int64_t>> dims_last_swapped(const NodeView& n) {
  const int rank = self_type(n).rank();
  if (rank < 2) return identity(n);
  return swapped(n, -2, -1);
}

Result<std::vector<int64_t>> dims_of_movedim(const NodeView& n) {
  const std::vector<int64_t> source = n.integers("source"), destination = n.integers("destination");
  const int rank = self_type(n).rank();
  if (source.size() != destination.size()) {
    return Status(Code::kInvalidInput, str_cat("movedim of ", source.size(), " dims to ", destination.size(), " places"));
  }
  if (rank == 0) return std::vector<int64_t>{};
  std::vector<int64_t> order(static_cast<size_t>(rank), -1);
  std::vector<bool> taken(static_cast<size_t>(rank), false);
  for (size_t i = 0; i < source.size(); ++i) {
    PTERON_ASSIGN(const int from, wrap_dim_of(source[i], rank));
    PTERON_ASSIGN(const int to, wrap_dim_of(destination[i], rank));
    if (taken[static_cast<size_t>(from)] || order[static_cast<size_t>(to)] >= 0) return Status(Code::kInvalidInput, "movedim names a dim twice");
    taken[static_cast<size_t>(from)] = true;
    order[static_cast<size_t>(to)] = from;
  }
  size_t next = 0;
  for (int64_t& d : order) {
    if (d >= 0) continue;
    while (taken[next]) ++next;
    d = static_cast<int64_t>(next++);
  }
  return order;
}

}  // namespace pteron::ops::view
