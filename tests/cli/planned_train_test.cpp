// `trireme train --auto --search exact` and `compiled`: planned as `trireme plan` plans it, once for all ranks, and
// trained as one device trains.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/program.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/train/plan/plan_text.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::planned_train_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class PlannedTrainTest : public CliTest {
 protected:
  void SetUp() override {
    write("gpt.toml", text_model("gpt", ""));
    write("moe.toml", text_model("llama", "experts = 4\nexpert_groups = 8\naux_loss_factor = 0.0\n"));
    write("mlp.toml",
          "[model]\nkind = \"mlp\"\nhidden = [16, 16]\n[data]\nkind = \"synthetic\"\nsamples = 64\n"
          "validation = 0.25\n[train]\nsteps = 3\nbatch = 8\n");
  }
  static std::string text_model(const std::string& kind, const std::string& more) {
    return "[model]\nkind = \"" + kind + "\"\nlayers = 2\nwidth = 16\nheads = 4\n" + more +
           "[data]\nkind = \"synthetic\"\nseq = 8\nsamples = 64\nvalidation = 0.25\n"
           "[train]\nsteps = 3\nbatch = 8\nsample_tokens = 0\n";
  }

  Outcome train(const std::string& job, int ranks, const std::string& out, const Words& more = {},
                const Words& environment = {}) {
    Words words{"train", job + ".toml", "-n", std::to_string(ranks), "--threads", "1", "--quiet", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, environment);
  }
  // An MLP has no blocks that the exact search could price.
  static std::string search_for(const std::string& job) { return job == "mlp" ? "compiled" : "exact"; }
  Outcome train_planned(const std::string& job, int ranks, const std::string& out, Words more = {},
                        const Words& environment = {}) {
    more.insert(more.begin(), {"--auto", "--search", search_for(job)});
    return train(job, ranks, out, more, environment);
  }
  Outcome explain(int ranks, const std::string& stage, Words more = {}) {
    Words words{"explain", "gpt.toml", "-n", std::to_string(ranks), "--threads", "1", "--stage", stage};
    words.insert(words.end(), {"--auto", "--search", "exact"});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // Of training and of validation, as they are written.
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> out;
    for (const RunRecord& record : read_run_log(path(run + "/metrics.jsonl"))) {
      for (const auto& [key, value] : record.values) {
        if (key == "loss" || key == "val_loss") out.push_back(value);
      }
    }
    return out;
  }
  PlanFile plan_of(const std::string& run) const { return parse_plan_file(read(path(run + "/plan.trp"))); }
};

// What a rank says of the plan that it runs.
std::string said_in(const std::string& log, const std::string& before) {
  const size_t line = log.find("plan  of=step ");
  if (line == std::string::npos) return "none";
  const size_t from = log.find(before, line) + before.size();
  return log.substr(from, log.find_first_of(" \n", from) - from);
}

TEST_F(PlannedTrainTest, TrainsByThePlanThatTriremePlanFinds) {
  for (const auto& [job, ranks] : {std::pair<std::string, int>("gpt", 1), {"gpt", 2}, {"mlp", 2}}) {
    const std::string out = fmt::format("{}{}", job, ranks);
    SCOPED_TRACE(out);
    const Outcome planned = run({"plan", job + ".toml", "-n", std::to_string(ranks), "--threads", "1", "--search",
                                 search_for(job), "--out", "found.trp"});
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Outcome trained = train_planned(job, ranks, out);
    ASSERT_EQ(trained.code, 0) << trained.err;
    // The other file also has the machine's figures, in comments.
    EXPECT_THAT(read(path("found.trp")), testing::StartsWith(read(path(out + "/plan.trp"))));
    EXPECT_THAT(trained.out,
                HasSubstr(fmt::format(" for {} rank{} by the rates of 'this_host'", ranks, ranks == 1 ? "" : "s")));
    EXPECT_THAT(trained.out, HasSubstr(fmt::format("this plan is kept in {}/plan.trp, for --plan\n", out)));
    EXPECT_THAT(read(path(out + "/report.html")), HasSubstr("Plan"));
    const Outcome again = train(job, ranks, out + "_again", {"--plan", out + "/plan.trp"});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(losses(out + "_again"), losses(out));
  }
}

TEST_F(PlannedTrainTest, HasTheBitsOfOneDeviceAndTheMemoryThatIsPlanned) {
  const Words same_bits{"--numerics", "invariant"};
  for (const std::string job : {"gpt", "moe", "mlp"}) {
    ASSERT_EQ(train(job, 1, job + "_alone", same_bits).code, 0);
    const std::vector<double> alone = losses(job + "_alone");
    ASSERT_THAT(alone, SizeIs(testing::Ge(3U)));
    std::vector<Words> asked{{}, {"--tp", "2"}};
    if (job != "mlp") asked.insert(asked.end(), {{"--pp", "2"}, {"--zero", "3", "--micro-batches", "2"}});
    if (job == "moe") asked.push_back({"--ep", "2"});
    for (const int ranks : {2, 4}) {
      for (Words more : asked) {
        const std::string out = fmt::format("{}_{}", job, ranks);
        SCOPED_TRACE(out + (more.empty() ? "" : " " + more.front()));
        std::filesystem::remove_all(path(out));
        more.insert(more.end(), same_bits.begin(), same_bits.end());
        const Outcome planned = train_planned(job, ranks, out, more, {"TRIREME_LOG=warn,train=debug"});
        ASSERT_EQ(planned.code, 0) << planned.err;
        EXPECT_EQ(losses(out), alone);
        int64_t most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::string log = rank == 0 ? planned.err : read(path(fmt::format("{}/logs/worker_{}.log", out, rank)));
          most = std::max<int64_t>(most, std::stoll(said_in(log, "arena_bytes=")));
        }
        const PlanFile plan = plan_of(out);
        EXPECT_EQ(plan.compiled ? plan.compiled->arena_bytes : plan.arena_bytes, most);
        EXPECT_EQ(plan.compiled.has_value(), search_for(job) == "exact");
      }
    }
  }
}

TEST_F(PlannedTrainTest, AFileAsksForItAndWhatItSaysOfCutsIsKept) {
  write("asks.toml", read(path("gpt.toml")) + "[parallel]\nmode = \"auto_parallel\"\nsearch = \"exact\"\npp = 2\n");
  const Outcome trained = train("asks", 2, "run", {"--zero", "0"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("  kept, as the job says it: pp=2 zero=0\n"));
  EXPECT_THAT(plan_of("run").keys, testing::IsSupersetOf({"parallel.pp=2", "parallel.zero=0"}));
  // --search alone asks for the mode, even beside a flag that asks for another.
  const Outcome cut = train("gpt", 2, "cut", {"--search", "exact", "--tp", "2"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  EXPECT_THAT(plan_of("cut").keys, testing::Contains("parallel.tp=2"));
}

TEST_F(PlannedTrainTest, ExplainAndSimulateShowWhatRuns) {
  for (const Words& more : {Words{}, Words{"--pp", "2"}}) {
    const Outcome trained = train_planned("gpt", 2, "run", more, {"TRIREME_LOG=warn,train=debug"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome shown = explain(2, "search", more);
    ASSERT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, testing::StartsWith("plan of the exact search for 2 ranks"));
    EXPECT_THAT(trained.out, HasSubstr(shown.out));
    std::string actions = explain(2, "actions", more).out;
    if (actions.starts_with("# crew 0")) {
      actions.erase(0, actions.find('\n') + 1);
      actions.resize(actions.find("\n\n# crew ") + 1);
    }
    EXPECT_EQ(said_in(trained.err, "hash="), fmt::format("{:016x}", hash(parse_plan(actions))));
    Words words{"simulate", "gpt.toml", "-n", "2", "--threads", "1", "--auto", "--search", "exact"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_THAT(run(words).out, testing::StartsWith(shown.out));
  }
}

TEST_F(PlannedTrainTest, ARunGoesOnByItsPlanOrSaysWhatDiffers) {
  ASSERT_EQ(train_planned("gpt", 2, "run", {"--pp", "2"}).code, 0);
  const Outcome same = train_planned("gpt", 2, "run", {"--pp", "2", "--resume", "--steps", "5"});
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("by another plan")));
  const Outcome other = train_planned("gpt", 2, "run", {"--tp", "2", "--resume", "--steps", "7"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("going on by another plan than the one in 'run/plan.trp': parallel.pp=1, "));
  EXPECT_THAT(other.err, HasSubstr("parallel.tp=2"));
  write("run/plan.trp", "no plan");
  const Outcome unknown = train_planned("gpt", 2, "run", {"--resume", "--steps", "8"});
  ASSERT_EQ(unknown.code, 0) << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("by which plan the run went before is not known: 'run/plan.trp': "));
  EXPECT_THAT(losses("run"), SizeIs(testing::Ge(8U)));
}

// Before ranks start.
TEST_F(PlannedTrainTest, WhatAPlanCannotKeepIsRefused) {
  const auto refused = [&](const Words& more, const std::string& job = "gpt") {
    const Outcome outcome = train_planned(job, 2, "none", more);
    EXPECT_NE(outcome.code, 0);
    EXPECT_FALSE(std::filesystem::exists(path("none/logs")));
    return outcome.err;
  };
  EXPECT_THAT(refused({"--tp", "3"}), HasSubstr("no way has tp=3; of tp there are 1, 2"));
  EXPECT_THAT(refused({"--interleave", "2"}), HasSubstr("parallel.interleave = 2 beside parallel.search = 'exact'"));
  EXPECT_THAT(refused({"--set", "parallel.mesh=dp=2"}), HasSubstr("plan: parallel.mesh says how the model is cut"));
  EXPECT_THAT(refused({"--schedule", "gpipe"}), HasSubstr("no way has schedule=gpipe"));
  EXPECT_THAT(refused({"--tp", "3"}, "mlp"), HasSubstr("no way has tp=3; of tp there are 1, 2"));
  EXPECT_THAT(refused({"--search", "exact"}, "mlp"), HasSubstr("plan: the exact search prices one block of each kind"));
  EXPECT_THAT(explain(2, "memory", {"--tp", "3"}).err, HasSubstr("no way has tp=3"));
  const Outcome nothing = train_planned("gpt", 2, "none", {"--set", "parallel.device_memory=2KB"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("plan: no way of cutting 'run' over 2 ranks fits in "));
}

}  // namespace
}  // namespace trireme::cli::planned_train_test
