// Where a node comes from: source line and module path out of the metadata texts of an archive.
#pragma once

#include <string>
#include <string_view>

#include "import/import.h"

namespace pteron::importer {

/// "project/net.py:42" from the last frame of a Python traceback that is neither PyTorch's nor generated (else the last); empty if there is none.
std::string source_line(std::string_view stack_trace, SourceDetail detail);
/// "layers.0.conv" from "key,path,type;key,path,type": the path of the innermost module.
std::string module_path(std::string_view nn_module_stack);

}  // namespace pteron::importer
