// What the verbs share: the catalog and kernels of this build, the log to stderr, output files, small parsers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/api/backend.h"
#include "base/byte_sink.h"
#include "base/file_writer.h"
#include "base/log.h"
#include "base/op_library.h"
#include "base/thread_pool.h"
#include "compiler/compile.h"
#include "interp/evaluator.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Catalog and environment of a compilation with everything this build has.
class Session {
 public:
  /// `libraries`: shared libraries with users' own operators.
  static Result<Session> create(const std::vector<std::string>& libraries = {});
  const ir::Catalog& catalog() const { return *catalog_; }
  const compiler::Environment& environment() const { return environment_; }
  /// Backends by name, in that order; "portable" is none.
  /// Errors: kUnsupported (a name that does not exist, with those that do), kInvalidInput (a name twice).
  Result<std::vector<const backends::Backend*>> backends(const std::vector<std::string>& names) const;

 private:
  std::vector<std::shared_ptr<const OpLibrary>> libraries_;
  std::unique_ptr<ir::Catalog> catalog_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<interp::Evaluator> evaluator_;
  std::vector<std::unique_ptr<backends::Backend>> backends_;
  compiler::Environment environment_;
};

/// Prints messages up to a level to stderr.
class StderrLog final : public LogSink {
 public:
  explicit StderrLog(LogLevel level) : level_(level) {}
  void log(LogLevel level, std::string_view message) override;

 private:
  LogLevel level_;
};

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

/// Prints a line about wrong usage of a verb to stderr; gives the exit code 2.
int usage_error(std::string_view verb, std::string_view text);
/// "a,b" and "c" to a, b, c.
std::vector<std::string> split_list(const std::vector<std::string>& values);
/// A non-negative decimal number. Errors: kInvalidInput naming the option.
Result<uint64_t> parse_number(std::string_view text, std::string_view option);
/// A decimal number from 0 on. Errors: kInvalidInput naming the option.
Result<double> parse_real(std::string_view text, std::string_view option);
/// True if both paths name one existing file, or are the same text.
bool same_file(const std::string& a, const std::string& b);

}  // namespace pteron::cli
