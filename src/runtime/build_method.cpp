// Builds a method from its plan: values with their memory, instructions with their kernels, delegates, scratch, inputs and outputs.
// The plan was verified by format::verify_program; everything the verifier does not promise is checked here.
#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "base/no_memory.h"
#include "base/str_cat.h"
#include "runtime/prim_ops.h"
#include "runtime/state.h"
#include "runtime/user_op.h"
#include "tensor/dtype.h"

namespace pteron::runtime {
namespace {

using format::count_of;
using format::items_of;
using format::text_of;
using wire::pte::InstructionArguments;
using wire::pte::KernelTypes;

/// Address that an element of this dtype must be a multiple of.
/// Where an arena may begin: at a multiple of what its buffers were planned for, as far as that is a power of two up to a page, and of a cache line.
size_t arena_alignment(const format::MethodMeta* meta, uint32_t id) {
  const uint32_t planned = meta != nullptr && id <= meta->arenas.size() ? meta->arenas[id - 1].alignment : 0;
  const size_t power = planned & (~planned + 1);
  return std::clamp<size_t>(power, 64, 4096);
}
/// Of tensors of a device that have memory of their own.
constexpr size_t kDeviceAlignment = 256;
size_t element_alignment(DType dtype) { return is_complex(dtype) ? dtype_size(dtype) / 2 : dtype_size(dtype); }
bool is_aligned(const void* data, DType dtype) { return reinterpret_cast<uintptr_t>(data) % element_alignment(dtype) == 0; }

class MethodBuilder {
 public:
  MethodBuilder(std::shared_ptr<Program> program, uint32_t index, std::shared_ptr<SharedArenas> shared)
      : state_(program->state()), plan_(state_.view.plan(index)), plan_index_(index), made_(std::make_unique<MethodState>()) {
    made_->program = std::move(program);
    made_->shared = std::move(shared);
  }

  Result<std::unique_ptr<MethodState>> build() {
    PTERON_ASSIGN(made_->info, describe_method(state_, plan_index_));
    if (const format::MethodMeta* meta = state_.meta.find(made_->info.name)) made_->constraints = Constraints(*meta);
    PTERON_TRY(make_arenas());
    find_roles();
    PTERON_TRY(make_values());
    PTERON_TRY(make_inputs());
    PTERON_TRY(make_outputs());
    PTERON_TRY(make_code());
    PTERON_TRY(make_scratch());
    save_rebound_values();
    for (const InitialState& initial : made_->initial_states) {
      if (!initial.bytes.empty() && !is_old(initial.target)) PTERON_TRY(is_remote() ? state_.memory->initialise(initial.target, initial.bytes) : write_initial(initial));
    }
    return std::move(made_);
  }

 private:
  /// What instructions do to a value.
  struct Role {
    bool input = false;
    bool output = false;
    bool output_twice = false;
    bool view_target = false;
    bool move_target = false;
    bool scalar_target = false;
    bool written = false;  // the last argument of a kernel call
  };

  const wire::pte::EValue& value_at(size_t index) const { return *plan_.values()->Get(static_cast<uint32_t>(index)); }

  // --- memory ---

  /// True if tensors lie elsewhere than in the host's memory: no byte of theirs may be touched here.
  bool is_remote() const { return state_.memory != nullptr; }

  /// `bytes` zeros that live as long as the method, at a multiple of `alignment` in the host's memory. what: for messages.
  Result<std::span<std::byte>> make_memory(std::string_view what, uint64_t bytes, size_t alignment = Buffer::kAlignment) {
    if (is_remote()) {
      if (bytes == 0) return std::span<std::byte>();
      PTERON_ASSIGN(void* const memory, state_.memory->allocate(bytes, what));
      return std::span<std::byte>(static_cast<std::byte*>(memory), bytes);
    }
    PTERON_ASSIGN(Buffer made, buffer_for(what, Buffer::create_zeroed(bytes, alignment)));
    made_->memory.push_back(std::move(made));
    return made_->memory.back().span();
  }

  Status make_arenas() {
    const format::MethodMeta* meta = state_.meta.find(made_->info.name);
    for (uint32_t id = 1; id < state_.view.arena_count(plan_index_); ++id) {
      const uint64_t bytes = state_.view.arena_bytes(plan_index_, id);
      const bool shares = meta != nullptr && id <= meta->arenas.size() && !meta->arenas[id - 1].share.empty();
      const Device device = made_->info.arena_devices[id - 1];
      if (shares) {
        if (is_remote()) return Status(Code::kInvalidFile, str_cat("arena ", id, " of a payload for a device is shared by name"));
        PTERON_TRY(join_arena(meta->arenas[id - 1].share, bytes, arena_alignment(meta, id), device));
        continue;
      }
      if (device.type != DeviceType::kCpu) {
        PTERON_ASSIGN(DeviceBlock block, device_block(str_cat("arena ", id, " (planned memory)"), device, bytes, arena_alignment(meta, id)));
        made_->arenas.push_back({block.span(), made_->allocator(device.type), device.index});
        made_->device_memory.push_back(std::move(block));
        continue;
      }
      PTERON_ASSIGN(const std::span<std::byte> arena, make_memory(str_cat("arena ", id, " (planned memory)"), bytes, arena_alignment(meta, id)));
      made_->arenas.push_back({arena});
    }
    return ok_status();
  }

  /// Memory of a device, zeroed.
  Result<DeviceBlock> device_block(const std::string& what, Device device, uint64_t bytes, size_t alignment) const {
    PTERON_TRY(check_device(what, device));
    auto made = DeviceBlock::create_zeroed(*made_->allocator(device.type), device.index, bytes, alignment);
    if (!made.ok()) return std::move(made).status().with_context(str_cat(what, " on ", device_text(device)));
    return made;
  }

  Status check_device(std::string_view what, Device device) const {
    if (device.type == DeviceType::kCpu || state_.allocator(device.type) != nullptr) return ok_status();
    return Status(Code::kUnavailable, str_cat(what, " lies on ", device_text(device), ", and no backend of this runtime has memory of such a device"));
  }

  Status join_arena(const std::string& name, uint64_t bytes, size_t alignment, Device device) {
    if (device.type != DeviceType::kCpu) return join_device_arena(name, bytes, alignment, device);
    const auto found = made_->shared->buffers.find(name);
    if (found != made_->shared->buffers.end()) {
      if (found->second.size() != bytes) {
        return Status(Code::kInvalidFile, str_cat("shared arena \"", name, "\" has ", bytes, " bytes here and ", found->second.size(), " in another method"));
      }
      made_->arenas.push_back({found->second.span()});
      old_.push_back(found->second.span());
      return ok_status();
    }
    if (made_->shared->on_devices.contains(name)) return Status(Code::kInvalidFile, str_cat("shared arena \"", name, "\" is on the host here and on a device in another method"));
    PTERON_ASSIGN(Buffer arena, buffer_for(str_cat("shared arena \"", name, "\""), Buffer::create_zeroed(bytes, alignment)));
    made_->arenas.push_back({arena.span()});
    made_->shared->buffers.emplace(name, std::move(arena));
    return ok_status();
  }

  Status join_device_arena(const std::string& name, uint64_t bytes, size_t alignment, Device device) {
    DeviceAllocator* const allocator = made_->allocator(device.type);
    const auto found = made_->shared->on_devices.find(name);
    if (found != made_->shared->on_devices.end() || made_->shared->buffers.contains(name)) {
      const bool fits = found != made_->shared->on_devices.end() && found->second.size() == bytes && (bytes == 0 || found->second.index() == device.index);
      if (!fits) return Status(Code::kInvalidFile, str_cat("shared arena \"", name, "\" has ", bytes, " bytes on ", device_text(device), " here and is another one in another method"));
      made_->arenas.push_back({found->second.span(), allocator, device.index});
      old_.push_back(found->second.span());
      return ok_status();
    }
    PTERON_ASSIGN(DeviceBlock block, device_block(str_cat("shared arena \"", name, "\""), device, bytes, alignment));
    made_->arenas.push_back({block.span(), allocator, device.index});
    made_->shared->on_devices.emplace(name, std::move(block));
    return ok_status();
  }

  /// True for memory that another method of the session has initialised.
  bool is_old(const std::byte* target) const {
    return std::ranges::any_of(old_, [&](std::span<std::byte> arena) { return target >= arena.data() && target < arena.data() + arena.size(); });
  }

  std::string operator_name(const wire::pte::KernelCall& call) const { return made_->info.operators[static_cast<size_t>(call.op_index())]; }

  void find_roles() {
    roles_.resize(count_of(plan_.values()));
    for (const int32_t index : items_of(plan_.inputs())) roles_[static_cast<size_t>(index)].input = true;
    for (const int32_t index : items_of(plan_.outputs())) {
      Role& role = roles_[static_cast<size_t>(index)];
      role.output_twice = role.output;
      role.output = true;
    }
    for (uint32_t c = 0; c < count_of(plan_.chains()); ++c) {
      const wire::pte::Chain& chain = *plan_.chains()->Get(c);
      for (uint32_t i = 0; i < count_of(chain.instructions()); ++i) find_roles_in(*chain.instructions()->Get(i));
    }
  }

  void find_roles_in(const wire::pte::Instruction& instruction) {
    if (const auto* move = instruction.instr_args_as_MoveCall()) {
      roles_[static_cast<size_t>(move->move_to())].move_target = true;
      return;
    }
    const auto* call = instruction.instr_args_as_KernelCall();
    if (call == nullptr || count_of(call->args()) == 0) return;
    const std::string name = operator_name(*call);
    const std::span<const int32_t> args = items_of(call->args());
    if (prim_kernels().find(name) == nullptr || is_device_copy(name)) {
      mark_written(args.back());
      return;
    }
    switch (prim_effect(name)) {
      case PrimEffect::kNone: return;
      case PrimEffect::kView:
        // The typed kernel takes the out where its parameters end; files repeat it behind that. Both places are marked.
        for (const int32_t arg : args.last(std::min<size_t>(args.size(), 2))) mark_out(arg, true);
        return;
      case PrimEffect::kScalar:
        mark_out(args.back(), false);
        return;
    }
  }

  void mark_written(int32_t index) {
    roles_[static_cast<size_t>(index)].written = true;
    const auto* list = value_at(static_cast<size_t>(index)).val_as_TensorList();
    if (list == nullptr) return;
    for (const int32_t item : items_of(list->items())) roles_[static_cast<size_t>(item)].written = true;
  }

  void mark_out(int32_t index, bool view) {
    const KernelTypes kind = value_at(static_cast<size_t>(index)).val_type();
    if (view && kind == KernelTypes::Tensor) roles_[static_cast<size_t>(index)].view_target = true;
    if (kind == KernelTypes::Int || kind == KernelTypes::Double || kind == KernelTypes::Bool) roles_[static_cast<size_t>(index)].scalar_target = true;
  }

  // --- values ---

  Status make_values() {
    const size_t count = roles_.size();
    made_->values.resize(count);
    size_t pointers = 0, doubles = 0, bools = 0;
    for (size_t i = 0; i < count; ++i) {
      const wire::pte::EValue& value = value_at(i);
      if (const auto* list = value.val_as_IntList()) pointers += count_of(list->items());
      if (const auto* list = value.val_as_TensorList()) pointers += count_of(list->items());
      if (const auto* list = value.val_as_OptionalTensorList()) pointers += count_of(list->items());
      if (const auto* list = value.val_as_DoubleList()) doubles += count_of(list->items());
      if (const auto* list = value.val_as_BoolList()) bools += count_of(list->items());
    }
    for (uint32_t c = 0; c < count_of(plan_.chains()); ++c) {
      const wire::pte::Chain& chain = *plan_.chains()->Get(c);
      for (uint32_t i = 0; i < count_of(chain.instructions()); ++i) pointers += argument_count(*chain.instructions()->Get(i));
    }
    made_->pointers.reserve(pointers);  // spans point into it: it must not grow
    made_->doubles.reserve(doubles);
    made_->bools = std::make_unique<bool[]>(bools);
    for (size_t i = 0; i < count; ++i) {
      Status status = make_value(value_at(i), roles_[i], made_->values[i]);
      if (!status.ok()) return std::move(status).with_context(str_cat("value ", i));
    }
    return ok_status();
  }

  static size_t argument_count(const wire::pte::Instruction& instruction) {
    if (const auto* call = instruction.instr_args_as_KernelCall()) return count_of(call->args());
    if (const auto* call = instruction.instr_args_as_DelegateCall()) return count_of(call->args());
    return 2;
  }

  template <typename T>
  std::span<Value* const> point_to(std::span<const T> indices) {
    const size_t begin = made_->pointers.size();
    for (const T index : indices) made_->pointers.push_back(index < 0 ? &none_value() : &made_->values[static_cast<size_t>(index)]);
    return {made_->pointers.data() + begin, indices.size()};
  }

  /// The one value that stands for -1 in optional lists.
  Value& none_value() {
    if (!made_->none) made_->none = std::make_unique<Value>();
    return *made_->none;
  }

  Status make_value(const wire::pte::EValue& value, const Role& role, Value& out) {
    switch (value.val_type()) {
      case KernelTypes::Int:
        out.tag = Tag::kInt;
        out.integer = value.val_as_Int()->int_val();
        return ok_status();
      case KernelTypes::Bool:
        out.tag = Tag::kBool;
        out.integer = value.val_as_Bool()->bool_val() ? 1 : 0;
        return ok_status();
      case KernelTypes::Double:
        out.tag = Tag::kDouble;
        out.floating = value.val_as_Double()->double_val();
        return ok_status();
      case KernelTypes::String:
        out.tag = Tag::kString;
        out.string = text_of(value.val_as_String()->string_val());
        return ok_status();
      case KernelTypes::IntList:
        out.tag = Tag::kIntList;
        out.items = point_to(items_of(value.val_as_IntList()->items()));
        return ok_status();
      case KernelTypes::TensorList:
        out.tag = Tag::kTensorList;
        out.items = point_to(items_of(value.val_as_TensorList()->items()));
        return ok_status();
      case KernelTypes::OptionalTensorList:
        out.tag = Tag::kTensorList;
        out.items = point_to(items_of(value.val_as_OptionalTensorList()->items()));
        return ok_status();
      case KernelTypes::DoubleList: {
        const std::span<const double> items = items_of(value.val_as_DoubleList()->items());
        const size_t begin = made_->doubles.size();
        made_->doubles.insert(made_->doubles.end(), items.begin(), items.end());
        out.tag = Tag::kDoubleList;
        out.doubles = {made_->doubles.data() + begin, items.size()};
        return ok_status();
      }
      case KernelTypes::BoolList: {
        const std::span<const uint8_t> items = items_of(value.val_as_BoolList()->items());
        bool* begin = made_->bools.get() + bool_count_;
        for (const uint8_t item : items) made_->bools[bool_count_++] = item != 0;
        out.tag = Tag::kBoolList;
        out.bools = {begin, items.size()};
        return ok_status();
      }
      case KernelTypes::Tensor: return make_tensor(*value.val_as_Tensor(), role, out);
      default: return ok_status();  // None
    }
  }

  Status make_tensor(const wire::pte::Tensor& tensor, const Role& role, Value& out) {
    out.tag = Tag::kTensor;
    Tensor& made = out.tensor;
    if (tensor.shape_dynamism() == wire::pte::TensorShapeDynamism::DYNAMIC_UNBOUND) {
      return Status(Code::kUnsupported, "a tensor without upper bound of its sizes");
    }
    if (const auto* extra = tensor.extra_tensor_info()) made.view.device = {static_cast<DeviceType>(extra->device_type()), extra->device_index()};
    PTERON_TRY(check_device("a tensor", made.view.device));
    const std::span<const int32_t> sizes = items_of(tensor.sizes());
    made.view.dtype = static_cast<DType>(tensor.scalar_type());
    made.view.rank = static_cast<uint8_t>(sizes.size());
    made.dynamic = tensor.shape_dynamism() == wire::pte::TensorShapeDynamism::DYNAMIC_BOUND;
    std::ranges::copy(sizes, made.view.size_array.begin());
    std::ranges::copy(sizes, made.bound.begin());
    std::ranges::copy(items_of(tensor.dim_order()), made.dim_order.begin());
    const Sizes strides = strides_of_dim_order(made.view.sizes(), {made.dim_order.data(), sizes.size()});
    std::ranges::copy(strides, made.view.stride_array.begin());
    made.capacity_bytes = format::tensor_bytes(tensor);
    return place_tensor(tensor, role, made);
  }

  Status place_tensor(const wire::pte::Tensor& tensor, const Role& role, Tensor& made) {
    const bool external = format::is_external(tensor);
    if (const auto* place = tensor.allocation_info()) {
      const Arena& arena = made_->arenas[place->memory_id() - 1];
      if (!(arena.device() == made.view.device)) {
        return Status(Code::kInvalidFile, str_cat("a tensor on ", device_text(made.view.device), " is planned in arena ", place->memory_id(), ", which lies on ", device_text(arena.device())));
      }
      made.view.data = arena.bytes.data() + format::offset_of(*place);
      if (!is_aligned(made.view.data, made.dtype())) {
        return Status(Code::kInvalidFile, str_cat("planned at byte ", format::offset_of(*place), ", which is no multiple of its element size"));
      }
      if (external) {
        PTERON_ASSIGN(const auto bytes, external_bytes(tensor, made));
        made_->initial_states.push_back({made.as<std::byte>(), bytes, arena.allocator, arena.index});
      } else if (tensor.data_buffer_idx() > 0) {
        made_->initial_states.push_back({made.as<std::byte>(), state_.view.initial_state(tensor).first(made.capacity_bytes), arena.allocator, arena.index});
      }
      return ok_status();
    }
    const bool on_host = made.view.device.type == DeviceType::kCpu;
    if ((external || tensor.data_buffer_idx() > 0) && !on_host) {
      return Status(Code::kUnsupported, str_cat("a constant on ", device_text(made.view.device), ": constants of a program lie on the host"));
    }
    if (external || tensor.data_buffer_idx() > 0) return place_constant(tensor, external, made);
    const bool supplied_later = role.input || role.view_target || (role.output && !role.output_twice && !role.move_target);
    if (supplied_later) {
      made.capacity_bytes = 0;
      return ok_status();
    }
    if (!on_host) {
      PTERON_ASSIGN(DeviceBlock block, device_block("a tensor", made.view.device, made.capacity_bytes, kDeviceAlignment));
      made.view.data = block.span().data();
      made_->device_memory.push_back(std::move(block));
      return ok_status();
    }
    PTERON_ASSIGN(const std::span<std::byte> own, make_memory("a tensor without planned memory", made.capacity_bytes));
    made.view.data = own.data();
    return ok_status();
  }

  Status place_constant(const wire::pte::Tensor& tensor, bool external, Tensor& made) {
    std::span<const std::byte> bytes;
    if (external) {
      PTERON_ASSIGN(bytes, external_bytes(tensor, made));
    } else {
      bytes = state_.view.constant(tensor).first(made.capacity_bytes);
    }
    made.read_only = true;  // the mapping cannot be written: the runtime checks outs against this flag
    if (is_remote()) return place_remote_constant(bytes, made);
    made.view.data = const_cast<std::byte*>(bytes.data());
    const bool plain = is_aligned(bytes.data(), made.dtype()) && (made.dtype() != DType::kBool || all_bools(bytes));
    if (bytes.empty() || plain) return ok_status();
    PTERON_ASSIGN(Buffer copy, Buffer::create(bytes.size()));
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    if (made.dtype() == DType::kBool) {
      for (std::byte& b : copy.span()) b = std::byte{b != std::byte{0}};
    }
    made.view.data = copy.data();
    made_->memory.push_back(std::move(copy));
    return ok_status();
  }

  Status place_remote_constant(std::span<const std::byte> bytes, Tensor& made) {
    if (made.dtype() == DType::kBool && !all_bools(bytes)) return Status(Code::kInvalidFile, "a constant of bools has bytes that are neither 0 nor 1");
    made.view.data = nullptr;
    if (bytes.empty()) return ok_status();
    PTERON_ASSIGN(const void* const memory, state_.memory->constant(bytes));
    made.view.data = const_cast<void*>(memory);
    state_.data.release(bytes);
    return ok_status();
  }

  static bool all_bools(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b <= std::byte{1}; });
  }

  Result<std::span<const std::byte>> external_bytes(const wire::pte::Tensor& tensor, const Tensor& made) {
    const std::string_view name = text_of(tensor.extra_tensor_info()->fully_qualified_name());
    return state_.data.tensor(name, made, is_early() ? &made_->late_checks : nullptr);
  }

  // --- inputs and outputs ---

  Status make_inputs() {
    const std::span<const int32_t> indices = items_of(plan_.inputs());
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto index = static_cast<size_t>(indices[i]);
      const Role& role = roles_[index];
      if (role.move_target || role.view_target) {
        return Status(Code::kInvalidFile, str_cat("input ", i, " is the target of a move or view instruction"));
      }
      InputSlot slot;
      slot.value = &made_->values[index];
      slot.tag = slot.value->tag;
      slot.integer = slot.value->integer;
      slot.floating = slot.value->floating;
      slot.fixed = made_->info.inputs[i].fixed;
      if (slot.tag == Tag::kTensor) {
        const wire::pte::Tensor& tensor = *value_at(index).val_as_Tensor();
        slot.planned = tensor.allocation_info() != nullptr;
        slot.keeps = !slot.planned || !shares_memory(index);
        if (slot.value->tensor.read_only) return Status(Code::kInvalidFile, str_cat("input ", i, " is a constant"));
        slot.lent = !slot.planned && state_.options.outer_data != nullptr && is_mutated(i);
        slot.written = !slot.planned && !slot.lent && role.written;
        const Device device = slot.value->tensor.view.device;
        slot.copy.allocator = made_->allocator(device.type);
        if (slot.written && device.type != DeviceType::kCpu) {
          return Status(Code::kUnsupported, str_cat("input ", i, ", a tensor on ", device_text(device), ", is written by an instruction: only planned ones may be"));
        }
        slot.value->tensor.read_only = !slot.planned && !slot.lent && !slot.written;
        if (is_remote() && (slot.planned || slot.written)) {
          return Status(Code::kInvalidFile, str_cat("input ", i, " of a payload for a device would have to be copied: it is planned, or written and not lent"));
        }
      } else {
        slot.keeps = true;
        slot.set = slot.tag != Tag::kInt && slot.tag != Tag::kDouble && slot.tag != Tag::kBool;  // None and strings have nothing to set
      }
      made_->input_values.push_back(slot.value);
      made_->inputs.push_back(std::move(slot));
    }
    return ok_status();
  }

  /// True if the file says that a call changes input `index`.
  bool is_mutated(size_t index) const {
    const format::MethodMeta* meta = state_.meta.find(made_->info.name);
    return meta != nullptr && index < meta->inputs.size() && meta->inputs[index].mutated;
  }

  /// True if another value of the plan uses bytes of the planned value `index`.
  bool shares_memory(size_t index) const {
    const Tensor& own = made_->values[index].tensor;
    const auto begin = reinterpret_cast<uintptr_t>(own.view.data);
    for (size_t i = 0; i < made_->values.size(); ++i) {
      const Value& other = made_->values[i];
      if (i == index || other.tag != Tag::kTensor || other.tensor.capacity_bytes == 0) continue;
      const auto other_begin = reinterpret_cast<uintptr_t>(other.tensor.view.data);
      if (other_begin < begin + own.capacity_bytes && begin < other_begin + other.tensor.capacity_bytes) return true;
    }
    return false;
  }

  Status make_outputs() {
    for (const int32_t index : items_of(plan_.outputs())) {
      OutputSlot slot;
      slot.value = &made_->values[static_cast<size_t>(index)];
      slot.is_tensor = slot.value->tag == Tag::kTensor;
      if (slot.is_tensor) {
        const wire::pte::Tensor& tensor = *value_at(static_cast<size_t>(index)).val_as_Tensor();
        const Role& role = roles_[static_cast<size_t>(index)];
        const bool bound_elsewhere = tensor.allocation_info() != nullptr || tensor.data_buffer_idx() > 0 || format::is_external(tensor);
        slot.initial = slot.value->tensor;
        slot.bound_bytes = format::tensor_bytes(tensor);
        slot.direct = !bound_elsewhere && !role.input && !role.view_target && !role.move_target && !role.output_twice;
      }
      made_->outputs.push_back(std::move(slot));
    }
    return ok_status();
  }

  // --- instructions ---

  Status make_code() {
    PTERON_TRY(load_delegates());
    uint32_t base = 0;
    for (uint32_t c = 0; c < count_of(plan_.chains()); ++c) {
      const wire::pte::Chain& chain = *plan_.chains()->Get(c);
      for (uint32_t i = 0; i < count_of(chain.instructions()); ++i) PTERON_TRY(make_instruction(*chain.instructions()->Get(i), base));
      base += count_of(chain.instructions());
    }
    return missing_.empty() ? ok_status() : missing_status();
  }

  Status make_instruction(const wire::pte::Instruction& instruction, uint32_t base) {
    Instruction made;
    int32_t name = -1;
    switch (instruction.instr_args_type()) {
      case InstructionArguments::KernelCall: {
        const wire::pte::KernelCall& call = *instruction.instr_args_as_KernelCall();
        made.kind = Instruction::Kind::kKernel;
        made.args = point_to(items_of(call.args()));
        name = call.op_index();
        const std::string& kernel = made_->info.operators[static_cast<size_t>(name)];
        if (is_device_copy(kernel)) {
          PTERON_TRY(make_device_copy(kernel, made));
          break;
        }
        PTERON_TRY(touches_no_bytes(kernel) ? check_one_memory(made.args, kernel) : check_on_host(made.args, kernel));
        PTERON_TRY(find_kernel(call, made));
        break;
      }
      case InstructionArguments::DelegateCall: {
        const wire::pte::DelegateCall& call = *instruction.instr_args_as_DelegateCall();
        made.kind = Instruction::Kind::kDelegate;
        made.args = point_to(items_of(call.args()));
        made.delegate = made_->delegates[static_cast<size_t>(call.delegate_index())].get();
        name = call.delegate_index();
        if (!takes_devices_[static_cast<size_t>(name)]) PTERON_TRY(check_on_host(made.args, str_cat("delegate \"", made_->info.delegates[static_cast<size_t>(name)], "\"")));
        break;
      }
      case InstructionArguments::MoveCall: {
        const int32_t ends[2] = {instruction.instr_args_as_MoveCall()->move_from(), instruction.instr_args_as_MoveCall()->move_to()};
        made.kind = Instruction::Kind::kMove;
        made.args = point_to(std::span<const int32_t>(ends));
        PTERON_TRY(check_on_host(made.args, "move"));
        break;
      }
      case InstructionArguments::JumpFalseCall: {
        const int32_t condition[1] = {instruction.instr_args_as_JumpFalseCall()->cond_value_index()};
        if (is_remote() && made_->values[static_cast<size_t>(condition[0])].tag == Tag::kTensor) {
          return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " of a payload for a device branches on a tensor"));
        }
        made.kind = Instruction::Kind::kJumpFalse;
        made.args = point_to(std::span<const int32_t>(condition));
        PTERON_TRY(check_on_host(made.args, "jump_false"));
        made.target = base + static_cast<uint32_t>(instruction.instr_args_as_JumpFalseCall()->destination_instruction());
        break;
      }
      default: made.kind = Instruction::Kind::kFree; break;
    }
    made_->code.push_back(made);
    made_->operator_of.push_back(name);
    return ok_status();
  }

  /// Kernels read and write memory of the host.
  Status check_on_host(std::span<Value* const> args, std::string_view name) const {
    for (const Value* arg : args) {
      if (arg->tag == Tag::kTensorList) PTERON_TRY(check_on_host(arg->items, name));
      if (arg->tag != Tag::kTensor || arg->tensor.view.device.type == DeviceType::kCpu) continue;
      return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " (", name, ") gets a tensor on ", device_text(arg->tensor.view.device), ", and takes tensors of the host only"));
    }
    return ok_status();
  }

  /// A view lies where its tensor lies.
  Status check_one_memory(std::span<Value* const> args, std::string_view name) const {
    for (const Value* arg : args) {
      if (arg->tag != Tag::kTensor || args[0]->tag != Tag::kTensor || arg->tensor.view.device == args[0]->tensor.view.device) continue;
      return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " (", name, ") gets tensors on ", device_text(args[0]->tensor.view.device), " and on ", device_text(arg->tensor.view.device)));
    }
    return ok_status();
  }

  Status make_device_copy(std::string_view kernel, Instruction& made) {
    const auto refuse = [&](std::string_view what) { return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " (", kernel, "): ", what)); };
    if (made.args.size() < 2 || made.args.size() > 3 || made.args[0]->tag != Tag::kTensor || made.args.back()->tag != Tag::kTensor || made.args[1] != made.args.back()) {
      return refuse("expected a tensor and where it goes");
    }
    const Tensor &from = made.args[0]->tensor, &to = made.args.back()->tensor;
    const auto& role = roles_[static_cast<size_t>(made.args.back() - made_->values.data())];
    if (to.read_only || role.view_target || role.move_target) return refuse("its result is a constant, an input or a view");
    if (from.dtype() != to.dtype() || from.rank() != to.rank()) return refuse("tensors of different dtypes or ranks");
    const Device device = to.view.device.type != DeviceType::kCpu ? to.view.device : from.view.device;
    const bool both = to.view.device.type != DeviceType::kCpu && from.view.device.type != DeviceType::kCpu;
    if (both && !(to.view.device == from.view.device)) return refuse(str_cat("a copy from ", device_text(from.view.device), " to ", device_text(to.view.device)));
    made.kind = Instruction::Kind::kDeviceCopy;
    made.copy = &made_->copies.emplace_back();
    made.copy->allocator = made_->allocator(device.type);
    return ok_status();
  }

  /// True if the program or the caller may give the value, or a number in it, something else than it has at load. Sizes of tensors do not count: they have bounds.
  bool varies(int32_t index) const {
    const auto changed = [&](int64_t at) {
      const Role& role = roles_[static_cast<size_t>(at)];
      return role.move_target || (made_->values[static_cast<size_t>(at)].tag != Tag::kTensor && (role.input || role.scalar_target || role.written));
    };
    if (changed(index)) return true;
    const auto* list = value_at(static_cast<size_t>(index)).val_as_IntList();
    return list != nullptr && std::ranges::any_of(items_of(list->items()), changed);
  }

  Status find_kernel(const wire::pte::KernelCall& call, Instruction& made) {
    const std::string& name = made_->info.operators[static_cast<size_t>(call.op_index())];
    const Kernel* kernel = prim_kernels().find(name);
    if (kernel == nullptr) kernel = state_.options.kernels->find(name);
    if (kernel == nullptr) {
      if (const UserOp* user_op = find_user_op(state_.libraries, name)) {
        made.kind = Instruction::Kind::kUserOp;
        made.user_op = user_op;
        return check_user_call(*user_op, made.args);
      }
      add_missing(name);
      return ok_status();
    }
    if (is_remote() && (name == "aten::_local_scalar_dense" || name == "executorch_prim::et_copy_index.tensor")) {
      return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " (", name, ") of a payload for a device reads a tensor's bytes"));
    }
    made.fn = kernel->fn;
    PTERON_TRY(check_list_outs(made.args, name));
    if (kernel->workspace == nullptr && kernel->prepare == nullptr) return ok_status();
    KernelContext check;
    check.check_only = true;
    Status status = kernel->fn(check, made.args);
    if (!status.ok()) return std::move(status).with_context(str_cat("instruction ", made_->code.size(), " (", name, ")"));
    if (kernel->workspace != nullptr) {
      scratch_bytes_ = std::max(scratch_bytes_, kernel->workspace(made.args));
      if (std::ranges::any_of(items_of(call.args()), [&](int32_t arg) { return varies(arg); })) {
        made.kind = Instruction::Kind::kSizedKernel;
        made.workspace = kernel->workspace;
      }
    }
    if (kernel->prepare == nullptr) return ok_status();
    Result<std::shared_ptr<const KernelState>> state = kernel->prepare({is_early() ? nullptr : state_.pool, state_.states()}, made.args);
    if (!state.ok()) return std::move(state).status().with_context(str_cat("instruction ", made_->code.size(), " (", name, ")"));
    const bool is_random = kernel->prepare == &uses_random_stream;
    made.state = is_random ? &made_->random : state.value().get();
    if (state.value() == nullptr) {
      if (!is_random && is_early()) keep_for_first_call(*kernel, made.args);
      return ok_status();
    }
    made_->kernel_states.push_back(std::move(state).value());
    if (!is_remote()) release_constants(state_, made.args);
    return ok_status();
  }

  /// True if what reads all bytes of the weights waits for the first call.
  bool is_early() const { return !is_remote() && !state_.options.pack_at_load; }

  void keep_for_first_call(const Kernel& kernel, std::span<Value* const> args) {
    LateKernel& late = made_->late_kernels.emplace_back(LateKernel{made_->code.size(), kernel.prepare, {}});
    for (const Value* arg : args) late.values.push_back(*arg);
  }

  /// A list in the last place is a result: its members must be memory of their own.
  Status check_list_outs(std::span<Value* const> args, std::string_view name) const {
    if (args.empty() || args.back()->tag != Tag::kTensorList) return ok_status();
    for (const Value* item : args.back()->items) {
      if (item->tag != Tag::kTensor) continue;
      const Role& role = roles_[static_cast<size_t>(item - made_->values.data())];
      if (!item->tensor.read_only && !role.view_target && !role.move_target) continue;
      return Status(Code::kInvalidFile, str_cat("instruction ", made_->code.size(), " (", name, "): a result is a constant or a view"));
    }
    return ok_status();
  }

  Status load_delegates() {
    for (uint32_t i = 0; i < count_of(plan_.delegates()); ++i) {
      const wire::pte::BackendDelegate& delegate = *plan_.delegates()->Get(i);
      const std::string_view id = text_of(delegate.id());
      const auto found = std::ranges::find_if(state_.options.delegates, [&](const DelegateBackend* backend) { return backend->id() == id; });
      made_->delegates.emplace_back();
      takes_devices_.push_back(found != state_.options.delegates.end() && (*found)->device_allocator() != nullptr);
      if (found == state_.options.delegates.end()) {
        add_missing(str_cat("delegate \"", id, "\""));
        continue;
      }
      std::vector<DelegateSetting> settings;
      for (uint32_t s = 0; s < count_of(delegate.compile_specs()); ++s) {
        const wire::pte::CompileSpec& spec = *delegate.compile_specs()->Get(s);
        settings.push_back({text_of(spec.key()), std::as_bytes(items_of(spec.value()))});
      }
      DeviceAllocator* const memory = (*found)->device_allocator();
      DelegateLoad request{state_.view.delegate_payload(delegate), settings, made_->info.name, state_.data, *state_.pool, state_.options.log, is_alone(**found)};
      request.pack_at_load = state_.options.pack_at_load;
      if (memory != nullptr && &made_->shared->session_of(*memory) != memory) request.session = &made_->shared->session_of(*memory);
      Result<std::unique_ptr<Delegate>> loaded = (*found)->load(request);
      if (!loaded.ok()) return std::move(loaded).status().with_context(str_cat("delegate ", i, " (", id, ")"));
      made_->delegates.back() = std::move(loaded).value();
    }
    return ok_status();
  }

  const DelegateBackend* find_backend(std::string_view id) const {
    const auto found = std::ranges::find_if(state_.options.delegates, [&](const DelegateBackend* backend) { return backend->id() == id; });
    return found == state_.options.delegates.end() ? nullptr : *found;
  }

  /// True if nobody else uses the method's tensors on the backend's devices.
  bool is_alone(const DelegateBackend& backend) const {
    DeviceAllocator* const allocator = backend.device_allocator();
    if (allocator == nullptr || state_.allocator(allocator->type()) != allocator) return false;
    return std::ranges::all_of(made_->info.delegates, [&](const std::string& id) {
      const DelegateBackend* const other = find_backend(id);
      return other == nullptr || other == &backend || other->device_allocator() == nullptr;
    });
  }

  void add_missing(const std::string& name) {
    const auto found = std::ranges::find(missing_, name, &Missing::name);
    if (found == missing_.end()) {
      missing_.push_back({name, 1});
    } else {
      ++found->calls;
    }
  }

  Status missing_status() const {
    std::string text = "this runtime lacks ";
    for (size_t i = 0; i < missing_.size(); ++i) {
      if (i > 0) text += ", ";
      str_append(text, missing_[i].name, missing_[i].calls > 1 ? str_cat(" (", missing_[i].calls, " calls)") : std::string());
    }
    return Status(Code::kUnsupported, text);
  }

  // --- the rest ---

  Status make_scratch() {
    std::span<std::byte> scratch;
    if (is_remote()) {
      PTERON_ASSIGN(scratch, make_memory("scratch memory of the kernels", scratch_bytes_));
    } else {
      PTERON_ASSIGN(made_->scratch, buffer_for("scratch memory of the kernels", Buffer::create(scratch_bytes_)));
      scratch = made_->scratch.span();
    }
    made_->context.pool = state_.pool;
    made_->random.seed = state_.options.seed;
    made_->context.scratch = scratch;
    return ok_status();
  }

  void save_rebound_values() {
    for (size_t i = 0; i < roles_.size(); ++i) {
      Value& value = made_->values[i];
      const Role& role = roles_[i];
      const bool has_memory = value.tag == Tag::kTensor && value.tensor.view.data != nullptr;
      if (role.move_target || (role.view_target && has_memory)) {
        made_->saved_values.push_back({&value, value});
      } else if (role.view_target) {
        made_->unbound_views.push_back(&value.tensor);
      } else if (role.scalar_target && !role.input) {
        made_->saved_scalars.push_back({&value, value.tag, value.integer, value.floating});
      }
    }
  }

  struct Missing {
    std::string name;
    size_t calls = 0;
  };

  ProgramState& state_;
  const wire::pte::ExecutionPlan& plan_;
  uint32_t plan_index_;
  std::unique_ptr<MethodState> made_;
  std::vector<Role> roles_;
  std::vector<Missing> missing_;
  std::vector<std::span<std::byte>> old_;  // shared arenas that were there before
  std::vector<bool> takes_devices_;        // for each delegate, whether its backend does
  size_t bool_count_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace

Status write_initial(const InitialState& initial) {
  if (initial.bytes.empty()) return ok_status();
  if (initial.allocator != nullptr) return initial.allocator->copy_from_host(initial.index, initial.target, initial.bytes.data(), initial.bytes.size());
  std::memcpy(initial.target, initial.bytes.data(), initial.bytes.size());
  return ok_status();
}

Result<std::unique_ptr<MethodState>> build_method(std::shared_ptr<Program> program, uint32_t index, std::shared_ptr<SharedArenas> shared) {
  const std::string name(text_of(program->state().view.plan(index).name()));
  Result<std::unique_ptr<MethodState>> built = MethodBuilder(std::move(program), index, std::move(shared)).build();
  if (!built.ok()) return std::move(built).status().with_context(str_cat("method ", name));
  return built;
}

}  // namespace pteron::runtime
