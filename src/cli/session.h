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
#include "facade/toolchain.h"
#include "interp/evaluator.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Catalog and environment of a compilation with everything this build has.
using Session = facade::Toolchain;
using facade::LazyFile;
using facade::same_file;

/// Prints messages up to a level to stderr.
class StderrLog final : public LogSink {
 public:
  explicit StderrLog(LogLevel level) : level_(level) {}
  void log(LogLevel level, std::string_view message) override;

 private:
  LogLevel level_;
};

/// Prints a line about wrong usage of a verb to stderr; gives the exit code 2.
int usage_error(std::string_view verb, std::string_view text);
/// "a,b" and "c" to a, b, c.
std::vector<std::string> split_list(const std::vector<std::string>& values);

}  // namespace pteron::cli
