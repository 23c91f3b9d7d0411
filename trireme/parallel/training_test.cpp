// What plans take from a graph's own word about training, where names and types would mislead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"

namespace trireme::training_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Tensor input(Graph& graph, const std::string& name, Shape shape, Role role = Role::kParameter) {
  return {graph, graph.add_input(name, {DType::kF32, shape}, role)};
}

std::string stored(const Graph& graph, const Strategy& strategy, std::string_view name) {
  return to_string(strategy.inputs[static_cast<size_t>(graph.value(graph.input(name).value).index)], strategy.mesh);
}

// Two weights. The state of "w" has a name that begins with that of the other, "w.m", whose state begins with neither.
TEST(Training, state_is_sliced_with_its_own_parameter_whatever_it_is_called) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const std::vector<Tensor> weights{input(graph, "w", {4, 4}), input(graph, "w.m", {4, 4})};
  const Tensor loss = mean(square(matmul(matmul(x, weights[0]), weights[1])));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, weights);
  const Tensor lr = input(graph, "lr", {}, Role::kSchedule);
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  const Tensor one = constant(graph, {DType::kF32, {}}, 1);
  nn::add_update(Sgd{.momentum = 0.9}, {"w.m", weights[0], grads[0], lr, step, one});
  nn::add_update(Sgd{.momentum = 0.9}, {"v", weights[1], grads[1], lr, step, one});

  const Strategy strategy = semi_auto(graph, 2, {.optimizer = {.level = 1, .threshold_kb = 0, .except = {"w.m"}}});

  EXPECT_EQ(stored(graph, strategy, "w.m.velocity"), "[dp, -]");
  EXPECT_EQ(stored(graph, strategy, "v.velocity"), "[-, -]") << "its parameter is excepted";
}

// As with tensor and optimizer parallelism: the parameter is cut over the ranks of one axis, its state over more.
TEST(Training, an_update_is_cut_as_its_state_where_the_parameter_is_cut_less) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 4});
  const Tensor loss = mean(square(matmul(x, w)));
  graph.add_output("loss", loss.id());
  const Tensor lr = input(graph, "lr", {}, Role::kSchedule);
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  nn::add_update(Sgd{.momentum = 0.9},
                 {"w", w, gradients(loss, std::vector<Tensor>{w})[0], lr, step, constant(graph, {DType::kF32, {}}, 1)});
  const Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  const ValueId velocity = graph.input("w.velocity").value;
  Asks asks;
  asks.inputs.resize(graph.inputs().size());
  asks.inputs[static_cast<size_t>(graph.value(w.id()).index)] = parse_layout("[tp, -]", mesh);
  asks.inputs[static_cast<size_t>(graph.value(velocity).index)] = parse_layout("[tp*dp, -]", mesh);

  const std::vector<Layout> layouts = value_layouts(graph, propagate(graph, mesh, asks));

  for (const Output& output : graph.outputs()) {
    if (output.updates == kNoValue) continue;
    EXPECT_EQ(to_string(layouts[static_cast<size_t>(output.value)], mesh), "[tp*dp, -]") << output.name;
  }
}

// A split whose two results have one type and lie unlike: what `split` and each result's gradient are.
struct TwoOfOneType {
  Graph graph;
  Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  NodeId split = -1;
  NodeId concat = -1;

  TwoOfOneType() {
    const Tensor x = input(graph, "x", {4, 8});
    const std::vector<Tensor> parts = trireme::split(x, 1, {4, 4});
    split = graph.value(parts[0].id()).producer;
    const Tensor loss = add(mean(square(parts[0])), mean(mul(parts[1], input(graph, "c", {4, 4}, Role::kData))));
    graph.add_output("dx", gradients(loss, std::vector<Tensor>{x})[0].id());
    concat = graph.value(graph.outputs()[0].value).producer;
  }
  Strategy strategy() const {
    Asks asks;
    const auto layout = [&](const char* text) { return parse_layout(text, mesh); };
    FactorCuts& cuts = asks.nodes[split];
    cuts.axes.resize(rule_of(graph, graph.node(split))->factors.size());
    cuts.vouched = VouchedLayouts{{layout("[dp, -]")}, {layout("[dp, -]"), layout("[tp, -]")}};
    return propagate(graph, mesh, asks);
  }
};

TEST(Training, gradients_of_two_results_of_one_type_lie_each_as_its_own) {
  const TwoOfOneType test;
  const Strategy strategy = test.strategy();
  const std::optional<VouchedLayouts>& cuts = strategy.nodes[static_cast<size_t>(test.concat)].vouched;
  ASSERT_TRUE(cuts.has_value());
  EXPECT_THAT(to_string(cuts->in[0], test.mesh), StartsWith("[dp, -]"));
  EXPECT_THAT(to_string(cuts->in[1], test.mesh), StartsWith("[tp, -]"));
  EXPECT_THAT(to_string(cuts->out[0], test.mesh), StartsWith("[dp, -]"));
}

// Of a part of a gradient that is itself the gradient of nothing.
TEST(Training, a_part_of_a_gradient_finds_its_operand_as_the_value_lies_that_it_is_the_gradient_of) {
  TwoOfOneType test;
  const ValueId second = test.graph.node(test.concat).inputs[1];
  test.graph.set_mark({.phase = Phase::kBackward, .gradient_of = test.split});
  const Tensor part = scale({test.graph, second}, 2);
  test.graph.add_output("part", part.id());
  const Strategy strategy = test.strategy();
  EXPECT_THAT(to_string(value_layouts(test.graph, strategy)[static_cast<size_t>(part.id())], test.mesh),
              StartsWith("[tp, -]"));
}

// Rules are for the model's code, whose scopes may be called as those of gradients and updates are.
TEST(Training, a_rule_finds_what_the_model_calls_an_update_and_no_sum_of_gradients) {
  Graph graph;
  const Tensor x = input(graph, "x", {8, 4}, Role::kData);
  const Tensor w = input(graph, "w", {4, 4});
  graph.set_scope("update/mine");
  const Tensor h = matmul(x, w);
  const Tensor loss = mean(add(square(h), exp(h)));
  graph.add_output("dw", gradients(loss, std::vector<Tensor>{w})[0].id());
  const auto with_rule = [&](const std::string& pattern, const std::string& cuts) {
    return semi_auto(graph, 2, {.mesh = "dp=2", .ops = {{pattern, cuts}}});
  };

  EXPECT_NO_THROW(with_rule("update/mine/matmul", "[dp, -], [-, -]"));
  try {
    with_rule("grad/update/mine/add", "[dp, -], [dp, -]");
    ADD_FAILURE() << "a sum of gradients is no op of the model";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), HasSubstr("matches no part of the model"));
  }
}

}  // namespace
}  // namespace trireme::training_test
