// pteron::grouped_mm: one product of the shared gemm for each group. Compile half: op.cpp.
#include <algorithm>

#include "base/str_cat.h"
#include "ops/gemm.h"
#include "ops/kernels.h"

namespace pteron::ops::grouped_matmul {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

/// The matrix in the last two dims, of the g-th matrix if there are several.
struct Matrix {
  const Tensor& tensor;
  int64_t stride_r() const { return tensor.stride(tensor.rank() - 2); }
  int64_t stride_c() const { return tensor.stride(tensor.rank() - 1); }
  std::byte* at(int64_t g, int64_t r, int64_t c) const {
    const int64_t matrix = tensor.rank() == 3 ? g * tensor.stride(0) : 0;
    return static_cast<std::byte*>(tensor.view.data) + (matrix + r * stride_r() + c * stride_c()) * static_cast<int64_t>(dtype_size(tensor.dtype()));
  }
};

/// Groups follow one another along the rows of self (mat2 has three dims), the columns of mat2 (self has three) or the summed dim (neither has).
/// What lies behind the last group is zero.
Status grouped_mm_out(KernelContext& context, const Tensor& self, const Tensor& mat2, const Tensor& offs, Tensor& out) {
  const int ra = self.rank(), rb = mat2.rank();
  const bool rows = ra == 2 && rb == 3, columns = ra == 3 && rb == 2, summed = ra == 2 && rb == 2;
  if ((!rows && !columns && !summed) || self.size(ra - 1) != mat2.size(rb - 2)) {
    return Status(Code::kInvalidInput, str_cat("grouped product of ", shape_text(self.sizes()), " and ", shape_text(mat2.sizes())));
  }
  if (self.dtype() != mat2.dtype() || self.dtype() != out.dtype() || self.dtype() == DType::kBool || offs.dtype() != DType::kInt32) {
    return Status(Code::kUnsupported, str_cat("grouped product of ", dtype_name(self.dtype()), " and ", dtype_name(mat2.dtype()), " with offsets of dtype ",
                                              dtype_name(offs.dtype())));
  }
  const int64_t groups = offs.rank() == 1 ? offs.size(0) : -1;
  if (groups < 0 || (rows && groups != mat2.size(0)) || (columns && groups != self.size(0))) {
    return Status(Code::kInvalidInput, str_cat("grouped product of ", shape_text(self.sizes()), " and ", shape_text(mat2.sizes()), " with offsets ",
                                               shape_text(offs.sizes())));
  }
  const int64_t m = self.size(ra - 2), n = mat2.size(rb - 1), k = self.size(ra - 1), limit = rows ? m : columns ? n : k;
  PTERON_TRY(summed ? resize(out, Sizes{groups, m, n}) : resize(out, Sizes{m, n}));
  const Matrix a{self}, b{mat2}, c{out};
  int64_t start = 0;
  for (int64_t g = 0; g <= groups; ++g) {
    const bool behind = g == groups;  // nothing is summed there
    if (behind && summed) break;
    const int64_t end = behind ? limit : offs.view.as<int32_t>()[g * offs.stride(0)];
    if (end < start || end > limit) return Status(Code::kInvalidInput, str_cat("group ", g, " ends at ", end, ", expected ", start, " to ", limit));
    GemmCall call;
    call.dtype = self.dtype();
    call.m = rows ? end - start : m, call.n = columns ? end - start : n, call.k = behind ? 0 : summed ? end - start : k;
    const int64_t matrix = behind ? 0 : g;
    call.a = {a.at(matrix, rows ? start : 0, summed ? start : 0), a.stride_r(), a.stride_c(), nullptr, nullptr};
    call.b = {b.at(matrix, summed ? start : 0, columns ? start : 0), b.stride_c(), b.stride_r(), nullptr, nullptr};
    call.c = c.at(matrix, rows ? start : 0, columns ? start : 0);
    call.c_m = c.stride_r(), call.c_n = c.stride_c();
    if (call.m > 0 && call.n > 0) gemm(call, *context.pool, context.scratch);
    start = end;
  }
  return ok_status();
}

size_t workspace(std::span<Value* const> args) {
  const Tensor& a = args[0]->tensor;
  const Tensor& b = args[1]->tensor;
  if (a.rank() < 2 || b.rank() < 2) return 0;
  return gemm_workspace(a.dtype(), a.size(a.rank() - 2), b.size(b.rank() - 1), a.size(a.rank() - 1));
}

constexpr runtime::Kernel kRows[] = {{"pteron::grouped_mm.out", PTERON_KERNEL(grouped_mm_out), workspace}};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::grouped_matmul
