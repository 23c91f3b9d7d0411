// A rank that has done its part of a collective and leaves is missed by nobody, however late the others look.
#include <gtest/gtest.h>

#include <latch>
#include <list>
#include <thread>

#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/comm.h"
#include "trireme/comm/transports/threads_transport.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::departure_test {
namespace {

using namespace std::chrono_literals;

// Messages of other channels than the engine's own show only some looks after they were asked for: one, as over MPI,
// or more, when the engine's overtake them.
class LateTransport final : public Transport {
 public:
  LateTransport(std::unique_ptr<Transport> of, int looks) : of_(std::move(of)), looks_(looks) {}

  std::string_view name() const override { return "late"; }
  std::string describe(int peer) const override { return of_->describe(peer); }
  int open(const std::vector<int>& world_ranks, int number) override { return of_->open(world_ranks, number); }
  bool progress() override {
    bool moved = of_->progress();
    for (Held& held : held_) {
      if (--held.looks > 0 || held.asked) continue;
      of_->receive(held.own);
      held.asked = true;
    }
    std::erase_if(held_, [&](const Held& held) {
      if (!held.asked || held.own.state == Transfer::State::kPending) return false;
      held.of->state = held.own.state;
      took(*held.of);
      return moved = true;
    });
    return moved;
  }
  void receive(Transfer& transfer) override {
    transfer.state = Transfer::State::kPending;
    Held& held = held_.emplace_back(Held{transfer, &transfer, transfer.channel == 0 ? 0 : looks_, false});
    if (transfer.channel != 0) return;
    of_->receive(held.own);
    held.asked = true;
  }
  void rest(std::chrono::microseconds limit) override { of_->rest(limit); }
  void wake() override { of_->wake(); }
  void find_lost(std::vector<int>& peers) override { of_->find_lost(peers); }
  void stop(bool orderly) override { of_->stop(orderly); }
  std::span<std::byte> allocate(size_t bytes) override { return of_->allocate(bytes); }

 private:
  struct Held {
    Transfer own;
    Transfer* of;
    int looks;
    bool asked;
  };
  void start_send(Transfer& transfer) override { of_->send(transfer); }

  std::unique_ptr<Transport> of_;
  int looks_;
  std::list<Held> held_;  // the transport below keeps addresses
};

// Three ranks meet in a barrier. Rank 1 leaves after it, while rank 0 has looked at it `passes` times and looks again
// only when rank 1 has left. What rank 0 is told, or "".
std::string leave_after_a_barrier(int looks, int passes) {
  const auto store = memory_store();
  std::latch left(1);
  std::string error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const WorldOptions options{.rank = rank, .size = 3, .transport = "threads", .store = store};
      Backend backend =
          message_backend(std::make_unique<LateTransport>(threads_transport(options), rank == 0 ? looks : 1));
      std::unique_ptr<GroupBase> all;  // outlives the engine's operations
      {
        Engine engine({.rank = rank, .size = 3, .deadline = 20s, .background = false}, std::move(backend.transport));
        all = backend.make_group(engine, {"world", {0, 1, 2}, rank, 0});
        try {
          Work barrier = all->barrier();
          for (int i = 0; rank == 0 && i < passes; ++i) static_cast<void>(barrier.done());
          if (rank == 0) left.wait();
          barrier.wait();
        } catch (const std::exception& e) {
          if (rank == 0) error = e.what();
        }
      }
      if (rank == 1) left.count_down();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return error;
}

// The engine looks for ranks that have left every so many passes: one of these counts lets it do so in the very pass
// that learns of the departure and asks for the message that has come before it.
TEST(Departure, OfARankThatHasDoneItsPartFailsNoBarrier) {
  for (int passes = 0; passes < 256; ++passes) {
    ASSERT_EQ("", leave_after_a_barrier(1, passes)) << "after " << passes << " passes";
  }
}

TEST(Departure, MayBeHeardOfBeforeWhatTheRankSentEarlier) {
  for (const int looks : {2, 5, 100, 1000}) {
    for (const int passes : {0, 1, 100}) {
      ASSERT_EQ("", leave_after_a_barrier(looks, passes)) << "after " << looks << " looks, " << passes << " passes";
    }
  }
}

// A transport whose connections are gone.
class BrokenTransport final : public Transport {
 public:
  explicit BrokenTransport(bool& stopped) : stopped_(stopped) {}
  std::string_view name() const override { return "broken"; }
  std::string describe(int peer) const override { return fmt::format("rank {}", peer); }
  int open(const std::vector<int>&, int number) override { return number; }
  bool progress() override { return false; }
  void receive(Transfer& transfer) override { transfer.state = Transfer::State::kPending; }
  void rest(std::chrono::microseconds) override {}
  void wake() override {}
  void find_lost(std::vector<int>&) override {}
  void stop(bool orderly) override { stopped_ = !orderly; }
  std::span<std::byte> allocate(size_t) override { return {}; }

 private:
  void start_send(Transfer&) override { fail(ErrorKind::kComm, "no connection"); }

  bool& stopped_;
};

TEST(Departure, OfARankThatCanTellNobodyEndsItsWorldAllTheSame) {
  bool stopped = false;
  { const Engine engine({.rank = 0, .size = 2, .background = false}, std::make_unique<BrokenTransport>(stopped)); }
  EXPECT_TRUE(stopped) << "in disorder";
}

class DepartureOver : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Comm, DepartureOver, testing::ValuesIn(transports_of_threads()),
                         [](const auto& instance) { return instance.param; });

TEST_P(DepartureOver, RightAfterABarrierFailsNobody) {
  for (int i = 0; i < 20; ++i) {
    spawn_ranks(3, GetParam(), [&](World& world) {
      Work barrier = world.all().barrier();
      if (world.rank() != i % 3) std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
      barrier.wait();
    });
  }
}

// Small messages are sent although nobody asks for them yet; more than a transport has room for at once.
TEST_P(DepartureOver, LosesNothingThatWasSent) {
  constexpr int kMessages = 1000;
  std::vector<float> got;
  spawn_ranks(2, GetParam(), [&](World& world) {
    const HostTensor tensor(TensorType{DType::kF32, Shape{512}});
    for (int i = 0; i < kMessages; ++i) {
      if (world.rank() == 0) {
        tensor.as<float>()[0] = static_cast<float>(i);
        world.all().send(tensor.view(), 1, 7).wait();
      } else {
        if (i == 0) std::this_thread::sleep_for(50ms);
        world.all().recv(tensor.view(), 0, 7).wait();
        got.push_back(tensor.as<float>()[0]);
      }
    }
  });

  ASSERT_EQ(got.size(), size_t{kMessages});
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(i));
}

}  // namespace
}  // namespace trireme::comm::departure_test
