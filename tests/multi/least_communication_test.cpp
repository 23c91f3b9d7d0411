// recursive_programming by communication: the documented outcome of MindSpore's SAPP, and what holds of any model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/training_support.h"
#include "trireme/comm/comm.h"
#include "trireme/op/rank_groups.h"
#include "trireme/planner/search.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::least_communication_test {
namespace {

using namespace testing_support;

constexpr int kRanks = 8;

// The documented sample: layers of 784, 512, 512 and 1 on batches of 256 images, and the mean absolute error.
Graph sample() {
  nn::Mlp mlp({784, 512, 512, 1});
  const LossFn mean_absolute_error = [](const Tensor& y, const Tensor& t) { return mean(abs(sub(y, t))); };
  return training_step(mlp_model(mlp), mean_absolute_error,
                       {{"x", {DType::kF32, {256, 1, 28, 28}}}, {"y", {DType::kF32, {256, 1}}}}, Sgd{},
                       {.name = "sample"});
}

Parallel by_communication(int64_t ranks) {
  JobConfig config;
  set_keys(config, {"parallel.mode=auto_parallel", "parallel.search=recursive_programming",
                    "parallel.search_cost=communication"});
  return parallel_of(config, ranks);
}

std::string cuts_of(const Compiled& made, size_t node) {
  std::string out;
  const Strategy& strategy = made.strategy;
  for (const Layout& layout : operand_layouts(*rule_of(made.graph, made.graph.nodes()[node]), strategy.nodes[node])) {
    out += out.empty() ? "(" : ", (";
    for (int dim = 0; dim < layout.rank(); ++dim)
      out += fmt::format("{}{}", dim > 0 ? "," : "", layout.cuts(dim, strategy.mesh));
    out += ")";
  }
  return out;
}

// Of the forward ops, "op: cuts".
std::vector<std::string> forward_cuts(const Compiled& made) {
  std::vector<std::string> out;
  for (size_t i = 0; i < made.graph.nodes().size(); ++i) {
    const Node& node = made.graph.nodes()[i];
    if (node.phase == Phase::kForward) out.push_back(fmt::format("{}: {}", node.op->name, cuts_of(made, i)));
  }
  return out;
}

TEST(LeastCommunication, contracts_7_3_cuts_the_sample_as_documented) {
  const Compiled made = compile(sample(), {.ranks = kRanks, .parallel = by_communication(kRanks)});

  std::vector<std::string> cuts = forward_cuts(made);
  ASSERT_GT(cuts.size(), 8U);
  cuts.resize(9);
  EXPECT_THAT(cuts, testing::ElementsAre("reshape: (8,1,1,1)", "matmul: (4,2), (1,2)", "add: (4,1), (1)", "relu: (4,1)",
                                         "matmul: (4,1), (2,1)", "add: (4,2), (2)", "relu: (4,2)",
                                         "matmul: (4,2), (1,2)", "add: (4,1), (1)"));
  EXPECT_THAT(made.search, testing::StartsWith("auto_parallel by recursive_programming by communication over mesh "));
}

// Ranks make terms of 64 rows each, and ranks 0 and 1 have the same rows.
TEST(LeastCommunication, contracts_7_3_adds_up_the_terms_of_neighbours) {
  const Compiled made = compile(sample(), {.ranks = kRanks, .parallel = by_communication(kRanks)});
  const Program& program = made.program();
  const auto shape = [&](ValueId value) { return program.graph.type(value).shape; };
  const auto product = std::ranges::find_if(program.graph.nodes(), [&](const Node& node) {
    return node.op->name == "matmul" && shape(node.inputs[0]) == Shape{64, 392};
  });
  ASSERT_NE(product, program.graph.nodes().end());
  EXPECT_EQ(shape(product->inputs[1]), (Shape{512, 392}));
  EXPECT_EQ(shape(product->outputs[0]), (Shape{64, 512}));
  const auto sum = std::ranges::find_if(program.graph.nodes(), [&](const Node& node) {
    return node.inputs.size() == 1 && node.inputs[0] == product->outputs[0];
  });
  ASSERT_NE(sum, program.graph.nodes().end());
  EXPECT_EQ(sum->op->name, "all_reduce");
  EXPECT_THAT(groups_of(*sum).of(0, program.mesh), testing::ElementsAre(0, 1));
}

std::vector<float> losses(comm::World* world) {
  constexpr int kSteps = 4;
  Session session(sample(), std::nullopt,
                  {.world = world,
                   .seed = 5,
                   .compile = {.parallel = world != nullptr ? by_communication(world->size()) : Parallel{}}});
  session.initialise();
  std::vector<float> out;
  for (int step = 1; step <= kSteps; ++step) out.push_back(train_step(session, step, 0.01F));
  return out;
}

TEST(LeastCommunication, contracts_7_5_6_trains_the_sample_as_one_device_does) {
  const std::vector<float> whole = losses(nullptr);

  comm::spawn_ranks(kRanks, "threads", [&](comm::World& world) {
    EXPECT_THAT(losses(&world), testing::Pointwise(testing::FloatNear(1e-5F), whole));
  });
}

// No rates are asked.
TEST(LeastCommunication, is_the_same_for_any_machine) {
  Parallel slow = by_communication(kRanks);
  slow.communication.machine = Machine::this_host();
  slow.communication.machine->hosts = 1;
  slow.communication.machine->devices_per_host = kRanks;
  slow.communication.machine->levels = {{"host", kRanks, 1e-2, 1e6}};

  EXPECT_EQ(forward_cuts(compile(sample(), {.ranks = kRanks, .parallel = slow})),
            forward_cuts(compile(sample(), {.ranks = kRanks, .parallel = by_communication(kRanks)})));
}

// Those of a transformer: heads, then columns and rows of the feed-forward layers, with one sum after each pair.
TEST(LeastCommunication, of_few_rows_cuts_weights) {
  nn::Mlp mlp({1024, 4096, 1024});
  const Graph graph =
      training_step(mlp_model(mlp), class_loss(), {{"x", {DType::kF32, {4, 1024}}}, {"y", {DType::kI32, {4}}}}, Sgd{},
                    {.name = "few"});
  const Compiled made = compile(graph, {.ranks = 4, .parallel = by_communication(4)});

  EXPECT_THAT(forward_cuts(made),
              testing::IsSupersetOf({"matmul: (1,1), (4,1)", "relu: (1,4)", "matmul: (1,4), (1,4)"}));
}

TEST(LeastCommunication, keeps_what_is_asked_of_an_op) {
  JobConfig config;
  set_keys(config, {"parallel.mode=auto_parallel", "parallel.search=recursive_programming",
                    "parallel.search_cost=communication", "parallel.mesh=dp=4,tp=2",
                    "parallel.ops=[\"layers.0/matmul = [dp, -], [tp, -]\"]"});
  const Compiled made = compile(sample(), {.ranks = kRanks, .parallel = parallel_of(config, kRanks)});

  const std::vector<std::string> cuts = forward_cuts(made);
  EXPECT_EQ(cuts[1], "matmul: (4,1), (2,1)");
  EXPECT_EQ(cuts[4], "matmul: (4,2), (1,2)") << "rows of weights, after their columns";
}

TEST(LeastCommunication, of_more_memory_than_there_is_says_so) {
  Parallel small = by_communication(kRanks);
  small.communication.machine = Machine::this_host();
  small.communication.machine->hosts = 1;
  small.communication.machine->devices_per_host = kRanks;
  small.communication.machine->levels = {{"host", kRanks, 1e-6, 1e9}};
  small.communication.machine->memory_bytes = 1000;
  try {
    compile(sample(), {.ranks = kRanks, .parallel = small});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the strategy that recursive_programming by communication finds for "
                                                 "graph 'sample' over mesh 'dp=8' needs "));
  }
}

}  // namespace
}  // namespace trireme::least_communication_test
