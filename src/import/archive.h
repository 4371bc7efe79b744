// The .pt2 container: checks that a zip file is an archive of torch.export.save, names its models, opens their JSON and weights.
// Used by import.cpp, sample_inputs.cpp. Knows nothing of graphs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/zip.h"
#include "import/json.h"
#include "import/payload_check.h"
#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::importer {

/// An opened .pt2 archive.
class Archive {
 public:
  /// Errors: kInvalidFile (not a .pt2, damaged, an unknown version, no exported program), kUnsupported (a file of torch 2.7 or older,
  /// big-endian weights).
  static Result<Archive> open(std::shared_ptr<FileBytes> file);

  /// Names of the exported programs, in archive order; at least one.
  const std::vector<std::string>& models() const { return models_; }
  /// `wanted`, or the only (or the "model" named) one if empty. Errors: kNotFound with the names that exist.
  Result<std::string> choose_model(std::string_view wanted) const;
  const ZipFile& zip() const { return zip_; }
  /// Entry by its path under the root folder; null if there is none.
  const ZipEntry* find(std::string_view path) const;
  /// Parses the JSON at a path under the root. Errors: kInvalidFile (missing or malformed).
  Result<JsonDocument> json(const std::string& path) const;

 private:
  ZipFile zip_;
  std::string root_;  ///< folder with the slash
  std::vector<std::string> models_;
};

/// The table "fqn -> where its bytes are" of one model: data/weights/M_weights_config.json or data/constants/M_constants_config.json.
class PayloadTable {
 public:
  /// folder: "weights" or "constants". A missing table is empty.
  static Result<PayloadTable> open(const Archive& archive, std::string_view model, std::string_view folder);
  /// Adds the files of all payloads to `check`.
  void add_to(PayloadCheck& check, const Archive& archive) const;
  bool has(std::string_view fqn) const { return metas_.contains(fqn); }
  /// The tensor of that name as a view of the archive's bytes. Without bytes in the archive (exported from fake tensors) the
  /// constant is lazy and its computation gives the error.
  /// Errors: kInvalidFile (no such name, no such file, a view that reaches outside), kUnsupported (pickled, sparse).
  Result<ir::Constant> make(const Archive& archive, std::string_view fqn);
  /// The state of an object of a custom class that is a list of strings, and the name of its class ("__torch__.torch.classes.tensorrt.Engine").
  /// Errors: kInvalidFile (no such name, no such file, damaged), kUnsupported (another state).
  struct Object {
    std::string type;
    std::vector<std::string> state;
  };
  Result<Object> object(const Archive& archive, std::string_view fqn) const;

 private:
  std::string folder_;
  JsonDocument document_;
  std::unordered_map<std::string_view, JsonValue> metas_;
};

/// dtype of torch.export's ScalarType number. Errors: kUnsupported.
Result<DType> read_dtype(JsonValue number);

/// What a tensor_values entry or a payload's tensor_meta says.
struct TensorMeta {
  DType dtype = DType::kFloat32;
  Device device;
  JsonValue sizes, strides;     ///< lists of symbolic or constant ints
  int64_t storage_offset = 0;   ///< elements; 0 if it is no constant
};
/// Errors: kInvalidFile (a part is missing), kUnsupported (dtype, a layout that is not strided).
Status read_tensor_meta(JsonValue meta, TensorMeta* out);
/// {"type": "cuda", "index": 0}; meta and unknown ones count as CPU.
Device read_device(JsonValue device);

}  // namespace pteron::importer
