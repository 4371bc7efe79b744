// Services that an embedding program may bring: where messages go and which threads do the work. Implemented by the caller, or taken
// from the library's defaults; passed in through options, never global.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace pteron {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kTrace };

/// Receives messages; the library itself never writes to stdout or stderr.
/// Threads: log() may be called from several threads at once.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void log(LogLevel level, std::string_view message) = 0;
};

/// Runs parts of a loop on several threads.
/// Threads: parallel_for may be called from several threads at once; calls from inside a part run on the calling thread.
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;
  /// Threads that can work at once, the caller included; at least 1.
  virtual int thread_count() const = 0;
  /// Calls part(begin, end) so that [0, count) is covered exactly once; returns when all parts are done.
  /// grain: smallest number of items worth a part of its own (>= 1).
  virtual void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) = 0;
};

/// Number of CPUs that this process may use (its CPU set, not the machine's); at least 1.
int usable_cpu_count();

/// The default pool: `threads` - 1 workers that look for the next loop for 0.2 ms and then sleep; threads <= 0 takes usable_cpu_count(). Never more than that count.
std::unique_ptr<ThreadPool> make_thread_pool(int threads);

/// A pool that runs everything on the calling thread.
ThreadPool& serial_pool();

}  // namespace pteron
