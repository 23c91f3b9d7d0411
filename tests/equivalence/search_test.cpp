// Strategies that a search finds compute what one device computes, and cost what the search says.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/equivalence/case.h"
#include "tests/equivalence/run.h"
#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/planner/search.h"

namespace trireme::equivalence::search_test {
namespace {

// The graph of a random case over 2 to 4 ranks, cut by search.
Case searched(uint32_t seed, const SearchOptions& search, SearchResult& found) {
  const Case drawn = random_case(seed);
  Case test{.graph = drawn.graph, .seed = seed, .steps = drawn.steps};
  const Mesh mesh = parse_mesh(search.kind == SearchKind::kDynamicProgramming ? "tp=2"
                               : seed % 2 == 0                                ? "dp=2,tp=2"
                                                                              : "dp=3");
  test.strategy.mesh = mesh;
  const Rates rates{partition_options(test, test.graph, mesh).costs, machine_of(test)};
  found = search_strategy(test.graph, mesh, search, {partition_options(test, test.graph, mesh), rates});
  test.strategy = found.strategy;
  return test;
}

void expect_the_same(const std::function<SearchOptions(uint32_t seed)>& search_of) {
  int cut = 0, refused = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    if (random_case(seed).by_hand) continue;
    SearchResult found;
    Case test;
    try {
      test = searched(seed, search_of(seed), found);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUnsupported) << error.what();
      ++refused;
      continue;
    }

    const Verdict verdict = run_cases({&test, 1}).front();

    ASSERT_FALSE(verdict.is_bad()) << "seed " << seed << ": " << verdict.text;
    const PartitionOptions options = partition_options(test, test.graph, test.strategy.mesh);
    const CostModel model(test.strategy.mesh, {options.costs, machine_of(test)});
    ASSERT_EQ(price_ps(partition(test.graph, test.strategy, options), model), found.price.time_ps) << "seed " << seed;
    const Program program = partitioned(test);
    cut +=
        std::ranges::any_of(program.graph.nodes(), [](const Node& n) { return is_communication(def_of(n)); }) ? 1 : 0;
  }
  EXPECT_GT(cut, 3);
  EXPECT_EQ(refused, 0);
}

TEST(Search, of_random_graphs_finds_strategies_that_compute_the_same) {
  expect_the_same([](uint32_t seed) -> SearchOptions {
    return {.kind = seed % 3 == 0 ? SearchKind::kDynamicProgramming : SearchKind::kRecursiveProgramming};
  });
}

TEST(Search, by_communication_of_random_graphs_finds_strategies_that_compute_the_same) {
  expect_the_same([](uint32_t) -> SearchOptions {
    return {.kind = SearchKind::kRecursiveProgramming, .cost = SearchCost::kCommunication};
  });
}

}  // namespace
}  // namespace trireme::equivalence::search_test
