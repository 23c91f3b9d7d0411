// Groups of ranks over their life: made, translated, ended, made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Transports, Groups, testing::ValuesIn(transports_of_threads()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme::comm
