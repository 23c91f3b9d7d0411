// Flags in the place of keys of the configuration.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/cli/program.h"

namespace trireme::cli::job_flags_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class JobFlagsTest : public CliTest {
 protected:
  std::string explained(const std::string& parallel, const Words& more) {
    write_gpt();
    write("job.toml", read(path("gpt.toml")) + "[parallel]\n" + parallel);
    Words words{"explain", "job.toml", "-n", "2", "--stage", "actions"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
};

TEST_F(JobFlagsTest, AFlagThatSaysTheDefaultOverridesTheFile) {
  const std::string mode = "mode = \"semi_auto_parallel\"\n";
  const std::string plain = explained(mode, {});
  const auto is_plain = [&](const std::string& key, const Words& flags) {
    EXPECT_NE(explained(mode + key, {}), plain) << key;
    EXPECT_EQ(explained(mode + key, flags), plain) << key;
  };
  is_plain("zero = 2\nzero_threshold_kb = 0\n", {"--zero", "0"});
  is_plain("tp = 2\n", {"--tp", "1"});
  is_plain("cp = 2\n", {"--cp", "1"});
  is_plain("gradient_accumulation_steps = 2\n", {"--gradient-accumulation-steps", "1"});
  EXPECT_EQ(explained(mode + "tp = 2\nsp = true\nvocabulary = true\n", {"--no-sp", "--no-vocab-parallel"}),
            explained(mode + "tp = 2\n", {}));
  EXPECT_EQ(explained(mode + "cp = 2\ncp_algorithm = \"ring\"\n", {"--cp-algorithm", "auto"}),
            explained(mode + "cp = 2\n", {}));
  write("bf16.toml", read(path("gpt.toml")) + "dtype = \"bf16\"\nrecompute = true\nloss_pieces = 2\n");
  const Outcome f32 = run(
      {"explain", "bf16.toml", "--dtype", "f32", "--recompute", "none", "--loss-pieces", "1", "--stage", "actions"});
  EXPECT_EQ(f32.out, run({"explain", "gpt.toml", "--stage", "actions"}).out);
}

// A flag is its key under another name, and the help of each names the other.
TEST_F(JobFlagsTest, AFlagSaysWhatItsKeySays) {
  const std::string plain = explained("", {});
  EXPECT_NE(explained("", {"--batch", "8"}), plain);
  EXPECT_EQ(explained("", {"--batch", "8"}), explained("", {"--set", "train.batch=8"}));
  EXPECT_EQ(explained("", {"--optimizer", "sgd", "--clip", "0"}),
            explained("", {"--set", "train.optimizer=sgd", "--set", "train.clip=0"}));
  EXPECT_EQ(explained("", {"--weight-decay", "0.3", "--beta1", "0.8", "--label-smoothing", "0.1"}),
            explained("", {"--set", "train.weight_decay=0.3", "--set", "train.beta1=0.8", "--set",
                           "train.label_smoothing=0.1"}));
  EXPECT_THAT(run({"explain", "gpt.toml", "--momentum", "0.8"}).err,
              HasSubstr("train.momentum = 0.8 has no effect with train.optimizer = 'adamw'"));
  const Outcome wrong = run({"explain", "gpt.toml", "--lr", "0"});
  EXPECT_THAT(wrong.err, HasSubstr("configuration: train.lr = 0; it must be above 0"));
  EXPECT_THAT(run({"help", "train"}).out, HasSubstr("(train.loss_pieces)"));
  EXPECT_THAT(run({"help", "config"}).out, HasSubstr("(--loss-pieces)"));
}

TEST_F(JobFlagsTest, OfAnOptionGivenTwiceTheLastWins) {
  const std::string one = explained("", {"--zero", "1"});
  EXPECT_EQ(explained("", {"--zero", "3", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"-n", "4", "-n", "2", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"--sp", "--no-sp", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"--set", "parallel.zero=3", "--set", "parallel.zero=1"}), one);
}

// The command line does not say which of them came last.
TEST_F(JobFlagsTest, AFlagAndSetThatSayDifferentThingsAreRefused) {
  write_gpt();
  const auto error_of = [&](const Words& more) {
    Words words{"explain", "gpt.toml"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, outcome.err.empty() ? 0 : 2);
    return outcome.err;
  };
  EXPECT_THAT(
      error_of({"--set", "train.lr=0.01", "--lr", "0.02"}),
      HasSubstr("the command line gives train.lr twice: as a flag with 0.02, and --set train.lr=0.01; leave one "
                "out"));
  EXPECT_EQ(error_of({"--set", "train.lr=1e-2", "--lr", "0.01"}), "") << "the same number";
  EXPECT_EQ(error_of({"--set", "train.optimizer = \"sgd\"", "--optimizer", "sgd"}), "");
  const char* const both = "which both say how long the job trains; leave one out";
  EXPECT_THAT(error_of({"--steps", "3", "--epochs", "2"}),
              HasSubstr(std::string("the command line gives train.steps = 3 and train.epochs = 2, ") + both));
  EXPECT_THAT(error_of({"--set", "train.steps=3", "--epochs", "2"}), HasSubstr(both));
  EXPECT_EQ(error_of({"--set", "train.steps=0", "--epochs", "2"}), "");
  EXPECT_EQ(error_of({"--set", "train.steps=7", "--set", "train.epochs=2"}), "") << "the last of one option";
  EXPECT_THAT(run({"plan", "gpt.toml", "-n", "2", "--batch", "8", "--set", "train.batch=4"}).err,
              HasSubstr("the command line gives train.batch twice: as a flag with 8, and --set train.batch=4"));
}

TEST_F(JobFlagsTest, SetTakesTextAsATomlFileHasIt) {
  const std::string sgd = explained("", {"--set", "train.optimizer=sgd"});
  EXPECT_EQ(explained("", {"--set", "train.optimizer='sgd'"}), sgd);
  EXPECT_EQ(explained("", {"--set", "train.optimizer=\"sgd\""}), sgd);
  EXPECT_THAT(run({"explain", "gpt.toml", "--set", "train.optimizer='sgd"}).err, HasSubstr("train.optimizer = ''sgd'"));
}

TEST_F(JobFlagsTest, NumbersHaveNoNamesOfChecksInHelpAndNoneBelowTheirRange) {
  const std::string help = run({"help", "train"}).out;
  EXPECT_THAT(help, HasSubstr("--threads INT in [0 - 1024]"));
  EXPECT_THAT(help, HasSubstr("--tls-warn-days INT=30"));
  EXPECT_THAT(help, Not(HasSubstr("INT:")));
  EXPECT_THAT(run({"bench", "decode", "--model", "gpt", "--before", "-3"}).err,
              HasSubstr("--before: Value -3 not in range 0 to 2147483648"));
}

TEST_F(JobFlagsTest, ExplainSaysWhichKeyNamesDataThatAreNotThere) {
  write_gpt();
  const Outcome told = run({"explain", "gpt.toml", "--set", "data.paths=[\"text.txt\", \"gone.txt\"]"});
  EXPECT_EQ(told.code, 0);
  EXPECT_THAT(told.err, HasSubstr("data.paths: there is no 'gone.txt'; what is shown does not depend on it"));
  EXPECT_THAT(told.err, Not(HasSubstr("no 'text.txt'")));
}

// A file says that the model cuts itself, or that nothing is cut; a flag does not change that without a word.
// As train does.
TEST_F(JobFlagsTest, CutsThatChangeNothingAreToldWithoutStartingARank) {
  write_gpt();
  for (const Words& command : {Words{"explain", "gpt.toml"}, {"simulate", "gpt.toml"}}) {
    Words words = command;
    words.insert(words.end(), {"-n", "2", "--zero", "1", "--set", "parallel.zero_threshold_kb=100000"});
    const Outcome told = run(words);
    EXPECT_EQ(told.code, 0) << told.err;
    EXPECT_THAT(told.err, HasSubstr("optimizer parallelism of level 1 slices nothing")) << command[0];
  }
}

TEST_F(JobFlagsTest, TwoFlagsOfOneKeyMustAgree) {
  write_gpt();
  const Outcome differing = run({"explain", "gpt.toml", "-n", "2", "--auto", "--mode", "data_parallel"});
  EXPECT_EQ(differing.code, 2);
  EXPECT_THAT(differing.err,
              HasSubstr("two flags give parallel.mode: 'data_parallel' and 'auto_parallel'; leave one of them out"));
  EXPECT_EQ(run({"explain", "gpt.toml", "-n", "2", "--auto", "--mode", "auto_parallel"}).code, 0);
}

TEST_F(JobFlagsTest, FlagsThatCutTheModelAreRefusedBesideAModeThatDoesNot) {
  write_gpt();
  const auto expect_refused = [&](const Words& words, const std::string& mode) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(" for parallel.mode = 'semi_auto_parallel'; the mode is '" + mode + "'. Set"));
  };
  for (const std::string mode : {"hybrid_parallel", "stand_alone"}) {
    write("job.toml", read(path("gpt.toml")) + "[parallel]\nmode = \"" + mode + "\"\n");
    for (const Words& flags : {Words{"--tp", "2"}, Words{"--cp", "2"}, Words{"--vocab-parallel"}}) {
      Words words{"explain", "job.toml", "-n", "2"};
      words.insert(words.end(), flags.begin(), flags.end());
      expect_refused(words, mode);
    }
  }
  expect_refused({"explain", "gpt.toml", "-n", "2", "--tp", "2", "--set", "parallel.mode=data_parallel"},
                 "data_parallel");
  EXPECT_EQ(explained("", {"--tp", "2"}), explained("mode = \"semi_auto_parallel\"\ntp = 2\n", {}));
}

// "--ranks" of every line of options.
std::set<std::string> flags_of(const std::string& help) {
  std::set<std::string> out;
  for (size_t at = help.find("\n  -"); at != std::string::npos; at = help.find("\n  -", at + 1)) {
    const size_t from = help.find("--", at);
    out.insert(help.substr(from, help.find_first_of(" ,{\n", from) - from));
  }
  return out;
}

// Those that change no plan are taken, and not listed.
TEST_F(JobFlagsTest, ExplainTakesWhatTrainTakesAndListsWhatItUses) {
  write("secret", "a secret of the job");
  const std::map<std::string, Words> of_runs{
      {"--out", {"elsewhere"}},
      {"--resume", {}},
      {"--quiet", {}},
      {"--restarts", {"2"}},
      {"--insecure", {}},
      {"--save-every-minutes", {"1"}},
      {"--keep-best", {"--set", "train.eval_every=1"}},
      {"--patience", {"3", "--set", "train.eval_every=1"}},
      {"--measure", {"loss"}},
      {"--min-improvement", {"0.1", "--patience", "3", "--set", "train.eval_every=1"}},
      {"--eval-batches", {"1"}},
      {"--keep", {"3"}},
      {"--final-ratio", {"0.2", "--lr-schedule", "linear"}},
      {"--merged-save", {}},
      {"--init-from", {"runs/another"}},
      {"--init-except", {"h.*", "--init-from", "runs/another"}},
      {"--sample-tokens", {"5"}},
      {"--save-strategy", {"found.txt"}},
      {"--trace-steps", {"3"}},
      {"--steps", {"5"}},
      {"--epochs", {"1"}},
      {"--eval-every", {"2"}},
      {"--save-every", {"2"}},
      {"--lr", {"0.5"}},
      {"--lr-schedule", {"linear"}},
      {"--warmup", {"1"}},
      {"--node-rank", {"0", "--master", "10.0.0.5"}},
      {"--master", {"10.0.0.5"}},
      {"--last-call", {"1", "--master", "10.0.0.5"}},
      {"--node-id", {"a", "--master", "10.0.0.5"}},
      {"--address", {"10.0.0.6", "--master", "10.0.0.5"}},
      {"--window", {"9", "--master", "10.0.0.5"}},
      {"--heartbeat", {"9", "--master", "10.0.0.5"}},
      {"--secret-file", {"secret", "--master", "10.0.0.5"}},
      {"--tls-cert", {"a", "--master", "10.0.0.5"}},
      {"--tls-key", {"b", "--master", "10.0.0.5"}},
      {"--tls-ca", {"c", "--master", "10.0.0.5"}},
      {"--tls-crl", {"d", "--master", "10.0.0.5"}},
      {"--tls-password-file", {"e", "--master", "10.0.0.5"}},
      {"--tls-warn-days", {"30"}}};
  const std::set<std::string> train = flags_of(run({"help", "train"}).out);
  const std::set<std::string> explain = flags_of(run({"help", "explain"}).out);
  EXPECT_GT(train.size(), 40U);
  for (const std::string& flag : train) EXPECT_NE(explain.contains(flag), of_runs.contains(flag)) << flag;
  const std::string plan = explained("", {});
  for (const auto& [flag, value] : of_runs) {
    Words words{flag};
    words.insert(words.end(), value.begin(), value.end());
    EXPECT_EQ(explained("", words), plan) << flag;
  }
  EXPECT_NE(explained("", {"--nnodes", "2", "--master", "10.0.0.5"}), plan);  // 4 ranks
}

}  // namespace
}  // namespace trireme::cli::job_flags_test
