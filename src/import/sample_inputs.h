// The example inputs that torch.export.save stores beside a program (data/sample_inputs/M.pt): a torch.save file, read by a pickle
// reader that knows only what plain tensors in plain containers need. Used by `pteron run`, `bench` and `inspect`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::importer {

/// One leaf: None, bool, int, float, string, or a tensor as a view of the archive's bytes.
using SampleValue = std::variant<std::monostate, bool, int64_t, double, std::string, ir::Constant>;

/// One flattened input.
struct SampleInput {
  std::string path;  ///< "0", "1.key", "kw.mask": position or key at each level; keyword arguments begin with "kw"
  SampleValue value;
};

/// The example inputs of a model ("" as in ImportOptions), flattened: positional arguments, then keywords, dictionaries in their order.
/// Owns:   tensors share `archive`.
/// Errors: kNotFound "no sample inputs" (none stored, fake tensors, objects of unknown classes), those of opening the archive.
Result<std::vector<SampleInput>> read_sample_inputs(std::shared_ptr<FileBytes> archive, std::string_view model);

}  // namespace pteron::importer
