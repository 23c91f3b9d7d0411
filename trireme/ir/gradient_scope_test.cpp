#include "trireme/ir/gradient_scope.h"

#include <gtest/gtest.h>

namespace trireme::gradient_scope_test {
namespace {

TEST(GradientScope, ModulesAreTheirOwnForwardAndBackward) {
  Graph graph("g");
  const OpBase plain{"plain", &Attrs::parse<NoAttrs>};
  const TensorType type{DType::kF32, {2}};
  const ValueId x = graph.add_input("x", type, Role::kData);
  const auto module_of = [&](const std::string& scope, Phase phase) {
    graph.set_scope(scope);
    graph.set_phase(phase);
    return std::string(module_scope(graph, graph.node(graph.add_node(plain, {}, {{x}}, std::span(&type, 1)))));
  };

  EXPECT_EQ(gradient_scope("h.3.mlp"), "grad/h.3.mlp");
  EXPECT_EQ(module_of("h.3.mlp", Phase::kForward), "h.3.mlp");
  EXPECT_EQ(module_of(gradient_scope("h.3.mlp"), Phase::kBackward), "h.3.mlp");
  EXPECT_EQ(module_of("loss", Phase::kBackward), "loss");
  EXPECT_EQ(module_of("update/h.3.mlp", Phase::kUpdate), "update/h.3.mlp");
  EXPECT_EQ(module_of("grad/h.3.mlp", Phase::kForward), "grad/h.3.mlp")
      << "the phase says what is a gradient, not the name";
}

}  // namespace
}  // namespace trireme::gradient_scope_test
