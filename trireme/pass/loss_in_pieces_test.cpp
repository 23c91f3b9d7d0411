#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/interpret.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::loss_in_pieces_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Program loss_in_pieces(const Program& program, int64_t pieces) {
  return run_passes(program, {.loss_pieces = pieces, .stop_after = "loss_in_pieces"});
}

using testing::IsEmpty;

std::vector<std::string> remarks(const Program& program, int64_t pieces) {
  std::vector<PassRemark> found;
  (void)run_passes(program, {.loss_pieces = pieces, .stop_after = "loss_in_pieces", .remarks = &found});
  std::vector<std::string> out;
  for (const PassRemark& remark : found) out.push_back(remark.text);
  return out;
}

struct Model {
  Shape positions = {3, 5};
  int64_t width = 8;
  int64_t vocabulary = 11;
  bool transposed = true;  // the weight, as a tied embedding is
  bool trained = true;
  bool norm = false;  // before the product
  Tensor (*total)(const Tensor& losses) = nullptr;
  bool weighted = false;  // the sum, by numbers made after the product
};

// x, perhaps through a norm, times the weight, and the mean cross-entropy; with the gradients of x and the weight.
Program program_of(const Model& model, int ranks = 1) {
  Graph graph("model");
  Shape shape = model.positions;
  shape.push_back(model.width);
  const Tensor x(graph, graph.add_input("x", {DType::kF32, shape}, Role::kData));
  const Tensor labels(graph, graph.add_input("labels", {DType::kI32, model.positions}, Role::kData));
  const Shape sizes = model.transposed ? Shape{model.vocabulary, model.width} : Shape{model.width, model.vocabulary};
  const Tensor weight(graph, graph.add_input("weight", {DType::kF32, sizes}, Role::kParameter));
  const Tensor gamma(graph, graph.add_input("gamma", {DType::kF32, {model.width}}, Role::kParameter));
  const Tensor h = model.norm ? rms_norm(x, gamma).y : mul(x, gamma);
  Tensor losses = cross_entropy(matmul(h, weight, false, model.transposed), labels);
  if (model.weighted) losses = mul(losses, cast(labels, DType::kF32));
  const Tensor loss = model.total != nullptr ? model.total(losses) : mean(losses);
  graph.add_output("loss", loss.id());
  if (model.trained) {
    const std::vector<Tensor> grads = gradients(loss, std::vector<Tensor>{weight, gamma});
    graph.add_output("dweight", grads[0].id());
    graph.add_output("dgamma", grads[1].id());
  }
  return partition(graph, data_parallel(graph, ranks));
}

int count(const Program& program, std::string_view op) {
  int out = 0;
  for (const Node& node : program.graph.nodes()) out += node.op->name == op ? 1 : 0;
  return out;
}

std::map<std::string, HostTensor> inputs_of(const Program& program) {
  std::map<std::string, HostTensor> out;
  uint64_t id = 0;
  for (const Input& input : program.graph.inputs()) {
    HostTensor value(program.graph.type(input.value));
    if (input.name == "labels") {
      int32_t next = 0;
      for (int32_t& label : value.as<int32_t>()) label = 7 * next++ % 11;
    } else {
      fill_uniform01({7, ++id}, 0, 0, value.as<float>());
      for (float& number : value.as<float>()) number = 2 * number - 1;
    }
    out.emplace(input.name, std::move(value));
  }
  return out;
}

void expect_same_results(const Program& before, const Program& after) {
  EXPECT_THAT(verify(after), IsEmpty());
  const auto inputs = inputs_of(before);
  const auto want = interpret(before.graph, inputs);
  const auto got = interpret(after.graph, inputs);
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, tensor] : want) {
    const auto a = tensor.as<float>();
    const auto b = got.at(name).as<float>();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << name << "[" << i << "]";
  }
}

TEST(LossInPieces, every_piece_goes_forward_and_backward_and_the_results_are_the_same) {
  for (const bool transposed : {true, false}) {
    for (const bool norm : {true, false}) {
      const Program before = program_of({.transposed = transposed, .norm = norm});
      const Program after = loss_in_pieces(before, 4);
      EXPECT_EQ(count(after, "cross_entropy"), 4);
      EXPECT_EQ(count(after, "cross_entropy_grad"), 4);
      EXPECT_EQ(count(after, "linear_weight_grad"), 1);
      EXPECT_EQ(count(after, "linear_weight_grad_onto"), 3);
      expect_same_results(before, after);
    }
  }
}

TEST(LossInPieces, the_next_piece_begins_when_the_one_before_is_done) {
  const Program after = loss_in_pieces(program_of({}), 3);
  std::string order;
  for (const Node& node : after.graph.nodes()) {
    if (node.op->name == "cross_entropy") order += 'f';
    if (node.op->name == "cross_entropy_grad") order += 'b';
    if (node.op->name.starts_with("linear_weight_grad")) order += 'w';
  }
  EXPECT_EQ(order, "fbwfbwfbw");
}

TEST(LossInPieces, logits_of_one_piece_are_there_at_a_time) {
  const Model model{.positions = {64, 16}, .width = 16, .vocabulary = 512};
  const int64_t logits = 64 * 16 * 512 * 4;
  const Program before = program_of(model);
  EXPECT_LT(plan_execution(loss_in_pieces(before, 8)).arena().bytes,
            plan_execution(before).arena().bytes - logits * 3 / 4);
}

TEST(LossInPieces, positions_that_pieces_do_not_divide) {
  const Program before = program_of({.positions = {7}});
  for (const int64_t pieces : {2, 3, 5, 7, 100}) expect_same_results(before, loss_in_pieces(before, pieces));
  EXPECT_EQ(count(loss_in_pieces(before, 100), "cross_entropy"), 7);
}

TEST(LossInPieces, more_pieces_than_positions_are_told) {
  const Program before = program_of({.positions = {7}});
  EXPECT_THAT(remarks(before, 7), IsEmpty());
  EXPECT_THAT(remarks(before, 100),
              ElementsAre("loss_pieces: a rank has 7 positions, so there are 7 pieces instead of 100"));
}

TEST(LossInPieces, a_loss_that_is_not_trained_has_pieces_too) {
  const Program before = program_of({.trained = false});
  const Program after = loss_in_pieces(before, 3);
  EXPECT_EQ(count(after, "cross_entropy"), 3);
  expect_same_results(before, after);
}

TEST(LossInPieces, numbers_that_the_gradient_of_the_loss_is_made_of_come_first) {
  const Program before = program_of({.weighted = true});
  const Program after = loss_in_pieces(before, 3);
  EXPECT_EQ(count(after, "cross_entropy"), 3);
  expect_same_results(before, after);
}

TEST(LossInPieces, a_gradient_that_depends_on_the_logits_leaves_the_loss_whole) {
  const Program before = program_of({.total = [](const Tensor& losses) { return mean(square(losses)); }});
  EXPECT_EQ(count(loss_in_pieces(before, 3), "cross_entropy"), 1);
  EXPECT_THAT(remarks(before, 3), ElementsAre(HasSubstr("the loss stays in one piece")));
  expect_same_results(before, loss_in_pieces(before, 3));
}

TEST(LossInPieces, ranks_have_pieces_of_what_they_hold) {
  const Program after = loss_in_pieces(program_of({.positions = {4, 6}}, 2), 3);
  EXPECT_THAT(verify(after), IsEmpty());
  for (const Node& node : after.graph.nodes()) {
    if (node.op->name == "cross_entropy") EXPECT_EQ(after.graph.type(node.outputs[0]).shape, Shape{4});
  }
  EXPECT_EQ(count(after, "cross_entropy"), 3);
}

TEST(LossInPieces, no_pieces_are_refused) {
  const Program before = program_of({});
  EXPECT_THROW((void)loss_in_pieces(before, 0), Error);
  EXPECT_EQ(to_string(loss_in_pieces(before, 1)), to_string(before));
}

}  // namespace
}  // namespace trireme::loss_in_pieces_test
