#include "trireme/grad/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trireme/op/build.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"

namespace trireme::gradients_test {
namespace {

using testing::HasSubstr;

Tensor input(Graph& graph, const std::string& name, Shape shape, DType dtype = DType::kF32) {
  return {graph, graph.add_input(name, {dtype, shape}, Role::kParameter)};
}

std::string error_of(const Tensor& loss, const std::vector<Tensor>& wrt) {
  try {
    gradients(loss, wrt);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::map<std::string, HostTensor> one(const std::string& name, const std::vector<float>& values) {
  std::map<std::string, HostTensor> out;
  out.emplace(name, HostTensor::of<float>({static_cast<int64_t>(values.size())}, values));
  return out;
}

double f64_loss(const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  return interpret(graph, inputs, {.f64 = true}).at("loss").as<double>()[0];
}

TEST(Gradients, the_gradients_of_a_value_used_twice_add_up) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  const Tensor loss = reduce_sum(add(square(x), scale(x, 3)));
  graph.add_output("dx", gradients(loss, {{x}})[0].id());
  const auto out = interpret(graph, one("x", {1, -2}));
  EXPECT_EQ(out.at("dx").as<float>()[0], 5);  // 2 x + 3
  EXPECT_EQ(out.at("dx").as<float>()[1], -1);
}

TEST(Gradients, a_value_the_loss_does_not_depend_on_gets_none) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  const Tensor y = input(graph, "y", {2});
  const Tensor aside = square(y);
  const std::vector<Tensor> grads = gradients(reduce_sum(x), {{x, y, aside}});
  EXPECT_TRUE(grads[0]);
  EXPECT_FALSE(grads[1]);
  EXPECT_FALSE(grads[2]);
}

TEST(Gradients, no_node_is_added_for_what_nobody_asks_for) {
  Graph graph;
  const Tensor x = input(graph, "x", {2, 3});
  const Tensor w = input(graph, "w", {3, 4});
  const Tensor loss = reduce_sum(matmul(x, w));
  gradients(loss, {{w}});
  int products = 0;
  for (const Node& node : graph.nodes()) {
    products += node.op->name == "matmul" || node.op->name == "linear_weight_grad" ? 1 : 0;
  }
  EXPECT_EQ(products, 2) << "the product itself and the weight's gradient, not the input's";
}

TEST(Gradients, of_a_value_on_the_way_is_what_flows_through_it) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  const Tensor h = scale(x, 2);
  const std::vector<Tensor> grads = gradients(reduce_sum(square(h)), {{h, x}});
  graph.add_output("dh", grads[0].id());
  graph.add_output("dx", grads[1].id());
  const auto out = interpret(graph, one("x", {3, 5}));
  EXPECT_EQ(out.at("dh").as<float>()[1], 20);
  EXPECT_EQ(out.at("dx").as<float>()[1], 40);
}

TEST(Gradients, of_a_weight_used_in_bf16_is_not_rounded_to_it) {
  Graph graph;
  const Tensor x = cast(input(graph, "x", {2, 3}), DType::kBF16);
  const Tensor w = input(graph, "w", {3, 4});
  const Tensor b = input(graph, "b", {4});
  const Tensor y = add(matmul(x, cast(w, DType::kBF16)), cast(b, DType::kBF16));
  const Tensor loss = reduce_sum(cast(square(y), DType::kF32));
  const size_t before = graph.nodes().size();
  const std::vector<Tensor> grads = gradients(loss, {{w, b}});
  EXPECT_EQ(grads[0].type(), w.type());
  EXPECT_EQ(grads[1].type(), b.type());
  for (size_t i = before; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op->name != "cast") continue;
    EXPECT_EQ(graph.type(node.outputs[0]).dtype, DType::kBF16) << "a gradient was rounded, then widened";
  }
}

TEST(Gradients, of_a_weight_cast_twice_is_summed_in_f32_and_of_one_in_bf16_is_bf16) {
  Graph graph;
  const Tensor x = input(graph, "x", {2, 3}, DType::kBF16);
  const Tensor w = input(graph, "w", {3, 4});
  const Tensor v = input(graph, "v", {4, 3}, DType::kBF16);
  const Tensor y = matmul(matmul(x, cast(w, DType::kBF16)), v);
  const Tensor z = matmul(y, cast(w, DType::kBF16));
  const std::vector<Tensor> grads = gradients(reduce_sum(cast(z, DType::kF32)), {{w, v}});
  EXPECT_EQ(grads[0].dtype(), DType::kF32);
  EXPECT_EQ(grads[1].dtype(), DType::kBF16);
}

TEST(Gradients, nodes_carry_the_scope_of_what_they_differentiate) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  graph.set_scope("block.0");
  const Tensor h = exp(x);
  graph.set_scope("head");
  const Tensor loss = reduce_sum(h);
  const size_t before = graph.nodes().size();
  gradients(loss, {{x}});
  EXPECT_EQ(graph.scope(), "head");
  bool found = false;
  for (size_t i = before; i < graph.nodes().size(); ++i) {
    found = found || graph.scope_of(graph.nodes()[i]) == "grad/block.0";
  }
  EXPECT_TRUE(found);
}

TEST(Gradients, are_of_the_backward_phase_and_linked_to_what_they_are_of) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  const Tensor h = add(x, exp(x));  // the gradient of h is that of exp(x), and a term of that of x
  const Tensor loss = reduce_sum(square(h));
  const size_t before = graph.nodes().size();
  const Tensor dx = gradients(loss, {{x}})[0];
  EXPECT_EQ(graph.mark().phase, Phase::kForward);
  EXPECT_TRUE(graph.is_gradient(dx.id(), x.id()));
  std::vector<ValueId> of_x, of_h;
  for (const auto& [gradient, of] : graph.gradients()) {
    if (of == x.id()) of_x.push_back(gradient);
    if (of == h.id()) of_h.push_back(gradient);
  }
  EXPECT_EQ(of_x.size(), 3U) << "two terms and their sum";
  EXPECT_EQ(of_x.back(), dx.id()) << "the sum has the highest number";
  ASSERT_EQ(of_h.size(), 1U);
  EXPECT_EQ(graph.gradients_that_are(of_h[0]).size(), 3U) << "of h and of both its terms";
  const Node& sum = graph.node(graph.value(dx.id()).producer);
  EXPECT_EQ(sum.gradient_of, -1) << "it is no single node's";
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    EXPECT_EQ(graph.nodes()[i].phase, i < before ? Phase::kForward : Phase::kBackward) << i;
  }
  EXPECT_THAT(verify(graph), testing::IsEmpty());
}

TEST(Gradients, an_op_without_gradient_is_named_with_its_reason_and_place) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  const Tensor lr = input(graph, "lr", {});
  graph.set_scope("update/x");
  const Tensor loss = reduce_sum(sgd_plain_update(x, x, lr, lr));
  EXPECT_THAT(error_of(loss, {x}), HasSubstr("gradients: op 'sgd_plain_update' at 'update/x' has no gradient: "));
}

TEST(Gradients, a_loss_that_is_no_floating_scalar_is_refused) {
  Graph graph;
  const Tensor x = input(graph, "x", {2});
  EXPECT_THAT(error_of(square(x), {x}), HasSubstr("the loss is f32[2]; it must be a scalar of a floating type"));
  const Tensor n = input(graph, "n", {}, DType::kI32);
  EXPECT_THAT(error_of(n, {x}), HasSubstr("the loss is i32[]; it must be a scalar of a floating type"));
}

TEST(Gradients, nothing_flows_through_whole_numbers) {
  Graph graph;
  const Tensor x = input(graph, "x", {3, 4});
  const Tensor loss = reduce_sum(cast(argmax(x), DType::kF32));
  EXPECT_FALSE(gradients(loss, {{x}})[0]);
}

TEST(Gradients, of_a_composite_model_are_its_slopes) {
  Graph graph;
  const Tensor x = input(graph, "x", {3, 4});
  const Tensor w = input(graph, "w", {4, 5});
  const Tensor b = input(graph, "b", {5});
  const Tensor g = input(graph, "g", {5});
  const Tensor h = gelu(add(matmul(x, w), b));
  const Tensor n = layer_norm(add(h, tanh(h)), g, b).y;
  const Tensor loss = mean(square(sub(softmax(n), sigmoid(matmul(matmul(n, w, false, true), w)))));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> wrt{x, w, b, g};
  const std::vector<Tensor> grads = gradients(loss, wrt);
  const std::vector<std::string> names{"x", "w", "b", "g"};
  for (size_t i = 0; i < wrt.size(); ++i) graph.add_output("d" + names[i], grads[i].id());

  std::mt19937 draw(4);
  std::uniform_real_distribution<double> value(-1, 1);
  std::map<std::string, HostTensor> inputs;
  for (const Input& in : graph.inputs()) {
    HostTensor tensor(TensorType{DType::kF64, graph.type(in.value).shape});
    for (double& v : tensor.as<double>()) v = value(draw);
    inputs.emplace(in.name, std::move(tensor));
  }
  const auto exact = interpret(graph, inputs, {.f64 = true});
  constexpr double kStep = 1e-5;
  for (const std::string& name : names) {
    const auto values = inputs.at(name).as<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      const double kept = values[i];
      values[i] = kept + kStep;
      const double above = f64_loss(graph, inputs);
      values[i] = kept - kStep;
      const double below = f64_loss(graph, inputs);
      values[i] = kept;
      // The central difference errs by step^2 times the third derivative, and rounding over the
      // step.
      EXPECT_NEAR(exact.at("d" + name).as<double>()[i], (above - below) / (2 * kStep), 1e-8) << name << "[" << i << "]";
    }
  }
}

}  // namespace
}  // namespace trireme::gradients_test
