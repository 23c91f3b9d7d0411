#include "trireme/nn/models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::nn::llama_test {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

Graph trace_llama(const LlamaConfig& config, int64_t positions = 4) {
  Graph graph;
  Llama llama(config);
  const Trace trace(graph);
  graph.add_output("y", llama({graph, graph.add_input("x", {DType::kI32, {2, positions}}, Role::kData)}).id());
  return graph;
}

std::string error_of(const LlamaConfig& config, int64_t positions = 4) {
  try {
    trace_llama(config, positions);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::vector<std::string> parameters(const Graph& graph) {
  std::vector<std::string> out;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) {
      out.push_back(input.name + " " + to_string(graph.type(input.value)));
    }
  }
  return out;
}

TEST(Llama, its_parameters_have_the_names_and_shapes_of_hugging_face) {
  const Graph graph =
      trace_llama({.vocabulary = 11, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .hidden = 24});
  std::vector<std::string> expected{"model.embed_tokens.weight f32[11,16]"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string name :
         {"input_layernorm.weight f32[16]", "self_attn.q_proj.weight f32[16,16]", "self_attn.k_proj.weight f32[8,16]",
          "self_attn.v_proj.weight f32[8,16]", "self_attn.o_proj.weight f32[16,16]",
          "post_attention_layernorm.weight f32[16]", "mlp.gate_proj.weight f32[24,16]", "mlp.up_proj.weight f32[24,16]",
          "mlp.down_proj.weight f32[16,24]"}) {
      expected.push_back(layer + name);
    }
  }
  expected.insert(expected.end(), {"model.norm.weight f32[16]", "lm_head.weight f32[11,16]"});
  EXPECT_THAT(parameters(graph), ElementsAreArray(expected));
}

TEST(Llama, a_tied_head_has_no_parameter_of_its_own) {
  const LlamaConfig config{.vocabulary = 11, .layers = 1, .width = 16, .heads = 2, .tied = true};
  const Graph graph = trace_llama(config);
  EXPECT_EQ(parameters(graph).size(), 1U + 9U + 1U);
  EXPECT_EQ(to_string(graph.type(graph.output("y").value)), "f32[2,4,11]");
}

TEST(Llama, the_mlp_is_8_thirds_of_the_width_in_steps_of_64_and_keys_have_all_heads_unless_said) {
  EXPECT_EQ(Llama({.width = 24, .heads = 4}).config().hidden, 64);
  EXPECT_EQ(Llama({.width = 25 * 4, .heads = 2}).config().hidden, 320);   // of 266.7
  EXPECT_EQ(Llama({.width = 4096, .heads = 32}).config().hidden, 10944);  // of 10922.7
  EXPECT_EQ(Llama({.width = 4096, .heads = 32, .hidden = 11008}).config().hidden, 11008);
  EXPECT_EQ(Llama({.width = 24, .heads = 4}).config().kv_heads, 4);
}

TEST(Llama, configurations_that_cannot_be_are_refused) {
  EXPECT_THAT(error_of({.width = 10, .heads = 4}), HasSubstr("llama: width 10 is not divisible by 4 heads"));
  EXPECT_THAT(error_of({.width = 12, .heads = 4}), HasSubstr("llama: a head's size is 3 (width 12 over 4 heads)"));
  EXPECT_THAT(error_of({.heads = 4, .kv_heads = 3}), HasSubstr("llama: 4 heads are not divisible by 3 kv_heads"));
  EXPECT_THAT(error_of({.layers = 1'000'000'000}), HasSubstr("llama: 1000000000 layers; it must be at most 100000"));
  EXPECT_THAT(error_of({.layers = 0}), HasSubstr("llama: layers 0, vocabulary 256 and context 256 must be 1 or more"));
  EXPECT_THAT(error_of({.hidden = -1}), HasSubstr("llama: the MLP's size is -1"));
  EXPECT_THAT(error_of({.context = 4, .layers = 1}, 5),
              HasSubstr("llama: tokens are i32[2,5]; they must be [batch, up to 4 positions]"));
}

}  // namespace
}  // namespace trireme::nn::llama_test
