// The default thread pool: workers that look for work a while before they sleep, one job at a time, parts handed out by an atomic counter.
#include "base/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace pteron {

namespace {

// True on a thread that is running a part, so that nested loops stay on it.
thread_local bool inside_part = false;

/// The items of one thread, which others may take once they are done with their own.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

/// One parallel_for call. Thread t begins with the t-th part of the items, in every loop: what it wrote in the last one lies in its caches.
struct Job {
  const std::function<void(int64_t, int64_t)>& part;
  int64_t step;
  std::span<Share> shares;
};

void run_parts(Job& job, size_t thread) {
  inside_part = true;
  for (size_t i = 0; i < job.shares.size(); ++i) {
    Share& share = job.shares[(thread + i) % job.shares.size()];
    for (;;) {
      const int64_t begin = share.next.fetch_add(job.step, std::memory_order_relaxed);
      if (begin >= share.end) break;
      job.part(begin, std::min(begin + job.step, share.end));
    }
  }
  inside_part = false;
}

/// How long a thread looks for what it waits for before it sleeps: longer than what lies between two loops of a model, far shorter than a call that
/// its user would notice. Waking a sleeper costs tens of microseconds, on virtual machines more.
constexpr std::chrono::microseconds kLookFor{200};
/// Pauses before the processor is offered to other threads.
constexpr int kPausesAlone = 500;
/// A look at the clock that comes so late says that others wanted the processor: then looking takes it away from them.
constexpr std::chrono::microseconds kLate{100};
/// Waits in which nobody looks after that.
constexpr int kCrowdedWaits = 200;

/// Waits for things that come soon.
/// Threads: several at once.
class Lookout {
 public:
  /// Waits a while for `ready`; false if it did not come.
  template <typename Ready>
  bool look_for(Ready&& ready) {
    for (int i = 0; i < kPausesAlone; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
    if (crowded_.load(std::memory_order_relaxed) > 0) {
      crowded_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    auto now = std::chrono::steady_clock::now();
    for (const auto end = now + kLookFor; !ready();) {
      for (int i = 0; i < 32 && !ready(); ++i) _mm_pause();
      sched_yield();  // returns at once where nobody else wants the processor
      const auto before = std::exchange(now, std::chrono::steady_clock::now());
      if (now - before > kLate) crowded_.store(kCrowdedWaits, std::memory_order_relaxed);
      if (now > end) return ready();
    }
    return true;
  }

 private:
  std::atomic<int> crowded_{0};
};

/// A loop is posted by setting job_ and then epoch_; a worker that sees a new epoch counts itself in active_ before it reads job_, and the caller
/// clears job_ before it reads active_: so no worker touches a job whose caller has gone. These four are sequentially consistent.
class Pool final : public ThreadPool {
 public:
  explicit Pool(int threads) {
    workers_.resize(static_cast<size_t>(threads - 1));
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      worker.pool = this;
      worker.index = i + 1;
      // Not std::thread: it throws where the system has no room for one more thread. Fewer workers do.
      if (pthread_create(&worker.thread, nullptr, &start_worker, &worker) != 0) break;
      ++started_;
    }
    shares_ = std::vector<Share>(started_ + 1);
  }

  ~Pool() override {
    stop_.store(true);
    post();
    for (size_t i = 0; i < started_; ++i) pthread_join(workers_[i].thread, nullptr);
  }

  int thread_count() const override { return static_cast<int>(started_) + 1; }

  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) override {
    if (count <= 0) return;
    const int64_t threads = thread_count();
    if (threads == 1 || inside_part || count <= grain || !turn_.try_lock()) {
      part(0, count);
      return;
    }
    const std::lock_guard turn(turn_, std::adopt_lock);
    for (int64_t t = 0; t < threads; ++t) {
      Share& share = shares_[static_cast<size_t>(t)];
      share.next.store(count / threads * t + std::min(t, count % threads), std::memory_order_relaxed);
      share.end = count / threads * (t + 1) + std::min(t + 1, count % threads);
    }
    Job job{part, std::max(grain, (count + threads * 4 - 1) / (threads * 4)), shares_};
    job_.store(&job);
    post();
    run_parts(job, 0);
    job_.store(nullptr);
    if (lookout_.look_for([this] { return active_.load() == 0; })) return;
    for (int busy = active_.load(); busy != 0; busy = active_.load()) active_.wait(busy);
  }

 private:
  struct Worker {
    Pool* pool = nullptr;
    size_t index = 0;  ///< from 1; the caller of a loop is 0
    pthread_t thread = {};
  };

  static void* start_worker(void* argument) {
    const Worker& worker = *static_cast<Worker*>(argument);
    worker.pool->work(worker.index);
    return nullptr;
  }

  /// Shows all workers that there is something new.
  void post() {
    epoch_.fetch_add(1);
    if (sleeping_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }  // a worker between its last look and its sleep
    wake_.notify_all();
  }

  void work(size_t index) {
    for (uint64_t seen = 0;;) {
      const auto is_new = [&] { return epoch_.load() != seen; };
      if (!lookout_.look_for(is_new)) {
        std::unique_lock lock(mutex_);
        sleeping_.fetch_add(1);
        wake_.wait(lock, is_new);
        sleeping_.fetch_sub(1);
      }
      seen = epoch_.load();
      if (stop_.load()) return;
      active_.fetch_add(1);
      if (Job* job = job_.load()) run_parts(*job, index);
      if (active_.fetch_sub(1) == 1) active_.notify_one();
    }
  }

  Lookout lookout_;
  std::mutex turn_;   // one loop at a time; a second caller runs its loop alone
  std::mutex mutex_;  // of wake_
  std::condition_variable wake_;
  std::atomic<Job*> job_{nullptr};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint64_t> epoch_{0};
  std::atomic<int> sleeping_{0};
  alignas(64) std::atomic<int> active_{0};  // workers that may hold job_
  std::vector<Share> shares_;               // one a thread; written by the caller while active_ is 0
  std::vector<Worker> workers_;
  size_t started_ = 0;                      // of workers_
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
