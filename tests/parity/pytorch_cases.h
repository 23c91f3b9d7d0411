// The models that are compared with PyTorch, with the fixtures that hold its figures (README.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/parity/fixture.h"
#include "trireme/nn/models/bert.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/llama.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/nn/models/t5.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::testing_support {

// A model, its batch, and the longest chain of roundings between an input and an element of a
// gradient: the sum of the lengths of the sums on the way through the layers and back, and of the
// sum over the samples at its end.
struct Case {
  Fixture fixture;
  std::unique_ptr<nn::Module> model;
  std::vector<BatchField> fields;  // with the names of the fixture
  int64_t roundings = 0;
};

// A layer's share of the chain: its output sums over `in` products, the gradient of its input over
// `out`.
inline int64_t through_linear(int64_t in, int64_t out) {
  return in + out;
}
// Mean and variance, and in the gradient two sums more.
inline int64_t through_norm(int64_t width) {
  return 4 * width;
}
// Log-sum-exp, and one product in the gradient.
inline int64_t through_cross_entropy(int64_t classes) {
  return classes + 1;
}
// Scores over the head's width, the softmax's sum and the mix over positions; in the gradient the
// same three again.
inline int64_t through_attention(int64_t head_width, int64_t positions) {
  return 2 * (head_width + 2 * positions);
}

inline Case gpt_case() {
  Fixture f("gpt");
  const nn::GptConfig config{.vocabulary = f.count("vocabulary"),
                             .context = f.count("context"),
                             .layers = f.count("layers"),
                             .width = f.count("width"),
                             .heads = f.count("heads")};
  const int64_t d = config.width;
  const int64_t s = config.context;
  const int64_t block = 2 * through_norm(d) + through_linear(d, 3 * d) + through_attention(d / config.heads, s) +
                        through_linear(d, d) + 2 * through_linear(d, 4 * d);
  const int64_t roundings = config.layers * block + through_norm(d) + through_linear(d, config.vocabulary) +
                            through_cross_entropy(config.vocabulary) + f.count("batch") * s;
  const Shape tokens{f.count("batch"), s};
  auto model = std::make_unique<nn::Gpt>(config);
  return {std::move(f),
          std::move(model),
          {{"tokens", {DType::kI32, tokens}}, {"targets", {DType::kI32, tokens}}},
          roundings};
}

// Queries, keys and values are products of one x, as are gate and up: the longest of each counts. Their gradients meet
// in one sum. The head is a matrix of its own; rotations turn pairs.
inline Case llama_case() {
  Fixture f("llama");
  const nn::LlamaConfig config{.vocabulary = f.count("vocabulary"),
                               .context = f.count("context"),
                               .layers = f.count("layers"),
                               .width = f.count("width"),
                               .heads = f.count("heads"),
                               .kv_heads = f.count("kv_heads"),
                               .hidden = f.count("hidden"),
                               .rope_theta = f.number("rope_theta"),
                               .eps = f.number("norm_eps")};
  const int64_t d = config.width;
  const int64_t s = config.context;
  const int64_t rotations = 2 * 2;
  const int64_t shared_keys = config.heads / config.kv_heads;
  const int64_t block = 2 * through_norm(d) + through_linear(d, d) + 3 + rotations +
                        through_attention(d / config.heads, s) + shared_keys + through_linear(d, d) +
                        2 * through_linear(d, config.hidden) + 2;
  const int64_t roundings = config.layers * block + through_norm(d) + through_linear(d, config.vocabulary) +
                            through_cross_entropy(config.vocabulary) + f.count("batch") * s;
  const Shape tokens{f.count("batch"), s};
  auto model = std::make_unique<nn::Llama>(config);
  return {std::move(f),
          std::move(model),
          {{"tokens", {DType::kI32, tokens}}, {"targets", {DType::kI32, tokens}}},
          roundings};
}

// The longest way is through all blocks of the decoder, and from its first one back through those of the encoder; the
// table of distances sums over pairs of positions.
inline Case t5_case() {
  Fixture f("t5");
  const nn::T5Config config{.vocabulary = f.count("vocabulary"),
                            .layers = f.count("layers"),
                            .width = f.count("width"),
                            .heads = f.count("heads"),
                            .head_size = f.count("head_size"),
                            .hidden = f.count("hidden"),
                            .gated = true,
                            .tied = true,
                            .distance_classes = f.count("distance_classes"),
                            .most_distance = f.count("most_distance")};
  const int64_t batch = f.count("batch"), source = f.count("source"), context = f.count("context");
  const int64_t d = config.width, heads = config.heads * config.head_size;
  const int64_t attention =
      through_norm(d) + 2 * through_linear(d, heads) + 3 + through_attention(config.head_size, source);
  const int64_t mlp = through_norm(d) + 2 * through_linear(d, config.hidden) + 2;
  const int64_t roundings = config.layers * (3 * attention + 2 * mlp) + 2 * through_norm(d) +
                            through_linear(d, config.vocabulary) + through_cross_entropy(config.vocabulary) +
                            batch * source * source;
  auto model = std::make_unique<nn::T5>(config);
  return {std::move(f),
          std::move(model),
          {{"tokens", {DType::kI32, {batch, source}}},
           {"decoder_tokens", {DType::kI32, {batch, context}}},
           {"targets", {DType::kI32, {batch, context}}}},
          roundings};
}

inline Case bert_case() {
  Fixture f("bert");
  const nn::BertConfig config{.vocabulary = f.count("vocabulary"),
                              .context = f.count("context"),
                              .layers = f.count("layers"),
                              .width = f.count("width"),
                              .heads = f.count("heads"),
                              .hidden = f.count("hidden")};
  const int64_t batch = f.count("batch"), s = config.context, d = config.width, classes = f.count("classes");
  const int64_t block = 2 * through_norm(d) + 2 * through_linear(d, d) + 3 + through_attention(d / config.heads, s) +
                        2 * through_linear(d, config.hidden);
  const int64_t roundings = config.layers * block + through_norm(d) + through_linear(d, d) +
                            through_linear(d, classes) + through_cross_entropy(classes) + batch * s;
  const TensorType row{DType::kI32, {batch, s}};
  auto model = std::make_unique<nn::BertClassifier>(config, classes);
  return {std::move(f),
          std::move(model),
          {{"tokens", row}, {"segments", row}, {"mask", row}, {"label", {DType::kI32, {batch}}}},
          roundings};
}

inline Case mlp_case() {
  Fixture f("mlp");
  const std::vector<int64_t> sizes = f.counts("sizes");
  int64_t roundings = through_cross_entropy(sizes.back()) + f.count("batch");
  for (size_t i = 0; i + 1 < sizes.size(); ++i) roundings += through_linear(sizes[i], sizes[i + 1]);
  auto model = std::make_unique<nn::Mlp>(sizes);
  const int64_t batch = f.count("batch");
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, sizes[0]}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

inline Case lenet_case() {
  Fixture f("lenet");
  const int64_t batch = f.count("batch");
  const int64_t classes = f.count("classes");
  const int64_t kernel = 5 * 5;  // a convolution is linear in each window
  const int64_t roundings = through_linear(kernel, 6 * kernel) + through_linear(6 * kernel, 16 * kernel) +
                            through_linear(16 * 5 * 5, 120) + through_linear(120, 84) + through_linear(84, classes) +
                            through_cross_entropy(classes) + batch * 28 * 28;  // conv1's weight sums over all pixels
  auto model = std::make_unique<nn::LeNet>(classes);
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, 28, 28, 1}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

// Of a block the longest way through it; the residual joins in one addition.
inline Case resnet_case() {
  Fixture f("resnet");
  const nn::ResNetConfig config{.blocks = f.counts("blocks"),
                                .width = f.count("stem"),
                                .channels = f.count("channels"),
                                .classes = f.count("classes")};
  const int64_t batch = f.count("batch");
  const int64_t size = f.count("image");
  int64_t positions = batch * size * size / 4;
  int64_t roundings = through_linear(49 * config.channels, 49 * config.width) + through_norm(positions);
  positions /= 4;
  int64_t in = config.width;
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    const int64_t width = config.width << stage;
    if (stage > 0) positions /= 4;
    for (int64_t i = 0; i < config.blocks[stage]; ++i) {
      roundings += through_linear(in, width) + through_linear(9 * width, 9 * width) + through_linear(width, 4 * width) +
                   3 * through_norm(positions) + 1;
      in = 4 * width;
    }
  }
  roundings += positions / batch + through_linear(in, config.classes) + through_cross_entropy(config.classes) + batch;
  auto model = std::make_unique<nn::ResNet>(config);
  return {std::move(f),
          std::move(model),
          {{"images", {DType::kF32, {batch, size, size, config.channels}}}, {"labels", {DType::kI32, {batch}}}},
          roundings};
}

inline Case make_case(const std::string& model) {
  if (model == "gpt") return gpt_case();
  if (model == "llama") return llama_case();
  if (model == "t5") return t5_case();
  if (model == "bert") return bert_case();
  if (model == "resnet") return resnet_case();
  return model == "mlp" ? mlp_case() : lenet_case();
}

}  // namespace trireme::testing_support
