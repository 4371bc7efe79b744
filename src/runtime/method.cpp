// Method: inputs are checked and put in place, instructions run, outputs are handed out.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/no_memory.h"
#include "base/str_cat.h"
#include "runtime/state.h"
#include "tensor/dtype.h"

namespace pteron {

using runtime::InputSlot;
using runtime::OutputSlot;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

namespace {

/// Of memory that stands for the caller's: the most that any backend asks of the tensors of a call (TensorRT), so that none has to copy them.
constexpr size_t kBoundAlignment = 256;

std::string input_label(const runtime::MethodState& state, size_t index) {
  return str_cat("input ", index, " (", state.info.inputs[index].name, ")");
}

Status bad_input(const runtime::MethodState& state, size_t index, std::string_view what) {
  return Status(Code::kInvalidInput, str_cat("method ", state.info.name, ": ", input_label(state, index), ": ", what));
}

/// For messages, also of a view that is none: a number that is no dtype, more dims than there can be.
std::string tensor_text(const TensorView& tensor) {
  const int number = static_cast<int>(tensor.dtype);
  const std::string dtype = is_known_dtype(number) ? std::string(dtype_name(tensor.dtype)) : str_cat("dtype number ", number, ", which is none");
  return tensor.rank > kMaxRank ? str_cat(dtype, " of rank ", tensor.rank) : str_cat(dtype, " ", shape_text(tensor.sizes()));
}

bool has_negative_stride(const TensorView& tensor) {
  return std::ranges::any_of(tensor.strides(), [](int64_t stride) { return stride < 0; });
}

/// Dtype, rank, device and every size against its range.
bool matches(const ValueInfo& info, const TensorView& tensor) {
  if (tensor.dtype != info.dtype || tensor.rank != info.dims.size()) return false;
  for (size_t d = 0; d < info.dims.size(); ++d) {
    if (tensor.size_array[d] < info.dims[d].min || tensor.size_array[d] > info.dims[d].max) return false;
  }
  return true;
}

bool same_strides(const TensorView& a, const TensorView& b) {
  for (size_t d = 0; d < a.rank; ++d) {
    if (a.size_array[d] > 1 && a.stride_array[d] != b.stride_array[d]) return false;
  }
  return true;
}

bool is_element_aligned(const void* data, DType dtype) {
  const size_t alignment = is_complex(dtype) ? dtype_size(dtype) / 2 : dtype_size(dtype);
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

bool overlap(const TensorView& strided, const TensorView& dense) {
  uint64_t extent = 0;
  if (!strided_extent_bytes(strided.sizes(), strided.strides(), dtype_size(strided.dtype), &extent)) return true;
  const auto a = reinterpret_cast<uintptr_t>(strided.data), b = reinterpret_cast<uintptr_t>(dense.data);
  return a < b + dense.size_bytes() && b < a + extent;
}

/// Copies into `to`, which is dense; bools become 0 or 1. `from` may be an earlier output whose planned memory overlaps the input's.
Status copy_in(const TensorView& from, const TensorView& to) {
  if (same_strides(from, to)) {
    std::memmove(to.data, from.data, to.size_bytes());
  } else if (overlap(from, to)) {
    PTERON_ASSIGN(Buffer between, Buffer::create(to.size_bytes()));
    TensorView copy = to;
    copy.data = between.data();
    copy_strided(from, copy);
    std::memcpy(to.data, copy.data, to.size_bytes());
  } else {
    copy_strided(from, to);
  }
  if (to.dtype != DType::kBool) return ok_status();
  auto* bytes = static_cast<uint8_t*>(to.data);
  const auto count = static_cast<size_t>(to.numel());
  for (size_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0;
  return ok_status();
}

bool has_plain_bools(const TensorView& dense) {
  const auto* bytes = static_cast<const uint8_t*>(dense.data);
  const auto count = static_cast<size_t>(dense.numel());
  uint8_t all = 0;
  for (size_t i = 0; i < count; ++i) all |= bytes[i];
  return all <= 1;
}

template <typename Range, typename Name>
std::string joined(const Range& range, Name name) {
  std::string text;
  for (const auto& item : range) str_append(text, text.empty() ? "" : ", ", name(item));
  return text;
}

Result<size_t> find_port(const runtime::MethodState& state, std::span<const ValueInfo> ports, std::string_view what, std::string_view name) {
  const auto found = std::ranges::find(ports, name, &ValueInfo::name);
  if (found != ports.end()) return static_cast<size_t>(found - ports.begin());
  size_t index = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
  if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && index < ports.size()) return index;
  return Status(Code::kInvalidInput, str_cat("method ", state.info.name, " has no ", what, " \"", name, "\"; it has ", ports.size(), ": ",
                                             joined(ports, [](const ValueInfo& info) { return info.name; })));
}

Status check_index(const runtime::MethodState& state, size_t index, size_t count, std::string_view what) {
  if (index < count) return ok_status();
  return Status(Code::kInvalidInput, str_cat("method ", state.info.name, ": ", what, " ", index, " is asked for, there are ", count));
}

bool same_device(Device a, Device b) { return a.type == b.type && (a.index == b.index || a.index < 0 || b.index < 0); }

/// Errors: kInvalidInput if an address is known to be of another memory than that of `device`.
Status check_owner(DeviceAllocator& allocator, Device device, const void* data) {
  const std::optional<Device> owner = allocator.owner_of(device.index, data);
  if (!owner.has_value() || same_device(*owner, device)) return ok_status();
  return Status(Code::kInvalidInput, str_cat("expected memory of ", runtime::device_text(device), ", found memory of ", runtime::device_text(*owner)));
}

/// Sets an input of a device: in place from a tensor of that device if it is not planned, else a copy.
Status bind_on_device(InputSlot& slot, const TensorView& tensor, Tensor& target, uint64_t bound_bytes) {
  const Device device = target.view.device;
  if (tensor.device.type != DeviceType::kCpu) {
    if (!same_device(tensor.device, device)) return Status(Code::kInvalidInput, str_cat("expected memory of ", runtime::device_text(device), ", found ", runtime::device_text(tensor.device)));
    PTERON_TRY(check_owner(*slot.copy.allocator, device, tensor.data));
    if (!same_strides(tensor, target.view)) return Status(Code::kInvalidInput, "a tensor of a device must be dense, in the program's memory format");
    if (slot.planned) return slot.copy.allocator->copy_on_device(device.index, target.view.data, tensor.data, tensor.size_bytes());
    target.view.data = tensor.data;
    return ok_status();
  }
  if (!slot.planned) {
    if (slot.on_device.size() < bound_bytes) {
      PTERON_ASSIGN(slot.on_device, runtime::DeviceBlock::create(*slot.copy.allocator, device.index, bound_bytes, kBoundAlignment));
    }
    target.view.data = slot.on_device.span().data();
    target.capacity_bytes = bound_bytes;
  }
  Tensor from;
  from.view = tensor;
  return runtime::run_device_copy(slot.copy, from, target);
}

/// Binds a tensor to an unplanned input: in place if it can be used as it is, else as a copy that the slot owns.
Status bind_unplanned(InputSlot& slot, const TensorView& tensor, Tensor& target) {
  target.capacity_bytes = tensor.size_bytes();
  const bool dense = same_strides(tensor, target.view);
  const bool usable = dense && is_element_aligned(tensor.data, tensor.dtype) && (tensor.dtype != DType::kBool || has_plain_bools(tensor));
  if (usable && !slot.written) {
    target.view.data = tensor.data;
    return ok_status();
  }
  if (slot.lent) return Status(Code::kInvalidInput, "a tensor that the call writes must be dense and aligned");
  if (slot.converted.size() < target.capacity_bytes) {
    PTERON_ASSIGN(slot.converted, Buffer::create(target.capacity_bytes, kBoundAlignment));
  }
  target.view.data = slot.converted.data();
  return copy_in(tensor, target.view);
}

/// A number given for a scalar input.
struct Number {
  Tag tag = Tag::kInt;
  int64_t integer = 0;
  double floating = 0;
};

std::string number_text(const Number& number) {
  if (number.tag == Tag::kDouble) return str_cat("float ", number.floating);
  if (number.tag == Tag::kBool) return number.integer != 0 ? "bool true" : "bool false";
  return str_cat("int ", number.integer);
}

/// The public runtime's rule for floats that were constants for the exporter.
bool close_enough(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 1e-4 + std::fabs(1e-5 * b);
}

Status set_number(runtime::MethodState& state, size_t index, const Number& number) {
  PTERON_TRY(check_index(state, index, state.inputs.size(), "input"));
  InputSlot& slot = state.inputs[index];
  const ValueInfo& info = state.info.inputs[index];
  if (slot.tag != number.tag) return bad_input(state, index, str_cat("expected ", info.type_text(), ", found ", number_text(number)));
  if (slot.fixed) {
    const bool equal = slot.tag == Tag::kDouble ? close_enough(number.floating, slot.floating) : number.integer == slot.integer;
    if (!equal) {
      return bad_input(state, index, str_cat("expected ", number_text({slot.tag, slot.integer, slot.floating}), ", which the program was compiled for, found ",
                                             number_text(number)));
    }
  } else if (slot.tag == Tag::kInt && (number.integer < info.int_min || number.integer > info.int_max)) {
    return bad_input(state, index, str_cat("expected a value in [", info.int_min, ", ", info.int_max, "], found ", number.integer));
  }
  // A fixed number keeps the value of the file: constants folded from it must agree with what instructions read.
  slot.value->tag = slot.tag;
  slot.value->integer = slot.fixed ? slot.integer : number.integer;
  slot.value->floating = slot.fixed ? slot.floating : number.floating;
  slot.set = true;
  state.inputs_changed = true;
  return ok_status();
}

template <typename T>
T read_element(const TensorView& tensor) {
  T value;
  std::memcpy(&value, tensor.data, sizeof value);
  return value;
}

/// A scalar given as a tensor with one element.
Status set_number_from(runtime::MethodState& state, size_t index, const TensorView& tensor) {
  const ValueInfo& info = state.info.inputs[index];
  if (tensor.numel() != 1 || tensor.data == nullptr) {
    return bad_input(state, index, str_cat("expected ", info.type_text(), " (or a tensor with one element), found ", tensor_text(tensor)));
  }
  Number number;
  switch (tensor.dtype) {
    case DType::kInt64: number.integer = read_element<int64_t>(tensor); break;
    case DType::kInt32: number.integer = read_element<int32_t>(tensor); break;
    case DType::kInt16: number.integer = read_element<int16_t>(tensor); break;
    case DType::kInt8: number.integer = read_element<int8_t>(tensor); break;
    case DType::kUInt8: number.integer = read_element<uint8_t>(tensor); break;
    case DType::kBool:
      number.tag = Tag::kBool;
      number.integer = read_element<uint8_t>(tensor) != 0;
      break;
    case DType::kFloat64:
      number.tag = Tag::kDouble;
      number.floating = read_element<double>(tensor);
      break;
    case DType::kFloat32:
      number.tag = Tag::kDouble;
      number.floating = static_cast<double>(read_element<float>(tensor));
      break;
    default: return bad_input(state, index, str_cat("expected ", info.type_text(), ", found ", tensor_text(tensor)));
  }
  return set_number(state, index, number);
}

Status set_tensor(runtime::MethodState& state, size_t index, const TensorView& tensor) {
  InputSlot& slot = state.inputs[index];
  const ValueInfo& info = state.info.inputs[index];
  if (!matches(info, tensor)) [[unlikely]] {
    return bad_input(state, index, str_cat("expected ", info.type_text(), ", found ", tensor_text(tensor)));
  }
  const bool on_host = slot.value->tensor.view.device.type == DeviceType::kCpu;
  if (on_host && tensor.device.type != DeviceType::kCpu) return bad_input(state, index, "expected memory of the CPU");
  if (has_negative_stride(tensor)) [[unlikely]] return bad_input(state, index, str_cat("expected strides of 0 and more, found ", shape_text(tensor.strides())));
  if (tensor.data == nullptr && tensor.numel() != 0) return bad_input(state, index, "the tensor has no data");
  Tensor& target = slot.value->tensor;
  if (!on_host) {
    if (!slot.planned) target.capacity_bytes = UINT64_MAX;
    PTERON_TRY(runtime::resize(target, tensor.sizes()));
    if (tensor.numel() != 0) {
      Status bound = bind_on_device(slot, tensor, target, info.bound_bytes());
      if (!bound.ok()) return std::move(bound).with_context(str_cat("method ", state.info.name, ": ", input_label(state, index)));
    }
  } else if (slot.planned) {
    PTERON_TRY(runtime::resize(target, tensor.sizes()));
    if (tensor.numel() != 0) PTERON_TRY(copy_in(tensor, target.view));
  } else {
    target.capacity_bytes = UINT64_MAX;
    PTERON_TRY(runtime::resize(target, tensor.sizes()));
    if (tensor.numel() == 0) {
      target.view.data = nullptr;
      target.capacity_bytes = 0;
    } else {
      Status bound = bind_unplanned(slot, tensor, target);
      if (bound.code() == Code::kOutOfMemory) return std::move(bound).with_context(str_cat("method ", state.info.name, ": the copy of input ", index, " (", info.name, ")"));
      PTERON_TRY(std::move(bound));
    }
  }
  slot.set = true;
  state.inputs_changed = true;
  return ok_status();
}

Status check_inputs_set(const runtime::MethodState& state) {
  const auto is_set = [](const InputSlot& slot) { return slot.set; };
  const auto first = std::ranges::find_if_not(state.inputs, is_set);
  if (first == state.inputs.end()) [[likely]] return ok_status();
  const auto index = static_cast<size_t>(first - state.inputs.begin());
  const auto count = std::ranges::count_if(state.inputs, is_set);
  return bad_input(state, index, str_cat(state.executed && !first->keeps ? "must be set again before each call (its memory is used by other values)"
                                                                         : "was not set",
                                         "; ", count, " of ", state.inputs.size(), " inputs are set"));
}

Status check_sizes(runtime::MethodState& state) {
  if (!state.inputs_changed || state.constraints.empty()) return ok_status();
  Status status = state.constraints.check(state.input_values);
  if (!status.ok()) return std::move(status).with_context(str_cat("method ", state.info.name));
  state.inputs_changed = false;
  return ok_status();
}

/// Values that the last call rebound start anew.
void restore_values(runtime::MethodState& state) {
  for (const runtime::SavedValue& saved : state.saved_values) *saved.value = saved.initial;
  for (const runtime::SavedScalar& saved : state.saved_scalars) {
    saved.value->tag = saved.tag;
    saved.value->integer = saved.integer;
    saved.value->floating = saved.floating;
  }
  for (Tensor* view : state.unbound_views) {
    view->view.data = nullptr;
    view->capacity_bytes = 0;
  }
}

/// Memory of its own for an output of a device.
Status place_on_device(runtime::MethodState& state, OutputSlot& slot, Tensor& tensor) {
  if (slot.on_device.size() < slot.bound_bytes) {
    DeviceAllocator& allocator = *state.allocator(tensor.view.device.type);
    auto made = runtime::DeviceBlock::create_zeroed(allocator, tensor.view.device.index, slot.bound_bytes, kBoundAlignment);
    const auto index = static_cast<size_t>(&slot - state.outputs.data());
    if (!made.ok()) return std::move(made).status().with_context(str_cat("method ", state.info.name, ": output ", index, " (", state.info.outputs[index].name, ")"));
    slot.on_device = std::move(made).value();
  }
  tensor.view.data = slot.on_device.span().data();
  return ok_status();
}

/// Gives outputs that kernels write directly their memory: the caller's, or one of their own.
Status place_outputs(runtime::MethodState& state) {
  for (OutputSlot& slot : state.outputs) {
    if (!slot.direct) continue;
    Tensor& tensor = slot.value->tensor;
    tensor.capacity_bytes = slot.bound_bytes;
    if (slot.caller_data != nullptr && is_element_aligned(slot.caller_data, tensor.dtype())) {
      tensor.view.data = slot.caller_data;
      continue;
    }
    if (tensor.view.device.type != DeviceType::kCpu) {
      PTERON_TRY(place_on_device(state, slot, tensor));
      continue;
    }
    if (slot.own.size() < slot.bound_bytes) {
      const auto index = static_cast<size_t>(&slot - state.outputs.data());
      PTERON_ASSIGN(slot.own, buffer_for(str_cat("method ", state.info.name, ": output ", index, " (", state.info.outputs[index].name, ")"), Buffer::create_zeroed(slot.bound_bytes, kBoundAlignment)));
    }
    tensor.view.data = slot.own.data();
  }
  return ok_status();
}

/// Copies outputs to the caller's memory where kernels could not write there.
Status deliver_outputs(runtime::MethodState& state) {
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    OutputSlot& slot = state.outputs[i];
    if (slot.caller_data == nullptr) continue;
    if (slot.value->tag != Tag::kTensor || !slot.value->tensor.has_data() || slot.value->tensor.view.size_bytes() > slot.bound_bytes) {
      return Status(Code::kInternal, str_cat("method ", state.info.name, ": output ", i, " is not the tensor that the file declares"));
    }
    const Tensor& tensor = slot.value->tensor;
    slot.delivered = tensor.view;
    slot.is_delivered = true;
    if (tensor.view.data == slot.caller_data) continue;
    slot.delivered.data = slot.caller_data;
    const Sizes strides = strides_of_dim_order(tensor.sizes(), {slot.initial.dim_order.data(), slot.delivered.rank});
    std::ranges::copy(strides, slot.delivered.stride_array.begin());
    if (tensor.numel() == 0) continue;
    if (tensor.view.device.type == DeviceType::kCpu) {
      copy_strided(tensor.view, slot.delivered);
      continue;
    }
    DeviceAllocator& allocator = *state.allocator(tensor.view.device.type);
    PTERON_TRY(allocator.copy_on_device(tensor.view.device.index, slot.delivered.data, tensor.view.data, tensor.view.size_bytes()));
  }
  return ok_status();
}

}  // namespace

Status runtime::prepare_call(MethodState& method) {
  PTERON_TRY(check_sizes(method));
  restore_values(method);
  return ok_status();
}

Method::Method(std::unique_ptr<runtime::MethodState> state) : state_(std::move(state)) {}
Method::~Method() = default;

const MethodInfo& Method::info() const { return state_->info; }
size_t Method::input_count() const { return state_->inputs.size(); }
size_t Method::output_count() const { return state_->outputs.size(); }
Result<size_t> Method::input_index(std::string_view name) const { return find_port(*state_, state_->info.inputs, "input", name); }
Result<size_t> Method::output_index(std::string_view name) const { return find_port(*state_, state_->info.outputs, "output", name); }

Status Method::set_input(size_t index, const TensorView& tensor) {
  PTERON_TRY(check_index(*state_, index, state_->inputs.size(), "input"));
  if (tensor.rank > kMaxRank) [[unlikely]] return bad_input(*state_, index, str_cat("expected ", state_->info.inputs[index].type_text(), ", found ", tensor_text(tensor)));
  switch (state_->inputs[index].tag) {
    case Tag::kTensor: return set_tensor(*state_, index, tensor);
    case Tag::kInt:
    case Tag::kDouble:
    case Tag::kBool: return set_number_from(*state_, index, tensor);
    default: return bad_input(*state_, index, str_cat("expected ", state_->info.inputs[index].type_text(), ", found ", tensor_text(tensor)));
  }
}

Status Method::set_input(std::string_view name, const TensorView& tensor) {
  PTERON_ASSIGN(const size_t index, input_index(name));
  return set_input(index, tensor);
}

Status Method::set_int_input(size_t index, int64_t value) { return set_number(*state_, index, {Tag::kInt, value, 0}); }
Status Method::set_double_input(size_t index, double value) { return set_number(*state_, index, {Tag::kDouble, 0, value}); }
Status Method::set_bool_input(size_t index, bool value) { return set_number(*state_, index, {Tag::kBool, value ? 1 : 0, 0}); }

Status Method::set_output_data_ptr(size_t index, void* data, size_t size_bytes) {
  PTERON_TRY(check_index(*state_, index, state_->outputs.size(), "output"));
  OutputSlot& slot = state_->outputs[index];
  const ValueInfo& info = state_->info.outputs[index];
  if (!slot.is_tensor) {
    return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": output ", index, " (", info.name, ") is no tensor but ", info.type_text()));
  }
  if (data != nullptr && size_bytes < slot.bound_bytes) {
    return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": output ", index, " (", info.name, ", ", info.type_text(), ") may need ",
                                               slot.bound_bytes, " bytes, the buffer has ", size_bytes));
  }
  if (data != nullptr && info.device.type != DeviceType::kCpu) {
    Status owned = check_owner(*state_->allocator(info.device.type), info.device, data);
    if (!owned.ok()) return std::move(owned).with_context(str_cat("method ", state_->info.name, ": output ", index, " (", info.name, ")"));
  }
  slot.caller_data = data;
  slot.is_delivered = false;
  return ok_status();
}

Status Method::set_stream(Device device, void* stream) {
  DeviceAllocator* const allocator = state_->allocator(device.type);
  if (device.type == DeviceType::kCpu || allocator == nullptr) {
    return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": a stream of ", runtime::device_text(device), ", and no backend of the program computes there"));
  }
  Status status = allocator->set_stream(device.index, stream);
  if (!status.ok()) return std::move(status).with_context(str_cat("method ", state_->info.name, ": a stream of ", runtime::device_text(device)));
  return ok_status();
}

Status Method::execute() {
  PTERON_TRY(Status(state_->reset_status));
  PTERON_TRY(check_inputs_set(*state_));
  if (!state_->late_kernels.empty() || !state_->late_checks.empty()) [[unlikely]] PTERON_TRY(runtime::finish_loading(*state_));
  PTERON_TRY(runtime::prepare_call(*state_));
  PTERON_TRY(place_outputs(*state_));
  const Status status = runtime::run_instructions(*state_);
  state_->executed = status.ok();
  for (InputSlot& slot : state_->inputs) slot.set = slot.set && slot.keeps;
  if (!status.ok()) return status;
  return deliver_outputs(*state_);
}

Result<OutputValue> Method::output(size_t index) const {
  PTERON_TRY(check_index(*state_, index, state_->outputs.size(), "output"));
  if (!state_->executed) return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": outputs are there only after execute()"));
  const OutputSlot& slot = state_->outputs[index];
  const Value& value = *slot.value;
  switch (value.tag) {
    case Tag::kNone: return OutputValue(std::monostate());
    case Tag::kInt: return OutputValue(value.integer);
    case Tag::kBool: return OutputValue(value.integer != 0);
    case Tag::kDouble: return OutputValue(value.floating);
    case Tag::kString: return OutputValue(value.string);
    case Tag::kTensor:
      if (slot.is_delivered) return OutputValue(slot.delivered);
      if (value.tensor.has_data()) return OutputValue(value.tensor.view);
      return Status(Code::kInternal, str_cat("method ", state_->info.name, ": output ", index, " was not computed"));
    default: return Status(Code::kUnsupported, str_cat("method ", state_->info.name, ": output ", index, " is a list"));
  }
}

Result<TensorView> Method::input(size_t index) const {
  PTERON_TRY(check_index(*state_, index, state_->inputs.size(), "input"));
  const InputSlot& slot = state_->inputs[index];
  if (slot.tag != Tag::kTensor) return bad_input(*state_, index, "it is no tensor");
  if (!slot.set) return bad_input(*state_, index, "it is not set, or its memory was used by other values");
  return slot.value->tensor.view;
}

Status Method::copy_to_host(const TensorView& from, void* to, size_t room_bytes) const {
  const size_t bytes = from.size_bytes();
  if (room_bytes < bytes) return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": a copy of ", bytes, " bytes into ", room_bytes));
  if (bytes == 0) return ok_status();
  if (from.device.type == DeviceType::kCpu) {
    std::memcpy(to, from.data, bytes);
    return ok_status();
  }
  DeviceAllocator* const allocator = state_->allocator(from.device.type);
  if (allocator == nullptr) return Status(Code::kInvalidInput, str_cat("method ", state_->info.name, ": a copy of a tensor of ", runtime::device_text(from.device), ", which the program has not"));
  return allocator->copy_to_host(from.device.index, to, from.data, bytes);
}

void Method::reset() {
  state_->reset_status = ok_status();
  const auto note = [&](Status status) {
    if (!status.ok()) state_->reset_status = std::move(status).with_context(str_cat("method ", state_->info.name, ": reset"));
  };
  for (const runtime::Arena& arena : state_->arenas) {
    if (arena.bytes.empty()) continue;
    if (arena.allocator == nullptr) {
      std::memset(arena.bytes.data(), 0, arena.bytes.size());
    } else {
      note(arena.allocator->fill_zero(arena.index, arena.bytes.data(), arena.bytes.size()));
    }
  }
  for (const runtime::InitialState& initial : state_->initial_states) note(runtime::write_initial(initial));
  for (InputSlot& slot : state_->inputs) {
    slot.set = slot.tag != Tag::kTensor && slot.tag != Tag::kInt && slot.tag != Tag::kDouble && slot.tag != Tag::kBool;
  }
  state_->random.position = 0;
  state_->executed = false;
}

}  // namespace pteron
