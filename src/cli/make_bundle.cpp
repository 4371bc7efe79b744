// Tensors of a case go into the bundle in the memory format of the method's inputs and outputs: the official runtime converts nothing.
#include "cli/make_bundle.h"

#include <algorithm>
#include <cstring>

#include "base/str_cat.h"
#include "format/payload.h"
#include "tensor/dtype.h"

namespace pteron::cli {

namespace {

Status invalid(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

/// The tensor of a file for an input or output; null if there is none.
Result<const NamedTensor*> find(const TensorFile& file, size_t index, const std::function<Result<size_t>(std::string_view)>& index_of) {
  const NamedTensor* found = nullptr;
  for (const NamedTensor& tensor : file.tensors) {
    PTERON_ASSIGN(const size_t position, index_of(tensor.name));
    if (position == index) found = &tensor;
  }
  return found;
}

template <typename T>
T number_of(const TensorView& view) {
  T value{};
  std::memcpy(&value, view.data, sizeof value);
  return value;
}

/// A number as the bundle holds it. The view has one element of the value's own dtype, as Method::set_input takes it.
format::BundledValue scalar_of(const TensorView& view) {
  if (view.dtype == DType::kBool) return number_of<bool>(view);
  if (view.dtype == DType::kFloat64) return number_of<double>(view);
  return number_of<int64_t>(view);
}

DType dtype_of(const ValueInfo& value) {
  return value.kind == ValueKind::kInt      ? DType::kInt64
         : value.kind == ValueKind::kDouble ? DType::kFloat64
         : value.kind == ValueKind::kBool   ? DType::kBool
                                            : value.dtype;
}

bool has_sizes(const TensorView& view, const std::vector<DimInfo>& dims) {
  return std::ranges::equal(view.sizes(), dims, [](int64_t size, const DimInfo& dim) { return size >= dim.min && size <= dim.max; });
}

std::string label(std::string_view what, size_t index, const ValueInfo& value) {
  return str_cat(what, " ", index, " (", value.name, ", ", value.type_text(), ")");
}

}  // namespace

Result<Method*> BundleMaker::load(const std::string& name) {
  const auto known = std::ranges::find(methods_, name, &std::pair<std::string, std::unique_ptr<Method>>::first);
  if (known != methods_.end()) return known->second.get();
  PTERON_ASSIGN(std::unique_ptr<Method> method, program_->load_method(name));
  methods_.emplace_back(name, std::move(method));
  return methods_.back().second.get();
}

Result<format::BundledValue> BundleMaker::tensor(const TensorView& view, const std::vector<uint8_t>& dim_order) {
  format::BundledTensor made;
  made.layout.dtype = view.dtype;
  made.layout.sizes.assign(view.sizes().begin(), view.sizes().end());
  if (dim_order.size() == view.rank) made.layout.dim_order = dim_order;
  PTERON_ASSIGN(
      const format::Payload payload,
      format::Payload::gather(
          {view.dtype, made.layout.sizes, {view.strides().begin(), view.strides().end()}, made.layout.dim_order, static_cast<const std::byte*>(view.data)}));
  PTERON_ASSIGN(Buffer bytes, format::payload_bytes(payload));
  bytes_.push_back(std::move(bytes));
  made.bytes = bytes_.back().span();
  return format::BundledValue(std::move(made));
}

Result<format::BundledValue> BundleMaker::input(const Method& method, size_t index, const TensorFile& file) {
  const ValueInfo& info = method.info().inputs[index];
  PTERON_ASSIGN(const NamedTensor* const given, find(file, index, [&](std::string_view name) { return method.input_index(name); }));
  if (given == nullptr && info.fixed) {
    if (info.kind == ValueKind::kDouble) return format::BundledValue(info.floating);
    return info.kind == ValueKind::kBool ? format::BundledValue(info.integer != 0) : format::BundledValue(info.integer);
  }
  if (given == nullptr) return invalid(str_cat(label("input", index, info), ": a bundle cannot hold it"));
  return info.kind == ValueKind::kTensor ? tensor(given->view, info.dim_order) : Result<format::BundledValue>(scalar_of(given->view));
}

Result<format::BundledValue> BundleMaker::computed(const Method& method, size_t index) {
  const ValueInfo& info = method.info().outputs[index];
  PTERON_ASSIGN(const OutputValue value, method.output(index));
  if (const auto* view = std::get_if<TensorView>(&value)) return tensor(*view, info.dim_order);
  if (const auto* number = std::get_if<int64_t>(&value)) return format::BundledValue(*number);
  if (const auto* number = std::get_if<double>(&value)) return format::BundledValue(*number);
  if (const auto* truth = std::get_if<bool>(&value)) return format::BundledValue(*truth);
  return invalid(str_cat(label("output", index, info), ": a bundle cannot hold it"));
}

Result<format::BundledValue> BundleMaker::expected(const Method& method, size_t index, const TensorFile& file) {
  const ValueInfo& info = method.info().outputs[index];
  if (info.kind == ValueKind::kNone || info.kind == ValueKind::kString) return invalid(str_cat(label("output", index, info), ": a bundle cannot hold it"));
  PTERON_ASSIGN(const NamedTensor* const given, find(file, index, [&](std::string_view name) { return method.output_index(name); }));
  if (given == nullptr) return invalid(str_cat(label("output", index, info), " is missing", file.place_text()));
  const bool is_tensor = info.kind == ValueKind::kTensor;
  const bool fits = given->view.dtype == dtype_of(info) && (is_tensor ? has_sizes(given->view, info.dims) : given->view.numel() == 1);
  if (!fits)
    return invalid(str_cat(label("output", index, info), file.place_text(), ": found ", dtype_name(given->view.dtype), " ", str_list(given->view.sizes())));
  return is_tensor ? tensor(given->view, info.dim_order) : Result<format::BundledValue>(scalar_of(given->view));
}

Status BundleMaker::add(const std::string& name, const std::string& inputs, const std::string& expected_file) {
  PTERON_ASSIGN(Method* const method, load(name));
  TensorFile file, results;
  if (!inputs.empty()) {
    PTERON_ASSIGN(file, TensorFile::read_for(method->info(), inputs));
  }
  if (!expected_file.empty()) {
    PTERON_ASSIGN(results, TensorFile::read(expected_file));
  }
  method->reset();
  PTERON_TRY(set_inputs(*method, file));
  format::BundledCase one;
  for (size_t i = 0; i < method->input_count(); ++i) {
    PTERON_ASSIGN(format::BundledValue value, input(*method, i, file));
    one.inputs.push_back(std::move(value));
  }
  if (expected_file.empty()) PTERON_TRY(method->execute());
  for (size_t i = 0; i < method->output_count(); ++i) {
    PTERON_ASSIGN(format::BundledValue value, expected_file.empty() ? computed(*method, i) : expected(*method, i, results));
    one.expected.push_back(std::move(value));
  }
  auto suite = std::ranges::find(bundle_.suites, name, &format::BundledSuite::method);
  if (suite == bundle_.suites.end()) suite = bundle_.suites.insert(suite, {name, {}});
  suite->cases.push_back(std::move(one));
  ++case_count_;
  return ok_status();
}

Result<Buffer> BundleMaker::write(std::span<const std::byte> program) {
  bundle_.program = program;
  return format::write_bundle(bundle_);
}

}  // namespace pteron::cli
