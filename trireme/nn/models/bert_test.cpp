#include "trireme/nn/models/bert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::nn::bert_test {
namespace {

using testing::ElementsAre;

TEST(Bert, its_parameters_have_the_names_of_hugging_faces) {
  Graph graph;
  Bert model({.vocabulary = 11, .context = 5, .layers = 1, .width = 6, .heads = 2, .hidden = 7});
  const Trace trace(graph);
  graph.add_output("y", model({graph, graph.add_input("x", {DType::kI32, {2, 4}}, Role::kData)}).id());

  std::vector<std::string> parameters;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  const std::string embeddings = "bert.embeddings.", layer = "bert.encoder.layer.0.";
  EXPECT_THAT(
      parameters,
      ElementsAre(embeddings + "word_embeddings.weight f32[11,6]", embeddings + "position_embeddings.weight f32[5,6]",
                  embeddings + "token_type_embeddings.weight f32[2,6]", embeddings + "LayerNorm.weight f32[6]",
                  embeddings + "LayerNorm.bias f32[6]", layer + "attention.self.query.weight f32[6,6]",
                  layer + "attention.self.query.bias f32[6]", layer + "attention.self.key.weight f32[6,6]",
                  layer + "attention.self.key.bias f32[6]", layer + "attention.self.value.weight f32[6,6]",
                  layer + "attention.self.value.bias f32[6]", layer + "attention.output.dense.weight f32[6,6]",
                  layer + "attention.output.dense.bias f32[6]", layer + "attention.output.LayerNorm.weight f32[6]",
                  layer + "attention.output.LayerNorm.bias f32[6]", layer + "intermediate.dense.weight f32[7,6]",
                  layer + "intermediate.dense.bias f32[7]", layer + "output.dense.weight f32[6,7]",
                  layer + "output.dense.bias f32[6]", layer + "output.LayerNorm.weight f32[6]",
                  layer + "output.LayerNorm.bias f32[6]", "cls.predictions.transform.dense.weight f32[6,6]",
                  "cls.predictions.transform.dense.bias f32[6]", "cls.predictions.transform.LayerNorm.weight f32[6]",
                  "cls.predictions.transform.LayerNorm.bias f32[6]", "cls.predictions.bias f32[11]"));
  EXPECT_EQ(to_string(graph.type(graph.output("y").value)), "f32[2,4,11]");
}

TEST(Bert, refuses_sizes_that_do_not_go_together) {
  EXPECT_THROW(Bert({.width = 10, .heads = 4}), Error);
  EXPECT_THROW(Bert({.layers = 0}), Error);
}

}  // namespace
}  // namespace trireme::nn::bert_test
