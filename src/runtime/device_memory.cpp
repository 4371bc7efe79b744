// Blocks of device memory, and copies between memories.
#include "runtime/device_memory.h"

#include "base/str_cat.h"

namespace pteron::runtime {

Result<DeviceBlock> DeviceBlock::create(DeviceAllocator& allocator, int8_t index, size_t bytes, size_t alignment_bytes) {
  DeviceBlock made;
  if (bytes == 0) return made;
  PTERON_ASSIGN(made.data_, allocator.allocate(index, bytes, alignment_bytes));
  made.allocator_ = &allocator;
  made.index_ = index;
  made.size_ = bytes;
  return made;
}

Result<DeviceBlock> DeviceBlock::create_zeroed(DeviceAllocator& allocator, int8_t index, size_t bytes, size_t alignment_bytes) {
  PTERON_ASSIGN(DeviceBlock made, create(allocator, index, bytes, alignment_bytes));
  if (bytes > 0) PTERON_TRY(allocator.fill_zero(index, made.data_, bytes));
  return made;
}

DeviceBlock::~DeviceBlock() {
  if (data_ != nullptr) allocator_->deallocate(index_, data_);
}

std::string device_text(Device device) {
  if (device.type == DeviceType::kCpu) return "cpu";
  return device.index < 0 ? std::string("cuda") : str_cat("cuda:", static_cast<int>(device.index));
}

bool is_device_copy(std::string_view kernel) {
  return kernel == "et_copy::_h2d_copy.out" || kernel == "et_copy::_d2h_copy.out" || kernel == "pteron::device_copy.out";
}

bool touches_no_bytes(std::string_view kernel) { return kernel == "aten::sym_size.int" || kernel == "aten::sym_numel" || kernel == "pteron::view_strided.out"; }

namespace {

bool same_layout(const TensorView& a, const TensorView& b) {
  for (size_t d = 0; d < a.rank; ++d) {
    if (a.size_array[d] > 1 && a.stride_array[d] != b.stride_array[d]) return false;
  }
  return true;
}

/// A view of the staging buffer, laid out like the device's tensor.
Result<TensorView> staged(DeviceCopy& copy, const TensorView& device) {
  if (copy.staging.size() < device.size_bytes()) {
    PTERON_ASSIGN(copy.staging, Buffer::create(device.size_bytes()));
  }
  TensorView view = device;
  view.device = {};
  view.data = copy.staging.data();
  return view;
}

}  // namespace

Status run_device_copy(DeviceCopy& copy, const Tensor& from, Tensor& to) {
  PTERON_TRY(resize(to, from.sizes()));
  const size_t bytes = from.view.size_bytes();
  if (bytes == 0) return ok_status();
  if (from.view.data == nullptr || to.view.data == nullptr) return Status(Code::kInvalidInput, "a copy of a tensor that has no memory");
  const bool same = same_layout(from.view, to.view), from_host = from.view.device.type == DeviceType::kCpu, to_host = to.view.device.type == DeviceType::kCpu;
  if (from_host && to_host) {
    copy_strided(from.view, to.view);
    return ok_status();
  }
  if (!from_host && !to_host) {
    if (!same) return Status(Code::kInvalidInput, "a copy on a device between tensors of different layouts");
    return copy.allocator->copy_on_device(to.view.device.index, to.view.data, from.view.data, bytes);
  }
  if (from_host) {
    TensorView host = from.view;
    if (!same) {
      PTERON_ASSIGN(host, staged(copy, to.view));
      copy_strided(from.view, host);
    }
    return copy.allocator->copy_from_host(to.view.device.index, to.view.data, host.data, bytes);
  }
  if (same) return copy.allocator->copy_to_host(from.view.device.index, to.view.data, from.view.data, bytes);
  PTERON_ASSIGN(const TensorView host, staged(copy, from.view));
  PTERON_TRY(copy.allocator->copy_to_host(from.view.device.index, host.data, from.view.data, bytes));
  copy_strided(host, to.view);
  return ok_status();
}

}  // namespace pteron::runtime
