// A vision transformer over ranks trains as on one device.
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/nn/models/vit.h"
#include "trireme/train/job/strategies.h"

namespace trireme {
namespace {

using namespace testing_support;

constexpr int64_t kImages = 16;
constexpr float kVitRate = 0.1F;

Graph vit_step() {
  nn::Vit model({.height = 8,
                 .width_of_image = 8,
                 .channels = 3,
                 .patch = 4,
                 .layers = 2,
                 .width = 16,
                 .heads = 4,
                 .classes = 10});
  return training_step([&](const Tensor& x) { return model(x); }, class_loss(),
                       {{"x", {DType::kF32, {kImages, 8, 8, 3}}}, {"y", {DType::kI32, {kImages}}}},
                       Sgd{.momentum = 0.9}, {.name = "vit", .seed = 3});
}

Parallel ready_made_vit(int ranks, int64_t tp, int64_t pp, int zero) {
  JobConfig config;
  set_keys(config, {"model.kind=vit", "model.layers=2", "model.width=16", "model.heads=4", "data.kind=synthetic"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  if (pp > 1) config.parallel.gradient_accumulation_steps = 4;
  config.parallel.zero.level = zero;
  config.parallel.zero.threshold_kb = 0;
  return parallel_of(config, ranks);
}

// Softmax does not see what all scores of a query have in common, so a key's bias has no gradient but rounding.
Curve without_key_biases(Curve curve) {
  std::erase_if(curve.tensors, [](const auto& tensor) { return tensor.first.find(".key.bias") != std::string::npos; });
  return curve;
}

void expect_as_one(int ranks, const Parallel& parallel) {
  const Graph graph = vit_step();
  const Curve one = without_key_biases(train_curve(graph, nullptr, {}, kVitRate));
  std::vector<Curve> curves;
  for (Curve& curve : train_curves(graph, ranks, parallel, kVitRate))
    curves.push_back(without_key_biases(std::move(curve)));
  EXPECT_EQ(difference_of_crews(one, curves, rounding_share(graph)), "");
}

TEST(Vit, data_parallel_ranks_train_as_one) {
  expect_as_one(2, ready_made_vit(2, 1, 1, 0));
}
TEST(Vit, tensor_parallel_ranks_train_as_one) {
  expect_as_one(4, ready_made_vit(4, 4, 1, 0));
}
TEST(Vit, ranks_of_all_kinds_train_as_one) {
  expect_as_one(8, ready_made_vit(8, 2, 2, 3));
}

}  // namespace
}  // namespace trireme
