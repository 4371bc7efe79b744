// PhaseClock: time and memory of the phases of a compilation, for the report.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <string>
#include <string_view>

#include "compiler/compile.h"

namespace pteron::compiler {

class PhaseClock {
 public:
  /// What has passed since the last lap, or since the clock was made.
  PhaseReport lap(std::string_view name) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    begin_ = now;
    return {std::string(name), seconds, static_cast<uint64_t>(usage.ru_maxrss) * 1024};
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace pteron::compiler
