#include "trireme/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/hash.h"
#include "trireme/nn/layers.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/ops.h"

namespace trireme::nn::module_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) out.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  return out;
}

int count(const Graph& graph, std::string_view op) {
  int out = 0;
  for (const Node& node : graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

Tensor batch(Graph& graph, Shape shape = {2, 4}) {
  return {graph, graph.add_input("x", {DType::kF32, shape}, Role::kData)};
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct Pair : Module {
  Linear first{4, 4}, second{4, 4};
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

struct Net : Module {
  Linear up{4, 4, {.name = "up"}};
  Pair pair;
  Dropout drop{0.5};
  Tensor forward(const Tensor& x) override { return drop(pair(up(x))); }
};

TEST(Module, parameters_are_named_by_scope_and_unnamed_modules_by_kind_in_order_of_first_calls) {
  Graph graph;
  Net net;
  const Trace trace(graph);
  net(batch(graph));
  EXPECT_THAT(parameters_of(graph), ElementsAre("up.weight f32[4,4]", "up.bias f32[4]", "module.linear.weight f32[4,4]",
                                                "module.linear.bias f32[4]", "module.linear_1.weight f32[4,4]",
                                                "module.linear_1.bias f32[4]"));
}

TEST(Module, the_first_module_is_the_model_and_adds_no_name) {
  Graph graph;
  Linear linear(4, 3);
  const Trace trace(graph);
  linear(batch(graph));
  EXPECT_THAT(parameters_of(graph), ElementsAre("weight f32[3,4]", "bias f32[3]"));
}

TEST(Module, used_twice_it_has_its_parameters_once) {
  Graph graph;
  Linear linear(4, 4, {.name = "shared"});
  const Trace trace(graph);
  linear(linear(batch(graph)));
  EXPECT_THAT(parameters_of(graph), ElementsAre("shared.weight f32[4,4]", "shared.bias f32[4]"));
  EXPECT_EQ(count(graph, "matmul"), 2);
}

TEST(Module, a_tied_weight_is_one_parameter) {
  Graph graph;
  Embedding table(6, 4, {.name = "wte"});
  const Trace trace(graph);
  const Tensor ids(graph, graph.add_input("ids", {DType::kI32, {2, 3}}, Role::kData));
  matmul(table(ids), table.weight(), false, true);
  EXPECT_THAT(parameters_of(graph), ElementsAre("wte.weight f32[6,4]"));
}

TEST(Module, layers_that_compute_in_bf16_cast_their_f32_parameters_once) {
  Graph graph;
  Linear linear(4, 4, {.name = "shared"});
  const Trace trace(graph, {.compute = DType::kBF16});
  const Tensor y = linear(linear(batch(graph)));
  EXPECT_EQ(to_string(y.type()), "bf16[2,4]");
  EXPECT_THAT(parameters_of(graph), ElementsAre("shared.weight f32[4,4]", "shared.bias f32[4]"));
  EXPECT_EQ(count(graph, "cast"), 3) << "x, the weight and the bias";
}

TEST(Module, a_type_that_layers_do_not_compute_in_is_refused) {
  Graph graph;
  EXPECT_THAT(error_of([&] { const Trace trace(graph, {.compute = DType::kF16}); }),
              HasSubstr("layers cannot compute in f16; they compute in f32 or bf16"));
}

TEST(Module, a_parameter_used_again_with_another_type_is_refused) {
  Graph graph;
  Trace trace(graph);
  trace.parameter("w", {DType::kF32, {2}}, {});
  EXPECT_THAT(error_of([&] {
                trace.parameter("w", {DType::kF32, {3}}, {});
              }),
              HasSubstr("parameter 'w' is f32[3] here and f32[2] where it was first used"));
}

TEST(Module, two_traces_of_one_module_give_the_same_names) {
  Net net;
  std::vector<std::vector<std::string>> names;
  for (int i = 0; i < 2; ++i) {
    Graph graph;
    const Trace trace(graph);
    net(batch(graph));
    names.push_back(parameters_of(graph));
  }
  EXPECT_EQ(names[0], names[1]);
}

TEST(Module, outside_a_trace_it_says_where_to_call_it) {
  Graph graph;
  Linear linear(4, 4);
  EXPECT_THAT(error_of([&] { linear(batch(graph)); }), HasSubstr("a module was called outside a trace"));
}

TEST(Module, without_a_forward_it_says_so) {
  Graph graph;
  Module bare("group");
  const Trace trace(graph);
  EXPECT_THAT(error_of([&] { bare(batch(graph)); }), HasSubstr("module 'group' has no forward of one tensor"));
}

TEST(Module, a_trace_inside_a_trace_gives_way_when_it_ends) {
  Graph outer_graph, inner_graph;
  const Trace outer(outer_graph);
  {
    const Trace inner(inner_graph);
    EXPECT_EQ(&Trace::current(), &inner);
  }
  EXPECT_EQ(&Trace::current(), &outer);
}

TEST(Dropout, is_off_in_evaluation_and_on_in_training) {
  for (const bool training : {false, true}) {
    Graph graph;
    Dropout drop(0.5);
    const Trace trace(graph, {.training = training});
    const Tensor x = batch(graph);
    const Tensor y = drop(x);
    EXPECT_EQ(count(graph, "dropout"), training ? 1 : 0);
    EXPECT_EQ(y.id() == x.id(), !training);
  }
}

struct Difference : Module {
  Dropout drop{0.5, "drop"};
  Tensor forward(const Tensor& x) override { return sub(drop(x), sub(drop(x), drop(x))); }
};

TEST(Dropout, draws_anew_at_each_use_and_at_the_first_by_its_scope_alone) {
  Graph graph;
  Difference model;
  const Trace trace(graph, {.seed = 5});
  model(batch(graph));
  std::vector<int64_t> streams;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "dropout") streams.push_back(node.attrs.as<DropoutAttrs>().stream);
  }
  ASSERT_EQ(streams.size(), 3U);
  EXPECT_EQ(streams[0], static_cast<int64_t>(hash64("drop"))) << "the bits of models that use each once stay";
  EXPECT_NE(streams[1], streams[0]);
  EXPECT_NE(streams[2], streams[0]);
  EXPECT_NE(streams[2], streams[1]);
}

TEST(Dropout, a_probability_outside_its_range_is_refused) {
  EXPECT_THAT(error_of([] { Dropout(1.0); }), HasSubstr("Dropout(1): the probability must be in [0, 1)"));
}

TEST(Linear, an_operand_of_another_width_is_refused_with_both) {
  Graph graph;
  Linear linear(5, 3);
  const Trace trace(graph);
  EXPECT_THAT(error_of([&] { linear(batch(graph)); }),
              HasSubstr("Linear(5, 3) got f32[2,4]; the last dimension must be 5"));
  EXPECT_THAT(error_of([] { Linear(0, 3); }), HasSubstr("Linear(0, 3): sizes must be 1 or more"));
}

TEST(Linear, starts_as_pytorch_does_unless_told) {
  Graph graph;
  Linear plain(16, 4, {.name = "plain"});
  Linear normal(16, 16, {.name = "normal", .in_out = true, .init_std = 0.02});
  const Trace trace(graph);
  plain(normal(batch(graph, {2, 16})));
  EXPECT_EQ(to_string(graph.input("plain.weight").init), "uniform(-0.25,0.25)");
  EXPECT_EQ(to_string(graph.input("plain.bias").init), "uniform(-0.25,0.25)");
  EXPECT_EQ(to_string(graph.input("normal.weight").init), "normal(0,0.02)");
  EXPECT_EQ(to_string(graph.input("normal.bias").init), "constant(0)");
}

}  // namespace
}  // namespace trireme::nn::module_test
