// DataMap: bytes by name, from the data files of a program and from its own named data. Used at load and by delegates.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "format/data_file.h"
#include "format/meta.h"
#include "format/program_view.h"
#include "pteron/delegate.h"
#include "pteron/program.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Where a program's data file may lie: in the folder of the program's path, then in that of the file it links to.
std::vector<std::string> paths_beside(const std::string& program_path, std::string_view name);

/// Owns:    the data files; borrows the program's bytes.
/// Threads: immutable after load but for what verify() has seen, which is guarded.
class DataMap final : public NamedData {
 public:
  /// Maps and verifies the data files of `options`; if there are none, those that `meta` records and that lie beside the program (`program_path`;
  /// empty: in memory). A key may stand in one of them only. options.outer_data is asked for constants that no data file holds.
  /// Errors: kNotFound, kInvalidFile, kIo, kIncompatible (a key in two places).
  Status open(const LoadOptions& options, const std::string& program_path, const format::ProgramView& program, const format::ProgramMeta& meta);
  /// That the files the program was written with are here: by the hash of their manifests, not by name.
  /// Errors: kNotFound (no file was given), kIncompatible (the files of another program).
  Status check_program(const format::ProgramMeta& meta) const;

  /// The file that the program lies in, for release(); may be null, outlives the map.
  void set_program_file(const FileBytes* file) { program_file_ = file; }

  std::optional<std::span<const std::byte>> find(std::string_view key) const override;
  Status verify(std::string_view key) const override;
  void release(std::span<const std::byte> bytes) const override;
  /// Bytes of an external tensor, whose stored layout must be that of `expected`. Those of the program around are compared with its data file's
  /// manifest, or, with `later`, their names go there to be compared before the first use.
  /// Errors: kNotFound (no data file, or none has the key), kIncompatible (another dtype, shape or memory format).
  Result<std::span<const std::byte>> tensor(std::string_view name, const Tensor& expected, std::vector<std::string>* later = nullptr) const;

 private:
  struct File {
    std::string path;                  ///< for messages
    std::shared_ptr<FileBytes> owner;  ///< null if the caller owns the bytes
    uint64_t size_bytes = 0;
    format::DataFileView view;
    std::optional<format::Manifest> manifest;
  };
  Status add(std::string label, std::shared_ptr<FileBytes> owner, std::span<const std::byte> bytes, bool verify);
  Status open_given(const LoadOptions& options);
  Status open_beside(const LoadOptions& options, const std::string& program_path, const format::ProgramMeta& meta);
  const format::DataEntry* find_entry(std::string_view key) const;
  Result<std::span<const std::byte>> outer_bytes(std::string_view name, const Tensor& expected, std::vector<std::string>* later) const;

  const format::ProgramView* program_ = nullptr;
  const NamedData* outer_ = nullptr;
  const FileBytes* program_file_ = nullptr;
  std::vector<File> files_;
  std::vector<std::string> tried_;  // paths beside the program where nothing was
  mutable std::mutex verified_mutex_;
  mutable std::set<std::string, std::less<>> verified_;
};

}  // namespace pteron::runtime
