// WorkQueue: a thread that does one piece of work after the other, beside the thread that queues and numbers them. Its
// owner, a lane of a plan, says what a piece of work is.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

template <class Work>
class WorkQueue {
 public:
  // `do_one` is called on the queue's thread.
  explicit WorkQueue(std::function<void(const Work&)> do_one) : do_one_(std::move(do_one)) {
    thread_ = std::thread([this] { run(); });
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // What is not begun by then is left out.
  ~WorkQueue() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // So many works may be put in before the first of them is waited for; put() takes no memory then.
  void reserve(size_t works) {
    const std::lock_guard lock(mutex_);
    invariant(put_ == done_, "room for works is made while some are under way");
    ring_.resize(std::max(ring_.size(), works));
  }

  // Returns its number. The work, and what it names, stays until it has been waited for. Throws as wait().
  uint64_t put(const Work& work) {
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      invariant(put_ - done_ < ring_.size(), "{} works are under way, and there is room for {}", put_ - done_,
                ring_.size());
      ring_[put_ % ring_.size()] = &work;
      number = ++put_;
    }
    changed_.notify_all();
    return number;
  }

  // On the queue's thread, while a work is done: the one that comes after it, or null where none has been put in. It
  // may be begun, and is done when its turn comes.
  const Work* following() {
    const std::lock_guard lock(mutex_);
    return put_ - done_ > 1 && !ends_ ? ring_[(done_ + 1) % ring_.size()] : nullptr;
  }

  // Returns when it has ended. Throws what went wrong in it or in one before, after which none is begun any more.
  void wait(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number || error_; });
    if (done_ < number) std::rethrow_exception(error_);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || (done_ < put_ && !error_); });
      if (ends_) return;
      const Work& next = *ring_[done_ % ring_.size()];
      lock.unlock();
      std::exception_ptr error;
      try {
        do_one_(next);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        error_ = error;
      } else {
        ++done_;
      }
      changed_.notify_all();
    }
  }

  std::function<void(const Work&)> do_one_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Work*> ring_;  // works done_ to put_ - 1, at their numbers modulo its size
  uint64_t put_ = 0, done_ = 0;
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme
