// ShmTransport: ranks of one host that share memory. Messages go through a ring for every pair;
// what lies in memory from `allocate` is read by the peer in place. ShmGroup builds its collectives
// on the shared memory itself.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "trireme/comm/engine/block_pool.h"
#include "trireme/comm/engine/transport.h"
#include "trireme/comm/shm/ring_buffer.h"
#include "trireme/comm/shm/shm_mesh.h"

namespace trireme::comm {

class ShmTransport final : public Transport {
 public:
  // Where bytes lie that every peer can reach.
  struct Location {
    int segment = -1;
    uint64_t offset = 0;
  };

  explicit ShmTransport(const WorldOptions& options);  // collective

  std::string_view name() const override { return "shm"; }
  bool is_in_memory() const override { return true; }
  std::string describe(int peer) const override;
  int open(const std::vector<int>& world_ranks, int number) override;
  void start_send(Transfer& transfer) override;
  void receive(Transfer& transfer) override;
  bool progress() override;
  void arm() override;
  void disarm() override;
  void rest(std::chrono::microseconds limit) override;
  void wake() override;
  void find_lost(std::vector<int>& peers) override { mesh_.find_lost(peers); }
  void stop(bool) override;
  std::span<std::byte> allocate(size_t bytes) override;

  // Where these bytes of this rank lie, if in memory from `allocate`.
  std::optional<Location> locate(const std::byte* data, size_t bytes) const;
  // A peer's bytes, mapped here; null when the location is not inside its segment.
  std::byte* reach(int peer, Location location, size_t bytes) const;
  // Segments of the members of a channel; collective over them.
  std::vector<Segment> share(const std::vector<int>& members, int channel, size_t bytes);
  // Wakes those of the peers that sleep. To be called after a store that they may wait for.
  void notify(std::span<const int> peers);

 private:
  struct Doorbell;
  struct Allocation {
    std::vector<Segment> of;  // by world rank
  };
  struct Unexpected {
    Frame frame;
    std::pmr::vector<std::byte> payload;
  };
  struct Outgoing {  // a frame that waits for room in the ring, or a kBytes stream
    Frame frame;
    Transfer* transfer = nullptr;  // whose bytes follow, done when all are in the ring; null: no bytes
    uint64_t sent = 0;             // of them
  };
  struct Incoming {
    Transfer* transfer = nullptr;
    uint64_t arrived = 0;  // bytes
  };
  struct Pair {
    explicit Pair(BlockPool* pool) : outgoing(pool), unexpected(pool), expected(pool), offered(pool), incoming(pool) {}

    std::pmr::deque<Outgoing> outgoing;
    std::pmr::deque<Unexpected> unexpected;
    std::pmr::deque<Transfer*> expected;
    std::pmr::unordered_map<uint64_t, Transfer*> offered;  // sent, waiting for kAccept or kTaken
    std::pmr::unordered_map<uint64_t, Incoming> incoming;  // accepted
  };

  RingBuffer& ring(int from, int to) const;
  Doorbell& doorbell(int of) const;
  bool flush(int peer);
  bool push(int peer, Outgoing& out);
  void queue(int peer, const Frame& frame);
  void accept(int peer, const Frame& frame);
  void deliver(int peer, const Frame& frame, const std::byte* payload, Transfer& transfer);
  void take_bytes(int peer, const Frame& frame);

  WorldOptions options_;
  HostMesh mesh_;
  std::vector<Segment> controls_;  // by world rank: the doorbell and the rings from that rank
  BlockPool pool_;
  std::deque<Pair> pairs_;  // a copy of one would leave the pool
  uint64_t next_id_ = 1;
  uint32_t heard_ = 0;  // the doorbell's count when armed

  static constexpr size_t kMaxAllocations = 1024;
  std::array<Allocation, kMaxAllocations> allocations_;
  std::atomic<size_t> allocation_count_{0};
  std::mutex collective_;  // one exchange of segments at a time
};

}  // namespace trireme::comm
