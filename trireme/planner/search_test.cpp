#include "trireme/planner/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/ops/ops.h"
#include "trireme/planner/candidates.h"
#include "trireme/planner/solver/budget.h"
#include "trireme/planner/strategy_problem.h"

namespace trireme::search_test {
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
  const std::vector<AxisGroup> axes = prime_axes(mesh);
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
        search_strategy(graph, mesh, {.kind = SearchKind::kDynamicProgramming}, {options, rates(mesh)});

    EXPECT_EQ(found.price.time_ps, brute_force_ps(graph, mesh, options)) << rows << " " << inner << " " << columns;
    EXPECT_EQ(found.bound_ps, found.price.time_ps);
    const StepPrice priced = price_of(graph, found.strategy, {options, rates(mesh)});
    EXPECT_EQ(found.price, priced.price);
    EXPECT_EQ(found.moved_ps, priced.moved_ps);
    const Program program = partition(graph, found.strategy, options);
    EXPECT_EQ(price_ps(program, CostModel(mesh, rates(mesh))), found.price.time_ps);
  }
}

// A value that several ops read, and a sum of what they make.
Graph many_readers(int readers) {
  Graph graph("many_readers");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {256, 64}}, Role::kData));
  const Tensor made = relu(x);
  Tensor sum = made;
  for (int i = 0; i < readers; ++i) {
    const Tensor weight(graph, graph.add_input(fmt::format("w{}", i), {DType::kF32, {64, 64}}, Role::kParameter));
    sum = add(sum, matmul(made, weight));
  }
  graph.add_output("y", sum.id());
  return graph;
}

int64_t least_ps(const Graph& graph, const Mesh& mesh, double most_rows, bool& limited) {
  const PartitionOptions options{.costs = rates(mesh).links};
  const CostModel model(mesh, rates(mesh));
  const Units units(graph);
  StrategySpace space{.base = {.mesh = mesh}, .axes = prime_axes(mesh), .most_rows = most_rows};
  for (const Input& input : graph.inputs())
    space.base.inputs.push_back(Layout::replicated(graph.type(input.value).shape.rank()));
  for (size_t i = 0; i < graph.nodes().size(); ++i)
    space.base.nodes.push_back(uncut(units.rule(static_cast<NodeId>(i))));
  const StrategyProblem problem(graph, units, space, options, model);
  limited = problem.is_limited();
  const std::optional<solver::Choice> found = solver::cheapest(problem.problem());
  EXPECT_EQ(price_ps(partition(graph, problem.strategy(*found), options), model), found->price.time_ps);
  return found->price.time_ps;
}

// A value's readers in one table, and one after the other.
TEST(Search, takes_readers_in_turn_for_the_same_price) {
  for (const auto& [readers, mesh] : {std::pair{1, "tp=2"}, {2, "tp=2"}, {4, "tp=2"}, {1, "dp=2,tp=2"}}) {
    const Graph graph = many_readers(readers);
    bool limited = false, limited_in_turn = false;

    const int64_t at_once = least_ps(graph, parse_mesh(mesh), 1e9, limited);
    const int64_t in_turn = least_ps(graph, parse_mesh(mesh), 1, limited_in_turn);

    EXPECT_FALSE(limited);
    EXPECT_FALSE(limited_in_turn);
    EXPECT_EQ(at_once, in_turn) << readers << " readers over " << mesh;
  }
}

TEST(Search, of_a_value_that_many_ops_read_is_found) {
  bool limited = false;

  EXPECT_GT(least_ps(many_readers(20), parse_mesh("tp=2"), 1 << 16, limited), 0);
}

// Three pairs of products that have nothing but x in common, made in this order.
Graph branches(const std::vector<size_t>& order) {
  constexpr int64_t kRows[] = {12, 48, 96};
  Graph graph("branches");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {96, 24}}, Role::kData));
  for (const size_t i : order) {
    const auto weight = [&](const char* name, Shape shape) {
      return Tensor(graph,
                    graph.add_input(fmt::format("{}{}", name, i), {DType::kF32, std::move(shape)}, Role::kParameter));
    };
    const Tensor first = weight("first", {24, kRows[i]}), second = weight("second", {kRows[i], 36});
    graph.add_output(fmt::format("y{}", i), matmul(relu(matmul(x, first)), second).id());
  }
  return graph;
}

SearchResult by_all_axes(const Graph& graph, const Mesh& mesh, const Rates& by) {
  return search_strategy(graph, mesh, {.kind = SearchKind::kDynamicProgramming}, {{.costs = by.links}, by});
}

// Over axes of one name. (Which reader of a value is served first decides what others share of its way, so that where
// axes are taken in several orders another order of ops can have a better best.)
TEST(Search, finds_the_same_for_ops_in_another_order) {
  const Mesh mesh = parse_mesh("dp=6");
  std::vector<size_t> order{0, 1, 2};
  const int64_t first = by_all_axes(branches(order), mesh, rates(mesh)).price.time_ps;
  while (std::ranges::next_permutation(order).found)
    EXPECT_EQ(by_all_axes(branches(order), mesh, rates(mesh)).price.time_ps, first);
}

TEST(Search, finds_the_same_for_axes_of_other_names) {
  for (const auto& [rows, inner, columns] :
       {std::tuple{96, 96, 96}, std::tuple{6, 384, 768}, std::tuple{768, 12, 48}, std::tuple{24, 24, 480}}) {
    const Graph graph = two_products(rows, inner, columns);
    const Mesh mesh = parse_mesh("dp=2,tp=3");
    const SearchResult found = by_all_axes(graph, mesh, rates(mesh));
    EXPECT_GT(found.price.time_ps, 0);
    for (const char* named : {"tp=2,dp=3", "z=2,a=3", "a=2,z=3"}) {
      const SearchResult other = by_all_axes(graph, parse_mesh(named), rates(mesh));
      EXPECT_EQ(other.price.time_ps, found.price.time_ps) << named;
      EXPECT_EQ(other.strategy.inputs, found.strategy.inputs) << named;
    }
  }
}

// Where the links are alike nothing tells the axes apart but their sizes.
TEST(Search, finds_the_same_for_axes_in_another_order) {
  for (std::vector<MeshAxis> axes :
       {std::vector<MeshAxis>{{"dp", 2}, {"tp", 3}}, {{"dp", 4}, {"tp", 2}}, {{"dp", 2}, {"sp", 2}, {"tp", 3}}}) {
    for (const auto& [rows, inner, columns] :
         {std::tuple{96, 96, 96}, std::tuple{6, 384, 768}, std::tuple{768, 12, 48}, std::tuple{24, 24, 480}}) {
      const Graph graph = two_products(rows, inner, columns);
      std::ranges::sort(axes, {}, &MeshAxis::name);
      std::optional<int64_t> first;
      do {
        const Mesh mesh(axes);
        Rates alike = rates(mesh);
        std::ranges::fill(alike.links.axes, alike.links.axes[0]);
        const int64_t ps = by_all_axes(graph, mesh, alike).price.time_ps;
        if (!first) first = ps;
        EXPECT_EQ(ps, *first) << to_string(mesh) << " " << rows << " " << inner << " " << columns;
      } while (std::ranges::next_permutation(axes, {}, &MeshAxis::name).found);
    }
  }
}

// Of one row nothing but the weights can be cut: columns, then rows, and one sum.
TEST(Search, cuts_the_weights_of_two_products_as_a_person_does) {
  const Mesh mesh = parse_mesh("tp=4");
  const Graph graph = two_products(1, 1024, 4096);

  const SearchResult found = search_strategy(graph, mesh, {.kind = SearchKind::kRecursiveProgramming},
                                             {{.costs = rates(mesh).links}, rates(mesh)});

  EXPECT_EQ(to_string(found.strategy.inputs[1], mesh), "[-, tp]");
  EXPECT_EQ(to_string(found.strategy.inputs[2], mesh), "[tp, -]");
}

// Of a step of days, whose picoseconds tables do not hold, a search finds what it finds of one that is a billion times
// as fast, and tells its time to the picosecond.
TEST(Search, of_a_step_of_days_rounds_the_times_of_its_tables_and_not_what_it_tells) {
  const Mesh mesh = parse_mesh("dp=2,tp=2");
  const Graph graph = two_products(512, 256, 384);
  Rates slow = rates(mesh);
  constexpr double kSlower = 1e9;
  slow.machine->flops_per_s["f32"] /= kSlower;
  slow.machine->memory_bytes_per_s /= kSlower;
  slow.links.step_s *= kSlower;
  for (auto& axis : slow.links.axes) axis.latency_s *= kSlower, axis.bytes_per_s /= kSlower;
  const auto search = [&](SearchKind kind, const Rates& by) {
    return search_strategy(graph, mesh, {.kind = kind}, {{.costs = by.links}, by});
  };
  for (const SearchKind kind : {SearchKind::kDynamicProgramming, SearchKind::kRecursiveProgramming}) {
    const SearchResult found = search(kind, slow);
    const PartitionOptions options{.costs = slow.links};

    EXPECT_GT(found.price.time_ps, int64_t{1} << 57) << "the case";
    EXPECT_EQ(found.price.time_ps, price_ps(partition(graph, found.strategy, options), CostModel(mesh, slow)));
    EXPECT_LE(found.bound_ps, found.price.time_ps);
    EXPECT_NEAR(static_cast<double>(found.bound_ps) / static_cast<double>(found.price.time_ps), 1, 1e-9);
    EXPECT_EQ(to_string(found.strategy.inputs[1], mesh), to_string(search(kind, rates(mesh)).strategy.inputs[1], mesh));
  }
}

TEST(Search, that_would_take_longer_than_can_be_counted_says_so) {
  const Mesh mesh = parse_mesh("tp=2");
  Rates slow = rates(mesh);
  slow.machine->flops_per_s["f32"] = 1;
  try {
    search_strategy(two_products(512, 256, 384), mesh, {.kind = SearchKind::kDynamicProgramming},
                    {{.costs = slow.links}, slow});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("a training step takes more than 100 days by the rates of its machine"));
  }
}

TEST(Search, within_less_memory_takes_longer_and_fits) {
  const Mesh mesh = parse_mesh("dp=4");
  const Graph graph = two_products(4096, 512, 512);  // parameters of 2 MiB, and x of 8
  const PartitionOptions options{.costs = rates(mesh).links};
  const auto search = [&](int64_t bytes) {
    return search_strategy(graph, mesh, {.kind = SearchKind::kDynamicProgramming}, {options, rates(mesh), bytes});
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

TEST(Search, limits_the_ways_to_cut_an_op) {
  const Mesh mesh = parse_mesh("dp=2,tp=2");
  const Graph graph = two_products(48, 64, 64);
  const Node& product = graph.nodes()[0];
  const RuleOf rule = rule_of(graph, product);
  const auto all = [&](const SearchOptions& limits) {
    return candidates(graph, 0, *rule, uncut(*rule), prime_axes(mesh), mesh, {.limits = limits});
  };
  const auto parts = [&](const FactorCuts& cuts) {
    int64_t out = 1;
    for (const Axes& axes : cuts.axes) out *= mesh.size_of(axes);
    return out;
  };
  EXPECT_TRUE(std::ranges::any_of(all({}), [&](const FactorCuts& cuts) { return parts(cuts) < 4; }));
  for (const FactorCuts& cuts : all({.fully_use_devices = true})) EXPECT_EQ(parts(cuts), 4);
  for (const FactorCuts& cuts : all({.align_slices = true, .slice_align = 32})) {
    const std::vector<Layout> operands = operand_layouts(*rule, cuts);
    EXPECT_LE(operands[0].cuts(1, mesh), 2) << "pieces of the last dimension are multiples of 32";
    EXPECT_LE(operands[1].cuts(1, mesh), 2);
  }

  const PartitionOptions options{.costs = rates(mesh).links};
  for (const SearchOptions& limits :
       {SearchOptions{.elementwise_follow = true}, {.approximate = true, .epsilon = 0.25}}) {
    SearchOptions limited = limits;
    limited.kind = SearchKind::kDynamicProgramming;
    const SearchResult found = search_strategy(graph, mesh, limited, {options, rates(mesh)});
    const SearchResult free =
        search_strategy(graph, mesh, {.kind = SearchKind::kDynamicProgramming}, {options, rates(mesh)});
    EXPECT_GE(found.price.time_ps, free.price.time_ps);
    if (!limits.elementwise_follow) continue;
    const std::vector<Layout> made = value_layouts(graph, found.strategy);
    EXPECT_EQ(operand_layouts(*rule_of(graph, graph.nodes()[1]), found.strategy.nodes[1])[0],
              made[static_cast<size_t>(graph.nodes()[1].inputs[0])]);
  }
}

// Those that stay are the given cuts and the cheapest others.
TEST(Search, looks_at_as_many_ways_as_are_asked_for) {
  const std::vector<int64_t> ps{9, 4, 7, 3, 8};
  EXPECT_THAT(looked_at(ps, {}), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(looked_at(ps, {.approximate = true, .epsilon = 0.25}), testing::ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(looked_at(ps, {.approximate = true, .epsilon = 1}), testing::ElementsAre(0));
  EXPECT_THAT(looked_at(ps, {.approximate = true}), testing::ElementsAre(0, 1, 2, 3, 4));
}

// The documented table of costs between an activation function that is cut (2,4) and the product that reads it: of the
// ways to cut the product, which exchange is needed, and that none is the cheapest.
TEST(Search, contracts_7_2_prices_a_product_after_an_activation_function_by_what_is_exchanged) {
  const Mesh mesh = parse_mesh("dp=2,tp=4");
  const Graph graph = two_products(64, 32, 64);
  const PartitionOptions options{.costs = rates(mesh).links};
  const CostModel model(mesh, rates(mesh));
  StrategyPricer pricer(graph, options, model);
  const ValueId active = graph.nodes()[1].outputs[0];
  const Layout have = parse_layout("[dp, tp]", mesh, 2);
  const auto ps = [&](const char* wanted) {
    return pricer.value(active, have, {{parse_layout(wanted, mesh, 2), Phase::kForward}});
  };
  EXPECT_EQ(ps("[dp, tp]"), 0);         // ((2,4), (4,1))
  EXPECT_GT(ps("[dp*tp.0, tp.1]"), 0);  // ((4,2), (2,1)): an exchange
  EXPECT_GT(ps("[dp*tp, -]"), 0);       // ((8,1), (1,1))
  EXPECT_GT(ps("[-, dp*tp]"), 0);       // ((1,8), (8,1))
}

TEST(Search, is_for_ranks_alone) {
  try {
    search_strategy(two_products(8, 8, 8), parse_mesh("dp=2,micro_batch=2"), {}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("which has micro-batches: search over its ranks"));
  }
}

}  // namespace
}  // namespace trireme::search_test
