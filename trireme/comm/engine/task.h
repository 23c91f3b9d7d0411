// Task: a coroutine that the engine resumes until it ends. The algorithms of the collectives are
// tasks: they read like blocking code, yet any number of them advance on one thread.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory_resource>
#include <utility>

namespace trireme::comm {

class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> parent = std::noop_coroutine();
    std::exception_ptr error;

    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().parent;
      }
      void await_resume() noexcept {}
    };
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void unhandled_exception() { error = std::current_exception(); }
    void return_void() {}

    // The frame of a coroutine lies in the pool of the operation that it works for, its first
    // argument; the pool's address follows it.
    template <class Group, class Operation, class... Arguments>
    static void* operator new(size_t bytes, const Group&, const Operation& operation, const Arguments&...) {
      std::pmr::memory_resource* const pool = operation.pool();
      auto* const frame = static_cast<std::byte*>(pool->allocate(with_pool(bytes)));
      new (frame + with_pool(bytes) - sizeof(pool)) std::pmr::memory_resource*(pool);
      return frame;
    }
    static void operator delete(void* frame, size_t bytes) {
      auto* const end = static_cast<std::byte*>(frame) + with_pool(bytes);
      auto* const pool = *reinterpret_cast<std::pmr::memory_resource**>(end - sizeof(void*));
      pool->deallocate(frame, with_pool(bytes));
    }

   private:
    static constexpr size_t with_pool(size_t bytes) {
      return (bytes + 2 * sizeof(void*) - 1) / sizeof(void*) * sizeof(void*);
    }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  std::coroutine_handle<> handle() const { return handle_; }
  bool done() const { return handle_.done(); }
  std::exception_ptr error() const { return handle_.promise().error; }

  // `co_await task` runs it to its end inside the task that awaits, and rethrows its error.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
    handle_.promise().parent = parent;
    return handle_;
  }
  void await_resume() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace trireme::comm
