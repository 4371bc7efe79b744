// Classification of target names.
#include "import/operators.h"

#include "base/str_cat.h"

namespace pteron::importer {

std::string operator_name(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (!target.starts_with(kOps)) return std::string(target);
  const std::string_view rest = target.substr(kOps.size());
  const size_t space_end = rest.find('.');
  if (space_end == std::string_view::npos) return std::string(target);
  const std::string_view space = rest.substr(0, space_end);
  std::string_view name = rest.substr(space_end + 1);
  if (space != "higher_order" && name.ends_with(".default")) name.remove_suffix(sizeof ".default" - 1);
  return str_cat(space, "::", name);
}

bool is_symbolic_function(std::string_view name) {
  for (const std::string_view prefix : {"_operator.", "torch.sym_", "torch._sym_", "math.", "aten::sym_size", "aten::sym_stride", "aten::sym_numel",
                                        "aten::sym_storage_offset", "aten::size.", "aten::stride.", "aten::sym_is_contiguous"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "aten::numel" || name == "aten::size" || name == "aten::stride" || name == "aten::dim" || name == "aten::promote_types";
}

bool is_check(std::string_view name) {
  for (const std::string_view prefix : {"aten::_assert_", "aten::sym_constrain_range", "aten::_functional_assert_", "aten::_functional_sym_constrain_range"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool is_engine_operator(std::string_view name) { return name == "tensorrt::execute_engine" || name == "tensorrt::no_op_placeholder_for_execute_engine"; }

}  // namespace pteron::importer
