#include "trireme/planner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/ops/ops.h"
#include "trireme/planner/candidates.h"

namespace trireme {
namespace {

// Links and devices between which neither side is negligible.
Rates rates(const Mesh& mesh) {
  Machine machine = Machine::this_host();
  machine.flops_per_s = {{"f32", 1e11}};
  machine.achievable = 0.5;
  machine.memory_bytes_per_s = 2e10;
  ReshardCosts links{.step_s = 1e-6};
  for (int axis = 0; axis < mesh.axes(); ++axis) links.axes.push_back({1e-6 / (axis + 1), 2e9 * (axis + 1)});
  return {links, machine};
}

Graph two_products(int64_t rows, int64_t inner, int64_t columns) {
  Graph graph("two_products");
  const auto input = [&](const char* name, Shape shape, Role role) {
    return Tensor(graph, graph.add_input(name, {DType::kF32, std::move(shape)}, role));
  };
  const Tensor x = input("x", {rows, inner}, Role::kData);
  const Tensor first = input("first", {inner, columns}, Role::kParameter);
  const Tensor second = input("second", {columns, inner}, Role::kParameter);
  graph.add_output("y", matmul(relu(matmul(x, first)), second).id());
  return graph;
}

// The least price of all strategies of the candidates, each partitioned.
int64_t brute_force_ps(const Graph& graph, const Mesh& mesh, const PartitionOptions& options) {
  const CostModel model(mesh, rates(mesh));
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.axes(); ++axis) axes.push_back(axis);
  Strategy strategy{.mesh = mesh};
  for (const Output& output : graph.outputs())
    strategy.outputs.push_back(Layout::replicated(graph.type(output.value).shape.rank()));
  int64_t best = std::numeric_limits<int64_t>::max();
  const std::function<void(size_t)> add_nodes = [&](size_t i) {
    if (i == graph.nodes().size()) {
      try {
        best = std::min(best, price_ps(partition(graph, strategy, options), model));
      } catch (const Error&) {
        // a sum is asked for of what is none
      }
      return;
    }
    const RuleOf rule = rule_of(graph, graph.nodes()[i]);
    for (const FactorCuts& cuts : candidates(graph, static_cast<NodeId>(i), *rule, uncut(*rule), axes, mesh)) {
      strategy.nodes.push_back(cuts);
      add_nodes(i + 1);
      strategy.nodes.pop_back();
    }
  };
  const std::function<void(size_t)> add_inputs = [&](size_t i) {
    if (i == graph.inputs().size()) return add_nodes(0);
    const Shape& shape = graph.type(graph.inputs()[i].value).shape;
    for (const Layout& layout : candidates(shape, Layout::replicated(shape.rank()), axes, mesh)) {
      strategy.inputs.push_back(layout);
      add_inputs(i + 1);
      strategy.inputs.pop_back();
    }
  };
  add_inputs(0);
  return best;
}

TEST(Search, over_all_axes_finds_the_cheapest_of_all_programs) {
  const Mesh mesh = parse_mesh("tp=2");
  for (const auto& [rows, inner, columns] :
       {std::tuple{64, 64, 64}, std::tuple{4, 512, 1024}, std::tuple{1024, 16, 64}}) {
    const Graph graph = two_products(rows, inner, columns);
    const PartitionOptions options{.costs = rates(mesh).links};

    const SearchResult found =
        search_strategy(graph, mesh, options, rates(mesh), {.kind = SearchKind::kDynamicProgramming});

    EXPECT_EQ(found.price.time_ps, brute_force_ps(graph, mesh, options)) << rows << " " << inner << " " << columns;
    EXPECT_EQ(found.bound_ps, found.price.time_ps);
    const Program program = partition(graph, found.strategy, options);
    EXPECT_EQ(price_ps(program, CostModel(mesh, rates(mesh))), found.price.time_ps);
  }
}

// Of one row nothing but the weights can be cut: columns, then rows, and one sum.
TEST(Search, cuts_the_weights_of_two_products_as_a_person_does) {
  const Mesh mesh = parse_mesh("tp=4");
  const Graph graph = two_products(1, 1024, 4096);

  const SearchResult found = search_strategy(graph, mesh, {.costs = rates(mesh).links}, rates(mesh));

  EXPECT_EQ(to_string(found.strategy.inputs[1], mesh), "[-, tp]");
  EXPECT_EQ(to_string(found.strategy.inputs[2], mesh), "[tp, -]");
}

TEST(Search, within_less_memory_takes_longer_and_fits) {
  const Mesh mesh = parse_mesh("dp=4");
  const Graph graph = two_products(4096, 512, 512);  // parameters of 2 MiB, and x of 8
  const PartitionOptions options{.costs = rates(mesh).links};
  const auto search = [&](int64_t bytes) {
    return search_strategy(graph, mesh, options, rates(mesh), {SearchKind::kDynamicProgramming, bytes});
  };

  const SearchResult all = search(0);
  const SearchResult less = search(all.price.bytes - 1);

  EXPECT_LT(less.price.bytes, all.price.bytes);
  EXPECT_GT(less.price.time_ps, all.price.time_ps);
  EXPECT_EQ(less.bound_ps, less.price.time_ps);
  try {
    search(1000);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no strategy of graph 'two_products' over mesh 'dp=4' fits in 1000 "
                                                 "bytes on each device: the smallest needs 2621440 for parameters"));
  }
}

TEST(Search, is_for_ranks_alone) {
  try {
    search_strategy(two_products(8, 8, 8), parse_mesh("dp=2,micro_batch=2"), {}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("micro-batches are not searched yet"));
  }
}

}  // namespace
}  // namespace trireme
