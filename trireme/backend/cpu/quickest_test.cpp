#include "trireme/backend/cpu/quickest.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

namespace trireme::cpu::quickest_test {
namespace {

// Work that the processor takes so much longer for that no noise hides it.
void work(int64_t turns) {
  volatile int64_t sum = 0;
  for (int64_t i = 0; i < turns; ++i) sum = sum + i;
}

TEST(Quickest, IsTheWayThatTakesTheLeastTimeOfTheProcessor) {
  const std::array<int64_t, 3> turns{2'000'000, 20'000, 200'000};

  EXPECT_EQ(quickest_of({.ways = turns.size()}, [&](size_t way, size_t) { work(turns[way]); }), 1U);
}

TEST(Quickest, TimesAreOfTheWorkThatACallDoes) {
  const std::array<int64_t, 2> turns{2'000'000, 400'000};
  const Contest contest{.ways = 2, .usual = 1, .work = {20, 1}};

  EXPECT_EQ(quickest_of(contest, [&](size_t way, size_t) { work(turns[way]); }), 0U);
}

TEST(Quickest, WaysThatTakeMuchLongerAreLeftOutOfLaterTurns) {
  std::array<int, 2> calls{};

  quickest_of({.ways = 2, .usual = 1}, [&](size_t way, size_t) {
    ++calls[way];
    work(way == 0 ? 400'000 : 100'000'000);
  });

  EXPECT_EQ(calls[1], 2);  // one to begin with, and one turn
  EXPECT_GE(calls[0], 4);
}

// As two threads of one core share what multiplies: beside its like, the way that is quicker alone is the slower one.
TEST(Quickest, OtherThreadsDoTheSameMeanwhile) {
  std::atomic<bool> is_shared{false};
  const auto run = [&](size_t way, size_t thread) {
    if (thread == 1) {
      is_shared = true;
      return;
    }
    for (int turn = 0; way == 0 && !is_shared && turn < 1'000'000; ++turn) std::this_thread::yield();
    work(way == 1 ? 400'000 : is_shared ? 2'000'000 : 100'000);
  };
  const std::array<Cores, 1> others{allowed_cores()};

  EXPECT_EQ(quickest_of({.ways = 2, .others = others}, run), 1U);
}

TEST(Quickest, AnErrorOfAnotherThreadComesOut) {
  const std::array<Cores, 2> others{allowed_cores(), allowed_cores()};
  const auto run = [](size_t, size_t thread) {
    if (thread == 2) throw std::runtime_error("of thread 2");
  };

  EXPECT_THROW(quickest_of({.ways = 2, .others = others}, run), std::runtime_error);
}

}  // namespace
}  // namespace trireme::cpu::quickest_test
