// tril, triu, diag_embed. All move bytes; what is not copied is zero.
#include "ops/element.h"
#include "ops/kernels.h"
#include "ops/view/run.h"
#include "ops/walk.h"

namespace pteron::ops::triangle {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tensor;

/// Row r keeps columns [0, r + diagonal] (lower) or [r + diagonal, width) (upper).
template <bool lower>
Status triangle(KernelContext& context, const Tensor& self, int64_t diagonal, Tensor& out) {
  if (self.rank() < 2) return Status(Code::kInvalidInput, str_cat("tril or triu of a tensor of rank ", self.rank()));
  PTERON_TRY(resize(out, self.sizes()));
  const int last = self.rank() - 1;
  const int64_t width = self.size(last), step = self.stride(last), out_step = out.stride(last);
  if (self.numel() == 0) return ok_status();
  const int64_t shift = std::clamp<int64_t>(diagonal, -self.size(last - 1) - 1, width + 1);
  const Sizes outer = without_last(self.sizes());
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(index_count(outer), row_grain(width), [&](int64_t begin, int64_t end) {
      walk<2>(outer, {without_last(self.strides()), without_last(out.strides())}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes& index) {
        const T* from = self.as<T>() + at[0];
        T* to = out.as<T>() + at[1];
        const int64_t edge = std::clamp<int64_t>(index[index.size() - 1] + shift + (lower ? 1 : 0), 0, width);
        const int64_t keep_begin = lower ? 0 : edge, keep_end = lower ? edge : width;
        for (int64_t i = 0; i < keep_begin; ++i) to[i * out_step] = T{};
        for (int64_t i = keep_begin; i < keep_end; ++i) to[i * out_step] = from[i * step];
        for (int64_t i = keep_end; i < width; ++i) to[i * out_step] = T{};
      });
    });
  });
  return ok_status();
}

Status diag_embed(KernelContext& context, const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2, Tensor& out) {
  if (self.rank() == 0 || self.rank() >= kMaxRank) return Status(Code::kInvalidInput, str_cat("diag_embed of a tensor of rank ", self.rank()));
  PTERON_ASSIGN(const int a, wrap_dim(dim1, self.rank() + 1));
  PTERON_ASSIGN(const int b, wrap_dim(dim2, self.rank() + 1));
  Sizes sizes = without_last(self.sizes());
  const int64_t length = self.size(self.rank() - 1) + std::abs(offset);
  sizes.insert(static_cast<size_t>(std::min(a, b)), length);
  sizes.insert(static_cast<size_t>(std::max(a, b)), length);
  PTERON_TRY(resize(out, sizes));
  Element zero;
  PTERON_TRY(fill_tensor(context, zero, out.view));
  view::Placed v = view::placed(out.view);
  PTERON_TRY(view::diagonal(v, offset, a, b));
  return copy_tensor(context, self.view, view::view_of(out.view, v));
}

constexpr Kernel kTable[] = {
    {"aten::tril.out", PTERON_KERNEL(triangle<true>)},
    {"aten::triu.out", PTERON_KERNEL(triangle<false>)},
    {"aten::diag_embed.out", PTERON_KERNEL(diag_embed)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::triangle
