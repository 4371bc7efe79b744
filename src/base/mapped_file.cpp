// File mapping and reading on POSIX; writing is in file_writer.cpp.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/no_memory.h"
#include "base/str_cat.h"

namespace pteron {

namespace {

/// Closes a descriptor at scope end.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status system_error(Code code, std::string_view what, const std::string& path) {
  return Status(code, str_cat(what, " ", path, ": ", std::strerror(errno)));
}

Result<int> open_regular(const std::string& path, struct stat* info) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not wait
  if (fd < 0) return system_error(errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo, "cannot open", path);
  if (::fstat(fd, info) != 0) {
    ::close(fd);
    return system_error(Code::kIo, "cannot stat", path);
  }
  if (!S_ISREG(info->st_mode)) {
    ::close(fd);
    const char* what = S_ISDIR(info->st_mode) ? "a directory" : S_ISFIFO(info->st_mode) ? "a pipe" : "a device";
    return Status(Code::kNotFound, str_cat(path, " is ", what, ", a regular file is expected"));
  }
  return fd;
}

}  // namespace

FileBytes::~FileBytes() {
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::shared_ptr<FileBytes>> FileBytes::map_fd(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return Status(Code::kIo, str_cat("cannot stat descriptor ", fd, ": ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalidInput, str_cat("descriptor ", fd, " is not a regular file"));
  std::shared_ptr<FileBytes> file(new FileBytes());
  if (info.st_size == 0) return file;
  const size_t size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return Status(Code::kIo, str_cat("cannot map ", size, " bytes: ", std::strerror(errno)));
  file->mapped_ = true;
  file->bytes_ = {static_cast<const std::byte*>(address), size};
  return file;
}

Result<std::shared_ptr<FileBytes>> FileBytes::map(const std::string& path) {
  struct stat info;
  PTERON_ASSIGN(const int fd, open_regular(path, &info));
  const Descriptor closer{fd};
  auto result = map_fd(fd);
  if (!result.ok()) return std::move(result).status().with_context(path);
  return result;
}

Result<std::shared_ptr<FileBytes>> FileBytes::read(const std::string& path) {
  struct stat info;
  PTERON_ASSIGN(const int fd, open_regular(path, &info));
  const Descriptor closer{fd};
  // Files of /proc say that they are empty: only a size above zero is believed.
  const bool size_known = info.st_size > 0;
  const size_t capacity = size_known ? static_cast<size_t>(info.st_size) : size_t{1} << 16;
  PTERON_ASSIGN(Buffer buffer, buffer_for(path, Buffer::create(capacity)));
  size_t used = 0;
  for (;;) {
    if (used == buffer.size() && !size_known) {
      PTERON_ASSIGN(Buffer larger, buffer_for(path, Buffer::create(buffer.size() * 2)));
      std::memcpy(larger.data(), buffer.data(), used);
      buffer = std::move(larger);
    }
    if (used == buffer.size()) break;
    const ssize_t n = ::read(fd, buffer.data() + used, buffer.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(Code::kIo, "cannot read", path);
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  std::shared_ptr<FileBytes> file(new FileBytes());
  file->buffer_ = std::move(buffer);
  file->bytes_ = {file->buffer_.data(), used};
  return file;
}

std::shared_ptr<FileBytes> FileBytes::borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  std::shared_ptr<FileBytes> file(new FileBytes());
  file->bytes_ = bytes;
  file->owner_ = std::move(owner);
  return file;
}

std::shared_ptr<FileBytes> FileBytes::from_buffer(Buffer buffer) {
  std::shared_ptr<FileBytes> file(new FileBytes());
  file->buffer_ = std::move(buffer);
  file->bytes_ = file->buffer_.span();
  return file;
}

void FileBytes::release(std::span<const std::byte> part) const {
  const auto base = reinterpret_cast<uintptr_t>(bytes_.data()), first = reinterpret_cast<uintptr_t>(part.data());
  if (!mapped_ || first < base || first + part.size() > base + bytes_.size()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (first + page - 1) / page * page, end = (first + part.size()) / page * page;
  // The mapping is read-only: its pages are the file's, and come back as they were.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace pteron
