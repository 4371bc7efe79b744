// nonzero, nonzero_static, masked_select, masked_scatter, isin.
#include <algorithm>
#include <cmath>

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

bool reads_as_int(DType d) { return is_integral(d, true); }

template <typename N, typename T>
N number_as(const T& x) {
  return static_cast<N>(to_math(x));
}

/// Elements in N (int64 if both sides are integers, double otherwise), sorted in scratch, then looked up.
template <typename N>
Status look_up(KernelContext& context, const Tensor* elements, N element, const Tensor* tests, N test, bool invert, Tensor& out) {
  N* sorted = reinterpret_cast<N*>(context.scratch.data());
  int64_t count = 0;
  if (tests == nullptr) {
    sorted = &test;
    count = 1;
  } else {
    if (context.scratch.size() < static_cast<size_t>(tests->numel()) * sizeof(N)) return Status(Code::kInternal, "isin: scratch is too small");
    dispatch_real(tests->dtype(), [&]<typename T>() {
      walk<1>(tests->sizes(), {Sizes(tests->strides())}, 0, tests->numel(), [&](const std::array<int64_t, 1>& at, const Sizes&) {
        const N x = number_as<N>(tests->as<T>()[at[0]]);
        if (x == x) sorted[count++] = x;  // NaN equals nothing
      });
    });
    std::sort(sorted, sorted + count);
  }
  auto* to = out.as<bool>();
  if (elements == nullptr) {
    *to = std::binary_search(sorted, sorted + count, element) != invert;
    return ok_status();
  }
  dispatch_real(elements->dtype(), [&]<typename T>() {
    context.pool->parallel_for(elements->numel(), 1024, [&](int64_t begin, int64_t end) {
      walk<2>(elements->sizes(), {Sizes(elements->strides()), Sizes(out.strides())}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes&) {
        const N x = number_as<N>(elements->as<T>()[at[0]]);
        to[at[1]] = (x == x && std::binary_search(sorted, sorted + count, x)) != invert;
      });
    });
  });
  return ok_status();
}

Status isin(KernelContext& context, const Tensor* elements, Scalar element, const Tensor* tests, Scalar test, bool invert, Tensor& out) {
  for (const Tensor* t : {elements, tests}) {
    if (t != nullptr && (is_complex(t->dtype()) || is_float8(t->dtype()))) return Status(Code::kUnsupported, str_cat("isin of dtype ", dtype_name(t->dtype())));
  }
  PTERON_TRY(resize(out, elements == nullptr ? std::span<const int64_t>() : elements->sizes()));
  const bool ints = (elements == nullptr ? element.is_integral(true) : reads_as_int(elements->dtype())) &&
                    (tests == nullptr ? test.is_integral(true) : reads_as_int(tests->dtype()));
  if (ints) return look_up<int64_t>(context, elements, element.to_int(), tests, test.to_int(), invert, out);
  return look_up<double>(context, elements, element.to_double(), tests, test.to_double(), invert, out);
}

Status isin_tensors(KernelContext& context, const Tensor& elements, const Tensor& tests, bool, bool invert, Tensor& out) {
  return isin(context, &elements, {}, &tests, {}, invert, out);
}
Status isin_tensor_scalar(KernelContext& context, const Tensor& elements, Scalar test, bool, bool invert, Tensor& out) {
  return isin(context, &elements, {}, nullptr, test, invert, out);
}
Status isin_scalar_tensor(KernelContext& context, Scalar element, const Tensor& tests, bool, bool invert, Tensor& out) {
  return isin(context, nullptr, element, &tests, {}, invert, out);
}

size_t isin_workspace(std::span<Value* const> args) { return args[1]->tag == Tag::kTensor ? static_cast<size_t>(args[1]->tensor.numel()) * sizeof(int64_t) : 0; }

constexpr Kernel kTable[] = {
    {"aten::nonzero.out", PTERON_KERNEL(nonzero)},
    {"aten::nonzero_static.out", PTERON_KERNEL(nonzero_static)},
    {"aten::masked_select.out", PTERON_KERNEL(masked_select)},
    {"aten::masked_scatter.out", PTERON_KERNEL(masked_scatter)},
    {"aten::isin.Tensor_Tensor_out", PTERON_KERNEL(isin_tensors), isin_workspace},
    {"aten::isin.Tensor_Scalar_out", PTERON_KERNEL(isin_tensor_scalar)},
    {"aten::isin.Scalar_Tensor_out", PTERON_KERNEL(isin_scalar_tensor), isin_workspace},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::nonzero
