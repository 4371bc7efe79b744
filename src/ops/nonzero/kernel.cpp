// nonzero, nonzero_static, masked_select, masked_scatter.
#include "ops/copy.h"
#include "ops/element.h"
#include "ops/kernels.h"
#include "ops/view/run.h"
#include "ops/walk.h"

namespace pteron::ops::nonzero {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

template <typename T>
bool is_set(const T& x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return (x.bits & 0x7fffu) != 0;
  } else {
    return x != T(0);
  }
}

/// fn(offset, index) for the non-zero elements in row-major order. False for dtypes without a C++ type.
template <typename Fn>
bool for_nonzero(const Tensor& t, Fn&& fn) {
  return dispatch_dtype(t.dtype(), [&]<typename T>() {
    const T* data = t.as<T>();
    walk<1>(t.sizes(), {Sizes(t.strides())}, 0, t.numel(), [&](const std::array<int64_t, 1>& at, const Sizes& index) {
      if (is_set(data[at[0]])) fn(at[0], index);
    });
  });
}

Status bad_dtype(const Tensor& t) { return Status(Code::kUnsupported, str_cat("nonzero of dtype ", dtype_name(t.dtype()))); }

Status nonzero(KernelContext&, const Tensor& self, Tensor& out) {
  int64_t count = 0;
  if (!for_nonzero(self, [&](int64_t, const Sizes&) { ++count; })) return bad_dtype(self);
  if (out.dtype() != DType::kInt64) return Status(Code::kInvalidInput, str_cat("nonzero into dtype ", dtype_name(out.dtype())));
  PTERON_TRY(resize(out, Sizes{count, self.rank()}));
  auto* to = out.as<int64_t>();
  for_nonzero(self, [&](int64_t, const Sizes& index) {
    for (size_t d = 0; d < index.size(); ++d) to[static_cast<int64_t>(d) * out.stride(1)] = index[d];
    to += out.stride(0);
  });
  return ok_status();
}

Status nonzero_static(KernelContext&, const Tensor& self, int64_t size, int64_t fill, Tensor& out) {
  if (size < 0) return Status(Code::kInvalidInput, str_cat("nonzero_static of size ", size));
  if (out.dtype() != DType::kInt64) return Status(Code::kInvalidInput, str_cat("nonzero_static into dtype ", dtype_name(out.dtype())));
  PTERON_TRY(resize(out, Sizes{size, self.rank()}));
  int64_t row = 0;
  const bool done = for_nonzero(self, [&](int64_t, const Sizes& index) {
    if (row == size) return;
    for (size_t d = 0; d < index.size(); ++d) out.as<int64_t>()[row * out.stride(0) + static_cast<int64_t>(d) * out.stride(1)] = index[d];
    ++row;
  });
  if (!done) return bad_dtype(self);
  for (; row < size; ++row) {
    for (int64_t d = 0; d < self.rank(); ++d) out.as<int64_t>()[row * out.stride(0) + d * out.stride(1)] = fill;
  }
  return ok_status();
}

/// Strides of a tensor over a shape that it broadcasts to.
Sizes broadcast_strides(const Tensor& t, const Sizes& sizes) {
  Sizes strides(sizes.size(), 0);
  const size_t missing = sizes.size() - t.sizes().size();
  for (int d = 0; d < t.rank(); ++d) {
    if (t.size(d) != 1) strides[missing + static_cast<size_t>(d)] = t.stride(d);
  }
  return strides;
}

Status check_mask(const Tensor& mask) {
  if (mask.dtype() == DType::kBool || mask.dtype() == DType::kUInt8) return ok_status();
  return Status(Code::kInvalidInput, str_cat("mask of dtype ", dtype_name(mask.dtype())));
}

Status masked_select(KernelContext&, const Tensor& self, const Tensor& mask, Tensor& out) {
  Sizes sizes;
  PTERON_TRY(check_mask(mask));
  PTERON_TRY(broadcast_sizes(self.sizes(), mask.sizes(), &sizes));
  const int64_t total = index_count(sizes);
  const auto* set = mask.as<uint8_t>();
  int64_t count = 0;
  const Sizes mask_strides = broadcast_strides(mask, sizes);
  walk<1>(sizes, {mask_strides}, 0, total, [&](const std::array<int64_t, 1>& at, const Sizes&) { count += set[at[0]] != 0 ? 1 : 0; });
  PTERON_TRY(resize(out, Sizes{count}));
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    T* to = out.as<T>();
    walk<2>(sizes, {mask_strides, broadcast_strides(self, sizes)}, 0, total, [&](const std::array<int64_t, 2>& at, const Sizes&) {
      if (set[at[0]] == 0) return;
      *to = self.as<T>()[at[1]];
      to += out.stride(0);
    });
  });
  return ok_status();
}

Status masked_scatter(KernelContext& context, const Tensor& self, const Tensor& mask, const Tensor& source, Tensor& out) {
  Sizes sizes;
  PTERON_TRY(check_mask(mask));
  if (source.dtype() != self.dtype()) return Status(Code::kInvalidInput, str_cat("masked_scatter of ", dtype_name(source.dtype()), " into ", dtype_name(self.dtype())));
  PTERON_TRY(broadcast_sizes(self.sizes(), mask.sizes(), &sizes));
  PTERON_TRY(resize(out, sizes));
  if (out.view.data != self.view.data) PTERON_TRY(copy_tensor(context, self.view, out.view));
  const auto* set = mask.as<uint8_t>();
  const int64_t available = source.numel();
  const bool flat = source.view.is_contiguous();
  int64_t used = 0;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    walk<2>(sizes, {broadcast_strides(mask, sizes), Sizes(out.strides())}, 0, index_count(sizes), [&](const std::array<int64_t, 2>& at, const Sizes&) {
      if (set[at[0]] == 0) return;
      if (used < available) out.as<T>()[at[1]] = source.as<T>()[flat ? used : view::offset_of(source.view, used)];
      ++used;
    });
  });
  if (used > available) return Status(Code::kInvalidInput, str_cat("masked_scatter: the mask selects ", used, " elements, the source has ", available));
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::nonzero.out", PTERON_KERNEL(nonzero)},
    {"aten::nonzero_static.out", PTERON_KERNEL(nonzero_static)},
    {"aten::masked_select.out", PTERON_KERNEL(masked_select)},
    {"aten::masked_scatter.out", PTERON_KERNEL(masked_scatter)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::nonzero
