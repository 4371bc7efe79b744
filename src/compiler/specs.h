// Compile specs of backends: who gets which, and where a backend's data goes. Internal to the compiler room.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/compile.h"
#include "format/program.h"

namespace pteron::compiler {

/// Specs of a backend for a method, without the framework's own; CompileOptions::device is the device's, where the backend has none of its own.
std::vector<format::CompileSpec> specs_for(const CompileOptions& options, const backends::Backend& backend, std::string_view method);
/// Whether a backend's data of a method goes to the data file.
bool is_data_external(const CompileOptions& options, std::string_view backend, std::string_view method);

}  // namespace pteron::compiler
