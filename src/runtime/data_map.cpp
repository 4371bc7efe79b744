// Data files: opening, whether they belong to the program, lookup of named bytes and checks of external tensors.
#include "runtime/data_map.h"

#include <algorithm>
#include <cstdlib>

#include "base/str_cat.h"
#include "format/data_name.h"

namespace pteron::runtime {
namespace {

/// An empty dim order is the row-major one.
bool same_order(std::span<const uint8_t> stored, std::span<const uint8_t> expected) {
  for (size_t d = 0; d < expected.size(); ++d) {
    if ((stored.empty() ? d : stored[d]) != expected[d]) return false;
  }
  return true;
}

/// "float32 [2,3]", and the dim order if it is not the row-major one. An empty order is that one.
std::string layout_text(DType dtype, std::span<const int64_t> sizes, std::span<const uint8_t> dim_order) {
  const std::string text = str_cat(dtype_name(dtype), " ", shape_text(sizes));
  if (std::ranges::is_sorted(dim_order)) return text;
  return str_cat(text, " in dim order ", shape_text(std::vector<int64_t>(dim_order.begin(), dim_order.end())));
}

}  // namespace

std::vector<std::string> paths_beside(const std::string& program_path, std::string_view name) {
  const auto folder = [](std::string_view p) { return std::string(p.substr(0, p.find_last_of('/') + 1)); };  // npos + 1 is 0
  const std::string given = folder(program_path);
  std::vector<std::string> paths = {str_cat(given, name)};
  char* real = ::realpath(program_path.c_str(), nullptr);
  char* parent = ::realpath(given.empty() ? "." : given.c_str(), nullptr);
  if (real != nullptr && parent != nullptr && folder(real) != str_cat(parent, "/")) paths.push_back(str_cat(folder(real), name));
  std::free(real);
  std::free(parent);
  return paths;
}

Status DataMap::add(std::string label, std::shared_ptr<FileBytes> owner, std::span<const std::byte> bytes, bool verify) {
  File file{std::move(label), std::move(owner), bytes.size(), {}, {}};
  Result<format::DataFileView> view = format::verify_data_file(bytes);
  if (!view.ok()) return std::move(view).status().with_context(file.path);
  file.view = std::move(view).value();
  Result<std::optional<format::Manifest>> manifest = format::check_manifest(file.view, verify);
  if (!manifest.ok()) return std::move(manifest).status().with_context(file.path);
  file.manifest = std::move(manifest).value();
  for (const format::DataEntry& entry : file.view.entries()) {
    for (const File& other : files_) {
      if (other.view.find(entry.key) == nullptr) continue;
      return Status(Code::kIncompatible, str_cat("data files ", other.path, " and ", file.path, " both hold \"", entry.key, "\""));
    }
  }
  files_.push_back(std::move(file));
  return ok_status();
}

void DataMap::release(std::span<const std::byte> bytes) const {
  if (program_file_ != nullptr) program_file_->release(bytes);
  for (const File& file : files_) {
    if (file.owner != nullptr) file.owner->release(bytes);
  }
  if (outer_ != nullptr) outer_->release(bytes);
}

Status DataMap::check_program(const format::ProgramMeta& meta) const {
  for (const format::DataFileMeta& needed : meta.data_files) {
    if (needed.manifest_hash.empty()) continue;
    const auto found = std::ranges::find_if(files_, [&](const File& file) { return file.manifest.has_value() && file.manifest->hash == needed.manifest_hash; });
    if (found != files_.end() && found->size_bytes == needed.size_bytes) continue;
    const std::string what = str_cat("the program needs its data file ", needed.name, " (", needed.size_bytes, " bytes, manifest ", needed.manifest_hash, ")");
    if (found != files_.end()) return Status(Code::kIncompatible, str_cat(what, "; ", found->path, " has ", found->size_bytes, " bytes"));
    if (files_.empty()) {
      return Status(Code::kNotFound, str_cat(what, tried_.empty() ? ", and none was given" : str_cat("; there is none of these files: ", str_list(tried_))));
    }
    std::string given;
    for (const File& file : files_) {
      str_append(given, given.empty() ? "" : ", ", file.path, file.manifest.has_value() ? str_cat(" (manifest ", file.manifest->hash, ")") : " (no manifest: not written by Pteron)");
    }
    return Status(Code::kIncompatible, str_cat(what, "; the weights found are another program's: ", given));
  }
  return ok_status();
}

Status DataMap::open_given(const LoadOptions& options) {
  for (const std::string& path : options.data_files) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> file, options.map ? FileBytes::map(path) : FileBytes::read(path));
    const std::span<const std::byte> bytes = file->bytes();
    PTERON_TRY(add(path, std::move(file), bytes, options.verify_data));
  }
  for (const int fd : options.data_fds) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> file, FileBytes::map_fd(fd));
    const std::span<const std::byte> bytes = file->bytes();
    PTERON_TRY(add(str_cat("data file from descriptor ", fd), std::move(file), bytes, options.verify_data));
  }
  for (size_t i = 0; i < options.data_in_memory.size(); ++i) PTERON_TRY(add(str_cat("data file ", i, " in memory"), nullptr, options.data_in_memory[i], options.verify_data));
  return ok_status();
}

Status DataMap::open_beside(const LoadOptions& options, const std::string& program_path, const format::ProgramMeta& meta) {
  for (const format::DataFileMeta& record : meta.data_files) {
    // A program may be hostile: its record must not lead out of its folder.
    const std::string_view name = record.name;
    if (!name.ends_with(".ptd") || !format::check_data_name(name.substr(0, name.size() - 4)).ok()) return Status(Code::kInvalidFile, str_cat("the program's data file has the name '", record.name, "', which no data file may have"));
    for (const std::string& path : paths_beside(program_path, record.name)) {
      Result<std::shared_ptr<FileBytes>> file = options.map ? FileBytes::map(path) : FileBytes::read(path);
      if (!file.ok() && file.status().code() == Code::kNotFound) {
        tried_.push_back(std::string(file.status().message()));
        continue;
      }
      if (!file.ok()) return std::move(file).status();
      const std::span<const std::byte> bytes = (*file)->bytes();
      PTERON_TRY(add(path, std::move(file).value(), bytes, options.verify_data));
      break;
    }
  }
  return ok_status();
}

Status DataMap::open(const LoadOptions& options, const std::string& program_path, const format::ProgramView& program, const format::ProgramMeta& meta) {
  program_ = &program;
  outer_ = options.outer_data;
  PTERON_TRY(open_given(options));
  if (files_.empty() && !program_path.empty()) PTERON_TRY(open_beside(options, program_path, meta));
  for (const File& file : files_) {
    for (const format::DataEntry& entry : file.view.entries()) {
      if (!program.named_data(entry.key).has_value()) continue;
      return Status(Code::kIncompatible, str_cat("the program and data file ", file.path, " both hold \"", entry.key, "\""));
    }
  }
  return ok_status();
}

Status DataMap::verify(std::string_view key) const {
  for (const File& file : files_) {
    const format::DataEntry* entry = file.view.find(key);
    if (entry == nullptr) continue;
    const format::ManifestEntry* line = file.manifest.has_value() ? file.manifest->find(key) : nullptr;
    if (line == nullptr) return ok_status();
    {
      const std::lock_guard lock(verified_mutex_);
      if (verified_.contains(key)) return ok_status();
    }
    PTERON_ASSIGN(const std::string hash, format::entry_hash(entry->bytes, entry->layout));
    if (hash != line->hash) return Status(Code::kInvalidFile, str_cat("data file ", file.path, ": \"", key, "\" has other bytes than its manifest says"));
    const std::lock_guard lock(verified_mutex_);
    verified_.emplace(key);
    return ok_status();
  }
  return outer_ == nullptr ? ok_status() : outer_->verify(key);
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

Result<std::span<const std::byte>> DataMap::outer_bytes(std::string_view name, const Tensor& expected, std::vector<std::string>* later) const {
  const auto bytes = outer_->find(name);
  if (!bytes.has_value()) return Status(Code::kNotFound, str_cat("constant \"", name, "\" is neither in the program nor in a data file"));
  const size_t size = expected.view.size_bytes();
  if (later == nullptr) PTERON_TRY(outer_->verify(name));
  if (later != nullptr) later->emplace_back(name);
  if (bytes->size() != size) return Status(Code::kIncompatible, str_cat("constant \"", name, "\" has ", bytes->size(), " bytes, expected ", size));
  return *bytes;
}

Result<std::span<const std::byte>> DataMap::tensor(std::string_view name, const Tensor& expected, std::vector<std::string>* later) const {
  const format::DataEntry* entry = find_entry(name);
  if (entry == nullptr && outer_ != nullptr) return outer_bytes(name, expected, later);
  if (entry == nullptr) {
    return Status(Code::kNotFound, files_.empty() ? str_cat("constant \"", name, "\" is in a data file (.ptd), and none was given")
                                                  : str_cat("constant \"", name, "\" is in none of the ", files_.size(), " data files given"));
  }
  const size_t bytes = expected.view.size_bytes();
  const std::span order(expected.dim_order.data(), static_cast<size_t>(expected.rank()));
  const auto wanted = [&] { return layout_text(expected.dtype(), expected.sizes(), order); };
  if (!entry->layout.has_value()) return Status(Code::kIncompatible, str_cat("data file: \"", name, "\" has no tensor layout, the program expects ", wanted()));
  const format::DataLayout& layout = *entry->layout;
  if (layout.dtype != expected.dtype() || !std::ranges::equal(layout.sizes, expected.sizes()) || !same_order(layout.dim_order, order)) {
    return Status(Code::kIncompatible,
                  str_cat("data file: \"", name, "\" is ", layout_text(layout.dtype, layout.sizes, layout.dim_order), ", the program expects ", wanted()));
  }
  if (entry->bytes.size() < bytes) return Status(Code::kInvalidFile, str_cat("data file: \"", name, "\" has ", entry->bytes.size(), " of ", bytes, " bytes"));
  return entry->bytes.first(bytes);
}

}  // namespace pteron::runtime
