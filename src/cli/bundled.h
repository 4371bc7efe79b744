// pteron run MODEL.bpte: every case of a bundled program, compared with what the bundle expects.
#pragma once

#include <string>

#include "cli/verb.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Runs all cases, each from the initial state, and prints a line for each output (JSON with --json). 1 if an output differs.
/// Errors: kInvalidFile, and those of loading and running.
Result<int> run_bundle(const std::string& path, const Arguments& arguments);

}  // namespace pteron::cli
