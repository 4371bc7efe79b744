// Import of a .pt2 archive (torch.export.save) into the intermediate form. Called by the compiler's pipeline, by tests and fuzz targets.
// Weights stay in the mapped file; types of values are those of the archive, nothing is inferred here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mapped_file.h"
#include "ir/graph.h"
#include "ir/guard.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::importer {

/// How much of the exporter's source paths nodes keep.
enum class SourceDetail : uint8_t {
  kFull,   ///< "home/me/project/net.py:42", the whole path
  kShort,  ///< "project/net.py:42": the last two path parts
  kNone,
};

/// Comparisons of checksums that go on beside the caller. Each waits for its result, and gives the same one when it is called again.
/// Owns:    what it reads. Errors: kInvalidFile, with the weight's name.
using PendingChecks = std::vector<std::function<Status()>>;

struct ImportOptions {
  std::string model;               ///< name of the program in the archive; empty: the only one, or "model"
  std::string method = "forward";  ///< name of the method it becomes
  SourceDetail source = SourceDetail::kShort;
  LogSink* log = nullptr;          ///< gets warnings; may be null
  bool check_weights = true;       ///< compare the checksums of weights, which reads their bytes; the rest of the archive is always checked
  PendingChecks* pending_checks = nullptr;  ///< gets the comparison, whose result must be asked for before anything is written; null: it is waited for
  ir::Guards* guards = nullptr;    ///< gets what the export assumed about sizes of inputs; may be null
};

/// Appends one method to `program`, in the `imported` dialect. Operators that the catalog does not know stay as nodes of foreign
/// operators (known = false); in-place ones get an operator whose `functional` is the catalog's functional form.
/// Owns:    constants share `archive`.
/// Errors:  kInvalidFile (damaged or inconsistent archive, unknown version), kUnsupported (dtype, layout, symbolic function, pickled
///          weight), kNotFound (no such model), kOutOfMemory. The program may then hold parts of the method and is of no use.
Status import_archive(std::shared_ptr<FileBytes> archive, const ir::Catalog& catalog, const ImportOptions& options, ir::Program& program);

}  // namespace pteron::importer
