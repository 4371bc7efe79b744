// Lookup of named bytes and checks of external tensors.
#include "runtime/data_map.h"

#include "base/str_cat.h"

namespace pteron::runtime {

Status DataMap::open(const std::vector<std::string>& paths, bool map, const format::ProgramView& program) {
  static_cast<void>(map);
  program_ = &program;
  if (!paths.empty()) return Status(Code::kUnsupported, "data files");
  return ok_status();
}

std::optional<std::span<const std::byte>> DataMap::find(std::string_view key) const { return program_->named_data(key); }

Result<std::span<const std::byte>> DataMap::tensor(std::string_view name, const Tensor& expected) const {
  static_cast<void>(expected);
  return Status(Code::kNotFound, str_cat("constant \"", name, "\" is in a data file (.ptd), which was not given"));
}

}  // namespace pteron::runtime
