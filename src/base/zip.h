// Zip reader over bytes in memory: central directory, zip64, stored entries without a copy, deflated ones through zlib.
// Used for .pt2 archives, the torch.save files inside them, and .npz. Reads nothing outside the given bytes, whatever they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pteron/status.h"

namespace pteron {

/// One file of the archive, as the central directory tells.
/// Units:   offsets and sizes in bytes; data_offset counts from the start of the archive.
struct ZipEntry {
  std::string_view name;   ///< borrowed from the archive's bytes
  uint64_t data_offset = 0;
  uint64_t stored_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
  uint16_t method = 0;     ///< 0 stored, 8 deflated
};

/// Bytes of an entry and what keeps them alive.
struct ZipBytes {
  std::span<const std::byte> bytes;
  size_t readable_behind = 0;          ///< further bytes of the same memory behind `bytes`
  std::shared_ptr<const void> owner;   // shared: constants made from the bytes outlive the reader
};

/// The directory of a zip file.
/// Owns:    a share of `owner`, which keeps the bytes alive.
/// Threads: immutable after open().
class ZipFile {
 public:
  /// Reads and checks the directory and every local header: all entries lie inside the bytes and none overlaps another.
  /// Errors: kInvalidFile (not a zip, truncated, damaged), kUnsupported (encrypted, several disks, other compression).
  static Result<ZipFile> open(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  /// In the order of the central directory.
  std::span<const ZipEntry> entries() const { return entries_; }
  /// Null if there is no entry of that name.
  const ZipEntry* find(std::string_view name) const;
  /// Contents of an entry: a part of the archive if it is stored, else inflated into a new buffer.
  /// check_crc: compare with the checksum of the directory (reads every byte).
  /// Errors: kInvalidFile (bad deflate data, wrong checksum), kOutOfMemory.
  Result<ZipBytes> read(const ZipEntry& entry, bool check_crc) const;

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace pteron
