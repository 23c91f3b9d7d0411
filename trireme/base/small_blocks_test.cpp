#include "trireme/base/small_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace trireme::small_blocks_test {
namespace {

constexpr size_t kReserved = 64 << 20;

struct Taken {
  char* block = nullptr;
  size_t bytes = 0;
  char filled = 0;
};

bool is_as_filled(const Taken& taken) {
  return std::all_of(taken.block, taken.block + taken.bytes, [&](char byte) { return byte == taken.filled; });
}

TEST(SmallBlocks, blocks_are_their_own_until_they_are_given_back) {
  SmallBlocks blocks;
  ASSERT_TRUE(blocks.reserve(kReserved));
  const uint32_t seed = 7;
  std::mt19937 draw(seed);
  std::vector<Taken> taken;
  for (int i = 0; i < 200'000; ++i) {
    const bool takes = taken.empty() || draw() % 100 < (i / 20'000 % 2 == 0 ? 60U : 40U);
    if (takes) {
      const size_t bytes = draw() % (SmallBlocks::kMostBytes + 1);
      auto* const block = static_cast<char*>(blocks.take(bytes));
      ASSERT_NE(block, nullptr) << "seed " << seed << ", step " << i;
      ASSERT_TRUE(blocks.has(block));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0U);
      const auto filled = static_cast<char>(draw());
      std::memset(block, filled, bytes);
      taken.push_back({block, bytes, filled});
    } else {
      std::swap(taken[draw() % taken.size()], taken.back());
      ASSERT_TRUE(is_as_filled(taken.back())) << "seed " << seed << ", step " << i;
      blocks.give_back(taken.back().block);
      taken.pop_back();
    }
  }
  EXPECT_TRUE(std::ranges::all_of(taken, is_as_filled));
}

TEST(SmallBlocks, what_is_given_back_is_taken_again) {
  SmallBlocks blocks;
  ASSERT_TRUE(blocks.reserve(kReserved));
  std::set<void*> seen;
  for (int i = 0; i < 1'000'000; ++i) {
    void* const block = blocks.take(48);
    seen.insert(block);
    blocks.give_back(block);
  }
  EXPECT_EQ(seen.size(), 1U);
}

TEST(SmallBlocks, even_nothing_has_a_place_of_its_own) {
  SmallBlocks blocks;
  ASSERT_TRUE(blocks.reserve(kReserved));
  EXPECT_NE(blocks.take(0), blocks.take(0));
}

TEST(SmallBlocks, knows_what_is_its_own) {
  SmallBlocks blocks, others;
  const int elsewhere = 0;
  EXPECT_FALSE(blocks.has(&elsewhere)) << "before it has anything";
  EXPECT_FALSE(blocks.has(nullptr));
  ASSERT_TRUE(blocks.reserve(kReserved));
  ASSERT_TRUE(others.reserve(kReserved));
  EXPECT_FALSE(blocks.has(&elsewhere));
  EXPECT_FALSE(blocks.has(nullptr));
  EXPECT_FALSE(blocks.has(others.take(8)));
}

TEST(SmallBlocks, ends_where_its_range_does) {
  SmallBlocks blocks;
  ASSERT_TRUE(blocks.reserve(1 << 20));
  std::vector<void*> taken;
  while (void* const block = blocks.take(1024)) {
    std::memset(block, 1, 1024);
    taken.push_back(block);
  }
  EXPECT_GE(taken.size(), (15U << 16U) / 1024) << "all runs but the one that says of what kind they are";
  EXPECT_EQ(blocks.take(16), nullptr) << "no run is left for another size";
  blocks.give_back(taken.back());
  EXPECT_EQ(blocks.take(1024), taken.back());
}

TEST(SmallBlocks, without_a_range_has_none) {
  SmallBlocks blocks;
  EXPECT_EQ(blocks.take(16), nullptr);
  EXPECT_FALSE(blocks.reserve(size_t{1} << 62U));
  EXPECT_EQ(blocks.take(16), nullptr);
}

TEST(SmallBlocks, other_threads_give_back_too) {
  SmallBlocks blocks;
  ASSERT_TRUE(blocks.reserve(2 << 20));
  constexpr size_t kThreads = 4, kRounds = 200, kOfEach = 500;  // more in all than there is room for
  std::vector<void*> taken;
  for (size_t round = 0; round < kRounds; ++round) {
    taken.clear();
    for (size_t i = 0; i < kThreads * kOfEach; ++i) {
      taken.push_back(blocks.take(16 * (1 + i % 4)));
      ASSERT_NE(taken.back(), nullptr) << "round " << round;
    }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < kOfEach; ++i) blocks.give_back_from_elsewhere(taken[t * kOfEach + i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::ranges::sort(taken);
  EXPECT_EQ(std::ranges::adjacent_find(taken), taken.end());
}

}  // namespace
}  // namespace trireme::small_blocks_test
