// Verification of a .pte from outside: header, flatbuffer structure, then every index, offset, size, enumeration and union.
// FlatBuffers' own verifier accepts unknown unions and enumerations, absent fields, unaligned 8-byte vectors and shared subtrees; all of that is
// checked here, with a budget so that a small file cannot ask for a lot of work.
#include <algorithm>
#include <array>
#include <limits>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"

namespace pteron::format {

namespace pte = wire::pte;

namespace {

/// An absent vector counts as empty everywhere; entries of vectors of tables are never null after flatbuffers' verifier.
template <typename T>
std::string index_text(std::string_view what, T index, uint64_t count) {
  return str_cat(what, " index ", index, " is outside the ", count, " there are");
}

}  // namespace

/// Walks one program; each check_ function states what it is in and returns at the first fault.
class ProgramVerifier {
 public:
  ProgramVerifier(std::span<const std::byte> part, uint64_t file_bytes) : part_(part), file_bytes_(file_bytes) {}

  Result<ProgramView> verify() {
    PTERON_TRY(read_header());
    PTERON_TRY(check_flatbuffer());
    PTERON_TRY(check_segments());
    PTERON_TRY(check_named_data());
    for (uint32_t i = 0; i < view_.plan_count(); ++i) {
      PTERON_TRY(check_plan_name(i));
      plan_ = &view_.plan(i);
      Status status = check_plan();
      if (!status.ok()) return std::move(status).with_context(str_cat("plan ", text_of(plan_->name())));
    }
    return std::move(view_);
  }

 private:
  // --- header and structure ---

  Status read_header() {
    if (part_.size() < 2 * kPrefixBytes) {
      return Status::invalid_file(str_cat("a program file is expected, found only ", part_.size(), " bytes"));
    }
    if (read_tag(part_, 4) != kProgramIdentifier) {
      return Status::invalid_file(str_cat("a program file with identifier ET12 at byte 4 is expected, found ", kind_of_file(part_)));
    }
    view_.file_ = part_;
    if (read_tag(part_, 8) != kProgramHeaderMagic) {
      view_.header_.program_bytes = part_.size();
      if (part_.size() > kMaxFlatbufferBytes) return Status::invalid_file("a program file without extended header must be smaller than 2 GiB");
      return ok_status();
    }
    return read_extended_header();
  }

  Status read_extended_header() {
    ProgramHeader& header = view_.header_;
    header.header_bytes = read_number<uint32_t>(part_, 12);
    if (header.header_bytes < kMinProgramHeaderBytes || header.header_bytes > part_.size() - kPrefixBytes) {
      return Status::invalid_file(str_cat("extended header at byte 8: length of at least 24 inside the file is expected, found ", header.header_bytes));
    }
    header.program_bytes = read_number<uint64_t>(part_, 16);
    header.segment_base = read_number<uint64_t>(part_, 24);
    if (header.header_bytes >= kProgramHeaderBytes) header.segment_bytes = read_number<uint64_t>(part_, 32);
    if (header.program_bytes < kPrefixBytes + header.header_bytes || header.program_bytes > kMaxFlatbufferBytes ||
        header.program_bytes > part_.size()) {
      return Status::invalid_file(str_cat("extended header: program size ", header.program_bytes, " does not fit a file of ", file_bytes_, " bytes (cut off?)"));
    }
    if (header.segment_base != 0 && (header.segment_base < header.program_bytes || header.segment_base > file_bytes_)) {
      return Status::invalid_file(str_cat("extended header: segments at byte ", header.segment_base, " are not between the program's end at ",
                             header.program_bytes, " and the file's end at ", file_bytes_, " (cut off?)"));
    }
    if (header.segment_bytes > 0 && !range_inside(header.segment_base, header.segment_bytes, file_bytes_)) {
      return Status::invalid_file(str_cat("extended header: ", header.segment_bytes, " bytes of segments at byte ", header.segment_base,
                             " are expected, the file has ", file_bytes_, " bytes (cut off?)"));
    }
    return ok_status();
  }

  Status check_flatbuffer() {
    const std::span<const std::byte> program = part_.first(view_.header_.program_bytes);
    const std::byte* data = program.data();
    if (reinterpret_cast<uintptr_t>(data) % kFlatbufferAlignment != 0) {
      PTERON_ASSIGN(view_.aligned_copy_, Buffer::create(program.size()));
      std::memcpy(view_.aligned_copy_.data(), data, program.size());
      data = view_.aligned_copy_.data();
    }
    flatbuffers::Verifier::Options options;
    // A table and the reference to it take at least 8 bytes.
    options.max_tables = static_cast<flatbuffers::uoffset_t>(program.size() / 8 + 1);
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(data), program.size(), options);
    if (!verifier.VerifyBuffer<pte::Program>(pte::ProgramIdentifier())) {
      return Status::invalid_file(str_cat("the program part (", program.size(), " bytes) is not a well-formed flatbuffer"));
    }
    view_.root_ = pte::GetProgram(data);
    budget_ = program.size();
    return ok_status();
  }

  /// Takes the bytes of a vector from the budget: vectors of an honest file do not overlap, so all of them together are smaller than it.
  template <typename T>
  Status take(const flatbuffers::Vector<T>* vector, std::string_view what) {
    const std::span<const T> items = items_of(vector);
    if (items.size_bytes() > budget_) return Status::invalid_file(str_cat(what, ": overlapping vectors in the flatbuffer"));
    budget_ -= items.size_bytes();
    if (reinterpret_cast<uintptr_t>(items.data()) % alignof(T) != 0) return Status::invalid_file(str_cat(what, ": unaligned vector in the flatbuffer"));
    return ok_status();
  }

  // --- segments and named data ---

  Status check_segments() {
    const pte::Program& root = *view_.root_;
    for (uint32_t i = 0; i < count_of(root.segments()); ++i) PTERON_TRY(check_segment(i, *root.segments()->Get(i)));
    for (uint32_t i = 0; i < count_of(root.constant_buffer()); ++i) {
      PTERON_TRY(take(root.constant_buffer()->Get(i)->storage(), "constant buffer"));
    }
    for (uint32_t i = 0; i < count_of(root.backend_delegate_data()); ++i) {
      PTERON_TRY(take(root.backend_delegate_data()->Get(i)->data(), "inline delegate data"));
    }
    if (root.constant_segment() != nullptr) PTERON_TRY(check_places(*root.constant_segment(), "constant segment"));
    for (uint32_t i = 0; i < count_of(root.mutable_data_segments()); ++i) {
      PTERON_TRY(check_places(*root.mutable_data_segments()->Get(i), "mutable data segment"));
    }
    return ok_status();
  }

  Status check_segment(uint32_t index, const pte::DataSegment& segment) {
    if (segment.size() == 0) return ok_status();
    const ProgramHeader& header = view_.header_;
    if (header.header_bytes == 0 || header.segment_base == 0) {
      return Status::invalid_file(str_cat("segment ", index, " of ", segment.size(), " bytes: the file has no extended header eh00 that says where segments start",
                             header.header_bytes == 0 ? " (bytes 8 to 11 hold something else)" : ""));
    }
    const uint64_t limit = header.segment_bytes > 0 ? header.segment_bytes : file_bytes_ - header.segment_base;
    if (!range_inside(segment.offset(), segment.size(), limit)) {
      return Status::invalid_file(str_cat("segment ", index, ": ", segment.size(), " bytes at offset ", segment.offset(), " do not fit in the ", limit,
                             " bytes of segments"));
    }
    return ok_status();
  }

  Status check_places(const pte::SubsegmentOffsets& places, std::string_view what) {
    PTERON_TRY(take(places.offsets(), what));
    const std::span<const uint64_t> offsets = items_of(places.offsets());
    const uint32_t segments = count_of(view_.root_->segments());
    // Only the placeholder: no constants; the segment need not exist.
    if (offsets.size() <= 1 && places.segment_index() >= segments) return ok_status();
    if (places.segment_index() >= segments) return Status::invalid_file(str_cat(what, ": ", index_text("segment", places.segment_index(), segments)));
    const uint64_t size = view_.root_->segments()->Get(places.segment_index())->size();
    for (const uint64_t offset : offsets) {
      if (offset > size) return Status::invalid_file(str_cat(what, ": offset ", offset, " is outside the segment of ", size, " bytes"));
    }
    return ok_status();
  }

  Status check_named_data() {
    const auto* list = view_.root_->named_data();
    const uint32_t segments = count_of(view_.root_->segments());
    for (uint32_t i = 0; i < count_of(list); ++i) {
      const pte::NamedData& item = *list->Get(i);
      if (item.key() == nullptr) return Status::invalid_file(str_cat("named data ", i, " has no key"));
      if (item.segment_index() >= segments) {
        return Status::invalid_file(str_cat("named data ", text_of(item.key()), ": ", index_text("segment", item.segment_index(), segments)));
      }
      // The writer's self-check has no segments at hand.
      const bool whole_file = part_.size() == file_bytes_;
      view_.named_.push_back({text_of(item.key()), whole_file ? view_.segment(item.segment_index()) : std::span<const std::byte>()});
    }
    std::ranges::stable_sort(view_.named_, {}, &NamedRange::key);
    const auto twice = std::ranges::adjacent_find(view_.named_, {}, &NamedRange::key);
    if (twice != view_.named_.end()) return Status::invalid_file(str_cat("named data ", twice->key, " occurs twice"));
    return ok_status();
  }

  // --- plans ---

  Status check_plan_name(uint32_t index) {
    const auto* name = view_.plan(index).name();
    if (name == nullptr) return Status::invalid_file(str_cat("plan ", index, " has no name"));
    for (uint32_t i = 0; i < index && index < kMaxNamedPlans; ++i) {
      if (text_of(view_.plan(i).name()) == text_of(name)) return Status::invalid_file(str_cat("plan ", text_of(name), " occurs twice"));
    }
    if (index >= kMaxNamedPlans) return Status::invalid_file(str_cat("more than ", kMaxNamedPlans, " plans"));
    return ok_status();
  }

  Status check_plan() {
    PTERON_TRY(check_arenas());
    const auto* values = plan_->values();
    value_count_ = count_of(values);
    for (uint32_t i = 0; i < value_count_; ++i) {
      Status status = check_value(*values->Get(i));
      if (!status.ok()) return std::move(status).with_context(str_cat("value ", i));
    }
    PTERON_TRY(check_indices(plan_->inputs(), "input"));
    PTERON_TRY(check_indices(plan_->outputs(), "output"));
    for (uint32_t i = 0; i < count_of(plan_->operators()); ++i) {
      if (plan_->operators()->Get(i)->name() == nullptr) return Status::invalid_file(str_cat("operator ", i, " has no name"));
    }
    for (uint32_t i = 0; i < count_of(plan_->delegates()); ++i) {
      Status status = check_delegate(*plan_->delegates()->Get(i));
      if (!status.ok()) return std::move(status).with_context(str_cat("delegate ", i));
    }
    for (uint32_t i = 0; i < count_of(plan_->chains()); ++i) {
      Status status = check_chain(*plan_->chains()->Get(i));
      if (!status.ok()) return std::move(status).with_context(str_cat("chain ", i));
    }
    return check_loops();
  }

  Status check_arenas() {
    PTERON_TRY(take(plan_->non_const_buffer_sizes(), "non_const_buffer_sizes"));
    const std::span<const int64_t> sizes = items_of(plan_->non_const_buffer_sizes());
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0) return Status::invalid_file(str_cat("arena ", i, " has size ", sizes[i]));
    }
    view_.arenas_.emplace_back(std::max<size_t>(sizes.size(), 1), 0);
    const auto* devices = plan_->non_const_buffer_device();
    for (uint32_t i = 0; i < count_of(devices); ++i) {
      const pte::NonConstBufferDevice& device = *devices->Get(i);
      if (device.buffer_idx() < 0 || static_cast<size_t>(device.buffer_idx()) >= sizes.size()) {
        return Status::invalid_file(index_text("arena device: arena", device.buffer_idx(), sizes.size()));
      }
      PTERON_TRY(check_device(device.device_type(), device.device_index()));
    }
    return ok_status();
  }

  Status check_device(pte::DeviceType type, int8_t index) {
    if (type == pte::DeviceType::CPU || (type == pte::DeviceType::CUDA && index >= -1)) return ok_status();
    return Status::invalid_file(str_cat("unknown device type ", static_cast<int>(type), " or index ", static_cast<int>(index)));
  }

  template <typename T>
  Status check_indices(const flatbuffers::Vector<T>* vector, std::string_view what) {
    PTERON_TRY(take(vector, what));
    for (const T index : items_of(vector)) PTERON_TRY(check_index(index, what));
    return ok_status();
  }

  Status check_index(int64_t index, std::string_view what) {
    if (index >= 0 && index < static_cast<int64_t>(value_count_)) return ok_status();
    return Status::invalid_file(str_cat(what, ": ", index_text("value", index, value_count_)));
  }

  // --- values ---

  Status check_value(const pte::EValue& value) {
    if (value.val_type() == pte::KernelTypes::NONE || value.val_type() > pte::KernelTypes::MAX) {
      return Status::invalid_file(str_cat("unknown kind ", static_cast<int>(value.val_type())));
    }
    if (value.val() == nullptr) return Status::invalid_file(str_cat("a value of kind ", static_cast<int>(value.val_type()), " without content"));
    switch (value.val_type()) {
      case pte::KernelTypes::Tensor: return check_tensor(*value.val_as_Tensor());
      case pte::KernelTypes::String:
        return value.val_as_String()->string_val() != nullptr ? ok_status() : Status::invalid_file("a string without text");
      case pte::KernelTypes::IntList: return check_list(value.val_as_IntList()->items(), pte::KernelTypes::Int, false);
      case pte::KernelTypes::DoubleList: return take(value.val_as_DoubleList()->items(), "list of floats");
      case pte::KernelTypes::BoolList: return take(value.val_as_BoolList()->items(), "list of bools");
      case pte::KernelTypes::TensorList: return check_list(value.val_as_TensorList()->items(), pte::KernelTypes::Tensor, false);
      case pte::KernelTypes::OptionalTensorList:
        return check_list(value.val_as_OptionalTensorList()->items(), pte::KernelTypes::Tensor, true);
      default: return ok_status();
    }
  }

  /// Members are values of kind `member`; -1 stands for None in optional lists.
  template <typename T>
  Status check_list(const flatbuffers::Vector<T>* items, pte::KernelTypes member, bool optional) {
    PTERON_TRY(take(items, "list"));
    for (const T index : items_of(items)) {
      if (optional && index == -1) continue;
      PTERON_TRY(check_index(index, "list"));
      const auto kind = plan_->values()->Get(static_cast<uint32_t>(index))->val_type();
      if (kind == member || (optional && kind == pte::KernelTypes::Null)) continue;
      return Status::invalid_file(str_cat("list: member ", index, " has kind ", static_cast<int>(kind), ", kind ", static_cast<int>(member), " is expected"));
    }
    return ok_status();
  }

  Status check_tensor(const pte::Tensor& tensor) {
    const int dtype = static_cast<int>(tensor.scalar_type());
    if (!is_known_dtype(dtype)) return Status::invalid_file(str_cat("tensor with scalar type ", dtype, ", which is not known"));
    if (tensor.storage_offset() != 0) return Status::invalid_file(str_cat("tensor with storage offset ", tensor.storage_offset(), ", 0 is expected"));
    if (tensor.layout() != 0) return Status::invalid_file(str_cat("tensor with layout ", static_cast<int>(tensor.layout()), ", 0 (strided) is expected"));
    if (tensor.shape_dynamism() < pte::TensorShapeDynamism::MIN || tensor.shape_dynamism() > pte::TensorShapeDynamism::MAX) {
      return Status::invalid_file(str_cat("tensor with shape dynamism ", static_cast<int>(tensor.shape_dynamism())));
    }
    uint64_t bytes = 0;
    PTERON_TRY(check_sizes(tensor, &bytes));
    PTERON_TRY(check_extra(tensor));
    return check_data(tensor, bytes);
  }

  Status check_sizes(const pte::Tensor& tensor, uint64_t* bytes) {
    PTERON_TRY(take(tensor.sizes(), "sizes"));
    PTERON_TRY(take(tensor.dim_order(), "dim order"));
    const std::span<const int32_t> sizes = items_of(tensor.sizes());
    const std::span<const uint8_t> order = items_of(tensor.dim_order());
    if (sizes.size() > static_cast<size_t>(kMaxRank)) return Status::invalid_file(str_cat("tensor of rank ", sizes.size(), ", at most ", kMaxRank, " is allowed"));
    if (order.size() != sizes.size()) return Status::invalid_file(str_cat("dim order of ", order.size(), " dims for a tensor of rank ", sizes.size()));
    std::array<bool, kMaxRank> seen{};
    for (const uint8_t d : order) {
      if (d >= order.size() || std::exchange(seen[d], true)) return Status::invalid_file("dim order is not a permutation");
    }
    std::array<int64_t, kMaxRank> wide{};
    std::ranges::copy(sizes, wide.begin());
    int64_t numel = 0, total = 0;
    if (!checked_numel({wide.data(), sizes.size()}, &numel) ||
        !checked_mul(numel, static_cast<int64_t>(dtype_size(static_cast<DType>(tensor.scalar_type()))), &total)) {
      return Status::invalid_file(str_cat("tensor sizes ", str_list(sizes), " are negative or too large"));
    }
    *bytes = static_cast<uint64_t>(total);
    return ok_status();
  }

  Status check_extra(const pte::Tensor& tensor) {
    const auto* extra = tensor.extra_tensor_info();
    if (extra == nullptr) return ok_status();
    if (extra->location() < pte::TensorDataLocation::MIN || extra->location() > pte::TensorDataLocation::MAX) {
      return Status::invalid_file(str_cat("tensor with data location ", static_cast<int>(extra->location())));
    }
    if (is_external(tensor) && text_of(extra->fully_qualified_name()).empty()) return Status::invalid_file("external tensor without a name");
    return check_device(extra->device_type(), extra->device_index());
  }

  Status check_data(const pte::Tensor& tensor, uint64_t bytes) {
    const auto* place = tensor.allocation_info();
    if (place != nullptr) PTERON_TRY(check_allocation(*place, bytes));
    if (is_external(tensor) || tensor.data_buffer_idx() == 0) return ok_status();
    const uint32_t index = tensor.data_buffer_idx();
    const pte::Program& root = *view_.root_;
    if (place != nullptr) {
      if (count_of(root.mutable_data_segments()) == 0) return Status::invalid_file(str_cat("tensor with initial state ", index, ", but the program has no such data"));
      return check_place(*root.mutable_data_segments()->Get(0), index, bytes, "initial state");
    }
    if (constants_in_segment(root)) return check_place(*root.constant_segment(), index, bytes, "constant");
    const uint32_t inline_count = count_of(root.constant_buffer());
    if (index >= inline_count) return Status::invalid_file(index_text("constant: data", index, inline_count));
    const uint64_t stored = count_of(root.constant_buffer()->Get(index)->storage());
    if (bytes > stored) return Status::invalid_file(str_cat("constant ", index, ": ", bytes, " bytes are expected, ", stored, " are stored"));
    return ok_status();
  }

  Status check_place(const pte::SubsegmentOffsets& places, uint32_t index, uint64_t bytes, std::string_view what) {
    if (index >= count_of(places.offsets())) return Status::invalid_file(str_cat(what, ": ", index_text("data", index, count_of(places.offsets()))));
    const uint64_t offset = places.offsets()->Get(index);
    const uint64_t size = view_.root_->segments()->Get(places.segment_index())->size();
    if (range_inside(offset, bytes, size)) return ok_status();
    return Status::invalid_file(str_cat(what, " ", index, ": ", bytes, " bytes at offset ", offset, " do not fit in the segment of ", size, " bytes"));
  }

  Status check_allocation(const pte::AllocationDetails& place, uint64_t bytes) {
    const std::span<const int64_t> sizes = items_of(plan_->non_const_buffer_sizes());
    if (place.memory_id() == 0 || place.memory_id() >= sizes.size()) return Status::invalid_file(index_text("planned tensor: arena", place.memory_id(), sizes.size()));
    const uint64_t offset = offset_of(place);
    const uint64_t size = static_cast<uint64_t>(sizes[place.memory_id()]);
    if (!range_inside(offset, bytes, size)) {
      return Status::invalid_file(str_cat("planned tensor: ", bytes, " bytes at offset ", offset, " do not fit in arena ", place.memory_id(), " of ", size, " bytes"));
    }
    uint64_t& reach = view_.arenas_.back()[place.memory_id()];
    reach = std::max(reach, offset + bytes);
    return ok_status();
  }

  // --- delegates and instructions ---

  Status check_delegate(const pte::BackendDelegate& delegate) {
    if (delegate.id() == nullptr) return Status::invalid_file("no id");
    const auto* reference = delegate.processed();
    if (reference == nullptr) return Status::invalid_file(str_cat("delegate ", text_of(delegate.id()), " has no payload reference"));
    uint32_t count = 0;
    switch (reference->location()) {
      case pte::DataLocation::INLINE: count = count_of(view_.root_->backend_delegate_data()); break;
      case pte::DataLocation::SEGMENT: count = count_of(view_.root_->segments()); break;
      default: return Status::invalid_file(str_cat("unknown payload location ", static_cast<int>(reference->location())));
    }
    if (reference->index() >= count) return Status::invalid_file(index_text("payload", reference->index(), count));
    for (uint32_t i = 0; i < count_of(delegate.compile_specs()); ++i) {
      const pte::CompileSpec& spec = *delegate.compile_specs()->Get(i);
      if (spec.key() == nullptr) return Status::invalid_file(str_cat("compile spec ", i, " has no key"));
      PTERON_TRY(take(spec.value(), "compile spec"));
    }
    return ok_status();
  }

  Status check_chain(const pte::Chain& chain) {
    PTERON_TRY(check_indices(chain.inputs(), "chain input"));
    PTERON_TRY(check_indices(chain.outputs(), "chain output"));
    instruction_count_ = count_of(chain.instructions());
    for (uint32_t i = 0; i < instruction_count_; ++i) {
      Status status = check_instruction(*chain.instructions()->Get(i));
      if (!status.ok()) return std::move(status).with_context(str_cat("instruction ", i));
    }
    return ok_status();
  }

  /// Refuses loops that nothing ends: a jump back, or to itself, on a false that no instruction writes, over instructions of which none jumps out.
  /// Requires: checked chains.
  Status check_loops() {
    std::vector<bool> fixed = false_bools();
    uint64_t steps = 0;  // files made to cost time have more jumps than those of a writer: past this many steps, their loops are taken as they are
    for (uint32_t c = 0; c < count_of(plan_->chains()); ++c) {
      const auto* code = plan_->chains()->Get(c)->instructions();
      for (uint32_t i = 0; i < count_of(code); ++i) {
        const auto* jump = code->Get(i)->instr_args_as_JumpFalseCall();
        if (jump == nullptr || static_cast<uint32_t>(jump->destination_instruction()) > i || !fixed[static_cast<size_t>(jump->cond_value_index())]) continue;
        const auto begin = static_cast<uint32_t>(jump->destination_instruction());
        bool leaves = false;
        for (uint32_t k = begin; k < i && !leaves && steps < kMaxLoopSteps; ++k, ++steps) {
          const auto* other = code->Get(k)->instr_args_as_JumpFalseCall();
          if (other == nullptr) continue;
          const auto target = static_cast<uint32_t>(other->destination_instruction());
          leaves = target < begin || target > i;
        }
        if (leaves || steps >= kMaxLoopSteps) continue;
        return Status::invalid_file(str_cat("chain ", c, ": instruction ", i, " jumps back to instruction ", begin,
                                            " on a condition that is always false, and nothing in between leaves this endless loop"));
      }
    }
    return ok_status();
  }

  /// Which values are bools that are false and stay so: no input, no argument of a call (it may write there), no target of a move.
  std::vector<bool> false_bools() const {
    std::vector<bool> fixed(value_count_);
    for (uint32_t i = 0; i < value_count_; ++i) {
      const auto* value = plan_->values()->Get(i)->val_as_Bool();
      fixed[i] = value != nullptr && !value->bool_val();
    }
    const auto varies = [&](const auto* indices) {
      for (const auto index : items_of(indices)) fixed[static_cast<size_t>(index)] = false;
    };
    varies(plan_->inputs());
    for (uint32_t c = 0; c < count_of(plan_->chains()); ++c) {
      const auto* code = plan_->chains()->Get(c)->instructions();
      for (uint32_t i = 0; i < count_of(code); ++i) {
        const pte::Instruction& instruction = *code->Get(i);
        if (const auto* call = instruction.instr_args_as_KernelCall()) varies(call->args());
        if (const auto* call = instruction.instr_args_as_DelegateCall()) varies(call->args());
        if (const auto* move = instruction.instr_args_as_MoveCall()) fixed[static_cast<size_t>(move->move_to())] = false;
      }
    }
    return fixed;
  }

  Status check_instruction(const pte::Instruction& instruction) {
    if (instruction.instr_args_type() != pte::InstructionArguments::NONE && instruction.instr_args() == nullptr) {
      return Status::invalid_file("an instruction without content");
    }
    switch (instruction.instr_args_type()) {
      case pte::InstructionArguments::KernelCall: return check_kernel_call(*instruction.instr_args_as_KernelCall());
      case pte::InstructionArguments::DelegateCall: return check_delegate_call(*instruction.instr_args_as_DelegateCall());
      case pte::InstructionArguments::MoveCall:
        PTERON_TRY(check_index(instruction.instr_args_as_MoveCall()->move_from(), "move source"));
        return check_index(instruction.instr_args_as_MoveCall()->move_to(), "move target");
      case pte::InstructionArguments::JumpFalseCall: return check_jump(*instruction.instr_args_as_JumpFalseCall());
      case pte::InstructionArguments::FreeCall: return check_index(instruction.instr_args_as_FreeCall()->value_index(), "freed value");
      default: return Status::invalid_file(str_cat("unknown kind ", static_cast<int>(instruction.instr_args_type())));
    }
  }

  Status check_kernel_call(const pte::KernelCall& call) {
    const uint32_t count = count_of(plan_->operators());
    if (call.op_index() < 0 || static_cast<uint32_t>(call.op_index()) >= count) return Status::invalid_file(index_text("operator", call.op_index(), count));
    return check_indices(call.args(), "argument");
  }

  Status check_delegate_call(const pte::DelegateCall& call) {
    const uint32_t count = count_of(plan_->delegates());
    if (call.delegate_index() < 0 || static_cast<uint32_t>(call.delegate_index()) >= count) {
      return Status::invalid_file(index_text("delegate", call.delegate_index(), count));
    }
    return check_indices(call.args(), "argument");
  }

  /// The instruction behind the last one is a valid destination: the end.
  Status check_jump(const pte::JumpFalseCall& jump) {
    PTERON_TRY(check_index(jump.cond_value_index(), "condition"));
    const auto kind = plan_->values()->Get(static_cast<uint32_t>(jump.cond_value_index()))->val_type();
    if (kind != pte::KernelTypes::Bool && kind != pte::KernelTypes::Tensor) {
      return Status::invalid_file(str_cat("condition: a bool or tensor is expected, found a value of kind ", static_cast<int>(kind)));
    }
    if (jump.destination_instruction() >= 0 && static_cast<uint32_t>(jump.destination_instruction()) <= instruction_count_) return ok_status();
    return Status::invalid_file(index_text("jump destination: instruction", jump.destination_instruction(), instruction_count_));
  }

  /// Instructions that check_loops looks at.
  static constexpr uint64_t kMaxLoopSteps = 10'000'000;
  /// Names are compared pairwise below this.
  static constexpr uint32_t kMaxNamedPlans = 4096;

  std::span<const std::byte> part_;
  uint64_t file_bytes_;
  uint64_t budget_ = 0;
  ProgramView view_;
  const pte::ExecutionPlan* plan_ = nullptr;
  uint32_t value_count_ = 0;
  uint32_t instruction_count_ = 0;
};

Result<ProgramView> verify_program(std::span<const std::byte> file) { return ProgramVerifier(file, file.size()).verify(); }

Result<ProgramView> verify_program_part(std::span<const std::byte> part, uint64_t file_bytes) {
  return ProgramVerifier(part, file_bytes).verify();
}

}  // namespace pteron::format
