#include "trireme/comm/engine/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>

namespace trireme::comm::block_pool_test {
namespace {

// Counts what the pool takes and holds.
class Counted final : public std::pmr::memory_resource {
 public:
  int64_t taken = 0;
  int64_t held_bytes = 0;

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    ++taken;
    held_bytes += static_cast<int64_t>(bytes);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, size_t bytes, size_t alignment) override {
    held_bytes -= static_cast<int64_t>(bytes);
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

struct Block {
  std::byte* data;
  size_t bytes;
};

// Takes `count` blocks of random sizes.
std::vector<Block> take(BlockPool& pool, std::mt19937& draw, size_t count) {
  std::vector<Block> out;
  for (size_t i = 0; i < count; ++i) {
    const size_t bytes = 1 + draw() % 3000;
    out.push_back({static_cast<std::byte*>(pool.allocate(bytes)), bytes});
  }
  return out;
}

void give_back(BlockPool& pool, const std::vector<Block>& blocks) {
  for (const Block& block : blocks) pool.deallocate(block.data, block.bytes);
}

TEST(BlockPool, GivesBlocksThatDoNotOverlap) {
  const uint32_t seed = 17;
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  BlockPool pool;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Block> blocks = take(pool, draw, 100);
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::memset(blocks[i].data, static_cast<int>(i), blocks[i].bytes);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t k = 0; k < blocks[i].bytes; ++k) {
        ASSERT_EQ(blocks[i].data[k], static_cast<std::byte>(i)) << i;
      }
    }
    give_back(pool, blocks);
  }
}

TEST(BlockPool, AlignsBlocksAsAskedFor) {
  BlockPool pool;
  for (const size_t alignment : {1, 8, 16, 64, 256}) {
    for (const size_t bytes : {size_t{1}, size_t{65}, BlockPool::kLargest, 2 * BlockPool::kLargest}) {
      void* const block = pool.allocate(bytes, alignment);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U) << bytes << " at " << alignment;
      pool.deallocate(block, bytes, alignment);
    }
  }
}

TEST(BlockPool, GivesBackAllThatItTook) {
  Counted upstream;
  {
    BlockPool pool(&upstream);
    for (const size_t bytes : {size_t{8}, size_t{5000}, 3 * BlockPool::kLargest}) {
      pool.deallocate(pool.allocate(bytes), bytes);
    }
    EXPECT_GT(upstream.taken, 0);
  }
  EXPECT_EQ(upstream.held_bytes, 0);
}

TEST(BlockPool, ARetiredPoolEndsWithItsLastBlock) {
  Counted upstream;
  auto* const pool = new BlockPool(&upstream);
  std::vector<std::shared_ptr<int>> kept;
  for (int i = 0; i < 3; ++i) {
    kept.push_back(std::allocate_shared<int>(std::pmr::polymorphic_allocator<int>(pool), i));
  }

  pool->retire();
  while (!kept.empty()) {
    EXPECT_GT(upstream.held_bytes, 0);
    kept.pop_back();
  }
  EXPECT_EQ(upstream.held_bytes, 0);
}

TEST(BlockPool, ARetiredPoolWithoutBlocksEndsAtOnce) {
  Counted upstream;
  auto* const pool = new BlockPool(&upstream);
  pool->deallocate(pool->allocate(100), 100);

  pool->retire();
  EXPECT_EQ(upstream.held_bytes, 0);
}

#ifndef __SANITIZE_ADDRESS__
TEST(BlockPool, TakesNothingMoreForRoundsLikeTheFirst) {
  Counted upstream;
  BlockPool pool(&upstream);
  const auto round = [&](uint32_t seed) {
    std::mt19937 draw(seed);
    give_back(pool, take(pool, draw, 1000));
  };
  round(1);
  const int64_t after_one = upstream.taken;
  EXPECT_GT(after_one, 0);

  for (int i = 0; i < 5; ++i) round(1);
  EXPECT_EQ(upstream.taken, after_one);
}

TEST(BlockPool, TakesNothingForTheFirstBlocksAfterAReserve) {
  Counted upstream;
  BlockPool pool(&upstream);
  pool.reserve(4096);
  const int64_t reserved = upstream.taken;

  for (const size_t bytes : {4096, 1, 700}) pool.deallocate(pool.allocate(bytes), bytes);
  EXPECT_EQ(upstream.taken, reserved);
}

TEST(BlockPool, BlocksMayBeGivenBackByOtherThreads) {
  Counted upstream;
  BlockPool pool(&upstream);
  const auto rounds = [&](uint32_t seed) {
    std::mt19937 draw(seed);
    for (int round = 0; round < 200; ++round) {
      std::vector<Block> blocks = take(pool, draw, 8);
      std::thread([&] { give_back(pool, blocks); }).join();
    }
  };
  std::thread other(rounds, 1);
  rounds(2);
  other.join();
  // Never more than 16 blocks are in use at once, of seven sizes; there are so many from the start,
  // but of the largest.
  EXPECT_LE(upstream.held_bytes, (6 + 2) * (32 << 10));
}
#endif

}  // namespace
}  // namespace trireme::comm::block_pool_test
