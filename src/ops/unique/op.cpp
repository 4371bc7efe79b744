// unique, unique_consecutive, unique_dim for the compiler: sizes known only at run time. Runtime half: kernel.cpp. Tests: test.cpp.
#include <span>

#include "ops/reduce_infer.h"
#include "ops/unique/portable.h"

namespace pteron::ops::unique {
namespace {

using ir::OpDef;

/// A new size between one (none, if nothing may come in) and n.
Expr found_among(InferContext& c, Expr n) {
  const ir::Range range = ir::bounds(n);
  return c.exprs().fresh_symbol("u", {range.min > 0 ? 1 : 0, range.max});
}

Status infer_flat(InferContext& c, bool inverse, bool counts) {
  const TensorType& self = c.type("self");
  const Expr found = found_among(c, ir::numel_of(self.sizes));
  c.add(self.dtype, {found});
  c.add(DType::kInt64, inverse ? self.sizes : std::vector<Expr>{0});
  c.add(DType::kInt64, {counts ? found : Expr(0)});
  return ok_status();
}

/// Inverse and counts are made whether asked for or not.
Status infer_slices(InferContext& c) {
  const TensorType& self = c.type("self");
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), self.rank()));
  if (self.rank() == 0) return infer_flat(c, true, true);
  std::vector<Expr> sizes = self.sizes;
  const Expr n = sizes[static_cast<size_t>(dim)];
  const Expr found = found_among(c, n);
  sizes[static_cast<size_t>(dim)] = found;
  c.add(self.dtype, std::move(sizes));
  c.add(DType::kInt64, {n});
  c.add(DType::kInt64, {found});
  return ok_status();
}

Status infer_unique2(InferContext& c) { return infer_flat(c, c.boolean("return_inverse"), c.boolean("return_counts")); }
Status infer_consecutive(InferContext& c) {
  return c.is_none("dim") ? infer_flat(c, c.boolean("return_inverse"), c.boolean("return_counts")) : infer_slices(c);
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
     .infer = infer_unique2,
     .decompose = portable_unique,
     .kernel = "aten::_unique2.out",
     .flags = ir::kDataDependent},
    {.schema = "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)",
     .infer = infer_consecutive,
     .decompose = portable_unique,
     .kernel = "aten::unique_consecutive.out",
     .flags = ir::kDataDependent},
    {.schema = "aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
     .infer = infer_slices,
     .kernel = "aten::unique_dim.out",
     .flags = ir::kDataDependent},
    {.schema = "aten::unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
     .infer = infer_slices,
     .kernel = "aten::unique_dim_consecutive.out",
     .flags = ir::kDataDependent},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::unique
