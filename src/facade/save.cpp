// Whose data file is it, and the order in which the files of a save appear.
#include "facade/save.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/file_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "facade/etrecord.h"
#include "facade/toolchain.h"
#include "format/data_file.h"
#include "format/data_name.h"
#include "format/meta.h"
#include "format/program_view.h"

namespace pteron::facade {

namespace fs = std::filesystem;

namespace {

/// The data files that a program records; none for files that are no programs of ours.
std::vector<format::DataFileMeta> records_of(const std::string& program) {
  const auto file = FileBytes::map(program);
  if (!file.ok()) return {};
  const auto view = format::verify_program((*file)->bytes());
  if (!view.ok()) return {};
  const auto facts = view->named_data(format::kMetaKey);
  if (!facts.has_value()) return {};
  auto meta = format::read_meta(*facts);
  return meta.ok() ? std::move(meta->data_files) : std::vector<format::DataFileMeta>();
}

/// Hash of a data file's manifest; empty if it has none or cannot be read.
std::string manifest_of(const std::string& path) {
  const auto file = FileBytes::map(path);
  if (!file.ok()) return {};
  const auto view = format::verify_data_file((*file)->bytes());
  if (!view.ok()) return {};
  const auto manifest = format::check_manifest(*view, false);
  return manifest.ok() && manifest->has_value() ? (*manifest)->hash : std::string();
}

/// What lies in the folder of a save.
struct Neighbours {
  std::vector<std::string> programs;      ///< paths of .pte files, the program's own left out
  std::vector<std::string> near_names;    ///< files whose name is the data file's but for the case of letters
};

Neighbours look_around(const fs::path& folder, const std::string& program, const std::string& data_name) {
  Neighbours out;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name != data_name && format::equal_but_for_case(name, data_name)) out.near_names.push_back(name);
    const bool is_program = name.size() > 4 && format::equal_but_for_case(std::string_view(name).substr(name.size() - 4), ".pte");
    if (is_program && !same_file(entry->path().string(), program)) out.programs.push_back(entry->path().string());
  }
  return out;
}

Status refuse(const fs::path& data, std::string_view why) {
  return Status(Code::kInvalidInput, str_cat("the data file ", data.string(), " is not replaced: ", why, "; give the weights another name, or force it"));
}

/// Errors: kInvalidInput if the data file holds weights that are not this program's own.
Status check_replace(const compiler::FinishedProgram& finished, const SaveOptions& options, const fs::path& data) {
  const std::string name = data.filename().string();
  const Neighbours around = look_around(data.parent_path(), options.path, name);
  for (const std::string& near : around.near_names) {
    if (options.log != nullptr) {
      options.log->log(LogLevel::kWarning, str_cat("the data file ", name, " and ", near, " beside it differ only in the case of letters: one file on Windows and macOS"));
    }
  }
  if (options.force) return ok_status();
  for (const std::string& program : around.programs) {
    for (const format::DataFileMeta& record : records_of(program)) {
      if (!format::equal_but_for_case(record.name, name) || record.manifest_hash == finished.manifest_hash) continue;
      if (record.name == name || same_file((data.parent_path() / record.name).string(), data.string())) return refuse(data, str_cat("program ", program, " uses it"));
    }
  }
  std::error_code error;
  if (!fs::exists(data, error)) return ok_status();
  const std::string found = manifest_of(data.string());
  if (!found.empty() && found == finished.manifest_hash) return ok_status();
  for (const format::DataFileMeta& record : records_of(options.path)) {
    if (record.name == name && !found.empty() && record.manifest_hash == found) return ok_status();
  }
  return refuse(data, "no program in its folder records what it holds (left over, or from another tool)");
}

/// The folder's absolute path, links resolved where they can be.
fs::path folder_of(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::absolute(fs::path(path), error).parent_path();
  const fs::path resolved = fs::canonical(folder, error);
  return error ? folder : resolved;
}

}  // namespace

Status check_save_path(const std::string& path, std::span<const std::string> inputs) {
  PTERON_TRY(format::check_program_path(path));
  for (const std::string& input : inputs) {
    if (same_file(input, path)) return Status(Code::kInvalidInput, str_cat("the output ", path, " is the input ", input, "; name another file"));
  }
  return ok_status();
}

Result<std::string> default_data_name(const std::string& program) {
  const std::string stem(format::path_stem(program));
  const Status status = format::check_data_name(stem);
  if (status.ok()) return stem;
  return Status(Code::kInvalidInput, str_cat(status.message(), "; the weights would get the name of the program, so give them one of their own"));
}

Result<SavedFiles> save_files(const compiler::FinishedProgram& finished, const SaveOptions& options) {
  SavedFiles saved;
  std::unique_ptr<LazyFile> data;
  if (!finished.data_name.empty()) {
    const fs::path path = folder_of(options.path) / str_cat(finished.data_name, ".ptd");
    PTERON_TRY(check_replace(finished, options, path));
    saved.data_path = path.string();
    data = std::make_unique<LazyFile>(saved.data_path);
    PTERON_TRY(compiler::write_data(finished, *data));
    saved.data_bytes = data->size();
  }
  LazyFile program(options.path);
  PTERON_TRY(compiler::write_program(finished, program));
  saved.program_bytes = program.size();
  std::unique_ptr<LazyFile> record;
  if (!options.etrecord.empty()) {
    saved.etrecord_path = etrecord_path(options.path);
    record = std::make_unique<LazyFile>(saved.etrecord_path);
    PTERON_TRY(record->write(std::as_bytes(std::span(options.etrecord))));
  }
  if (data != nullptr) PTERON_TRY(data->commit(options.sync));
  PTERON_TRY(program.commit(options.sync));
  if (record != nullptr) PTERON_TRY(record->commit(options.sync));
  if (data != nullptr && options.log != nullptr) {
    options.log->log(LogLevel::kInfo, str_cat("weights are in ", saved.data_path, ": loaders take this file, not its folder (official ones as data_path=)"));
  }
  return saved;
}

}  // namespace pteron::facade
