#include "trireme/nn/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::nn::resnet_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Graph trace_resnet(const ResNetConfig& config, int64_t size, bool training = true) {
  Graph graph;
  ResNet model(config);
  const Trace trace(graph, {.training = training});
  const TensorType images{DType::kF32, {2, size, size, config.channels}};
  graph.add_output("y", model({graph, graph.add_input("x", images, Role::kData)}).id());
  return graph;
}

std::vector<std::string> inputs(const Graph& graph, Role role) {
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role == role) out.push_back(input.name + " " + to_string(graph.type(input.value)));
  }
  return out;
}

TEST(ResNet, its_parameters_and_buffers_have_the_names_of_torchvision) {
  const Graph graph = trace_resnet({.blocks = {1}, .width = 4, .classes = 10}, 16);

  EXPECT_THAT(
      inputs(graph, Role::kParameter),
      ElementsAre("conv1.weight f32[4,7,7,3]", "bn1.weight f32[4]", "bn1.bias f32[4]",
                  "layer1.0.conv1.weight f32[4,1,1,4]", "layer1.0.bn1.weight f32[4]", "layer1.0.bn1.bias f32[4]",
                  "layer1.0.conv2.weight f32[4,3,3,4]", "layer1.0.bn2.weight f32[4]", "layer1.0.bn2.bias f32[4]",
                  "layer1.0.conv3.weight f32[16,1,1,4]", "layer1.0.downsample.0.weight f32[16,1,1,4]",
                  "layer1.0.downsample.1.weight f32[16]", "layer1.0.downsample.1.bias f32[16]",
                  "layer1.0.bn3.weight f32[16]", "layer1.0.bn3.bias f32[16]", "fc.weight f32[10,16]",
                  "fc.bias f32[10]"));
  EXPECT_THAT(inputs(graph, Role::kState),
              ElementsAre("bn1.running_mean f32[4]", "bn1.running_var f32[4]", "layer1.0.bn1.running_mean f32[4]",
                          "layer1.0.bn1.running_var f32[4]", "layer1.0.bn2.running_mean f32[4]",
                          "layer1.0.bn2.running_var f32[4]", "layer1.0.downsample.1.running_mean f32[16]",
                          "layer1.0.downsample.1.running_var f32[16]", "layer1.0.bn3.running_mean f32[16]",
                          "layer1.0.bn3.running_var f32[16]"));
}

TEST(ResNet, resnet_50_has_the_25557032_parameters_of_torchvisions) {
  const Graph graph = trace_resnet({.blocks = resnet_blocks(50)}, 64);

  int64_t parameters = 0;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters += graph.type(input.value).elements();
  }
  EXPECT_EQ(parameters, 25557032);
  EXPECT_EQ(to_string(graph.type(graph.output("y").value)), "f32[2,1000]");
}

// Version 1.5: stage 2's first block halves the positions in its 3x3 convolution, not in the 1x1 before it.
TEST(ResNet, the_stride_is_in_the_3x3_convolution) {
  const Graph graph = trace_resnet({.blocks = {1, 1}, .width = 4}, 32);

  std::vector<std::string> sizes;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "conv2d" && graph.scope_of(node).starts_with("layer2.0.conv")) {
      sizes.push_back(to_string(graph.type(node.outputs[0])));
    }
  }
  EXPECT_THAT(sizes, ElementsAre("f32[2,8,8,8]", "f32[2,4,4,8]", "f32[2,4,4,32]"));
}

TEST(ResNet, evaluation_takes_no_statistics) {
  const Graph graph = trace_resnet({.blocks = {1}, .width = 4}, 16, false);

  for (const Node& node : graph.nodes()) EXPECT_NE(node.op->name, "channel_sums");
}

TEST(ResNet, what_does_not_fit_is_refused) {
  const auto error_of = [](const ResNetConfig& config) -> std::string {
    try {
      trace_resnet(config, 16);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({.blocks = {}}), HasSubstr("resnet: 0 stages; use 1 to 8"));
  EXPECT_THAT(error_of({.blocks = {1, 0}, .width = 4}), HasSubstr("resnet: stage 2 has 0 blocks; it needs 1 or more"));
  EXPECT_THROW(resnet_blocks(34), Error);
}

}  // namespace
}  // namespace trireme::nn::resnet_test
