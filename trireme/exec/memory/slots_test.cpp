#include "trireme/exec/memory/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace trireme::slots_test {
namespace {

// What Slots says, slot by slot.
class Listed {
 public:
  template <class InUse>
  int find(const Lifetime& buffer, InUse&& in_use) const {
    for (const Slot& slot : slots_) {
      const bool free = std::ranges::none_of(
          slot.used, [&](const Lifetime& b) { return b.first <= buffer.last && buffer.first <= b.last; });
      if (free && !in_use(slot.offset)) return slot.number;
    }
    return -1;
  }
  int add(int64_t offset) {
    slots_.push_back({static_cast<int>(slots_.size()), offset, {}});
    return slots_.back().number;
  }
  void use(int number, const Lifetime& buffer) {
    const auto at = std::ranges::find(slots_, number, &Slot::number);
    Slot slot = *at;
    slots_.erase(at);
    slot.used.push_back(buffer);
    slots_.push_back(std::move(slot));
  }

 private:
  struct Slot {
    int number = 0;
    int64_t offset = 0;
    std::vector<Lifetime> used;
  };
  std::deque<Slot> slots_;  // the one that was used last at the end
};

TEST(Slots, GiveTheFreeOneThatWasNotUsedForTheLongest) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 draw(seed);
    std::vector<Lifetime> buffers;
    const int steps = seed % 3 == 0 ? 40 : 2000;  // many slots, or few
    for (int i = 0; i < 400; ++i) {
      const int first = static_cast<int>(draw() % static_cast<uint32_t>(steps)) - 1;
      buffers.push_back({64, first, first + static_cast<int>(draw() % (draw() % 8 == 0 ? 600U : 12U))});
    }
    Slots slots(buffers);
    Listed listed;
    for (size_t i = 0; i < buffers.size(); ++i) {
      // Buffers of other sizes lie there for a while, somewhere else in time for each offset.
      const auto in_use = [&](int64_t offset) -> std::optional<Period> {
        const int first = static_cast<int>(offset * 37 % steps);
        const Period period{first, first + steps / 3};
        const bool apart = period.last < buffers[i].first || buffers[i].last < period.first;
        return apart ? std::nullopt : std::optional(period);
      };
      int slot = slots.find(buffers[i], in_use);
      ASSERT_EQ(slot, listed.find(buffers[i], in_use)) << "seed " << seed << ", buffer " << i;
      if (slot < 0) {
        const auto offset = static_cast<int64_t>(draw() % 100);
        slot = slots.add(offset);
        ASSERT_EQ(slot, listed.add(offset));
        EXPECT_EQ(slots.offset_of(slot), offset);
      }
      slots.use(slot, buffers[i]);
      listed.use(slot, buffers[i]);
    }
  }
}

}  // namespace
}  // namespace trireme::slots_test
