// What pteron inspect says about files that are no programs. Called by verbs/inspect.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "cli/verb.h"

namespace pteron::cli {

/// A .pt2 archive: inputs, outputs, named sizes, weights, operators with counts and whether something can run them.
/// Errors: those of import.
Result<int> inspect_archive(const std::string& path, std::shared_ptr<FileBytes> file, const Arguments& arguments);
/// A .ptd data file: entries and manifest.
/// Errors: kInvalidFile (also for a manifest that does not fit; --verify-data: or a payload).
Result<int> inspect_data(const std::string& path, const FileBytes& file, const Arguments& arguments);

}  // namespace pteron::cli
