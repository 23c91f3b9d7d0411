#include "trireme/parallel/asked/op_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::op_names_test {
namespace {

using testing::ElementsAre;

TEST(OpNames, forward_ops_are_by_scope_in_their_order) {
  const OpBase op{"op", nullptr};
  const TensorType type{DType::kF32, {2}};
  Graph graph;
  const ValueId in = graph.add_input("x", type, Role::kData);
  const std::pair<std::string_view, Phase> nodes[] = {{"b", Phase::kForward},
                                                      {"a", Phase::kForward},
                                                      {"b", Phase::kBackward},
                                                      {"b", Phase::kForward},
                                                      {"c", Phase::kBackward}};
  for (const auto& [scope, phase] : nodes) {
    graph.set_scope(scope);
    graph.set_phase(phase);
    graph.add_node(op, Attrs(), {&in, 1}, std::span(&type, 1));
  }

  const std::vector<OpsOfScope> found = forward_ops_by_scope(graph);

  ASSERT_EQ(found.size(), 2U) << "the third has no forward op";
  EXPECT_EQ(found[0].scope, "b");
  EXPECT_THAT(found[0].ops, ElementsAre(0, 3));
  EXPECT_EQ(found[1].scope, "a");
  EXPECT_THAT(found[1].ops, ElementsAre(1));
}

}  // namespace
}  // namespace trireme::op_names_test
