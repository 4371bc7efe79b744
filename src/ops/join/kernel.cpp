// cat and stack: each input is copied (and converted if its dtype differs) into its part of the result. Inputs of cat that lie there already (emit
// lets their producers write there) are left alone.
#include "ops/kernels.h"
#include "ops/view/run.h"

namespace pteron::ops::join {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::TensorList;

/// True if a's elements are b's, in memory too: an input that was computed in its place.
bool is_there(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

bool is_skipped(const Tensor& t) { return t.rank() == 1 && t.size(0) == 0; }

Status cat(KernelContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  PTERON_ASSIGN(const int d, wrap_dim(dim, out.rank()));
  Sizes sizes(out.sizes());
  int64_t total = 0;
  bool first = true;
  for (const runtime::Value* item : tensors) {
    if (item->tag != Tag::kTensor) return Status(Code::kInvalidInput, "cat: an item is not a tensor");
    const Tensor& t = item->tensor;
    if (is_skipped(t)) continue;
    if (t.rank() != out.rank()) return Status(Code::kInvalidInput, str_cat("cat of a tensor of rank ", t.rank(), " into rank ", out.rank()));
    if (first) sizes = Sizes(t.sizes());
    first = false;
    for (int i = 0; i < t.rank(); ++i) {
      if (i != d && t.size(i) != sizes[static_cast<size_t>(i)]) {
        return Status(Code::kInvalidInput, str_cat("cat along dim ", d, ": shape ", shape_text(t.sizes()), " does not fit ", shape_text(sizes)));
      }
    }
    total += t.size(d);
  }
  if (sizes.empty()) return Status(Code::kInvalidInput, "cat of tensors of rank 0");
  sizes[static_cast<size_t>(d)] = total;
  PTERON_TRY(resize(out, sizes));
  int64_t start = 0;
  for (const runtime::Value* item : tensors) {
    const Tensor& t = item->tensor;
    if (is_skipped(t)) continue;
    view::Placed v = view::placed(out.view);
    PTERON_TRY(view::narrow(v, d, start, t.size(d)));
    const TensorView part = view::view_of(out.view, v);
    if (!is_there(t.view, part)) PTERON_TRY(copy_tensor(context, t.view, part));
    start += t.size(d);
  }
  return ok_status();
}

Status stack(KernelContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  if (tensors.empty() || tensors[0]->tag != Tag::kTensor) return Status(Code::kInvalidInput, "stack of no tensors");
  const Tensor& first = tensors[0]->tensor;
  if (first.rank() >= kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  PTERON_ASSIGN(const int d, wrap_dim(dim, first.rank() + 1));
  Sizes sizes(first.sizes());
  sizes.insert(static_cast<size_t>(d), static_cast<int64_t>(tensors.size()));
  PTERON_TRY(resize(out, sizes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->tag != Tag::kTensor) return Status(Code::kInvalidInput, "stack: an item is not a tensor");
    const Tensor& t = tensors[i]->tensor;
    if (!(Sizes(t.sizes()) == Sizes(first.sizes()))) {
      return Status(Code::kInvalidInput, str_cat("stack of shapes ", shape_text(first.sizes()), " and ", shape_text(t.sizes())));
    }
    view::Placed v = view::placed(out.view);
    PTERON_TRY(view::select(v, d, static_cast<int64_t>(i)));
    PTERON_TRY(copy_tensor(context, t.view, view::view_of(out.view, v)));
  }
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::cat.out", PTERON_KERNEL(cat)},
    {"aten::stack.out", PTERON_KERNEL(stack)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::join
