// The top of the runtime: Program::load with the portable kernels as default. The only place that knows both runtime and kernels.
#include <span>
#include <string>
#include <utility>

#include "ops/kernels.h"
#include "pteron/program.h"
#include "pteron/version.h"
#include "runtime/state.h"

namespace pteron {

const char* version() { return PTERON_VERSION_TEXT; }

namespace {

Result<std::shared_ptr<Program>> load_with_defaults(std::shared_ptr<FileBytes> file, std::span<const std::byte> bytes, std::string label,
                                                    LoadOptions options) {
  if (options.kernels == nullptr) options.kernels = &ops::portable_kernels();
  return runtime::load_program(std::move(file), bytes, std::move(label), options);
}

}  // namespace

Result<std::shared_ptr<Program>> Program::load(const std::string& path, const LoadOptions& options) {
  PTERON_ASSIGN(auto file, options.map ? FileBytes::map(path) : FileBytes::read(path));
  const std::span<const std::byte> bytes = file->bytes();
  return load_with_defaults(std::move(file), bytes, path, options);
}

Result<std::shared_ptr<Program>> Program::load(std::span<const std::byte> bytes, const LoadOptions& options) {
  return load_with_defaults(nullptr, bytes, "program in memory", options);
}

Result<std::shared_ptr<Program>> Program::load_fd(int fd, const LoadOptions& options) {
  PTERON_ASSIGN(auto file, FileBytes::map_fd(fd));
  const std::span<const std::byte> bytes = file->bytes();
  return load_with_defaults(std::move(file), bytes, "program from a file descriptor", options);
}

}  // namespace pteron
