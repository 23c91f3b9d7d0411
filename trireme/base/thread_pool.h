// One pool of compute threads per rank. Work is a number of tasks; each task runs exactly once on
// any thread, so results may not depend on which, and callers cut work by its size alone, never by
// the number of threads: then the bits do not depend on it either. Idle threads spin for a moment,
// then sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace trireme {

template <class Signature>
class FunctionRef;

// A callable that lives at least as long as the call it is passed to; never allocates.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: written as a plain lambda at the call
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  // `threads` counts the calling thread: 1 means no threads of the pool's own. `spins` is how often
  // an idle thread looks for work before it sleeps; by default some 30 us, and none where threads
  // outnumber cores.
  explicit ThreadPool(int threads, int spins = kDefaultSpins);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs fn(task, thread) for 0 <= task < tasks, thread < size(); returns when all are done.
  // Rethrows the exception of the lowest task that threw, after every task has run. One caller at a
  // time; a call from inside a task runs on the task's thread.
  void run(int64_t tasks, FunctionRef<void(int64_t task, int thread)> fn);

  // Runs fn(begin, end) over [0, n) in chunks of `grain` (the last may be shorter).
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& fn) {
    run((n + grain - 1) / grain, [&](int64_t task, int) { fn(task * grain, std::min(n, (task + 1) * grain)); });
  }

  static constexpr int kDefaultSpins = -1;

 private:
  void work(int thread);
  bool run_one(uint32_t job, int thread);
  void run_inline(int64_t tasks, int thread, FunctionRef<void(int64_t, int)> fn);
  void publish(uint32_t job);
  void run_task(int64_t task, int thread);
  void wait_until_done(int64_t tasks);

  // The open job in the upper half and its next task in the lower. A job's number is even while its
  // fields may be read and odd while they change, so that a thread that comes late can claim
  // nothing.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int64_t> tasks_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> running_{false};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int64_t, int)>* fn_ = nullptr;

  std::mutex mutex_;
  std::condition_variable wake_workers_;
  std::condition_variable wake_caller_;
  std::exception_ptr error_;  // guarded by mutex_, as is the task it came from
  int64_t error_task_ = 0;
  int spins_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace trireme
