// FileWriter: a file that appears complete under its name or not at all. Used by everything that writes a file in pieces.
#pragma once

#include <memory>
#include <string>

#include "base/byte_sink.h"

namespace pteron {

/// Writes to a file without a name in the folder of `path` (one with a temporary name where the system has no nameless files); commit() gives
/// it its name, destruction without commit removes it. A symbolic link is followed: the file it names is replaced.
/// Threads: one thread at a time.
class FileWriter final : public ByteSink {
 public:
  ~FileWriter() override;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Creates the file in the folder of `path`.
  /// Errors: kIo (with the path and the system's reason; what is there already is no regular file).
  static Result<std::unique_ptr<FileWriter>> create(const std::string& path);
  Status reserve(uint64_t total_bytes) override;
  Status write(std::span<const std::byte> bytes) override;
  /// Makes the file visible under its name. sync: file and folder are on the disk when this returns.
  /// Errors: kIo; the temporary file is removed.
  Status commit(bool sync);

 private:
  FileWriter() = default;
  Status write_through(std::span<const std::byte> bytes);
  Status flush();
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  Buffer pending_;
  size_t pending_bytes_ = 0;
};

}  // namespace pteron
