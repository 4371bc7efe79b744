// Names of a payload against those of its engine.
#include "backends/tensorrt/runtime/bindings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/str_cat.h"

namespace pteron::tensorrt {
namespace {

Status bad(std::string message) { return Status(Code::kInvalidFile, std::move(message)); }

std::vector<std::string> names_of(const std::vector<EngineTensor>& tensors, bool inputs) {
  std::vector<std::string> names;
  for (const EngineTensor& tensor : tensors) {
    if (tensor.is_input == inputs) names.push_back(tensor.name);
  }
  return names;
}

/// The number behind the last '_' or '.' of a name.
std::optional<size_t> number_of(std::string_view name) {
  const size_t mark = name.find_last_of("_.");
  size_t number = 0;
  if (mark == std::string_view::npos) return std::nullopt;
  const auto read = std::from_chars(name.data() + mark + 1, name.data() + name.size(), number);
  if (read.ec != std::errc() || read.ptr != name.data() + name.size()) return std::nullopt;
  return number;
}

/// Bindings of a payload that lists none: by the numbers that the engine's names end in.
Status number_bindings(const std::vector<EngineTensor>& tensors, bool inputs, std::vector<Binding>* out) {
  const std::vector<std::string> names = names_of(tensors, inputs);
  std::vector<Binding> ordered(names.size());
  for (const std::string& name : names) {
    const std::optional<size_t> number = number_of(name);
    if (!number) return bad(str_cat("the payload names no inputs and outputs, and the engine's '", name, "' ends in no number"));
    if (*number >= ordered.size() || !ordered[*number].name.empty()) {
      return bad(str_cat("the payload names no inputs and outputs, and the numbers of the engine's ", inputs ? "inputs " : "outputs ", str_list(names),
                         " are not 0 to ", names.size() - 1));
    }
    ordered[*number] = {name, inputs};
  }
  out->insert(out->end(), ordered.begin(), ordered.end());
  return ok_status();
}

std::optional<size_t> position(const std::vector<Port>& ports, std::string_view name) {
  const auto found = std::ranges::find_if(ports, [&](const Port& port) { return port.tensor.name == name; });
  return found == ports.end() ? std::nullopt : std::optional(static_cast<size_t>(found - ports.begin()));
}

class Matcher {
 public:
  Matcher(const Metadata& metadata, const Engine& engine) : metadata_(metadata), engine_(engine), tensors_(engine.tensors()) {}

  Result<Ports> run(std::optional<int> profile) {
    std::vector<Binding> bindings = metadata_.bindings;
    if (bindings.empty()) {
      PTERON_TRY(number_bindings(tensors_, true, &bindings));
      PTERON_TRY(number_bindings(tensors_, false, &bindings));
    }
    for (const Binding& binding : bindings) PTERON_TRY(add(binding.name, binding.is_input, false));
    for (const Alias& alias : metadata_.aliases) {
      if (!position(ports_.outputs, alias.output)) PTERON_TRY(add(alias.output, false, true));
      PTERON_TRY(link(alias));
    }
    for (const EngineTensor& tensor : tensors_) {
      if (!position(tensor.is_input ? ports_.inputs : ports_.outputs, tensor.name)) {
        return bad(str_cat("the engine's ", tensor.is_input ? "input '" : "output '", tensor.name, "' is not among those of the payload"));
      }
    }
    PTERON_TRY(read_profiles(profile));
    return std::move(ports_);
  }

 private:
  Status add(const std::string& name, bool is_input, bool elided) {
    const auto tensor = std::ranges::find_if(tensors_, [&](const EngineTensor& t) { return t.name == name && t.is_input == is_input; });
    if (tensor == tensors_.end()) {
      return bad(str_cat("the engine has no ", is_input ? "input '" : "output '", name, "'; there are ", str_list(names_of(tensors_, is_input))));
    }
    if (is_input && tensor->is_shape) return bad(str_cat("input '", name, "' holds sizes that TensorRT reads on the host; such engines cannot be a delegate"));
    (is_input ? ports_.inputs : ports_.outputs).push_back({*tensor, {}, {}, elided});
    return ok_status();
  }

  Status link(const Alias& alias) {
    const std::optional<size_t> input = position(ports_.inputs, alias.input), output = position(ports_.outputs, alias.output);
    if (!input || !output) return bad(str_cat("output '", alias.output, "' is written in place of '", alias.input, "', which is no input"));
    Port &from = ports_.inputs[*input], &to = ports_.outputs[*output];
    if (from.alias || to.alias) return bad(str_cat("'", alias.input, "' and '", alias.output, "' are written in place twice"));
    if (alias.kind == Alias::Kind::kKvCacheUpdate) {
      const std::optional<std::string> said = engine_.aliased_input(alias.output);
      if (said != alias.input) {
        return bad(str_cat("the payload says that output '", alias.output, "' is written in place of '", alias.input, "', the engine ",
                           said ? str_cat("in place of '", *said, "'") : std::string("gives it memory of its own")));
      }
    } else if (from.tensor.sizes != to.tensor.sizes) {
      return bad(str_cat("output '", alias.output, "' ", str_list(to.tensor.sizes), " cannot be written in place of '", alias.input, "' ",
                         str_list(from.tensor.sizes)));
    }
    from.alias = output;
    to.alias = input;
    return ok_status();
  }

  Status read_profiles(std::optional<int> wanted) {
    const int count = engine_.profile_count();
    if (wanted && count > 1 && (*wanted < 0 || *wanted >= count))
      return Status(Code::kInvalidInput, str_cat("profile ", *wanted, " is asked for, the engine has ", count));
    for (Port& port : ports_.inputs) {
      for (int p = 0; p < count; ++p) {
        std::optional<ProfileSizes> sizes = engine_.profile(p, port.tensor.name);
        if (!sizes || sizes->min.size() != sizes->max.size()) return bad(str_cat("the engine has no profile ", p, " for input '", port.tensor.name, "'"));
        port.profiles.push_back(*std::move(sizes));
      }
    }
    return ok_status();
  }

  const Metadata& metadata_;
  const Engine& engine_;
  std::vector<EngineTensor> tensors_;
  Ports ports_;
};

}  // namespace

size_t Ports::passed_outputs() const {
  return static_cast<size_t>(std::ranges::count_if(outputs, [](const Port& port) { return !port.elided; }));
}

Result<Ports> match_ports(const Metadata& metadata, const Engine& engine, std::optional<int> profile) { return Matcher(metadata, engine).run(profile); }

}  // namespace pteron::tensorrt
