// `trireme simulate`: what a run of many steps takes on ranks that are not there.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trireme::cli::simulate_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class SimulateTest : public CliTest {
 protected:
  void SetUp() override {
    write("job.toml",
          "[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 16\nheads = 2\n[data]\nkind = \"synthetic\"\nseq = 8\n"
          "samples = 64\n[train]\nsteps = 100\nbatch = 8\nsave_every = 20\n");
  }
};

TEST_F(SimulateTest, ARunIsItsStepsItsCheckpointsAndWhatFailuresCost) {
  const Outcome one = run({"simulate", "job.toml", "-n", "4", "--tp", "2", "--checkpoint-seconds", "3", "--fail",
                           "rank=3,step=50", "--restart-seconds", "7"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("modelled step of 4 ranks"));
  EXPECT_THAT(one.out, HasSubstr("simulated run of 100 steps"));
  EXPECT_THAT(one.out, HasSubstr("9 whole steps")) << "41 to 49 come after the checkpoint";
  EXPECT_THAT(one.out, ContainsRegex("checkpoints +15 s .*every 20 steps and after the last, 3 s each"));
  EXPECT_THAT(one.out, ContainsRegex("restarts +7 s .*1 failure, 7 s each"));
  const Outcome other =
      run({"simulate", "job.toml", "-n", "4", "--checkpoint-every", "0", "--checkpoint-seconds", "3"});
  EXPECT_THAT(other.out, ContainsRegex("checkpoints +3 s .*after the last step, 3 s each"));
  EXPECT_THAT(other.out, HasSubstr("0 failures"));
}

TEST_F(SimulateTest, ARankThatIsNamedTwiceIsRefused) {
  EXPECT_THAT(run({"simulate", "job.toml", "-n", "2", "--straggler", "rank=1,x=2", "--straggler", "rank=1,x=3"}).err,
              HasSubstr("simulate: --straggler names rank 1 twice; leave one out"));
  EXPECT_THAT(run({"explain", "job.toml", "-n", "2", "--stage", "time", "--slow", "1=2", "--slow", "1=3"}).err,
              HasSubstr("explain: --slow names rank 1 twice; leave one out"));
  EXPECT_THAT(run({"simulate", "gpt22", "-n", "2"}).err, HasSubstr("no model of this name. Did you mean 'gpt2'?"));
}

TEST_F(SimulateTest, ACheckpointHasWhatLiesOnTheDiskToo) {
  const std::string homes = "parallel.home=[\"* = disk\", \"*/state = disk\"]";
  const Outcome usual = run({"simulate", "job.toml"});
  const Outcome on_disk = run({"simulate", "job.toml", "--set", homes});
  EXPECT_EQ(on_disk.code, 0) << on_disk.err;
  const auto seconds = [](const std::string& text) {
    const std::string_view before = "after the last, ";
    return std::stod(text.substr(text.find(before) + before.size()));
  };
  EXPECT_GE(seconds(on_disk.out), seconds(usual.out)) << "the disk has whole sectors";
}

TEST_F(SimulateTest, AStragglerIsSaidRankByRankAndTheTraceHasBytes) {
  const Outcome outcome =
      run({"simulate", "job.toml", "-n", "2", "--straggler", "rank=1,x=3", "--trace", "trace.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("with all ranks alike the step would take"));
  EXPECT_THAT(outcome.out, HasSubstr("rank"));
  const auto trace = nlohmann::json::parse(read(path("trace.json")));
  int64_t most = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("ph", "") == "C") most = std::max(most, event.at("args").at("bytes").get<int64_t>());
  }
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("most bytes in use: {} at", most)));
}

TEST_F(SimulateTest, RandomFailuresComeAgainWithTheirSeed) {
  const Words words{
      "simulate", "job.toml", "-n", "4", "--steps", "5000000", "--checkpoint-every", "1000", "--checkpoint-seconds",
      "0.1",      "--mtbf",   "2"};
  const auto with_seed = [&](const char* seed) {
    Words more = words;
    more.insert(more.end(), {"--failure-seed", seed});
    return run(more).out;
  };
  const std::string one = with_seed("1");
  EXPECT_EQ(one, with_seed("1"));
  EXPECT_NE(one, with_seed("2"));
  EXPECT_THAT(one, HasSubstr("would lose the least time, by Young's formula"));
}

TEST_F(SimulateTest, AModelCanBeNamedAndOneThatDoesNotFitIsRefusedAfterAllIsShown) {
  const std::string machine = TRIREME_SOURCE_DIR "/machines/h100x8.toml";
  const Outcome fits = run({"simulate", "gpt2", "-n", "8", "--tp", "2", "--batch", "8", "--machine", machine});
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("by the rates of 'h100x8'"));
  const Outcome large = run({"simulate", "gpt2-xl", "-n", "1", "--batch", "64", "--machine", machine});
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.out, HasSubstr("simulated run of 1 step:"));
  EXPECT_THAT(large.err, HasSubstr("device 'h100x8' has 74.5 GiB"));
}

TEST_F(SimulateTest, WhatCannotBeIsRefused) {
  const auto error_of = [&](const Words& more) {
    Words words{"simulate", "job.toml", "-n", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(error_of({"--straggler", "7"}), HasSubstr("simulate: --straggler '7'; write rank=RANK,x=FIGURE"));
  EXPECT_THAT(error_of({"--straggler", "rank=2,x=2"}), HasSubstr("ranks are 0 to 1"));
  EXPECT_THAT(error_of({"--fail", "rank=0,step=x"}), HasSubstr("write rank=RANK,step=FIGURE"));
  EXPECT_THAT(error_of({"--fail", "rank=2,step=5"}), HasSubstr("rank 2 fails in step 5; there are ranks 0 to 1"));
  EXPECT_THAT(error_of({"--fail", "rank=0,step=101"}), HasSubstr("steps 1 to 100"));
  EXPECT_THAT(error_of({"--device-memory", "1KB", "--set", "parallel.auto_offload=false"}),
              HasSubstr("parallel.device_memory allows 1KB"));
  EXPECT_THAT(error_of({"--set", "train.steps=0", "--epochs", "2"}),
              HasSubstr("depends on its data; give it with --steps"));
}

}  // namespace
}  // namespace trireme::cli::simulate_test
