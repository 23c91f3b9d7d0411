// Models that see all positions at once, BERT, T5's encoder and vision transformers, train over ranks as on one device.
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "trireme/nn/models/bert.h"
#include "trireme/nn/models/t5.h"
#include "trireme/nn/models/vit.h"
#include "trireme/ops/loss/counted_loss.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::encoders_test {
namespace {

using namespace testing_support;

constexpr int64_t kSamples = 16;
constexpr float kEncoderRate = 0.1F;

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
                       {{"x", {DType::kF32, {kSamples, 8, 8, 3}}}, {"y", {DType::kI32, {kSamples}}}},
                       Sgd{.momentum = 0.9}, {.name = "vit", .seed = 3});
}

// Of the targets, numbers below 10, those of one value are not to be told.
CountedLoss hidden_loss(const Tensor& logits, const Tensor& target) {
  return cross_entropy_counted(logits, target, {.ignore_index = 7});
}

Graph bert_step() {
  nn::Bert model({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4});
  return training_step([&](const Tensor& x) { return model(x); }, hidden_loss,
                       {{"x", {DType::kI32, {kSamples, 8}}}, {"y", {DType::kI32, {kSamples, 8}}}}, Sgd{.momentum = 0.9},
                       {.name = "bert", .seed = 3});
}

Graph pairs_step() {
  nn::BertClassifier model({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4}, 10);
  const auto loss = [](const nn::Fields& predicted, const nn::Fields& batch) {
    return cross_entropy(predicted[nn::kPrediction], batch["label"]);
  };
  // Segments and mask of 0 or 1, from numbers below 10.
  const auto bits = [](const Tensor& x) { return cast(less(x, full(x.graph(), {DType::kI32, {}}, 5)), DType::kI32); };
  const auto forward = [&](const nn::Fields& batch) {
    return model(nn::Fields{{"tokens", batch["tokens"]},
                            {"segments", bits(batch["segments"])},
                            {"mask", bits(batch["mask"])},
                            {"label", batch["label"]}});
  };
  const TensorType row{DType::kI32, {kSamples, 8}};
  return training_step(forward, loss,
                       {{"tokens", row}, {"segments", row}, {"mask", row}, {"label", {DType::kI32, {kSamples}}}},
                       Sgd{.momentum = 0.9}, {.name = "pairs", .seed = 3});
}

Graph t5_step(bool gated) {
  nn::T5 model(
      {.vocabulary = 20, .layers = 2, .decoder_layers = 1, .width = 16, .heads = 4, .gated = gated, .tied = !gated});
  const auto loss = [](const nn::Fields& predicted, const nn::Fields& batch) {
    return cross_entropy(predicted[nn::kPrediction], batch["targets"]);
  };
  const TensorType read{DType::kI32, {kSamples, 8}}, written{DType::kI32, {kSamples, 6}};
  return training_step([&](const nn::Fields& batch) { return model(batch); }, loss,
                       {{"tokens", read}, {"decoder_tokens", written}, {"targets", written}}, Sgd{.momentum = 0.9},
                       {.name = "t5", .seed = 3});
}

Parallel ready_made_encoder(const std::string& kind, int ranks, int64_t tp, int64_t pp, int zero,
                            const std::vector<std::string>& keys = {}) {
  JobConfig config;
  set_keys(config, {"model.kind=" + kind, "model.layers=2", "model.width=16", "model.heads=4", "data.kind=synthetic"});
  set_keys(config, keys);
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

void expect_as_one(const Graph& graph, int ranks, const Parallel& parallel) {
  const Curve one = without_key_biases(train_curve(graph, nullptr, {}, kEncoderRate));
  std::vector<Curve> curves;
  for (Curve& curve : train_curves(graph, ranks, parallel, kEncoderRate))
    curves.push_back(without_key_biases(std::move(curve)));
  EXPECT_EQ(difference_of_crews(one, curves, rounding_share(graph)), "");
}

TEST(Encoders, data_parallel_ranks_train_as_one) {
  expect_as_one(vit_step(), 2, ready_made_encoder("vit", 2, 1, 1, 0));
  expect_as_one(bert_step(), 2, ready_made_encoder("bert", 2, 1, 1, 0));
}
TEST(Encoders, tensor_parallel_ranks_train_as_one) {
  expect_as_one(vit_step(), 4, ready_made_encoder("vit", 4, 4, 1, 0));
  expect_as_one(bert_step(), 4, ready_made_encoder("bert", 4, 4, 1, 0));
}
TEST(Encoders, ranks_of_all_kinds_train_as_one) {
  expect_as_one(vit_step(), 8, ready_made_encoder("vit", 8, 2, 2, 3));
  expect_as_one(bert_step(), 8, ready_made_encoder("bert", 8, 2, 2, 3));
}

TEST(Encoders, what_an_encoder_made_is_read_by_a_decoder_as_on_one_rank) {
  expect_as_one(t5_step(false), 2, ready_made_encoder("t5", 2, 1, 1, 0));
  expect_as_one(t5_step(true), 4, ready_made_encoder("t5", 4, 4, 1, 0, {"model.gated=true"}));
  expect_as_one(t5_step(false), 8, ready_made_encoder("t5", 8, 2, 2, 3));
}
TEST(Encoders, pairs_of_texts_with_a_mask_train_over_ranks_as_on_one) {
  const std::vector<std::string> keys{"model.classes=10"};
  expect_as_one(pairs_step(), 2, ready_made_encoder("bert_classifier", 2, 1, 1, 0, keys));
  expect_as_one(pairs_step(), 4, ready_made_encoder("bert_classifier", 4, 4, 1, 0, keys));
  expect_as_one(pairs_step(), 8, ready_made_encoder("bert_classifier", 8, 2, 2, 3, keys));
}
// The table of the embedding, which is also the head, and the loss are cut over the tokens.
TEST(Encoders, a_t5s_vocabulary_is_shared_by_tensor_parallel_ranks) {
  Parallel parallel =
      ready_made_encoder("t5", 4, 2, 1, 0, {"parallel.vocabulary=true", "model.vocabulary=20", "model.tied=true"});
  expect_as_one(t5_step(false), 4, parallel);
}

}  // namespace
}  // namespace trireme::encoders_test
