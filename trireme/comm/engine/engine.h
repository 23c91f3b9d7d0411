// Engine: runs the operations of one rank. An operation is advanced by whichever thread is free:
// the one in `wait`, or the background thread while nobody waits. Collectives of one group run in
// the order they were started; everything else advances side by side, so that the order of waiting
// cannot cause a deadlock.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/comm/engine/block_pool.h"
#include "trireme/comm/engine/operation.h"

namespace trireme::comm {

// What ranks tell each other for their errors.
struct Whereabouts {
  std::string host;
  std::string log;
};

struct EngineOptions {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds deadline{300'000};
  bool background = true;
  bool crowded = false;  // more ranks than cores on this host: sleep rather than spin
  std::function<void(std::string_view what)> on_wait = {};  // as in WorldOptions, as is watch
  std::shared_ptr<Watch> watch = {};
  std::vector<Whereabouts> peers = {};  // by world rank; empty: not known
  std::vector<int> hosts = {};          // by world rank: the lowest rank on the same host; empty: not known
  std::function<std::chrono::microseconds()> rest = {};  // as in WorldOptions
};

class Engine final : public Driver {
 public:
  Engine(const EngineOptions& options, std::unique_ptr<Transport> transport);
  ~Engine();  // tells the peers that this rank leaves; never hangs

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  const EngineOptions& options() const { return options_; }
  Transport& transport() const { return *transport_; }
  BlockPool& pool() const override { return *pool_; }

  Work start(const std::shared_ptr<Operation>& operation);
  void wait(Operation& operation) override;
  bool has_messages(const Group& group);     // whether one that was started on it has not ended
  bool done(Operation& operation) override;  // makes some progress when no thread does it in the background

  // Breaks the world from any thread: every operation ends with a kComm error that gives this
  // reason.
  void abort(std::string reason);
  std::vector<World::Traffic> traffic() const;
  void count(std::string_view kind, int64_t bytes);
  std::string name_of(int peer) const override;

 private:
  struct Cause {
    ErrorKind kind = ErrorKind::kComm;
    std::string reason;
  };
  enum class Peer : uint8_t { kHere, kLeft, kGaveUp, kLost };
  // What a rank tells all others when it ends: it leaves in good order, or gives up, and why.
  struct Notice {
    uint32_t gave_up = 0;
    uint64_t messages = 0;  // that it sent before this one, which may overtake them
    char reason[496] = {};
  };

  bool pass();  // one round over everything pending; true if something moved
  void take_inbox();
  bool step(Operation& operation);
  bool is_held_back(const Operation& message) const;
  bool rests(Operation& operation);
  void finish(Operation& operation, std::exception_ptr error);
  void break_world(Cause cause, Operation* culprit);
  std::exception_ptr error_of(const Operation& operation, const Cause& cause) const;

  void post_notices();
  void read_notices();
  void tell_peers(bool gave_up, const std::string& reason);
  void tell(std::vector<Notice>& notices, std::vector<Transfer>& transfers, bool gave_up, const std::string& reason);
  void mark_lost();
  bool owes_nothing(int peer, Clock::time_point now);
  void check();  // deadlines, lost peers, long waits
  void tell_of_wait(Clock::time_point now);
  std::string missing_text(const Operation& operation);
  std::optional<Cause> trouble_of(const Operation& operation);
  std::string log_of(int peer) const;

  void run_background();
  std::chrono::microseconds doze(std::chrono::microseconds nap);
  void idle(int& quiet_passes);
  void leave();

  EngineOptions options_;
  // A Work of the caller may keep its operation beyond the engine's end.
  std::unique_ptr<BlockPool, RetirePool> pool_{new BlockPool};
  std::unique_ptr<Transport> transport_;

  std::mutex drive_;  // held by the thread that makes progress; guards all of the following block
  std::vector<std::shared_ptr<Operation>> active_;
  std::vector<Peer> peers_;
  std::vector<std::string> peer_reasons_;
  std::vector<Clock::time_point> told_at_;  // by peer: when its notice came
  std::vector<Notice> notices_;
  std::vector<Transfer> notice_transfers_;
  std::vector<int> missing_;  // of the operation that is checked
  Clock::time_point next_check_;
  Clock::time_point next_telling_;
  int passes_ = 0;

  mutable std::mutex inbox_mutex_;  // guards the following block
  std::vector<std::shared_ptr<Operation>> inbox_;
  std::optional<Cause> broken_;
  std::string abort_reason_;
  std::condition_variable finished_;  // some operation has finished
  std::condition_variable called_;    // there is work for the background thread
  std::map<std::string, World::Traffic, std::less<>> traffic_;

  std::atomic<bool> inbox_filled_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<int> waiters_{0};
  std::mutex telling_;  // held in calls of on_wait, and where what they told changes
  std::atomic<bool> told_of_wait_{false};
  std::atomic<int> pending_{0};
  std::atomic<bool> asleep_{false};   // the background thread sleeps until it is called
  std::atomic<bool> resting_{false};  // the driving thread may be asleep in the transport
  std::atomic<bool> stop_{false};
  std::thread background_;
  std::thread watching_;  // sleeps in the watch
};

}  // namespace trireme::comm
