// What pteron inspect says about files that are no programs, and about delegates. Called by verbs/inspect.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "cli/verb.h"
#include "format/program_view.h"

namespace pteron::cli {

/// A .pt2 archive: inputs, outputs, named sizes, weights, operators with counts and whether something can run them.
/// Errors: those of import.
Result<int> inspect_archive(const std::string& path, std::shared_ptr<FileBytes> file, const Arguments& arguments);
/// A .ptd data file: entries and manifest.
/// Errors: kInvalidFile (also for a manifest that does not fit; --verify-data: or a payload).
Result<int> inspect_data(const std::string& path, const FileBytes& file, const Arguments& arguments);
/// An ETDump: runs with the times of their events.
/// Errors: those of format::read_etdump.
Result<int> inspect_etdump(const std::string& path, const FileBytes& file, const Arguments& arguments);
/// The delegates of a method: payload bytes, compile specs, and for TensorRTBackend what its payload says of the engine (or that it cannot be read).
void print_delegates(const format::ProgramView& view, std::string_view method);
/// The same as the member "payloads".
void delegates_json(JsonWriter& json, const format::ProgramView& view, std::string_view method);

/// A program as one page without anything around it: a graph of each method (and of payloads that are programs) to zoom and search, its planned memory
/// over time.
/// Errors: those of format::read_program and read_meta.
Result<std::string> inspect_html(std::string_view file, const format::ProgramView& view);

}  // namespace pteron::cli
