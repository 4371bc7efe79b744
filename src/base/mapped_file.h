// FileBytes: the bytes of a file, mapped or read into memory; shared by everything that points into them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/buffer.h"
#include "pteron/status.h"

namespace pteron {

/// Read-only bytes of a file. A mapped file must not be changed by others while it is in use.
/// Threads: immutable after creation.
class FileBytes {
 public:
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// Maps the file read-only (an empty file gives empty bytes).
  /// Errors: kNotFound (no such file, or no regular one: a directory, a pipe, a device), kIo.
  static Result<std::shared_ptr<FileBytes>> map(const std::string& path);
  /// Reads the whole file into a buffer.
  /// Errors: as map, and kOutOfMemory.
  static Result<std::shared_ptr<FileBytes>> read(const std::string& path);
  /// Maps an open descriptor from its beginning; the descriptor may be closed afterwards.
  /// Errors: kInvalidInput (not a regular file), kIo.
  static Result<std::shared_ptr<FileBytes>> map_fd(int fd);

  /// Bytes that lie elsewhere. Owns: `owner`, which keeps them alive; null: the caller does.
  static std::shared_ptr<FileBytes> borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  /// Takes bytes that are already in memory.
  static std::shared_ptr<FileBytes> from_buffer(Buffer buffer);

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Tells the system that `part` is hardly read again: the process gives back its pages. Reading them is right all the same, and slower once.
  /// Nothing happens for bytes that are no part of this mapping.
  void release(std::span<const std::byte> part) const;

 private:
  FileBytes() = default;
  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  Buffer buffer_;
  std::shared_ptr<const void> owner_;  // shared: with whoever gave the bytes
};

}  // namespace pteron
