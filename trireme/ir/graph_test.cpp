#include "trireme/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ir/tensor.h"

namespace trireme::graph_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const OpBase kPlain{"plain", &Attrs::parse<NoAttrs>};
const TensorType kType{DType::kF32, {2, 3}};

ValueId plain(Graph& graph, std::vector<ValueId> inputs) {
  return graph.node(graph.add_node(kPlain, {}, inputs, std::span(&kType, 1))).outputs[0];
}

template <class Fn>
std::string error_of(ErrorKind kind, Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.text();
  }
  return "no error";
}

TEST(Graph, FindsInputsAndOutputsByName) {
  Graph graph("g");
  const ValueId x = graph.add_input("image", kType, Role::kData);
  graph.add_output("loss", x);

  EXPECT_EQ(graph.input("image").value, x);
  EXPECT_EQ(graph.output("loss").value, x);
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [&] { graph.input("imgae"); }),
            "graph 'g' has no input 'imgae'. Did you mean 'image'?");
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [&] { graph.output("accuracy"); }),
            "graph 'g' has no output 'accuracy'. One of 'loss'.");
}

TEST(Graph, CountsReadersAmongNodesAndOutputs) {
  Graph graph;
  const ValueId x = graph.add_input("x", kType, Role::kData);
  const ValueId y = plain(graph, {x, x});
  graph.add_output("y", y);
  graph.add_output("x", x);

  EXPECT_THAT(graph.use_counts(), ElementsAre(3, 1));
}

TEST(Graph, RemembersTheScopeOfEachNode) {
  Graph graph;
  const ValueId x = graph.add_input("x", kType, Role::kData);
  graph.set_scope("decoder.0");
  plain(graph, {x});
  graph.set_scope("decoder.1");
  plain(graph, {x});
  graph.set_scope("decoder.0");
  plain(graph, {x});

  EXPECT_EQ(graph.scope_of(graph.node(0)), "decoder.0");
  EXPECT_EQ(graph.scope_of(graph.node(1)), "decoder.1");
  EXPECT_EQ(graph.scope_of(graph.node(2)), "decoder.0");
  EXPECT_EQ(graph.scope(), "decoder.0");
}

TEST(Graph, KeepsTheTypeOfATensorInPlaceWhileItGrows) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", kType, Role::kData));
  const Shape& shape = x.shape();
  for (int i = 0; i < 1000; ++i) plain(graph, {x.id()});

  EXPECT_EQ(&shape, &x.shape());
  EXPECT_EQ(x.size(-1), 3);
}

TEST(Graph, RefusesOperandsAndOutputsThatDoNotExist) {
  Graph graph;

  EXPECT_EQ(error_of(ErrorKind::kInternal, [&] { plain(graph, {4}); }), "plain: operand %4 does not exist");
  EXPECT_EQ(error_of(ErrorKind::kInternal, [&] { graph.add_output("y", 2); }), "output 'y': no value %2");
}

TEST(CheckStructure, FindsNothingInASoundGraph) {
  Graph graph;
  const ValueId w = graph.add_input("w", kType, Role::kParameter);
  graph.add_output("w", plain(graph, {w}), w);

  EXPECT_THAT(check_structure(graph), IsEmpty());
}

TEST(CheckStructure, FindsRepeatedNamesAndWrongUpdates) {
  Graph graph;
  const ValueId w = graph.add_input("w", {DType::kF32, {4}}, Role::kParameter);
  graph.add_input("w", kType, Role::kParameter);
  const ValueId y = plain(graph, {w});
  graph.add_output("y", y, w);
  graph.add_output("y", y, y);
  graph.add_output("z", y, 99);

  EXPECT_THAT(check_structure(graph),
              ElementsAre("input 'w' is declared twice", "output 'y' of type f32[2,3] updates an input of type f32[4]",
                          "output 'y' is named twice", "output 'y' updates %2, which is no input",
                          "output 'z' updates %99, which is no input"));
}

TEST(WithoutDeadNodes, KeepsWhatOutputsNeedAndAllInputs) {
  Graph graph("g");
  const ValueId x = graph.add_input("x", kType, Role::kData);
  graph.add_input("unused", kType, Role::kState);
  graph.set_scope("kept");
  const ValueId a = plain(graph, {x});
  graph.set_scope("dead");
  const ValueId b = plain(graph, {a});
  plain(graph, {b});
  graph.set_scope("kept.too");
  const ValueId c = plain(graph, {a, a});
  graph.add_output("c", c);
  graph.add_output("x", a, x);

  const Graph live = without_dead_nodes(graph);

  EXPECT_EQ(to_string(live),
            "graph \"g\"\n"
            "%0: f32[2,3] = data \"x\"\n"
            "%1: f32[2,3] = state \"unused\"\n"
            "%2: f32[2,3] = plain(%0) @\"kept\"\n"
            "%3: f32[2,3] = plain(%2, %2) @\"kept.too\"\n"
            "output \"c\" %3\n"
            "output \"x\" %2 updates %0\n");
}

// Of inputs that nothing reads only those stay that an output replaces.
TEST(WithoutDeadNodes, TakesOutInputsTooWhereAsked) {
  Graph graph("g");
  const ValueId unused = graph.add_input("unused", kType, Role::kParameter);
  const ValueId x = graph.add_input("x", kType, Role::kData);
  const ValueId replaced = graph.add_input("replaced", kType, Role::kState);
  plain(graph, {unused});
  graph.add_output("replaced", plain(graph, {x}), replaced);

  EXPECT_EQ(to_string(without_dead_nodes_and_inputs(graph)),
            "graph \"g\"\n"
            "%0: f32[2,3] = data \"x\"\n"
            "%1: f32[2,3] = state \"replaced\"\n"
            "%2: f32[2,3] = plain(%0)\n"
            "output \"replaced\" %2 updates %1\n");
}

}  // namespace
}  // namespace trireme::graph_test
