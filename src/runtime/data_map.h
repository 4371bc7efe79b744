// DataMap: bytes by name, from the data files of a program and from its own named data. Used at load and by delegates.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "format/data_file.h"
#include "format/meta.h"
#include "format/program_view.h"
#include "pteron/delegate.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Owns:    the data files; borrows the program's bytes.
/// Threads: immutable after load.
class DataMap final : public NamedData {
 public:
  /// Maps and verifies data files. A key may stand in one of them only.
  /// Errors: kNotFound, kInvalidFile, kIo, kIncompatible (a key in two places).
  /// outer (may be null, must outlive the map) is asked for constants that no data file holds.
  Status open(const std::vector<std::string>& paths, bool map, const format::ProgramView& program, const NamedData* outer = nullptr);
  /// That the files the program was written with are here: by the hash of their manifests, not by name.
  /// Errors: kNotFound (no file was given), kIncompatible (the files of another program).
  Status check_program(const format::ProgramMeta& meta) const;

  /// The file that the program lies in, for release(); may be null, outlives the map.
  void set_program_file(const FileBytes* file) { program_file_ = file; }

  std::optional<std::span<const std::byte>> find(std::string_view key) const override;
  void release(std::span<const std::byte> bytes) const override;
  /// Bytes of an external tensor, whose stored layout must be that of `expected`.
  /// Errors: kNotFound (no data file, or none has the key), kIncompatible (another dtype, shape or memory format).
  Result<std::span<const std::byte>> tensor(std::string_view name, const Tensor& expected) const;

 private:
  struct File {
    std::string path;
    std::shared_ptr<FileBytes> bytes;
    format::DataFileView view;
    std::string manifest;  ///< hash; empty if the file has none
  };
  Status add(const std::string& path, bool map);
  const format::DataEntry* find_entry(std::string_view key) const;
  Result<std::span<const std::byte>> outer_bytes(std::string_view name, const Tensor& expected) const;

  const format::ProgramView* program_ = nullptr;
  const NamedData* outer_ = nullptr;
  const FileBytes* program_file_ = nullptr;
  std::vector<File> files_;
};

}  // namespace pteron::runtime
