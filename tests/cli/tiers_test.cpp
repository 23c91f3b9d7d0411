// `trireme train` with what a job has in other tiers of memory than the device's.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/program.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::tiers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TiersTest : public CliTest {
 protected:
  Outcome train(const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml", "--quiet", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  void expect_trained(const std::string& out, const Words& more) {
    const Outcome outcome = train(out, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }

  void expect_equal_checkpoints(const std::string& a, const std::string& b) const {
    const ckpt::Reader one(path(a + "/checkpoints")), other(path(b + "/checkpoints"));
    ASSERT_EQ(one.names(), other.names());
    ASSERT_THAT(one.names(), Not(IsEmpty()));
    for (const std::string& name : one.names()) {
      const HostTensor x = one.read(name), y = other.read(name);
      EXPECT_TRUE(std::ranges::equal(x.view().raw(), y.view().raw())) << name;
    }
  }
};

const std::string kOnDisk = "parallel.home=[\"*/state = disk\"]";
const std::string kOnHost = "parallel.home=[\"*/state = host\"]";
const std::string kKeptOnDisk = "parallel.keep=[\"h.* = disk\"]";

TEST_F(TiersTest, StateOnTheDiskTrainsToTheSameBitsAndLeavesNothing) {
  write_gpt();
  std::filesystem::create_directory(path("swap"));
  expect_trained("usual", {"-n", "2"});
  expect_trained("swapped", {"-n", "2", "--set", kOnDisk, "--set", kKeptOnDisk, "--disk", path("swap")});
  expect_equal_checkpoints("usual", "swapped");
  EXPECT_THAT(list_directory(path("swap")), IsEmpty());
  const std::string report = read(path("swapped/report.html"));
  EXPECT_THAT(report, AllOf(HasSubstr("On the disk, per rank"), HasSubstr("Memory over time"), HasSubstr(path("swap")),
                            HasSubstr("GB/s, measured at the start")));
  // Without --disk it is the run's folder.
  expect_trained("default", {"-n", "2", "--set", kOnDisk});
  EXPECT_THAT(read(path("default/report.html")), HasSubstr("bytes in &#39;default&#39;"));
}

TEST_F(TiersTest, OpsOnTheHostTrainToTheSameBitsAndAreNamed) {
  write_gpt("eval_every = 2\n");
  expect_trained("usual", {"-n", "2"});
  const Words on_host{"--set", "parallel.on=[\"wte = host\", \"h.0.mlp = host\"]", "--optimizer-on", "host"};
  Words more{"-n", "2"};
  more.insert(more.end(), on_host.begin(), on_host.end());
  expect_trained("placed", more);
  expect_equal_checkpoints("usual", "placed");
  more.insert(more.end(), {"--device", "guarded", "--device-memory", "1GB"});
  expect_trained("guarded", more);
  expect_equal_checkpoints("usual", "guarded");
  Words words{"explain", "gpt.toml", "--stage", "memory"};
  words.insert(words.end(), on_host.begin(), on_host.end());
  const Outcome shown = run(words);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("on the host, beside device 'cpu': "), HasSubstr("adam_update")));
}

TEST_F(TiersTest, WhatIsAskedForOnTheHostMustBeThere) {
  write_gpt();
  const auto refusal = [&](const Words& more) {
    const Outcome outcome = train("refused", more);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return error_line(outcome);
  };
  EXPECT_THAT(refusal({"--set", "parallel.on=[\"wtf = host\"]"}),
              HasSubstr("parallel.on 'wtf = host' matches no part of the model"));
  EXPECT_THAT(refusal({"--set", "parallel.on=[\"wte = disk\"]"}), HasSubstr("ops run on the 'host' or the 'device'"));
  EXPECT_THAT(refusal({"--optimizer-on", "disk"}), HasSubstr("parallel.optimizer_on"));
}

TEST_F(TiersTest, ARunGoesOnWithItsStateElsewhere) {
  write_gpt();
  const auto go_on = [&](const std::string& out, Words more) {
    more.insert(more.end(), {"--set", "data.validation=0"});
    expect_trained(out, more);
  };
  go_on("usual", {});
  go_on("moving", {"--set", "train.steps=3", "--set", kOnDisk});
  go_on("moving", {"--set", "train.steps=4", "--resume", "--set", kOnHost});
  go_on("moving", {"--set", "train.steps=5", "--resume", "--device-memory", "400KB", "--host-memory", "200KB", "--disk",
                   path(".")});
  go_on("moving", {"--resume", "--set", kOnDisk, "--set", kKeptOnDisk});
  expect_equal_checkpoints("usual", "moving");
}

TEST_F(TiersTest, AFileBeyondTheShellsLimitIsAnErrorThatSaysSo) {
  write_gpt();
  const Outcome outcome = run_shell(fmt::format(
      "ulimit -f 32; exec {} train gpt.toml --quiet --out limited --disk . --set '{}'", TRIREME_PROGRAM, kOnDisk));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot make the tier 'disk'"), HasSubstr("File too large")));
}

TEST_F(TiersTest, MemoryIsShownAndBoundedByTier) {
  write_gpt();
  const Outcome shown = run({"explain", "gpt.toml", "--stage", "memory", "--set", kOnDisk});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("disk arena "), HasSubstr("host arena "), HasSubstr(", on the disk"),
                    HasSubstr("the device over the modelled step"), HasSubstr("the disk over the modelled step")));
  const auto refusal = [&](const std::string& command, const Words& more) {
    Words words{command, "gpt.toml", "--set", kOnDisk};
    if (command == "explain") words.insert(words.end(), {"--stage", "memory"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return error_line(outcome);
  };
  std::filesystem::create_directory(path("swap"));
  for (const std::string command : {"explain", "train"}) {
    EXPECT_THAT(refusal(command, {"--disk", path("swap") + ":8KB"}),
                HasSubstr("parallel.disk allows 8KB (8000 bytes)"));
    EXPECT_THAT(refusal(command, {"--device-memory", "10KB"}),
                AllOf(HasSubstr("parallel.device_memory allows 10KB"), HasSubstr("the smallest that fits is")));
    EXPECT_THAT(refusal(command, {"--host-memory", "100B"}), HasSubstr("parallel.host_memory allows 100B"));
  }
  EXPECT_THAT(refusal("train", {"--eval-batch", "64", "--set", "data.validation=0.5", "--device-memory", "400KB"}),
              AllOf(HasSubstr(" where it validates; parallel.device_memory allows 400KB"),
                    HasSubstr("validate by smaller batches (train.eval_batch)")));
  // Whatever is shown, it is said that training would refuse it.
  for (const char* stage : {"plan", "passes", "time", "traffic", "actions"}) {
    const Outcome outcome = run(
        {"explain", "gpt.toml", "--stage", stage, "--device-memory", "10KB", "--set", "parallel.auto_offload=false"});
    EXPECT_EQ(outcome.code, 2) << stage;
    EXPECT_NE(outcome.out, "") << stage;
    EXPECT_THAT(error_line(outcome), HasSubstr("parallel.device_memory allows 10KB")) << stage;
  }
  EXPECT_THAT(refusal("train", {"--device-memory", "much"}),
              HasSubstr("parallel.device_memory: 'much' is no number of"));
}

TEST_F(TiersTest, ParametersOnTheDiskTrainValidateAndAreSavedAsEver) {
  write_gpt("eval_every = 2\n");
  const Words homes{"--set", "parallel.home=[\"* = disk\", \"*/gradient = disk\", \"*/state = host\"]"};
  // And stages of a pipeline, each of slices on two ranks, against one rank.
  const Words alone{"--numerics", "invariant", "--batch", "8", "--set", "model.layers=2"};
  Words together = alone;
  together.insert(together.end(), {"-n", "4", "--pp", "2", "--zero", "3", "--micro-batches", "2", "--set",
                                   "parallel.zero_threshold_kb=0"});
  for (auto [usual, moved] : {std::pair(Words{}, Words{}), std::pair(alone, together)}) {
    expect_trained("usual", usual);
    moved.insert(moved.end(), homes.begin(), homes.end());
    expect_trained("moved", moved);
    expect_equal_checkpoints("usual", "moved");
    const auto validations = [&](const std::string& out) {
      std::vector<double> found;
      for (const RunRecord& record : read_run_log(path(out + "/metrics.jsonl"))) {
        for (const auto& [key, value] : record.values) {
          if (key == "val_loss") found.push_back(value);
        }
      }
      return found;
    };
    EXPECT_GE(validations("usual").size(), 3U);
    EXPECT_EQ(validations("moved"), validations("usual"));
    std::filesystem::remove_all(path("usual"));
    std::filesystem::remove_all(path("moved"));
  }
}

TEST_F(TiersTest, ABudgetChoosesHomesAndSaysWhich) {
  write_gpt();
  expect_trained("usual", {"--set", "data.validation=0"});
  std::filesystem::create_directory(path("swap"));
  const Words budget{"--device-memory",      "400KB", "--host-memory",    "200KB", "--disk",
                     path("swap") + ":10MB", "--set", "data.validation=0"};
  Words words{"explain", "gpt.toml", "--stage", "memory"};
  words.insert(words.end(), budget.begin(), budget.end());
  const Outcome shown = run(words);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("chosen, for the section [parallel]"), HasSubstr("/state = ")));
  expect_trained("small", budget);
  expect_equal_checkpoints("usual", "small");
  EXPECT_THAT(read(path("small/report.html")), HasSubstr("Chosen homes"));
}

TEST_F(TiersTest, TheReportNamesChosenHomesOfAllStages) {
  write_gpt("[parallel]\nstages = [\"wte = 0\", \"wpe = 0\", \"h.0 = 0\", \"h.1 = 1\", \"ln_f = 1\"]\n");
  const Outcome outcome = train("staged", {"-n", "2", "--pp", "2", "--micro-batches", "2", "--batch", "8", "--set",
                                           "model.layers=2", "--set", "model.dropout=0", "--set", "data.validation=0",
                                           "--device-memory", "288KB", "--host-memory", "400KB"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(read(path("staged/report.html")), AllOf(HasSubstr("rank 0: home = ["), HasSubstr("; rank 1: home = [")));
}

TEST_F(TiersTest, ADirectoryThatIsNotThereIsRefusedAndOneWithoutUseIsSaid) {
  write_gpt();
  const Outcome missing = train("run", {"--set", kOnDisk, "--disk", path("gone")});
  EXPECT_EQ(missing.code, 2) << missing.err;
  EXPECT_EQ(error_line(missing),
            "parallel.disk: there is no directory '" + path("gone") + "'; name a directory that there is, or make one");
  EXPECT_EQ(error_line(train("run", {"--set", kOnDisk, "--disk", "gpt.toml"})),
            "parallel.disk: 'gpt.toml' is a file; name a directory that there is, or make one");
  EXPECT_FALSE(std::filesystem::exists(path("gone")));
  EXPECT_THAT(error_line(run({"calibrate", "--disk", path("gone"), "--out", path("machine.toml")})),
              HasSubstr("calibrate: --disk: there is no directory"));
  std::filesystem::create_directory(path("swap"));
  const Outcome unused = train("unused", {"--disk", path("swap")});
  EXPECT_EQ(unused.code, 0) << unused.err;
  EXPECT_THAT(unused.err, HasSubstr("nothing lies on the disk, so parallel.disk = '" + path("swap") + "'"));
  EXPECT_THAT(run({"explain", "gpt.toml", "--device-memory", "1GB", "--disk", path("swap")}).err,
              HasSubstr("changes nothing: the step has room on the device and on the host"));
}

TEST_F(TiersTest, ADirectoryThatTakesNoFileIsSaid) {
  write_gpt();
  const Outcome outcome = train("run", {"--set", kOnDisk, "--disk", "/proc/self"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(error_line(outcome), HasSubstr("in '/proc/self': no file can be made there; name a directory of a disk"));
}

}  // namespace
}  // namespace trireme::cli::tiers_test
