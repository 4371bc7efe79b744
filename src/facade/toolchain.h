// What a compilation needs, put together: the one place below the tool that knows catalog, kernels, evaluator and backends at once.
// Used by compile.cpp (the public API) and by the command line tool.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/api/backend.h"
#include "base/byte_sink.h"
#include "base/file_writer.h"
#include "base/op_library.h"
#include "base/thread_pool.h"
#include "compiler/compile.h"
#include "interp/evaluator.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::facade {

/// Catalog and environment of a compilation with everything this build has.
/// Threads: immutable after create().
class Toolchain {
 public:
  /// `libraries`: shared libraries with users' own operators. threads: for constant folding; <= 0: all CPUs of the process.
  /// Errors: those of OpLibrary::open and compiler::add_user_ops.
  static Result<Toolchain> create(const std::vector<std::string>& libraries = {}, int threads = 0);
  const ir::Catalog& catalog() const { return *catalog_; }
  const compiler::Environment& environment() const { return environment_; }
  /// Backends by name, in that order; "portable" is none.
  /// Errors: kUnsupported (a name that does not exist, with those that do), kInvalidInput (a name twice).
  Result<std::vector<const backends::Backend*>> backends(const std::vector<std::string>& names) const;

 private:
  std::vector<std::shared_ptr<const OpLibrary>> libraries_;  // shared: with the environment
  std::unique_ptr<ir::Catalog> catalog_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<interp::Evaluator> evaluator_;
  std::vector<std::unique_ptr<backends::Backend>> backends_;
  compiler::Environment environment_;
};

/// What a program is compiled for if its user names no backend: the CPU engine, or nothing where the official runtime loads the file.
std::vector<std::string> default_backends(compiler::Profile profile);

/// Takes the devices off names of backends ("cuda:1" becomes "cuda") and makes compile specs of them.
void split_devices(std::vector<std::string>& backends, std::vector<compiler::BackendSpec>& specs);

/// A FileWriter that is created at the first byte, so that a failed compilation touches nothing.
class LazyFile final : public ByteSink {
 public:
  explicit LazyFile(std::string path) : path_(std::move(path)) {}
  Status reserve(uint64_t total_bytes) override;
  Status write(std::span<const std::byte> bytes) override;
  Status commit(bool sync);
  uint64_t size() const { return size_; }

 private:
  Status open();
  std::string path_;
  std::unique_ptr<FileWriter> writer_;
  uint64_t size_ = 0;
};

/// True if both paths name one existing file, or are the same text.
bool same_file(const std::string& a, const std::string& b);

/// Nothing if `bytes` may be an alignment of planned buffers and weights. Errors: kInvalidInput.
Status check_alignment(uint64_t bytes);

}  // namespace pteron::facade
