// One price: what the terms of a strategy add up to, node by node and value by value, is the price of the program that
// partition makes of it, to the picosecond.
#include <gtest/gtest.h>

#include "tests/equivalence/case.h"
#include "trireme/partition/strategy_price.h"

namespace trireme::equivalence::price_test {
namespace {

constexpr uint32_t kPricedCases = 2000;

// Makes an output that each rank has a whole term of the mean of them.
bool take_a_mean(const Graph& graph, Strategy& strategy) {
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueId value = graph.outputs()[i].value;
    const Layout& have = layouts[static_cast<size_t>(value)];
    const bool fits = have.is_replicated() && graph.value(value).producer >= 0 && strategy.mesh.axes() > 0;
    if (!fits || graph.type(value).dtype != DType::kF32) continue;
    strategy.means[i] = {0};
    strategy.outputs[i] = have;
    return true;
  }
  return false;
}

TEST(Price, of_random_strategies_is_that_of_their_programs) {
  int priced = 0, windows = 0, means = 0;
  int64_t delivered = 0;
  for (uint32_t seed = 1; seed <= kPricedCases; ++seed) {
    Case test = random_case(seed);
    if (test.by_hand) continue;
    if (seed % 5 == 0) means += take_a_mean(test.graph, test.strategy) ? 1 : 0;
    const PartitionOptions options = partition_options(test, test.graph, test.strategy.mesh);
    const CostModel model(test.strategy.mesh, {options.costs, machine_of(test)});

    const StrategyPrice price = StrategyPricer(test.graph, options, model).price(test.strategy);

    const Program program = partition(test.graph, test.strategy, options);
    ASSERT_EQ(price.total_ps(), price_ps(program, model)) << "seed " << seed;
    ++priced;
    for (const int64_t value : price.values) delivered += value > 0 ? 1 : 0;
    for (const Node& node : program.graph.nodes()) {
      const auto& collective = def_of(node).collective;
      windows += collective && collective->work == GroupWork::kExchange ? 1 : 0;
    }
  }
  EXPECT_GT(priced, 1500);
  EXPECT_GT(delivered, 10000);
  EXPECT_GT(windows, 20);
  EXPECT_GT(means, 20);
}

}  // namespace
}  // namespace trireme::equivalence::price_test
