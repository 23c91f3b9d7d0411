// The mode "invariant" asks the device what its kernels keep.
#include "trireme/train/step/compile/invariant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/computed_rule.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::invariant_test {
namespace {

using testing::HasSubstr;

Graph product() {
  Graph graph("product");
  const Tensor x = {graph, graph.add_input("x", {DType::kF32, {4, 8}}, Role::kData)};
  const Tensor w = {graph, graph.add_input("w", {DType::kF32, {8, 4}}, Role::kParameter)};
  graph.add_output("y", matmul(x, w).id());
  return graph;
}

// A device of sizes alone.
std::shared_ptr<Device> toy() {
  const std::string path = std::filesystem::temp_directory_path() / "trireme-invariant.toml";
  Machine machine = Machine::this_host();
  machine.name = "toy";
  write_machine(machine, path);
  std::shared_ptr<Device> made = make_device("described:" + path);
  std::filesystem::remove(path);
  return made;
}

TEST(Invariant, accepts_what_the_kernels_of_the_device_keep) {
  const Graph graph = product();
  const Node& node = graph.nodes()[0];
  const Mesh mesh = parse_mesh("a=2");
  FactorCuts cuts;
  for (const Factor& factor : rule_of(graph, node)->factors)
    cuts.axes.push_back(factor.name == "k" ? std::vector{0} : std::vector<int>());
  EXPECT_EQ(why_not_invariant(graph, node, cuts, mesh, cpu_device()), "");
  EXPECT_EQ(why_not_invariant(graph, node, cuts, mesh, *make_device("guarded")), "");
  EXPECT_EQ(why_not_invariant(graph, node, cuts, mesh, *toy()),
            "computed by a kernel of which the device 'toy' does not say that it keeps its bits");
}

TEST(Invariant, is_refused_with_the_reason_of_a_device_without_kernels) {
  try {
    compile(product(), {.device = toy(), .numerics = Numerics::kInvariant});
    ADD_FAILURE() << "it was compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(e.text(), HasSubstr("numerics = 'invariant' is a promise of kernels"));
  }
}

}  // namespace
}  // namespace trireme::invariant_test
