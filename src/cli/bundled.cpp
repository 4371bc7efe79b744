// Inputs from the bundle, outputs against it.
#include "cli/bundled.h"

#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/difference.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "format/bundle.h"
#include "pteron/etdump.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

/// The tensor's bytes where they lie. Scalars live in `storage`, which outlives the view.
TensorView view_of(const format::BundledValue& value, std::byte (&storage)[8]) {
  const auto scalar = [&](DType dtype, const auto& number) {
    std::memcpy(storage, &number, sizeof number);
    return make_contiguous_view(dtype, {}, storage);
  };
  if (const auto* number = std::get_if<int64_t>(&value)) return scalar(DType::kInt64, *number);
  if (const auto* truth = std::get_if<bool>(&value)) return scalar(DType::kBool, *truth);
  if (const auto* real = std::get_if<double>(&value)) return scalar(DType::kFloat64, *real);
  const format::BundledTensor& tensor = std::get<format::BundledTensor>(value);
  TensorView view = make_contiguous_view(tensor.layout.dtype, tensor.layout.sizes, const_cast<std::byte*>(tensor.bytes.data()));  // NOLINT: only read
  int64_t stride = 1;
  for (size_t i = tensor.layout.dim_order.size(); i-- > 0;) {
    const uint8_t d = tensor.layout.dim_order[i];
    view.stride_array[d] = stride;
    stride *= std::max<int64_t>(tensor.layout.sizes[d], 1);
  }
  return view;
}

/// Runs one case and appends a difference for each expected output.
Result<std::vector<Difference>> run_case(Method& method, const format::BundledCase& one, const Tolerance& tolerance, const std::function<Status()>& execute) {
  method.reset();
  if (one.inputs.size() != method.input_count()) {
    return Status(Code::kInvalidInput, str_cat("the case has ", one.inputs.size(), " inputs, the method ", method.input_count()));
  }
  std::byte scalar[8];
  for (size_t i = 0; i < one.inputs.size(); ++i) PTERON_TRY(method.set_input(i, view_of(one.inputs[i], scalar)));
  PTERON_TRY(execute());
  std::vector<Difference> differences(one.expected.size());
  for (Difference& difference : differences) difference.problem = "the call gave no such output";
  PTERON_TRY(for_each_output(method, [&](size_t index, const TensorView& got) -> Status {
    if (index >= one.expected.size()) return ok_status();
    TensorView left, right;
    PTERON_ASSIGN(const Buffer a, row_major_copy(got, &left));
    PTERON_ASSIGN(const Buffer b, row_major_copy(view_of(one.expected[index], scalar), &right));
    differences[index] = compare(left, right, tolerance);
    return ok_status();
  }));
  return differences;
}

}  // namespace

Result<int> run_bundle(const std::string& path, const Arguments& arguments) {
  {
    PTERON_ASSIGN(const std::shared_ptr<FileBytes> file, FileBytes::map(path));
    if (!format::is_bundle(file->bytes())) return format::read_bundle(file->bytes()).status().with_context(path);
  }
  LoadOptions load = load_options(arguments);
  StderrLog log(arguments.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  load.log = &log;
  std::optional<EventRecorder> recorder;
  if (arguments.has("etdump")) recorder.emplace();
  PTERON_ASSIGN(const LoadedProgram loaded, load_program_file(path, load, recorder ? &*recorder : nullptr));
  Tolerance tolerance;
  if (arguments.has("rtol")) tolerance.rtol = arguments.real("rtol", 0);
  tolerance.atol = arguments.real("atol", tolerance.atol);
  const bool as_json = arguments.flag("json");
  JsonWriter json;
  json.begin_array();
  size_t outputs = 0, bad = 0;
  for (const format::BundledSuite& suite : loaded.bundle->suites) {
    PTERON_ASSIGN(const std::unique_ptr<Method> method, recorder ? recorder->load_method(*loaded.program, suite.method) : loaded.program->load_method(suite.method));
    for (size_t i = 0; i < suite.cases.size(); ++i) {
      auto differences = run_case(*method, suite.cases[i], tolerance, [&] { return recorder ? recorder->execute(*method, static_cast<int>(i)) : method->execute(); });
      if (!differences.ok()) return std::move(differences).status().with_context(str_cat(path, ": method ", suite.method, ", case ", i));
      for (size_t k = 0; k < differences->size(); ++k) {
        const Difference& difference = (*differences)[k];
        ++outputs;
        bad += difference.bad();
        const std::string text = difference.problem.empty() ? difference_text(difference) : difference.problem;
        if (!as_json) std::printf("method %s, case %zu, output %zu: %s, %s\n", suite.method.c_str(), i, k, difference.bad() ? "DIFFERS" : "ok", text.c_str());
        json.begin_object();
        json.field("method", suite.method);
        json.field("case", static_cast<uint64_t>(i));
        json.field("output", static_cast<uint64_t>(k));
        json.field("ok", !difference.bad());
        json.field("text", text);
        json.end_object();
      }
    }
  }
  json.end_array();
  if (as_json) std::printf("%s\n", json.text().c_str());
  if (!as_json) std::printf("%zu of %zu expected outputs agree\n", outputs - bad, outputs);
  if (recorder) PTERON_TRY(write_etdump_file(*recorder, arguments.value("etdump"), &log));
  return bad > 0 ? 1 : 0;
}

}  // namespace pteron::cli
