// How what is cut is moved between ranks, and that the answer stays the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/contract_support.h"
#include "tests/multi/training_support.h"
#include "tests/worst.h"
#include "trireme/base/log.h"
#include "trireme/data/source.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/parallel_layers.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/loop/trainer.h"

namespace trireme::communication_test {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

// How many nodes of this name the program has, by the element type of their operands.
std::map<std::string, int> count_by_type(const Program& program, std::string_view op) {
  std::map<std::string, int> out;
  for (const Node& node : program.graph.nodes()) {
    if (node.op->name == op) ++out[std::string(to_string(program.graph.type(node.inputs[0]).dtype))];
  }
  return out;
}

// x cut by rows, then by columns.
Graph exchange() {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 8}}, Role::kData));
  graph.set_scope("rows");
  const Tensor h = relu(x);
  graph.set_scope("columns");
  graph.add_output("y", square(h).id());
  graph.set_scope("");
  return graph;
}

TEST(Communication, without_all_to_all_an_exchange_is_a_gather_and_a_slice_with_the_same_result) {
  Parallel parallel;
  parallel.ops = {{"rows", "{{4, 1}}"}, {"columns", "{{1, 4}}"}};
  const OnRanks with = run_on_ranks(exchange(), 4, parallel);
  parallel.communication.all_to_all = false;
  const OnRanks without = run_on_ranks(exchange(), 4, parallel);
  EXPECT_EQ(count_by_type(with.program, "all_to_all")["f32"], 1);
  EXPECT_EQ(count_by_type(without.program, "all_to_all")["f32"], 0);
  EXPECT_EQ(with.outputs, without.outputs);
  EXPECT_EQ(without.outputs, run_on_ranks(exchange(), 1, {}).outputs);
}

// Four ranks in pairs with slow links between the pairs: what crosses them has been summed within the pairs.
TEST(Communication, reshards_are_chosen_by_the_links_of_the_machine) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {4, 512, 512}}, Role::kData));
  graph.add_output("y", reduce_sum(x, {0}).id());
  Parallel parallel;
  const OnRanks alike = run_on_ranks(graph, 4, parallel);
  EXPECT_EQ(count_by_type(alike.program, "reduce_scatter")["f32"], 0);
  Machine machine = Machine::this_host();
  machine.hosts = 2;
  machine.devices_per_host = 2;
  machine.levels = {{"host", 2, 1e-6, 1e10}, {"rack", 4, 1e-6, 1e7}};
  parallel.communication.machine = machine;
  const OnRanks pairs = run_on_ranks(graph, 4, parallel);
  EXPECT_EQ(count_by_type(pairs.program, "reduce_scatter")["f32"], 1) << to_string(pairs.program);
  for (size_t i = 0; i < alike.outputs.at("y").size(); ++i) {
    ASSERT_NEAR(pairs.outputs.at("y")[i], alike.outputs.at("y")[i], 4 * 0x1p-22);
  }
}

Graph bf16_step(int64_t experts) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 1, .width = 16, .heads = 2, .experts = experts});
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), Sgd{.momentum = 0},
                       {.name = "gpt", .seed = 3, .compute = DType::kBF16});
}

Compiled compile_bf16(int64_t experts, const Communication& communication) {
  Parallel parallel;
  parallel.communication = communication;
  return compile(bf16_step(experts), {.ranks = 2, .parallel = parallel});
}

TEST(Communication, gradients_of_layers_in_bf16_are_summed_in_the_type_asked_for) {
  const auto types = [](int64_t experts, bool in_f32) {
    const Compiled compiled = compile_bf16(experts, {.gradients_in_f32 = in_f32});
    std::vector<std::string> out;
    for (const auto& [type, number] : count_by_type(compiled.partitioned, "all_reduce")) out.push_back(type);
    return out;
  };
  EXPECT_THAT(types(0, true), ElementsAre("f32"));
  EXPECT_THAT(types(0, false), ElementsAre("bf16", "f32"));  // the loss is f32
}

// The gradients of experts are products of batches, bf16 themselves; two weights and two biases a layer.
TEST(Communication, gradients_of_experts_in_bf16_are_summed_in_f32_unless_it_is_said) {
  const auto sums = [](bool in_f32) {
    return count_by_type(compile_bf16(2, {.gradients_in_f32 = in_f32}).partitioned, "all_reduce");
  };
  std::map<std::string, int> wide = sums(true);
  std::map<std::string, int> narrow = sums(false);
  EXPECT_GE(narrow["bf16"], wide["bf16"] + 2);
  EXPECT_EQ(narrow["bf16"] + narrow["f32"], wide["bf16"] + wide["f32"]);
}

TEST(Communication, every_sum_is_taken_in_f32_when_that_is_asked) {
  JobConfig config;
  set_keys(config, {"model.heads=2"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = 2;
  const auto types = [&](bool force) {
    config.parallel.communication.all_in_f32 = force;
    const Compiled compiled = compile(bf16_step(0), {.ranks = 2, .parallel = parallel_of(config, 2)});
    return count_by_type(compiled.partitioned, "all_reduce");
  };
  EXPECT_GT(types(false)["bf16"], 0);
  EXPECT_EQ(types(true)["bf16"], 0);
  EXPECT_GT(types(true)["f32"], types(false)["f32"]);
}

// A sum of two terms in bf16 is off by 2^-9 of itself, in f32 by nothing that a weight of this size shows.
TEST(Communication, sums_in_bf16_train_as_one_device_does_to_the_rounding_of_bf16) {
  const auto trained = [](comm::World* world, const Communication& communication) {
    Parallel parallel;
    parallel.communication = communication;
    Session session(bf16_step(0), std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
    session.initialise();
    const auto weight = session.step().input("h.0.mlp.c_fc.weight").as<float>();
    std::vector<float> moved(weight.begin(), weight.end());
    train_step(session, 1, 1.0F);
    for (size_t i = 0; i < moved.size(); ++i) moved[i] -= weight[i];
    return moved;
  };
  const std::vector<float> one = trained(nullptr, {});
  const double largest = largest_of(one);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const std::vector<float> wide = trained(&world, {});
    const std::vector<float> narrow = trained(&world, {.gradients_in_f32 = false});
    EXPECT_NE(narrow, wide);
    for (size_t i = 0; i < one.size(); ++i) {
      ASSERT_NEAR(wide[i], one[i], 0x1p-8 * largest) << i;
      ASSERT_NEAR(narrow[i], one[i], 3 * 0x1p-8 * largest) << i;
    }
  });
}

// Contracts 5.6. Every rank has the whole loss and seeds the backward pass with 1; cotangents of a replicated value are
// replicated, so nothing is counted twice and nothing is divided, whatever the key says.
TEST(Communication, a_loss_that_every_rank_repeats_counts_once) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 6}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {6, 4}}, Role::kParameter));
  const Tensor loss = mean(square(matmul(x, w)));
  graph.add_output("loss", loss.id());
  graph.add_output("grad", gradients(loss, std::vector<Tensor>{w})[0].id());
  const OnRanks one = run_on_ranks(graph, 1, {});
  for (const bool repeated_mean : {true, false}) {
    JobConfig config;
    config.parallel.mode = Mode::kSemiAuto;
    config.parallel.dataset = "full_batch";
    config.parallel.loss_repeated_mean = repeated_mean;
    EXPECT_EQ(run_on_ranks(graph, 4, parallel_of(config, 4)).outputs, one.outputs) << repeated_mean;
  }
}

struct Asking : nn::Module {
  nn::ColumnLinear up{12, 16, {.name = "up"}};
  nn::RowLinear down{16, 10, {.name = "down"}};
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
};

TEST(Communication, data_parallel_ranks_do_not_follow_what_modules_ask) {
  Asking model;
  const Graph graph = training_step([&](const Tensor& x) { return model(x); }, class_loss(), mlp_batch(), Sgd{});
  Parallel parallel;
  EXPECT_ANY_THROW(semi_auto(graph, 4, parallel)) << "the mesh has no axis tp";
  parallel.follow_requests = false;
  const Strategy strategy = semi_auto(graph, 4, parallel);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i].role != Role::kParameter) continue;
    EXPECT_TRUE(strategy.inputs[i].is_replicated()) << graph.inputs()[i].name;
  }
}

struct AskingImages : nn::Module {
  nn::Linear head{28 * 28, 10, {.name = "head"}};
  AskingImages() { head.shard({{1, 1}, {2, 1}}); }
  Tensor forward(const Tensor& x) override { return head(reshape(x, {x.size(0), 28 * 28})); }
};

// What a step of training says that has these words in it.
std::vector<std::string> said_of(std::string_view words, nn::Module& model, TrainerOptions how, bool resume = false) {
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  how.progress = false;
  Trainer trainer(model, cross_entropy, Sgd{}, how);
  trainer.fit(data::synthetic_images({.samples = 8, .classes = 10}), {.steps = 1, .batch = 4, .resume = resume});
  set_log_sink({});
  std::erase_if(lines, [&](const std::string& line) { return line.find(words) == line.npos; });
  return lines;
}

TEST(Communication, in_data_parallel_mode_the_log_says_once_that_shard_is_ignored) {
  AskingImages model;
  EXPECT_THAT(said_of("shard()", model, {.mode = Mode::kDataParallel}),
              ElementsAre(HasSubstr("shard() is ignored, of 1 modules, the first 'head'")));
  EXPECT_THAT(said_of("shard()", model, {.mode = Mode::kSemiAuto}), ElementsAre());
}

TEST(Communication, without_a_pipeline_the_log_says_once_that_stages_are_ignored) {
  AskingImages model;
  EXPECT_THAT(said_of("pipeline_stage()", model, {.mode = Mode::kSemiAuto}), ElementsAre());
  model.head.pipeline_stage(1);
  EXPECT_THAT(said_of("pipeline_stage()", model, {.mode = Mode::kSemiAuto}),
              ElementsAre(HasSubstr("pipeline_stage() is ignored, of 1 module, the first 'head'")));
}

TEST(Communication, a_run_that_finds_nothing_to_resume_says_so) {
  AskingImages model;
  EXPECT_THAT(
      said_of("nothing to resume", model, {.mode = Mode::kSemiAuto}, true),
      ElementsAre(HasSubstr("nothing to resume: the trainer's options name no folder (out); training begins anew")));
  EXPECT_THAT(said_of("nothing to resume", model, {.mode = Mode::kSemiAuto}), ElementsAre());
}

}  // namespace
}  // namespace trireme::communication_test
