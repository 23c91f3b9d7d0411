// The gradient of every collective, against differences of a function of all ranks' results.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "tests/multi/hand_cut.h"
#include "tests/multi/tile_grid.h"
#include "tests/worst.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/box_messages.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"

namespace trireme::collective_gradients_test {
namespace {

using namespace testing_support;

using Draw = std::mt19937;
using Collective = std::vector<Tensor> (*)(const std::vector<Tensor>& x, const CollectiveAttrs& attrs);

struct Case {
  std::string name;
  Collective apply;
  std::vector<Shape> operands;
  CollectiveAttrs attrs;
  bool any_rank = false;  // ranks outside all groups may be there
};

struct Setting {
  std::string name;
  Mesh mesh;
  std::vector<std::string> axes;  // of the groups; or
  std::vector<std::vector<int64_t>> groups = {};

  // Whether every rank is in a group.
  bool is_full() const {
    return groups.empty() || static_cast<int64_t>(groups.size() * groups[0].size()) == mesh.devices();
  }

  CollectiveAttrs fill(CollectiveAttrs attrs) const {
    if (!groups.empty()) {
      const CollectiveAttrs listed = over_ranks(groups);
      attrs.ranks = listed.ranks;
      attrs.size = listed.size;
      if (attrs.root < 0) attrs.root += attrs.size;
      return attrs;
    }
    for (const std::string& axis : axes) {
      for (const int prime : mesh.find(axis)) attrs.axes.push_back(prime);
    }
    const std::vector<int> all(attrs.axes.begin(), attrs.axes.end());
    attrs.size = mesh.size_of(all);
    if (attrs.root < 0) attrs.root += attrs.size;
    return attrs;
  }
};

// Rank r's share of the function: f_r = sum w_r (y_r + y_r^2 / 2) of the collective's results y_r,
// with weights w_r of its own. It is quadratic in every element of every rank's operands, so
// central differences of the sum of all f_r are its derivatives whatever their step, but for
// rounding.
Graph share_of(const Case& test, const CollectiveAttrs& attrs) {
  Graph graph("share");
  std::vector<Tensor> x;
  for (size_t i = 0; i < test.operands.size(); ++i) {
    const TensorType type{DType::kF32, test.operands[i]};
    x.emplace_back(graph, graph.add_input(fmt::format("x{}", i), type, Role::kData));
  }
  const std::vector<Tensor> y = test.apply(x, attrs);
  Tensor loss;
  for (size_t i = 0; i < y.size(); ++i) {
    const Tensor w(graph, graph.add_input(fmt::format("w{}", i), y[i].type(), Role::kData));
    const Tensor term = reduce_sum(mul(w, add(y[i], square(y[i]) * 0.5)));
    loss = loss ? add(loss, term) : term;
    graph.add_output(fmt::format("y{}", i), y[i].id());
  }
  const std::vector<Tensor> dx = gradients(loss, x);
  for (size_t i = 0; i < dx.size(); ++i) graph.add_output(fmt::format("dx{}", i), dx[i].id());
  return graph;
}

// f_r of the results.
double value_of(const Pieces& in, const Pieces& out) {
  double sum = 0;
  for (size_t i = 0; in.contains(fmt::format("w{}", i)); ++i) {
    const auto w = in.at(fmt::format("w{}", i)).as<float>();
    const auto y = out.at(fmt::format("y{}", i)).as<float>();
    for (size_t k = 0; k < w.size(); ++k) {
      const double v = y[k];
      sum += static_cast<double>(w[k]) * (v + v * v / 2);
    }
  }
  return sum;
}

constexpr float kStep = 0.25F;

// Operands whose ranks differ by 0.6 and more in every element, in random order: more than the two
// steps by which a difference moves them, so that no maximum changes its rank.
std::vector<Pieces> draw_inputs(Draw& draw, const Graph& graph, int ranks) {
  std::uniform_real_distribution<float> jitter(-0.2F, 0.2F);
  std::uniform_real_distribution<float> weight(-1, 1);
  std::vector<Pieces> out(static_cast<size_t>(ranks));
  std::vector<float> levels(out.size());
  std::iota(levels.begin(), levels.end(), -static_cast<float>(ranks) / 2);
  for (const Input& input : graph.inputs()) {
    for (Pieces& of_rank : out) of_rank.emplace(input.name, HostTensor(graph.type(input.value)));
    for (int64_t k = 0; k < graph.type(input.value).elements(); ++k) {
      std::shuffle(levels.begin(), levels.end(), draw);
      for (size_t r = 0; r < out.size(); ++r) {
        out[r].at(input.name).as<float>()[static_cast<size_t>(k)] =
            input.name.starts_with('x') ? levels[r] + jitter(draw) : weight(draw);
      }
    }
  }
  return out;
}

// An element of an operand that is moved: of one rank, or of all ranks of a group at once.
struct Variable {
  std::vector<int64_t> ranks;
  std::string name;
  size_t element = 0;
};

std::vector<Variable> variables_of(const Case& test, const Setting& setting) {
  std::vector<std::vector<int64_t>> owners;
  for (int64_t rank = 0; rank < setting.mesh.devices(); ++rank) owners.push_back({rank});
  std::vector<Variable> out;
  for (const std::vector<int64_t>& ranks : owners) {
    for (size_t i = 0; i < test.operands.size(); ++i) {
      const auto elements = static_cast<size_t>(test.operands[i].elements());
      for (size_t k = 0; k < elements; ++k) out.push_back({ranks, fmt::format("x{}", i), k});
    }
  }
  return out;
}

struct Measured {
  std::vector<Pieces> at_rest;      // results by rank
  std::vector<double> differences;  // by variable
  double largest = 0;               // |y| that was met
};

Measured measure(const ExecutionPlan& plan, const std::vector<Pieces>& inputs, const std::vector<Variable>& variables) {
  Measured out;
  out.at_rest.resize(inputs.size());
  out.differences.assign(variables.size(), 0);
  std::mutex mutex;
  comm::spawn_ranks(static_cast<int>(inputs.size()), "threads", [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Executor executor(plan, {.world = &world});
    const Pieces at_rest = run_step(executor, inputs[rank]);
    std::vector<double> differences;
    double largest = 0;
    for (const Variable& variable : variables) {
      const bool owns = std::count(variable.ranks.begin(), variable.ranks.end(), world.rank()) > 0;
      double values[2];
      for (const int side : {0, 1}) {
        Pieces moved;
        for (const auto& [name, tensor] : inputs[rank]) moved.emplace(name, tensor.clone());
        if (owns) moved.at(variable.name).as<float>()[variable.element] += side ? kStep : -kStep;
        const Pieces results = run_step(executor, moved);
        values[side] = value_of(moved, results);
        for (const auto& [name, tensor] : results) {
          if (!name.starts_with('y')) continue;
          largest = worse(largest, largest_of(tensor.as<float>()));
        }
      }
      differences.push_back((values[1] - values[0]) / (2 * kStep));
    }
    const std::lock_guard lock(mutex);
    for (const auto& [name, tensor] : at_rest) out.at_rest[rank].emplace(name, tensor.clone());
    for (size_t i = 0; i < differences.size(); ++i) out.differences[i] += differences[i];
    out.largest = worse(out.largest, largest);
  });
  return out;
}

void expect_gradient(const Case& test, const Setting& setting, uint32_t seed) {
  SCOPED_TRACE(fmt::format("{} {}, seed {}", test.name, setting.name, seed));
  Draw draw(seed);
  const CollectiveAttrs attrs = setting.fill(test.attrs);
  const Graph graph = share_of(test, attrs);
  ASSERT_TRUE(verify(graph).empty()) << verify(graph).front();
  const ExecutionPlan plan = plan_by_hand(graph, setting.mesh);
  std::vector<Pieces> inputs = draw_inputs(draw, graph, static_cast<int>(setting.mesh.devices()));
  const std::vector<Variable> variables = variables_of(test, setting);

  const Measured measured = measure(plan, inputs, variables);

  // A variable moves at most one result on each of p ranks. A result is a sum of at most p terms,
  // rounded p times, and weighs at most w (1 + y) with w <= 1; a gradient is a sum of p such
  // weights, with three roundings in each.
  constexpr double kUnit = 0x1p-24;
  const auto p = static_cast<double>(attrs.size);
  const double weight = 1 + measured.largest;
  const double of_differences = p * weight * p * kUnit * measured.largest / kStep;
  const double bound = of_differences + (p + 3) * kUnit * p * weight;
  double largest = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Variable& v = variables[i];
    for (const int64_t rank : v.ranks) {
      const double got = measured.at_rest[static_cast<size_t>(rank)].at("d" + v.name).as<float>()[v.element];
      ASSERT_NEAR(got, measured.differences[i], bound)
          << "d f / d " << v.name << "[" << v.element << "] of rank " << rank;
      largest = worse(largest, std::fabs(got));
    }
  }
  EXPECT_GT(largest, 1000 * bound) << "the gradients are too small to tell anything";
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{
      {"on 2 ranks", Mesh({{"a", 2}}), {"a"}},
      {"on 4 ranks", Mesh({{"a", 4}}), {"a"}},
      {"on the groups [0,2] and [1,3]", Mesh({{"a", 2}, {"b", 2}}), {"a"}},
      {"on the groups [0,1] and [2,3]", Mesh({{"a", 2}, {"b", 2}}), {"b"}},
      {"on 4 ranks in the order [0,2,1,3]", Mesh({{"a", 2}, {"b", 2}}), {"b", "a"}},
      {"on the listed groups [3,0] and [1,2]", Mesh({{"a", 4}}), {}, {{3, 0}, {1, 2}}},
      {"on the listed group [1,3] of 4", Mesh({{"a", 4}}), {}, {{1, 3}}},
  };
  return all;
}

std::vector<Tensor> reduced(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return all_reduce(x, attrs);
}
std::vector<Tensor> broadcasted(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return broadcast(x, attrs);
}
std::vector<Tensor> gathered(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {all_gather(x[0], attrs)};
}
std::vector<Tensor> scattered(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {reduce_scatter(x[0], attrs)};
}
std::vector<Tensor> exchanged(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {all_to_all(x[0], attrs)};
}
std::vector<Tensor> sliced(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {shard_slice(x[0], attrs)};
}

// Windows of two positions more than the block of three, of which neighbours have one each.
WindowAttrs windows_of_five(const CollectiveAttrs& group, int64_t fill) {
  return {.axes = group.axes,
          .ranks = group.ranks,
          .size = group.size,
          .dim = 1,
          .extent = 3 * group.size,
          .offset = -1,
          .step = 3,
          .length = 5,
          .fill = static_cast<double>(fill)};
}
std::vector<Tensor> windows_taken(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {apply1(op("take_windows"), {x[0]}, Attrs::of(windows_of_five(attrs, 1)))};
}
std::vector<Tensor> windows_added(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {apply1(op("add_windows"), {x[0]}, Attrs::of(windows_of_five(attrs, 0)))};
}
std::vector<Tensor> rows_and_columns_of_neighbors(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  return {halo(halo(x[0], attrs, 0, 2, 1), attrs, 1, 0, 2)};
}
// Windows that neither begin with the block nor have all of it.
std::vector<Tensor> windows_aside(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  const int64_t step = attrs.size == 2 ? 1 : 2;
  return {take_windows(x[0], attrs, {.dim = 0, .offset = 1, .step = step, .length = 2})};
}
// The first goes round, the second from the last rank of the group to the first.
std::vector<Tensor> passed_on(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  std::vector<int64_t> round, back(static_cast<size_t>(attrs.size), -1);
  for (int64_t k = 0; k < attrs.size; ++k) round.push_back((k + 1) % attrs.size);
  back.back() = 0;
  return neighbor_exchange(x, attrs, {round, back});
}
// Tiles in two rows where the ranks are even in number and more than two.
std::vector<Tensor> tiles_with_borders(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  const int64_t rows = attrs.size > 2 && attrs.size % 2 == 0 ? 2 : 1;
  return {exchange_borders(x[0], attrs, grid_of_tiles(rows, attrs.size / rows, {1, 2, 1, 1}))};
}
// The first column goes to the next rank's second twice, and once to its own.
std::vector<Tensor> boxes_added(const std::vector<Tensor>& x, const CollectiveAttrs& attrs) {
  BoxesAttrs boxes{.axes = attrs.axes, .ranks = attrs.ranks, .size = attrs.size, .shape = {3, 2}};
  for (int64_t k = 0; k < attrs.size; ++k) {
    boxes.add({k, (k + 1) % attrs.size, {{0, 0}, {2, 1}}, {{0, 1}, {2, 1}}});
    boxes.add({k, (k + 1) % attrs.size, {{0, 0}, {2, 1}}, {{1, 1}, {2, 1}}});
    boxes.add({k, k, {{0, 0}, {2, 1}}, {{0, 1}, {2, 1}}});
  }
  return {apply1(op("exchange_boxes"), {x[0]}, Attrs::of(boxes))};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"sums", reduced, {{3, 4}, {5}}, {.reduction = "sum"}, true},
      {"maxima", reduced, {{3, 4}, {5}}, {.reduction = "max"}, true},
      {"minima", reduced, {{3, 4}, {5}}, {.reduction = "min"}, true},
      {"a gather of rows", gathered, {{2, 3}}, {.dim = 0}},
      {"a gather of columns", gathered, {{2, 3}}, {.dim = 1}},
      {"scattered sums of rows", scattered, {{4, 3}}, {.dim = 0}},
      {"scattered sums of columns", scattered, {{3, 4}}, {.dim = 1}},
      {"scattered maxima", scattered, {{4, 3}}, {.dim = 0, .reduction = "max"}},
      {"scattered minima", scattered, {{4, 3}}, {.dim = 0, .reduction = "min"}},
      {"an exchange of rows for columns", exchanged, {{4, 3}}, {.dim = 0, .from_dim = 1}},
      {"an exchange of columns for rows", exchanged, {{3, 4}}, {.dim = 1, .from_dim = 0}},
      {"an exchange of rows", exchanged, {{8, 2}}, {.dim = 0, .from_dim = 0}},
      {"a broadcast of the first", broadcasted, {{3, 2}, {4}}, {.root = 0}, true},
      {"a broadcast of the last", broadcasted, {{3, 2}, {4}}, {.root = -1}, true},
      {"windows", windows_taken, {{2, 3}}, {}},
      {"sums of windows", windows_added, {{2, 5}}, {}},
      {"rows and columns of neighbors", rows_and_columns_of_neighbors, {{3, 2}}, {}},
      {"windows beside the blocks", windows_aside, {{2, 2}}, {}},
      {"what is passed on", passed_on, {{3, 2}, {2}}, {}, true},
      {"tiles with borders", tiles_with_borders, {{1, 1, 2, 2}}, {}},
      {"boxes that are added", boxes_added, {{2, 2}}, {}},
      {"a slice of rows", sliced, {{4, 3}}, {.dim = 0}},
      {"a slice of columns", sliced, {{3, 4}}, {.dim = 1}},
  };
  return all;
}

class CollectiveGradients : public testing::TestWithParam<size_t> {};

TEST_P(CollectiveGradients, are_the_differences_of_a_function_of_all_ranks_results) {
  for (size_t setting = 0; setting < settings().size(); ++setting) {
    if (!cases()[GetParam()].any_rank && !settings()[setting].is_full()) continue;
    const auto seed = static_cast<uint32_t>(100 * GetParam() + setting + 1);
    expect_gradient(cases()[GetParam()], settings()[setting], seed);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, CollectiveGradients, testing::Range(size_t{0}, cases().size()), [](const auto& about) {
  std::string name = cases()[about.param].name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace trireme::collective_gradients_test
