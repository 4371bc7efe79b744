// Matrix products for the runtime: mm, bmm, addmm, baddbmm, linear on the shared gemm. Compile half: op.cpp. LU based kernels: kernel_lu.cpp.
#include <algorithm>

#include "base/str_cat.h"
#include "ops/gemm.h"
#include "ops/kernels.h"
#include "ops/matmul/kernels.h"

namespace pteron::ops::matmul {
namespace {

using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tensor;
using runtime::Value;

Status check_dtypes(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (is_float8(a.dtype()) || a.dtype() == DType::kComplexHalf) return Status(Code::kUnsupported, str_cat("matrix product of ", dtype_name(a.dtype())));
  if (a.dtype() == b.dtype() && a.dtype() == out.dtype() && a.dtype() != DType::kBool) return ok_status();
  return Status(Code::kUnsupported, str_cat("a product of ", dtype_name(a.dtype()), " and ", dtype_name(b.dtype()), " into ", dtype_name(out.dtype())));
}

Status check_inner(const Tensor& a, const Tensor& b) {
  if (a.rank() >= 2 && b.rank() >= 2 && a.size(a.rank() - 1) == b.size(b.rank() - 2)) return ok_status();
  return Status(Code::kInvalidInput, str_cat("shapes ", shape_text(a.sizes()), " and ", shape_text(b.sizes()), " do not multiply"));
}

/// The product over the last two dims of a, b and out.
GemmCall call_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  const int ra = a.rank(), rb = b.rank(), ro = out.rank();
  GemmCall call;
  call.dtype = a.dtype();
  call.m = a.size(ra - 2), call.k = a.size(ra - 1), call.n = b.size(rb - 1);
  call.a = {a.view.data, a.stride(ra - 2), a.stride(ra - 1), nullptr, nullptr};
  call.b = {b.view.data, b.stride(rb - 1), b.stride(rb - 2), nullptr, nullptr};
  call.c = out.view.data;
  call.c_m = out.stride(ro - 2), call.c_n = out.stride(ro - 1);
  return call;
}

const std::byte* at(const void* data, int64_t elements, size_t element_bytes) {
  return static_cast<const std::byte*>(data) + elements * static_cast<int64_t>(element_bytes);
}

/// Adds beta * init, broadcast to the output's last two dims (and dim 0 if both have three).
Status set_init(const Tensor& init, const Scalar& beta, const Tensor& out, GemmCall* call, int64_t* batch_stride) {
  *batch_stride = 0;
  if (beta.to_double() == 0) return ok_status();
  if (init.dtype() != out.dtype() || init.rank() > out.rank()) {
    return Status(Code::kInvalidInput, str_cat("a summand ", dtype_name(init.dtype()), shape_text(init.sizes()), " for ", dtype_name(out.dtype()), shape_text(out.sizes())));
  }
  int64_t strides[3] = {0, 0, 0};
  for (int d = 0; d < init.rank(); ++d) {
    const int to = out.rank() - init.rank() + d;
    if (init.size(d) == 1) continue;
    if (init.size(d) != out.size(to)) {
      return Status(Code::kInvalidInput, str_cat("summand ", shape_text(init.sizes()), " does not broadcast to ", shape_text(out.sizes())));
    }
    strides[to + 3 - out.rank()] = init.stride(d);
  }
  call->init = init.view.data;
  *batch_stride = strides[0], call->init_m = strides[1], call->init_n = strides[2];
  call->beta = beta.to_double();
  return ok_status();
}

Status mm_out(KernelContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  PTERON_TRY(check_dtypes(self, mat2, out));
  PTERON_TRY(check_inner(self, mat2));
  PTERON_TRY(resize(out, Sizes{self.size(0), mat2.size(1)}));
  gemm(call_of(self, mat2, out), *context.pool, context.scratch);
  return ok_status();
}

Status addmm_out(KernelContext& context, const Tensor& self, const Tensor& mat1, const Tensor& mat2, Scalar beta, Scalar alpha, Tensor& out) {
  PTERON_TRY(check_dtypes(mat1, mat2, out));
  PTERON_TRY(check_inner(mat1, mat2));
  PTERON_TRY(resize(out, Sizes{mat1.size(0), mat2.size(1)}));
  GemmCall call = call_of(mat1, mat2, out);
  int64_t batch_stride = 0;
  PTERON_TRY(set_init(self, beta, out, &call, &batch_stride));
  call.alpha = alpha.to_double();
  gemm(call, *context.pool, context.scratch);
  return ok_status();
}

void run_batches(KernelContext& context, const GemmCall& first, int64_t count, int64_t a, int64_t b, int64_t c, int64_t init) {
  const size_t bytes = dtype_size(first.dtype);
  const auto call_at = [&](int64_t i) {
    GemmCall call = first;
    call.a.data = at(first.a.data, i * a, bytes);
    call.b.data = at(first.b.data, i * b, bytes);
    call.c = static_cast<std::byte*>(first.c) + i * c * static_cast<int64_t>(bytes);
    if (first.init != nullptr) call.init = at(first.init, i * init, bytes);
    return call;
  };
  gemm_batched(first, count, call_at, *context.pool, context.scratch);
}

Status bmm_out(KernelContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  PTERON_TRY(check_dtypes(self, mat2, out));
  PTERON_TRY(check_inner(self, mat2));
  PTERON_TRY(resize(out, Sizes{self.size(0), self.size(1), mat2.size(2)}));
  run_batches(context, call_of(self, mat2, out), out.size(0), self.stride(0), mat2.stride(0), out.stride(0), 0);
  return ok_status();
}

Status baddbmm_out(KernelContext& context, const Tensor& self, const Tensor& batch1, const Tensor& batch2, Scalar beta, Scalar alpha, Tensor& out) {
  PTERON_TRY(check_dtypes(batch1, batch2, out));
  PTERON_TRY(check_inner(batch1, batch2));
  PTERON_TRY(resize(out, Sizes{batch1.size(0), batch1.size(1), batch2.size(2)}));
  GemmCall call = call_of(batch1, batch2, out);
  int64_t init_stride = 0;
  PTERON_TRY(set_init(self, beta, out, &call, &init_stride));
  call.alpha = alpha.to_double();
  run_batches(context, call, out.size(0), batch1.stride(0), batch2.stride(0), out.stride(0), init_stride);
  return ok_status();
}

/// How many of the dims before the last can be walked with one stride, in both tensors: the rows of one product.
int row_dims(const Tensor& in, const Tensor& out) {
  int dims = 0;
  for (int d = in.rank() - 2; d >= 0; --d, ++dims) {
    if (dims == 0) continue;
    const bool joins_in = in.size(d) == 1 || in.stride(d) == in.stride(d + 1) * in.size(d + 1);
    const bool joins_out = out.size(d) == 1 || out.stride(d) == out.stride(d + 1) * out.size(d + 1);
    if (!joins_in || !joins_out) break;
  }
  return dims;
}

Status linear_out(KernelContext& context, const Tensor& input, const Tensor& weight, const Tensor* bias, Tensor& out) {
  PTERON_TRY(check_dtypes(input, weight, out));
  const int rank = input.rank();
  if (rank < 1 || weight.rank() < 1 || weight.rank() > 2 || input.size(rank - 1) != weight.size(weight.rank() - 1)) {
    return Status(Code::kInvalidInput, str_cat("linear of input ", shape_text(input.sizes()), " and weight ", shape_text(weight.sizes())));
  }
  Sizes sizes(input.sizes().first(static_cast<size_t>(rank - 1)));
  if (weight.rank() == 2) sizes.push_back(weight.size(0));
  PTERON_TRY(resize(out, sizes));
  // A weight of rank 1 is one column; give the output a last dim for it.
  Tensor to = out;
  if (weight.rank() == 1) {
    to.view.size_array[static_cast<size_t>(rank - 1)] = 1;
    to.view.stride_array[static_cast<size_t>(rank - 1)] = 1;
    to.view.rank = static_cast<uint8_t>(rank);
  }
  GemmCall call;
  call.dtype = input.dtype();
  call.k = input.size(rank - 1);
  call.n = to.size(rank - 1);
  call.b = {weight.view.data, weight.rank() == 2 ? weight.stride(0) : 0, weight.stride(weight.rank() - 1), nullptr, nullptr};
  call.c_n = to.stride(rank - 1);
  if (bias != nullptr) {
    if (bias->dtype() != input.dtype() || (bias->numel() != call.n && bias->numel() != 1) || bias->rank() > 1) {
      return Status(Code::kInvalidInput, str_cat("linear: bias ", shape_text(bias->sizes()), " for ", call.n, " columns"));
    }
    call.init = bias->view.data;
    call.init_n = bias->rank() == 0 || bias->size(0) == 1 ? 0 : bias->stride(0);
  }
  const int joined = row_dims(input, to);
  call.m = 1;
  for (int d = rank - 1 - joined; d < rank - 1; ++d) call.m *= input.size(d);
  call.a.stride_k = input.stride(rank - 1);
  if (joined > 0) {
    // The innermost joined dim of more than one element gives the stride; any does if all are 1.
    int d = rank - 2;
    while (d > rank - 1 - joined && input.size(d) == 1) --d;
    call.a.stride_r = input.stride(d);
    call.c_m = to.stride(d);
  }
  int64_t outer = 1;
  for (int d = 0; d < rank - 1 - joined; ++d) outer *= input.size(d);
  const size_t bytes = dtype_size(input.dtype());
  for (int64_t i = 0; i < outer; ++i) {
    int64_t rest = i, in_offset = 0, out_offset = 0;
    for (int d = rank - 2 - joined; d >= 0; --d) {
      const int64_t index = rest % input.size(d);
      rest /= input.size(d);
      in_offset += index * input.stride(d);
      out_offset += index * to.stride(d);
    }
    call.a.data = at(input.view.data, in_offset, bytes);
    call.c = static_cast<std::byte*>(to.view.data) + out_offset * static_cast<int64_t>(bytes);
    gemm(call, *context.pool, context.scratch);
  }
  return ok_status();
}

size_t product_workspace(const Tensor& a, const Tensor& b) {
  if (a.rank() < 2 || b.rank() < 2) return 0;
  return gemm_workspace(a.dtype(), a.size(a.rank() - 2), b.size(b.rank() - 1), a.size(a.rank() - 1));
}
size_t workspace_2(std::span<Value* const> args) { return product_workspace(args[0]->tensor, args[1]->tensor); }
size_t workspace_3(std::span<Value* const> args) { return product_workspace(args[1]->tensor, args[2]->tensor); }
size_t linear_workspace(std::span<Value* const> args) {
  const Tensor& input = args[0]->tensor;
  const Tensor& weight = args[1]->tensor;
  if (input.rank() < 1 || weight.rank() < 1) return 0;
  const int64_t k = input.size(input.rank() - 1);
  return gemm_workspace(input.dtype(), k == 0 ? 0 : input.numel() / k, weight.rank() == 2 ? weight.size(0) : 1, k);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::addmm.out", PTERON_KERNEL(addmm_out), workspace_3},
    {"aten::baddbmm.out", PTERON_KERNEL(baddbmm_out), workspace_3},
    {"aten::bmm.out", PTERON_KERNEL(bmm_out), workspace_2},
    {"aten::linalg_det.out", kDetKernel, lu_workspace},
    {"aten::linalg_inv_ex.inverse", kInverseKernel, lu_workspace},
    {"aten::linear.out", PTERON_KERNEL(linear_out), linear_workspace},
    {"aten::mm.out", PTERON_KERNEL(mm_out), workspace_2},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::matmul
