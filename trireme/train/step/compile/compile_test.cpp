// What a step's programs and those beside it have in common.
#include "trireme/train/step/compile/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme::compile_test {
namespace {

constexpr int64_t kRanks = 2;

// A pipeline of two crews that may take so much of the device's memory, and else the host's and the disk's.
CompiledJob compiled(int64_t device_bytes) {
  const std::vector<std::string> keys{"model.layers=4", "model.width=32", "model.heads=2", "model.vocabulary=32",
                                      "data.seq=16"};
  JobConfig config = parse_config(
      "[model]\nkind = 'llama'\n[data]\nkind = 'synthetic'\n[train]\nsteps = 1\nbatch = 32\n[parallel]\npp = 2\n"
      "gradient_accumulation_steps = 2\nhost_memory = '1MB'\ndisk = '/tmp'\n",
      "job.toml", keys);
  config.parallel.tiers.device = MemorySize(device_bytes);
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, kRanks);
  JobGraphs graphs = graphs_of(assembly, kRanks);
  return compile(std::move(graphs.step), std::move(graphs.evaluation),
                 compile_options(assembly, graphs.parallel, kRanks, 1));
}

// A pipeline whose first crew takes more of the host's memory where it validates than in its steps; its messages are
// staged there.
CompiledJob validating(const std::vector<std::string>& keys) {
  const JobConfig config = parse_config(
      "[model]\nkind = 'gpt'\nlayers = 2\nwidth = 32\nheads = 2\n[data]\nkind = 'synthetic'\nseq = 64\n"
      "validation = 0.25\n[train]\nsteps = 2\nbatch = 8\neval_batch = 16\neval_every = 1\ndevice = 'guarded'\n"
      "[parallel]\npp = 2\ngradient_accumulation_steps = 4\n",
      "job.toml", keys);
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, 2);
  JobGraphs graphs = graphs_of(assembly, kRanks);
  return compile(std::move(graphs.step), std::move(graphs.evaluation),
                 compile_options(assembly, graphs.parallel, kRanks, 1));
}

std::map<std::string, Tier> homes_of_parameters(const ExecutionPlan& plan) {
  std::map<std::string, Tier> out;
  for (const PlanInput& input : plan.inputs) {
    const int buffer = plan.values[static_cast<size_t>(input.value)].buffer;
    if (input.role == Role::kParameter) out[input.name] = plan.buffers[static_cast<size_t>(buffer)].tier;
  }
  return out;
}

int64_t elsewhere(const std::map<std::string, Tier>& homes) {
  return std::ranges::count_if(homes, [](const auto& each) { return each.second != Tier::kDevice; });
}

// The rule "model = host", chosen for one crew, names what the other has as well.
TEST(CompileBeside, an_evaluation_finds_parameters_where_the_step_of_its_crew_has_them) {
  const int64_t whole = compiled(1000000000).step.crews[0].plan.arena().bytes;
  bool any_of_one_crew = false;
  for (int64_t tenths = 9; tenths >= 6; --tenths) {
    const CompiledJob job = compiled(whole / 10 * tenths);
    ASSERT_TRUE(job.evaluation);
    std::vector<int64_t> found;
    for (size_t crew = 0; crew < 2; ++crew) {
      const auto of_step = homes_of_parameters(job.step.crews[crew].plan);
      EXPECT_EQ(homes_of_parameters(job.evaluation->crews[crew].plan), of_step) << "crew " << crew;
      found.push_back(elsewhere(of_step));
    }
    any_of_one_crew = any_of_one_crew || (found[0] > 0 && found[1] == 0);
  }
  EXPECT_TRUE(any_of_one_crew);
}

TEST(CompileBeside, an_evaluation_has_room_in_the_step_on_the_device_and_on_the_host) {
  const CompiledJob job = validating({});
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    for (size_t crew = 0; crew < 2; ++crew) {
      const Arena& step = job.step.crews[crew].plan.arena(tier);
      EXPECT_GE(step.bytes - step.persistent, job.evaluation->crews[crew].plan.arena(tier).bytes)
          << to_string(tier) << " of crew " << crew;
    }
  }
}

TEST(CompileBeside, an_evaluation_beyond_what_the_host_may_give_is_refused) {
  const int64_t host = validating({}).step.crews[0].plan.arena(Tier::kHost).bytes;
  EXPECT_NO_THROW(validating({fmt::format("parallel.host_memory={}B", host)}));
  try {
    validating({fmt::format("parallel.host_memory={}B", host - 1)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.text(),
                testing::HasSubstr(fmt::format("of the host's memory on each rank, and {} where it validates; "
                                               "parallel.host_memory allows",
                                               host)));
  }
}

}  // namespace
}  // namespace trireme::compile_test
