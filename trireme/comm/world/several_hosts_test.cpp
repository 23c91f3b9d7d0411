// Groups whose ranks take themselves to be on several hosts.
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::several_hosts_test {
namespace {

class SeveralHosts : public testing::TestWithParam<std::string> {};

std::vector<std::string> transports_between_hosts() {
  std::vector<std::string> out = transports_of_threads();
  std::erase(out, "shm");
  return out;
}

INSTANTIATE_TEST_SUITE_P(Comm, SeveralHosts, testing::ValuesIn(transports_between_hosts()),
                         [](const auto& instance) { return instance.param; });

// Of all reductions of these ranks' values: f32 whose sums depend on their order, whole numbers, bf16.
std::vector<HostTensor> reductions(World& world, int64_t piece) {
  const int64_t whole = piece * world.size();
  std::vector<HostTensor> out;
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kBF16}) {
    HostTensor values(TensorType{dtype, Shape{whole}});
    uint32_t bits = 1 + static_cast<uint32_t>(world.rank());
    for (int64_t i = 0; i < whole; ++i) {
      bits = bits * 1664525 + 1013904223;
      const auto at = static_cast<size_t>(i);
      if (dtype == DType::kF32) values.as<float>()[at] = static_cast<float>(static_cast<int32_t>(bits)) * 1e-3F;
      if (dtype == DType::kI32) values.as<int32_t>()[at] = static_cast<int32_t>(bits);
      if (dtype == DType::kBF16) values.as<BFloat16>()[at] = BFloat16(static_cast<float>(bits >> 20));
    }
    for (const Reduce op : {Reduce::kSum, Reduce::kMax}) {
      HostTensor own(TensorType{dtype, Shape{piece}});
      world.all().reduce_scatter(values.view(), own.view(), op).wait();
      out.push_back(std::move(own));
    }
    world.all().all_reduce(values.view(), Reduce::kSum).wait();
    out.push_back(std::move(values));
  }
  return out;
}

TEST_P(SeveralHosts, SumsWithinHostsFirstHaveTheBitsOfOneHost) {
  for (const auto& [size, on_host] : {std::pair{4, 2}, {6, 2}, {8, 4}, {6, 3}, {5, 2}}) {
    for (const int64_t piece : {1, 50'001}) {
      std::vector<std::vector<HostTensor>> one(static_cast<size_t>(size));
      spawn_ranks(size, "threads",
                  [&](World& world) { one[static_cast<size_t>(world.rank())] = reductions(world, piece); });
      spawn_ranks(
          size, GetParam(),
          [&, size = size](World& world) {
            const std::vector<HostTensor> several = reductions(world, piece);
            const std::vector<HostTensor>& same = one[static_cast<size_t>(world.rank())];
            for (size_t i = 0; i < several.size(); ++i) {
              const View a = several[i].view(), b = same[i].view();
              EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())), 0)
                  << size << " ranks, pieces of " << piece << ", reduction " << i << " on rank " << world.rank();
            }
          },
          on_host);
    }
  }
}

}  // namespace
}  // namespace trireme::comm::several_hosts_test
