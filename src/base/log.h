// LogSink: where the library's messages go. The library never writes to stdout or stderr itself.
#pragma once

#include <cstdint>
#include <string_view>

namespace pteron {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kTrace };

/// Receives messages; given through options, never global.
/// Threads: log() may be called from several threads at once.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void log(LogLevel level, std::string_view message) = 0;
};

}  // namespace pteron
