// Requests that threads of their own carry out one by one, with pread and pwrite.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/exec/disk/block_io.h"

namespace trireme {
namespace {

// First in, first out; room for all is made beforehand.
template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(size_t most) : items_(most) {}
  bool empty() const { return put_ == taken_; }
  void put(const T& item) { items_[put_++ % items_.size()] = item; }
  T take() { return items_[taken_++ % items_.size()]; }

 private:
  std::vector<T> items_;
  size_t put_ = 0, taken_ = 0;
};

class ThreadsIo : public BlockIo {
 public:
  ThreadsIo(int file, int most) : file_(file), begun_(static_cast<size_t>(most)), ended_(static_cast<size_t>(most)) {
    for (int i = 0; i < most; ++i) threads_.emplace_back([this] { work(); });
  }
  ThreadsIo(const ThreadsIo&) = delete;
  ThreadsIo& operator=(const ThreadsIo&) = delete;
  ~ThreadsIo() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "threads"; }

  void begin(const BlockRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      begun_.put(request);
    }
    has_work_.notify_one();
  }

  BlockEnd end() override {
    std::unique_lock lock(mutex_);
    has_ended_.wait(lock, [this] { return !ended_.empty(); });
    return ended_.take();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      has_work_.wait(lock, [this] { return ends_ || !begun_.empty(); });
      if (begun_.empty()) return;
      const BlockRequest request = begun_.take();
      lock.unlock();
      const ssize_t count = request.writes ? ::pwrite(file_, request.bytes.data(), request.bytes.size(), request.offset)
                                           : ::pread(file_, request.bytes.data(), request.bytes.size(), request.offset);
      const int64_t result = count < 0 ? -errno : count;
      lock.lock();
      ended_.put({request.tag, result});
      has_ended_.notify_one();
    }
  }

  int file_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_ended_;
  FixedQueue<BlockRequest> begun_;
  FixedQueue<BlockEnd> ended_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> io_by_threads(int file, int most) {
  return std::make_unique<ThreadsIo>(file, most);
}

}  // namespace trireme
