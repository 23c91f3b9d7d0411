#include "trireme/train/measure_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace trireme {
namespace {

TEST(MeasureRates, are_the_same_on_all_ranks_and_of_every_axis) {
  std::array<Rates, 4> rates;
  const Mesh mesh = with_micro_batches(parse_mesh("dp=2,tp=2"), 2);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    ThreadPool pool(1);
    rates[static_cast<size_t>(world.rank())] = measure_rates(world, pool, mesh);
  });
  ASSERT_EQ(rates[0].links.axes.size(), static_cast<size_t>(mesh.axes()));
  for (const LinkCost& link : rates[0].links.axes) {
    EXPECT_GT(link.latency_s, 0);
    EXPECT_GT(link.bytes_per_s, 0);
  }
  EXPECT_GT(rates[0].machine->flops_of("f32"), 1e8);
  EXPECT_GT(rates[0].machine->memory_bytes_per_s, 1e7);
  for (const Rates& other : rates) {
    EXPECT_EQ(other.links.axes, rates[0].links.axes);
    EXPECT_EQ(other.machine, rates[0].machine);
  }
}

}  // namespace
}  // namespace trireme
