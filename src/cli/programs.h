// Loading programs for the verbs that run them, and inputs made up for measuring.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "cli/verb.h"
#include "pteron/program.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Load options from --data, --threads, --no-map.
LoadOptions load_options(const Arguments& arguments);
/// `wanted`, or forward, or the first method.
/// Errors: kInvalidFile (a program without methods).
Result<std::string> pick_method(const Program& program, const std::string& wanted);

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
