// Compile specs and the name of the data file: all checks before anything is read.
#include "compiler/specs.h"

#include <algorithm>

#include "base/str_cat.h"
#include "compiler/devices.h"
#include "format/data_name.h"

namespace pteron::compiler {

namespace {

Status invalid(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

bool is_for(const BackendSpec& spec, std::string_view backend, std::string_view method) {
  return spec.backend == backend && (spec.method.empty() || spec.method == method);
}

/// "backend cpu", "backend cpu, method decode".
std::string owner_of(const BackendSpec& spec) { return str_cat("backend ", spec.backend, spec.method.empty() ? "" : str_cat(", method ", spec.method)); }

Status check_external(const backends::Backend& backend, std::string_view name) {
  if (backend.external_data()) return ok_status();
  return invalid(str_cat("backend ", backend.name(), " keeps its data in the program: it takes no data file, found the name '", name, "'"));
}

Status check_key(const BackendSpec& spec, const backends::Backend& backend) {
  if (spec.key == backends::kDataNameSpec || std::ranges::find(backend.spec_keys(), spec.key) != backend.spec_keys().end()) return ok_status();
  if (spec.key == backends::kDeviceSpec) return invalid(str_cat(owner_of(spec), " computes on the host: it takes no device"));
  std::string known;
  if (backend.external_data()) known = backends::kDataNameSpec;
  for (const std::string_view key : backend.spec_keys()) str_append(known, known.empty() ? "" : ", ", key);
  return invalid(str_cat(owner_of(spec), ": no compile spec '", spec.key, "'; ", known.empty() ? "there are none" : str_cat("there are: ", known)));
}

/// Whether it has a device to be named.
bool is_on_device(const backends::Backend& backend) { return std::ranges::find(backend.spec_keys(), backends::kDeviceSpec) != backend.spec_keys().end(); }

Status check_device(const CompileOptions& options, const backends::Backend* prebuilt) {
  if (options.device.empty()) return ok_status();
  PTERON_TRY(check_device_name("the device", options.device));
  const bool has_user = (prebuilt != nullptr && is_on_device(*prebuilt)) || std::ranges::any_of(options.backends, [](const auto* b) { return is_on_device(*b); });
  return has_user ? ok_status() : invalid(str_cat("device ", options.device, " is given, and no backend computes on a device"));
}

/// Two of one name would take the same nodes: the first everything, the second nothing.
Status check_twice(const CompileOptions& options) {
  for (size_t i = 0; i < options.backends.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (options.backends[i]->name() != options.backends[k]->name()) continue;
      return invalid(str_cat("backend '", options.backends[i]->name(), "' is named twice: the first takes every node that it can, nothing is left for the second"));
    }
  }
  return ok_status();
}

/// Name of the one data file of a save, and who asked for it.
class NameChoice {
 public:
  Status add(std::string_view name, std::string owner) {
    PTERON_TRY(format::check_data_name(name));
    if (owner_.empty()) {
      name_ = name;
      owner_ = std::move(owner);
    }
    if (name_ == name) return ok_status();
    return invalid(str_cat("all methods and backends of a program share one data file: ", owner_, " names '", name_, "', ", owner, " names '", name, "'"));
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_, owner_;
};

Status add_spec(const CompileOptions& options, const backends::Backend* prebuilt, const BackendSpec& spec, NameChoice& choice) {
  std::vector<const backends::Backend*> asked = options.backends;
  if (prebuilt != nullptr) asked.push_back(prebuilt);  // claims what it knows, asked for or not
  const auto backend = std::ranges::find_if(asked, [&](const backends::Backend* b) { return b->name() == spec.backend; });
  if (backend == asked.end()) return invalid(str_cat("a compile spec for backend '", spec.backend, "', which is not among the program's backends"));
  const bool has_method = spec.method.empty() || std::ranges::any_of(options.methods, [&](const MethodSource& m) { return m.method == spec.method; });
  if (!has_method) return invalid(str_cat("a compile spec for method '", spec.method, "', which the program does not have"));
  PTERON_TRY(check_key(spec, **backend));
  if (spec.key == backends::kDeviceSpec) {
    PTERON_TRY(check_device_name(str_cat(owner_of(spec), ": ", spec.key), {reinterpret_cast<const char*>(spec.value.data()), spec.value.size()}));
    const auto same = [&](const BackendSpec& other) { return &other != &spec && other.backend == spec.backend && other.method == spec.method && other.key == spec.key; };
    if (std::ranges::any_of(options.specs, same)) return invalid(str_cat(owner_of(spec), ": ", spec.key, " is given twice"));
  }
  if (spec.key != backends::kDataNameSpec) return ok_status();
  const std::string_view name(reinterpret_cast<const char*>(spec.value.data()), spec.value.size());
  PTERON_TRY(check_external(**backend, name));
  return choice.add(name, owner_of(spec));
}

}  // namespace

std::vector<format::CompileSpec> specs_for(const CompileOptions& options, const backends::Backend& backend, std::string_view method) {
  std::vector<format::CompileSpec> out;
  for (const BackendSpec& spec : options.specs) {
    if (is_for(spec, backend.name(), method) && spec.key != backends::kDataNameSpec) out.push_back({spec.key, spec.value});
  }
  const bool has_device = std::ranges::find(out, backends::kDeviceSpec, &format::CompileSpec::key) != out.end();
  if (!options.device.empty() && !has_device && is_on_device(backend)) {
    const auto bytes = std::as_bytes(std::span(options.device));
    out.push_back({std::string(backends::kDeviceSpec), {bytes.begin(), bytes.end()}});
  }
  return out;
}

bool is_data_external(const CompileOptions& options, std::string_view backend, std::string_view method) {
  if (options.external_weights.has_value()) return true;
  return std::ranges::any_of(options.specs, [&](const BackendSpec& spec) { return spec.key == backends::kDataNameSpec && is_for(spec, backend, method); });
}

Result<std::string> data_file_name(const CompileOptions& options, const backends::Backend* prebuilt) {
  PTERON_TRY(check_twice(options));
  PTERON_TRY(check_device(options, prebuilt));
  NameChoice choice;
  if (options.external_weights.has_value()) {
    PTERON_TRY(choice.add(*options.external_weights, "the program"));
    for (const backends::Backend* backend : options.backends) PTERON_TRY(check_external(*backend, *options.external_weights));
  }
  for (const BackendSpec& spec : options.specs) PTERON_TRY(add_spec(options, prebuilt, spec, choice));
  return choice.name();
}

}  // namespace pteron::compiler
