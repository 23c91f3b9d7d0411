#include "trireme/nn/models/vit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::nn::vit_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const VitConfig kSmallVit{.height = 8,
                          .width_of_image = 12,
                          .channels = 1,
                          .patch = 4,
                          .layers = 1,
                          .width = 6,
                          .heads = 2,
                          .hidden = 5,
                          .classes = 3};

Graph trace_vit(const VitConfig& config, const Shape& images) {
  Graph graph;
  Vit model(config);
  const Trace trace(graph);
  graph.add_output("y", model({graph, graph.add_input("x", {DType::kF32, images}, Role::kData)}).id());
  return graph;
}

TEST(Vit, its_parameters_have_the_names_of_hugging_faces) {
  const Graph graph = trace_vit(kSmallVit, {2, 8, 12, 1});

  std::vector<std::string> parameters;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  const std::string layer = "vit.encoder.layer.0.";
  EXPECT_THAT(
      parameters,
      ElementsAre(
          "vit.embeddings.cls_token f32[1,1,6]", "vit.embeddings.patch_embeddings.projection.weight f32[6,4,4,1]",
          "vit.embeddings.patch_embeddings.projection.bias f32[6]", "vit.embeddings.position_embeddings f32[1,7,6]",
          layer + "layernorm_before.weight f32[6]", layer + "layernorm_before.bias f32[6]",
          layer + "attention.attention.query.weight f32[6,6]", layer + "attention.attention.query.bias f32[6]",
          layer + "attention.attention.key.weight f32[6,6]", layer + "attention.attention.key.bias f32[6]",
          layer + "attention.attention.value.weight f32[6,6]", layer + "attention.attention.value.bias f32[6]",
          layer + "attention.output.dense.weight f32[6,6]", layer + "attention.output.dense.bias f32[6]",
          layer + "layernorm_after.weight f32[6]", layer + "layernorm_after.bias f32[6]",
          layer + "intermediate.dense.weight f32[5,6]", layer + "intermediate.dense.bias f32[5]",
          layer + "output.dense.weight f32[6,5]", layer + "output.dense.bias f32[6]", "vit.layernorm.weight f32[6]",
          "vit.layernorm.bias f32[6]", "classifier.weight f32[3,6]", "classifier.bias f32[3]"));
  EXPECT_EQ(to_string(graph.type(graph.output("y").value)), "f32[2,3]");
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Vit, refuses_images_that_patches_do_not_divide_and_others_than_its_own) {
  VitConfig config = kSmallVit;
  config.height = 10;
  EXPECT_THAT(error_of([&] { Vit model(config); }),
              HasSubstr("images of 10 x 12 cannot be cut into patches of 4 x 4; use a patch that divides both"));
  config = kSmallVit;
  config.heads = 4;
  EXPECT_THAT(error_of([&] { Vit model(config); }), HasSubstr("width 6 is not divisible by 4 heads"));
  EXPECT_THAT(error_of([&] { trace_vit(kSmallVit, {2, 12, 8, 1}); }), HasSubstr("they must be [batch,8,12,1]"));
}

}  // namespace
}  // namespace trireme::nn::vit_test
