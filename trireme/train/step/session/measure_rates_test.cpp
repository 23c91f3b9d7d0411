#include "trireme/train/step/session/measure_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "trireme/parallel/parallel.h"

namespace trireme::measure_rates_test {
namespace {

TEST(MeasureRates, are_the_same_on_all_ranks_and_of_every_axis) {
  std::array<Machine, 4> rates;
  const Mesh mesh = with_micro_batches(parse_mesh("dp=2,tp=2"), 2);
  comm::spawn_ranks(4, "threads", [&](comm::World& world) {
    ThreadPool pool(1);
    rates[static_cast<size_t>(world.rank())] = measure_rates(world, pool, mesh, cpu_device());
  });
  const ReshardCosts links = reshard_costs(Communication{.machine = rates[0]}, mesh);
  ASSERT_EQ(links.axes.size(), static_cast<size_t>(mesh.axes()));
  for (int axis = 0; axis < 2; ++axis) {  // the third is of the micro-batches
    EXPECT_EQ(links.of(axis).latency_s, rates[0].levels[static_cast<size_t>(1 - axis)].latency_s);
    EXPECT_GT(links.of(axis).latency_s, 0);
    EXPECT_GT(links.of(axis).bytes_per_s, 0);
  }
  EXPECT_GT(rates[0].flops_of("f32"), 1e8);
  EXPECT_GT(rates[0].memory_bytes_per_s, 1e7);
  EXPECT_EQ(parse_machine(to_string(rates[0])), rates[0]) << "what a run writes down is what it measured";
  for (const Machine& other : rates) EXPECT_EQ(other, rates[0]);
}

TEST(MeasureRates, what_computing_loses_to_a_sum_beside_it_is_a_share_and_the_same_on_all_ranks) {
  std::array<double, 2> lost = {-1, -1};
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    ThreadPool pool(1);
    lost[static_cast<size_t>(world.rank())] = measure_overlap_slowdown(world, pool);
  });
  EXPECT_GE(lost[0], 0);
  EXPECT_LE(lost[0], 1);
  EXPECT_EQ(lost[0], lost[1]);
}

// What joins crews is a level of its own, and all there is where a crew is one rank.
TEST(MeasureRates, of_a_pipeline_are_those_of_a_crews_axes_and_between_crews) {
  const auto levels_of = [](int ranks, const Mesh& mesh) {
    std::vector<std::pair<std::string, int64_t>> out;
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
      ThreadPool pool(1);
      const Machine rates = measure_rates(world, pool, mesh, cpu_device());
      if (world.rank() > 0) return;
      for (const LinkLevel& level : rates.levels) out.emplace_back(level.name, level.devices);
    });
    return out;
  };
  using Levels = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(levels_of(2, with_micro_batches(Mesh(), 4)), (Levels{{"crews", 2}}));
  EXPECT_EQ(levels_of(4, with_micro_batches(parse_mesh("dp=2"), 4)), (Levels{{"dp", 2}, {"crews", 4}}));
}

}  // namespace
}  // namespace trireme::measure_rates_test
