// slice_scatter, select_scatter, diagonal_scatter: self copied to the result, then src to a view of the result.
#include "ops/kernels.h"
#include "ops/view/run.h"

namespace pteron::ops::view_scatter {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tensor;

/// `v` is the layout of the written part of out.
Status write_part(KernelContext& context, const Tensor& src, const view::Placed& v, Tensor& out) {
  if (!(Sizes(src.sizes()) == v.sizes)) {
    return Status(Code::kInvalidInput, str_cat("source of shape ", shape_text(src.sizes()), " for a view of shape ", shape_text(v.sizes)));
  }
  return copy_tensor(context, src.view, view::view_of(out.view, v));
}

Status start(KernelContext& context, const Tensor& self, Tensor& out, view::Placed* v) {
  PTERON_TRY(resize(out, self.sizes()));
  if (out.view.data != self.view.data) PTERON_TRY(copy_tensor(context, self.view, out.view));
  *v = view::placed(out.view);
  return ok_status();
}

Status slice_scatter(KernelContext& context, const Tensor& self, const Tensor& src, int64_t dim, std::optional<int64_t> from,
                     std::optional<int64_t> to, int64_t step, Tensor& out) {
  view::Placed v;
  PTERON_TRY(start(context, self, out, &v));
  PTERON_TRY(view::slice(v, dim, from, to, step));
  return write_part(context, src, v, out);
}

Status select_scatter(KernelContext& context, const Tensor& self, const Tensor& src, int64_t dim, int64_t index, Tensor& out) {
  view::Placed v;
  PTERON_TRY(start(context, self, out, &v));
  PTERON_TRY(view::select(v, dim, index));
  return write_part(context, src, v, out);
}

Status diagonal_scatter(KernelContext& context, const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2, Tensor& out) {
  view::Placed v;
  PTERON_TRY(start(context, self, out, &v));
  PTERON_TRY(view::diagonal(v, offset, dim1, dim2));
  return write_part(context, src, v, out);
}

constexpr Kernel kTable[] = {
    {"aten::slice_scatter.out", PTERON_KERNEL(slice_scatter)},
    {"aten::select_scatter.out", PTERON_KERNEL(select_scatter)},
    {"aten::diagonal_scatter.out", PTERON_KERNEL(diagonal_scatter)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::view_scatter
