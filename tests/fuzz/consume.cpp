// The consumers: every range that a reader hands out is read to its end, so that a sanitizer sees a range that is too long.
#include "fuzz/consume.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cuda/module.h"
#include "backends/tensorrt/blob.h"
#include "base/byte_sink.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "base/zip.h"
#include "format/bundle.h"
#include "format/data_file.h"
#include "format/etdump.h"
#include "format/meta.h"
#include "format/program_view.h"
#include "fuzz/seeds.h"
#include "import/import.h"
#include "import/pickle.h"
#include "import/sample_inputs.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/catalog.h"
#include "pteron/program.h"
#include "runtime/state.h"
#include "runtime/test_kernels.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "tensor/write_rows.h"

/// Damaged sizes may ask for terabytes: that is an error of the program under test, not of the sanitizer.
extern "C" const char* __asan_default_options();  // NOLINT: the sanitizer's name
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=4096"; }

namespace pteron::fuzz {

namespace {

namespace pte = wire::pte;

/// Tensors larger than this are not filled and run.
constexpr uint64_t kMaxRunBytes = uint64_t{1} << 20;

/// Reads all bytes; the result keeps the compiler from dropping the loop.
void touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte b : bytes) sum += static_cast<unsigned>(b);
  [[maybe_unused]] volatile unsigned keep = sum;
}

void touch(std::string_view text) { touch(std::as_bytes(std::span(text.data(), text.size()))); }

template <typename T>
void touch_items(const flatbuffers::Vector<T>* vector) {
  touch(std::as_bytes(format::items_of(vector)));
}

void touch_tensor(const format::ProgramView& view, const pte::Tensor& tensor) {
  touch_items(tensor.sizes());
  touch_items(tensor.dim_order());
  if (tensor.extra_tensor_info() != nullptr) touch(format::text_of(tensor.extra_tensor_info()->fully_qualified_name()));
  if (format::is_external(tensor) || tensor.data_buffer_idx() == 0) return;
  touch(tensor.allocation_info() == nullptr ? view.constant(tensor) : view.initial_state(tensor));
}

void touch_value(const format::ProgramView& view, const pte::EValue& value) {
  switch (value.val_type()) {
    case pte::KernelTypes::Tensor: return touch_tensor(view, *value.val_as_Tensor());
    case pte::KernelTypes::String: return touch(format::text_of(value.val_as_String()->string_val()));
    case pte::KernelTypes::IntList: return touch_items(value.val_as_IntList()->items());
    case pte::KernelTypes::DoubleList: return touch_items(value.val_as_DoubleList()->items());
    case pte::KernelTypes::BoolList: return touch_items(value.val_as_BoolList()->items());
    case pte::KernelTypes::TensorList: return touch_items(value.val_as_TensorList()->items());
    case pte::KernelTypes::OptionalTensorList: return touch_items(value.val_as_OptionalTensorList()->items());
    default: return;
  }
}

void touch_plan(const format::ProgramView& view, const pte::ExecutionPlan& plan) {
  touch(format::text_of(plan.name()));
  for (uint32_t i = 0; i < format::count_of(plan.values()); ++i) touch_value(view, *plan.values()->Get(i));
  for (uint32_t i = 0; i < format::count_of(plan.operators()); ++i) {
    touch(format::text_of(plan.operators()->Get(i)->name()));
    touch(format::text_of(plan.operators()->Get(i)->overload()));
  }
  for (uint32_t i = 0; i < format::count_of(plan.delegates()); ++i) touch(view.delegate_payload(*plan.delegates()->Get(i)));
  touch_items(plan.inputs());
  touch_items(plan.outputs());
  for (uint32_t c = 0; c < format::count_of(plan.chains()); ++c) {
    const auto* list = plan.chains()->Get(c)->instructions();
    for (uint32_t i = 0; i < format::count_of(list); ++i) {
      if (const auto* call = list->Get(i)->instr_args_as_KernelCall()) {
        touch_items(call->args());
        touch(format::text_of(plan.operators()->Get(static_cast<uint32_t>(call->op_index()))->name()));
      }
      if (const auto* call = list->Get(i)->instr_args_as_DelegateCall()) touch_items(call->args());
    }
  }
}

/// Sets every input to zeros of the largest size; false if one is too large for a test.
bool set_zero_inputs(Method& method, std::vector<std::vector<std::byte>>& storage) {
  for (size_t i = 0; i < method.input_count(); ++i) {
    const ValueInfo& info = method.info().inputs[i];
    if (info.kind != ValueKind::kTensor) continue;
    if (info.bound_bytes() > kMaxRunBytes) return false;
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : info.dims) sizes.push_back(dim.max);
    storage.emplace_back(info.bound_bytes() + 1);
    if (!method.set_input(i, make_contiguous_view(info.dtype, sizes, storage.back().data())).ok()) return false;
  }
  return true;
}

bool run_method(Program& program, std::string_view name) {
  static_cast<void>(program.method_info(name).ok());
  auto method = program.load_method(name);
  if (!method.ok()) return false;
  std::vector<std::vector<std::byte>> storage;
  if (!set_zero_inputs(**method, storage) || !(*method)->execute().ok()) return false;
  for (size_t i = 0; i < (*method)->output_count(); ++i) {
    auto output = (*method)->output(i);
    if (!output.ok()) continue;
    if (const auto* tensor = std::get_if<TensorView>(&*output); tensor != nullptr && tensor->size_bytes() <= kMaxRunBytes) {
      MemorySink sink;
      if (write_row_major(*tensor, sink).ok()) touch(sink.bytes());
    }
  }
  return true;
}

/// The bytes as a file in a heap buffer of exactly their size; null if there is no memory.
std::shared_ptr<FileBytes> file_of(std::span<const std::byte> bytes) {
  auto buffer = Buffer::create(bytes.size());
  if (!buffer.ok()) return nullptr;
  if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
  return FileBytes::from_buffer(std::move(*buffer));
}

void touch_tensors(std::span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) {
    MemorySink sink;
    if (write_row_major(tensor.view, sink).ok()) touch(sink.bytes());
  }
}

}  // namespace

bool consume_program(std::span<const std::byte> bytes) {
  auto view = format::verify_program(bytes);
  if (!view.ok()) return false;
  for (const format::NamedRange& named : view->named_data()) {
    touch(named.key);
    touch(named.bytes);
  }
  for (uint32_t i = 0; i < format::count_of(view->root().segments()); ++i) touch(view->segment(i));
  for (uint32_t i = 0; i < view->plan_count(); ++i) touch_plan(*view, view->plan(i));
  if (const auto spec = format::read_program(*view); spec.ok()) {  // as merge does
    MemorySink sink;
    if (format::write_program(*spec, {}, sink).ok()) touch(sink.bytes());
  }
  return true;
}

bool consume_run(std::span<const std::byte> bytes) {
  LoadOptions options;
  options.kernels = &runtime::testing::test_kernels();
  options.threads = 1;
  options.max_instructions = 1000;
  auto program = runtime::load_program(nullptr, bytes, "fuzz.pte", options);
  if (!program.ok()) return false;
  bool good = true;
  for (const std::string& name : (*program)->method_names()) good = run_method(**program, name) && good;
  return good;
}

bool consume_data_file(std::span<const std::byte> bytes) {
  auto view = format::verify_data_file(bytes);
  if (!view.ok()) return false;
  for (const format::DataEntry& entry : view->entries()) {
    touch(entry.key);
    touch(entry.bytes);
  }
  return format::check_manifest(*view, true).ok();
}

bool consume_bundle(std::span<const std::byte> bytes) {
  const auto bundle = format::read_bundle(bytes);
  if (!bundle.ok()) return false;
  touch(bundle->program);
  for (const format::BundledSuite& suite : bundle->suites) {
    touch(suite.method);
    for (const format::BundledCase& one : suite.cases) {
      for (const auto* list : {&one.inputs, &one.expected}) {
        for (const format::BundledValue& value : *list) {
          if (const auto* tensor = std::get_if<format::BundledTensor>(&value)) touch(tensor->bytes);
        }
      }
    }
  }
  return format::write_bundle(*bundle).ok();
}

bool consume_etdump(std::span<const std::byte> bytes) {
  const auto dump = format::read_etdump(bytes);
  if (!dump.ok()) return false;
  const auto touch_place = [](const format::EtdumpPlace& place) { touch(place.delegate_text); };
  for (const format::EtdumpRun& run : dump->runs) {
    touch(run.name);
    for (const std::string_view name : run.allocators) touch(name);
    for (const format::EtdumpEvent& event : run.events) {
      if (const auto* profile = std::get_if<format::EtdumpProfile>(&event)) touch(profile->name), touch(profile->metadata), touch_place(profile->place);
      const auto* debug = std::get_if<format::EtdumpDebug>(&event);
      if (debug == nullptr) continue;
      touch(debug->name);
      touch_place(debug->place);
      if (const auto* tensor = std::get_if<format::EtdumpTensor>(&debug->value)) touch(std::as_bytes(tensor->sizes));
      const auto* list = std::get_if<std::vector<format::EtdumpTensor>>(&debug->value);
      for (size_t i = 0; list != nullptr && i < list->size(); ++i) touch(std::as_bytes((*list)[i].sizes));
    }
  }
  const auto again = format::write_etdump(*dump);
  return again.ok() && format::read_etdump(again->span()).ok();
}

bool consume_weights(std::span<const std::byte> bytes) {
  static const std::vector<std::byte> program = program_with_weights();
  LoadOptions options;
  options.kernels = &runtime::testing::test_kernels();
  options.threads = 1;
  options.data_in_memory = {bytes};
  auto loaded = runtime::load_program(nullptr, program, "fuzz.pte", options);
  return loaded.ok() && run_method(**loaded, "forward");
}

bool consume_tensorrt_blob(std::span<const std::byte> bytes) {
  const auto blob = tensorrt::read_blob(bytes);
  if (!blob.ok()) return false;
  touch(blob->engine);
  for (const tensorrt::Binding& binding : blob->metadata.bindings) touch(binding.name);
  return blob->metadata.bindings.empty() || tensorrt::blob_head(blob->metadata, blob->engine.size()).ok();
}

bool consume_engine_record(std::span<const std::byte> bytes) {
  std::vector<std::string> slots(1);
  for (const std::byte byte : bytes) {
    if (byte == std::byte{'\n'}) slots.emplace_back();
    else slots.back().push_back(static_cast<char>(byte));
  }
  const auto record = tensorrt::read_record(slots);
  if (!record.ok()) return false;
  touch(record->name);
  return record->metadata.bindings.empty() || tensorrt::blob_head(record->metadata, 1).ok();
}

bool consume_cuda_module(std::span<const std::byte> bytes) {
  const auto entries = cuda::read_module(bytes);
  if (!entries.ok()) return false;
  for (const cuda::ModuleEntry& entry : *entries) touch(entry.bytes);
  touch(cuda::list_entries(*entries));
  return cuda::write_module(*entries).ok();
}

bool consume_meta(std::span<const std::byte> bytes) {
  auto view = format::verify_meta(bytes);
  auto meta = format::read_meta(bytes);
  if (!meta.ok() || !view.ok()) return false;
  for (const format::MethodMeta& method : meta->methods) {
    const std::vector<int64_t> symbols(method.symbols.size(), 3);
    for (const format::ConstraintMeta& constraint : method.constraints) static_cast<void>(format::evaluate(constraint.condition, symbols));
    for (const format::PortMeta& port : method.inputs) {
      for (const format::DimExpr& dim : port.dims) static_cast<void>(format::evaluate(dim, symbols));
    }
  }
  return format::write_meta(*meta).ok();
}

bool consume_safetensors(std::span<const std::byte> bytes) {
  auto file = read_safetensors(bytes);
  if (!file.ok()) return false;
  touch_tensors(file->tensors);
  return true;
}

bool consume_npy(std::span<const std::byte> bytes) {
  if (auto view = read_npy(bytes); view.ok()) {
    const NamedTensor tensor{"0", *view};
    touch_tensors({&tensor, 1});
    return true;
  }
  auto archive = read_npz(bytes, nullptr);
  if (!archive.ok()) return false;
  touch_tensors(archive->tensors);
  return true;
}

bool consume_zip(std::span<const std::byte> bytes) {
  auto zip = ZipFile::open(bytes, nullptr);
  if (!zip.ok()) return false;
  bool good = true;
  for (const ZipEntry& entry : zip->entries()) {
    touch(entry.name);
    auto content = zip->read(entry, true);
    if (content.ok()) touch(content->bytes);
    good = good && content.ok();
  }
  return good;
}

bool consume_archive(std::span<const std::byte> bytes) {
  static const Result<ir::Catalog> catalog = ops::make_catalog();
  auto file = file_of(bytes);
  if (!catalog.ok() || file == nullptr) return false;
  ir::Program program;
  importer::ImportOptions options;
  options.check_weights = false;  // changed bytes of weights are of no interest
  return importer::import_archive(std::move(file), *catalog, options, program).ok();
}

bool consume_model_json(std::span<const std::byte> bytes) { return consume_archive(build_archive(bytes)); }

bool consume_sample_inputs(std::span<const std::byte> bytes) {
  auto file = file_of(bytes);
  if (file == nullptr) return false;
  const auto inputs = importer::read_sample_inputs(std::move(file), "");
  if (!inputs.ok()) return false;
  for (const importer::SampleInput& input : *inputs) {
    touch(input.path);
    const auto* tensor = std::get_if<ir::Constant>(&input.value);
    if (tensor == nullptr || tensor->size_bytes() > kMaxRunBytes) continue;
    TensorView view = make_contiguous_view(tensor->dtype, tensor->sizes, const_cast<std::byte*>(tensor->data));
    std::copy(tensor->strides.begin(), tensor->strides.end(), view.stride_array.begin());
    MemorySink sink;
    if (write_row_major(view, sink).ok()) touch(sink.bytes());
  }
  return true;
}

bool consume_pickle(std::span<const std::byte> bytes) {
  importer::PickleArena arena;
  return importer::read_pickle(bytes, arena).ok();
}

bool consume_ir_text(std::span<const std::byte> bytes) {
  static const auto catalog = ops::make_catalog();
  ir::Program program;
  if (!catalog.ok() || !ir::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, *catalog, program).ok()) return false;
  if (!ir::verify(program, ir::Dialect::kImported).ok()) return false;
  const std::string first = ir::print(program);
  ir::Program again;
  const Status status = ir::parse(first, *catalog, again);
  PTERON_CHECK(status.ok());
  PTERON_CHECK(ir::print(again) == first);
  return true;
}

}  // namespace pteron::fuzz
