#include "trireme/op/interpret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/op/registry.h"

namespace trireme::interpret_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph graph_of(std::string_view text) {
  return parse_graph(text, find_op_base);
}

std::map<std::string, HostTensor> inputs(std::string name, HostTensor tensor) {
  std::map<std::string, HostTensor> out;
  out.emplace(std::move(name), std::move(tensor));
  return out;
}

std::string error_of(const Graph& graph, const std::map<std::string, HostTensor>& given) {
  try {
    interpret(graph, given);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Interpret, RunsEveryNodeInTurn) {
  const Graph graph = graph_of(
      "%0: f32[2] = data \"x\"\n"
      "%1: f32[2] = scale(%0) {value=3}\n"
      "%2: f32[2] = mul(%1, %0)\n"
      "%3: f32[2] = add(%2, %1)\n"
      "output \"y\" %3\n"
      "output \"x\" %0\n");

  const auto out = interpret(graph, inputs("x", HostTensor::of<float>({2}, {2, -1})));

  EXPECT_THAT(out.at("y").as<float>(), ElementsAre(18, 0));
  EXPECT_THAT(out.at("x").as<float>(), ElementsAre(2, -1));
}

TEST(Interpret, LeavesItsInputsAlone) {
  const Graph graph = graph_of("%0: f32[2] = data \"x\"\n%1: f32[2] = neg(%0)\noutput \"y\" %1\n");
  const auto given = inputs("x", HostTensor::of<float>({2}, {2, -1}));

  interpret(graph, given);

  EXPECT_THAT(given.at("x").as<float>(), ElementsAre(2, -1));
}

TEST(Interpret, InDoubleKeepsWhatSinglePrecisionLoses) {
  const Graph graph = graph_of(
      "%0: f32[1] = data \"x\"\n"
      "%1: f32[1] = add_scalar(%0) {value=1}\n"
      "%2: bf16[1] = cast(%1) {dtype=bf16}\n"
      "%3: bf16[1] = add_scalar(%2) {value=-1}\n"
      "output \"y\" %3\n");
  const auto given = inputs("x", HostTensor::of<float>({1}, {0x1p-30F}));

  EXPECT_EQ(static_cast<float>(interpret(graph, given).at("y").as<BFloat16>()[0]), 0);
  EXPECT_EQ(interpret(graph, given, {.f64 = true}).at("y").as<double>()[0], 0x1p-30);
}

TEST(Interpret, NamesMissingAndMistypedInputs) {
  const Graph graph = graph_of("graph \"net\"\n%0: f32[2] = data \"x\"\noutput \"y\" %0\n");

  EXPECT_EQ(error_of(graph, {}), "interpret: input 'x' of graph 'net' is not given");
  EXPECT_EQ(error_of(graph, inputs("x", HostTensor::of<float>({3}, {1, 2, 3}))),
            "interpret: input 'x' is f32[3]; the graph takes f32[2]");
}

TEST(Interpret, SaysWhichNodeHasNoKernel) {
  const Graph graph = graph_of(
      "%0: f32[2] = data \"x\"\n"
      "%1: f32[2] = all_reduce(%0) {axes=[0], size=2} @\"layer.1\"\n"
      "output \"y\" %1\n");

  EXPECT_THAT(error_of(graph, inputs("x", HostTensor({DType::kF32, {2}}))),
              HasSubstr("while interpreting all_reduce at 'layer.1'"));
}

}  // namespace
}  // namespace trireme::interpret_test
