// Writing a finished program: the data file first, then the program, each complete or not at all, and never over the weights of another program.
// Used by compile.cpp (the public API) and by the command line tool.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "compiler/compile.h"
#include "pteron/status.h"

namespace pteron::facade {

struct SaveOptions {
  std::string path;        ///< of the program; its data file lies in the same folder
  bool sync = true;        ///< wait until the files are on the disk
  bool force = false;      ///< replace a data file that is another program's, or nobody's
  std::string_view etrecord = {};  ///< bytes that go to etrecord_path(path); empty: none
  LogSink* log = nullptr;  ///< gets warnings, and where the data file is; may be null
};

struct SavedFiles {
  uint64_t program_bytes = 0;
  std::string data_path;   ///< absolute; empty: no data file was written
  uint64_t data_bytes = 0;
  std::string etrecord_path;  ///< empty: none was written
};

/// Whether the program may be written to `path` at all; to be asked before anything is read.
/// Errors: kInvalidInput (the name of a data file, or one of the inputs).
Status check_save_path(const std::string& path, std::span<const std::string> inputs);

/// The stem of a program's path as the name of its data file.
/// Errors: kInvalidInput (it breaks the rules of such names; says so, and that a name can be given).
Result<std::string> default_data_name(const std::string& program);

/// Writes both files. A save that fails leaves the files that were there; one that is killed between the two renames leaves an old program that
/// refuses the new data with a sentence.
/// Errors: kInvalidInput (the data file is another program's or nobody's, see force), kIo, those of weights that are made on demand.
Result<SavedFiles> save_files(const compiler::FinishedProgram& finished, const SaveOptions& options);

}  // namespace pteron::facade
