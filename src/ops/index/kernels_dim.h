// Kernels that index along one dim or the flattened tensor. Defined in kernel_dim.cpp; listed in kernel.cpp.
#pragma once

#include "runtime/kernel.h"

namespace pteron::ops::index {

using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tensor;

Status index_select(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Tensor& out);
Status index_add(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha, Tensor& out);
Status index_copy(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Tensor& out);
Status index_fill(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Scalar value, Tensor& out);
Status index_fill_tensor(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value, Tensor& out);
Status index_reduce(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self, Tensor& out);
size_t index_reduce_workspace(std::span<runtime::Value* const> args);
Status take(KernelContext& context, const Tensor& self, const Tensor& index, Tensor& out);
Status put(KernelContext& context, const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate, Tensor& out);

}  // namespace pteron::ops::index
