// ETRecords: what the official inspector needs to say which node of the model an event of a profile belongs to.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "pteron/status.h"

namespace pteron::facade {

/// The bytes of "<base>_etrecord.bin": the graph of each method as backends left it, and for each instruction of the program the node it is a part of.
/// Errors: kInvalidInput (more than 4 GiB).
Result<std::string> make_etrecord(const compiler::EdgeProgram& edge, const compiler::CompileReport& report);

/// "model.pte" to "model_etrecord.bin".
std::string etrecord_path(const std::string& program_path);

}  // namespace pteron::facade
