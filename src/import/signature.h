// Signature facts of an exported program: user-level input names out of the pytree specification. Used by import.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "import/json.h"
#include "pteron/status.h"

namespace pteron::importer {

/// One name per leaf of in_spec, in flattening order: the argument's name for plain arguments, empty for members of nested ones.
/// Empty if the text is no specification or has other names than leaves.
std::vector<std::string> argument_names(std::string_view in_spec, const std::vector<JsonValue>& forward_arg_names);

}  // namespace pteron::importer
