// Data files: opening, whether they belong to the program, lookup of named bytes and checks of external tensors.
#include "runtime/data_map.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::runtime {
namespace {

std::string layout_text(DType dtype, std::span<const int64_t> sizes) { return str_cat(dtype_name(dtype), " ", shape_text(sizes)); }

/// An empty dim order is the row-major one.
bool same_order(std::span<const uint8_t> stored, std::span<const uint8_t> expected) {
  for (size_t d = 0; d < expected.size(); ++d) {
    if ((stored.empty() ? d : stored[d]) != expected[d]) return false;
  }
  return true;
}

}  // namespace

Status DataMap::add(const std::string& path, bool map) {
  File file;
  file.path = path;
  PTERON_ASSIGN(file.bytes, map ? FileBytes::map(path) : FileBytes::read(path));
  Result<format::DataFileView> view = format::verify_data_file(file.bytes->bytes());
  if (!view.ok()) return std::move(view).status().with_context(path);
  file.view = std::move(view).value();
  Result<std::optional<std::string>> manifest = format::check_manifest(file.view, false);
  if (!manifest.ok()) return std::move(manifest).status().with_context(path);
  file.manifest = manifest->value_or(std::string());
  for (const format::DataEntry& entry : file.view.entries()) {
    for (const File& other : files_) {
      if (other.view.find(entry.key) == nullptr) continue;
      return Status(Code::kIncompatible, str_cat("data files ", other.path, " and ", path, " both hold \"", entry.key, "\""));
    }
  }
  files_.push_back(std::move(file));
  return ok_status();
}

void DataMap::release(std::span<const std::byte> bytes) const {
  if (program_file_ != nullptr) program_file_->release(bytes);
  for (const File& file : files_) file.bytes->release(bytes);
  if (outer_ != nullptr) outer_->release(bytes);
}

Status DataMap::check_program(const format::ProgramMeta& meta) const {
  for (const format::DataFileMeta& needed : meta.data_files) {
    if (needed.manifest_hash.empty()) continue;
    const bool found = std::ranges::any_of(files_, [&](const File& file) { return file.manifest == needed.manifest_hash; });
    if (found) continue;
    if (files_.empty()) return Status(Code::kNotFound, str_cat("the program needs its data file ", needed.name, ", which was not given"));
    std::string given;
    for (const File& file : files_) str_append(given, given.empty() ? "" : ", ", file.path);
    return Status(Code::kIncompatible, str_cat("the program needs data file ", needed.name, " with manifest ", needed.manifest_hash,
                                               "; none of the files given has it: ", given));
  }
  return ok_status();
}

Status DataMap::open(const std::vector<std::string>& paths, bool map, const format::ProgramView& program, const NamedData* outer) {
  program_ = &program;
  outer_ = outer;
  for (const std::string& path : paths) PTERON_TRY(add(path, map));
  for (const File& file : files_) {
    for (const format::DataEntry& entry : file.view.entries()) {
      if (!program.named_data(entry.key).has_value()) continue;
      return Status(Code::kIncompatible, str_cat("the program and data file ", file.path, " both hold \"", entry.key, "\""));
    }
  }
  return ok_status();
}

const format::DataEntry* DataMap::find_entry(std::string_view key) const {
  for (const File& file : files_) {
    if (const format::DataEntry* entry = file.view.find(key)) return entry;
  }
  return nullptr;
}

std::optional<std::span<const std::byte>> DataMap::find(std::string_view key) const {
  if (const format::DataEntry* entry = find_entry(key)) return entry->bytes;
  return program_->named_data(key);
}

Result<std::span<const std::byte>> DataMap::outer_bytes(std::string_view name, const Tensor& expected) const {
  const auto bytes = outer_->find(name);
  if (!bytes.has_value()) return Status(Code::kNotFound, str_cat("constant \"", name, "\" is neither in the program nor in a data file"));
  const size_t size = expected.view.size_bytes();
  if (bytes->size() != size) return Status(Code::kIncompatible, str_cat("constant \"", name, "\" has ", bytes->size(), " bytes, expected ", size));
  return *bytes;
}

Result<std::span<const std::byte>> DataMap::tensor(std::string_view name, const Tensor& expected) const {
  const format::DataEntry* entry = find_entry(name);
  if (entry == nullptr && outer_ != nullptr) return outer_bytes(name, expected);
  if (entry == nullptr) {
    return Status(Code::kNotFound, files_.empty() ? str_cat("constant \"", name, "\" is in a data file (.ptd), and none was given")
                                                  : str_cat("constant \"", name, "\" is in none of the ", files_.size(), " data files given"));
  }
  const size_t bytes = expected.view.size_bytes();
  if (!entry->layout.has_value()) {
    return Status(Code::kIncompatible, str_cat("data file: \"", name, "\" has no tensor layout, the program expects ", layout_text(expected.dtype(), expected.sizes())));
  }
  const format::DataLayout& layout = *entry->layout;
  if (layout.dtype != expected.dtype() || !std::ranges::equal(layout.sizes, expected.sizes()) ||
      !same_order(layout.dim_order, {expected.dim_order.data(), static_cast<size_t>(expected.rank())})) {
    return Status(Code::kIncompatible, str_cat("data file: \"", name, "\" is ", layout_text(layout.dtype, layout.sizes), ", the program expects ",
                                               layout_text(expected.dtype(), expected.sizes()), " in its memory format"));
  }
  if (entry->bytes.size() < bytes) return Status(Code::kInvalidFile, str_cat("data file: \"", name, "\" has ", entry->bytes.size(), " of ", bytes, " bytes"));
  return entry->bytes.first(bytes);
}

}  // namespace pteron::runtime
