// Transport: messages between two ranks, the one interface over which the collectives of threads,
// ucx and mpi are written. Calls are made by one thread at a time, the one that drives the engine,
// except `wake`, `open`, `close` and `allocate`, which any thread may make beside it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

// What the two upper bits of a tag, which has 31, say: who a message is of. A transport whose own tags are few can tell
// the kinds apart by other means. Tags of users (Group::send) have the first two.
inline constexpr uint32_t kTagsOfAKind = 1U << 29;
inline constexpr uint32_t kCollectiveTags = 2 * kTagsOfAKind;  // and the turn, modulo any power of two from 2 on
inline constexpr uint32_t kNoticeTag = 3 * kTagsOfAKind;       // the only one; on channel 0

// One message to send or a place for one to receive. It must stay where it is until it is done.
struct Transfer {
  enum class State : uint8_t { kIdle, kPending, kDone, kFailed };

  int peer = -1;     // world rank
  int channel = 0;   // of the group, from Transport::open
  uint32_t tag = 0;  // below 2^31
  std::byte* data = nullptr;
  size_t bytes = 0;
  State state = State::kIdle;
  bool counts = false;      // towards the bytes done of its operation
  std::string problem;      // of a failed one: "sent 8 bytes where 4 were expected"
  bool wrong_size = false;  // that is the problem, and the connection is as good as before
  void* native = nullptr;   // the transport's own, as is `owner`
  void* owner = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual bool is_in_memory() const { return false; }  // of one host, on which all ranks are
  // Who a peer is, for error texts: "pid 1234".
  virtual std::string describe(int peer) const = 0;

  // A channel for the messages of these world ranks, equal on all of them; collective over them.
  // Groups of the same ranks have different numbers.
  virtual int open(const std::vector<int>& world_ranks, int number) = 0;
  // Frees what the channel holds on this rank; its members have done all that they started on it, and each calls.
  virtual void close(int channel) { static_cast<void>(channel); }
  // Messages from one peer with the same channel and tag arrive in the order they were sent; others may overtake
  // each other. Both sides must name the same number of bytes.
  void send(Transfer& transfer) {
    start_send(transfer);  // or throws
    ++count_of(sent_, transfer.peer);
  }
  // The message may have come before: the transfer can be done when this returns, or after the next `progress`.
  virtual void receive(Transfer& transfer) = 0;
  // How many messages this rank has sent to a peer, and how many of the peer's have ended here, well or not.
  uint64_t sent_to(int peer) { return count_of(sent_, peer); }
  uint64_t taken_from(int peer) { return count_of(taken_, peer); }
  // Advances what is pending; true if something moved.
  virtual bool progress() = 0;
  // Before a sleep: what happens from here on ends the sleep, so that a last look after it misses
  // nothing.
  virtual void arm() {}
  virtual void disarm() {}  // when the last look found something
  // Sleeps until there may be something to do, at most `limit`, or until `wake`.
  virtual void rest(std::chrono::microseconds limit) = 0;
  virtual void wake() = 0;  // from any thread
  // Looks whether peers are gone: appends those found now for the first time.
  virtual void find_lost(std::vector<int>& peers) = 0;
  // Whether what was sent arrives although this rank ends right after.
  virtual bool delivers_after_stop() const { return true; }
  // Forgets every transfer: after the call no buffer is touched. In good order: nothing but the
  // receipt of notices is pending.
  virtual void stop(bool orderly) = 0;
  // Zeroed memory of this rank, shared with peers where the transport can; collective.
  virtual std::span<std::byte> allocate(size_t bytes) = 0;

 protected:
  virtual void start_send(Transfer& transfer) = 0;
  // To be called for each receipt that ends.
  void took(const Transfer& transfer) { ++count_of(taken_, transfer.peer); }

 private:
  static uint64_t& count_of(std::vector<uint64_t>& counts, int peer) {
    const auto at = static_cast<size_t>(peer);
    if (counts.size() <= at) counts.resize(at + 1);
    return counts[at];
  }

  std::vector<uint64_t> sent_;  // by world rank, as is the next
  std::vector<uint64_t> taken_;
};

}  // namespace trireme::comm
