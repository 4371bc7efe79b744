// The manifest of a data file: text form, parser, making and checking.
#include <algorithm>
#include <charconv>
#include <functional>

#include "base/str_cat.h"
#include "format/content_hash.h"
#include "format/data_file.h"
#include "tensor/dtype.h"

namespace pteron::format {

namespace {

constexpr std::string_view kFirstLine = "pteron manifest 1";
constexpr size_t kHashDigits = 32;

Status invalid(std::string_view line, std::string_view what) {
  return Status(Code::kInvalidFile, str_cat("manifest line \"", line.substr(0, 120), "\": ", what));
}

/// The text before the next `separator`; takes both off `rest`.
std::string_view take_until(std::string_view& rest, char separator) {
  const size_t at = rest.find(separator);
  const std::string_view token = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return token;
}

template <typename T>
bool parse_whole(std::string_view text, T* out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

/// "2x3", "scalar" for rank 0.
std::string sizes_text(std::span<const int64_t> sizes) {
  if (sizes.empty()) return "scalar";
  std::string out;
  for (const int64_t size : sizes) str_append(out, out.empty() ? "" : "x", size);
  return out;
}

bool parse_sizes(std::string_view text, std::vector<int64_t>* out) {
  if (text == "scalar") return true;
  while (!text.empty()) {
    int64_t size = 0;
    if (!parse_whole(take_until(text, 'x'), &size) || size < 0 || out->size() >= static_cast<size_t>(kMaxRank)) return false;
    out->push_back(size);
  }
  return !out->empty();
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<ManifestEntry> parse_line(std::string_view line) {
  std::string_view rest = line;
  ManifestEntry entry;
  entry.hash = take_until(rest, ' ');
  if (!is_hash(entry.hash)) return invalid(line, "32 hex digits are expected first");
  if (!parse_whole(take_until(rest, ' '), &entry.size_bytes)) return invalid(line, "a byte count is expected second");
  const std::string_view dtype = take_until(rest, ' ');
  const std::string_view sizes = take_until(rest, ' ');
  if (dtype != "-") {
    DataLayout layout;
    if (!dtype_from_name(dtype, &layout.dtype) || !parse_sizes(sizes, &layout.sizes)) return invalid(line, "dtype and sizes are expected");
    entry.layout = std::move(layout);
  }
  entry.key = rest;
  return entry;
}

/// The entry a file should have for what is stored there.
ManifestEntry describe(std::string_view key, std::span<const std::byte> bytes, const std::optional<DataLayout>& layout, std::string hash) {
  ManifestEntry entry{std::string(key), bytes.size(), std::move(hash), layout};
  if (entry.layout.has_value()) entry.layout->dim_order.clear();
  return entry;
}

Result<std::string> payload_hash(const Payload& payload, const std::optional<DataLayout>& layout) {
  if (layout.has_value()) return tensor_hash_hex(layout->dtype, layout->sizes, payload);
  HashSink sink;
  PTERON_TRY(write_payload(payload, sink));
  return sink.hex();
}

Status check_entry(const ManifestEntry& expected, const DataFileView& file, bool verify_bytes) {
  const DataEntry* found = file.find(expected.key);
  if (found == nullptr) return Status(Code::kInvalidFile, str_cat("the manifest names data ", expected.key, ", the file does not hold it"));
  std::string hash = expected.hash;
  if (verify_bytes) {
    PTERON_ASSIGN(hash, entry_hash(found->bytes, found->layout));
  }
  if (describe(found->key, found->bytes, found->layout, hash) == expected) return ok_status();
  if (hash != expected.hash) return Status(Code::kInvalidFile, str_cat("data ", expected.key, " has other bytes than its manifest says"));
  return Status(Code::kInvalidFile, str_cat("data ", expected.key, ": the manifest expects ", expected.size_bytes, " bytes of another size or type, found ",
                                            found->bytes.size(), " bytes"));
}

}  // namespace

Result<std::string> entry_hash(std::span<const std::byte> bytes, const std::optional<DataLayout>& layout) { return payload_hash(Payload::borrow(bytes), layout); }

Result<std::string> manifest_text(std::vector<ManifestEntry> entries) {
  std::ranges::sort(entries, {}, &ManifestEntry::key);
  std::string out = str_cat(kFirstLine, "\n");
  for (const ManifestEntry& entry : entries) {
    if (entry.key.find('\n') != std::string::npos) return Status(Code::kInvalidInput, str_cat("data key ", entry.key, " has a line break"));
    str_append(out, entry.hash, " ", entry.size_bytes, " ", entry.layout ? dtype_name(entry.layout->dtype) : "-", " ",
               entry.layout ? sizes_text(entry.layout->sizes) : "-", " ", entry.key, "\n");
  }
  return out;
}

std::string manifest_key(std::string_view text) { return str_cat(kManifestPrefix, hash_hex(std::as_bytes(std::span(text)))); }

Result<std::vector<ManifestEntry>> parse_manifest(std::string_view text) {
  if (take_until(text, '\n') != kFirstLine) return Status(Code::kInvalidFile, str_cat("a manifest that starts with \"", kFirstLine, "\" is expected"));
  std::vector<ManifestEntry> entries;
  while (!text.empty()) {
    PTERON_ASSIGN(ManifestEntry entry, parse_line(take_until(text, '\n')));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::string> add_manifest(DataFileSpec& data) {
  std::vector<ManifestEntry> entries;
  std::vector<HashedTensor> tensors;  // of entries whose hash is not known
  std::vector<size_t> entry_of;
  for (size_t i = 0; i < data.entries.size(); ++i) {
    const DataEntrySpec& entry = data.entries[i];
    if (entry.blob >= data.blobs.size()) return Status(Code::kInvalidInput, str_cat("data ", entry.key, " names a blob that is not there"));
    const DataBlobSpec& blob = data.blobs[entry.blob];
    if (!blob.hash.empty() || !entry.layout.has_value()) continue;
    tensors.push_back({entry.layout->dtype, entry.layout->sizes, &blob.payload});
    entry_of.push_back(i);
  }
  PTERON_ASSIGN(const std::vector<std::string> hashes, tensor_hashes(tensors));
  for (size_t i = 0, known = 0; i < data.entries.size(); ++i) {
    const DataEntrySpec& entry = data.entries[i];
    const DataBlobSpec& blob = data.blobs[entry.blob];
    ManifestEntry line{entry.key, blob.payload.size_bytes, blob.hash, entry.layout};
    if (known < entry_of.size() && entry_of[known] == i) {
      line.hash = hashes[known++];
    } else if (line.hash.empty()) {
      PTERON_ASSIGN(line.hash, payload_hash(blob.payload, entry.layout));
    }
    if (line.layout.has_value()) line.layout->dim_order.clear();
    entries.push_back(std::move(line));
  }
  PTERON_ASSIGN(const std::string text, manifest_text(std::move(entries)));
  const std::string key = manifest_key(text);
  data.entries.push_back({key, static_cast<uint32_t>(data.blobs.size()), std::nullopt});
  data.blobs.push_back({Payload::produce(text.size(), [text]() -> Result<Buffer> {
                          PTERON_ASSIGN(Buffer buffer, Buffer::create(text.size()));
                          std::ranges::copy(std::as_bytes(std::span(text)), buffer.data());
                          return buffer;
                        }),
                        0, {}});
  return key.substr(kManifestPrefix.size());
}

const ManifestEntry* Manifest::find(std::string_view key) const {
  const auto found = std::ranges::lower_bound(entries, key, {}, &ManifestEntry::key);
  return found != entries.end() && found->key == key ? &*found : nullptr;
}

Result<std::optional<Manifest>> check_manifest(const DataFileView& file, bool verify_bytes) {
  const auto found = std::ranges::find_if(file.entries(), [](const DataEntry& entry) { return entry.key.starts_with(kManifestPrefix); });
  if (found == file.entries().end()) return std::optional<Manifest>();
  const std::string_view text(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
  if (manifest_key(text) != found->key) {
    return Status(Code::kInvalidFile, str_cat("the manifest ", found->key, " has other bytes than its name says (damaged?)"));
  }
  PTERON_ASSIGN(std::vector<ManifestEntry> entries, parse_manifest(text));
  for (const ManifestEntry& entry : entries) PTERON_TRY(check_entry(entry, file, verify_bytes));
  if (entries.size() + 1 != file.entries().size()) {
    return Status(Code::kInvalidFile, str_cat("the manifest lists ", entries.size(), " entries, the file has ", file.entries().size() - 1));
  }
  if (std::ranges::adjacent_find(entries, std::ranges::greater_equal(), &ManifestEntry::key) != entries.end()) {
    return Status(Code::kInvalidFile, "the manifest is not sorted by key, or names one twice");
  }
  return std::optional<Manifest>({std::string(found->key.substr(kManifestPrefix.size())), std::move(entries)});
}

}  // namespace pteron::format
