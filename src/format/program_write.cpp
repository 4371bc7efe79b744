// Writer of .pte: lays out the segments, builds the flatbuffer, splices the extended header, then streams the payloads one by one.
// Every vector is written even if empty: the official reader insists on presence.
#include "format/program.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "schema/program_generated.h"

namespace pteron::format {

namespace {

namespace pte = wire::pte;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
template <typename T>
using Offsets = std::vector<Offset<T>>;
template <typename T>
using VectorOffset = Offset<flatbuffers::Vector<T>>;

/// A run of bytes of the file behind the flatbuffer.
struct Segment {
  uint64_t offset = 0;  ///< relative to the segment base
  uint64_t size = 0;
};

/// Where everything behind the flatbuffer goes.
struct Layout {
  std::vector<uint64_t> constant_offsets;  ///< with the placeholder at 0
  std::vector<uint64_t> state_offsets;
  std::vector<Segment> segments;
  std::vector<uint32_t> blob_segments;     ///< per blob: index in segments
  uint64_t base_alignment = kSegmentAlignment;
  uint64_t total_bytes = 0;
};

Status too_large(std::string_view what) { return Status(Code::kInvalidInput, str_cat(what, " does not fit a file (over 2^63 bytes)")); }

/// Offsets of payloads placed one after another at multiples of `alignment`; returns the end.
Status place_payloads(std::span<const Payload> payloads, uint64_t alignment, std::vector<uint64_t>* offsets, uint64_t* end) {
  offsets->push_back(0);
  *end = 0;
  for (const Payload& payload : payloads) {
    uint64_t start = 0;
    if (!checked_align(*end, alignment, &start) || !checked_add(start, payload.size_bytes, end)) return too_large("the constant data");
    offsets->push_back(start);
  }
  return ok_status();
}

Status append_segment(Layout& layout, uint64_t size, uint64_t alignment) {
  if (size == 0) {
    layout.segments.push_back({layout.total_bytes, 0});
    return ok_status();
  }
  const uint64_t step = std::max(alignment, kSegmentAlignment);
  uint64_t start = 0;
  if (!checked_align(layout.total_bytes, step, &start) || !checked_add(start, size, &layout.total_bytes)) return too_large("the program");
  layout.segments.push_back({start, size});
  layout.base_alignment = std::max(layout.base_alignment, step);
  return ok_status();
}

Status check_alignment(uint64_t alignment) {
  if (std::has_single_bit(alignment) && alignment >= 16 && alignment <= 4096) return ok_status();
  return Status(Code::kInvalidInput, str_cat("alignment ", alignment, " is not a power of two from 16 to 4096"));
}

/// A blob that names a constant's bytes lies inside the constant segment.
Status place_blob(const ProgramSpec& program, const BlobSpec& blob, uint64_t default_alignment, Layout& layout) {
  layout.blob_segments.push_back(static_cast<uint32_t>(layout.segments.size()));
  if (blob.constant_index == 0) {
    const uint64_t alignment = blob.alignment == 0 ? default_alignment : blob.alignment;
    PTERON_TRY(check_alignment(alignment));
    return append_segment(layout, blob.payload.size_bytes, alignment);
  }
  if (blob.constant_index > program.constants.size()) {
    return Status(Code::kInvalidInput, str_cat("a blob names constant ", blob.constant_index, " of ", program.constants.size()));
  }
  layout.segments.push_back({layout.constant_offsets[blob.constant_index], program.constants[blob.constant_index - 1].size_bytes});
  return ok_status();
}

Result<Layout> place_all(const ProgramSpec& program, const WriteOptions& options) {
  PTERON_TRY(check_alignment(options.alignment));
  Layout layout;
  uint64_t constant_bytes = 0, state_bytes = 0;
  PTERON_TRY(place_payloads(program.constants, options.alignment, &layout.constant_offsets, &constant_bytes));
  PTERON_TRY(append_segment(layout, constant_bytes, options.alignment));
  if (!program.initial_states.empty()) {
    PTERON_TRY(place_payloads(program.initial_states, options.alignment, &layout.state_offsets, &state_bytes));
    PTERON_TRY(append_segment(layout, state_bytes, options.alignment));
  }
  for (const BlobSpec& blob : program.blobs) PTERON_TRY(place_blob(program, blob, options.alignment, layout));
  return layout;
}

/// Builds the flatbuffer part of one program.
class ProgramBuilder {
 public:
  ProgramBuilder(const ProgramSpec& program, const Layout& layout) : program_(program), layout_(layout) {}

  Status build() {
    Offsets<pte::ExecutionPlan> plans;
    for (const PlanSpec& plan : program_.plans) {
      PTERON_ASSIGN(const Offset<pte::ExecutionPlan> written, build_plan(plan));
      plans.push_back(written);
    }
    PTERON_ASSIGN(const VectorOffset<Offset<pte::NamedData>> named, build_named_data());
    const auto segments = build_segments();
    const auto constants = pte::CreateSubsegmentOffsets(fbb_, 0, fbb_.CreateVector(layout_.constant_offsets));
    Offsets<pte::SubsegmentOffsets> states;
    if (!layout_.state_offsets.empty()) states.push_back(pte::CreateSubsegmentOffsets(fbb_, 1, fbb_.CreateVector(layout_.state_offsets)));
    const auto state_list = fbb_.CreateVector(states);
    const auto inline_list = fbb_.CreateVector(inline_data_);
    const auto buffer_list = fbb_.CreateVector(Offsets<pte::Buffer>());
    const auto plan_list = fbb_.CreateVector(plans);
    fbb_.Finish(pte::CreateProgram(fbb_, 0, plan_list, buffer_list, inline_list, segments, constants, state_list, named),
                pte::ProgramIdentifier());
    return ok_status();
  }

  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(fbb_.GetBufferPointer()), fbb_.GetSize()}; }

 private:
  Offset<flatbuffers::String> text(std::string_view value) { return fbb_.CreateString(value.data(), value.size()); }

  VectorOffset<Offset<pte::DataSegment>> build_segments() {
    Offsets<pte::DataSegment> list;
    for (const Segment& segment : layout_.segments) list.push_back(pte::CreateDataSegment(fbb_, segment.offset, segment.size));
    return fbb_.CreateVector(list);
  }

  Result<VectorOffset<Offset<pte::NamedData>>> build_named_data() {
    Offsets<pte::NamedData> list;
    for (const NamedDataSpec& item : program_.named_data) {
      if (item.blob >= program_.blobs.size()) {
        return Status(Code::kInvalidInput, str_cat("named data ", item.key, " names blob ", item.blob, " of ", program_.blobs.size()));
      }
      list.push_back(pte::CreateNamedData(fbb_, text(item.key), layout_.blob_segments[item.blob]));
    }
    return fbb_.CreateVector(list);
  }

  Result<Offset<pte::Tensor>> build_tensor(const TensorSpec& tensor) {
    std::vector<int32_t> sizes;
    for (const int64_t size : tensor.sizes) {
      if (size < 0 || size > std::numeric_limits<int32_t>::max()) {
        return Status(Code::kInvalidInput, str_cat("a tensor with sizes ", str_list(tensor.sizes), " cannot be stored: sizes must be below 2^31"));
      }
      sizes.push_back(static_cast<int32_t>(size));
    }
    std::vector<uint8_t> dim_order = tensor.dim_order;
    for (size_t d = 0; tensor.dim_order.empty() && d < sizes.size(); ++d) dim_order.push_back(static_cast<uint8_t>(d));
    const auto size_list = fbb_.CreateVector(sizes);
    const auto order_list = fbb_.CreateVector(dim_order);
    Offset<pte::AllocationDetails> place;
    if (tensor.allocation.has_value()) {
      const uint64_t offset = tensor.allocation->offset;
      place = pte::CreateAllocationDetails(fbb_, tensor.allocation->memory_id, static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32));
    }
    return pte::CreateTensor(fbb_, static_cast<wire::ScalarType>(tensor.dtype), 0, size_list, order_list, false,
                             tensor.external_name.empty() ? tensor.data_index : 0, place, 0,
                             static_cast<pte::TensorShapeDynamism>(tensor.dynamism), build_extra(tensor));
  }

  Offset<pte::ExtraTensorInfo> build_extra(const TensorSpec& tensor) {
    if (tensor.external_name.empty() && tensor.buffer_name.empty() && tensor.device == Device()) return 0;
    const auto location = tensor.external_name.empty() ? pte::TensorDataLocation::SEGMENT : pte::TensorDataLocation::EXTERNAL;
    return pte::CreateExtraTensorInfo(fbb_, 0, text(tensor.external_name.empty() ? tensor.buffer_name : tensor.external_name), location, static_cast<pte::DeviceType>(tensor.device.type),
                                      tensor.device.index);
  }

  Result<Offset<pte::EValue>> build_value(const ValueSpec& value) {
    if (const auto* tensor = std::get_if<TensorSpec>(&value)) {
      PTERON_ASSIGN(const Offset<pte::Tensor> written, build_tensor(*tensor));
      return pte::CreateEValue(fbb_, pte::KernelTypes::Tensor, written.Union());
    }
    return build_plain_value(value);
  }

  Offset<pte::EValue> make_value(pte::KernelTypes type, Offset<void> value) { return pte::CreateEValue(fbb_, type, value); }

  Offset<pte::EValue> build_plain_value(const ValueSpec& value) {
    using pte::KernelTypes;
    if (const auto* v = std::get_if<int64_t>(&value)) return make_value(KernelTypes::Int, pte::CreateInt(fbb_, *v).Union());
    if (const auto* v = std::get_if<bool>(&value)) return make_value(KernelTypes::Bool, pte::CreateBool(fbb_, *v).Union());
    if (const auto* v = std::get_if<double>(&value)) return make_value(KernelTypes::Double, pte::CreateDouble(fbb_, *v).Union());
    if (const auto* v = std::get_if<std::string>(&value)) return make_value(KernelTypes::String, pte::CreateString(fbb_, text(*v)).Union());
    if (const auto* v = std::get_if<IntListValue>(&value)) {
      return make_value(KernelTypes::IntList, pte::CreateIntList(fbb_, fbb_.CreateVector(v->items)).Union());
    }
    if (const auto* v = std::get_if<DoubleListValue>(&value)) {
      return make_value(KernelTypes::DoubleList, pte::CreateDoubleList(fbb_, fbb_.CreateVector(v->items)).Union());
    }
    if (const auto* v = std::get_if<BoolListValue>(&value)) {
      return make_value(KernelTypes::BoolList, pte::CreateBoolList(fbb_, fbb_.CreateVector(v->items)).Union());
    }
    if (const auto* v = std::get_if<TensorListValue>(&value)) {
      return make_value(KernelTypes::TensorList, pte::CreateTensorList(fbb_, fbb_.CreateVector(v->items)).Union());
    }
    if (const auto* v = std::get_if<OptionalTensorListValue>(&value)) {
      return make_value(KernelTypes::OptionalTensorList, pte::CreateOptionalTensorList(fbb_, fbb_.CreateVector(v->items)).Union());
    }
    return make_value(KernelTypes::Null, pte::CreateNull(fbb_).Union());
  }

  Offset<pte::Instruction> build_instruction(const InstructionSpec& instruction) {
    using pte::InstructionArguments;
    if (const auto* call = std::get_if<KernelCall>(&instruction)) {
      const auto written = pte::CreateKernelCall(fbb_, call->op_index, fbb_.CreateVector(call->args));
      return pte::CreateInstruction(fbb_, InstructionArguments::KernelCall, written.Union());
    }
    if (const auto* call = std::get_if<DelegateCall>(&instruction)) {
      const auto written = pte::CreateDelegateCall(fbb_, call->delegate_index, fbb_.CreateVector(call->args));
      return pte::CreateInstruction(fbb_, InstructionArguments::DelegateCall, written.Union());
    }
    if (const auto* call = std::get_if<MoveCall>(&instruction)) {
      return pte::CreateInstruction(fbb_, InstructionArguments::MoveCall, pte::CreateMoveCall(fbb_, call->from, call->to).Union());
    }
    if (const auto* call = std::get_if<JumpFalseCall>(&instruction)) {
      return pte::CreateInstruction(fbb_, InstructionArguments::JumpFalseCall,
                                    pte::CreateJumpFalseCall(fbb_, call->condition, call->destination).Union());
    }
    return pte::CreateInstruction(fbb_, InstructionArguments::FreeCall, pte::CreateFreeCall(fbb_, std::get<FreeCall>(instruction).value).Union());
  }

  Offset<pte::Chain> build_chain(const PlanSpec& plan) {
    Offsets<pte::Instruction> list;
    for (const InstructionSpec& instruction : plan.instructions) list.push_back(build_instruction(instruction));
    const auto instructions = fbb_.CreateVector(list);
    const auto inputs = fbb_.CreateVector(std::vector<int32_t>());
    const auto outputs = fbb_.CreateVector(std::vector<int32_t>());
    return pte::CreateChain(fbb_, inputs, outputs, instructions);
  }

  /// A payload without bytes has no segment and stays inline.
  Result<Offset<pte::BackendDelegateDataReference>> build_payload_reference(const DelegateSpec& delegate) {
    if (delegate.blob >= program_.blobs.size()) {
      return Status(Code::kInvalidInput, str_cat("delegate ", delegate.id, " names blob ", delegate.blob, " of ", program_.blobs.size()));
    }
    const uint32_t segment = layout_.blob_segments[delegate.blob];
    if (layout_.segments[segment].size > 0) return pte::CreateBackendDelegateDataReference(fbb_, pte::DataLocation::SEGMENT, segment);
    fbb_.ForceVectorAlignment(0, 1, kFlatbufferAlignment);
    inline_data_.push_back(pte::CreateBackendDelegateInlineData(fbb_, fbb_.CreateVector(std::vector<uint8_t>())));
    return pte::CreateBackendDelegateDataReference(fbb_, pte::DataLocation::INLINE, static_cast<uint32_t>(inline_data_.size() - 1));
  }

  Result<Offset<pte::BackendDelegate>> build_delegate(const DelegateSpec& delegate) {
    Offsets<pte::CompileSpec> specs;
    for (const CompileSpec& spec : delegate.compile_specs) {
      const auto value = fbb_.CreateVector(reinterpret_cast<const uint8_t*>(spec.value.data()), spec.value.size());
      specs.push_back(pte::CreateCompileSpec(fbb_, text(spec.key), value));
    }
    PTERON_ASSIGN(const Offset<pte::BackendDelegateDataReference> reference, build_payload_reference(delegate));
    return pte::CreateBackendDelegate(fbb_, text(delegate.id), reference, fbb_.CreateVector(specs));
  }

  /// Absent while all arenas are on the CPU, as the official writer has it.
  VectorOffset<Offset<pte::NonConstBufferDevice>> build_arena_devices(const PlanSpec& plan) {
    Offsets<pte::NonConstBufferDevice> list;
    for (size_t i = 0; i < plan.arenas.size(); ++i) {
      const Device device = plan.arenas[i].device;
      if (device.type == DeviceType::kCpu) continue;
      list.push_back(pte::CreateNonConstBufferDevice(fbb_, static_cast<int32_t>(i + 1), static_cast<pte::DeviceType>(device.type), device.index));
    }
    return list.empty() ? VectorOffset<Offset<pte::NonConstBufferDevice>>() : fbb_.CreateVector(list);
  }

  Result<Offset<pte::ExecutionPlan>> build_plan(const PlanSpec& plan) {
    Offsets<pte::EValue> values;
    for (size_t i = 0; i < plan.values.size(); ++i) {
      auto value = build_value(plan.values[i]);
      if (!value.ok()) return std::move(value).status().with_context(str_cat("plan ", plan.name, ": value ", i));
      values.push_back(*value);
    }
    Offsets<pte::Operator> operators;
    for (const OperatorSpec& op : plan.operators) {
      const auto name = text(op.name);
      operators.push_back(pte::CreateOperator(fbb_, name, text(op.overload)));
    }
    Offsets<pte::BackendDelegate> delegates;
    for (const DelegateSpec& delegate : plan.delegates) {
      PTERON_ASSIGN(const Offset<pte::BackendDelegate> written, build_delegate(delegate));
      delegates.push_back(written);
    }
    std::vector<int64_t> arena_sizes = {0};
    for (const ArenaSpec& arena : plan.arenas) arena_sizes.push_back(arena.size_bytes);
    const auto name = text(plan.name);
    const auto input_spec = text(plan.input_spec);
    const auto output_spec = text(plan.output_spec);
    const auto container = pte::CreateContainerMetadata(fbb_, input_spec, output_spec);
    const auto chains = fbb_.CreateVector(Offsets<pte::Chain>{build_chain(plan)});
    const auto value_list = fbb_.CreateVector(values);
    const auto inputs = fbb_.CreateVector(plan.inputs);
    const auto outputs = fbb_.CreateVector(plan.outputs);
    const auto operator_list = fbb_.CreateVector(operators);
    const auto delegate_list = fbb_.CreateVector(delegates);
    const auto arenas = fbb_.CreateVector(arena_sizes);
    return pte::CreateExecutionPlan(fbb_, name, container, value_list, inputs, outputs, chains, operator_list, delegate_list, arenas,
                                    build_arena_devices(plan));
  }

  const ProgramSpec& program_;
  const Layout& layout_;
  FlatBufferBuilder fbb_{size_t{64} << 10};
  Offsets<pte::BackendDelegateInlineData> inline_data_;
};

/// The flatbuffer part as it stands in the file, the extended header spliced in if there are segments.
Result<Buffer> splice_header(std::span<const std::byte> flatbuffer, const Layout& layout, uint64_t alignment) {
  if (layout.total_bytes == 0) {
    PTERON_ASSIGN(Buffer plain, Buffer::create(flatbuffer.size()));
    std::memcpy(plain.data(), flatbuffer.data(), flatbuffer.size());
    return plain;
  }
  const uint64_t block = align_up(kProgramHeaderBytes, alignment);
  const uint64_t program_bytes = flatbuffer.size() + block;
  PTERON_ASSIGN(Buffer out, Buffer::create_zeroed(program_bytes));
  const std::span<std::byte> bytes = out.span();
  std::memcpy(bytes.data(), flatbuffer.data(), kPrefixBytes);
  std::memcpy(bytes.data() + kPrefixBytes + block, flatbuffer.data() + kPrefixBytes, flatbuffer.size() - kPrefixBytes);
  write_number<uint32_t>(bytes, 0, read_number<uint32_t>(flatbuffer, 0) + static_cast<uint32_t>(block));
  std::memcpy(bytes.data() + 8, kProgramHeaderMagic.data(), kProgramHeaderMagic.size());
  write_number<uint32_t>(bytes, 12, kProgramHeaderBytes);
  write_number<uint64_t>(bytes, 16, program_bytes);
  write_number<uint64_t>(bytes, 24, align_up(program_bytes, layout.base_alignment));
  write_number<uint64_t>(bytes, 32, layout.total_bytes);
  return out;
}

/// Streams payloads to their places; `at` is the position relative to the segment base.
class SegmentWriter {
 public:
  explicit SegmentWriter(ByteSink& sink) : sink_(sink) {}
  Status write_at(uint64_t offset, const Payload& payload) {
    if (payload.size_bytes == 0) return ok_status();
    PTERON_TRY(write_zeros(offset - at_, sink_));
    at_ = offset + payload.size_bytes;
    return write_payload(payload, sink_);
  }

 private:
  ByteSink& sink_;
  uint64_t at_ = 0;
};

Status write_segments(const ProgramSpec& program, const Layout& layout, ByteSink& sink) {
  SegmentWriter writer(sink);
  for (size_t i = 0; i < program.constants.size(); ++i) PTERON_TRY(writer.write_at(layout.constant_offsets[i + 1], program.constants[i]));
  for (size_t i = 0; i < program.initial_states.size(); ++i) {
    PTERON_TRY(writer.write_at(layout.segments[1].offset + layout.state_offsets[i + 1], program.initial_states[i]));
  }
  for (size_t i = 0; i < program.blobs.size(); ++i) {
    if (program.blobs[i].constant_index > 0) continue;
    PTERON_TRY(writer.write_at(layout.segments[layout.blob_segments[i]].offset, program.blobs[i].payload));
  }
  return ok_status();
}

}  // namespace

Status write_program(const ProgramSpec& program, const WriteOptions& options, ByteSink& sink) {
  PTERON_ASSIGN(const Layout layout, place_all(program, options));
  ProgramBuilder builder(program, layout);
  PTERON_TRY(builder.build());
  if (builder.bytes().size() > kMaxFlatbufferBytes - 8192) {
    return Status(Code::kInvalidInput, str_cat("the program without its data needs ", builder.bytes().size(), " bytes, the format allows 2 GiB"));
  }
  PTERON_ASSIGN(const Buffer part, splice_header(builder.bytes(), layout, options.alignment));
  const uint64_t base = layout.total_bytes == 0 ? part.size() : align_up(part.size(), layout.base_alignment);
  uint64_t file_bytes = 0;
  if (!checked_add(base, layout.total_bytes, &file_bytes)) return too_large("the program");
  auto checked = verify_program_part(part.span(), file_bytes);
  if (!checked.ok()) return Status(Code::kInvalidInput, str_cat("the program to be written is not valid: ", checked.status().message()));
  PTERON_TRY(sink.reserve(file_bytes));
  PTERON_TRY(sink.write(part.span()));
  PTERON_TRY(write_zeros(base - part.size(), sink));
  return write_segments(program, layout, sink);
}

}  // namespace pteron::format
