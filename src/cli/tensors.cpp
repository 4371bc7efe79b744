// Tensor files for methods.
#include "cli/tensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>

#include "base/file_writer.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "import/sample_inputs.h"
#include "tensor/dtype.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "tensor/shape.h"
#include "tensor/write_rows.h"

namespace pteron::cli {

Result<Buffer> row_major_copy(const TensorView& from, TensorView* to) {
  PTERON_ASSIGN(Buffer copy, Buffer::create(std::max<size_t>(from.size_bytes(), 1)));
  *to = make_contiguous_view(from.dtype, from.sizes(), copy.data());
  copy_strided(from, *to);
  return copy;
}

Result<TensorFile> TensorFile::read(const std::string& path) {
  PTERON_ASSIGN(std::shared_ptr<FileBytes> bytes, FileBytes::read(path));  // not mapped: programs may write to their inputs
  auto read = read_tensor_file(std::move(bytes));
  if (!read.ok()) return std::move(read).status().with_context(path);
  // numpy names arrays that were saved without one arr_0, arr_1, ...: they are positions.
  for (NamedTensor& tensor : read->tensors) {
    if (read->kind == pteron::TensorFile::Kind::kNpz && tensor.name.starts_with("arr_")) tensor.name.erase(0, 4);
  }
  return TensorFile{path, {}, std::move(read->owners), std::move(read->tensors)};
}

namespace {

/// True for a file that is said to hold tensors by its name or first bytes: such a file, if broken, is no raw bytes.
bool is_tensor_format(const std::string& path, std::span<const std::byte> bytes) {
  for (const std::string_view ending : {".safetensors", ".npy", ".npz"}) {
    if (path.ends_with(ending)) return true;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 10));
  if (text.starts_with("\x93NUMPY") || text.starts_with("PK\3\4") || text.starts_with("PK\5\6")) return true;
  if (text.size() < 10) return false;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
  return header_bytes >= 2 && header_bytes <= kMaxHeaderBytes && text[8] == '{' && (text[9] == '"' || text[9] == '}');
}

/// Raw bytes of the inputs that take a value, one file each.
Result<TensorFile> read_raw(const MethodInfo& info, const std::vector<std::string>& paths) {
  TensorFile file;
  file.path = str_list(paths);
  size_t next = 0;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const ValueInfo& input = info.inputs[i];
    if (input.kind == ValueKind::kNone || input.kind == ValueKind::kString) continue;
    if (next == paths.size()) return Status(Code::kInvalidInput, str_cat(paths.size(), " files of raw bytes given, input ", i, " (", input.name, ") has none"));
    PTERON_ASSIGN(const std::shared_ptr<FileBytes> bytes, FileBytes::read(paths[next]));
    if (is_tensor_format(paths[next], bytes->bytes())) {
      return Status::invalid_file(str_cat(paths[next], ": several files are raw bytes of one input each, found a file of tensors"));
    }
    const bool is_tensor = input.kind == ValueKind::kTensor;
    const DType dtype = is_tensor ? input.dtype : input.kind == ValueKind::kInt ? DType::kInt64 : input.kind == ValueKind::kDouble ? DType::kFloat64 : DType::kBool;
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : input.dims) sizes.push_back(dim.max);
    const TensorView view = make_contiguous_view(dtype, is_tensor ? std::span<const int64_t>(sizes) : std::span<const int64_t>(), const_cast<std::byte*>(bytes->bytes().data()));  // NOLINT: only read
    if (bytes->bytes().size() != view.size_bytes()) {
      return Status(Code::kInvalidInput, str_cat(paths[next], ": input ", i, " (", input.name, ", ", input.type_text(), ") takes ", view.size_bytes(), " raw bytes, found ", bytes->bytes().size()));
    }
    file.tensors.push_back({str_cat(i), view});
    file.owners.push_back(bytes);
    ++next;
  }
  if (next != paths.size()) return Status(Code::kInvalidInput, str_cat(paths.size(), " files of raw bytes given, the method takes ", next));
  return file;
}

}  // namespace

Result<TensorFile> TensorFile::read_for(const MethodInfo& info, const std::string& paths) {
  struct stat found;
  if (paths.find(',') != std::string::npos && ::stat(paths.c_str(), &found) != 0) return read_raw(info, split_list({paths}));
  auto file = read(paths);
  if (file.ok() || file.status().code() != Code::kInvalidFile) return file;
  PTERON_ASSIGN(const std::shared_ptr<FileBytes> bytes, FileBytes::read(paths));
  if (is_tensor_format(paths, bytes->bytes())) return file;
  auto raw = read_raw(info, {paths});
  if (raw.ok()) return raw;
  return Status(file.status().code(), str_cat(file.status().message(), "; as raw bytes: ", raw.status().message()));
}

Result<TensorFile> TensorFile::examples_of(const std::string& archive) {
  PTERON_ASSIGN(std::shared_ptr<FileBytes> bytes, FileBytes::map(archive));
  TensorFile file;
  const auto samples = importer::read_sample_inputs(std::move(bytes), "");
  if (!samples.ok() && samples.status().code() == Code::kNotFound) {
    file.hint = str_cat(archive, " has ", samples.status().message());
    return file;
  }
  if (!samples.ok()) return Status(samples.status()).with_context(archive);
  file.path = str_cat("the example inputs of ", archive);
  for (size_t i = 0; i < samples->size(); ++i) {
    TensorView from;
    int64_t integer = 0;
    double floating = 0;
    bool boolean = false;
    const importer::SampleValue& value = (*samples)[i].value;
    if (const auto* tensor = std::get_if<ir::Constant>(&value)) {
      from = make_contiguous_view(tensor->dtype, tensor->sizes, const_cast<std::byte*>(tensor->data));  // NOLINT: only read
      std::copy(tensor->strides.begin(), tensor->strides.end(), from.stride_array.begin());
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      integer = *number;
      from = make_contiguous_view(DType::kInt64, {}, &integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      floating = *real;
      from = make_contiguous_view(DType::kFloat64, {}, &floating);
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      boolean = *truth;
      from = make_contiguous_view(DType::kBool, {}, &boolean);
    } else {
      continue;  // None and text are no inputs at run time
    }
    TensorView to;
    PTERON_ASSIGN(Buffer copy, row_major_copy(from, &to));
    file.tensors.push_back({str_cat(i), to});
    file.owners.push_back(std::make_shared<Buffer>(std::move(copy)));  // shared: see TensorFile::owners
  }
  return file;
}

std::string TensorFile::place_text() const {
  if (!path.empty()) return str_cat(" in ", path);
  return hint.empty() ? "; give --inputs FILE" : str_cat("; give --inputs FILE (", hint, ")");
}

namespace {

std::string names_of(const MethodInfo& info) {
  std::vector<std::string> names;
  for (const ValueInfo& input : info.inputs) names.push_back(input.name);
  return str_list(names);
}

bool needs_value(const ValueInfo& input) { return input.kind != pteron::ValueKind::kNone && input.kind != pteron::ValueKind::kString; }

}  // namespace

Status set_inputs(Method& method, const TensorFile& file) {
  const MethodInfo& info = method.info();
  std::vector<bool> given(info.inputs.size(), false);
  for (const NamedTensor& tensor : file.tensors) {
    auto index = method.input_index(tensor.name);
    if (!index.ok()) {
      return Status(Code::kInvalidInput, str_cat(file.path, ": key '", tensor.name, "' is no input; the method has ", info.inputs.size(), ": ", names_of(info)));
    }
    if (given[*index]) return Status(Code::kInvalidInput, str_cat(file.path, ": input ", info.inputs[*index].name, " is given twice"));
    given[*index] = true;
    PTERON_TRY(method.set_input(*index, tensor.view));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] || !needs_value(info.inputs[i])) continue;
    return Status(Code::kInvalidInput, str_cat("input ", i, " (", info.inputs[i].name, ", ", info.inputs[i].type_text(), ") is missing", file.place_text()));
  }
  return ok_status();
}

namespace {

/// Outputs as tensors of the host; what is in `bytes` they point to.
/// Bytes of outputs that are no tensors, and of those that lie on a device.
struct OutputBytes {
  std::deque<std::array<std::byte, 8>> scalars;
  std::deque<Buffer> copies;
};

Result<std::vector<NamedTensor>> collect(Method& method, OutputBytes& bytes) {
  std::deque<std::array<std::byte, 8>>& scalars = bytes.scalars;
  std::vector<NamedTensor> out;
  const auto scalar = [&](DType dtype, const void* value, size_t size) {
    scalars.emplace_back();
    std::memcpy(scalars.back().data(), value, size);
    return make_contiguous_view(dtype, {}, scalars.back().data());
  };
  for (size_t i = 0; i < method.output_count(); ++i) {
    PTERON_ASSIGN(const OutputValue value, method.output(i));
    TensorView view;
    if (const auto* tensor = std::get_if<TensorView>(&value)) {
      view = *tensor;
      if (view.device.type != DeviceType::kCpu) {
        PTERON_ASSIGN(Buffer copy, Buffer::create(view.size_bytes()));
        PTERON_TRY(method.copy_to_host(view, copy.data(), copy.size()));
        view.device = {};
        view.data = copy.data();
        bytes.copies.push_back(std::move(copy));
      }
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      view = scalar(DType::kInt64, integer, 8);
    } else if (const auto* floating = std::get_if<double>(&value)) {
      view = scalar(DType::kFloat64, floating, 8);
    } else if (const auto* boolean = std::get_if<bool>(&value)) {
      view = scalar(DType::kBool, boolean, 1);
    } else {
      continue;
    }
    out.push_back({str_cat(i), view});
  }
  return out;
}

constexpr int64_t kShownValues = 8;

/// Calls fn(value) with the element at a row-major position; false if its dtype is no real number or bool.
template <typename Fn>
bool with_element(const TensorView& view, int64_t index, Fn&& fn) {
  int64_t offset = 0;
  for (int d = view.rank - 1; d >= 0; --d) {
    offset += index % view.size(d) * view.stride(d);
    index /= view.size(d);
  }
  return dispatch_real(view.dtype, [&]<typename T>() {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(view.data) + static_cast<size_t>(offset) * sizeof(T), sizeof(T));
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
      fn(value);
    } else {
      fn(static_cast<double>(static_cast<float>(value)));
    }
  });
}

void print_value(const TensorView& view, int64_t index) {
  const bool printed = with_element(view, index, [](auto value) {
    if constexpr (std::is_same_v<decltype(value), bool>) {
      std::printf(" %s", value ? "true" : "false");
    } else if constexpr (std::is_integral_v<decltype(value)>) {
      std::printf(" %s", str_cat(value).c_str());
    } else {
      std::printf(" %.6g", value);
    }
  });
  if (!printed) std::printf(" ?");
}

void value_json(const TensorView& view, int64_t index, JsonWriter& json) {
  with_element(view, index, [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), bool>) json.boolean(value);
    else if constexpr (std::is_integral_v<decltype(value)>) json.integer(value);
    else json.number(value);
  });
}

}  // namespace

Status for_each_output(Method& method, const std::function<Status(size_t, const TensorView&)>& fn) {
  OutputBytes bytes;
  PTERON_ASSIGN(const std::vector<NamedTensor> tensors, collect(method, bytes));
  for (const NamedTensor& tensor : tensors) PTERON_TRY(fn(static_cast<size_t>(std::atoi(tensor.name.c_str())), tensor.view));
  return ok_status();
}

Status for_each_text(Method& method, const std::function<Status(size_t, std::string_view)>& fn) {
  for (size_t i = 0; i < method.output_count(); ++i) {
    PTERON_ASSIGN(const OutputValue value, method.output(i));
    if (const auto* text = std::get_if<std::string_view>(&value)) PTERON_TRY(fn(i, *text));
  }
  return ok_status();
}

std::string output_format_problem(const MethodInfo& info, const std::string& path) {
  size_t tensors = 0;
  for (const ValueInfo& output : info.outputs) {
    if (output.kind == ValueKind::kNone || output.kind == ValueKind::kString) continue;
    ++tensors;
    if (output.kind != ValueKind::kTensor) continue;
    const bool numpy = path.ends_with(".npy") || path.ends_with(".npz");
    if (numpy ? is_numpy_dtype(output.dtype) : is_safetensors_dtype(output.dtype)) continue;
    const bool other = numpy ? is_safetensors_dtype(output.dtype) : is_numpy_dtype(output.dtype);
    return str_cat(path, ": ", numpy ? "numpy has no dtype " : "safetensors have no dtype ", dtype_name(output.dtype), " (output ", output.name, ")",
                   !other ? "" : numpy ? "; write .safetensors" : "; write .npz");
  }
  if (tensors == 0 && !info.outputs.empty()) return str_cat(path, ": method ", info.name, " gives no tensor; leave the file out to print its results");
  if (path.ends_with(".npy") && tensors != 1) return str_cat(path, ": a .npy holds one array, method ", info.name, " has ", tensors, " outputs; write .npz or .safetensors");
  return {};
}

std::string output_name_problem(const std::string& path) {
  for (const std::string_view known : {".safetensors", ".npy", ".npz"}) {
    if (path.ends_with(known)) return {};
  }
  // A name without an ending is taken (a pipe, a device); one with another ending expects another format.
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  if (dot != std::string::npos && (slash == std::string::npos || dot > slash + 1)) {
    return str_cat("outputs are written as .safetensors, .npz or .npy, found ", path);
  }
  return {};
}

Status write_raw_outputs(Method& method, const std::string& base) {
  return for_each_output(method, [&](size_t index, const TensorView& view) -> Status {
    PTERON_ASSIGN(const std::unique_ptr<FileWriter> file, FileWriter::create(str_cat(base, "-", index, ".bin")));
    PTERON_TRY(write_row_major(view, *file));
    return file->commit(false);
  });
}

Status write_outputs(Method& method, const std::string& path) {
  OutputBytes bytes;
  PTERON_ASSIGN(const std::vector<NamedTensor> tensors, collect(method, bytes));
  if (path.ends_with(".npy") && tensors.size() != 1) {
    return Status(Code::kInvalidInput, str_cat(path, ": a .npy holds one array, the call gave ", tensors.size()));
  }
  PTERON_ASSIGN(const std::unique_ptr<FileWriter> file, FileWriter::create(path));
  Status status = path.ends_with(".npy")   ? write_npy(tensors[0].view, *file)
                  : path.ends_with(".npz") ? write_npz(tensors, *file)
                                           : write_safetensors(tensors, *file);
  if (!status.ok()) return std::move(status).with_context(path);
  return file->commit(false);
}

namespace {

/// Calls one of two functions for each output that is not None, in order.
Status for_each_result(Method& method, const std::function<void(size_t, const TensorView&)>& on_tensor, const std::function<void(size_t, std::string_view)>& on_text) {
  OutputBytes bytes;
  PTERON_ASSIGN(const std::vector<NamedTensor> tensors, collect(method, bytes));
  auto next = tensors.begin();
  for (size_t i = 0; i < method.output_count(); ++i) {
    PTERON_ASSIGN(const OutputValue value, method.output(i));
    if (const auto* text = std::get_if<std::string_view>(&value)) on_text(i, *text);
    if (next != tensors.end() && next->name == str_cat(i)) on_tensor(i, (next++)->view);
  }
  return ok_status();
}

void print_tensor(size_t index, const std::string& name, const TensorView& view, int64_t shown) {
  std::printf("%zu (%s): %s %s", index, name.c_str(), std::string(dtype_name(view.dtype)).c_str(), shape_text(view.sizes()).c_str());
  const int64_t count = view.numel();
  for (int64_t i = 0; i < std::min(count, shown); ++i) print_value(view, i);
  std::printf(count > shown ? " ...\n" : "\n");
}

/// Control characters of a foreign file do not reach the terminal.
void print_text(size_t index, const std::string& name, std::string_view text) {
  std::printf("%zu (%s): text ", index, name.c_str());
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (control) std::printf("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    if (!control) std::putchar(c);
  }
  std::printf("\n");
}

}  // namespace

Status print_outputs(Method& method, bool all_values) {
  const MethodInfo& info = method.info();
  return for_each_result(
      method, [&](size_t i, const TensorView& view) { print_tensor(i, info.outputs[i].name, view, all_values ? view.numel() : kShownValues); },
      [&](size_t i, std::string_view text) { print_text(i, info.outputs[i].name, text); });
}

Status print_texts(Method& method) {
  const MethodInfo& info = method.info();
  return for_each_result(method, [](size_t, const TensorView&) {}, [&](size_t i, std::string_view text) { print_text(i, info.outputs[i].name, text); });
}

Status outputs_json(Method& method, JsonWriter& json) {
  const auto begin = [&](size_t index, std::string_view dtype) {
    json.begin_object();
    json.field("output", index);
    json.field("name", method.info().outputs[index].name);
    json.field("dtype", dtype);
  };
  json.begin_array();
  PTERON_TRY(for_each_result(
      method,
      [&](size_t index, const TensorView& view) {
        begin(index, dtype_name(view.dtype));
        json.key("sizes");
        json.begin_array();
        for (const int64_t size : view.sizes()) json.integer(size);
        json.end_array();
        json.key("first_values");
        json.begin_array();
        for (int64_t i = 0; i < std::min(view.numel(), kShownValues); ++i) value_json(view, i, json);
        json.end_array();
        json.end_object();
      },
      [&](size_t index, std::string_view text) {
        begin(index, "text");
        json.field("text", text);
        json.end_object();
      }));
  json.end_array();
  return ok_status();
}

}  // namespace pteron::cli
