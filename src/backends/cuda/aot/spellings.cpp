// Scatters by atomic folds, masks as choices, distances as norms of differences.
#include "backends/cuda/aot/spellings.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using ir::Builder;
using ir::Expr;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;
using Ids = std::vector<ValueId>;

size_t wrapped(int64_t dim, size_t rank) { return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim); }

ValueId view(Builder& b, ValueId x, std::vector<Expr> sizes) { return b.type(x).sizes == sizes ? x : b.op("aten::view", {x, std::move(sizes)}); }

/// The number that a fold starts from.
Expr neutral(Builder& b, DType dtype, std::string_view reduce) {
  if (reduce == "prod") return is_floating(dtype) ? b.floating(1) : Expr(1);
  const bool least = reduce == "amax";
  if (is_floating(dtype)) return b.floating(least ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  switch (dtype) {
    case DType::kBool:
      return Expr(least ? 0 : 1);
    case DType::kUInt8:
      return Expr(least ? 0 : 255);
    case DType::kInt8:
      return Expr(least ? -128 : 127);
    case DType::kInt16:
      return Expr(least ? std::numeric_limits<int16_t>::min() : std::numeric_limits<int16_t>::max());
    case DType::kInt32:
      return Expr(int64_t{least ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max()});
    default:
      return Expr(least ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max());
  }
}

/// Without self: what is written to starts from the fold's neutral number. Sums and means: the op room's.
Ids scatter_reduce(Builder& b, const NodeView& n) {
  const std::string_view reduce = n.text("reduce");
  if (n.boolean("include_self") || reduce == "sum" || reduce == "mean") return {};
  const ValueId start = b.op("aten::scatter.value", {n.value("self"), n.expr("dim"), n.value("index"), neutral(b, n.type("self").dtype, reduce)});
  return {b.op("aten::scatter_reduce.two", {start, n.expr("dim"), n.value("index"), n.value("src"), std::string(reduce), b.boolean(true)})};
}

/// A scatter whose index is the same in all rows.
Ids index_reduce(Builder& b, const NodeView& n) {
  const TensorType source = n.type("source");
  if (source.sizes.empty() || n.type("self").sizes.empty()) return {};
  std::vector<Expr> shape(source.sizes.size(), Expr(1));
  const size_t dim = wrapped(n.integer("dim"), source.sizes.size());
  shape[dim] = source.sizes[dim];
  ValueId index = view(b, n.value("index"), shape);
  if (shape != source.sizes) index = b.op("aten::expand", {index, source.sizes});
  return {b.op("aten::scatter_reduce.two", {n.value("self"), n.expr("dim"), index, n.value("source"), std::string(n.text("reduce")), n.expr("include_self")})};
}

/// One mask and one value for all that it chooses: a choice. (Other values are as many as the mask has places.)
Ids index_put(Builder& b, const NodeView& n) {
  const std::vector<ValueId> indices = n.values("indices");
  const TensorType self = n.type("self");
  ValueId mask;
  size_t place = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].valid()) continue;
    if (mask.valid() || b.type(indices[d]).dtype != DType::kBool) return {};
    mask = indices[d], place = d;
  }
  if (!mask.valid()) return {};
  const size_t covered = b.type(mask).sizes.size(), rank = self.sizes.size();
  if (covered == 0 || place + covered > rank) return {};
  // Values have the dims in front of the mask, one for its places, and those behind it; missing ones stand in front.
  const TensorType values = n.type("values");
  const size_t behind = rank - place - covered, whole = place + 1 + behind, missing = whole - std::min(values.sizes.size(), whole);
  if (values.sizes.size() > whole) return {};
  std::vector<Expr> sizes;
  for (size_t d = 0; d < whole; ++d) {
    const Expr size = d < missing ? Expr(1) : values.sizes[d - missing];
    if (d == place && !dim_is(size, 1)) return {};
    sizes.insert(sizes.end(), d == place ? covered : 1, size);
  }
  std::vector<Expr> shape(rank, Expr(1));
  std::ranges::copy(b.type(mask).sizes, shape.begin() + static_cast<std::ptrdiff_t>(place));
  ValueId value = view(b, n.value("values"), sizes);
  if (n.boolean("accumulate")) value = b.op("aten::add.Tensor", {n.value("self"), value});
  return {b.op("aten::where.self", {view(b, mask, shape), value, n.value("self")})};
}

/// The k-th place of the mask gets the k-th element of the source.
Ids masked_scatter(Builder& b, const NodeView& n) {
  const std::vector<Expr> sizes = n.type("self").sizes;
  const Expr count = ir::numel_of(n.type("source").sizes);
  if (sizes.empty() || !count.is_const() || count.value() == 0) return {};
  const ValueId mask = n.type("mask").sizes == sizes ? n.value("mask") : b.op("aten::expand", {n.value("mask"), sizes});
  const ValueId places =
      b.op("aten::cumsum", {b.op("aten::reshape", {b.op("aten::_to_copy", {mask, DType::kInt64}), std::vector<Expr>{ir::numel_of(sizes)}}), Expr(0)});
  const ValueId index = b.op("aten::clamp", {b.op("aten::add.Scalar", {places, Expr(-1)}), Expr(0), count - 1});
  const ValueId taken = b.op("aten::index_select", {b.op("aten::reshape", {n.value("source"), std::vector<Expr>{count}}), Expr(0), index});
  return {b.op("aten::where.self", {mask, view(b, taken, sizes), n.value("self")})};
}

/// Norms of the differences of all pairs of rows.
Ids cdist(Builder& b, const NodeView& n) {
  const ValueId left = b.op("aten::unsqueeze", {n.value("x1"), Expr(-2)}), right = b.op("aten::unsqueeze", {n.value("x2"), Expr(-3)});
  const ValueId difference = b.op("aten::sub.Tensor", {left, right});
  return {b.op("aten::linalg_vector_norm", {difference, n.expr("p"), std::vector<Expr>{Expr(-1)}})};
}

Ids pdist(Builder& b, const NodeView& n) {
  const TensorType type = n.type("self");
  if (type.sizes.size() != 2 || !type.sizes[0].is_const() || type.sizes[0].value() < 2 || type.sizes[0].value() > 1024) return {};
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < type.sizes[0].value(); ++i) {
    for (int64_t j = i + 1; j < type.sizes[0].value(); ++j) first.push_back(i), second.push_back(j);
  }
  const auto rows = [&](const std::vector<int64_t>& list) {
    const ValueId index = b.constant(DType::kInt64, {static_cast<int64_t>(list.size())}, std::as_bytes(std::span(list)), "pairs");
    return b.op("aten::index_select", {n.value("self"), Expr(0), index});
  };
  const ValueId difference = b.op("aten::sub.Tensor", {rows(first), rows(second)});
  return {b.op("aten::linalg_vector_norm", {difference, n.expr("p"), std::vector<Expr>{Expr(-1)}})};
}

struct Spelling {
  std::string_view op;
  ir::DecomposeFn make;
};
constexpr Spelling kSpellings[] = {
    {"aten::_cdist_forward", cdist},      {"aten::_pdist_forward", pdist},          {"aten::index_put", index_put},
    {"aten::index_reduce", index_reduce}, {"aten::masked_scatter", masked_scatter}, {"aten::scatter_reduce.two", scatter_reduce},
};

}  // namespace

ir::DecomposeFn own_spelling(const ir::Node& node) {
  const auto* found = std::ranges::find(kSpellings, node.op->name, &Spelling::op);
  return found == std::end(kSpellings) ? nullptr : found->make;
}

Result<bool> spell_own(ir::Graph& graph, const ir::Catalog& catalog, const std::function<bool(const ir::Graph&, const ir::Node&)>& keep) {
  return ir::rewrite(graph, catalog, [&](Builder& builder, ir::NodeId id, std::vector<ValueId>& replacements) -> Result<ir::Rewrite> {
    const ir::DecomposeFn make = own_spelling(graph[id]);
    if (make == nullptr || keep(graph, graph[id])) return ir::Rewrite::kKeep;
    const std::vector<ValueId> made = make(builder, NodeView(graph, *graph[id].op, graph[id].args));
    if (!builder.status().ok()) return builder.take_status();
    if (made.size() != graph[id].outputs.size()) return ir::Rewrite::kKeep;
    for (size_t k = 0; k < made.size(); ++k) {
      if (!made[k].valid() || graph[made[k]].type.dtype != graph[graph[id].outputs[k]].type.dtype ||
          graph[made[k]].type.rank() != graph[graph[id].outputs[k]].type.rank())
        return ir::Rewrite::kKeep;
    }
    replacements = made;
    return ir::Rewrite::kReplace;
  });
}

}  // namespace pteron::cuda
