// DataMap: bytes by name, from the data files of a program and from its own named data. Used at load and by delegates.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "format/program_view.h"
#include "pteron/delegate.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Owns:    the data files; borrows the program's bytes.
/// Threads: immutable after load.
class DataMap final : public NamedData {
 public:
  /// Maps and verifies data files. A key may stand in one of them only.
  /// Errors: kNotFound, kInvalidFile, kIncompatible (a key in two places), kIo.
  Status open(const std::vector<std::string>& paths, bool map, const format::ProgramView& program);

  std::optional<std::span<const std::byte>> find(std::string_view key) const override;
  /// Bytes of an external tensor, whose stored layout must be that of `expected`.
  /// Errors: kNotFound (no data file, or none has the key), kIncompatible (another dtype, shape or memory format).
  Result<std::span<const std::byte>> tensor(std::string_view name, const Tensor& expected) const;

 private:
  const format::ProgramView* program_ = nullptr;
};

}  // namespace pteron::runtime
