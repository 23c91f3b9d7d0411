// Slots: places in the arena where buffers of one size were put, and when those are in use. See memory_plan.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/exec/memory/lifetime.h"

namespace trireme {

// A segment tree over the steps at which buffers of the size come into use or go out of it. Each node has two sets of
// slots, as bits: those that are in use during all of its time, and those that are at some moment of it. So it takes
// as long to find the free ones as there are words of bits, not slots.
class Slots {
 public:
  // Of all buffers that will be put in slots.
  explicit Slots(std::span<const Lifetime> buffers);

  // Calls in_use(offset) for the slots that are free during the buffer's time, the one that was not used for the
  // longest first, until it gives nothing. That slot's number, or -1. What it gives otherwise is a period, a part of
  // which is of the buffer's time, in which buffers of other sizes have bytes of the slot: it is not looked at again
  // for that.
  template <class InUse>
  int find(const Lifetime& buffer, InUse&& in_use) {
    find_free(buffer);
    while (!free_.empty()) {
      const int slot = pop_oldest();
      const std::optional<Period> period = in_use(slots_[static_cast<size_t>(slot)].offset);
      if (!period) return slot;
      mark(slot, *period);
    }
    return -1;
  }

  int add(int64_t offset);
  // The buffer is in the slot, which nobody uses during its time.
  void use(int slot, const Lifetime& buffer);
  int64_t offset_of(int slot) const { return slots_[static_cast<size_t>(slot)].offset; }

 private:
  using Words = std::vector<uint64_t>;
  struct Slot {
    int64_t offset = 0;
    int64_t used = 0;  // when, by the count of uses
  };

  size_t place_of(int step) const;
  void mark(int slot, const Period& period);
  std::span<uint64_t> of_node(Words& sets, size_t node) { return std::span(sets).subspan(node * words_, words_); }
  void find_free(const Lifetime& buffer);
  int pop_oldest();
  bool is_older(int a, int b) const {
    return slots_[static_cast<size_t>(a)].used < slots_[static_cast<size_t>(b)].used;
  }

  std::vector<int> steps_;  // in order
  size_t leaves_ = 1;
  size_t words_ = 1;             // of a node's set
  Words throughout_, sometime_;  // by node: 1 is the root, and those from leaves_ on are steps
  std::vector<Slot> slots_;
  int64_t uses_ = 0;
  Words busy_;             // in the search
  std::vector<int> free_;  // the same, a heap with the oldest on top
};

}  // namespace trireme
