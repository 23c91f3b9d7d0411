// A step allocates nothing, on one rank or several. Not counted are the packing space of oneDNN's
// products, which it takes by posix_memalign, and what libucp takes for itself in a message: it is
// a library of C, so over UCX only operator new counts.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>

#include "tests/multi/allocation_count.h"
#include "tests/multi/training_support.h"
#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::allocation_test {
namespace {

using namespace testing_support;

// What all threads of the process take in rounds 3 to `last`. The body is made once a rank and
// gives the function that runs one round; its world is null for one rank.
Allocations taken_by_rounds(int ranks, const std::string& transport, int64_t last,
                            const std::function<std::function<void(int64_t)>(comm::World*)>& body) {
  std::barrier<> meet(ranks);
  Allocations taken;
  const auto run = [&](comm::World* world) {
    const std::function<void(int64_t)> round = body(world);
    for (int64_t i = 1; i <= 2; ++i) round(i);
    meet.arrive_and_wait();
    if (!world || world->rank() == 0) start_counting_allocations();
    meet.arrive_and_wait();
    for (int64_t i = 3; i <= last; ++i) round(i);
    meet.arrive_and_wait();
    if (!world || world->rank() == 0) taken = stop_counting_allocations();
    meet.arrive_and_wait();
  };
  if (ranks == 1) {
    run(nullptr);
  } else {
    comm::spawn_ranks(ranks, transport, [&](comm::World& world) { run(&world); });
  }
  return taken;
}

// libgomp, which oneDNN calls, makes a record of a thread at its first product. A thread of a pool
// may get its first in any step, so here each is given one before.
void meet_libgomp(ThreadPool& pool) {
  std::barrier<> all(pool.size());
  pool.run(pool.size(), [&](int64_t, int) {
    cpu::prepare_onednn();
    all.arrive_and_wait();
  });
}

Allocations taken_by_steps(const Graph& graph, int ranks, const std::string& transport, int threads,
                           const Parallel& parallel = {}) {
  return taken_by_rounds(ranks, transport, 50, [&](comm::World* world) {
    auto pool = std::make_shared<ThreadPool>(threads);
    meet_libgomp(*pool);
    auto session = std::make_shared<Session>(
        graph, std::nullopt,
        Session::Options{.world = world, .pool = pool.get(), .seed = 5, .compile = {.parallel = parallel}});
    session->initialise();
    return [pool, session](int64_t step) { train_step(*session, step, 0.1F); };
  });
}

void expect_nothing(const Allocations& taken, const std::string& transport) {
  EXPECT_EQ(taken.news, 0) << "the largest of " << taken.largest << " bytes";
  if (transport == "ucx") return;
  EXPECT_EQ(taken.mallocs, 0) << "the largest of " << taken.largest << " bytes";
}

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_count_allocations()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  }
};

TEST_F(Allocation, the_counter_counts) {
  struct alignas(64) Line {
    char bytes[64];
  };
  start_counting_allocations();
  std::vector<int>* volatile made = new std::vector<int>(100);
  Line* volatile line = new Line;
  void* volatile plain = std::malloc(8);
  const Allocations taken = stop_counting_allocations();
  delete made;
  delete line;
  std::free(plain);

  EXPECT_EQ(taken.news, 3);
  EXPECT_EQ(taken.mallocs, 4);
  EXPECT_EQ(taken.largest, 400U);
}

TEST_F(Allocation, a_step_of_one_rank_takes_no_memory) {
  expect_nothing(taken_by_steps(mlp_step(AdamW{}), 1, "", 1), "");
  expect_nothing(taken_by_steps(gpt_step(AdamW{}), 1, "", 2), "");
}

TEST_F(Allocation, a_step_that_moves_state_between_tiers_takes_no_memory) {
  for (const char* const rule : {"*/state = host", "*/state = disk"}) {
    const Parallel parallel{.homes = {parse_home_rule(rule)}};
    expect_nothing(taken_by_steps(gpt_step(AdamW{}), 1, "", 2, parallel), "");
  }
}

struct TransportCase {
  std::string transport;
  int ranks = 2;
};

void PrintTo(const TransportCase& of, std::ostream* out) {
  *out << of.ranks << " ranks over " << of.transport;
}

std::string name_of(const testing::TestParamInfo<TransportCase>& about) {
  return fmt::format("{}_{}", about.param.transport, about.param.ranks);
}

std::vector<TransportCase> cases_of(std::initializer_list<int> ranks) {
  std::vector<TransportCase> out;
  for (const std::string& transport : comm::transports_of_threads()) {
    for (const int count : ranks) out.push_back({transport, count});
  }
  return out;
}

class AllocationOfSteps : public Allocation, public testing::WithParamInterface<TransportCase> {};

TEST_P(AllocationOfSteps, a_step_takes_no_memory) {
  const auto& [transport, ranks] = GetParam();
  expect_nothing(taken_by_steps(mlp_step(AdamW{}), ranks, transport, 1), transport);
  expect_nothing(taken_by_steps(gpt_step(AdamW{}), ranks, transport, 1), transport);
}

TEST_P(AllocationOfSteps, a_step_of_a_pipeline_takes_no_memory) {
  const auto& [transport, ranks] = GetParam();
  for (const std::string schedule : {"1f1b", "interleaved", "zb-h1", "zb-v", "seq-1f1b"}) {
    const Parallel parallel{.accumulation = 4, .pipeline = {.crews = 2, .schedule = schedule}};
    expect_nothing(taken_by_steps(gpt_step(AdamW{}), ranks, transport, 1, parallel), transport);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, AllocationOfSteps, testing::ValuesIn(cases_of({2, 4})), name_of);

// Every operation of comm on `bytes` bytes a rank, in `memory` of three times as many for all
// ranks.
void run_operations(comm::World& world, comm::Group& group, std::byte* memory, int64_t bytes) {
  const int64_t p = group.size();
  const auto part = [&](int64_t place, int64_t pieces) {
    return View{memory + place * bytes, {DType::kF32, {pieces * bytes / 4}}};
  };
  const View piece = part(0, 1);
  const View whole = part(p, p);
  const View other = part(2 * p, p);
  for (comm::Group* members : {&world.all(), &group}) {
    comm::Work first = members->all_reduce(piece, comm::Reduce::kMax);
    comm::Work second = members->barrier();
    second.wait();
    first.wait();
  }
  group.all_gather(piece, whole).wait();
  group.reduce_scatter(whole, piece, comm::Reduce::kMin).wait();
  group.all_to_all(whole, other).wait();
  group.broadcast(piece, group.size() - 1).wait();
  const int after = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  comm::Work sent = group.send(part(0, 1), after, 3);
  group.recv(part(1, 1), before, 3).wait();
  sent.wait();
}

class AllocationOfOperations : public Allocation, public testing::WithParamInterface<TransportCase> {};

TEST_P(AllocationOfOperations, an_operation_takes_no_memory) {
  const auto& [transport, ranks] = GetParam();
  const std::vector<int64_t> sizes =
      ranks > 4 ? std::vector<int64_t>{64, 20'000} : std::vector<int64_t>{64, 4096, 40'000, 3'000'000};
  const Allocations taken = taken_by_rounds(ranks, transport, 20, [&](comm::World* world) {
    std::vector<int> downwards;
    for (int rank = world->size(); rank-- > 0;) downwards.push_back(rank);
    comm::Group& group = world->group(downwards);
    const int64_t room = 3 * sizes.back() * world->size();
    std::byte* const shared = world->allocate(static_cast<size_t>(room)).data();
    auto own = std::make_shared<HostTensor>(TensorType{DType::kU8, {room}});
    return [=, &group](int64_t) {
      for (const int64_t bytes : sizes) {
        run_operations(*world, group, shared, bytes);
        run_operations(*world, group, own->view().data, bytes);
      }
    };
  });
  expect_nothing(taken, transport);
}

// 17 are more than send their pieces of a small gather to each other directly.
INSTANTIATE_TEST_SUITE_P(Transports, AllocationOfOperations, testing::ValuesIn(cases_of({2, 3, 17})), name_of);

}  // namespace
}  // namespace trireme::allocation_test
