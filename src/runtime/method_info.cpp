// MethodInfo: what a file says about a method, from its plan and, where present, from pteron.meta. Needs no kernels and no memory.
#include <algorithm>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "runtime/state.h"

namespace pteron {

std::string_view value_kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNone: return "none";
    case ValueKind::kTensor: return "tensor";
    case ValueKind::kInt: return "int";
    case ValueKind::kDouble: return "float";
    case ValueKind::kBool: return "bool";
    case ValueKind::kString: return "string";
  }
  return "?";
}

uint64_t ValueInfo::bound_bytes() const {
  if (kind != ValueKind::kTensor) return 0;
  uint64_t bytes = dtype_size(dtype);
  for (const DimInfo& dim : dims) bytes *= static_cast<uint64_t>(dim.max);
  return bytes;
}

std::string ValueInfo::type_text() const {
  if (kind != ValueKind::kTensor) return std::string(value_kind_name(kind));
  std::string text = str_cat(dtype_name(dtype), " [");
  for (size_t d = 0; d < dims.size(); ++d) {
    const DimInfo& dim = dims[d];
    if (d > 0) text.push_back(',');
    if (dim.is_static()) {
      str_append(text, dim.max);
    } else if (dim.text.empty()) {
      str_append(text, dim.min, "..", dim.max);
    } else {
      str_append(text, dim.text, " in ", dim.min, "..", dim.max);
    }
  }
  text.push_back(']');
  if (device.type != DeviceType::kCpu) str_append(text, " on ", runtime::device_text(device));
  return text;
}

namespace runtime {
namespace {

using format::count_of;
using format::items_of;
using format::text_of;
using wire::pte::KernelTypes;

ValueKind kind_of(const wire::pte::EValue& value) {
  switch (value.val_type()) {
    case KernelTypes::Tensor: return ValueKind::kTensor;
    case KernelTypes::Int: return ValueKind::kInt;
    case KernelTypes::Double: return ValueKind::kDouble;
    case KernelTypes::Bool: return ValueKind::kBool;
    case KernelTypes::String: return ValueKind::kString;
    default: return ValueKind::kNone;
  }
}

bool port_fits(const format::PortMeta& port, const ValueInfo& info) {
  switch (port.kind) {
    case format::PortKind::kTensor: return info.kind == ValueKind::kTensor && port.dtype == info.dtype && port.dims.size() == info.dims.size();
    case format::PortKind::kInt: return info.kind == ValueKind::kInt;
    case format::PortKind::kFloat: return info.kind == ValueKind::kDouble;
    case format::PortKind::kBool: return info.kind == ValueKind::kBool;
    case format::PortKind::kNone: return info.kind == ValueKind::kNone;
    case format::PortKind::kString: return info.kind == ValueKind::kString;
  }
  return false;
}

/// The range of a dim as pteron.meta has it; never wider than the planned bound.
void refine_dim(const format::MethodMeta& method, const format::DimExpr& expr, DimInfo& dim) {
  if (expr.is_constant()) {
    const int64_t constant = expr.steps[0].operand;
    if (constant <= dim.max && constant >= dim.min) dim.min = dim.max = constant;
    return;
  }
  dim.text = expr.text;
  if (expr.symbol_index() < 0) return;
  const format::SymbolMeta& symbol = method.symbols[static_cast<size_t>(expr.symbol_index())];
  dim.max = std::min(dim.max, std::max<int64_t>(symbol.max, 0));
  dim.min = std::max(dim.min, std::min(symbol.min, dim.max));
}

ValueInfo describe_value(const wire::pte::EValue& value) {
  ValueInfo info;
  info.kind = kind_of(value);
  if (info.kind == ValueKind::kInt) info.integer = value.val_as_Int()->int_val();
  if (info.kind == ValueKind::kBool) info.integer = value.val_as_Bool()->bool_val() ? 1 : 0;
  if (info.kind == ValueKind::kDouble) info.floating = value.val_as_Double()->double_val();
  if (info.kind == ValueKind::kString) info.string = std::string(text_of(value.val_as_String()->string_val()));
  if (info.kind != ValueKind::kTensor) return info;
  const wire::pte::Tensor& tensor = *value.val_as_Tensor();
  info.dtype = static_cast<DType>(tensor.scalar_type());
  info.dynamic = tensor.shape_dynamism() != wire::pte::TensorShapeDynamism::STATIC;
  info.planned = tensor.allocation_info() != nullptr;
  if (const auto* extra = tensor.extra_tensor_info()) info.device = {static_cast<DeviceType>(extra->device_type()), extra->device_index()};
  for (const int32_t size : items_of(tensor.sizes())) info.dims.push_back({info.dynamic ? 0 : size, size, ""});
  const std::span<const uint8_t> order = items_of(tensor.dim_order());
  info.dim_order.assign(order.begin(), order.end());
  if (tensor.extra_tensor_info() != nullptr) info.name = std::string(text_of(tensor.extra_tensor_info()->fully_qualified_name()));
  return info;
}

/// Describes the inputs or outputs of a plan. `what` is "input" or "output"; `ports` is null without pteron.meta.
Result<std::vector<ValueInfo>> describe_ports(const wire::pte::ExecutionPlan& plan, std::span<const int32_t> indices, std::string_view what,
                                              const format::MethodMeta* meta, const std::vector<format::PortMeta>* ports) {
  std::vector<ValueInfo> result;
  if (ports != nullptr && ports->size() != indices.size()) {
    return Status(Code::kInvalidFile, str_cat("pteron.meta lists ", ports->size(), " ", what, "s of method ", text_of(plan.name()), ", the plan has ",
                                              indices.size()));
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    ValueInfo info = describe_value(*plan.values()->Get(static_cast<uint32_t>(indices[i])));
    info.fixed = what == "input" && (info.kind == ValueKind::kInt || info.kind == ValueKind::kBool || info.kind == ValueKind::kDouble);
    if (ports != nullptr) {
      const format::PortMeta& port = (*ports)[i];
      if (!port_fits(port, info)) {
        return Status(Code::kInvalidFile, str_cat("pteron.meta and the plan of method ", text_of(plan.name()), " differ in ", what, " ", i));
      }
      info.name = port.name;
      for (size_t d = 0; d < info.dims.size(); ++d) refine_dim(*meta, port.dims[d], info.dims[d]);
      info.int_min = port.int_min;
      info.int_max = port.int_max;
      if (port.varies || (info.kind == ValueKind::kInt && port.symbol >= 0)) info.fixed = false;
    }
    if (info.name.empty()) info.name = str_cat(what, "_", i);
    result.push_back(std::move(info));
  }
  return result;
}

}  // namespace

Result<MethodInfo> describe_method(const ProgramState& program, uint32_t index) {
  const wire::pte::ExecutionPlan& plan = program.view.plan(index);
  MethodInfo info;
  info.name = std::string(text_of(plan.name()));
  const format::MethodMeta* meta = program.meta.find(info.name);
  PTERON_ASSIGN(info.inputs, describe_ports(plan, items_of(plan.inputs()), "input", meta, meta == nullptr ? nullptr : &meta->inputs));
  PTERON_ASSIGN(info.outputs, describe_ports(plan, items_of(plan.outputs()), "output", meta, meta == nullptr ? nullptr : &meta->outputs));
  if (plan.container_meta_type() != nullptr) {
    info.input_spec = std::string(text_of(plan.container_meta_type()->encoded_inp_str()));
    info.output_spec = std::string(text_of(plan.container_meta_type()->encoded_out_str()));
  }
  for (uint32_t i = 0; i < count_of(plan.operators()); ++i) {
    const wire::pte::Operator& op = *plan.operators()->Get(i);
    const std::string_view overload = text_of(op.overload());
    info.operators.push_back(overload.empty() ? std::string(text_of(op.name())) : str_cat(text_of(op.name()), ".", overload));
  }
  for (uint32_t i = 0; i < count_of(plan.delegates()); ++i) info.delegates.emplace_back(text_of(plan.delegates()->Get(i)->id()));
  if (meta != nullptr) {
    for (const format::MutableBufferMeta& buffer : meta->mutable_buffers) {
      if (buffer.value_index < 0 || static_cast<uint32_t>(buffer.value_index) >= count_of(plan.values())) {
        return Status(Code::kInvalidFile, str_cat("pteron.meta: state ", buffer.name, " of method ", info.name, " is value ", buffer.value_index, ", the plan has ", count_of(plan.values())));
      }
      ValueInfo state = describe_value(*plan.values()->Get(static_cast<uint32_t>(buffer.value_index)));
      state.name = buffer.name;
      info.mutable_buffers.push_back(std::move(state));
    }
  }
  for (uint32_t id = 1; id < program.view.arena_count(index); ++id) info.arena_bytes.push_back(program.view.arena_bytes(index, id));
  info.arena_devices.resize(info.arena_bytes.size());
  for (uint32_t i = 0; i < count_of(plan.non_const_buffer_device()); ++i) {
    const wire::pte::NonConstBufferDevice& entry = *plan.non_const_buffer_device()->Get(i);
    if (entry.buffer_idx() > 0) info.arena_devices[static_cast<size_t>(entry.buffer_idx()) - 1] = {static_cast<DeviceType>(entry.device_type()), entry.device_index()};
  }
  info.value_count = count_of(plan.values());
  for (uint32_t i = 0; i < count_of(plan.chains()); ++i) info.instruction_count += count_of(plan.chains()->Get(i)->instructions());
  return info;
}

}  // namespace runtime
}  // namespace pteron
