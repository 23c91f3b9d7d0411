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

// Where the links are alike nothing tells axes of one size apart.
int64_t least_ps_over(const Case& drawn, const std::vector<MeshAxis>& axes) {
  const Mesh mesh(axes);
  const Case test{.graph = drawn.graph, .seed = drawn.seed, .steps = drawn.steps};
  PartitionOptions options = partition_options(test, test.graph, mesh);
  options.costs.axes.clear();  // all have options.costs.link
  const Rates rates{options.costs, machine_of(drawn)};
  return search_strategy(test.graph, mesh, {.kind = SearchKind::kDynamicProgramming}, {options, rates}).price.time_ps;
}

TEST(Search, of_random_graphs_finds_the_same_price_for_axes_of_other_names_and_in_another_order) {
  int cut = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    const Case test = random_case(seed);
    if (test.by_hand) continue;
    const int64_t other = seed % 2 == 0 ? 2 : 3;

    const int64_t ps = least_ps_over(test, {{"dp", 2}, {"tp", other}});

    ASSERT_EQ(least_ps_over(test, {{"tp", 2}, {"dp", other}}), ps) << "seed " << seed << ", by the axes' names";
    ASSERT_EQ(least_ps_over(test, {{"tp", other}, {"dp", 2}}), ps) << "seed " << seed << ", by the axes' order";
    cut += ps < least_ps_over(test, {}) ? 1 : 0;
  }
  EXPECT_GT(cut, 3);
}

}  // namespace
}  // namespace trireme::equivalence::search_test
