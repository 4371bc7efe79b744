// From a verified .pte back to the structs that its writer takes. Used by merge; what the runtime needs it reads in place.

#include "base/str_cat.h"
#include "format/contents.h"
#include "format/program.h"
#include "format/program_view.h"

namespace pteron::format {

namespace pte = wire::pte;

namespace {

class Reader {
 public:
  explicit Reader(const ProgramView& view) : view_(view) {}

  Result<ProgramSpec> run() {
    for (uint32_t i = 0; i < view_.plan_count(); ++i) {
      auto plan = read_plan(view_.plan(i));
      if (!plan.ok()) return std::move(plan).status().with_context(str_cat("method ", text_of(view_.plan(i).name())));
      out_.plans.push_back(std::move(plan).value());
    }
    for (const NamedRange& data : view_.named_data()) {
      out_.named_data.push_back({std::string(data.key), blob_of(data.bytes)});
      PTERON_TRY(check_work());
    }
    return std::move(out_);
  }

 private:
  /// Constants, payloads and named data of an honest file lie side by side, at most once under two names: a small file cannot ask for a lot of work.
  Status check_work() const {
    const uint64_t hashed = constant_contents_.hashed_bytes() + state_contents_.hashed_bytes() + blob_contents_.hashed_bytes();
    if (hashed <= 3 * view_.file().size()) return ok_status();
    return Status::invalid_file("constants or payloads lie over one another and have more bytes than the file");
  }

  uint32_t data_index(Contents& contents, std::vector<Payload>& list, std::span<const std::byte> bytes) {
    const size_t index = contents.find_or_add(bytes, list.size());
    if (index == list.size()) list.push_back(Payload::borrow(bytes));
    return static_cast<uint32_t>(index + 1);
  }

  /// Bytes that a constant has as well are stored as that constant. Empty bytes stay apart: payloads without any are written inline.
  uint32_t blob_of(std::span<const std::byte> bytes) {
    const size_t index = blob_contents_.find_or_add(bytes, out_.blobs.size());
    if (index < out_.blobs.size()) return static_cast<uint32_t>(index);
    const int64_t constant = bytes.empty() ? -1 : constant_contents_.find(bytes);
    out_.blobs.push_back({Payload::borrow(bytes), 0, static_cast<uint32_t>(constant + 1)});
    return static_cast<uint32_t>(index);
  }

  TensorSpec read_tensor(const pte::Tensor& tensor) {
    TensorSpec spec;
    spec.dtype = static_cast<DType>(tensor.scalar_type());
    for (const int32_t size : items_of(tensor.sizes())) spec.sizes.push_back(size);
    const std::span<const uint8_t> order = items_of(tensor.dim_order());
    spec.dim_order.assign(order.begin(), order.end());
    spec.dynamism = static_cast<Dynamism>(tensor.shape_dynamism());
    if (const auto* place = tensor.allocation_info(); place != nullptr) spec.allocation = Allocation{place->memory_id(), offset_of(*place)};
    if (const auto* extra = tensor.extra_tensor_info(); extra != nullptr) {
      spec.device = {static_cast<DeviceType>(extra->device_type()), extra->device_index()};
      (is_external(tensor) ? spec.external_name : spec.buffer_name) = text_of(extra->fully_qualified_name());
    }
    if (is_external(tensor) || tensor.data_buffer_idx() == 0) return spec;
    const bool is_state = spec.allocation.has_value();
    spec.data_index = is_state ? data_index(state_contents_, out_.initial_states, view_.initial_state(tensor))
                               : data_index(constant_contents_, out_.constants, view_.constant(tensor));
    return spec;
  }

  template <typename List, typename T>
  static List list_of(const flatbuffers::Vector<T>* items) {
    List list;
    for (const auto item : items_of(items)) list.items.push_back(static_cast<typename decltype(list.items)::value_type>(item));
    return list;
  }

  ValueSpec read_value(const pte::EValue& value) {
    switch (value.val_type()) {
      case pte::KernelTypes::Int:
        return value.val_as_Int()->int_val();
      case pte::KernelTypes::Bool:
        return value.val_as_Bool()->bool_val();
      case pte::KernelTypes::Double:
        return value.val_as_Double()->double_val();
      case pte::KernelTypes::String:
        return std::string(text_of(value.val_as_String()->string_val()));
      case pte::KernelTypes::Tensor:
        return read_tensor(*value.val_as_Tensor());
      case pte::KernelTypes::IntList:
        return list_of<IntListValue>(value.val_as_IntList()->items());
      case pte::KernelTypes::DoubleList:
        return list_of<DoubleListValue>(value.val_as_DoubleList()->items());
      case pte::KernelTypes::BoolList:
        return list_of<BoolListValue>(value.val_as_BoolList()->items());
      case pte::KernelTypes::TensorList:
        return list_of<TensorListValue>(value.val_as_TensorList()->items());
      case pte::KernelTypes::OptionalTensorList:
        return list_of<OptionalTensorListValue>(value.val_as_OptionalTensorList()->items());
      default:
        return NullValue{};
    }
  }

  static std::vector<int32_t> indices_of(const flatbuffers::Vector<int32_t>* items) {
    const std::span<const int32_t> list = items_of(items);
    return {list.begin(), list.end()};
  }

  static InstructionSpec read_instruction(const pte::Instruction& instruction) {
    switch (instruction.instr_args_type()) {
      case pte::InstructionArguments::KernelCall: {
        const auto* call = instruction.instr_args_as_KernelCall();
        return KernelCall{call->op_index(), indices_of(call->args())};
      }
      case pte::InstructionArguments::DelegateCall: {
        const auto* call = instruction.instr_args_as_DelegateCall();
        return DelegateCall{call->delegate_index(), indices_of(call->args())};
      }
      case pte::InstructionArguments::MoveCall:
        return MoveCall{instruction.instr_args_as_MoveCall()->move_from(), instruction.instr_args_as_MoveCall()->move_to()};
      case pte::InstructionArguments::JumpFalseCall:
        return JumpFalseCall{instruction.instr_args_as_JumpFalseCall()->cond_value_index(),
                             instruction.instr_args_as_JumpFalseCall()->destination_instruction()};
      default:
        return FreeCall{instruction.instr_args_as_FreeCall()->value_index()};
    }
  }

  DelegateSpec read_delegate(const pte::BackendDelegate& delegate) {
    DelegateSpec spec{std::string(text_of(delegate.id())), blob_of(view_.delegate_payload(delegate)), {}};
    for (uint32_t i = 0; i < count_of(delegate.compile_specs()); ++i) {
      const pte::CompileSpec& item = *delegate.compile_specs()->Get(i);
      const auto value = std::as_bytes(items_of(item.value()));
      spec.compile_specs.push_back({std::string(text_of(item.key())), {value.begin(), value.end()}});
    }
    return spec;
  }

  static std::vector<ArenaSpec> read_arenas(const pte::ExecutionPlan& plan) {
    std::vector<ArenaSpec> arenas;
    const std::span<const int64_t> sizes = items_of(plan.non_const_buffer_sizes());
    for (size_t i = 1; i < sizes.size(); ++i) arenas.push_back({sizes[i], {}});
    for (uint32_t i = 0; i < count_of(plan.non_const_buffer_device()); ++i) {
      const pte::NonConstBufferDevice& device = *plan.non_const_buffer_device()->Get(i);
      if (device.buffer_idx() > 0)
        arenas[static_cast<size_t>(device.buffer_idx()) - 1].device = {static_cast<DeviceType>(device.device_type()), device.device_index()};
    }
    return arenas;
  }

  Result<PlanSpec> read_plan(const pte::ExecutionPlan& plan) {
    PlanSpec spec;
    spec.name = text_of(plan.name());
    if (plan.container_meta_type() != nullptr) {
      spec.input_spec = text_of(plan.container_meta_type()->encoded_inp_str());
      spec.output_spec = text_of(plan.container_meta_type()->encoded_out_str());
    }
    for (uint32_t i = 0; i < count_of(plan.values()); ++i) {
      spec.values.push_back(read_value(*plan.values()->Get(i)));
      PTERON_TRY(check_work());
    }
    spec.inputs = indices_of(plan.inputs());
    spec.outputs = indices_of(plan.outputs());
    if (count_of(plan.chains()) > 1) return Status(Code::kUnsupported, str_cat(count_of(plan.chains()), " chains, at most one is expected"));
    if (count_of(plan.chains()) == 1) {
      const pte::Chain& chain = *plan.chains()->Get(0);
      for (uint32_t i = 0; i < count_of(chain.instructions()); ++i) spec.instructions.push_back(read_instruction(*chain.instructions()->Get(i)));
    }
    for (uint32_t i = 0; i < count_of(plan.operators()); ++i) {
      const pte::Operator& op = *plan.operators()->Get(i);
      spec.operators.push_back({std::string(text_of(op.name())), std::string(text_of(op.overload()))});
    }
    for (uint32_t i = 0; i < count_of(plan.delegates()); ++i) {
      spec.delegates.push_back(read_delegate(*plan.delegates()->Get(i)));
      PTERON_TRY(check_work());
    }
    spec.arenas = read_arenas(plan);
    return spec;
  }

  const ProgramView& view_;
  ProgramSpec out_;
  Contents constant_contents_, state_contents_, blob_contents_;
};

}  // namespace

Result<ProgramSpec> read_program(const ProgramView& view) { return Reader(view).run(); }

}  // namespace pteron::format
