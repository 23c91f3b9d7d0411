// Groups, arguments, counts and the small parts: what does not depend on the transport.
#include "trireme/comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "trireme/comm/reduce.h"
#include "trireme/comm/stores/memory_store.h"
#include "trireme/comm/world/time_collective.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::comm_test {
namespace {

using namespace std::chrono_literals;

HostTensor zeros(DType dtype, Shape shape) {
  return HostTensor(TensorType{dtype, shape});
}

std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(kind, e.kind()) << e.text();
    return e.text();
  }
  return "none";
}

std::string argument_error_of(const std::function<void()>& call) {
  return error_of(ErrorKind::kInvalidArgument, call);
}

class Arguments : public testing::Test {
 protected:
  // Runs on both ranks of a world of two; the texts of rank 0.
  void on_two(const std::function<void(World&)>& body) { spawn_ranks(2, "threads", body); }
};

TEST_F(Arguments, AGroupThatDoesNotFitIsRefused) {
  on_two([](World& world) {
    if (world.rank() == 1) return;
    EXPECT_EQ(argument_error_of([&] { world.group({}); }), "group []: it has no members");
    EXPECT_EQ(argument_error_of([&] { world.group({0, 2}); }), "group [0,2]: the job has ranks 0 to 1 only");
    EXPECT_EQ(argument_error_of([&] { world.group({-1, 0}); }), "group [-1,0]: the job has ranks 0 to 1 only");
    EXPECT_EQ(argument_error_of([&] { world.group({0, 1, 0}); }), "group [0,1,0]: rank 0 is named twice");
    EXPECT_EQ(argument_error_of([&] { world.group({1}); }), "group [1]: rank 0, which asks for it, is not a member");
  });
}

TEST_F(Arguments, TheGroupOfAllRanksIsTheWorld) {
  on_two([](World& world) {
    EXPECT_EQ(&world.group({0, 1}), &world.all());
    EXPECT_EQ(world.all().name(), "world");
    EXPECT_EQ(world.transport(), "threads");
  });
}

TEST_F(Arguments, SizesAndTypesThatDoNotFitAreRefused) {
  on_two([](World& world) {
    Group& all = world.all();
    const HostTensor three = zeros(DType::kF32, {3});
    const HostTensor four = zeros(DType::kF32, {4});
    const HostTensor ints = zeros(DType::kI32, {6});
    const HostTensor bools = zeros(DType::kBool, {4});
    const HostTensor halves = zeros(DType::kF16, {4});
    EXPECT_EQ(argument_error_of([&] { all.all_gather(three.view(), four.view()); }),
              "all_gather (group world of 2): 'out' f32[4] must hold 2 times as many elements as "
              "'in' f32[3]");
    EXPECT_EQ(argument_error_of([&] { all.all_gather(three.view(), ints.view()); }),
              "all_gather (group world): 'in' and 'out' differ in type: out is i32[6], in is f32[3]");
    EXPECT_EQ(argument_error_of([&] { all.reduce_scatter(three.view(), four.view(), Reduce::kSum); }),
              "reduce_scatter (group world of 2): 'in' f32[3] must hold 2 times as many elements as "
              "'out' f32[4]");
    EXPECT_EQ(argument_error_of([&] { all.all_to_all(three.view(), zeros(DType::kF32, {3}).view()); }),
              "all_to_all (group world of 2): 'in' f32[3] cannot be cut into 2 equal pieces");
    EXPECT_EQ(argument_error_of([&] { all.all_to_all(four.view(), three.view()); }),
              "all_to_all (group world): 'in' f32[4] and 'out' f32[3] must have the same type and "
              "number of "
              "elements");
    EXPECT_EQ(argument_error_of([&] { all.all_to_all(four.view(), four.view()); }),
              "all_to_all (group world): 'in' and 'out' overlap; they must not share memory");
    EXPECT_EQ(argument_error_of([&] { all.all_reduce(bools.view(), Reduce::kMax); }),
              "all_reduce (group world): bool elements cannot be reduced; cast them to u8 or i32");
    EXPECT_EQ(error_of(ErrorKind::kUnsupported, [&] { all.all_reduce(halves.view(), Reduce::kSum); }),
              "all_reduce (group world): f16 elements cannot be reduced; cast them to f32 or bf16");
  });
}

TEST_F(Arguments, APieceMayLieInTheWholeOnlyAtItsPlace) {
  on_two([](World& world) {
    const HostTensor whole = zeros(DType::kF32, {4});
    const View other{whole.view().data + 8 * (1 - world.rank()), TensorType{DType::kF32, Shape{2}}};
    EXPECT_EQ(argument_error_of([&] { world.all().all_gather(other, whole.view()); }),
              "all_gather (group world): 'out' and 'in' overlap; 'in' may only lie inside if it is exactly this rank's "
              "piece");
  });
}

TEST_F(Arguments, RootsPeersAndTagsAreChecked) {
  on_two([](World& world) {
    const HostTensor x = zeros(DType::kF32, {1});
    EXPECT_EQ(argument_error_of([&] { world.all().broadcast(x.view(), 2); }),
              "broadcast (group world): root 2 is not a rank of this group of 2");
    EXPECT_EQ(argument_error_of([&] { world.all().send(x.view(), -1, 0); }),
              "send (group world): peer -1 is not a rank of this group of 2");
    EXPECT_EQ(argument_error_of([&] { world.all().recv(x.view(), 1, -5); }),
              "recv (group world): tag -5 is out of range; it must be in [0, 1073741824)");
  });
}

TEST(Connect, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(argument_error_of([] { connect({.transport = "shn"}); }),
            "connect: there is no transport 'shn'. Did you mean 'shm'?");
  EXPECT_EQ(argument_error_of([] { connect({.rank = 2, .size = 2}); }),
            "connect: rank 2 of 2; a job has 1 rank or more, and they are numbered from 0");
  EXPECT_EQ(argument_error_of([] { connect({.rank = 0, .size = 2, .transport = "shm"}); }),
            "connect: 2 ranks need a store to find each other by (transport 'shm')");
  EXPECT_EQ(argument_error_of([] { connect({.deadline = 0ms}); }),
            "connect: the deadline is 0 ms; it must be positive");
  EXPECT_EQ(argument_error_of([] { spawn_ranks(2, "mpi", [](World&) {}); }),
            "spawn_ranks: ranks of 'mpi' are processes started by mpirun, not threads");
}

TEST(Connect, OneRankNeedsNoStoreOnAnyTransport) {
  for (const std::string& transport : transports_of_threads()) {
    const auto world = connect({.transport = transport});
    const HostTensor x = HostTensor::of<float>({1}, std::vector<float>{5});
    const HostTensor y = zeros(DType::kF32, {1});
    world->all().all_reduce(x.view(), Reduce::kSum).wait();
    world->all().all_gather(x.view(), y.view()).wait();
    world->all().barrier().wait();
    EXPECT_EQ(y.as<float>()[0], 5.0F) << transport;
    EXPECT_EQ(world->allocate(100).size(), 100U);
  }
}

TEST(Connect, AutoTakesSharedMemoryOnOneHost) {
  spawn_ranks(2, "auto", [](World& world) {
    EXPECT_EQ(world.transport(), "shm");
    EXPECT_TRUE(world.is_in_memory());
  });
}

TEST(Connect, TwoWorldsOfOneStoreAreApart) {
  const auto store = memory_store();
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto world = connect({.rank = i % 2,
                                  .size = 2,
                                  .transport = "threads",
                                  .job = i < 2 ? "first" : "second",
                                  .store = store,
                                  .deadline = 60s});
      const HostTensor x = HostTensor::of<int32_t>({1}, std::vector<int32_t>{i < 2 ? 1 : 10});
      world->all().all_reduce(x.view(), Reduce::kSum).wait();
      sum += x.as<int32_t>()[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum.load(), 2 + 2 + 20 + 20);
}

// Whatever rests before it begins. Both sides start many at once.
TEST(Messages, OfOneTagArriveInTheOrderInWhichTheyWereStarted) {
  constexpr size_t kMessages = 40;
  for (const std::string& transport : transports_of_threads()) {
    for (const bool rests : {false, true}) {
      const auto rest = [&](WorldOptions& options) {
        if (!rests) return;
        options.rest = [bits = std::mt19937(static_cast<uint32_t>(options.rank))]() mutable {
          return std::chrono::microseconds(bits() % 4 == 0 ? bits() % 500 : 0);
        };
      };
      const auto body = [&](World& world) {
        const int other = 1 - world.rank();
        std::vector<HostTensor> sent, received;
        std::vector<Work> works;
        for (size_t i = 0; i < kMessages; ++i) {
          sent.emplace_back(TensorType{DType::kI32, {1}});
          sent.back().as<int32_t>()[0] = static_cast<int32_t>(i);
          received.emplace_back(TensorType{DType::kI32, {1}});
          works.push_back(world.all().send(sent.back().view(), other, 5));
          works.push_back(world.all().recv(received.back().view(), other, 5));
        }
        for (Work& work : works) work.wait();
        for (size_t i = 0; i < kMessages; ++i)
          EXPECT_EQ(received[i].as<int32_t>()[0], static_cast<int32_t>(i))
              << transport << (rests ? ", with rests" : "");
      };
      spawn_ranks(2, transport, body, 0, rest);
    }
  }
}

TEST(Work, MayBeWaitedForAfterTheEndOfItsWorld) {
  std::vector<Work> works(2);
  spawn_ranks(2, "threads", [&](World& world) {
    const HostTensor tensor = zeros(DType::kF32, {100});
    Work work = world.all().all_reduce(tensor.view(), Reduce::kSum);
    work.wait();
    works[static_cast<size_t>(world.rank())] = work;
  });

  for (Work& work : works) EXPECT_NO_THROW(work.wait());
}

TEST(Gather, AmongManyRanksDoublesItsWay) {
  spawn_ranks(19, "threads", [](World& world) {
    const HostTensor in = HostTensor::of<int32_t>({2}, std::vector<int32_t>{world.rank(), -world.rank()});
    const HostTensor out = zeros(DType::kI32, {38});
    world.all().all_gather(in.view(), out.view()).wait();
    for (int32_t r = 0; r < 19; ++r) {
      EXPECT_EQ(out.as<int32_t>()[static_cast<size_t>(2 * r)], r);
      EXPECT_EQ(out.as<int32_t>()[static_cast<size_t>(2 * r + 1)], -r);
    }
  });
}

TEST(Traffic, CountsWhatTheBestAlgorithmHandsToOthers) {
  for (const std::string transport : {"threads", "shm"}) {
    spawn_ranks(4, transport, [](World& world) {
      const HostTensor whole = zeros(DType::kF32, {400});
      const HostTensor piece = zeros(DType::kF32, {100});
      const HostTensor other = zeros(DType::kF32, {400});
      Group& all = world.all();
      all.all_reduce(whole.view(), Reduce::kSum).wait();
      all.all_reduce(whole.view(), Reduce::kSum).wait();
      all.all_gather(piece.view(), whole.view()).wait();
      all.reduce_scatter(whole.view(), piece.view(), Reduce::kSum).wait();
      all.all_to_all(whole.view(), other.view()).wait();
      all.broadcast(whole.view(), 2).wait();
      std::map<std::string, std::pair<int64_t, int64_t>> got;
      for (const auto& t : world.traffic()) got[t.kind] = {t.calls, t.bytes};
      EXPECT_EQ(got["all_reduce"], std::pair(int64_t{2}, int64_t{2 * 2 * 1600 * 3 / 4}));
      EXPECT_EQ(got["all_gather"], std::pair(int64_t{1}, int64_t{1200}));
      EXPECT_EQ(got["reduce_scatter"], std::pair(int64_t{1}, int64_t{1200}));
      EXPECT_EQ(got["all_to_all"], std::pair(int64_t{1}, int64_t{1200}));
      EXPECT_EQ(got["broadcast"], std::pair(int64_t{1}, int64_t{world.rank() == 2 ? 4800 : 0}));
    });
  }
}

TEST(Reduce, IntegersWrapAndOutMayBeASource) {
  std::vector<int8_t> a{100, -100, 5};
  const std::vector<int8_t> b{100, -100, 6};
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  std::byte* const out = reinterpret_cast<std::byte*>(a.data());
  reduce_in_tree(Reduce::kSum, DType::kI8, sources, {&out, 1}, 3);
  EXPECT_EQ(a, (std::vector<int8_t>{-56, 56, 11}));
}

TEST(MemoryStore, AValueThatDoesNotComeIsNamed) {
  const auto store = memory_store();
  EXPECT_EQ(error_of(ErrorKind::kTimeout, [&] { store->get("a/b", 1ms); }),
            "store: key 'a/b' did not appear within 1 ms; the rank that sets it is missing");
  store->set("word", "x");
  EXPECT_EQ(argument_error_of([&] { store->add("word", 1); }),
            "store: key 'word' holds 'x', which is not a number to add to");
  EXPECT_EQ(argument_error_of([&] { store->set("big", std::string((1 << 20) + 1, 'x')); }),
            "store: the value of 'big' has 1048577 bytes; at most 1048576 are allowed");
  EXPECT_EQ(store->add("count", 5), 5);
  EXPECT_EQ(store->add("count", -2), 3);
}

TEST(MemoryStore, AnAbortEndsEveryWait) {
  MemoryStore store;
  store.abort("rank 3 ended with an error");
  EXPECT_EQ(error_of(ErrorKind::kComm, [&] { store.get("never", 60s); }), "store: rank 3 ended with an error");
}

TEST(Threads, NeedTheStoreThatTheyShare) {
  class Foreign final : public Store {
   public:
    void set(std::string_view key, std::string_view value) override { inner_.set(key, value); }
    std::string get(std::string_view key, std::chrono::milliseconds deadline) override {
      return inner_.get(key, deadline);
    }
    int64_t add(std::string_view key, int64_t amount) override { return inner_.add(key, amount); }

   private:
    MemoryStore inner_;
  };
  EXPECT_EQ(argument_error_of([] { connect({.transport = "threads", .store = std::make_shared<Foreign>()}); }),
            "the threads transport needs a store from memory_store(), which the threads share; "
            "ranks that are "
            "processes use 'shm', 'ucx' or 'mpi'");
}

TEST(Bench, TimesEveryOperationOnAllSizes) {
  spawn_ranks(2, "shm", [](World& world) {
    for (const std::string op : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}) {
      const std::vector<int64_t> sizes{0, 4096, 100'000};
      const auto timings = time_collective(world, op, sizes, {.warmup = 1, .budget = 1ms, .max_runs = 5});
      ASSERT_EQ(timings.size(), 3U);
      EXPECT_EQ(timings[2].bytes, 100'000);
      for (const auto& timing : timings) {
        EXPECT_GT(timing.min_us, 0);
        EXPECT_LE(timing.min_us, timing.median_us);
        EXPECT_LE(timing.median_us, timing.p99_us);
      }
      EXPECT_GT(timings[2].bus_gb_per_s, 0);
    }
  });
  const auto world = connect({});
  EXPECT_EQ(argument_error_of([&] { time_collective(*world, "all_reduse", {}); }),
            "time_collective: there is no operation 'all_reduse'. Did you mean 'all_reduce'?");
}

}  // namespace
}  // namespace trireme::comm::comm_test
