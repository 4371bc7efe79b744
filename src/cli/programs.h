// Loading programs for the verbs that run them, and inputs made up for measuring.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mapped_file.h"
#include "cli/verb.h"
#include "format/bundle.h"
#include "pteron/etdump.h"
#include "pteron/program.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Load options from --data, --threads, --no-map.
LoadOptions load_options(const Arguments& arguments);
/// A program from a file: of a .bpte the one inside.
/// Owns: the file that program and bundle borrow from, so it goes last.
struct LoadedProgram {
  std::shared_ptr<FileBytes> file;
  std::unique_ptr<format::Bundle> bundle;  ///< null for a .pte
  std::shared_ptr<Program> program;
};
/// Weights that a bundle's program records are taken from beside the bundle, if no data file is given. The recorder may be null.
/// Errors: those of Program::load and format::read_bundle; kNotFound (no such weights).
Result<LoadedProgram> load_program_file(const std::string& path, LoadOptions options, EventRecorder* recorder = nullptr);
/// `wanted`, or forward, or the first method.
/// Errors: kInvalidFile (a program without methods).
Result<std::string> pick_method(const Program& program, const std::string& wanted);

/// Writes what was recorded to a file, all or nothing; a warning if events were left out.
/// Errors: kIo, and those of EventRecorder::etdump.
Status write_etdump_file(const EventRecorder& recorder, const std::string& path, LogSink* log);

/// Inputs at their upper bounds: floats between -1 and 1, integers 0.
/// Owns: the tensors' bytes.
class SyntheticInputs {
 public:
  static Result<SyntheticInputs> make(const Method& method);
  Status set(Method& method) const;

 private:
  struct Entry {
    size_t index;
    TensorView view;
  };
  std::vector<Entry> entries_;
  std::vector<Buffer> buffers_;
};

}  // namespace pteron::cli
