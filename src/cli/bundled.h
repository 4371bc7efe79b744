// pteron run MODEL.bpte: every case of a bundled program, compared with what the bundle expects.
#pragma once

#include <span>
#include <string>

#include "cli/verb.h"
#include "pteron/status.h"

namespace pteron::cli {

/// True if a file is a bundled program.
bool is_bundle(std::span<const std::byte> bytes);

/// Runs all cases, each from the initial state, and prints a line for each output (JSON with --json). 1 if an output differs.
/// Errors: kInvalidFile, and those of loading and running.
Result<int> run_bundle(const std::string& path, std::span<const std::byte> bytes, const Arguments& arguments);

}  // namespace pteron::cli
