// Small zip archives in memory, entries stored as they are. Used for ETRecords; weights are never in them.
#pragma once

#include <span>
#include <string>

#include "pteron/status.h"

namespace pteron {

struct ZipItem {
  std::string name;
  std::string content;
};

/// The bytes of an archive; equal items give equal bytes (no times).
/// Errors: kInvalidInput (more than 4 GiB, more than 65535 entries, a name of more than 65535 bytes).
Result<std::string> write_zip(std::span<const ZipItem> items);

}  // namespace pteron
