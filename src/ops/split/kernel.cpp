// Copying kernels of split, split_with_sizes and unbind, for files of the official tools (our compiler makes slices of them).
#include "ops/kernels.h"
#include "ops/view/run.h"

namespace pteron::ops::split {
namespace {

using runtime::IntList;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::TensorList;

/// Copies self[start, start + length) of `dim` into result i. Errors: kInvalidInput.
Status write_piece(KernelContext& context, const Tensor& self, int64_t dim, int64_t start, int64_t length, TensorList out, size_t i) {
  if (i >= out.size() || out[i]->tag != Tag::kTensor) return Status(Code::kInvalidInput, str_cat("split makes more than the ", out.size(), " results given"));
  view::Placed v = view::placed(self.view);
  PTERON_TRY(view::narrow(v, dim, start, length));
  return view::write_view(context, self, v, out[i]->tensor);
}

Status split_copy(KernelContext& context, const Tensor& self, int64_t split_size, int64_t dim, TensorList out) {
  if (self.rank() == 0) return Status(Code::kInvalidInput, "split of a tensor of rank 0");
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  const int64_t size = self.size(d);
  if (split_size < 0 || (split_size == 0 && size != 0)) return Status(Code::kInvalidInput, str_cat("pieces of size ", split_size));
  const int64_t count = split_size == 0 ? 1 : std::max<int64_t>(ceil_div(size, split_size), 1);
  if (count != static_cast<int64_t>(out.size())) return Status(Code::kInvalidInput, str_cat("split makes ", count, " pieces for ", out.size(), " results"));
  for (int64_t i = 0; i < count; ++i) {
    PTERON_TRY(write_piece(context, self, d, i * split_size, std::min(split_size, size - i * split_size), out, static_cast<size_t>(i)));
  }
  return ok_status();
}

/// split_sizes may have any length, so the boxed list is read here instead of through IntList.
Status split_with_sizes_copy(KernelContext& context, const Tensor& self, runtime::Value& split_sizes, int64_t dim, TensorList out) {
  if (self.rank() == 0) return Status(Code::kInvalidInput, "split of a tensor of rank 0");
  if (split_sizes.tag != Tag::kIntList || split_sizes.items.size() != out.size()) return Status(Code::kInvalidInput, "split_with_sizes: sizes do not fit the results");
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  int64_t start = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t length = split_sizes.items[i]->integer;
    PTERON_TRY(write_piece(context, self, d, start, length, out, i));
    start += length;
  }
  if (start != self.size(d)) return Status(Code::kInvalidInput, str_cat("split sizes sum to ", start, ", the dim has ", self.size(d)));
  return ok_status();
}

Status unbind_copy(KernelContext& context, const Tensor& self, int64_t dim, TensorList out) {
  if (self.rank() == 0) return Status(Code::kInvalidInput, "unbind of a tensor of rank 0");
  PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
  if (self.size(d) != static_cast<int64_t>(out.size())) return Status(Code::kInvalidInput, str_cat("unbind of ", self.size(d), " into ", out.size(), " results"));
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i]->tag != Tag::kTensor) return Status(Code::kInvalidInput, "unbind: a result is not a tensor");
    view::Placed v = view::placed(self.view);
    PTERON_TRY(view::select(v, d, static_cast<int64_t>(i)));
    PTERON_TRY(view::write_view(context, self, v, out[i]->tensor));
  }
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::split_copy.Tensor_out", PTERON_KERNEL(split_copy)},
    {"aten::split_with_sizes_copy.out", PTERON_KERNEL(split_with_sizes_copy)},
    {"aten::unbind_copy.int_out", PTERON_KERNEL(unbind_copy)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::split
