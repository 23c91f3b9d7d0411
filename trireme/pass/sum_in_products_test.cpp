// Sums that products add to, and those that stay by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/grad/gradients.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/parameter_names.h"
#include "trireme/pass/passes.h"

namespace trireme::sum_in_products_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> after_pass(const Graph& graph, const PassOptions& options = {}) {
  const Pass& pass = find_pass("sum_in_products");
  Program program = partition(graph, semi_auto(graph, 1, {}));
  if (pass.asked_for(options)) program = pass.run(std::move(program), options);
  EXPECT_THAT(verify(program), IsEmpty());
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) out.emplace_back(node.op->name);
  return out;
}

// Two gradients of a weight; `reads` is given them and their sum.
template <class Fn>
Graph two_terms(Fn reads, bool is_swapped = false) {
  Graph graph("terms");
  const auto data = [&](const char* name, int64_t width) {
    return Tensor(graph, graph.add_input(name, {DType::kF32, {2, 4, width}}, Role::kData));
  };
  const Tensor first = linear_weight_grad(data("x0", 6), data("y0", 5));
  const Tensor second = linear_weight_grad(data("x1", 6), data("y1", 5));
  const Tensor sum = is_swapped ? add(second, first) : add(first, second);
  reads(graph, first, second, sum);
  return graph;
}

TEST(SumInProducts, the_later_product_adds_to_the_earlier_one) {
  for (const bool is_swapped : {false, true}) {
    const Graph graph = two_terms(
        [](Graph& of, const Tensor&, const Tensor&, const Tensor& sum) { of.add_output("sum", sum.id()); }, is_swapped);
    EXPECT_THAT(after_pass(graph), ElementsAre("linear_weight_grad", "linear_weight_grad_onto"));
  }
}

TEST(SumInProducts, what_others_read_stays) {
  const auto stays = ElementsAre("linear_weight_grad", "linear_weight_grad", "add");
  EXPECT_THAT(after_pass(two_terms([](Graph& of, const Tensor& first, const Tensor&, const Tensor& sum) {
                of.add_output("first", first.id());
                of.add_output("sum", sum.id());
              })),
              stays);
  EXPECT_THAT(after_pass(two_terms([](Graph& of, const Tensor&, const Tensor& second, const Tensor& sum) {
                of.add_output("second", second.id());
                of.add_output("sum", sum.id());
              })),
              stays);
  EXPECT_THAT(after_pass(two_terms([](Graph& of, const Tensor& first, const Tensor&, const Tensor& sum) {
                of.add_output("sum", sum.id());
                of.add_output("square", square(first).id());
              })),
              ElementsAre("linear_weight_grad", "linear_weight_grad", "add", "square"));
}

TEST(SumInProducts, gradients_with_homes_of_their_own_stay_by_themselves) {
  const Graph graph =
      two_terms([](Graph& of, const Tensor&, const Tensor&, const Tensor& sum) { of.add_output("sum", sum.id()); });
  const auto stays = ElementsAre("linear_weight_grad", "linear_weight_grad", "add");
  EXPECT_THAT(after_pass(graph, {.homes = {{.parameters = "*", .of = Held::kGradient, .home = Tier::kHost}}}), stays);
  EXPECT_THAT(after_pass(graph, {.on_host = {.rules = {parse_host_rule("*/add = host")}}}), stays);
  const auto joins = ElementsAre("linear_weight_grad", "linear_weight_grad_onto");
  EXPECT_THAT(after_pass(graph, {.homes = {{.parameters = "*", .of = Held::kState, .home = Tier::kHost}}}), joins);
  EXPECT_THAT(after_pass(graph, {.on_host = {.updates = true}}), joins);
}

// By it parameters of collectives are found.
TEST(SumInProducts, the_sum_is_known_as_the_gradient_that_its_terms_were) {
  Graph graph("gradient");
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {6, 5}}, Role::kParameter));
  const auto loss_of = [&](const char* name) {
    return reduce_sum(square(matmul(Tensor(graph, graph.add_input(name, {DType::kF32, {4, 6}}, Role::kData)), w)));
  };
  const Tensor first = gradients(loss_of("x0"), std::vector<Tensor>{w})[0];
  const Tensor second = gradients(loss_of("x1"), std::vector<Tensor>{w})[0];
  graph.add_output("gradient", add(first, second).id());
  const Program program = find_pass("sum_in_products").run(partition(graph, semi_auto(graph, 1, {})), {});
  const Graph& after = program.graph;
  ASSERT_EQ(after.node(after.value(after.outputs()[0].value).producer).op->name, "linear_weight_grad_onto");
  EXPECT_EQ(parameter_names(after)[static_cast<size_t>(after.outputs()[0].value)], "w");
}

}  // namespace
}  // namespace trireme::sum_in_products_test
