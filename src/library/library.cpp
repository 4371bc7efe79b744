// The top of the runtime: Program::load with the portable kernels, the CPU and CUDA engines and the TensorRT delegate as defaults. The only place that knows all of them.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "backends/cpu/runtime/backend.h"
#include "backends/cuda/runtime/backend.h"
#include "backends/tensorrt/runtime/backend.h"
#include "ops/kernels.h"
#include "pteron/program.h"
#include "pteron/version.h"
#include "runtime/state.h"

namespace pteron {

const char* version() { return PTERON_VERSION_TEXT; }

namespace {

Result<std::shared_ptr<Program>> load_with_defaults(std::shared_ptr<FileBytes> file, std::span<const std::byte> bytes, std::string label,
                                                    LoadOptions options, std::string path = {}) {
  if (options.kernels == nullptr) options.kernels = &ops::portable_kernels();
  for (const DelegateBackend* own : {&cpu::backend(), &cuda::backend(), &tensorrt::backend()}) {
    const bool has_own = std::ranges::any_of(options.delegates, [&](const DelegateBackend* d) { return d->id() == own->id(); });
    if (!has_own) options.delegates.push_back(own);
  }
  return runtime::load_program(std::move(file), bytes, std::move(label), options, std::move(path));
}

}  // namespace

Result<std::shared_ptr<Program>> Program::load(const std::string& path, const LoadOptions& options) {
  PTERON_ASSIGN(auto file, options.map ? FileBytes::map(path) : FileBytes::read(path));
  const std::span<const std::byte> bytes = file->bytes();
  return load_with_defaults(std::move(file), bytes, path, options, path);
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
