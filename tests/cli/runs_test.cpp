// What a run evaluates, keeps, falls back to and says when it goes wrong: `trireme train` and `trireme evaluate`.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "tests/cli/program.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/run_log.h"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace fs = std::filesystem;

class RunsTest : public CliTest {
 protected:
  Outcome train(const std::string& config, const Words& more = {}) {
    Words words{"train", config, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // One value a record that has the key.
  std::vector<std::pair<int64_t, double>> series(const std::string& metrics, const std::string& key) const {
    std::vector<std::pair<int64_t, double>> out;
    for (const RunRecord& record : read_run_log(path(metrics))) {
      for (const auto& [name, value] : record.values) {
        if (name == key) out.emplace_back(record.step, value);
      }
    }
    return out;
  }
};

// 27 samples held out, which no batch here divides. Losses of f32, whose sums in another order differ by some 1e-6.
TEST_F(RunsTest, ValidationCountsEveryHeldOutSampleWhateverItsBatch) {
  write_mlp();
  std::map<std::string, std::pair<double, double>> found;
  const auto validate = [&](const std::string& name, const Words& more) {
    Words words{"--out", name, "--set", "data.samples=107"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = train("mlp.toml", words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("80 samples to train on, 27 held out"));
    found[name] = {series(name + "/metrics.jsonl", "val_loss").back().second, series(name + "/metrics.jsonl", "val_accuracy").back().second};
  };
  validate("alone", {"--set", "train.eval_batch=1"});
  validate("as_in_training", {});
  validate("larger", {"--set", "train.eval_batch=64"});
  validate("in_one", {"--set", "train.eval_batch=27"});
  validate("two_ranks", {"-n", "2", "--set", "train.eval_batch=10"});
  validate("four_ranks", {"-n", "4", "--gradient-accumulation-steps", "2"});
  for (const auto& [name, values] : found) {
    EXPECT_NEAR(values.first, found["in_one"].first, 1e-5) << name;
    EXPECT_NEAR(values.second, found["in_one"].second, 1e-9) << name;
  }
  EXPECT_NEAR(std::round(27 * found["in_one"].second), 27 * found["in_one"].second, 1e-9);
}

TEST_F(RunsTest, AnEvaluationBatchThatRanksDoNotDivideIsRefused) {
  write_mlp();
  EXPECT_EQ(error_line(train("mlp.toml", {"-n", "2", "--set", "train.eval_batch=7"})),
            "train: an evaluation batch of 7 samples does not divide over 2 ranks; use --set train.eval_batch=6 or 8, or another -n");
  EXPECT_EQ(error_line(train("mlp.toml", {"--set", "train.eval_batch=-1"})), "configuration: train.eval_batch = -1; it must be 0 or more");
  EXPECT_EQ(error_line(train("mlp.toml", {"--set", "data.validation=0.001"})),
            "data: of 64 samples data.validation = 0.001 holds out none; use a larger share, or 0 to hold none out");
}

// At step 4 parameters grow to some 1e25, whose products at step 5 are no numbers: the checkpoint of step 4 is beyond saving.
TEST_F(RunsTest, AfterALossThatIsNoNumberARunGoesOnFromACheckpointThatCanBeSaved) {
  write_gpt("save_every = 1\nkeep = 1\n");
  for (const char* ranks : {"1", "2"}) {
    const std::string out = fmt::format("run{}", ranks);
    ASSERT_EQ(train("gpt.toml", {"--out", out, "-n", ranks, "--set", "train.steps=3"}).code, 0);
    EXPECT_EQ(ckpt::list_checkpoints(path(out + "/checkpoints")).complete.size(), 1U) << "train.keep = 1";
    const Outcome failed = train("gpt.toml", {"--out", out, "-n", ranks, "--resume", "--set", "train.lr=1e25", "--set", "train.clip=0"});
    EXPECT_EQ(failed.code, 2);
    EXPECT_THAT(failed.err, ContainsRegex("the loss is -?(nan|inf) at step 5; lower the learning rate \\(1e\\+25\\), warm it up or clip "
                                          "gradients, and resume: the run then goes on from 'run[12]/checkpoints/step-000003', the "
                                          "newest checkpoint from which a step was finite"));
    EXPECT_TRUE(fs::exists(path(out + "/checkpoints/step-000004.diverged/COMMIT")));
    const Outcome good = train("gpt.toml", {"--out", out, "-n", ranks, "--resume"});
    EXPECT_EQ(good.code, 0) << good.err;
    EXPECT_THAT(good.out, HasSubstr("steps 4 to 6"));
    EXPECT_LT(series(out + "/metrics.jsonl", "loss").back().second, series(out + "/metrics.jsonl", "loss").front().second);
  }
}

TEST_F(RunsTest, ParametersThatAreNoNumbersAreNotSaved) {
  write_gpt("save_every = 2\n");
  const Outcome failed = train("gpt.toml", {"--out", "run", "-n", "2", "--set", "train.lr=3e38", "--set", "train.clip=0"});
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, ContainsRegex("the loss is -?(nan|inf) at step 2; lower the learning rate"));
  const Outcome last = train("gpt.toml", {"--out", "run", "-n", "2", "--set", "train.lr=3e38", "--set", "train.clip=0", "--set", "train.steps=1"});
  EXPECT_EQ(last.code, 2);
  EXPECT_THAT(last.err, HasSubstr("the parameters are no longer finite after step 1, which is not saved; lower the learning rate (3e+38)"));
  EXPECT_FALSE(fs::exists(path("run/checkpoints")));
  EXPECT_THAT(read(path("run/report.html")), HasSubstr("then it failed: "));
}

}  // namespace
}  // namespace trireme::cli
