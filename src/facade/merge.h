// Several programs made one: methods renamed, equal bytes stored once, data files made one. Used by `pteron merge`.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "compiler/compile.h"
#include "format/bundle.h"
#include "format/data_file.h"
#include "format/program_view.h"
#include "pteron/status.h"

namespace pteron::facade {

/// A method that gets another name.
struct MethodRename {
  std::string program;  ///< path as given, or its stem; empty: the only program
  std::string from;
  std::string to;
};

struct MergeOptions {
  std::vector<std::string> programs;  ///< paths of .pte files, ours or official ones, or of bundles (.bpte), whose program is taken
  std::vector<MethodRename> renames;
  std::vector<std::string> data_files;  ///< of programs that record none, or whose file does not lie beside them
  std::string data_name;                ///< of the merged data file, without ".ptd"; empty: there is none to be had, for the reason below
  std::string no_data_name = {};        ///< a sentence; only said if the merged program has a data file
  uint64_t alignment_bytes = 64;
};

/// A program ready to be saved (save_files), and what it was made of.
/// Owns: the mapped files, which `finished` borrows from.
struct Merged {
  compiler::FinishedProgram finished;
  std::vector<std::string> methods;
  uint64_t shared_bytes = 0;  ///< bytes of the programs and data files that are stored once instead of several times
  std::vector<std::shared_ptr<FileBytes>> files;
  std::deque<format::Bundle> bundles;  ///< whose programs were merged
  std::vector<format::ProgramView> programs;
  std::vector<format::DataFileView> data;
};

/// Errors: kInvalidInput (a rename that names no program or method, or no identifier; one name for two methods; one key for other bytes: both
///         files are named; a weight without a data file), kNotFound, kInvalidFile, kIncompatible (a data file that is not the one the program
///         records), kUnsupported (a method of several chains).
Result<std::unique_ptr<Merged>> merge_programs(const MergeOptions& options);

}  // namespace pteron::facade
