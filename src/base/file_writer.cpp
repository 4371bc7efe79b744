// FileWriter on POSIX (temporary file, optional sync, rename), and MemorySink.
#include "base/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
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

/// The path of a file beside `path` whose name begins with as much of its name as leaves room for more (a name has 255 bytes at most).
std::string beside(const std::string& path) {
  const size_t name = path.find_last_of('/') + 1;  // npos + 1 is 0
  return path.substr(0, name + std::min<size_t>(path.size() - name, 200));
}

/// Calls make(name) with names beside `path` until one is free (an earlier process may have died); its result, -1 with errno else.
template <typename Make>
int with_temporary_name(const std::string& path, std::string* temporary, Make&& make) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    *temporary = str_cat(beside(path), ".tmp.", static_cast<int64_t>(::getpid()), ".", attempt);
    const int made = make(temporary->c_str());
    if (made >= 0 || errno != EEXIST) return made;
  }
  return -1;
}

/// A file without a name in the folder of `path`: a killed process leaves nothing. -1 where the system has no such files.
int open_nameless(const std::string& path) {
  if (::access("/proc/self/fd", X_OK) != 0) return -1;
  return ::open(folder_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
}

/// What a symbolic link names; other paths as they are.
/// Errors: kIo (not a regular file, a link to nothing).
Result<std::string> target_of(const std::string& path) {
  struct stat link, info;
  if (::lstat(path.c_str(), &link) != 0) return path;
  if (::stat(path.c_str(), &info) != 0) return Status(Code::kIo, str_cat("cannot write ", path, ": it is a link to nothing"));
  if (S_ISDIR(info.st_mode)) return Status(Code::kIo, str_cat("cannot write ", path, ": it is a folder"));
  if (!S_ISREG(info.st_mode)) return Status(Code::kIo, str_cat("cannot write ", path, ": it is not a regular file"));
  if (!S_ISLNK(link.st_mode)) return path;
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return system_error("cannot follow", path);
  std::string target(real);
  std::free(real);
  return target;
}

}  // namespace

Result<std::unique_ptr<FileWriter>> FileWriter::create(const std::string& path) {
  std::unique_ptr<FileWriter> writer(new FileWriter());
  PTERON_ASSIGN(writer->path_, target_of(path));
  PTERON_ASSIGN(writer->pending_, Buffer::create(kPendingBytes));
  writer->fd_ = open_nameless(writer->path_);
  if (writer->fd_ >= 0) return writer;
  std::string temporary;
  writer->fd_ = with_temporary_name(writer->path_, &temporary, [](const char* name) { return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); });
  if (writer->fd_ < 0) return system_error("cannot create", path);
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
    if (n <= 0) return system_error("cannot write", path_);
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
  if (sync && ::fsync(fd_) != 0) return system_error("cannot sync", path_);
  if (temporary_.empty()) {
    std::string temporary;
    const std::string source = str_cat("/proc/self/fd/", fd_);
    const int linked = with_temporary_name(path_, &temporary, [&](const char* name) { return ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW); });
    if (linked != 0) return system_error("cannot create", path_);
    temporary_ = std::move(temporary);
  }
  if (::close(std::exchange(fd_, -1)) != 0) return system_error("cannot close", path_);
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
