#include "trireme/nn/decoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn::decoding_test {
namespace {

Tensor heads(Graph& graph, const std::string& name) {
  return {graph, graph.add_input(name, {DType::kF32, {1, 1, 2, 4}}, Role::kData)};
}

TEST(Decoding, of_whole_sequences_keeps_nothing) {
  Graph graph;
  const Trace trace(graph);
  causal_attention(heads(graph, "q"), heads(graph, "k"), heads(graph, "v"));
  turned_by_position(heads(graph, "x"), 10000);
  EXPECT_EQ(graph.inputs().size(), 4U);
  EXPECT_TRUE(trace.buffer_values().empty());
}

TEST(Decoding, keeps_keys_and_values_of_all_tokens_where_the_next_ones_are_read) {
  Graph graph;
  Trace trace(graph, {.training = false, .kept_tokens = 9});
  causal_attention(heads(graph, "q"), heads(graph, "k"), heads(graph, "v"));
  EXPECT_EQ(to_string(graph.type(graph.input("keys").value)), "f32[1,9,2,4]");
  EXPECT_EQ(graph.input("values").role, Role::kState);
  EXPECT_EQ(to_string(graph.type(graph.input("position").value)), "i32[]");
  EXPECT_EQ(trace.buffer_values().size(), 2U);
}

TEST(Decoding, a_module_that_is_called_twice_is_refused) {
  Graph graph;
  const Trace trace(graph, {.training = false, .kept_tokens = 9});
  const Tensor q = heads(graph, "q");
  causal_attention(q, q, q);
  try {
    causal_attention(q, q, q);
    FAIL() << "the second call would write over what the first one keeps";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(e.what(),
                testing::HasSubstr("'keys' is kept twice: a module that keeps its tokens can be called only once"));
  }
}

}  // namespace
}  // namespace trireme::nn::decoding_test
