#include "trireme/nn/models/t5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"

namespace trireme::nn::t5_test {
namespace {

using testing::ElementsAre;

// Of a batch of 2 texts.
Graph traced(const T5Config& config) {
  Graph graph;
  T5 model(config);
  const Trace trace(graph);
  const auto field = [&](const char* name, const Shape& shape) {
    return Tensor{graph, graph.add_input(name, {DType::kI32, shape}, Role::kData)};
  };
  const Fields predicted = model(Fields{{"tokens", field("tokens", {2, 5})},
                                        {"decoder_tokens", field("decoder_tokens", {2, 3})},
                                        {"targets", field("targets", {2, 3})}});
  EXPECT_EQ(to_string(predicted[kPrediction].type()), "f32[2,3,11]");
  return graph;
}

std::vector<std::string> parameters_of(const T5Config& config) {
  const Graph graph = traced(config);
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) out.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  return out;
}

TEST(T5, its_parameters_have_the_names_of_hugging_faces) {
  const std::string encoder = "encoder.block.0.layer.", decoder = "decoder.block.0.layer.";
  EXPECT_THAT(
      parameters_of({.vocabulary = 11, .layers = 1, .width = 6, .heads = 2, .hidden = 7, .tied = true}),
      ElementsAre("shared.weight f32[11,6]", encoder + "0.SelfAttention.relative_attention_bias.weight f32[32,2]",
                  encoder + "0.layer_norm.weight f32[6]", encoder + "0.SelfAttention.q.weight f32[6,6]",
                  encoder + "0.SelfAttention.k.weight f32[6,6]", encoder + "0.SelfAttention.v.weight f32[6,6]",
                  encoder + "0.SelfAttention.o.weight f32[6,6]", encoder + "1.layer_norm.weight f32[6]",
                  encoder + "1.DenseReluDense.wi.weight f32[7,6]", encoder + "1.DenseReluDense.wo.weight f32[6,7]",
                  "encoder.final_layer_norm.weight f32[6]",
                  decoder + "0.SelfAttention.relative_attention_bias.weight f32[32,2]",
                  decoder + "0.layer_norm.weight f32[6]", decoder + "0.SelfAttention.q.weight f32[6,6]",
                  decoder + "0.SelfAttention.k.weight f32[6,6]", decoder + "0.SelfAttention.v.weight f32[6,6]",
                  decoder + "0.SelfAttention.o.weight f32[6,6]", decoder + "1.layer_norm.weight f32[6]",
                  decoder + "1.EncDecAttention.q.weight f32[6,6]", decoder + "1.EncDecAttention.k.weight f32[6,6]",
                  decoder + "1.EncDecAttention.v.weight f32[6,6]", decoder + "1.EncDecAttention.o.weight f32[6,6]",
                  decoder + "2.layer_norm.weight f32[6]", decoder + "2.DenseReluDense.wi.weight f32[7,6]",
                  decoder + "2.DenseReluDense.wo.weight f32[6,7]", "decoder.final_layer_norm.weight f32[6]"));
}

TEST(T5, version_1_1_has_a_gated_mlp_and_a_head_of_its_own) {
  const std::vector<std::string> names =
      parameters_of({.vocabulary = 11, .layers = 1, .width = 6, .heads = 2, .head_size = 5, .gated = true});
  EXPECT_THAT(names, testing::IsSupersetOf({"encoder.block.0.layer.1.DenseReluDense.wi_0.weight f32[24,6]",
                                            "encoder.block.0.layer.1.DenseReluDense.wi_1.weight f32[24,6]",
                                            "decoder.block.0.layer.1.EncDecAttention.q.weight f32[10,6]",
                                            "lm_head.weight f32[11,6]"}));
}

// A block's dropout is used after each of its layers, as in Hugging Face's code.
TEST(T5, no_two_dropouts_draw_the_same_mask) {
  constexpr int64_t kLayers = 2;
  const Graph graph = traced({.vocabulary = 11, .layers = kLayers, .width = 6, .heads = 2, .dropout = 0.1});
  std::set<std::pair<int64_t, int64_t>> drawn;
  int64_t count = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->name != "dropout") continue;
    const auto& attrs = node.attrs.as<DropoutAttrs>();
    drawn.emplace(attrs.seed, attrs.stream);
    ++count;
  }
  EXPECT_EQ(count, kLayers * (3 + 4) + 2 * 2);  // one more of each block inside its MLP, two around each stack
  EXPECT_EQ(std::ssize(drawn), count);
}

TEST(T5, refuses_sizes_that_do_not_go_together) {
  EXPECT_THROW(T5({.width = 10, .heads = 4}), Error);
  EXPECT_THROW(T5({.layers = 0}), Error);
}

}  // namespace
}  // namespace trireme::nn::t5_test
