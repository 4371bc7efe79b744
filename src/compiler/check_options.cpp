// What can be wrong with the options of a compilation without a look at its archives.
#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "base/str_cat.h"
#include "compiler/compile.h"

namespace pteron::compiler {

namespace {

Status check_names(const CompileOptions& options) {
  std::set<std::string_view> names;
  const auto add = [&](const std::string& name) {
    PTERON_TRY(check_method_name(name));
    return names.insert(name).second ? ok_status() : Status(Code::kInvalidInput, str_cat("two methods named '", name, "'"));
  };
  for (const MethodSource& source : options.methods) PTERON_TRY(add(source.method));
  for (const ConstantMethod& constant : options.constants) {
    PTERON_TRY(add(constant.name));
    if (constant.values.empty()) return Status(Code::kInvalidInput, str_cat("constant method '", constant.name, "' has no value"));
  }
  return ok_status();
}

}  // namespace

Status check_method_name(std::string_view name) {
  if (name.empty()) return Status(Code::kInvalidInput, "a method without a name");
  if (is_identifier(name)) return ok_status();
  return Status(Code::kInvalidInput, str_cat("method name '", name, "' is no identifier: ASCII letters, digits and '_' are expected, no digit first"));
}

Status check_options(const CompileOptions& options) {
  PTERON_TRY(check_names(options));
  for (const MethodSource& source : options.methods) {
    const bool has_bytes = source.bytes != nullptr && !source.bytes->bytes().empty();
    if (!has_bytes && source.path.empty())
      return Status(Code::kInvalidInput, str_cat("method '", source.method, "' has no archive: expected a path, or bytes"));
  }
  for (const std::string& name : options.shared_states) {
    if (name.empty()) return Status(Code::kInvalidInput, "a shared state without a name");
  }
  for (const SizeBound& bound : options.size_bounds) {
    if (bound.max < 0 || bound.max > INT32_MAX) return Status(Code::kInvalidInput, str_cat("a bound of sizes is from 0 to 2^31-1, found ", bound.max));
  }
  for (const Transform& transform : options.transforms) {
    const bool known = transform.method.empty() || std::ranges::any_of(options.methods, [&](const MethodSource& m) { return m.method == transform.method; });
    if (!known)
      return Status(Code::kInvalidInput, str_cat("pass ", transform.name, " is for method '", transform.method, "', which the program does not have"));
  }
  return ok_status();
}

}  // namespace pteron::compiler
