// The one place graphs and plans come from: what the keys of a configuration become in them.
#include "trireme/train/step/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/worst.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/mesh/tuning.h"
#include "trireme/train/infer/generate.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme::assembly_test {
namespace {

JobConfig job(const std::string& lines) {
  return parse_config(
      "[model]\nkind = 'mlp'\nhidden = [6]\nclasses = 4\n[data]\nkind = 'synthetic'\nimage = [2, 2, 1]\nvalidation = "
      "0.5\n"
      "[train]\nsteps = 1\nbatch = 8\noptimizer = 'sgd'\nmomentum = 0.0\nweight_decay = 0.0\nclip = 0.0\n" +
          lines,
      "job.toml");
}

// How far a step of rate 1 moves the parameters of the first rank.
std::vector<float> movement(const JobConfig& config, int ranks) {
  std::vector<float> out;
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    const auto model = make_model(config);
    ThreadPool pool(1);
    Session session = session_of(assembly_of(config, *model, ranks), ranks == 1 ? nullptr : &world, &pool);
    session.initialise();
    Executor& step = session.step();
    const Box box = step.input_box("image");
    const auto first = static_cast<float>(box.start[0] * 4);
    float next = first;
    for (float& x : step.input("image").as<float>()) x = (next += 1) / 32;
    int32_t label = static_cast<int32_t>(box.start[0]);
    for (int32_t& y : step.input("label").as<int32_t>()) y = label++ % 4;
    step.input("lr").as<float>()[0] = 1;
    step.input("step").as<int64_t>()[0] = 1;
    std::vector<float> moved;
    const auto add = [&](float sign) {
      size_t i = 0;
      for (const PlanInput& input : session.persistent()) {
        if (input.role != Role::kParameter) continue;
        for (const float x : step.input(input.name).as<float>()) {
          if (sign < 0) moved.push_back(-x);
          if (sign > 0) moved[i++] += x;
        }
      }
    };
    add(-1);
    step.run();
    add(1);
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) out = moved;
  });
  return out;
}

void expect_times(const std::vector<float>& values, double factor, const std::vector<float>& of) {
  ASSERT_EQ(values.size(), of.size());
  ASSERT_GT(testing_support::largest_of(of), 1e-3);
  for (size_t i = 0; i < of.size(); ++i)
    EXPECT_NEAR(values[i], factor * of[i], factor * 1e-5 * testing_support::largest_of(of)) << i;
}

// Contracts 3.2 and 5.6.
TEST(GradientsMean, false_adds_up_what_data_parallel_ranks_have_and_changes_no_gradient_of_one_loss) {
  const std::vector<float> one = movement(job(""), 1);
  const std::string no_mean = "[parallel]\ngradients_mean = false\nmode = ";
  expect_times(movement(job(""), 2), 1, one);
  expect_times(movement(job(no_mean + "'data_parallel'"), 2), 2, one);
  expect_times(movement(job(no_mean + "'hybrid_parallel'"), 2), 2, one);
  const std::string by_hand = no_mean + "'hybrid_parallel'\n";
  expect_times(movement(job(by_hand + "mesh = 'data=2'\ndataset = '[data]'"), 2), 2, one);
  expect_times(movement(job(by_hand + "mesh = 'data=2'\nfields = ['image = [data]', 'label = [data]']"), 2), 2, one);
  expect_times(movement(job(by_hand + "mesh = 'dp=2,more=2'\ndataset = '[dp*more]'"), 4), 4, one);
  expect_times(movement(job(by_hand + "mesh = 'dp=2,tp=2'"), 4), 2, one);
  expect_times(movement(job(no_mean + "'semi_auto_parallel'"), 2), 1, one);
  expect_times(movement(job(no_mean + "'semi_auto_parallel'\ndataset = 'full_batch'"), 2), 1, one);
  expect_times(movement(job(no_mean + "'semi_auto_parallel'\nmesh = 'dp=2,tp=2'"), 4), 1, one);
}

TEST(GradientsMean, false_is_refused_where_the_batch_is_not_cut_or_its_fields_are_cut_differently) {
  const auto error = [](const std::string& lines) -> std::string {
    try {
      trainer_options(job("[parallel]\ngradients_mean = false\nmode = 'hybrid_parallel'\n" + lines), 4);
    } catch (const Error& e) {
      return e.text();
    }
    return "none";
  };
  EXPECT_THAT(error("dataset = 'full_batch'"), testing::HasSubstr("no effect where every rank has the whole batch"));
  EXPECT_THAT(error("mesh = 'a=2,b=2'\nfields = ['image = [a]', 'label = [a*b]']"),
              testing::HasSubstr("'image' is cut in 2 parts, 'label' in 4; cut the samples of both alike"));
}

TEST(Assembly, makes_every_graph_of_a_job_of_its_keys) {
  const JobConfig config = job("dtype = 'bf16'\n");
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, 1);
  const JobGraphs graphs = graphs_of(assembly, 1);
  ASSERT_TRUE(graphs.evaluation.has_value());
  EXPECT_EQ(to_string(*graphs.evaluation), to_string(evaluation_of(assembly, 1)));
  EXPECT_THAT(to_string(*graphs.evaluation), testing::HasSubstr("\"correct\""));
  for (const Graph& graph : {graphs.step, *graphs.evaluation, inference_of(assembly, 1)}) {
    EXPECT_THAT(to_string(graph), testing::HasSubstr("bf16[8,6] = matmul(")) << graph.name();
  }
}

TEST(Assembly, without_a_share_held_out_nothing_is_validated) {
  const JobConfig config = parse_config("[data]\nkind = 'synthetic'\nvalidation = 0\n[train]\nsteps = 1\n", "job.toml");
  const auto model = make_model(config);
  EXPECT_FALSE(graphs_of(assembly_of(config, *model, 1), 1).evaluation.has_value());
}

TEST(Assembly, kernels_are_chosen_for_all_threads_that_compute_on_a_host) {
  const auto busy = [](const std::string& lines, int64_t ranks, int threads) {
    const JobConfig config = job(lines);
    const auto model = make_model(config);
    const Assembly assembly = assembly_of(config, *model, ranks);
    return compile_options(assembly, parallel_of(assembly), ranks, threads).tuning->busy;
  };
  EXPECT_EQ(busy("", 1, 1), 1);
  EXPECT_EQ(busy("", 1, 3), 3);
  EXPECT_EQ(busy("", 4, 2), 8);
  const TempDirectory folder;
  Machine machine = Machine::this_host();
  machine.hosts = 2;
  machine.devices_per_host = 2;
  machine.levels.back().devices = 2;
  machine.levels.push_back(machine.levels.back());
  machine.levels.back().name = "network";
  machine.levels.back().devices = 4;
  write_machine(machine, folder / "two_hosts.toml");
  const std::string on_hosts = "[parallel]\nmachine = '" + (folder / "two_hosts.toml") + "'\n";
  EXPECT_EQ(busy(on_hosts, 4, 2), 4);
}

}  // namespace
}  // namespace trireme::assembly_test
