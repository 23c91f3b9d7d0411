// Operation: what a Work stands for. A coroutine, what it waits for, and the text of its errors.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/comm/engine/block_pool.h"
#include "trireme/comm/engine/task.h"
#include "trireme/comm/engine/transport.h"

namespace trireme::comm {

using Clock = std::chrono::steady_clock;

// What an operation asks of the engine that runs it.
class Driver {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name_of(int peer) const = 0;  // "rank 1 (pid 1234 at host2)"
  virtual BlockPool& pool() const = 0;              // of the operations and their coroutines
  virtual void wait(Work::State& operation) = 0;
  virtual bool done(Work::State& operation) = 0;

 protected:
  ~Driver() = default;
};

// Collectives of a group run one after the other, in the order of their turns.
class Turns {
 public:
  uint64_t take() { return taken_++; }
  bool is_turn_of(uint64_t turn) const { return turn == ended_; }
  void end() { ++ended_; }

 private:
  uint64_t taken_ = 0;  // guarded by the engine's inbox
  uint64_t ended_ = 0;  // guarded by the driving thread
};

// What a suspended operation waits for.
class Waiting {
 public:
  virtual bool ready() const = 0;
  virtual void add_missing(std::vector<int>& world_ranks) const = 0;  // those it waits for
  virtual int64_t bytes_here() const { return 0; }                    // that have come and are not yet counted as done

 protected:
  ~Waiting() = default;
};

struct Work::State {
  Driver* engine = nullptr;
  const Group* group = nullptr;
  Turns* turns = nullptr;  // the group's
  std::string_view kind;   // "all_reduce"
  int64_t bytes = -1;      // -1: the operation moves none
  DType dtype = DType::kF32;
  int peer = -1;  // group rank, of send and recv
  int tag = 0;
  bool ordered = true;  // a collective: waits for the earlier ones of its group
  uint64_t turn = 0;    // its place among them
  Clock::time_point start;
  Clock::time_point went_on;  // when it began, or another part of it did
  Clock::time_point end;      // set before `finished`
  int64_t done_bytes = 0;     // received, copied or reduced so far
  int64_t all_bytes = -1;     // that are to be; -1: not known before it begins

  Task task;
  std::coroutine_handle<> resume_at;
  const Waiting* waiting = nullptr;
  bool begun = false;
  Clock::time_point rests_until;  // before its next part, where it rests (WorldOptions::rest)
  bool has_rest = false;

  std::atomic<bool> finished{false};
  std::exception_ptr error;  // set before `finished`

  std::pmr::memory_resource* pool() const;  // of the frames of its coroutines: the engine's
};

using Operation = Work::State;

// `co_await until(operation, ready, add_missing)`: suspends the operation until ready() holds.
template <class Ready, class Missing>
class Until final : public Waiting {
 public:
  Until(Operation& operation, Ready is_ready, Missing missing)
      : operation_(operation), ready_(std::move(is_ready)), missing_(std::move(missing)) {}

  bool ready() const override { return ready_(); }
  void add_missing(std::vector<int>& world_ranks) const override { missing_(world_ranks); }

  bool await_ready() const { return ready_(); }
  void await_suspend(std::coroutine_handle<> at) {
    operation_.resume_at = at;
    operation_.waiting = this;
  }
  void await_resume() const {}

 private:
  Operation& operation_;
  Ready ready_;
  Missing missing_;
};

// `co_await arrivals(operation, transfers)`: until all transfers are done; throws if one failed.
class Arrivals final : public Waiting {
 public:
  Arrivals(Operation& operation, std::span<Transfer> transfers) : operation_(operation), transfers_(transfers) {}

  bool ready() const override;
  void add_missing(std::vector<int>& world_ranks) const override;
  int64_t bytes_here() const override;

  bool await_ready() const { return ready(); }
  void await_suspend(std::coroutine_handle<> at) {
    operation_.resume_at = at;
    operation_.waiting = this;
  }
  void await_resume() const;

 private:
  Operation& operation_;
  std::span<Transfer> transfers_;
};

inline Arrivals arrivals(Operation& operation, std::span<Transfer> transfers) {
  return {operation, transfers};
}

// `co_await let_others_run(operation)`: gives way to the other operations once.
class LetOthersRun final : public Waiting {
 public:
  explicit LetOthersRun(Operation& operation) : operation_(operation) {}
  bool ready() const override { return true; }
  void add_missing(std::vector<int>&) const override {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> at) {
    operation_.resume_at = at;
    operation_.waiting = this;
  }
  void await_resume() const {}

 private:
  Operation& operation_;
};

inline LetOthersRun let_others_run(Operation& operation) {
  return LetOthersRun(operation);
}

// "[rank 3 of 8] all_reduce (group world, 1.20 MiB f32)": the head of every error of an operation.
std::string describe(const Operation& operation);
// ", 410 KiB of 1.20 MiB done", or "" for one that moves nothing.
std::string done_text(const Operation& operation);
std::string seconds_since(Clock::time_point start);  // "1.9 s"

}  // namespace trireme::comm
