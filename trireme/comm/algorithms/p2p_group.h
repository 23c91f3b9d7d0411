// P2pGroup: the collectives as messages between pairs of ranks, for every transport that has
// nothing better.
//
// A group on several hosts sums within each host first (as BlueConnect does, Cho et al., 2019), so that a host sends no
// more bytes than a single rank would. This needs 2, 4, 8 ... members with consecutive ranks on each host: the sums
// within hosts are then parts of the tree of reduce.h, and the bits are those of a group on one host. What would be
// rounded between the two sums, like bf16, is summed in one step.
#pragma once

#include "trireme/comm/engine/group.h"

namespace trireme::comm {

class P2pGroup : public GroupBase {
 public:
  P2pGroup(Engine& engine, Members members, int channel);

  void close() override;

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
  // Members that exchange something among themselves, in the group's order; slices are counted by their places here.
  struct Circle {
    std::vector<int> members;
    int place = 0;  // of this rank

    int size() const { return static_cast<int>(members.size()); }
    int after(int distance) const { return (place + distance) % size(); }
    int before(int distance) const { return (place + size() - distance) % size(); }
  };
  // A tensor cut into one slice per member of a circle.
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
  static Slices slices_of(const View& view, const Circle& circle) {
    return {view.data, view.elements(), circle.size(), view.type.dtype};
  }
  void find_hosts();
  bool by_hosts(DType dtype) const;

  Task reduce_to_owner(Operation& operation, const Circle& circle, const Slices& slices, std::byte* out, Reduce op);
  Task gather_directly(Operation& operation, const Circle& circle, const Slices& slices);
  Task gather_doubling(Operation& operation, const Circle& circle, const Slices& slices);
  Task gather_ring(Operation& operation, const Circle& circle, const Slices& slices);
  Task gather(Operation& operation, const Circle& circle, const Slices& slices);
  Task all_reduce_by_hosts(Operation& operation, View inout, Reduce op);
  Task reduce_scatter_by_hosts(Operation& operation, View in, View out, Reduce op);

  void post_send(Operation& operation, Transfer& transfer, const Circle& circle, int place,
                 std::span<const std::byte> bytes);
  void post_receive(Operation& operation, Transfer& transfer, const Circle& circle, int place,
                    std::span<std::byte> bytes);
  std::span<Transfer> fresh_transfers(size_t count);

  int channel_;
  Circle all_;
  Circle host_;   // on this rank's host; empty when hosts do not matter
  Circle hosts_;  // this rank and its like on the other hosts
  // The collectives of a group run one after the other, so all use these. They grow to the largest
  // use and stay.
  std::vector<Transfer> transfers_;
  std::vector<std::byte> stage_;  // what arrives to be reduced
  std::vector<std::byte> run_;    // of gather_doubling
  std::vector<std::byte> sums_;   // of a host, on their way to others
};

}  // namespace trireme::comm
