// ShmGroup: collectives of ranks that share memory. Operands in memory from `World::allocate` are
// read and written by the peers where they lie; others pass through a bounce buffer in pieces.
#pragma once

#include "trireme/comm/algorithms/p2p_group.h"
#include "trireme/comm/shm/shm_transport.h"

namespace trireme::comm {

class ShmGroup final : public P2pGroup {
 public:
  ShmGroup(Engine& engine, Members members, ShmTransport& transport, int channel);

 protected:
  Task run_all_reduce(Operation& operation, View inout, Reduce op) override;
  Task run_all_gather(Operation& operation, View in, View out) override;
  Task run_reduce_scatter(Operation& operation, View in, View out, Reduce op) override;
  Task run_all_to_all(Operation& operation, View in, View out) override;
  Task run_ring_shift(Operation& operation, View in, View out, int by) override;
  Task run_broadcast(Operation& operation, View inout, int root) override;
  Task run_barrier(Operation& operation) override;

 private:
  static constexpr size_t kSmall = 4096;              // bytes that travel in the slot,
  static constexpr size_t kTiny = 512;                // and that do though they lie in shared memory
  static constexpr size_t kBounce = size_t{1} << 20;  // bytes of each half of the bounce buffer
  using Location = ShmTransport::Location;

  // What a member says when it enters a collective.
  struct Slot {
    uint32_t kind;  // which collective,
    uint32_t dtype;
    uint32_t detail;  // the reduction or the root
    int32_t segment;  // and where its operand lies: -1 for private memory
    uint64_t offset;
    uint64_t bytes;
    uint64_t unused[4];
    std::byte payload[kSmall];
  };
  // A member's part of the group's shared memory. Only `phase` is ever waited for. It counts the
  // steps that the member has published; all members publish the same steps in the same order.
  struct Block {
    alignas(64) std::atomic<uint64_t> phase;
    alignas(64) Slot slots[2];  // of this call and of the one before
    alignas(64) std::byte bounce[2][kBounce];
  };
  struct Call {
    uint32_t detail = 0;
    uint64_t bytes = 0;
    std::span<const std::byte> operand;  // what the peers read
    size_t in_slot = kSmall;             // bytes up to which it is in the slot wherever it lies
  };

  Block& block(int member) const {
    return *reinterpret_cast<Block*>(blocks_[static_cast<size_t>(member)].memory().data());
  }
  const Slot& slot(const Operation& operation, int member) const { return block(member).slots[operation.turn % 2]; }
  std::byte* bounce(int member, int64_t round) const { return block(member).bounce[round % 2]; }

  void publish();
  auto everyone(Operation& operation);
  void enter(Operation& operation, const Call& call);
  void check_calls(const Operation& operation) const;
  bool all_shared(const Operation& operation) const;
  bool none_shared(const Operation& operation) const;
  std::byte* operand_of(const Operation& operation, int member, size_t bytes) const;
  std::span<const std::byte* const> payloads(const Operation& operation);

  Task put_in_slot(Operation& operation, std::span<const std::byte> operand);
  Task reduce_in_place(Operation& operation, View inout, Reduce op);
  Task reduce_as_pair(Operation& operation, View inout, Reduce op);
  Task reduce_by_bounce(Operation& operation, View inout, Reduce op);
  Task copy(Operation& operation, std::byte* to, const std::byte* from, size_t bytes);

  ShmTransport& transport_;
  std::vector<Segment> blocks_;  // by group rank
  uint64_t published_ = 0;
  std::vector<std::byte*> targets_;  // of a reduction in place, by member
};

}  // namespace trireme::comm
