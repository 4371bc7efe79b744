// FileWriter on POSIX (temporary file, optional sync, rename), and MemorySink.
#include "base/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked_math.h"
#include "base/str_cat.h"

namespace pteron {

namespace {

/// Writes smaller than this are gathered, so that thousands of small constants cost few system calls.
constexpr size_t kPendingBytes = size_t{256} << 10;
/// Linux writes at most 2 GiB a call.
constexpr size_t kWriteBytes = size_t{1} << 30;

Status system_error(std::string_view what, const std::string& path) {
  return Status(Code::kIo, str_cat(what, " ", path, ": ", std::strerror(errno)));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Opens a new file beside `path`; tries other names if one is taken (an earlier process may have died).
int open_temporary(const std::string& path, std::string* temporary) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    *temporary = str_cat(path, ".tmp.", static_cast<int64_t>(::getpid()), ".", attempt);
    const int fd = ::open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<FileWriter>> FileWriter::create(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Status(Code::kIo, str_cat("cannot write ", path, ": it is a folder"));
  }
  std::unique_ptr<FileWriter> writer(new FileWriter());
  writer->path_ = path;
  PTERON_ASSIGN(writer->pending_, Buffer::create(kPendingBytes));
  std::string temporary;
  writer->fd_ = open_temporary(path, &temporary);
  if (writer->fd_ < 0) return system_error("cannot create", temporary);
  writer->temporary_ = std::move(temporary);
  return writer;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status FileWriter::reserve(uint64_t) { return ok_status(); }

Status FileWriter::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error("cannot write", temporary_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return ok_status();
}

Status FileWriter::flush() {
  const size_t n = std::exchange(pending_bytes_, 0);
  return write_through(pending_.span().first(n));
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() >= pending_.size()) {
    PTERON_TRY(flush());
    return write_through(bytes);
  }
  if (pending_bytes_ + bytes.size() > pending_.size()) PTERON_TRY(flush());
  if (!bytes.empty()) std::memcpy(pending_.data() + pending_bytes_, bytes.data(), bytes.size());
  pending_bytes_ += bytes.size();
  return ok_status();
}

Status FileWriter::commit(bool sync) {
  PTERON_TRY(flush());
  if (sync && ::fsync(fd_) != 0) return system_error("cannot sync", temporary_);
  if (::close(std::exchange(fd_, -1)) != 0) return system_error("cannot close", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error("cannot rename to", path_);
  temporary_.clear();
  if (!sync) return ok_status();
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return ok_status();
  const bool failed = ::fsync(folder) != 0 && errno != EINVAL;
  ::close(folder);
  return failed ? system_error("cannot sync the folder of", path_) : ok_status();
}

Status MemorySink::reserve(uint64_t total_bytes) {
  if (total_bytes <= buffer_.size()) return ok_status();
  PTERON_ASSIGN(Buffer larger, Buffer::create(total_bytes));
  if (used_ > 0) std::memcpy(larger.data(), buffer_.data(), used_);
  buffer_ = std::move(larger);
  return ok_status();
}

Status MemorySink::write(std::span<const std::byte> bytes) {
  uint64_t needed = 0;
  if (!checked_add(static_cast<uint64_t>(used_), static_cast<uint64_t>(bytes.size()), &needed)) return Status::out_of_memory();
  if (needed > buffer_.size()) PTERON_TRY(reserve(std::max<uint64_t>(needed, uint64_t{2} * buffer_.size())));
  if (!bytes.empty()) std::memcpy(buffer_.data() + used_, bytes.data(), bytes.size());
  used_ += bytes.size();
  return ok_status();
}

}  // namespace pteron
