// trireme plan: rules, and the best as other systems have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trireme::cli::plan_test {
namespace {

using testing::HasSubstr;

class PlanTest : public CliTest {
 protected:
  void SetUp() override {
    write("job.toml",
          "[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 16\nheads = 2\n[data]\nkind = \"synthetic\"\nseq = 8\n"
          "samples = 64\n[train]\nsteps = 1\nbatch = 8\n");
  }
  Outcome plan(const Words& flags) {
    Words words{"plan", "job.toml", "-n", "2"};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  }
};

TEST_F(PlanTest, TakesOnlyWaysThatKeepARuleAndExportsTheBest) {
  const Outcome printed = plan({"--only", "tp=2 sp=true schedule=1f1b recompute=none", "--export", "torchtitan"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_THAT(printed.out, HasSubstr("best: --tp 2"));
  EXPECT_THAT(printed.out, HasSubstr("for torchtitan:\n"));
  EXPECT_THAT(printed.out, HasSubstr("\ntensor_parallel_degree = 2\n"));
  const Outcome written =
      plan({"--only", "zero=2 tp=1 pp=1 cp=1 recompute=none", "--export", "deepspeed", "--out-export", "ds.json"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(read(path("ds.json")), HasSubstr("\"zero_optimization\": { \"stage\": 2 }"));
}

TEST_F(PlanTest, AnswersWhyNot) {
  const Outcome asked = plan({"--only", "tp=1 pp=1 micro-batches=1", "--why-not", "pp=2"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("why not pp=2: the best way that keeps it, --pp 2 --micro-batches"));
}

TEST_F(PlanTest, RefusesWhatCannotBeAsked) {
  EXPECT_THAT(plan({"--only", "pp=2 tp=2"}).err,
              HasSubstr("plan: no way over 2 ranks has all of --only \"pp=2 tp=2\""));
  EXPECT_THAT(plan({"--why-not", "fsdp=1"}).err, HasSubstr("there is no 'fsdp'; name pp, tp"));
  EXPECT_THAT(plan({"--out-export", "x"}).err, HasSubstr("plan: --out-export takes --export beside it"));
  EXPECT_THAT(plan({"--sensitivities"}).err, HasSubstr("give one by --machine"));
  const Outcome unsaid = plan({"--only", "auto=true", "--export", "megatron"});
  EXPECT_NE(unsaid.code, 0);
  EXPECT_THAT(unsaid.err, HasSubstr("export to megatron: the plan cuts each op by itself (--auto)"));
}

}  // namespace
}  // namespace trireme::cli::plan_test
