#include "threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace focalcal {
namespace {

using Clock = std::chrono::steady_clock;

// One call of parallel_for.
struct Job {
  std::ptrdiff_t count;
  const std::function<void(std::ptrdiff_t)> *task;
  std::atomic<std::ptrdiff_t> next{0};
  std::atomic<bool> stopped{false};
  int wanted;       // further threads that may join, guarded by the pool's mutex
  int working = 0;  // threads that have joined and not finished, guarded by the pool's mutex

  void work() {
    for (std::ptrdiff_t i; !stopped.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) (*task)(i);
  }
};

// Threads that sleep between jobs. Several callers may have a job each; idle threads join the oldest one.
class Pool {
public:
  void run(Job &job, const std::function<bool()> &keep_going) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      while (static_cast<int>(threads_) < job.wanted) {
        std::thread([this] { serve(); }).detach();
        ++threads_;
      }
      jobs_.push_back(&job);
      offered_.fetch_add(1, std::memory_order_release);
    }
    for (int i = 0; i < job.wanted; ++i) wake_.notify_one();
    auto asked = Clock::now();
    for (std::ptrdiff_t i; !job.stopped && (i = job.next.fetch_add(1)) < job.count;) {
      (*job.task)(i);
      if (Clock::now() - asked > std::chrono::milliseconds(100)) {
        if (!keep_going()) job.stopped = true;
        asked = Clock::now();
      }
    }
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto held = jobs_.begin(); held != jobs_.end(); ++held)
      if (*held == &job) {
        jobs_.erase(held);
        break;
      }
    done_.wait(lock, [&] { return job.working == 0; });
  }

private:
  [[noreturn]] void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      Job *job = nullptr;
      wake_.wait(lock, [&] {
        for (Job *held : jobs_)
          if (held->wanted > 0) {
            job = held;
            return true;
          }
        return false;
      });
      --job->wanted;
      ++job->working;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->working == 0) done_.notify_all();
      // A sleeping thread takes as long to wake as a small call does. Calls come in bursts, so look for the next a while.
      const long known = offered_.load(std::memory_order_acquire);
      lock.unlock();
      const auto until = Clock::now() + awake;
      while (offered_.load(std::memory_order_acquire) == known && Clock::now() < until) std::this_thread::yield();
      lock.lock();
    }
  }

  static constexpr auto awake = std::chrono::microseconds(100);
  std::atomic<long> offered_{0};  // how many jobs there have been
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::vector<Job *> jobs_;
  std::size_t threads_ = 0;
};

// A forked child has none of its parent's threads: it starts with a pool of its own. The old one is left as it is,
// because its mutex may be held by a thread that does not exist any more.
std::atomic<Pool *> pool{nullptr};

Pool &current_pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    pool = new Pool;
#if !defined(_WIN32)
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
#endif
  });
  return *pool;
}

}  // namespace

bool parallel_for(std::ptrdiff_t count, int threads, const std::function<void(std::ptrdiff_t)> &task,
                  const std::function<bool()> &keep_going) {
  if (count <= 1 || threads <= 1) {
    auto asked = Clock::now();
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      task(i);
      if (i + 1 < count && Clock::now() - asked > std::chrono::milliseconds(100)) {
        if (!keep_going()) return false;
        asked = Clock::now();
      }
    }
    return true;
  }
  Job job;
  job.count = count;
  job.task = &task;
  job.wanted = static_cast<int>(count < threads ? count : threads) - 1;
  current_pool().run(job, keep_going);
  return !job.stopped;
}

}  // namespace focalcal
