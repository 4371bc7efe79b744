// Checks of what a file says about products and convolutions, and strides.
#include "backends/cpu/runtime/geometry.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/conv/shape.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cpu {

namespace {

Status read_pair(const char* op, const char* name, const runtime::Value& value, int64_t lowest, int64_t* to) {
  const runtime::IntList list = runtime::Unpack<runtime::IntList>::get(const_cast<runtime::Value&>(value));
  if (list.size() != 2 || list[0] < lowest || list[1] < lowest || list[0] > 65536 || list[1] > 65536) {
    return Status(Code::kInvalidFile, str_cat(op, ": ", name, " is ", shape_text(list)));
  }
  to[0] = list[0];
  to[1] = list[1];
  return ok_status();
}

}  // namespace

int64_t ConvGeometry::out_size(size_t d, int64_t in) const { return ops::conv::forward_size(in, kernel[d], stride[d], padding[d], dilation[d]); }

Status ConvGeometry::read(const char* op, const runtime::Tensor& weight, bool channels_last, const runtime::Value& stride_value, const runtime::Value& padding_value,
                          const runtime::Value& dilation_value, const runtime::Value& groups_value) {
  groups = groups_value.integer;
  out_channels = weight.size(0);
  if (weight.numel() == 0 || groups < 1 || groups > out_channels || out_channels % groups != 0) {
    return Status(Code::kInvalidFile, str_cat(op, ": ", groups, " groups for weight ", shape_text(weight.sizes())));
  }
  channels = weight.size(channels_last ? 3 : 1) * groups;
  kernel[0] = weight.size(channels_last ? 1 : 2);
  kernel[1] = weight.size(channels_last ? 2 : 3);
  if (taps() > kMaxTaps) return Status(Code::kInvalidFile, str_cat(op, ": weight ", shape_text(weight.sizes())));
  PTERON_TRY(read_pair(op, "stride", stride_value, 1, stride));
  PTERON_TRY(read_pair(op, "padding", padding_value, 0, padding));
  return read_pair(op, "dilation", dilation_value, 1, dilation);
}

int64_t ConvGeometry::padded_elements(const runtime::Tensor& x) const {
  return (std::max<int64_t>(x.size(2), 0) + 2 * padding[0]) * (std::max<int64_t>(x.size(3), 0) + 2 * padding[1]) * std::max<int64_t>(x.size(1), 0);
}

bool is_dense_channels_last(const runtime::Tensor& t) {
  const int64_t c = t.size(1), h = t.size(2), w = t.size(3);
  return (t.stride(1) == 1 || c == 1) && (t.stride(3) == c || w == 1) && (t.stride(2) == w * c || h == 1) && (t.stride(0) == h * w * c || t.size(0) == 1);
}

TensorView channels_last_view(DType dtype, std::span<const int64_t> sizes, void* data) {
  TensorView view = make_contiguous_view(dtype, sizes, data);
  const int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]};
  std::copy(strides, strides + 4, view.stride_array.begin());
  return view;
}

size_t line_bytes(int64_t count, size_t element_bytes) { return align_up(static_cast<size_t>(std::max<int64_t>(count, 0)) * element_bytes, uint64_t{64}); }

bool pixel_stride(const runtime::Tensor& t, int64_t* out) {
  const int64_t sizes[] = {t.size(0), t.size(2), t.size(3), t.size(1)}, strides[] = {t.stride(0), t.stride(2), t.stride(3), t.stride(1)};
  return row_stride(sizes, strides, out);
}

Status check_bias(const char* op, const runtime::Tensor* bias, int64_t count) {
  if (bias == nullptr || (bias->read_only && bias->rank() == 1 && bias->size(0) == count && bias->dtype() == DType::kFloat32)) return ok_status();
  return Status(Code::kInvalidFile, str_cat(op, ": the bias must be a float32 constant [", count, "], found ", dtype_name(bias->dtype()), " ", shape_text(bias->sizes())));
}

bool row_stride(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t* out) {
  *out = sizes.empty() ? 0 : sizes.back();
  int64_t expected = -1;
  for (size_t d = sizes.size() - 1; d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (expected < 0) {
      *out = strides[d];
    } else if (strides[d] != expected) {
      return false;
    }
    expected = strides[d] * sizes[d];
  }
  return sizes.back() == 1 || strides.back() == 1;
}

}  // namespace pteron::cpu
