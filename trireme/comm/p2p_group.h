// P2pGroup: the collectives as messages between pairs of ranks, for every transport that has
// nothing better.
#pragma once

#include "trireme/comm/group.h"

namespace trireme::comm {

class P2pGroup : public GroupBase {
 public:
  P2pGroup(Engine& engine, Members members, int channel)
      : GroupBase(engine, std::move(members)),
        sources_(static_cast<size_t>(size())),
        channel_(channel) {}

 protected:
  Task run_all_reduce(Operation& operation, View inout, Reduce op) override;
  Task run_all_gather(Operation& operation, View in, View out) override;
  Task run_reduce_scatter(Operation& operation, View in, View out, Reduce op) override;
  Task run_all_to_all(Operation& operation, View in, View out) override;
  Task run_ring_shift(Operation& operation, View in, View out, int by) override;
  Task run_broadcast(Operation& operation, View inout, int root) override;
  Task run_barrier(Operation& operation) override;
  Task run_message(Operation& operation, View view, bool is_send) override;

  std::vector<const std::byte*> sources_;  // of a reduction, by member; of the collective that runs

 private:
  // A tensor cut into one slice per member.
  struct Slices {
    std::byte* data = nullptr;
    int64_t elements = 0;
    int members = 1;
    DType dtype = DType::kF32;

    int64_t begin(int i) const { return slice_begin(elements, members, i); }
    int64_t count(int i) const { return begin(i + 1) - begin(i); }
    std::span<std::byte> raw(int i) const {
      return {data + begin(i) * size_of(dtype), static_cast<size_t>(count(i) * size_of(dtype))};
    }
  };
  Slices slices_of(const View& view) const {
    return {view.data, view.elements(), size(), view.type.dtype};
  }
  Task reduce_to_owner(Operation& operation, const Slices& slices, std::byte* out, Reduce op);
  Task gather_directly(Operation& operation, const Slices& slices);
  Task gather_doubling(Operation& operation, const Slices& slices);
  Task gather_ring(Operation& operation, const Slices& slices);
  Task gather(Operation& operation, const Slices& slices);

  void post_send(Operation& operation, Transfer& transfer, int member,
                 std::span<const std::byte> bytes);
  void post_receive(Operation& operation, Transfer& transfer, int member,
                    std::span<std::byte> bytes);
  std::span<Transfer> fresh_transfers(size_t count);
  int after(int distance) const { return (rank() + distance) % size(); }
  int before(int distance) const { return (rank() + size() - distance) % size(); }

  int channel_;
  // The collectives of a group run one after the other, so all use these. They grow to the largest
  // use and stay.
  std::vector<Transfer> transfers_;
  std::vector<std::byte> stage_;  // what arrives to be reduced
  std::vector<std::byte> run_;    // of gather_doubling
};

}  // namespace trireme::comm
