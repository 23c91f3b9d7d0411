// Communication between ranks: groups, the collectives on them, point to point.
//
// Every call starts an operation and returns a Work; `wait` ends it and rethrows its error. All
// members of a group start the same collectives in the same order. Several operations may be in
// flight. Views must stay valid until `wait` returns. After an error of a peer the world is broken:
// what is pending and what is started later fails with the same cause. A call with wrong arguments ends with an error
// and leaves the world as it was, and so do collectives that members call differently (on shm, where all of them can
// tell) and a message of another size than its receiver expects. Element-wise reductions run
// in a fixed tree over the ranks (reduce.h), so that all members get equal bits. Every error names the rank, the peer
// with its host and log, the operation, the group, the bytes and how many of them were transferred, and the elapsed
// time (kComm: a peer is gone; kTimeout: the deadline passed).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/store.h"
#include "trireme/tensor/view.h"

namespace trireme::comm {

enum class Reduce { kSum, kMax, kMin };

// The name, for the system, of the thread that makes progress while the caller computes.
inline constexpr const char* kProgressThread = "trireme-comm";

// An operation in flight. Cheap to copy; a default-constructed Work is done.
class Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const;  // without blocking; errors are kept for wait
  void wait();        // throws the operation's error; may run the operation on the calling thread
  // When it ended, once it is done; the clock's epoch where there was nothing to run.
  std::chrono::steady_clock::time_point ended() const;

 private:
  std::shared_ptr<State> state_;
};

// An ordered set of ranks that this rank belongs to. Ranks in the calls below are *group* ranks.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  virtual const std::vector<int>& world_ranks() const = 0;
  // A member's rank in the world, and back. Throw kInvalidArgument for a rank that is no member's.
  int world_rank_of(int group_rank) const;
  int group_rank_of(int world_rank) const;

  virtual Work all_reduce(View inout, Reduce op) = 0;
  virtual Work all_gather(View in, View out) = 0;  // out: size() pieces, in rank order
  virtual Work reduce_scatter(View in, View out,
                              Reduce op) = 0;      // in: size() pieces; out: the own one
  virtual Work all_to_all(View in, View out) = 0;  // size() equal pieces each
  // Around the group: out is the 'in' of the member `by` places before; -size() < by < size().
  virtual Work ring_shift(View in, View out, int by) = 0;
  virtual Work broadcast(View inout, int root) = 0;
  // Tags are in [0, 2^30). A message has the same number of bytes on both sides. Those of one tag to one peer arrive in
  // the order in which they were started.
  virtual Work send(View from, int peer, int tag) = 0;
  virtual Work recv(View to, int peer, int tag) = 0;
  virtual Work barrier() = 0;
};

inline constexpr double kLongWait_s = 1;

// Whoever watches over the ranks, and may know before this one that the job is over.
class Watch {
 public:
  virtual ~Watch() = default;
  // Sleeps until the job is over and says why; "" after release().
  virtual std::string wait() = 0;
  virtual void release() = 0;  // from any thread
};

struct WorldOptions {
  int rank = 0;
  int size = 1;
  std::string transport = "auto";                    // auto | threads | shm | ucx | mpi
  std::string job = "job";                           // separates the keys of jobs that share a store
  std::shared_ptr<Store> store;                      // may be null when size is 1 or with mpi
  std::chrono::milliseconds deadline{300'000};       // of one operation, from when it last went on
  std::chrono::milliseconds join_deadline{300'000};  // for all ranks to come
  bool background = true;                            // a thread that makes progress while the caller computes
  // Called now and then while a wait has lasted over kLongWait_s, with the operation and the ranks
  // it waits for, and with "" once that wait is over. One thread at a time; it must not block.
  std::function<void(std::string_view what)> on_wait = {};
  // Ends everything pending, and whatever is started later, as soon as it knows why. May be null.
  std::shared_ptr<Watch> watch = {};
  // For tests of what must not depend on time: asked before each part of an operation how long it rests first. One
  // thread at a time. May be null.
  std::function<std::chrono::microseconds()> rest = {};
  std::string log;   // where this rank's output goes, for the errors of others; may be empty
  std::string host;  // ranks that say the same are taken to share a host; empty: the system tells
};

// All ranks of a job. Construction is collective: it returns when every rank has joined.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view transport() const = 0;  // the one in use: "shm", "ucx", ...
  // Whether all ranks are on one host and pass what they send through its memory.
  virtual bool is_in_memory() const = 0;
  virtual Group& all() = 0;
  // The group of these world ranks, which include this one; collective over its members. Equal lists return the same
  // group. A channel makes another group of the same ranks: what runs on one of them does not wait for its turn on
  // another, so that two threads of a rank may use one each. The members make their groups in one order.
  virtual Group& group(const std::vector<int>& world_ranks, int channel = 0) = 0;
  // Ends a group that group() gave, once its members have done all that they started on it, and frees what it holds;
  // collective over its members. The reference is good no more; the same list makes a new group. Throws
  // kInvalidArgument for all(), and at all members while one has messages pending on it.
  virtual void destroy(Group& group) = 0;
  // Gives this rank `bytes` of zeroed memory that peers can read and write in place where the
  // transport can (a shared segment): collectives on views inside it copy nothing. Collective; may
  // be called again, each call adds a segment. Freed with the World.
  virtual std::span<std::byte> allocate(size_t bytes) = 0;
  // Operations of this rank since the start, by kind name ("all_reduce", ...), and the bytes it
  // handed to others in them, by the formula of the best algorithm whatever the transport; n bytes
  // of the whole, p members: all_reduce 2 n (p - 1) / p; all_gather, reduce_scatter, all_to_all n
  // (p - 1) / p; ring_shift n; broadcast n (p - 1) at the root, 0 elsewhere; send n.
  struct Traffic {
    std::string kind;
    int64_t calls = 0;
    int64_t bytes = 0;
  };
  virtual std::vector<Traffic> traffic() const = 0;
  int64_t sent_bytes() const {  // of all kinds
    int64_t bytes = 0;
    for (const Traffic& each : traffic()) bytes += each.bytes;
    return bytes;
  }
};

std::unique_ptr<World> connect(const WorldOptions& options);

// The transports of this build whose ranks may be threads: all of them but mpi.
const std::vector<std::string>& transports_of_threads();

// Runs `body` on `size` ranks that are threads of this process, over the named transport; the first
// error is rethrown after all have ended. An operation waits 60 s at most. For tests and the
// simulator. With ranks_on_host, each run of that many ranks takes itself to be on a host of its own.
// `change` may change what each rank connects with.
void spawn_ranks(int size, const std::string& transport, const std::function<void(World&)>& body, int ranks_on_host = 0,
                 const std::function<void(WorldOptions&)>& change = {});

}  // namespace trireme::comm
