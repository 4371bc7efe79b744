// slice_scatter, select_scatter, diagonal_scatter: self with a view of it replaced by src. (as_strided_scatter is in ops/view.)
#include "ops/catalog.h"
#include "ops/infer.h"
#include "ops/view_scatter/portable.h"

namespace pteron::ops::view_scatter {
namespace {

constexpr ir::OpDef kTable[] = {
    {.schema = "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
     .infer = infer_like_self,
     .kernel = "aten::slice_scatter.out", .flags = ir::kInPlace},
    {.schema = "aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
     .infer = infer_like_self,
     .kernel = "aten::select_scatter.out", .flags = ir::kInPlace},
    {.schema = "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
     .infer = infer_like_self,
     .decompose = portable_diagonal_scatter,
     .kernel = "aten::diagonal_scatter.out", .flags = ir::kInPlace},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::view_scatter
