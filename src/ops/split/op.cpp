// Ops with several views as results: split, chunk, tensor_split, hsplit, unbind, broadcast_tensors, meshgrid, atleast_*.Sequence.
// All become slices, selects, views and expands.
#include "ops/catalog.h"
#include "ops/constant_ints.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::split {
namespace {

using ir::Builder;
using ir::OpDef;
using view::Layout;
using Ids = std::vector<ValueId>;

/// Consecutive or overlapping ranges of one dim.
struct Pieces {
  int64_t dim = 0;
  struct Piece {
    Expr start, length;
  };
  std::vector<Piece> list;
};
using PiecesFn = Result<Pieces> (*)(const NodeView& n);

/// More results than this is a damaged file, not a model.
constexpr int64_t kMaxResults = 1 << 20;

Result<Expr> size_of_dim(const NodeView& n, int64_t dim) {
  const TensorType& self = n.type("self");
  if (self.rank() == 0) return Status(Code::kInvalidInput, "split of a tensor of rank 0");
  PTERON_ASSIGN(const int d, wrap_dim_of(dim, self.rank()));
  return self.sizes[static_cast<size_t>(d)];
}

Result<Pieces> equal_pieces(const NodeView& n, int64_t dim, Expr piece) {
  PTERON_ASSIGN(const Expr size, size_of_dim(n, dim));
  Pieces out{dim, {}};
  if (dim_is(piece, 0)) {
    out.list.push_back({0, size});
    return out;
  }
  const Expr count = dim_max(ceil_div(size, piece), Expr(1));
  if (!count.is_const()) return Status(Code::kUnsupported, str_cat("the number of pieces of ", ir::to_text(piece), " in a dim of ", ir::to_text(size), " is not known"));
  if (count.value() > kMaxResults) return Status(Code::kUnsupported, str_cat(count.value(), " pieces"));
  for (int64_t i = 0; i < count.value(); ++i) {
    const Expr start = piece * Expr(i);
    out.list.push_back({start, i + 1 == count.value() ? size - start : piece});
  }
  return out;
}

Result<Pieces> listed_pieces(const NodeView& n, int64_t dim, const std::vector<Expr>& sizes) {
  PTERON_ASSIGN(const Expr size, size_of_dim(n, dim));
  Pieces out{dim, {}};
  Expr start = 0;
  for (const Expr& s : sizes) {
    out.list.push_back({start, s});
    start = start + s;
  }
  if (dim_differ(start, size)) return Status(Code::kInvalidInput, str_cat("split sizes sum to ", ir::to_text(start), ", the dim has ", ir::to_text(size)));
  return out;
}

Result<Pieces> chunk_pieces(const NodeView& n) {
  const int64_t chunks = n.integer("chunks"), dim = n.integer("dim");
  if (chunks <= 0 || chunks > kMaxResults) return Status(Code::kInvalidInput, str_cat(chunks, " chunks"));
  PTERON_ASSIGN(const Expr size, size_of_dim(n, dim));
  if (dim_is(size, 0)) return listed_pieces(n, dim, std::vector<Expr>(static_cast<size_t>(chunks), Expr(0)));
  const Expr piece = ceil_div(size, Expr(chunks));
  if (size.is_const()) return equal_pieces(n, dim, piece);
  // A symbolic dim: torch.export fixed the number of results, which is `chunks` unless the dim is shorter.
  Pieces out{dim, {}};
  for (int64_t i = 0; i < chunks; ++i) {
    const Expr start = piece * Expr(i);
    out.list.push_back({start, i + 1 == chunks ? size - start : piece});
  }
  return out;
}

Result<Pieces> section_pieces(const NodeView& n, int64_t dim, int64_t sections) {
  if (sections <= 0 || sections > kMaxResults) return Status(Code::kInvalidInput, str_cat(sections, " sections"));
  PTERON_ASSIGN(const Expr size, size_of_dim(n, dim));
  const Expr base = floor_div(size, Expr(sections)), extra = floor_mod(size, Expr(sections));
  Pieces out{dim, {}};
  for (int64_t i = 0; i < sections; ++i) {
    const Expr start = base * Expr(i) + dim_min(Expr(i), extra), end = base * Expr(i + 1) + dim_min(Expr(i + 1), extra);
    out.list.push_back({start, end - start});
  }
  return out;
}

Result<Pieces> indexed_pieces(const NodeView& n, int64_t dim, const std::vector<Expr>& indices) {
  PTERON_ASSIGN(const Expr size, size_of_dim(n, dim));
  Pieces out{dim, {}};
  Expr last = 0;
  for (size_t i = 0; i <= indices.size(); ++i) {
    const Expr index = i < indices.size() ? indices[i] : size;
    const Expr start = dim_min(dim_max(view::wrapped(last, size), Expr(0)), size);
    const Expr end = dim_min(dim_max(view::wrapped(index, size), start), size);
    out.list.push_back({start, end - start});
    last = index;
  }
  return out;
}

Result<Pieces> of_split(const NodeView& n) { return equal_pieces(n, n.integer("dim"), n.expr("split_size")); }
Result<Pieces> of_split_sizes(const NodeView& n) { return listed_pieces(n, n.integer("dim"), n.exprs("split_size")); }
Result<Pieces> of_split_with_sizes(const NodeView& n) { return listed_pieces(n, n.integer("dim"), n.exprs("split_sizes")); }
Result<Pieces> of_sections(const NodeView& n) { return section_pieces(n, n.integer("dim"), n.integer("sections")); }
Result<Pieces> of_indices(const NodeView& n) { return indexed_pieces(n, n.integer("dim"), n.exprs("indices")); }

Result<Pieces> of_tensor(const NodeView& n) {
  const auto numbers = constant_ints(n.graph(), n.value("tensor_indices_or_sections"));
  if (!numbers) return Status(Code::kUnsupported, "tensor_split with indices that are not constant");
  if (n.type("tensor_indices_or_sections").rank() == 0) return section_pieces(n, n.integer("dim"), numbers->at(0));
  return indexed_pieces(n, n.integer("dim"), view::expr_list(*numbers));
}

/// Dim that hsplit, vsplit and dsplit split.
int64_t dim_by_name(const NodeView& n) {
  const char first = n.op().schema.name[6];  // after "aten::"
  if (first == 'v') return 0;
  if (first == 'd') return 2;
  return n.type("self").rank() == 1 ? 0 : 1;
}
Result<Pieces> of_xsplit_int(const NodeView& n) { return section_pieces(n, dim_by_name(n), n.integer("sections")); }
Result<Pieces> of_xsplit_array(const NodeView& n) { return indexed_pieces(n, dim_by_name(n), n.exprs("indices")); }

template <PiecesFn pieces>
Status shape_piece(const NodeView& n, size_t result, Layout& v, bool*) {
  PTERON_ASSIGN(const Pieces p, pieces(n));
  if (result >= p.list.size()) return Status(Code::kInternal, "piece out of range");
  return view::narrow(v, p.dim, p.list[result].start, p.list[result].length);
}
template <PiecesFn pieces>
Result<size_t> count_pieces(const NodeView& n) {
  PTERON_ASSIGN(const Pieces p, pieces(n));
  return p.list.size();
}

template <PiecesFn pieces>
Ids decompose_pieces(Builder& b, const NodeView& n) {
  auto p = pieces(n);
  if (!p.ok()) {
    b.fail(std::move(p).status());
    return {};
  }
  Ids ids;
  const ValueId self = n.value("self");
  for (const auto& [start, length] : p->list) {
    const ValueId id = view::slice_to(b, self, p->dim, start, start + length);
    if (!id.valid()) return {};
    // slice.Tensor clamps its bounds, which symbolic dims keep as min and max; the length here is exact.
    const int64_t rank = b.type(id).rank();
    b.graph()[id].type.sizes[static_cast<size_t>(p->dim < 0 ? p->dim + rank : p->dim)] = length;
    ids.push_back(id);
  }
  return ids;
}

/// Indices known at run time: each is read as a number; the lengths of the pieces are new symbols that the pieces define.
Ids decompose_tensor(Builder& b, const NodeView& n) {
  const ValueId indices = n.value("tensor_indices_or_sections");
  if (constant_ints(n.graph(), indices)) return decompose_pieces<of_tensor>(b, n);
  const TensorType& type = n.type("tensor_indices_or_sections");
  auto size = size_of_dim(n, n.integer("dim"));
  if (type.rank() != 1 || !type.sizes[0].is_const() || !size.ok()) {
    b.fail(Status(Code::kUnsupported, "tensor_split into a number of pieces that is known only at run time"));
    return {};
  }
  std::vector<Expr> numbers;
  for (int64_t i = 0; i < type.sizes[0].value(); ++i) {
    const ValueId item = b.op("aten::_local_scalar_dense", {b.op("aten::select.int", {indices, Expr(0), Expr(i)})});
    if (!item.valid()) return {};
    numbers.push_back(b.graph()[item].scalar);
  }
  auto pieces = indexed_pieces(n, n.integer("dim"), numbers);
  if (!pieces.ok()) return {};
  Ids ids;
  for (const auto& [start, length] : pieces->list) {
    const ValueId piece = b.op("aten::slice_copy.Tensor", {n.value("self"), n.expr("dim"), start, start + length});
    if (!piece.valid()) return {};
    const int64_t rank = b.type(piece).rank(), dim = n.integer("dim");
    b.graph()[piece].type.sizes[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = b.exprs().fresh_symbol("u", {0, ir::bounds(*size).max});
    ids.push_back(piece);
  }
  return ids;
}

Status shape_unbind(const NodeView& n, size_t result, Layout& v, bool*) {
  return view::select(v, n.integer("dim"), Expr(static_cast<int64_t>(result)));
}
Result<size_t> count_unbind(const NodeView& n) {
  PTERON_ASSIGN(const Expr size, size_of_dim(n, n.integer("dim")));
  if (!size.is_const()) return Status(Code::kUnsupported, str_cat("unbind of a dim of symbolic size ", ir::to_text(size)));
  if (size.value() > kMaxResults) return Status(Code::kUnsupported, str_cat(size.value(), " results"));
  return static_cast<size_t>(size.value());
}
Ids decompose_unbind(Builder& b, const NodeView& n) {
  auto count = count_unbind(n);
  if (!count.ok()) {
    b.fail(std::move(count).status());
    return {};
  }
  Ids ids;
  for (size_t i = 0; i < *count; ++i) ids.push_back(b.op("aten::select.int", {n.value("self"), n.expr("dim"), Expr(static_cast<int64_t>(i))}));
  return ids;
}

Status infer_broadcast_tensors(InferContext& c) {
  std::vector<Expr> sizes;
  for (const ValueId id : c.values("tensors")) PTERON_TRY(broadcast_exprs(sizes, c.type(id).sizes, &sizes));
  for (const ValueId id : c.values("tensors")) {
    PTERON_ASSIGN(Layout v, view::layout_of(c.type(id)));
    PTERON_TRY(view::expand(v, std::span<const Expr>(sizes)));
    c.add(view::type_of(v, c.type(id).dtype, c.type(id).device));
  }
  return ok_status();
}
Ids decompose_broadcast_tensors(Builder& b, const NodeView& n) {
  std::vector<Expr> sizes;
  for (const ValueId id : n.values("tensors")) {
    if (Status s = broadcast_exprs(sizes, n.type(id).sizes, &sizes); !s.ok()) b.fail(std::move(s));
  }
  Ids ids;
  for (const ValueId id : n.values("tensors")) ids.push_back(b.op("aten::expand", {id, sizes, b.boolean(false)}));
  return ids;
}

bool swaps_first_two(const NodeView& n) { return n.has("indexing") && n.text("indexing") == "xy" && n.values("tensors").size() >= 2; }

/// Sizes of meshgrid's results; "xy" swaps the first two tensors (and their results back), so the sizes too.
Result<std::vector<Expr>> mesh_sizes(const NodeView& n, Ids& ids) {
  ids = n.values("tensors");
  if (ids.size() > kMaxRank) return Status(Code::kUnsupported, str_cat("meshgrid of ", ids.size(), " tensors"));
  if (swaps_first_two(n)) std::swap(ids[0], ids[1]);
  std::vector<Expr> sizes;
  for (const ValueId id : ids) {
    if (n.type(id).rank() > 1) return Status(Code::kInvalidInput, str_cat("meshgrid of a tensor of rank ", n.type(id).rank()));
    sizes.push_back(n.type(id).rank() == 0 ? Expr(1) : n.type(id).sizes[0]);
  }
  return sizes;
}

Status infer_meshgrid(InferContext& c) {
  Ids ids;
  PTERON_ASSIGN(const std::vector<Expr> sizes, mesh_sizes(c, ids));
  for (const ValueId id : c.values("tensors")) c.add(c.type(id).dtype, sizes);
  return ok_status();
}
Ids decompose_meshgrid(Builder& b, const NodeView& n) {
  Ids ids;
  auto sizes = mesh_sizes(n, ids);
  if (!sizes.ok()) {
    b.fail(std::move(sizes).status());
    return {};
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<Expr> one(sizes->size(), Expr(1));
    one[i] = (*sizes)[i];
    ids[i] = b.op("aten::expand", {view::view_to(b, ids[i], std::move(one)), *sizes, b.boolean(false)});
  }
  if (swaps_first_two(n)) std::swap(ids[0], ids[1]);
  return ids;
}

/// atleast_1d/2d/3d of a list: the op without ".Sequence" on each.
Ids each_at_least(Builder& b, const NodeView& n) {
  Ids ids;
  for (const ValueId id : n.values("tensors")) ids.push_back(b.op(n.op().schema.name, {id}));
  return ids;
}
Status infer_each_at_least(InferContext& c) {
  const int rank = c.op().schema.name[14] - '0';  // "aten::atleast_Nd"
  for (const ValueId id : c.values("tensors")) {
    std::vector<Expr> sizes = c.type(id).sizes;
    if (sizes.empty()) sizes.assign(1, Expr(1));
    if (sizes.size() == 1 && rank >= 2) sizes.insert(sizes.begin(), Expr(1));
    if (sizes.size() == 2 && rank == 3) sizes.emplace_back(1);
    c.add(c.type(id).dtype, std::move(sizes));
  }
  return ok_status();
}

template <PiecesFn pieces>
constexpr OpDef splitting(std::string_view schema) {
  return {.schema = schema,
          .infer = view::infer_views<shape_piece<pieces>, count_pieces<pieces>>,
          .decompose = decompose_pieces<pieces>,
          .view = view::view_fn<shape_piece<pieces>>};
}
template <PiecesFn pieces>
constexpr OpDef copying(std::string_view schema) {
  return {.schema = schema, .infer = view::infer_copies<shape_piece<pieces>, count_pieces<pieces>>, .decompose = decompose_pieces<pieces>};
}

constexpr OpDef kTable[] = {
    splitting<of_split>("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"),
    splitting<of_split_sizes>("aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]"),
    splitting<of_split_with_sizes>("aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"),
    splitting<chunk_pieces>("aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]"),
    splitting<of_sections>("aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]"),
    splitting<of_indices>("aten::tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]"),
    {.schema = "aten::tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]",
     .infer = view::infer_views<shape_piece<of_tensor>, count_pieces<of_tensor>>,
     .decompose = decompose_tensor,
     .view = view::view_fn<shape_piece<of_tensor>>},
    splitting<of_split>("aten::unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]"),
    splitting<of_split_with_sizes>("aten::unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]"),
    splitting<chunk_pieces>("aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]"),
    splitting<of_xsplit_int>("aten::hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"),
    splitting<of_xsplit_array>("aten::hsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"),
    splitting<of_xsplit_int>("aten::vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"),
    splitting<of_xsplit_array>("aten::vsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"),
    splitting<of_xsplit_int>("aten::dsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]"),
    splitting<of_xsplit_array>("aten::dsplit.array(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]"),
    {.schema = "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
     .infer = view::infer_views<shape_unbind, count_unbind>,
     .decompose = decompose_unbind,
     .view = view::view_fn<shape_unbind>},
    copying<of_split>("aten::split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]"),
    copying<of_split_with_sizes>("aten::split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]"),
    {.schema = "aten::unbind_copy.int(Tensor self, int dim=0) -> Tensor[]",
     .infer = view::infer_copies<shape_unbind, count_unbind>,
     .decompose = decompose_unbind},
    {.schema = "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]", .infer = infer_broadcast_tensors, .decompose = decompose_broadcast_tensors},
    {.schema = "aten::meshgrid(Tensor[] tensors) -> Tensor[]", .infer = infer_meshgrid, .decompose = decompose_meshgrid},
    {.schema = "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", .infer = infer_meshgrid, .decompose = decompose_meshgrid},
    {.schema = "aten::atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]", .infer = infer_each_at_least, .decompose = each_at_least},
    {.schema = "aten::atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]", .infer = infer_each_at_least, .decompose = each_at_least},
    {.schema = "aten::atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]", .infer = infer_each_at_least, .decompose = each_at_least},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::split
