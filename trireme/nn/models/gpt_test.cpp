#include "trireme/nn/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::nn::gpt_test {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

Graph trace_gpt(const GptConfig& config, int64_t positions) {
  Graph graph;
  Gpt gpt(config);
  const Trace trace(graph);
  graph.add_output("y", gpt({graph, graph.add_input("x", {DType::kI32, {2, positions}}, Role::kData)}).id());
  return graph;
}

std::string error_of(const GptConfig& config, int64_t positions = 4) {
  try {
    trace_gpt(config, positions);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Gpt, its_parameters_are_saved_with_the_names_and_shapes_of_hugging_face) {
  const Graph graph = trace_gpt({.vocabulary = 11, .context = 6, .layers = 2, .width = 8, .heads = 2}, 4);
  std::vector<std::string> expected{"wte.weight f32[11,8]", "wpe.weight f32[6,8]"};
  for (const std::string block : {"h.0.", "h.1."}) {
    for (const std::string name : {"ln_1.weight f32[8]", "ln_1.bias f32[8]", "attn.c_attn.weight f32[8,24]",
                                   "attn.c_attn.bias f32[24]", "attn.c_proj.weight f32[8,8]", "attn.c_proj.bias f32[8]",
                                   "ln_2.weight f32[8]", "ln_2.bias f32[8]", "mlp.c_fc.weight f32[8,32]",
                                   "mlp.c_fc.bias f32[32]", "mlp.c_proj.weight f32[32,8]", "mlp.c_proj.bias f32[8]"}) {
      expected.push_back(block + name);
    }
  }
  expected.insert(expected.end(), {"ln_f.weight f32[8]", "ln_f.bias f32[8]"});
  std::vector<std::string> found;
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kParameter) continue;
    TensorType saved = graph.type(input.value);
    if (input.saved_as.rank() > 0) saved.shape = input.saved_as;
    found.push_back(input.name + " " + to_string(saved));
  }
  EXPECT_THAT(found, ElementsAreArray(expected));
}

TEST(Gpt, gives_logits_of_every_position) {
  const Graph graph = trace_gpt({.vocabulary = 11, .context = 6, .layers = 1, .width = 8, .heads = 2}, 4);
  EXPECT_EQ(to_string(graph.type(graph.output("y").value)), "f32[2,4,11]");
}

TEST(Gpt, projections_into_the_residual_stream_start_smaller_with_depth) {
  const Graph graph = trace_gpt({.vocabulary = 11, .context = 6, .layers = 8, .width = 8, .heads = 2}, 4);
  EXPECT_EQ(to_string(graph.input("h.0.attn.c_proj.weight").init),
            "normal(0,0.005)");  // 0.02 / sqrt(16)
  EXPECT_EQ(to_string(graph.input("h.7.mlp.c_proj.weight").init), "normal(0,0.005)");
  EXPECT_EQ(to_string(graph.input("h.0.attn.c_attn.weight").init), "normal(0,0.02)");
  EXPECT_EQ(to_string(graph.input("wte.weight").init), "normal(0,0.02)");
}

TEST(Gpt, configurations_that_cannot_be_are_refused) {
  EXPECT_THAT(error_of({.width = 10, .heads = 4}), HasSubstr("gpt: width 10 is not divisible by 4 heads"));
  EXPECT_THAT(error_of({.layers = 0}), HasSubstr("gpt: layers 0, vocabulary 256 and context 256 must be 1 or more"));
  EXPECT_THAT(error_of({.layers = 1'000'000'000}), HasSubstr("gpt: 1000000000 layers; it must be at most 100000"));
  EXPECT_THAT(error_of({.width = int64_t{1} << 40, .heads = 4}),
              HasSubstr("gpt: width 1099511627776; it must be at most 2147483647"));
  EXPECT_THAT(error_of({.vocabulary = int64_t{1} << 62}),
              HasSubstr("gpt: vocabulary 4611686018427387904; it must be at most 2147483647"));
  EXPECT_THAT(error_of({.context = 4, .layers = 1}, 5),
              HasSubstr("gpt: tokens are i32[2,5]; they must be [batch, up to 4 positions]"));
}

}  // namespace
}  // namespace trireme::nn::gpt_test
