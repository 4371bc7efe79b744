// Kernels that copy and convert: _to_copy, clone, copy, copy_, the dim_order_ops and et_copy operators of official files.
#include "ops/copy.h"
#include "ops/elementwise.h"

namespace pteron::ops::cast {

namespace {

using runtime::Value;

Status copy_into(KernelContext& context, const Tensor& from, Tensor& out) {
  PTERON_TRY(runtime::resize(out, from.sizes()));
  return copy_tensor(context, from.view, out.view);
}

/// (self, non_blocking, memory_format or dim_order, out): the layout is that of the out tensor.
Status to_copy_kernel(KernelContext& context, const Tensor& self, Value&, Value&, Tensor& out) { return copy_into(context, self, out); }
Status clone_kernel(KernelContext& context, const Tensor& self, Value&, Tensor& out) { return copy_into(context, self, out); }
Status plain_copy_kernel(KernelContext& context, const Tensor& self, Tensor& out) { return copy_into(context, self, out); }
Status copy_kernel(KernelContext& context, const Tensor& self, const Tensor& src, Value&, Tensor& out) {
  PTERON_TRY(runtime::resize(out, self.sizes()));
  return copy_tensor(context, src.view, out.view);
}
Status copy_in_place_kernel(KernelContext& context, Tensor& self, const Tensor& src, Value&) { return copy_tensor(context, src.view, self.view); }

constexpr runtime::Kernel kRows[] = {
    {"aten::_to_copy.out", PTERON_KERNEL(to_copy_kernel)},
    {"aten::alias_copy.out", PTERON_KERNEL(plain_copy_kernel)},
    {"aten::clone.out", PTERON_KERNEL(clone_kernel)},
    {"aten::copy.out", PTERON_KERNEL(copy_kernel)},
    {"aten::copy_", PTERON_KERNEL(copy_in_place_kernel)},
    {"aten::detach_copy.out", PTERON_KERNEL(plain_copy_kernel)},
    {"aten::lift_fresh_copy.out", PTERON_KERNEL(plain_copy_kernel)},
    {"dim_order_ops::_clone_dim_order.out", PTERON_KERNEL(to_copy_kernel)},
    {"dim_order_ops::_to_dim_order_copy.out", PTERON_KERNEL(to_copy_kernel)},
    {"et_copy::_d2h_copy.out", PTERON_KERNEL(plain_copy_kernel)},
    {"et_copy::_h2d_copy.out", PTERON_KERNEL(plain_copy_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::cast
