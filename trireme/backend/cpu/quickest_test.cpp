#include "trireme/backend/cpu/quickest.h"

#include <gtest/gtest.h>

#include <array>

namespace trireme::cpu::quickest_test {
namespace {

// Work that the processor takes so much longer for that no noise hides it.
void work(int64_t turns) {
  volatile int64_t sum = 0;
  for (int64_t i = 0; i < turns; ++i) sum = sum + i;
}

TEST(Quickest, IsTheWayThatTakesTheLeastTimeOfTheProcessor) {
  const std::array<int64_t, 3> turns{2'000'000, 20'000, 200'000};

  EXPECT_EQ(quickest_of({.ways = turns.size()}, [&](size_t way) { work(turns[way]); }), 1U);
}

TEST(Quickest, TimesAreOfTheWorkThatACallDoes) {
  const std::array<int64_t, 2> turns{2'000'000, 400'000};
  const Contest contest{.ways = 2, .usual = 1, .work = {20, 1}};

  EXPECT_EQ(quickest_of(contest, [&](size_t way) { work(turns[way]); }), 0U);
}

TEST(Quickest, WaysThatTakeMuchLongerAreLeftOutOfLaterTurns) {
  std::array<int, 2> calls{};

  quickest_of({.ways = 2, .usual = 1}, [&](size_t way) {
    ++calls[way];
    work(way == 0 ? 400'000 : 100'000'000);
  });

  EXPECT_EQ(calls[1], 2);  // one to begin with, and one turn
  EXPECT_GE(calls[0], 4);
}

}  // namespace
}  // namespace trireme::cpu::quickest_test
