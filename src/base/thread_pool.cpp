// The default thread pool: sleeping workers, one job at a time, parts handed out by an atomic counter.
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace pteron {

namespace {

// True on a thread that is running a part, so that nested loops stay on it.
thread_local bool inside_part = false;

/// One parallel_for call that workers take parts from.
struct Job {
  const std::function<void(int64_t, int64_t)>* part;
  int64_t count;
  int64_t step;
  std::atomic<int64_t> next{0};
  int active = 0;  // workers inside run(); guarded by the pool's mutex
};

void run_parts(Job& job) {
  inside_part = true;
  for (;;) {
    const int64_t begin = job.next.fetch_add(job.step, std::memory_order_relaxed);
    if (begin >= job.count) break;
    (*job.part)(begin, std::min(begin + job.step, job.count));
  }
  inside_part = false;
}

class Pool final : public ThreadPool {
 public:
  explicit Pool(int threads) {
    workers_.reserve(static_cast<size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) {
      // Not std::thread: it throws where the system has no room for one more thread. Fewer workers do.
      pthread_t worker;
      if (pthread_create(&worker, nullptr, &start_worker, this) != 0) break;
      workers_.push_back(worker);
    }
  }

  ~Pool() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
  }

  int thread_count() const override { return static_cast<int>(workers_.size()) + 1; }

  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) override {
    if (count <= 0) return;
    const int64_t threads = thread_count();
    if (threads == 1 || inside_part || count <= grain || !turn_.try_lock()) {
      part(0, count);
      return;
    }
    const std::lock_guard turn(turn_, std::adopt_lock);
    Job job{&part, count, std::max(grain, (count + threads * 4 - 1) / (threads * 4))};
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
    }
    wake_.notify_all();
    run_parts(job);
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    done_.wait(lock, [&] { return job.active == 0; });
  }

 private:
  static void* start_worker(void* pool) {
    static_cast<Pool*>(pool)->work();
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || (job_ != nullptr && job_->next.load(std::memory_order_relaxed) < job_->count); });
      if (stop_) return;
      Job& job = *job_;
      ++job.active;
      lock.unlock();
      run_parts(job);
      lock.lock();
      if (--job.active == 0) done_.notify_all();
    }
  }

  std::mutex turn_;   // one loop at a time; a second caller runs its loop alone
  std::mutex mutex_;  // guards job_, stop_, Job::active
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  bool stop_ = false;
  std::vector<pthread_t> workers_;
};

class SerialPool final : public ThreadPool {
 public:
  int thread_count() const override { return 1; }
  void parallel_for(int64_t count, int64_t, const std::function<void(int64_t, int64_t)>& part) override {
    if (count > 0) part(0, count);
  }
};

}  // namespace

int usable_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&set));
}

std::unique_ptr<ThreadPool> make_thread_pool(int threads) {
  const int usable = usable_cpu_count();
  return std::make_unique<Pool>(threads <= 0 ? usable : std::min(threads, usable));
}

ThreadPool& serial_pool() {
  static SerialPool pool;
  return pool;
}

}  // namespace pteron
