#include "trireme/op/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/op/registry.h"

namespace trireme::build_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const TensorType kType{DType::kF32, {2, 3}};

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::kInternal);
    return e.what();
  }
  return "no error";
}

TEST(Apply, InfersTheTypesOfResults) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", kType, Role::kData));

  const Tensor y = apply1(op("add"), {x, x});

  EXPECT_EQ(y.type(), kType);
  EXPECT_EQ(to_string(graph), "graph \"graph\"\n%0: f32[2,3] = data \"x\"\n%1: f32[2,3] = add(%0, %0)\n");
  EXPECT_THAT(verify(graph), IsEmpty());
}

TEST(Apply, AddsOpAndScopeToErrors) {
  Graph graph;
  graph.set_scope("decoder.0");
  const Tensor x(graph, graph.add_input("x", kType, Role::kData));
  const Tensor b(graph, graph.add_input("b", {DType::kF32, {2}}, Role::kData));

  EXPECT_EQ(error_of([&] {
              apply1(op("add"), {x, b});
            }),
            "add: size 2 of dimension 0 of operand 1 (f32[2]) does not broadcast to 3; sizes must "
            "be equal or 1 counted "
            "from the last dimension\n  in add(f32[2,3], f32[2]) at 'decoder.0'");
  EXPECT_EQ(error_of([&] { apply1(op("add"), {x}); }),
            "add: 1 operands given; it takes (a, b)\n  in add(f32[2,3]) at 'decoder.0'");
}

TEST(Apply, RefusesTensorsOfNoGraphOrOfAnother) {
  Graph graph, other;
  const Tensor x(graph, graph.add_input("x", kType, Role::kData));
  const Tensor y(other, other.add_input("y", kType, Role::kData));

  EXPECT_EQ(error_of([&] { apply1(op("add"), {x, y}); }), "add: operands come from different graphs");
  EXPECT_EQ(error_of([&] {
              apply1(op("add"), {Tensor(), x});
            }),
            "add: the first operand is not a tensor of a traced graph");
}

TEST(Verify, FindsNodesWhoseTypesTheirOpsDoNotGive) {
  const std::string head = "%0: f32[2,3] = data \"x\"\n%1: i64[2,3] = data \"n\"\n";
  const auto findings = [&](const std::string& line) { return verify(parse_graph(head + line, find_op_base)); };

  EXPECT_THAT(findings("%2: f32[3,2] = add(%0, %0)"),
              ElementsAre("%2 add: result 0 is f32[3,2]; the op gives f32[2,3]"));
  EXPECT_THAT(findings("%2: f32[2,3], %3: f32[2,3] = add(%0, %0)"),
              ElementsAre("%2 add: 2 results where the op has 1"));
  EXPECT_THAT(findings("%2: f32[2,3] = add(%0, %1)"),
              ElementsAre("%2 add: add: operands must be of one type (a f32[2,3], b i64[2,3]); cast one of them"));
  EXPECT_THAT(findings("%2: f32[2,3] = add(%0)"), ElementsAre("%2 add: add: 1 operands given; it takes (a, b)"));
}

TEST(Verify, FindsGradientsAndUpdatesThatCannotBe) {
  const std::string head =
      "%0: f32[2,3] = data \"x\"\n%1: f32[2,3] = parameter \"w\"\n%2: f32[2,3] = state \"w.m\"\n%3: f32[2] = data "
      "\"n\"\n"
      "%4: f32[2,3] = add(%0, %1)\n";
  const auto findings = [&](const std::string& lines) { return verify(parse_graph(head + lines, find_op_base)); };

  EXPECT_THAT(
      findings("%5: f32[2,3] d%4 = exp(%4) backward of 0\n%6: f32[2,3] = exp(%5) update\noutput \"w\" %6 updates %1\n"
               "output \"w.m\" %6 updates %2\nupdate %1 from %5 with %2"),
      IsEmpty());
  EXPECT_THAT(findings("%5: f32[2,3] = exp(%4) backward\n%6: f32[2,3] = exp(%5)"),
              ElementsAre("exp that makes %6 is of the forward phase and reads %5, which the backward phase makes"));
  EXPECT_THAT(findings("%5: f32[2,3] = exp(%4) update\n%6: f32[2,3] = exp(%5) backward"),
              ElementsAre("exp that makes %6 is of the backward phase and reads %5, which the update phase makes"));
  EXPECT_THAT(
      findings("%5: f32[2,3] = exp(%4) of 0"),
      ElementsAre(
          "exp that makes %5 is part of a gradient and of the forward phase; it must be of the backward phase"));
  EXPECT_THAT(
      findings("%5: f32[2,3] = exp(%4) backward again"),
      ElementsAre(
          "exp that makes %5 is made again and of the backward phase; what is made again is of the forward phase"));
  EXPECT_THAT(findings("%5: f32[2] d%4 = exp(%3) backward"),
              ElementsAre("%5 is f32[2] and the gradient of %4, which is f32[2,3]; their shapes must be the same"));
  EXPECT_THAT(findings("output \"w\" %4 updates %1\nupdate %1 from %3"),
              ElementsAre("%3 is f32[2] and the gradient of %1, which is f32[2,3]; their shapes must be the same"));
  EXPECT_THAT(findings("update %1 from %4"), ElementsAre("no output replaces parameter 'w', which has an update"));
  EXPECT_THAT(findings("update %0 from %4"), ElementsAre("an update is of %0, which is no parameter"));
  EXPECT_THAT(findings("output \"w\" %4 updates %1\nupdate %1 from %4\nupdate %1 from %4"),
              ElementsAre("two updates are of parameter 'w'"));
}

// Code that goes on with gradients need not say of which phase it is.
TEST(Apply, MarksANodeWithTheLatestPhaseOfItsOperands) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", kType, Role::kData));
  graph.set_phase(Phase::kBackward);
  const Tensor g = apply1(op("exp"), {x});
  graph.set_phase(Phase::kForward);
  const Tensor norm = apply1(op("square_sum"), {g});
  const Tensor y = apply1(op("exp"), {x});

  EXPECT_EQ(graph.node(graph.value(norm.id()).producer).phase, Phase::kBackward);
  EXPECT_EQ(graph.node(graph.value(y.id()).producer).phase, Phase::kForward);
  EXPECT_THAT(verify(graph), IsEmpty());
}

TEST(Registry, FindsOpsByNameAndSuggestsNearOnes) {
  EXPECT_EQ(op("matmul").name, "matmul");
  EXPECT_EQ(find_op("no_such_op"), nullptr);
  EXPECT_EQ(error_of([] { op("matmull"); }), "no op named 'matmull'. Did you mean 'matmul'?");
}

TEST(Registry, NamesEveryOpOnce) {
  for (const OpDef* def : all_ops()) EXPECT_EQ(find_op(def->name), def) << def->name;
}

}  // namespace
}  // namespace trireme::build_test
