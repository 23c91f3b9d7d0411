// Flags in the place of keys of the configuration.
#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

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
  const Outcome f32 =
      run({"explain", "bf16.toml", "--dtype", "f32", "--no-recompute", "--loss-pieces", "1", "--stage", "actions"});
  EXPECT_EQ(f32.out, run({"explain", "gpt.toml", "--stage", "actions"}).out);
}

TEST_F(JobFlagsTest, OfAnOptionGivenTwiceTheLastWins) {
  const std::string one = explained("", {"--zero", "1"});
  EXPECT_EQ(explained("", {"--zero", "3", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"-n", "4", "-n", "2", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"--sp", "--no-sp", "--zero", "1"}), one);
  EXPECT_EQ(explained("", {"--set", "parallel.zero=3", "--set", "parallel.zero=1"}), one);
}

TEST_F(JobFlagsTest, ExplainTakesWhatTrainTakes) {
  const std::string words = run({"help", "train"}).out;
  const std::string explain = run({"help", "explain"}).out;
  int flags = 0;
  for (size_t at = words.find("\n  -"); at != std::string::npos; at = words.find("\n  -", at + 1)) {
    const size_t from = words.find("--", at);
    const std::string flag = words.substr(from, words.find_first_of(" ,{\n", from) - from);
    EXPECT_THAT(explain, HasSubstr(flag)) << flag;
    ++flags;
  }
  EXPECT_GT(flags, 25);
  const std::string plan = explained("", {});
  EXPECT_EQ(explained("", {"--out", "elsewhere", "--resume", "--quiet", "--restarts", "2", "--insecure"}), plan);
  EXPECT_NE(explained("", {"--nnodes", "2", "--master", "10.0.0.5"}), plan);  // 4 ranks
}

}  // namespace
}  // namespace trireme::cli
