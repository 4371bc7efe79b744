// Work beside the calling thread. Used by the import for checksums of weights.
#pragma once

#include <pthread.h>

#include <functional>

namespace pteron {

/// A function that runs on a thread of its own, or, where the process may use one CPU only or the system has no more threads, in wait().
/// Threads: wait() and the destructor are called by one thread at a time.
class Background {
 public:
  explicit Background(std::function<void()> work);
  ~Background() { wait(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  /// Returns when the work is done.
  void wait();

 private:
  static void* start(void* self);
  std::function<void()> work_;  ///< empty when done
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace pteron
