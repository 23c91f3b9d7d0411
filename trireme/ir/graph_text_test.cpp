#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ir/graph.h"

namespace trireme::graph_text_test {
namespace {

using ::testing::HasSubstr;

struct ToyAttrs {
  int64_t times = 1;
  std::string label;
  static constexpr auto fields() {
    return std::tuple{field("times", &ToyAttrs::times), field("label", &ToyAttrs::label)};
  }
};

const OpBase kToy{"toy", &Attrs::parse<ToyAttrs>};
const OpBase kPlain{"plain", &Attrs::parse<NoAttrs>};

const OpBase* find_toy(std::string_view name) {
  if (name == "toy") return &kToy;
  return name == "plain" ? &kPlain : nullptr;
}

std::string error_of(std::string_view text) {
  try {
    parse_graph(text, find_toy);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(GraphText, IsReadBackIdentical) {
  const std::string text =
      "graph \"mlp\"\n"
      "%0: f32[32,784] = data \"image\"\n"
      "%1: f32[512,784] = parameter \"up.weight\" normal(0,0.02) piece \"[tp, -]\"\n"
      "%2: f32[512] = state \"up.bias.m\" uniform(-0.5,0.5)\n"
      "%3: f32[] = schedule \"lr\" piece \"own\"\n"
      "%4: f32[32,512] = toy(%0, %1, %2) {times=3, label=\"a \\\"b\\\" \\\\ {c, d}\"} @\"up\"\n"
      "%5: f32[32,512], %6: i64[2] = plain(%4) @\"down.0\"\n"
      "output \"loss\" %5\n"
      "output \"up.weight\" %1 updates %1\n";

  EXPECT_EQ(to_string(parse_graph(text, find_toy)), text);
}

// Whatever Module::set_comm_fusion takes.
TEST(GraphText, ReadsTheIdsOfFusionsBack) {
  const std::string text =
      "graph \"net\"\n"
      "fusion \"a\" 2147483648\n"
      "fusion \"a.b\" 9223372036854775807 own\n"
      "%0: f32[2] = data \"x\"\n"
      "output \"x\" %0\n";
  EXPECT_EQ(to_string(parse_graph(text, find_toy)), text);
  EXPECT_NE(error_of("fusion \"a\" 9223372036854775808\n").find("expected a number from 0"), std::string::npos);
}

// A gradient may stand above what it is the gradient of, and be that of several values.
TEST(GraphText, KeepsWhatIsKnownOfTraining) {
  const std::string text =
      "graph \"step\"\n"
      "%0: f32[2] = data \"x\"\n"
      "%1: f32[2] = parameter \"w\"\n"
      "%2: f32[2] = state \"w.m\"\n"
      "%3: f32[2] = plain(%0, %1) @\"a\"\n"
      "%4: f32[2] d%7 d%3 = plain(%3) @\"grad/a\" backward\n"
      "%5: f32[2] d%1, %6: f32[2] = plain(%4) backward of 0\n"
      "%7: f32[2] = plain(%0, %1) @\"a\" again\n"
      "%8: f32[2], %9: f32[2] = plain(%1, %5, %2) @\"update/w\" update\n"
      "output \"w\" %8 updates %1\n"
      "output \"w.m\" %9 updates %2\n"
      "update %1 from %5 with %2\n";

  const Graph graph = parse_graph(text, find_toy);

  EXPECT_EQ(to_string(graph), text);
  EXPECT_TRUE(check_structure(graph).empty());
  EXPECT_EQ(to_string(without_dead_nodes(graph)).find("d%3") != std::string::npos, true);
  EXPECT_EQ(graph.node(1).phase, Phase::kBackward);
  EXPECT_EQ(graph.node(2).gradient_of, 0);
  EXPECT_TRUE(graph.node(3).again);
  EXPECT_TRUE(graph.is_gradient(4, 7));
  EXPECT_FALSE(graph.is_gradient(7, 4));
  EXPECT_EQ(graph.update_of(1)->gradient, 5);
  EXPECT_EQ(graph.update_of(0), nullptr);
}

TEST(GraphText, KeepsNumbersOfInputsMadeAfterNodes) {
  Graph graph("late");
  const TensorType type{DType::kF32, {2}};
  const ValueId x = graph.add_input("x", type, Role::kData);
  const NodeId first = graph.add_node(kPlain, {}, {{x}}, std::span(&type, 1));
  const ValueId w = graph.add_input("w", type, Role::kParameter);
  graph.add_node(kPlain, {}, {{graph.node(first).outputs[0], w}}, std::span(&type, 1));
  const std::string text = to_string(graph);

  const Graph back = parse_graph(text, find_toy);

  EXPECT_EQ(to_string(back), text);
  EXPECT_EQ(back.input("w").value, w);
}

TEST(GraphText, KeepsNodesWithoutResults) {
  const std::string text = "graph \"g\"\n%0: f32[2] = data \"x\"\nplain(%0)\n";

  EXPECT_EQ(to_string(parse_graph(text, find_toy)), text);
}

TEST(GraphText, EscapesQuotesInNames) {
  Graph graph("a \"quoted\" \\ name");
  graph.add_output("y\"", graph.add_input("x\"", {DType::kF32, {}}, Role::kData));

  const Graph back = parse_graph(to_string(graph), find_toy);

  EXPECT_EQ(back.name(), graph.name());
  EXPECT_EQ(back.inputs()[0].name, "x\"");
  EXPECT_EQ(back.outputs()[0].name, "y\"");
}

TEST(GraphText, SkipsEmptyLines) {
  EXPECT_EQ(to_string(parse_graph("graph \"g\"\n\n   \n%7: f32[] = data \"x\"\n\noutput \"y\" %7", find_toy)),
            "graph \"g\"\n%0: f32[] = data \"x\"\noutput \"y\" %0\n");
}

TEST(GraphText, NamesLineAndPlaceOfWhatItCannotRead) {
  const std::string x = "%0: f32[2] = data \"x\"\n";

  EXPECT_THAT(error_of("graph mlp\n"), HasSubstr("graph text, line 1: expected a \"name\" at 'mlp'"));
  EXPECT_THAT(error_of("%a: f32[] = data \"x\""), HasSubstr("line 1: expected a value number at 'a: f32[]"));
  EXPECT_THAT(error_of("%0 f32[] = data \"x\""), HasSubstr("line 1: expected ':' at 'f32[] = data \"x\"'"));
  EXPECT_THAT(error_of("%0: f32 = data \"x\""), HasSubstr("line 1: expected a type like f32[4,8] at 'f32 = data"));
  EXPECT_THAT(error_of("%0: f31[2] = data \"x\""), HasSubstr("'f31' is not an element type"));
  EXPECT_THAT(error_of("%0: f31[2] = data \"x\""), HasSubstr("in line 1 of the graph text"));
  EXPECT_THAT(error_of("%0: f32[] = data x"), HasSubstr("line 1: expected a \"name\" at 'x'"));
  EXPECT_THAT(error_of("%0: f32[] = data \"x"), HasSubstr("line 1: expected a \"name\" at '\"x'"));
  EXPECT_THAT(error_of("%0: f32[], %1: f32[] = data \"x\""), HasSubstr("line 1: an input has one value"));
  EXPECT_THAT(error_of("%0: f32[] = data \"x\" gauss(0,1)"), HasSubstr("line 1: no initialiser 'gauss'"));
  EXPECT_THAT(error_of("%0: f32[] = data \"x\" constant(a)"), HasSubstr("line 1: expected a number at ')'"));
  EXPECT_THAT(error_of("%0: f32[] = data \"x\" normal(0)"), HasSubstr("line 1: expected ',' at ')'"));
  EXPECT_THAT(error_of(x + "%0: f32[2] = data \"z\""), HasSubstr("line 2: %0 is made twice"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain(%3)"), HasSubstr("line 2: %3 is not made above at ')'"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plein(%0)"), HasSubstr("line 2: no op named 'plein' at '(%0)'"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain %0"), HasSubstr("line 2: expected '(' at '%0'"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain(%0 %0)"), HasSubstr("line 2: expected ',' at '%0)'"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = toy(%0) {times=2"), HasSubstr("line 2: attributes are not closed"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = toy(%0) {time=2}"), HasSubstr("no attribute 'time'. Did you mean 'times'?"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = toy(%0) {times=x}"),
              HasSubstr("attribute 'times': cannot read 'x'\n  in line 2 of the graph text"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain(%0) more"), HasSubstr("line 2: unexpected text at 'more'"));
  EXPECT_THAT(error_of(x + "graph \"b\""), HasSubstr("line 2: the graph's name must stand first"));
  EXPECT_THAT(error_of(x + "output \"y\" %4"), HasSubstr("line 2: %4 is not made above"));
  EXPECT_THAT(error_of(x + "%1: f32[2] d%4 = plain(%0)"), HasSubstr("line 2: %4 is not made above"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain(%0) backward of 0"),
              HasSubstr("line 2: expected the number of a node above at '0'"));
  EXPECT_THAT(error_of(x + "%1: f32[2] = plain(%0) @\"grad/\" gradient of 0"),
              HasSubstr("line 2: expected 'backward' or 'update': older texts have 'gradient of' and no phase; print "
                        "the graph again at 'gradient of 0'"));
  EXPECT_THAT(error_of(x + "update %0 with %0"), HasSubstr("line 2: expected 'from' at 'with %0'"));
  EXPECT_THAT(error_of(x + "output \"y\" %0 updates 3"), HasSubstr("line 2: expected '%' at '3'"));
}

}  // namespace
}  // namespace trireme::graph_text_test
