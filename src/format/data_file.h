// Data files (.ptd, FlatTensor): blobs by name beside a program. Plain structs, writer, verified reader, and Pteron's manifest.
// Used by emit, the runtime's data maps, merge and inspect. Wire layout: schema/flat_tensor.fbs and schema/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_sink.h"
#include "format/program.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::format {

/// Meaning of a blob that is a tensor, dense in `dim_order` (empty = row-major).
struct DataLayout {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<uint8_t> dim_order;
  bool operator==(const DataLayout&) const = default;
};

/// Byte count of a layout; false if sizes are negative or too large, or dim_order is no permutation.
bool layout_bytes(const DataLayout& layout, uint64_t* out);

struct DataEntrySpec {
  std::string key;
  uint32_t blob = 0;  ///< several keys may share one
  std::optional<DataLayout> layout;
};

struct DataBlobSpec {
  Payload payload;
  uint64_t alignment = 0;  ///< 0 = WriteOptions::alignment
  std::string hash = {};   ///< its manifest line's, if that is known already: add_manifest then does not read the bytes
};

struct DataFileSpec {
  std::vector<DataBlobSpec> blobs;
  std::vector<DataEntrySpec> entries;
};

/// Bytes of the file that write_data_file will write. Errors: kInvalidInput, as there.
Result<uint64_t> data_file_size(const DataFileSpec& data, const WriteOptions& options);

/// Writes a .ptd: equal input gives equal bytes.
/// Errors: kInvalidInput (an index, size or rank that the format cannot hold), the producers' and the sink's.
Status write_data_file(const DataFileSpec& data, const WriteOptions& options, ByteSink& sink);

/// One named blob of a verified file.
struct DataEntry {
  std::string_view key;
  std::span<const std::byte> bytes;
  std::optional<DataLayout> layout;  ///< its byte count never exceeds bytes.size()
};

/// A verified .ptd.
/// Owns:    its tables; borrows the file's bytes.
/// Threads: immutable.
class DataFileView {
 public:
  /// Sorted by key.
  std::span<const DataEntry> entries() const { return entries_; }
  /// Null if there is no entry of that name.
  const DataEntry* find(std::string_view key) const;

 private:
  friend class DataVerifier;
  std::vector<DataEntry> entries_;
  Buffer aligned_copy_;  // keys point into it if the file's bytes are not aligned
};

/// Checks a whole .ptd. `file` must stay alive and unchanged while the view is used.
/// Errors: kInvalidFile (what was expected, found and where), kOutOfMemory.
Result<DataFileView> verify_data_file(std::span<const std::byte> file);

/// A line of the manifest.
struct ManifestEntry {
  std::string key;
  uint64_t size_bytes = 0;
  std::string hash;                  ///< of the stored bytes: tensor_hash_hex with a layout, hash_hex without
  std::optional<DataLayout> layout;  ///< dim_order is not part of the manifest
  bool operator==(const ManifestEntry&) const = default;
};

inline constexpr std::string_view kManifestPrefix = "pteron.manifest.";

/// The manifest's text: a version line, then one line per key, sorted by key: hash, size, dtype, sizes, key.
/// Errors: kInvalidInput (a key with a line break).
Result<std::string> manifest_text(std::vector<ManifestEntry> entries);
/// Key under which a manifest is stored: prefix and hash of its text.
std::string manifest_key(std::string_view text);
/// Errors: kInvalidFile.
Result<std::vector<ManifestEntry>> parse_manifest(std::string_view text);
/// Adds the manifest of all entries as one more entry (makes each payload once to hash it, unless its hash is known) and returns its hash.
Result<std::string> add_manifest(DataFileSpec& data);
/// A manifest that was read.
struct Manifest {
  std::string hash;                     ///< of its text
  std::vector<ManifestEntry> entries;   ///< sorted by key
  /// Null if there is none of that key.
  const ManifestEntry* find(std::string_view key) const;
};
/// The hash that a manifest line has for what is stored. Errors: kOutOfMemory.
Result<std::string> entry_hash(std::span<const std::byte> bytes, const std::optional<DataLayout>& layout);

/// Reads the manifest of a verified file and checks key, lengths and layouts against the file; nullopt if it has none.
/// verify_bytes: also hash every payload.
/// Errors: kInvalidFile.
Result<std::optional<Manifest>> check_manifest(const DataFileView& file, bool verify_bytes);

}  // namespace pteron::format
