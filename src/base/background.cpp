// Background on POSIX threads: std::thread throws where the system has no room for one more.
#include "base/background.h"

#include <utility>

#include "base/thread_pool.h"

namespace pteron {

Background::Background(std::function<void()> work) : work_(std::move(work)) {
  running_ = usable_cpu_count() > 1 && pthread_create(&thread_, nullptr, &Background::start, this) == 0;
}

void* Background::start(void* self) {
  static_cast<Background*>(self)->work_();
  return nullptr;
}

void Background::wait() {
  if (running_) {
    pthread_join(thread_, nullptr);
  } else if (work_) {
    work_();
  }
  running_ = false;
  work_ = nullptr;
}

}  // namespace pteron
