// A few small kernels, so that tests and fuzz targets of the runtime need none of the op rooms.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/kernel.h"
#include "tensor/shape.h"

namespace pteron::runtime::testing {

/// out = self + alpha * other, float32, with broadcasting left out: sizes must be equal.
inline Status add_out(KernelContext&, const Tensor& self, const Tensor& other, Scalar alpha, Tensor& out) {
  if (self.dtype() != DType::kFloat32 || other.dtype() != DType::kFloat32 || out.dtype() != DType::kFloat32) {
    return Status(Code::kUnsupported, "only float32");
  }
  if (self.numel() > 100000 || Sizes(self.sizes()) != Sizes(other.sizes())) return Status(Code::kUnsupported, "only small tensors of equal sizes");
  PTERON_TRY(resize(out, self.sizes()));
  const Sizes dense(self.sizes());
  std::vector<float> left(static_cast<size_t>(self.numel()) + 1), right(left.size());
  copy_strided(self.view, make_contiguous_view(DType::kFloat32, dense, left.data()));
  copy_strided(other.view, make_contiguous_view(DType::kFloat32, dense, right.data()));
  for (size_t i = 0; i < left.size(); ++i) left[i] += static_cast<float>(alpha.to_double()) * right[i];
  copy_strided(make_contiguous_view(DType::kFloat32, dense, left.data()), out.view);
  return ok_status();
}

/// self = src.
inline Status copy_in_place(KernelContext&, Tensor& self, const Tensor& src, bool) {
  if (self.dtype() != src.dtype() || src.numel() > 100000) return Status(Code::kUnsupported, "only small tensors of one dtype");
  PTERON_TRY(resize(self, src.sizes()));
  copy_strided(src.view, self.view);
  return ok_status();
}

inline Status fail_out(KernelContext&, const Tensor&, Tensor&) { return Status(Code::kInvalidInput, "this kernel always fails"); }

/// Enough for the argument at its bound.
inline size_t scratch_size(std::span<Value* const> args) { return args[0]->tensor.view.size_bytes(); }
/// Fails unless the scratch holds the bound of its argument.
inline Status scratch_out(KernelContext& context, const Tensor& self, Tensor& out) {
  if (self.dtype() != out.dtype() || self.numel() > 100000) return Status(Code::kUnsupported, "only small tensors of one dtype");
  if (context.scratch.size() < out.capacity_bytes) return Status(Code::kInternal, "scratch is too small");
  PTERON_TRY(resize(out, self.sizes()));
  copy_strided(self.view, out.view);
  return ok_status();
}

/// Needs `count` bytes.
inline size_t count_size(std::span<Value* const> args) { return static_cast<size_t>(std::max<int64_t>(args[1]->integer, 0)); }
inline Status count_out(KernelContext& context, const Tensor& self, int64_t count, Tensor& out) {
  if (static_cast<int64_t>(context.scratch.size()) < count) return Status(Code::kInternal, "scratch is too small");
  return scratch_out(context, self, out);
}

/// out = 2 * self, float32, in parts on the pool.
inline Status twice_out(KernelContext& context, const Tensor& self, Tensor& out) {
  if (self.dtype() != DType::kFloat32 || out.dtype() != DType::kFloat32 || !self.view.is_contiguous()) return Status(Code::kUnsupported, "only dense float32");
  PTERON_TRY(resize(out, self.sizes()));
  context.pool->parallel_for(self.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out.as<float>()[i] = 2 * self.as<float>()[i];
  });
  return ok_status();
}

inline const KernelTable& test_kernels() {
  static const KernelTable table = [] {
    static constexpr Kernel kRows[] = {
        {"aten::add.out", PTERON_KERNEL(add_out)},
        {"aten::copy_", PTERON_KERNEL(copy_in_place)},
        {"test::count.out", PTERON_KERNEL(count_out), count_size},
        {"test::fail.out", PTERON_KERNEL(fail_out)},
        {"test::scratch.out", PTERON_KERNEL(scratch_out), scratch_size},
        {"test::twice.out", PTERON_KERNEL(twice_out)},
    };
    KernelTable made;
    made.add(kRows);
    return made;
  }();
  return table;
}

}  // namespace pteron::runtime::testing
