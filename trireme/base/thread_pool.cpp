#include "trireme/base/thread_pool.h"

#include <utility>

#include "trireme/base/cores.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kSpins = 1000;
constexpr int64_t kMaxTasks = int64_t{1} << 31;

// Which thread of which pool the current one is while it runs that pool's tasks.
struct Position {
  const void* pool = nullptr;
  int thread = 0;
};
thread_local Position position;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint32_t job_of(uint64_t ticket) {
  return static_cast<uint32_t>(ticket >> 32);
}

}  // namespace

ThreadPool::ThreadPool(int threads, int spins) {
  require(threads >= 1 && threads <= 4096, "thread pool: {} threads; it needs 1 to 4096", threads);
  spins_ = spins;
  if (spins == kDefaultSpins) {
    spins_ = static_cast<size_t>(threads) <= allowed_cores().size() ? kSpins : 0;
  }
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_workers_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t, int)> fn) {
  if (tasks <= 0) return;
  if (position.pool == this) return run_inline(tasks, position.thread, fn);
  if (workers_.empty() || tasks == 1) return run_inline(tasks, 0, fn);
  invariant(tasks < kMaxTasks, "thread pool: {} tasks in one call", tasks);
  invariant(!running_.exchange(true), "thread pool: two threads call run at once");
  const uint32_t changing = job_of(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(uint64_t{changing} << 32);
  fn_ = &fn;
  done_.store(0, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_release);
  publish(changing + 1);
  const Position outer = std::exchange(position, {this, 0});
  while (run_one(changing + 1, 0)) {
  }
  position = outer;
  wait_until_done(tasks);
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    std::swap(error, error_);
  }
  running_ = false;
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run_inline(int64_t tasks, int thread, FunctionRef<void(int64_t, int)> fn) {
  std::exception_ptr error;
  for (int64_t task = 0; task < tasks; ++task) {
    try {
      fn(task, thread);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void ThreadPool::publish(uint32_t job) {
  ticket_.store(uint64_t{job} << 32);
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  wake_workers_.notify_all();
}

// Claims and runs the next task of `job`; false when there is none left. While a claimed task is
// not done the job cannot end, so its fields may be read without further care.
bool ThreadPool::run_one(uint32_t job, int thread) {
  uint64_t ticket = ticket_.load();
  for (;;) {
    if (job_of(ticket) != job) return false;
    const auto task = static_cast<int64_t>(ticket & 0xffffffffU);
    if (task >= tasks_.load(std::memory_order_acquire)) return false;
    if (ticket_.compare_exchange_weak(ticket, ticket + 1)) {
      run_task(task, thread);
      return true;
    }
  }
}

void ThreadPool::run_task(int64_t task, int thread) {
  const int64_t tasks = tasks_.load(std::memory_order_relaxed);
  try {
    (*fn_)(task, thread);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_ || task < error_task_) {
      error_ = std::current_exception();
      error_task_ = task;
    }
  }
  if (done_.fetch_add(1) + 1 < tasks) return;
  if (!caller_sleeps_.load()) return;
  { const std::lock_guard lock(mutex_); }
  wake_caller_.notify_one();
}

void ThreadPool::wait_until_done(int64_t tasks) {
  for (int i = 0; i < spins_; ++i) {
    if (done_.load(std::memory_order_acquire) == tasks) return;
    pause();
  }
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  wake_caller_.wait(lock, [&] { return done_.load() == tasks; });
  caller_sleeps_ = false;
}

void ThreadPool::work(int thread) {
  position = {this, thread};
  uint32_t seen = 0;
  // Even numbers are jobs; a job is news once.
  const auto has_news = [&] {
    const uint32_t job = job_of(ticket_.load());
    return job != seen && job % 2 == 0;
  };
  for (;;) {
    for (int i = 0; i < spins_ && !has_news(); ++i) pause();
    if (!has_news()) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_workers_.wait(lock, [&] { return stop_.load() || has_news(); });
      --sleepers_;
    }
    if (stop_) return;
    const uint32_t job = job_of(ticket_.load());
    if (job % 2 != 0) continue;
    seen = job;
    while (run_one(job, thread)) {
    }
  }
}

}  // namespace trireme
