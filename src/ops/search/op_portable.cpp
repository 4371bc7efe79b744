// Searches as comparisons with every boundary: right for any sizes, slow for many boundaries.
#include "ops/portable.h"
#include "ops/search/portable.h"

namespace pteron::ops::search {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// Number of boundaries before each value: those not >= it, or not > it (so that NaN comes last).
ValueId count_before(Portable& f, ValueId boundaries, ValueId values, bool right, DType as) {
  const ValueId behind = f.compare(right ? "gt" : "ge", boundaries, f.unsqueeze(values, -1));
  const ValueId before = f.negate(behind);
  return f.to(f.b.op("aten::sum.dim_IntList", {before, std::vector<Expr>{Expr(-1)}, f.b.boolean(false), DType::kInt64}), as);
}

DType index_dtype(const NodeView& n) { return n.boolean("out_int32") ? DType::kInt32 : DType::kInt64; }
DType compared_dtype(const NodeView& n, std::string_view boundaries) {
  return n.is_value("self") ? promote_dtypes(n.type("self").dtype, n.type(boundaries).dtype) : result_type(n, {boundaries, "self"});
}
ValueId values_of(Portable& f, const NodeView& n, DType as) { return n.is_value("self") ? f.to(n.value("self"), as) : f.number(n.expr("self"), as); }

}  // namespace

Ids portable_bucketize(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = compared_dtype(n, "boundaries");
  return {count_before(f, f.to(n.value("boundaries"), dtype), values_of(f, n, dtype), n.boolean("right"), index_dtype(n))};
}

Ids portable_searchsorted(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = compared_dtype(n, "sorted_sequence");
  ValueId sequence = n.value("sorted_sequence");
  if (!n.is_none("sorter")) sequence = b.op("aten::gather", {sequence, Expr(-1), n.value("sorter")});
  const bool right = n.boolean("right") || (!n.is_none("side") && n.text("side") == "right");
  sequence = f.to(sequence, dtype);
  if (f.rank(sequence) > 1) sequence = f.unsqueeze(sequence, -2);
  return {count_before(f, sequence, values_of(f, n, dtype), right, index_dtype(n))};
}

Ids portable_isin(Builder& b, const NodeView& n) {
  Portable f(b);
  const bool one = n.has("element"), with_one = n.has("test_element");
  const DType dtype = one ? result_type(n, {"element", "test_elements"}) : result_type(n, {"elements", with_one ? "test_element" : "test_elements"});
  const ValueId values = one ? f.number(n.expr("element"), dtype) : f.to(n.value("elements"), dtype);
  ValueId found;
  if (with_one) {
    found = f.compare("eq", values, n.expr("test_element"));
  } else {
    const ValueId tests = f.to(n.value("test_elements"), dtype);
    const Expr count = ir::numel_of(f.sizes(tests));
    if (dim_is(count, 0)) return {b.op("aten::full", {f.sizes(values), b.boolean(n.boolean("invert")), DType::kBool})};
    found = b.op("aten::any.dim", {f.compare("eq", f.unsqueeze(values, -1), f.view(tests, {count})), Expr(-1)});
  }
  return {n.boolean("invert") ? f.negate(found) : found};
}

}  // namespace pteron::ops::search
