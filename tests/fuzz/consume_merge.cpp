// Merging with bytes from outside. Merging takes paths: the files lie in memory and are written anew for each call.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/str_cat.h"
#include "facade/merge.h"
#include "format/layout.h"
#include "format/sample_program.h"
#include "fuzz/consume.h"
#include "fuzz/seeds.h"

namespace pteron::fuzz {
namespace {

/// A file without a name in any folder, as long as the process lives.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("merge", 0)) { PTERON_CHECK(fd_ >= 0); }
  std::string path() const { return str_cat("/proc/self/fd/", fd_); }
  void write(std::span<const std::byte> bytes) const {
    PTERON_CHECK(ftruncate(fd_, 0) == 0 && pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int fd_;
};

/// A method of another name, so that nothing is refused because of names.
std::vector<std::byte> other_program() {
  format::ProgramSpec program = format::sample_add_program();
  program.plans[0].name = "other";
  MemorySink sink;
  PTERON_CHECK(format::write_program(program, {}, sink).ok());
  return {sink.bytes().begin(), sink.bytes().end()};
}

}  // namespace

bool consume_merge(std::span<const std::byte> bytes) {
  static const MemoryFile damaged, other, weighty;
  static const bool written = [] {
    other.write(other_program());
    weighty.write(program_with_weights());
    return true;
  }();
  damaged.write(bytes);
  facade::MergeOptions options;
  options.data_name = "merged";
  const bool is_data = bytes.size() >= 8 && std::string_view(reinterpret_cast<const char*>(bytes.data()) + 4, 4) == format::kDataIdentifier;
  options.programs = {is_data ? weighty.path() : damaged.path(), other.path()};
  if (is_data) options.data_files = {damaged.path()};
  const auto merged = facade::merge_programs(options);
  if (!written || !merged.ok()) return false;
  const compiler::FinishedProgram& finished = (*merged)->finished;
  MemorySink program, data;
  PTERON_CHECK(format::write_program(finished.program, {finished.alignment_bytes}, program).ok() && format::verify_program(program.bytes()).ok());
  if (!finished.data_name.empty()) {
    PTERON_CHECK(format::write_data_file(finished.data, {finished.alignment_bytes}, data).ok());
    const auto view = format::verify_data_file(data.bytes());
    PTERON_CHECK(view.ok() && format::check_manifest(*view, true).ok());
  }
  return true;
}

}  // namespace pteron::fuzz
