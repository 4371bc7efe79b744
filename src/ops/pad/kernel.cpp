// Padding kernels. All move bytes; reflection and replication map every output position of the padded dims to an input position.
#include <algorithm>

#include "ops/convert_float8.h"
#include "ops/element.h"
#include "ops/kernels.h"
#include "ops/view/run.h"
#include "ops/walk.h"

namespace pteron::ops::pad {
namespace {

using runtime::IntList;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tensor;

/// Sizes after padding. Errors: kInvalidInput.
Status padded_sizes(const Tensor& self, const IntList& pads, Sizes* sizes) {
  if (pads.size() % 2 != 0 || pads.size() / 2 > self.sizes().size()) {
    return Status(Code::kInvalidInput, str_cat(pads.size(), " pad widths for a tensor of rank ", self.rank()));
  }
  *sizes = Sizes(self.sizes());
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    int64_t& size = (*sizes)[sizes->size() - 1 - i];
    size += pads[2 * i] + pads[2 * i + 1];
    if (size < 0) return Status(Code::kInvalidInput, str_cat("padding makes a dim of size ", size));
  }
  return ok_status();
}

/// 8-bit floats have no C++ type: their bits are made here.
Status fill_with(KernelContext& context, const Scalar& value, const TensorView& to) {
  if (!is_float8(to.dtype)) return fill_tensor(context, value, to);
  Element bits;
  bits.bytes[0] = std::byte{float_to_float8(static_cast<float>(value.to_double()), float8_format(to.dtype))};
  return fill_tensor(context, bits, to);
}

Status constant_pad_nd(KernelContext& context, const Tensor& self, IntList pads, Scalar value, Tensor& out) {
  Sizes sizes;
  PTERON_TRY(padded_sizes(self, pads, &sizes));
  PTERON_TRY(resize(out, sizes));
  PTERON_TRY(fill_with(context, value, out.view));
  view::Placed from = view::placed(self.view), to = view::placed(out.view);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const auto d = static_cast<int64_t>(sizes.size() - 1 - i);
    const int64_t left = pads[2 * i], right = pads[2 * i + 1];
    const int64_t skip = std::max<int64_t>(-left, 0), length = self.size(static_cast<int>(d)) - skip - std::max<int64_t>(-right, 0);
    if (length <= 0) return ok_status();
    PTERON_TRY(view::narrow(from, d, skip, length));
    PTERON_TRY(view::narrow(to, d, std::max<int64_t>(left, 0), length));
  }
  return copy_tensor(context, view::view_of(self.view, from), view::view_of(out.view, to));
}

int64_t reflected(int64_t at, int64_t left, int64_t size) {
  if (at < left) return left - at;
  if (at < size + left) return at - left;
  return (size - 1) * 2 + left - at;
}
int64_t replicated(int64_t at, int64_t left, int64_t size) { return std::clamp<int64_t>(at - left, 0, size - 1); }

using MapFn = int64_t (*)(int64_t at, int64_t left, int64_t size);

/// The padded dims are the last pads.size() / 2 of the tensor.
template <typename T, MapFn map>
void write_mapped(KernelContext& context, const Tensor& self, const IntList& pads, Tensor& out) {
  const int last = self.rank() - 1;
  const int first_padded = self.rank() - static_cast<int>(pads.size() / 2);
  const int64_t width = self.size(last), out_width = out.size(last), left = pads[0];
  const int64_t step = self.stride(last), out_step = out.stride(last);
  const int64_t inner_begin = std::clamp<int64_t>(left, 0, out_width), inner_end = std::clamp<int64_t>(left + width, inner_begin, out_width);
  const Sizes outer = without_last(out.sizes());
  context.pool->parallel_for(index_count(outer), row_grain(out_width), [&](int64_t begin, int64_t end) {
    walk<1>(outer, {without_last(out.strides())}, begin, end, [&](const std::array<int64_t, 1>& at, const Sizes& index) {
      int64_t source = 0;
      for (int d = 0; d < last; ++d) {
        const int64_t i = index[static_cast<size_t>(d)];
        const int64_t from = d < first_padded ? i : map(i, pads[static_cast<size_t>(2 * (last - d))], self.size(d));
        source += from * self.stride(d);
      }
      const T* row = self.as<T>() + source;
      T* to = out.as<T>() + at[0];
      for (int64_t i = 0; i < inner_begin; ++i) to[i * out_step] = row[map(i, left, width) * step];
      if (step == 1 && out_step == 1) {
        std::copy(row + (inner_begin - left), row + (inner_end - left), to + inner_begin);
      } else {
        for (int64_t i = inner_begin; i < inner_end; ++i) to[i * out_step] = row[(i - left) * step];
      }
      for (int64_t i = inner_end; i < out_width; ++i) to[i * out_step] = row[map(i, left, width) * step];
    });
  });
}

template <MapFn map, size_t dims>
Status mapped(KernelContext& context, const Tensor& self, IntList pads, Tensor& out) {
  Sizes sizes;
  if (pads.size() != 2 * dims) return Status(Code::kInvalidInput, str_cat(pads.size(), " pad widths, expected ", 2 * dims));
  PTERON_TRY(padded_sizes(self, pads, &sizes));
  for (size_t i = 0; i < 2 * dims; ++i) {
    const int64_t size = self.size(self.rank() - 1 - static_cast<int>(i / 2));
    const bool fits = map == reflected ? pads[i] < size : size > 0;
    if (!fits) return Status(Code::kInvalidInput, str_cat("padding of width ", pads[i], " from a dim of size ", size));
  }
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() { write_mapped<T, map>(context, self, pads, out); });
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::constant_pad_nd.out", PTERON_KERNEL(constant_pad_nd)},
    {"aten::reflection_pad1d.out", PTERON_KERNEL((mapped<reflected, 1>))},
    {"aten::reflection_pad2d.out", PTERON_KERNEL((mapped<reflected, 2>))},
    {"aten::reflection_pad3d.out", PTERON_KERNEL((mapped<reflected, 3>))},
    {"aten::replication_pad1d.out", PTERON_KERNEL((mapped<replicated, 1>))},
    {"aten::replication_pad2d.out", PTERON_KERNEL((mapped<replicated, 2>))},
    {"aten::replication_pad3d.out", PTERON_KERNEL((mapped<replicated, 3>))},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::pad
