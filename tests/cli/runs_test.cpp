// What a run evaluates, keeps, falls back to and says when it goes wrong: `trireme train` and `trireme evaluate`.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tests/cli/program.h"
#include "trireme/base/utf8.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::runs_test {
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
    found[name] = {series(name + "/metrics.jsonl", "val_loss").back().second,
                   series(name + "/metrics.jsonl", "val_accuracy").back().second};
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
            "train: an evaluation batch of 7 samples does not divide over 2 ranks; use --set train.eval_batch=6 or 8, "
            "or another -n");
  EXPECT_EQ(error_line(train("mlp.toml", {"--set", "train.eval_batch=-1"})),
            "configuration: train.eval_batch = -1; it must be 0 or more");
  EXPECT_EQ(error_line(train("mlp.toml", {"--set", "data.validation=0.001"})),
            "data: of 64 samples data.validation = 0.001 holds out none; use a larger share, or 0 to hold none out");
}

// At step 4 parameters grow to some 1e25, whose products at step 5 are no numbers: the checkpoint of step 4 is beyond
// saving.
TEST_F(RunsTest, AfterALossThatIsNoNumberARunGoesOnFromACheckpointThatCanBeSaved) {
  write_gpt("save_every = 1\nkeep = 1\n");
  for (const char* ranks : {"1", "2"}) {
    const std::string out = fmt::format("run{}", ranks);
    ASSERT_EQ(train("gpt.toml", {"--out", out, "-n", ranks, "--set", "train.steps=3"}).code, 0);
    EXPECT_EQ(ckpt::list_checkpoints(path(out + "/checkpoints")).complete.size(), 1U) << "train.keep = 1";
    const Outcome failed =
        train("gpt.toml", {"--out", out, "-n", ranks, "--resume", "--set", "train.lr=1e25", "--set", "train.clip=0"});
    EXPECT_EQ(failed.code, 2);
    EXPECT_THAT(
        failed.err,
        ContainsRegex("the loss is (NaN|infinite) at step 5; lower the learning rate \\(1e\\+25\\), warm it up or clip "
                      "gradients, and resume: the run then goes on from 'run[12]/checkpoints/step-000003', the newest "
                      "checkpoint after which a step was finite"));
    EXPECT_TRUE(fs::exists(path(out + "/checkpoints/step-000004.diverged/COMMIT")));
    const Outcome good = train("gpt.toml", {"--out", out, "-n", ranks, "--resume"});
    EXPECT_EQ(good.code, 0) << good.err;
    EXPECT_THAT(good.out, HasSubstr("steps 4 to 6"));
    EXPECT_LT(series(out + "/metrics.jsonl", "loss").back().second,
              series(out + "/metrics.jsonl", "loss").front().second);
  }
}

TEST_F(RunsTest, ParametersThatAreNoNumbersAreNotSaved) {
  write_gpt("save_every = 2\n");
  const Outcome failed =
      train("gpt.toml", {"--out", "run", "-n", "2", "--set", "train.lr=3e38", "--set", "train.clip=0"});
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, ContainsRegex("the loss is (NaN|infinite) at step 2; lower the learning rate"));
  const Outcome last = train("gpt.toml", {"--out", "run", "-n", "2", "--set", "train.lr=3e38", "--set", "train.clip=0",
                                          "--set", "train.steps=1"});
  EXPECT_EQ(last.code, 2);
  EXPECT_THAT(
      last.err,
      HasSubstr(
          "the parameters are no longer finite after step 1, which is not saved; lower the learning rate (3e+38)"));
  EXPECT_FALSE(fs::exists(path("run/checkpoints")));
  EXPECT_THAT(read(path("run/report.html")), HasSubstr("then it failed: "));
}

TEST_F(RunsTest, CheckpointsByTheClockAreOfTheSameStepsOnAllRanks) {
  write_gpt();
  const auto steps = [&](const std::string& out) {
    std::vector<int64_t> found;
    for (const ckpt::Found& one : ckpt::list_checkpoints(path(out + "/checkpoints")).complete)
      found.push_back(one.step);
    return found;
  };
  // A clock always goes on by more than 60 ns between two steps, and never by 2,000 years.
  ASSERT_EQ(
      train("gpt.toml", {"--out", "often", "-n", "2", "--save-every-minutes", "1e-9", "--set", "train.keep=0"}).code,
      0);
  EXPECT_THAT(steps("often"), ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_EQ(train("gpt.toml", {"--out", "once", "--save-every-minutes", "1e9", "--set", "train.keep=0"}).code, 0);
  EXPECT_THAT(steps("once"), ElementsAre(6));
}

// The rate is so large that the loss falls and then rises.
// A run before may have validated without keeping the best.
TEST_F(RunsTest, TheBestCheckpointOfARunThatDidNotKeepItIsLinkedIfItIsThere) {
  write_gpt("eval_every = 1\n");
  const auto go_on = [&](const char* steps, const Words& more) {
    Words words{"--out", "run", "--sample-tokens", "0", "--set", std::string("train.steps=") + steps};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = train("gpt.toml", words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  go_on("3", {});
  const Outcome worse = go_on("4", {"--resume", "--keep-best", "--lr", "30"});
  EXPECT_THAT(worse.out, HasSubstr("Best:       run/checkpoints/best, of step 3: "));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints/best")).step(), 3);
  std::filesystem::remove_all(path("run/checkpoints/step-000003"));
  const Outcome anew = go_on("5", {"--resume", "--keep-best"});
  EXPECT_THAT(anew.err, HasSubstr("the best validation so far was at step 3, of which there is no checkpoint"));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints/best")).step(), 5);
}

TEST_F(RunsTest, TheBestCheckpointStaysAndARunThatGetsNoBetterEnds) {
  write_gpt("eval_every = 2\nkeep = 1\n");
  const Words more{"--out", "run",   "-n",           "2",     "--keep-best",     "--patience",
                   "3",     "--set", "train.lr=0.3", "--set", "train.steps=200", "--sample-tokens",
                   "0"};
  const Outcome first = train("gpt.toml", more);
  ASSERT_EQ(first.code, 0) << first.err;

  const auto losses = series("run/metrics.jsonl", "val_loss");
  ASSERT_GT(losses.size(), 3U);
  const auto best = std::ranges::min_element(losses, {}, [](const auto& point) { return point.second; });
  EXPECT_EQ(best, losses.end() - 4) << "three validations after the best, it ends";
  const int64_t last = losses.back().first;
  EXPECT_LT(last, 200);
  EXPECT_THAT(first.out, HasSubstr(fmt::format(
                             "Stopped early at step {}: 3 validations found nothing better than that of step {}\n",
                             last, best->first)));
  EXPECT_THAT(first.out, HasSubstr(fmt::format("Best:       run/checkpoints/best, of step {}: validation loss {:.4f}\n",
                                               best->first, best->second)));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints/best")).step(), best->first);
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), last);
  EXPECT_EQ(ckpt::list_checkpoints(path("run/checkpoints")).complete.size(), 2U);

  Words again = more;
  again.emplace_back("--resume");
  const Outcome nothing = train("gpt.toml", again);
  EXPECT_EQ(nothing.code, 0) << nothing.err;
  EXPECT_EQ(nothing.out, fmt::format("Nothing is left to train: the run stopped early at step {}, after 3 validations "
                                     "that found nothing better than "
                                     "that of step {}.\nTo go on, raise --patience, or set it to 0.\n",
                                     last, best->first));
  again.insert(again.end(), {"--patience", "4"});
  const Outcome on = train("gpt.toml", again);
  EXPECT_EQ(on.code, 0) << on.err;
  const auto more_losses = series("run/metrics.jsonl", "val_loss");
  EXPECT_GT(more_losses.size(), losses.size());
  const auto best_of_all = std::ranges::min_element(more_losses, {}, [](const auto& point) { return point.second; });
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints/best")).step(), best_of_all->first)
      << "what was best is known to the run that goes on";
  const Outcome without = train("gpt.toml", {"--out", "run", "--resume", "--set", "train.lr=0.3", "--set",
                                             fmt::format("train.steps={}", more_losses.back().first + 4),
                                             "--sample-tokens", "0", "--save-every", "1"});
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints/best")).step(), best_of_all->first)
      << "a run that goes on without keeping the best leaves that of the run before";
}

TEST_F(RunsTest, WhatGoesByValidationsIsRefusedWithoutThem) {
  write_gpt();
  EXPECT_EQ(error_line(train("gpt.toml", {"--keep-best"})),
            "configuration: train.keep_best goes by validations during the run; set train.eval_every to the steps "
            "between them");
  EXPECT_EQ(
      error_line(train("gpt.toml", {"--patience", "2", "--set", "data.validation=0"})),
      "configuration: train.patience goes by validations, and data.validation = 0 holds nothing out; set it to the "
      "share to hold out, such as 0.1");
  EXPECT_EQ(error_line(train("gpt.toml",
                             {"--patience", "2", "--set", "train.eval_every=1", "--set", "train.measure=accuracy"})),
            "configuration: train.measure = 'accuracy'; model.kind 'gpt' has a loss only, use 'loss'");
  EXPECT_EQ(error_line(train("gpt.toml", {"--set", "train.min_improvement=0.1"})),
            "configuration: train.measure and train.min_improvement say what train.keep_best and train.patience go by; "
            "set one of these too");
  EXPECT_EQ(error_line(train("gpt.toml", {"--save-every-minutes", "-1"})),
            "configuration: train.save_every_minutes = -1; it must be 0 or more, and finite");
}

TEST_F(RunsTest, TheMergedFileHasEveryParameterWholeHoweverRanksCutThem) {
  write_gpt();
  const Outcome outcome = train(
      "gpt.toml", {"--out", "run", "-n", "2", "--zero", "3", "--set", "parallel.zero_threshold_kb=0", "--merged-save"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Merged:     run/model.safetensors\n"));
  const ckpt::TensorFile merged = ckpt::read_safetensors(path("run/model.safetensors"));
  const ckpt::Reader reader(path("run/checkpoints"));
  size_t parameters = 0;
  for (const std::string& name : reader.names()) parameters += reader.info(name).role == "param" ? 1 : 0;
  EXPECT_EQ(merged.tensors.size(), parameters) << "no state of the optimizer";
  for (const ckpt::NamedTensor& tensor : merged.tensors) {
    const HostTensor saved = reader.read(tensor.name);
    EXPECT_EQ(tensor.data.type(), saved.type()) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(tensor.data.view().raw(), saved.view().raw())) << tensor.name;
  }
  EXPECT_EQ(merged.metadata.at("format"), "pt");
  EXPECT_EQ(merged.metadata.at("trireme_step"), "6");
}

// A batch of three fields, from columns of a table: read, cut over ranks, trained on, validated and evaluated.
TEST_F(RunsTest, AWideDeepModelOnATableHasTheSameBitsOnOneRankAndOnTwo) {
  std::string table = "number,user,other,item,bought\n";
  for (int row = 0; row < 96; ++row) {
    const int user = row * 7 % 5, item = row * 11 % 6;
    table += fmt::format("{},{},{},{},{}\n", row % 10 * 0.1, user, row % 3 * 0.5, 5 + item, (user + item) % 2);
  }
  write("table.csv", table);
  write("table.toml",
        "[model]\nkind = \"wide_deep\"\nvocabulary = 11\nwidth = 4\nhidden = [16, 8]\n[data]\nkind = \"csv\"\npath = "
        "\"table.csv\"\nfields = [\"label i32 = bought\", \"ids i32 = [user, item]\", \"dense = [number, "
        "other]\"]\nvalidation = 0.25\n[train]\nepochs = 4\nbatch = 16\nlr = 0.01\nnumerics = "
        "\"invariant\"\nmerged_save = "
        "true\n");
  std::vector<ckpt::TensorFile> merged;
  std::vector<std::string> results;
  for (const char* ranks : {"1", "2"}) {
    const std::string out = std::string("run") + ranks;
    const Outcome outcome = train("table.toml", {"--out", out, "-n", ranks});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("accuracy "));
    merged.push_back(ckpt::read_safetensors(path(out + "/model.safetensors")));
    const size_t at = outcome.out.find("Training loss");
    results.push_back(outcome.out.substr(at, outcome.out.find('\n', at) - at));
    const Outcome evaluated = run({"evaluate", out, "-n", ranks});
    ASSERT_EQ(evaluated.code, 0) << evaluated.err;
    results.back() += evaluated.out.substr(evaluated.out.find('\n'));
  }
  EXPECT_EQ(results[0], results[1]);
  ASSERT_EQ(merged[0].tensors.size(), merged[1].tensors.size());
  for (size_t i = 0; i < merged[0].tensors.size(); ++i) {
    EXPECT_EQ(merged[0].tensors[i].name, merged[1].tensors[i].name);
    EXPECT_TRUE(std::ranges::equal(merged[0].tensors[i].data.view().raw(), merged[1].tensors[i].data.view().raw()))
        << merged[0].tensors[i].name;
  }
}

TEST_F(RunsTest, EvaluateFindsWhatTheRunFoundOnAnyRanks) {
  write_mlp();
  ASSERT_EQ(train("mlp.toml", {"--out", "run", "-n", "2", "--set", "data.samples=107"}).code, 0);
  const double loss = series("run/metrics.jsonl", "val_loss").back().second;
  const double accuracy = series("run/metrics.jsonl", "val_accuracy").back().second;
  for (const Words& more : {Words{}, {"-n", "2"}, {"-n", "4", "--batch", "12"}, {"--batch", "27"}}) {
    Words words{"evaluate", "run", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(number_in(outcome.out, "loss"), loss, 1e-5);
    EXPECT_NEAR(number_in(outcome.out, "accuracy"), accuracy, 1e-9);
    EXPECT_EQ(number_in(outcome.out, "samples"), 27);
    EXPECT_THAT(outcome.out, HasSubstr("\"held_out\":true"));
  }
  const Outcome all = run({"evaluate", "run/checkpoints", "--set", "data.validation=0"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(
      all.out,
      ContainsRegex(
          "^run/checkpoints/step-0000[0-9]+, step [0-9]+\nLoss [0-9.]+, accuracy [0-9.]+ %, of 107 samples\n$"));
  for (const char* other : {"train.seed=5", "data.validation=0.5"}) {
    EXPECT_THAT(error_line(run({"evaluate", "run", "--set", other})),
                HasSubstr("others that are held out of the same data are samples that it was trained on"));
  }
  const Outcome elsewhere = run({"evaluate", "run", "--json", "--set", "data.samples=200"});
  EXPECT_THAT(elsewhere.out, HasSubstr("\"held_out\":false")) << elsewhere.err;
  EXPECT_EQ(error_line(run({"evaluate", "run", "-n", "2", "--batch", "7"})),
            "evaluate: --batch 7 does not divide over 2 ranks; use 8");
  EXPECT_THAT(error_line(run({"evaluate", "gone"})), HasSubstr("there is no checkpoint 'gone'"));
}

// A validation has the loss that is trained by; a perplexity is of the targets themselves.
TEST_F(RunsTest, EvaluateLeavesLabelSmoothingOut) {
  write_mlp();
  ASSERT_EQ(train("mlp.toml", {"--out", "run", "--set", "data.samples=107", "--label-smoothing", "0.3"}).code, 0);
  const auto loss = [&](const Words& more) {
    Words words{"evaluate", "run", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return number_in(run(words).out, "loss");
  };
  const double validated = series("run/metrics.jsonl", "val_loss").back().second;
  EXPECT_NEAR(loss({"--set", "train.label_smoothing=0.3"}), validated, 1e-5);
  EXPECT_EQ(loss({}), loss({"--set", "train.label_smoothing=0"}));
  EXPECT_LT(loss({}), validated - 1e-3);
}

// The same shapes under other keys are another model, and classes in another order other classes.
TEST_F(RunsTest, EvaluateRefusesToTakeACheckpointForAnotherModel) {
  write_gpt();
  ASSERT_EQ(train("gpt.toml", {"--out", "gpt", "--steps", "1", "--set", "data.validation_blocks=2"}).code, 0);
  EXPECT_EQ(run({"evaluate", "gpt", "--set", "data.validation=0", "--set", "model.dropout=0.5"}).code, 0);
  EXPECT_THAT(error_line(run({"evaluate", "gpt", "--set", "model.heads=1"})),
              HasSubstr("was trained with model.heads = 2; with 1 it would be taken for another model. Leave "
                        "model.heads out"));
  std::string table = "a,b,c\n";
  for (int row = 0; row < 32; ++row) table += fmt::format("{},of {},{}\n", row, row % 3, row % 2 == 0 ? "no" : "yes");
  write("pairs.csv", table);
  write("pairs.toml",
        "[model]\nkind = \"bert_classifier\"\nvocabulary = 259\nlayers = 1\nwidth = 16\nheads = 2\n[data]\nkind = "
        "\"text_pairs\"\npath = \"pairs.csv\"\nfirst = \"a\"\nsecond = \"b\"\nlabel = \"c\"\nlabels = [\"no\", "
        "\"yes\"]\nseq = 16\nvalidation = 0.25\n[train]\nsteps = 1\nbatch = 8\n");
  const Outcome trained = train("pairs.toml", {"--out", "pairs"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(run({"evaluate", "pairs", "--set", "data.labels=['no', 'yes']"}).code, 0);
  EXPECT_THAT(error_line(run({"evaluate", "pairs", "--set", "data.labels=['yes', 'no']"})),
              HasSubstr("was trained with data.labels = [ 'no', 'yes' ]; with [ 'yes', 'no' ] it would be taken for"));
}

TEST_F(RunsTest, TheSampleIsAnnouncedAndCanBeLeftOut) {
  write_gpt();
  const Outcome with = train("gpt.toml", {"--out", "with", "--sample-tokens", "40"});
  EXPECT_THAT(with.out,
              AllOf(HasSubstr("\nWriting a sample of 40 tokens, for 10 s at most; --sample-tokens 0 leaves it out\n"),
                    HasSubstr("A sample the model wrote:\nThe ")));
  const Outcome without = train("gpt.toml", {"--out", "without", "--sample-tokens", "0"});
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_THAT(without.out, Not(HasSubstr("sample ")));
}

// A model that has learnt nothing writes all bytes.
TEST_F(RunsTest, WhatAModelWritesReachesTerminalAndReportAsText) {
  write_gpt();
  const Outcome outcome = train("gpt.toml", {"--out", "run", "--set", "train.lr=1e-9"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& text : {outcome.out, read(path("run/report.html"))}) {
    EXPECT_TRUE(is_utf8(text));
    EXPECT_THAT(text, HasSubstr("\xef\xbf\xbd"));
    EXPECT_TRUE(std::ranges::none_of(text, [](char c) { return c == 0x1b || c == 0x7f || c == 0; }));
  }
  EXPECT_FALSE(is_utf8(run({"generate", "run", "--prompt", "a", "--tokens", "100"}).out)) << "a pipe gets the bytes";
}

TEST_F(RunsTest, OutputThatCannotBeWrittenIsAnError) {
  write_gpt();
  ASSERT_EQ(train("gpt.toml", {"--out", "run"}).code, 0);
  for (const std::string command :
       {"help config", "help", "--help", "--version", "train --help", "evaluate run", "evaluate run --json",
        "explain gpt.toml", "generate run --prompt a", "train gpt.toml --quiet --out other",
        "train gpt.toml --quiet --out other -n 2", "train gpt.toml --out run --resume"}) {
    const Outcome outcome = run_shell(fmt::format("{} {} > /dev/full", TRIREME_PROGRAM, command));
    EXPECT_EQ(outcome.code, 3) << command << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to the standard output")) << command;
  }
}

}  // namespace
}  // namespace trireme::cli::runs_test
