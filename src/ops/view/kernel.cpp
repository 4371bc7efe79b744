// Copying kernels of the view ops: a layout of the input, then one strided copy. Alias-only execution needs none of them.
#include <algorithm>
#include <cstring>

#include "ops/kernels.h"
#include "ops/view/run.h"
#include "tensor/dtype.h"

namespace pteron::ops::view {

using runtime::IntList;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tensor;

Status copy_reshaped(KernelContext& context, const TensorView& from, const TensorView& to) {
  Placed v = placed(from);
  bool aliases = true;
  PTERON_TRY(reshape(v, to.sizes(), &aliases));
  if (aliases) return copy_tensor(context, view_of(from, v), to);
  Placed w = placed(to);
  PTERON_TRY(reshape(w, from.sizes(), &aliases));
  if (aliases) return copy_tensor(context, from, view_of(to, w));
  const size_t element = dtype_size(from.dtype);
  context.pool->parallel_for(from.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to.as<std::byte>() + static_cast<size_t>(offset_of(to, i)) * element,
                  from.as<std::byte>() + static_cast<size_t>(offset_of(from, i)) * element, element);
    }
  });
  return ok_status();
}

namespace {

Status view_copy(KernelContext& context, const Tensor& self, IntList sizes, Tensor& out) {
  PTERON_TRY(infer_unknown_size<int64_t>(self.sizes(), sizes));
  int64_t have = self.numel(), want = product<int64_t>(sizes);
  if (have != want) return Status(Code::kInvalidInput, str_cat("view of shape ", shape_text(self.sizes()), " as ", shape_text(sizes)));
  PTERON_TRY(resize(out, sizes));
  return copy_reshaped(context, self.view, out.view);
}

Status view_copy_dtype(KernelContext& context, const Tensor& self, DType dtype, Tensor& out) {
  const auto from = static_cast<int64_t>(dtype_size(self.dtype())), to = static_cast<int64_t>(dtype_size(dtype));
  if (from == to) {
    PTERON_TRY(resize(out, self.sizes()));
    TensorView bits = self.view;
    bits.dtype = out.dtype();
    return copy_tensor(context, bits, out.view);
  }
  Sizes sizes(self.sizes());
  if (sizes.empty()) return Status(Code::kInvalidInput, "view of a scalar tensor as a dtype of another size");
  if (sizes.back() * from % to != 0) return Status(Code::kInvalidInput, str_cat("last dim of shape ", shape_text(sizes), " as elements of ", to, " bytes"));
  sizes.back() = sizes.back() * from / to;
  PTERON_TRY(resize(out, sizes));
  if (!out.view.is_contiguous()) return Status(Code::kUnsupported, "view as a dtype of another size into a layout that is not row-major");
  const TensorView bytes = make_contiguous_view(self.dtype(), self.sizes(), out.view.data);
  return copy_tensor(context, self.view, bytes);
}

Status view_as_real_copy(KernelContext& context, const Tensor& self, Tensor& out) {
  if (!is_complex(self.dtype())) return Status(Code::kInvalidInput, str_cat("view_as_real of dtype ", dtype_name(self.dtype())));
  Placed v = placed(self.view);
  for (int64_t& s : v.strides) s *= 2;
  if (v.rank() >= kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  v.sizes.push_back(2);
  v.strides.push_back(1);
  TensorView parts = self.view;
  parts.dtype = real_dtype(self.dtype());
  PTERON_TRY(resize(out, v.sizes));
  return copy_tensor(context, view_of(parts, v), out.view);
}

Status view_as_complex_copy(KernelContext& context, const Tensor& self, Tensor& out) {
  Placed v = placed(out.view);
  if (self.rank() == 0 || self.size(self.rank() - 1) != 2) return Status(Code::kInvalidInput, "view_as_complex needs a last dim of size 2");
  PTERON_TRY(resize(out, self.sizes().first(static_cast<size_t>(self.rank() - 1))));
  v = placed(out.view);
  for (int64_t& s : v.strides) s *= 2;
  v.sizes.push_back(2);
  v.strides.push_back(1);
  TensorView parts = out.view;
  parts.dtype = real_dtype(out.dtype());
  return copy_tensor(context, self.view, view_of(parts, v));
}

Status permute_copy(KernelContext& context, const Tensor& self, IntList dims, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(permute<int64_t>(v, dims));
  return write_view(context, self, v, out);
}

Status transpose_copy(KernelContext& context, const Tensor& self, int64_t dim0, int64_t dim1, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(transpose(v, dim0, dim1));
  return write_view(context, self, v, out);
}

Status t_copy(KernelContext& context, const Tensor& self, Tensor& out) {
  if (self.rank() > 2) return Status(Code::kInvalidInput, str_cat("t() of a tensor of rank ", self.rank()));
  Placed v = placed(self.view);
  if (self.rank() == 2) PTERON_TRY(transpose(v, 0, 1));
  return write_view(context, self, v, out);
}

Status squeeze_dims_copy(KernelContext& context, const Tensor& self, IntList dims, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(squeeze<int64_t>(v, dims));
  return write_view(context, self, v, out);
}

Status squeeze_dim_copy(KernelContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  return squeeze_dims_copy(context, self, IntList{dim}, out);
}

Status squeeze_copy(KernelContext& context, const Tensor& self, Tensor& out) {
  IntList dims;
  for (int d = 0; d < self.rank(); ++d) dims.push_back(d);
  return squeeze_dims_copy(context, self, dims, out);
}

Status unsqueeze_copy(KernelContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(unsqueeze(v, dim));
  return write_view(context, self, v, out);
}

Status expand_copy(KernelContext& context, const Tensor& self, IntList size, bool, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(expand<int64_t>(v, size));
  return write_view(context, self, v, out);
}

Status select_copy(KernelContext& context, const Tensor& self, int64_t dim, int64_t index, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(select(v, dim, index));
  return write_view(context, self, v, out);
}

Status slice_copy(KernelContext& context, const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                  int64_t step, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(slice(v, dim, start, end, step));
  return write_view(context, self, v, out);
}

Status narrow_copy(KernelContext& context, const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(narrow(v, dim, start, length));
  return write_view(context, self, v, out);
}

Status diagonal_copy(KernelContext& context, const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(diagonal(v, offset, dim1, dim2));
  return write_view(context, self, v, out);
}

Status unfold_copy(KernelContext& context, const Tensor& self, int64_t dimension, int64_t size, int64_t step, Tensor& out) {
  Placed v = placed(self.view);
  PTERON_TRY(unfold(v, dimension, size, step));
  return write_view(context, self, v, out);
}

/// The layout that as_strided asks for. Errors: kInvalidInput if it leaves the `numel` elements of the storage.
Status as_strided_layout(const IntList& size, const IntList& stride, std::optional<int64_t> offset, int64_t numel, Placed* v) {
  if (size.size() != stride.size()) return Status(Code::kInvalidInput, str_cat("as_strided with ", size.size(), " sizes and ", stride.size(), " strides"));
  uint64_t extent = 0;
  const int64_t from = offset.value_or(0);
  if (from < 0 || !strided_extent_bytes(size, stride, 1, &extent) || (extent != 0 && extent + static_cast<uint64_t>(from) > static_cast<uint64_t>(numel))) {
    return Status(Code::kInvalidInput, str_cat("as_strided of shape ", shape_text(size), ", strides ", shape_text(stride), " and offset ", from,
                                               " leaves a storage of ", numel, " elements"));
  }
  *v = {size, stride, from};
  return ok_status();
}

/// Copies between `strided` positions of the row-major elements of `storage` (any layout) and the elements of `dense`.
void exchange(const TensorView& storage, const Placed& strided, const TensorView& dense, bool to_storage) {
  const size_t element = dtype_size(storage.dtype);
  TensorView positions = dense;
  std::copy(strided.strides.begin(), strided.strides.end(), positions.stride_array.begin());
  const int64_t count = dense.numel();
  for (int64_t i = 0; i < count; ++i) {
    std::byte* in_storage = storage.as<std::byte>() + static_cast<size_t>(offset_of(storage, strided.offset + offset_of(positions, i))) * element;
    std::byte* in_dense = dense.as<std::byte>() + static_cast<size_t>(offset_of(dense, i)) * element;
    std::memcpy(to_storage ? in_storage : in_dense, to_storage ? in_dense : in_storage, element);
  }
}

/// The storage is the row-major order of self's elements.
Status as_strided_copy(KernelContext& context, const Tensor& self, IntList size, IntList stride, std::optional<int64_t> offset, Tensor& out) {
  Placed v;
  PTERON_TRY(as_strided_layout(size, stride, offset, self.numel(), &v));
  if (self.view.is_contiguous()) return write_view(context, self, v, out);
  PTERON_TRY(resize(out, size));
  exchange(self.view, v, out.view, false);
  return ok_status();
}

Status as_strided_scatter(KernelContext& context, const Tensor& self, const Tensor& src, IntList size, IntList stride,
                          std::optional<int64_t> offset, Tensor& out) {
  Placed v;
  PTERON_TRY(as_strided_layout(size, stride, offset, self.numel(), &v));
  if (!(Sizes(src.sizes()) == size)) return Status(Code::kInvalidInput, str_cat("source of shape ", shape_text(src.sizes()), " for a view of ", shape_text(size)));
  PTERON_TRY(resize(out, self.sizes()));
  PTERON_TRY(copy_tensor(context, self.view, out.view));
  if (src.dtype() != out.dtype()) return Status(Code::kInvalidInput, "as_strided_scatter: dtypes of self and src differ");
  exchange(out.view, v, src.view, true);
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::view_copy.out", PTERON_KERNEL(view_copy)},
    {"aten::view_copy.dtype_out", PTERON_KERNEL(view_copy_dtype)},
    {"aten::_unsafe_view.out", PTERON_KERNEL(view_copy)},
    {"aten::view_as_real_copy.out", PTERON_KERNEL(view_as_real_copy)},
    {"aten::view_as_complex_copy.out", PTERON_KERNEL(view_as_complex_copy)},
    {"aten::permute_copy.out", PTERON_KERNEL(permute_copy)},
    {"aten::transpose_copy.int_out", PTERON_KERNEL(transpose_copy)},
    {"aten::t_copy.out", PTERON_KERNEL(t_copy)},
    {"aten::squeeze_copy.out", PTERON_KERNEL(squeeze_copy)},
    {"aten::squeeze_copy.dim_out", PTERON_KERNEL(squeeze_dim_copy)},
    {"aten::squeeze_copy.dims_out", PTERON_KERNEL(squeeze_dims_copy)},
    {"aten::unsqueeze_copy.out", PTERON_KERNEL(unsqueeze_copy)},
    {"aten::expand_copy.out", PTERON_KERNEL(expand_copy)},
    {"aten::select_copy.int_out", PTERON_KERNEL(select_copy)},
    {"aten::slice_copy.Tensor_out", PTERON_KERNEL(slice_copy)},
    {"aten::narrow_copy.out", PTERON_KERNEL(narrow_copy)},
    {"aten::diagonal_copy.out", PTERON_KERNEL(diagonal_copy)},
    {"aten::unfold_copy.out", PTERON_KERNEL(unfold_copy)},
    {"aten::as_strided_copy.out", PTERON_KERNEL(as_strided_copy)},
    {"aten::as_strided_scatter.out", PTERON_KERNEL(as_strided_scatter)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::view
