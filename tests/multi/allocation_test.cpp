// A step allocates nothing. This program's malloc counts, which operator new calls; oneDNN takes
// the packing space of its products by posix_memalign, which is not counted.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "tests/multi/training_support.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
std::atomic<size_t> largest{0};

void count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  allocations.fetch_add(1, std::memory_order_relaxed);
  size_t before = largest.load();
  while (bytes > before && !largest.compare_exchange_weak(before, bytes)) {
  }
}

}  // namespace

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_TEST_COUNTS_MALLOC 1

extern "C" {
void* __libc_malloc(size_t bytes);                // NOLINT: glibc's own names
void* __libc_calloc(size_t count, size_t bytes);  // NOLINT
void* __libc_realloc(void* p, size_t bytes);      // NOLINT

void* malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count(items * bytes);
  return __libc_calloc(items, bytes);
}
void* realloc(void* p, size_t bytes) {
  count(bytes);
  return __libc_realloc(p, bytes);
}
}
#endif

namespace trireme {
namespace {

using namespace testing_support;

// Allocations of all threads of the process during steps 3 to 10.
int64_t allocations_of_steps(const Graph& graph, int ranks, const std::string& transport,
                             int threads) {
  std::barrier<> meet(ranks);
  const auto body = [&](comm::World* world) {
    ThreadPool pool(threads);
    Session session(graph, std::nullopt, {.world = world, .pool = &pool, .seed = 5});
    session.initialise();
    for (int64_t step = 1; step <= 2; ++step) train_step(session, step, 0.1F);
    meet.arrive_and_wait();
    if (!world || world->rank() == 0) {
      allocations = 0;
      counting = true;
    }
    meet.arrive_and_wait();
    for (int64_t step = 3; step <= 10; ++step) train_step(session, step, 0.1F);
    meet.arrive_and_wait();
    counting = false;
    meet.arrive_and_wait();
  };
  if (ranks == 1) {
    body(nullptr);
  } else {
    comm::spawn_ranks(ranks, transport, [&](comm::World& world) { body(&world); });
  }
  return allocations.load();
}

#ifdef TRIREME_TEST_COUNTS_MALLOC
TEST(Allocation, the_counter_counts) {
  allocations = 0;
  counting = true;
  std::vector<int>* volatile made = new std::vector<int>(100);
  counting = false;
  delete made;
  EXPECT_EQ(allocations.load(), 2);
}

TEST(Allocation, a_step_of_one_rank_takes_no_memory) {
  EXPECT_EQ(allocations_of_steps(mlp_step(AdamW{}), 1, "", 1), 0)
      << "the largest " << largest.load();
  EXPECT_EQ(allocations_of_steps(gpt_step(AdamW{}), 1, "", 2), 0)
      << "the largest " << largest.load();
}

// An operation of comm takes its record, its coroutines and their small tables, and gives them back
// when it ends: a handful of blocks that do not grow with the tensors. Nothing else of a step takes
// memory.
void expect_only_small_blocks(const std::string& transport) {
  constexpr int64_t kSteps = 8;
  constexpr int64_t kRanks = 2;
  const Graph graph = mlp_step(AdamW{});
  largest = 0;
  const int64_t taken = allocations_of_steps(graph, kRanks, transport, 1);
  const int64_t operations = kSteps * kRanks * 2;  // the loss and one bucket of gradients
  EXPECT_LE(taken, 12 * operations);
  EXPECT_LE(largest.load(), 4096U);
}

TEST(Allocation, a_step_of_two_ranks_that_are_threads_takes_small_blocks_to_communicate) {
  expect_only_small_blocks("threads");
}

TEST(Allocation, a_step_of_two_ranks_over_shared_memory_takes_small_blocks_to_communicate) {
  expect_only_small_blocks("shm");
}
#endif

}  // namespace
}  // namespace trireme
