// FlatBuffers' verifier first, then what it does not see: the size in front, absent tables, several members in one event, unknown dtypes.
#include "format/etdump.h"

#include <algorithm>

#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "schema/etdump_generated.h"
#include "tensor/dtype.h"

namespace pteron::format {

namespace {

namespace we = wire::etdump;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

/// Bytes of the size in front of the flatbuffer.
constexpr uint64_t kSizePrefixBytes = 4;
constexpr uint64_t kMaxWrittenBytes = uint64_t{1} << 30;

Offset<flatbuffers::String> build_text(FlatBufferBuilder& fbb, std::string_view text) {
  return text.empty() ? Offset<flatbuffers::String>() : fbb.CreateSharedString(text.data(), text.size());
}

Offset<we::Tensor> build_tensor(FlatBufferBuilder& fbb, const EtdumpTensor& tensor) {
  const auto sizes = fbb.CreateVector(tensor.sizes.data(), tensor.sizes.size());
  return we::CreateTensor(fbb, static_cast<wire::ScalarType>(tensor.dtype), sizes, 0, tensor.offset_bytes);
}

Offset<we::Value> build_value(FlatBufferBuilder& fbb, const EtdumpDebug& event) {
  we::ValueType kind = we::ValueType::Null;
  Offset<we::Tensor> tensor;
  Offset<we::TensorList> list;
  Offset<we::Int> number;
  Offset<we::Double> real;
  Offset<we::Bool> truth;
  if (const auto* one = std::get_if<EtdumpTensor>(&event.value)) {
    kind = we::ValueType::Tensor;
    tensor = build_tensor(fbb, *one);
  } else if (const auto* many = std::get_if<std::vector<EtdumpTensor>>(&event.value)) {
    kind = we::ValueType::TensorList;
    std::vector<Offset<we::Tensor>> tensors;
    for (const EtdumpTensor& item : *many) tensors.push_back(build_tensor(fbb, item));
    list = we::CreateTensorList(fbb, fbb.CreateVector(tensors));
  } else if (const auto* integer = std::get_if<int64_t>(&event.value)) {
    kind = we::ValueType::Int;
    number = we::CreateInt(fbb, *integer);
  } else if (const auto* flag = std::get_if<bool>(&event.value)) {
    kind = we::ValueType::Bool;
    truth = we::CreateBool(fbb, *flag);
  } else if (const auto* floating = std::get_if<double>(&event.value)) {
    kind = we::ValueType::Double;
    real = we::CreateDouble(fbb, *floating);
  }
  const auto output = event.is_output ? we::CreateBool(fbb, true) : Offset<we::Bool>();
  return we::CreateValue(fbb, kind, tensor, list, number, 0, real, truth, output);
}

Offset<we::Event> build_event(FlatBufferBuilder& fbb, const EtdumpEvent& event) {
  if (const auto* allocation = std::get_if<EtdumpAllocation>(&event)) {
    return we::CreateEvent(fbb, 0, we::CreateAllocationEvent(fbb, allocation->allocator, allocation->size_bytes));
  }
  if (const auto* debug = std::get_if<EtdumpDebug>(&event)) {
    const auto value = build_value(fbb, *debug);
    const auto text = build_text(fbb, debug->place.delegate_text), name = build_text(fbb, debug->name);
    return we::CreateEvent(
        fbb, 0, 0,
        we::CreateDebugEvent(fbb, static_cast<uint64_t>(debug->place.chain), debug->place.instruction, value, debug->place.delegate_number, text, name));
  }
  const EtdumpProfile& profile = std::get<EtdumpProfile>(event);
  const auto name = build_text(fbb, profile.name), text = build_text(fbb, profile.place.delegate_text);
  const auto metadata = profile.metadata.empty() ? Offset<flatbuffers::Vector<uint8_t>>()
                                                 : fbb.CreateVector(reinterpret_cast<const uint8_t*>(profile.metadata.data()), profile.metadata.size());
  return we::CreateEvent(fbb, we::CreateProfileEvent(fbb, name, static_cast<int32_t>(profile.place.chain), profile.place.instruction,
                                                     profile.place.delegate_number, text, metadata, profile.start, profile.end));
}

Result<EtdumpTensor> read_tensor(const we::Tensor* tensor, std::string_view where) {
  if (tensor == nullptr) return Status::invalid_file(str_cat(where, ": the tensor that the value names is missing"));
  const int dtype = static_cast<int>(tensor->scalar_type());
  if (!is_known_dtype(dtype)) return Status::invalid_file(str_cat(where, ": dtype ", dtype, " is unknown"));
  return EtdumpTensor{static_cast<DType>(dtype), items_of(tensor->sizes()), tensor->offset()};
}

Result<EtdumpValue> read_value(const we::Value* value, std::string_view where) {
  if (value == nullptr) return EtdumpValue();
  const auto missing = [&] { return Status::invalid_file(str_cat(where, ": the value that its kind names is missing")); };
  switch (value->val()) {
    case we::ValueType::Null:
    case we::ValueType::String:  // the format has no member for it
      return EtdumpValue();
    case we::ValueType::Int:
      if (value->int_value() == nullptr) return missing();
      return EtdumpValue(value->int_value()->int_val());
    case we::ValueType::Bool:
      if (value->bool_value() == nullptr) return missing();
      return EtdumpValue(value->bool_value()->bool_val());
    case we::ValueType::Float:
      if (value->float_value() == nullptr) return missing();
      return EtdumpValue(double{value->float_value()->float_val()});
    case we::ValueType::Double:
      if (value->double_value() == nullptr) return missing();
      return EtdumpValue(value->double_value()->double_val());
    case we::ValueType::Tensor: {
      PTERON_ASSIGN(const EtdumpTensor tensor, read_tensor(value->tensor(), where));
      return EtdumpValue(tensor);
    }
    case we::ValueType::TensorList: {
      if (value->tensor_list() == nullptr) return missing();
      std::vector<EtdumpTensor> list;
      for (uint32_t i = 0; i < count_of(value->tensor_list()->tensors()); ++i) {
        PTERON_ASSIGN(const EtdumpTensor tensor, read_tensor(value->tensor_list()->tensors()->Get(i), where));
        list.push_back(tensor);
      }
      return EtdumpValue(std::move(list));
    }
  }
  return Status::invalid_file(str_cat(where, ": kind ", static_cast<int>(value->val()), " of a value is unknown"));
}

template <typename T>
EtdumpPlace place_of(const T& event) {
  return {static_cast<int64_t>(event.chain_index()), event.instruction_id(), event.delegate_debug_id_int(), text_of(event.delegate_debug_id_str())};
}

Result<EtdumpEvent> read_event(const we::Event& event, size_t allocators, std::string_view where) {
  const int members = (event.profile_event() != nullptr) + (event.allocation_event() != nullptr) + (event.debug_event() != nullptr);
  if (members != 1) return Status::invalid_file(str_cat(where, ": one event is expected, found ", members));
  if (const auto* profile = event.profile_event()) {
    const auto metadata = items_of(profile->delegate_debug_metadata());
    return EtdumpEvent(EtdumpProfile{text_of(profile->name()), place_of(*profile), profile->start_time(), profile->end_time(), std::as_bytes(metadata)});
  }
  if (const auto* allocation = event.allocation_event()) {
    if (allocation->allocator_id() < 0 || static_cast<uint64_t>(allocation->allocator_id()) >= allocators) {
      return Status::invalid_file(str_cat(where, ": allocator ", allocation->allocator_id(), " of ", allocators));
    }
    return EtdumpEvent(EtdumpAllocation{allocation->allocator_id(), allocation->allocation_size()});
  }
  const we::DebugEvent& debug = *event.debug_event();
  PTERON_ASSIGN(EtdumpValue value, read_value(debug.debug_entry(), where));
  const bool is_output = debug.debug_entry() != nullptr && debug.debug_entry()->output() != nullptr && debug.debug_entry()->output()->bool_val();
  return EtdumpEvent(EtdumpDebug{text_of(debug.name()), place_of(debug), std::move(value), is_output});
}

/// A bound on what an event takes in the file: tables, their references and its own numbers; texts are shared.
constexpr uint64_t kEventBytes = 160;

uint64_t written_bytes(const Etdump& dump) {
  uint64_t total = 0;
  for (const EtdumpRun& run : dump.runs) {
    total += kEventBytes + run.name.size();
    for (const std::string_view name : run.allocators) total += kEventBytes + name.size();
    for (const EtdumpEvent& event : run.events) {
      total += kEventBytes;
      if (const auto* profile = std::get_if<EtdumpProfile>(&event)) total += profile->metadata.size();
      const auto* debug = std::get_if<EtdumpDebug>(&event);
      const auto* list = debug == nullptr ? nullptr : std::get_if<std::vector<EtdumpTensor>>(&debug->value);
      if (list != nullptr) total += kEventBytes * list->size();
    }
  }
  return total;
}

}  // namespace

Result<Buffer> write_etdump(const Etdump& dump) {
  if (const uint64_t bytes = written_bytes(dump); bytes > kMaxWrittenBytes) {
    return Status(Code::kInvalidInput, str_cat("an ETDump of about ", bytes, " bytes is more than 1 GiB; record fewer calls"));
  }
  FlatBufferBuilder fbb;
  std::vector<Offset<we::RunData>> runs;
  for (const EtdumpRun& run : dump.runs) {
    std::vector<Offset<we::Allocator>> allocators;
    for (const std::string_view name : run.allocators) allocators.push_back(we::CreateAllocator(fbb, build_text(fbb, name)));
    std::vector<Offset<we::Event>> events;
    events.reserve(run.events.size());
    for (const EtdumpEvent& event : run.events) events.push_back(build_event(fbb, event));
    const auto name = build_text(fbb, run.name);
    const auto allocator_list = run.allocators.empty() ? Offset<flatbuffers::Vector<Offset<we::Allocator>>>() : fbb.CreateVector(allocators);
    runs.push_back(we::CreateRunData(fbb, name, run.bundled_case, allocator_list, fbb.CreateVector(events)));
  }
  fbb.FinishSizePrefixed(we::CreateETDump(fbb, 0, fbb.CreateVector(runs)), we::ETDumpIdentifier());
  PTERON_ASSIGN(Buffer out, Buffer::create(fbb.GetSize()));
  std::copy_n(reinterpret_cast<const std::byte*>(fbb.GetBufferPointer()), fbb.GetSize(), out.data());
  return out;
}

bool is_etdump(std::span<const std::byte> file) {
  return file.size() >= kEtdumpIdentifierAt + kEtdumpIdentifier.size() && read_tag(file, kEtdumpIdentifierAt) == kEtdumpIdentifier;
}

Result<Etdump> read_etdump(std::span<const std::byte> file) {
  if (!is_etdump(file)) return Status::invalid_file(str_cat("an ETDump with identifier ED00 at byte 8 is expected, found ", kind_of_file(file)));
  const uint64_t said = uint64_t{read_number<uint32_t>(file, 0)} + kSizePrefixBytes;
  if (said != file.size()) return Status::invalid_file(str_cat("the ETDump says that it has ", said, " bytes, found ", file.size()));
  if (said > kMaxFlatbufferBytes) return Status::invalid_file("an ETDump must be smaller than 2 GiB");
  Etdump dump;
  if (reinterpret_cast<uintptr_t>(file.data()) % kFlatbufferAlignment != 0) {
    PTERON_ASSIGN(dump.aligned_copy, Buffer::create(file.size()));
    std::ranges::copy(file, dump.aligned_copy.data());
    file = dump.aligned_copy.span().first(file.size());
  }
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(file.size() / 8 + 1);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(file.data()), file.size(), options);
  if (!we::VerifySizePrefixedETDumpBuffer(verifier)) return Status::invalid_file("the ETDump's table is damaged");
  const we::ETDump& root = *we::GetSizePrefixedETDump(file.data());
  if (root.version() != 0) return Status(Code::kUnsupported, str_cat("version 0 of ETDumps is expected, found ", root.version()));
  for (uint32_t r = 0; r < count_of(root.run_data()); ++r) {
    const we::RunData& run = *root.run_data()->Get(r);
    EtdumpRun out{text_of(run.name()), run.bundled_input_index()};
    for (uint32_t i = 0; i < count_of(run.allocators()); ++i) out.allocators.push_back(text_of(run.allocators()->Get(i)->name()));
    for (uint32_t i = 0; i < count_of(run.events()); ++i) {
      PTERON_ASSIGN(EtdumpEvent event, read_event(*run.events()->Get(i), out.allocators.size(), str_cat("run ", r, ", event ", i)));
      out.events.push_back(std::move(event));
    }
    dump.runs.push_back(std::move(out));
  }
  return dump;
}

}  // namespace pteron::format
