// aten::clone and aten::copy_, which emit writes for values that must not be views. Bytes that lie alike are one copy of the driver's; others are kernel
// pteron_copy of the payload's module.
#include "backends/cuda/runtime/copies.h"

#include <algorithm>
#include <array>

#include "backends/cuda/copy_kernel.h"
#include "backends/cuda/runtime/kernels.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

struct Dim {
  int64_t size, to, from;
};

/// Dims of more than one element by their strides in `to`, innermost first; neighbours that lie as one in both are one.
std::vector<Dim> common_dims(const TensorView& from, const TensorView& to) {
  std::vector<Dim> dims;
  for (size_t d = 0; d < to.rank; ++d) {
    if (to.size_array[d] > 1) dims.push_back({to.size_array[d], to.stride_array[d], from.stride_array[d]});
  }
  std::ranges::stable_sort(dims, [](const Dim& a, const Dim& b) { return a.to < b.to; });
  std::vector<Dim> merged;
  for (const Dim& dim : dims) {
    if (!merged.empty() && dim.to == merged.back().to * merged.back().size && dim.from == merged.back().from * merged.back().size) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

Status clone(KernelContext& context, const Tensor& self, std::optional<int64_t> /*memory_format*/, Tensor& out) {
  PTERON_TRY(runtime::resize(out, self.sizes()));
  return copy_tensor(session_of(context), self.view, out.view);
}

Status copy(KernelContext& context, const Tensor& /*self*/, const Tensor& source, bool /*non_blocking*/, Tensor& out) {
  if (!std::ranges::equal(source.sizes(), out.sizes())) return Status(Code::kUnsupported, "a copy on the device that broadcasts");
  return copy_tensor(session_of(context), source.view, out.view);
}

constexpr runtime::Kernel kRows[] = {
    {"aten::clone.out", PTERON_KERNEL(clone)},
    {"aten::copy_", PTERON_KERNEL(copy)},
};

}  // namespace

Status copy_tensor(Session& session, const TensorView& from, const TensorView& to) {
  if (from.dtype != to.dtype) return Status(Code::kUnsupported, "a copy on the device that changes the dtype");
  if (from.data == to.data || to.numel() == 0) return ok_status();
  const std::vector<Dim> dims = common_dims(from, to);
  const uint64_t source = reinterpret_cast<uint64_t>(from.data), target = reinterpret_cast<uint64_t>(to.data);
  const Driver& d = session.driver();
  if (dims.empty() || (dims.size() == 1 && dims[0].to == 1 && dims[0].from == 1)) {
    return d.check(d.copy_on_device(target, source, to.size_bytes(), session.stream()), "copying on the device");
  }
  if (dims.size() > kCopyKernelRank) return Status(Code::kUnsupported, str_cat("a copy of ", dims.size(), " dims that lie differently"));
  PTERON_ASSIGN(const Function function, session.function(kCopyKernelName, 0));
  std::array<uint64_t, 4 + 3 * kCopyKernelRank> params{source, target, dtype_size(to.dtype), static_cast<uint64_t>(to.numel())};
  for (size_t i = 0; i < kCopyKernelRank; ++i) {
    const Dim dim = i < dims.size() ? dims[i] : Dim{1, 0, 0};
    params[4 + 3 * i] = static_cast<uint64_t>(dim.size);
    params[5 + 3 * i] = static_cast<uint64_t>(dim.to);
    params[6 + 3 * i] = static_cast<uint64_t>(dim.from);
  }
  constexpr int64_t kThreads = 256;
  const int64_t blocks = std::min<int64_t>((to.numel() + kThreads - 1) / kThreads, int64_t{16} * session.device().multiprocessors());
  return session.launch(function, {static_cast<unsigned>(blocks), 1, 1}, kThreads, 0, params);
}

std::span<const runtime::Kernel> copy_kernels() { return kRows; }

}  // namespace pteron::cuda
