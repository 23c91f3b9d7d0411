// Groups of ranks over their life: made, translated, ended, made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::groups_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Groups : public testing::TestWithParam<std::string> {};

TEST_P(Groups, AGroupEndsAndItsRanksMakeAnother) {
  spawn_ranks(4, GetParam(), [](World& world) {
    if (world.rank() % 2 == 0) return;
    const HostTensor x = HostTensor::of<int32_t>({1}, std::vector<int32_t>{1 + world.rank()});
    for (int32_t turn = 0, sum = 6; turn < 3; ++turn, sum *= 2) {
      Group& group = world.group({3, 1});
      EXPECT_EQ(group.world_rank_of(0), 3);
      EXPECT_EQ(group.world_rank_of(1), 1);
      EXPECT_EQ(group.group_rank_of(3), 0);
      EXPECT_EQ(group.group_rank_of(world.rank()), group.rank());
      Work sent = group.all_reduce(x.view(), Reduce::kSum);  // ended by destroy
      world.destroy(group);
      EXPECT_TRUE(sent.done());
      EXPECT_EQ(x.as<int32_t>()[0], sum);
    }
    EXPECT_EQ(world.all().world_rank_of(world.rank()), world.rank());
  });
}

TEST_P(Groups, AGroupThatIsInUseOrTheWorldIsNotDestroyed) {
  spawn_ranks(2, GetParam(), [](World& world) {
    const auto error = [](auto&& fn) -> std::string {
      try {
        fn();
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    EXPECT_THAT(error([&] { world.destroy(world.all()); }), HasSubstr("group world: it ends with the job"));
    Group& group = world.group({1, 0});
    EXPECT_THAT(error([&] { group.world_rank_of(2); }),
                HasSubstr("group [1,0]: it has no rank 2; its ranks are 0 to 1"));
    EXPECT_THAT(error([&] { group.group_rank_of(2); }),
                HasSubstr("group [1,0]: rank 2 of the world is not a member of it"));
    const HostTensor x = HostTensor::of<int32_t>({1}, std::vector<int32_t>{world.rank()});
    Work got = world.rank() == 0 ? group.recv(x.view(), 0, 7) : Work();
    EXPECT_THAT(error([&] { world.destroy(group); }), HasSubstr("group [1,0]: rank 0 has messages pending on it"));
    if (world.rank() == 1) group.send(x.view(), 1, 7).wait();
    got.wait();
    EXPECT_EQ(x.as<int32_t>()[0], 1);
    EXPECT_EQ(error([&] { world.destroy(group); }), "no error");
  });
}

TEST_P(Groups, AChannelIsAnotherGroupOfTheSameRanks) {
  spawn_ranks(2, GetParam(), [](World& world) {
    Group& first = world.group({1, 0});
    Group& second = world.group({1, 0}, 2);
    EXPECT_NE(&first, &second);
    EXPECT_EQ(&second, &world.group({1, 0}, 2));
    EXPECT_EQ(&world.group({0, 1}), &world.all());
    EXPECT_NE(&world.group({0, 1}, 1), &world.all());
    EXPECT_EQ(second.name(), "[1,0] channel 2");
    EXPECT_EQ(second.world_ranks(), first.world_ranks());
    world.destroy(second);
    EXPECT_EQ(&first, &world.group({1, 0}));
  });
}

// Each rank's two threads start their collectives in whatever order the system runs them, which on one group would be
// wrong.
TEST_P(Groups, TwoThreadsUseAChannelEach) {
  spawn_ranks(3, GetParam(), [](World& world) {
    constexpr int kTurns = 200;
    Group& first = world.group({0, 1, 2}, 1);
    Group& second = world.group({0, 1, 2}, 2);
    const auto sums = [&](int channel) {
      Group& group = channel == 1 ? first : second;
      for (int32_t turn = 0; turn < kTurns; ++turn) {
        const int64_t elements = channel == 1 ? 3 : 3000;  // what fits a message, and what does not
        const HostTensor x = HostTensor::of<int32_t>(
            {elements}, std::vector<int32_t>(static_cast<size_t>(elements), channel * 1000 + turn + world.rank()));
        group.all_reduce(x.view(), Reduce::kSum).wait();
        ASSERT_EQ(x.as<int32_t>()[0], 3 * (channel * 1000 + turn) + 3);
        ASSERT_EQ(x.as<int32_t>()[static_cast<size_t>(elements) - 1], 3 * (channel * 1000 + turn) + 3);
      }
    };
    std::thread other([&] { sums(1); });
    sums(2);
    other.join();
  });
}

TEST_P(Groups, StartedInOtherOrdersOnTwoChannelsCollectivesEnd) {
  spawn_ranks(2, GetParam(), [](World& world) {
    const HostTensor a = HostTensor::of<int32_t>({1}, std::vector<int32_t>{1});
    const HostTensor b = HostTensor::of<int32_t>({2}, std::vector<int32_t>{10, 20});
    Group& first = world.group({0, 1}, 1);
    Group& second = world.group({0, 1}, 2);
    if (world.rank() == 0) {
      Work sum = first.all_reduce(a.view(), Reduce::kSum);
      second.all_reduce(b.view(), Reduce::kSum).wait();
      sum.wait();
    } else {
      second.all_reduce(b.view(), Reduce::kSum).wait();
      first.all_reduce(a.view(), Reduce::kSum).wait();
    }
    EXPECT_EQ(a.as<int32_t>()[0], 2);
    EXPECT_EQ(b.as<int32_t>()[1], 40);
  });
}

TEST_P(Groups, WrongArgumentsNameTheGroupAndHarmNothing) {
  spawn_ranks(2, GetParam(), [](World& world) {
    const auto error = [](auto&& fn) -> std::string {
      try {
        fn();
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    const HostTensor x = HostTensor::of<int32_t>({2}, std::vector<int32_t>{1, 2});
    const HostTensor y = HostTensor::of<int32_t>({3}, std::vector<int32_t>{0, 0, 0});
    Group& group = world.group({1, 0}, 3);
    EXPECT_THAT(error([&] { group.all_gather(x.view(), y.view()); }),
                HasSubstr("all_gather (group [1,0] channel 3 of 2)"));
    EXPECT_THAT(error([&] { world.group({0, 1}, -1); }), HasSubstr("group [0,1] channel -1: channels are 0 to 1023"));
    // A message of another size ends with an error at its receiver alone.
    if (world.rank() == 0) {
      group.send(x.view(), 0, 5).wait();
    } else {
      EXPECT_THAT(error([&] { group.recv(y.view(), 1, 5).wait(); }),
                  AllOf(HasSubstr("recv from rank 0 (group [1,0] channel 3, 12 B i32, tag 5)"),
                        HasSubstr("sent 8 bytes where 12 were expected")));
    }
    group.all_reduce(x.view(), Reduce::kSum).wait();
    world.all().all_reduce(x.view(), Reduce::kSum).wait();
    EXPECT_EQ(x.as<int32_t>()[1], 8);
  });
}

TEST(ShmGroups, CallsThatDifferEndWithAnErrorAndLeaveTheGroupsUsable) {
  spawn_ranks(3, "shm", [](World& world) {
    const HostTensor x = HostTensor::of<int32_t>({1}, std::vector<int32_t>{1});
    Group& group = world.group({2, 0, 1}, 1);
    std::string what;
    try {
      if (world.rank() == 1) {
        group.broadcast(x.view(), 1).wait();
      } else {
        group.all_reduce(x.view(), Reduce::kSum).wait();
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      what = e.what();
    }
    EXPECT_THAT(what, AllOf(HasSubstr("(group [2,0,1] channel 1,"), HasSubstr("must make the same calls")));
    group.all_reduce(x.view(), Reduce::kSum).wait();
    EXPECT_EQ(x.as<int32_t>()[0], 3);
    world.all().all_reduce(x.view(), Reduce::kSum).wait();
    EXPECT_EQ(x.as<int32_t>()[0], 9);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Groups, testing::ValuesIn(transports_of_threads()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme::comm::groups_test
