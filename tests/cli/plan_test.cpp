// trireme plan: rules, and the best as other systems have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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

TEST_F(PlanTest, SaysThatTheJobsOwnCutsAreNotKept) {
  const Outcome outcome = plan({"--set", "parallel.mode=semi_auto_parallel", "--set", "parallel.tp=2", "--set",
                                "parallel.zero=1", "--only", "tp=1 pp=1 zero=0 recompute=none"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("plan: the job sets parallel.tp = 2, parallel.zero = 1; a plan chooses these itself"));
  EXPECT_EQ(plan({"--only", "tp=1 pp=1 zero=0 recompute=none"}).err, "");
}

// Before the search, which may take long.
TEST_F(PlanTest, SaysWhatCannotBeWrittenBeforeItSearches) {
  for (const char* flag : {"--out", "--html", "--certificate", "--tables"}) {
    const Outcome refused = plan({"--search", "exact", flag, "nowhere/x"});
    EXPECT_NE(refused.code, 0);
    EXPECT_THAT(refused.err, HasSubstr(std::string("plan: ") + flag + ": there is no directory 'nowhere'"));
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_THAT(plan({"--out", "."}).err, HasSubstr("plan: --out: '.' is a directory"));
}

TEST_F(PlanTest, TakesTheTablesOfAPlanBefore) {
  const auto exact = [&](const Words& flags) {
    Words words{"--search", "exact", "--tables", "kept.tables", "--certificate", "proof"};
    words.insert(words.end(), flags.begin(), flags.end());
    return plan(words);
  };
  const Outcome first = exact({});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("wrote kept.tables with "));
  EXPECT_THAT(first.out, Not(HasSubstr("known before")));
  const std::string tables = read(path("kept.tables")), proof = read(path("proof"));
  const Outcome again = exact({});
  EXPECT_THAT(again.out, HasSubstr("\n0 jobs of one block were compiled for the prices of parts beside "));
  EXPECT_THAT(again.out, Not(HasSubstr("wrote kept.tables")));
  EXPECT_EQ(read(path("proof")), proof);
  EXPECT_THAT(exact({"--set", "model.layers=4"}).out, HasSubstr(" known before; nothing of the job's size was"));
  EXPECT_THAT(exact({"--set", "model.width=32"}).out, Not(HasSubstr("known before")));
  EXPECT_THAT(exact({"--why-not", "tp=2"}).out, HasSubstr("known before"));
  // What is no file of tables stays as it is.
  write("kept.tables", tables + "\n");
  const Outcome refused = exact({});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("plan: --tables 'kept.tables': tables: its checksum does not match its lines"));
  EXPECT_THAT(refused.err, HasSubstr("; name another file, or remove it"));
  EXPECT_EQ(read(path("kept.tables")), tables + "\n");
  // Where there are none to keep, that is said.
  const Outcome none = plan({"--search", "exact", "--tables", "none", "--set", "model.experts=2"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr("no tables are kept: "));
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

TEST_F(PlanTest, TakesMemoryToTheByte) {
  const Outcome fits = plan({"--only", "tp=1 pp=1 zero=0 recompute=none micro-batches=1"});
  ASSERT_EQ(fits.code, 0) << fits.err;
  const size_t at = fits.out.find("memory ", fits.out.find("hidden"));
  const int64_t bytes = std::stoll(fits.out.substr(at + 7));
  const auto within = [&](int64_t most) {
    return plan({"--only", "tp=1 pp=1 zero=0 recompute=none micro-batches=1", "--memory", std::to_string(most) + "B"});
  };
  EXPECT_EQ(within(bytes).code, 0);
  EXPECT_EQ(within(bytes - 1).code, 1);
}

TEST_F(PlanTest, AnswersQuestionsByTheExactSearch) {
  const std::string machine = TRIREME_SOURCE_DIR "/machines/h100x8.toml";
  const Outcome asked = plan({"--search", "exact", "--machine", machine, "--only", "pp=1", "--why-not", "keep=host",
                              "--sensitivities", "--top", "1", "--html", "asked.html", "--out", "asked.trp"});
  ASSERT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("of all ways these were only the ones that keep pp=1\n"));
  EXPECT_THAT(asked.out, HasSubstr("why not keep=host: the best way that keeps it, "));
  EXPECT_THAT(asked.out, testing::ContainsRegex("\n  exposed +[0-9.]+ +[0-9.]+ ")) << "in virtual time";
  EXPECT_THAT(asked.out, HasSubstr("\n  arithmetic twice as fast "));
  EXPECT_THAT(asked.out, HasSubstr("no certificate is written: it would be of all ways"));
  EXPECT_THAT(read(path("asked.html")), HasSubstr("why not keep=host"));
  EXPECT_THAT(read(path("asked.trp")), HasSubstr("set parallel.pp=1\n"));
  EXPECT_THAT(read(path("asked.trp")), HasSubstr("\n# host_memory_bytes = 250000000000\n"));
  const Outcome exported = plan({"--search", "exact", "--only", "schedule=1f1b recompute=none zero=0 pp=2", "--export",
                                 "megatron", "--top", "1"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("\n--pipeline-model-parallel-size 2\n"));
  EXPECT_THAT(plan({"--search", "exact", "--only", "pp=2 tp=2"}).err,
              HasSubstr("plan: no way over 2 ranks follows --only \"pp=2 tp=2\""));
  EXPECT_THAT(plan({"--search", "exact", "--only", "tp=3"}).err, HasSubstr("no way has tp=3; of tp there are 1, 2"));
}

TEST_F(PlanTest, SaysTheNearestChangeThatFits) {
  const Outcome none = plan({"--memory", "60KB"});
  EXPECT_EQ(none.code, 1) << none.err;
  const size_t at = none.out.find("(--memory ");
  ASSERT_NE(at, std::string::npos) << none.out;
  const std::string cure = none.out.substr(at + 10, none.out.find(')', at) - at - 10);
  EXPECT_EQ(plan({"--memory", cure}).code, 0) << cure;
}

TEST_F(PlanTest, AnswersWhyNot) {
  const Outcome asked = plan({"--only", "tp=1 pp=1 micro-batches=1", "--why-not", "pp=2"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("why not pp=2: the best way that keeps it, --pp 2 --micro-batches"));
}

TEST_F(PlanTest, VerifiesThePlanOfTheExactSearchByItsCertificate) {
  const Outcome planned = plan({"--search", "exact", "--out", "p.trp"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("wrote p.trp.certificate; check its proof with: trireme plan verify"));
  const Outcome verified = run({"plan", "verify", "p.trp", "job.toml", "-n", "2"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("proven: no other way in its space takes less; the gap is 0\n"));
  EXPECT_THAT(verified.out, HasSubstr("the plan 'p.trp' is the one that is proven\n"));
  EXPECT_THAT(verified.out, HasSubstr("the tables are those of 'job.toml': all were compiled again\n"));
  EXPECT_EQ(run({"plan", "verify", "p.trp.certificate"}).code, 0);

  const Outcome wider = run({"plan", "verify", "p.trp", "job.toml", "--set", "model.width=32"});
  EXPECT_EQ(wider.code, 2);
  EXPECT_THAT(wider.err, HasSubstr("error: certificate: it is for step "));
  EXPECT_THAT(run({"plan", "verify", "p.trp", "-n", "4"}).err, HasSubstr("it is for 2 ranks, not for 4"));
  EXPECT_THAT(run({"plan", "verify", "p.trp", "--memory", "4"}).err,
              HasSubstr("plan verify: --memory concerns a job; name the job after the file"));
  const std::string text = read(path("p.trp"));
  write("other.trp", text.substr(0, text.find("parallel.zero=")) + "parallel.zero=3" +
                         text.substr(text.find('\n', text.find("parallel.zero="))));
  const Outcome other = run({"plan", "verify", "other.trp", "--certificate", "p.trp.certificate"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("but the plan has parallel.zero=3"));
  EXPECT_THAT(run({"plan", "verify", "other.trp"}).err,
              HasSubstr("certificate: there is no file 'other.trp.certificate'"));
  write("p.trp.certificate", read(path("p.trp.certificate")) + "\n");
  EXPECT_THAT(run({"plan", "verify", "p.trp"}).err, HasSubstr("error: certificate: "));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow takes more addresses
// Where the system gives no range of 16 GiB for small objects (base/small_blocks.h), they lie on the heap.
TEST_F(PlanTest, PlansTheSameWithinFewAddresses) {
  const std::string limited = std::string("ulimit -v 8388608; exec ") + TRIREME_PROGRAM;
  const std::string few = " plan job.toml -n 2 --search exact --out few.trp";
  const Outcome planned = run_shell(limited + few);
  ASSERT_EQ(planned.code, 0) << planned.err;
  ASSERT_EQ(plan({"--search", "exact", "--out", "many.trp"}).code, 0);
  EXPECT_EQ(read(path("few.trp")), read(path("many.trp")));
  EXPECT_EQ(read(path("few.trp.certificate")), read(path("many.trp.certificate")));
  EXPECT_EQ(run_shell(limited + " plan verify many.trp job.toml").code, 0);
}
#endif

// The last loss that a run says.
std::string loss_of(const std::string& out) {
  const size_t at = out.find("Training loss ");
  return at == std::string::npos ? "no loss in " + out : out.substr(at, out.find(',', at) - at);
}

TEST_F(PlanTest, TrainsByThePlanOfTheExactSearchThatHasStages) {
  const Words wider{
      "--set",       "model.width=64", "--set",          "model.layers=4", "--set",         "model.heads=1", "--set",
      "data.seq=32", "--set",          "train.batch=16", "--set",          "train.steps=2", "--threads",     "1"};
  const auto with = [&](Words words) {
    words.insert(words.end(), wider.begin(), wider.end());
    return run(words);
  };
  // Data parallel it would be faster.
  const Outcome planned =
      with({"plan", "job.toml", "-n", "2", "--search", "exact", "--only", "pp=2", "--top", "1", "--out", "staged.trp"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("compiled as training compiles them, in virtual time:\n"));
  EXPECT_THAT(read(path("staged.trp")), testing::ContainsRegex("\ncompiled step_ps=[0-9]+ arena_bytes=[0-9]+\n"));
  ASSERT_THAT(read(path("staged.trp")), HasSubstr("set parallel.stages=[\"wte = 0\""));
  EXPECT_THAT(run({"simulate", "staged.trp", "-n", "2"}).err,
              HasSubstr("'staged.trp' is a plan, not a job; name the job that it was made for, and train or simulate "
                        "that with --plan staged.trp"));
  for (const char* other : {"parallel.pp=1", "parallel.pp = 1"}) {
    EXPECT_THAT(
        with({"explain", "job.toml", "-n", "2", "--plan", "staged.trp", "--set", other}).err,
        HasSubstr("the plan says parallel.pp=2 and the command line parallel.pp=1; leave one out, or plan again"));
  }
  EXPECT_THAT(with({"explain", "job.toml", "-n", "2", "--plan", "staged.trp", "--set", "train.lr"}).err,
              HasSubstr("--set 'train.lr': it must be key=value"));
  const Outcome trained = with({"train", "job.toml", "-n", "2", "--plan", "staged.trp", "--out", "staged", "--quiet"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome alone = with({"train", "job.toml", "-n", "1", "--out", "alone", "--quiet"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(loss_of(trained.out), loss_of(alone.out));
}

TEST_F(PlanTest, ProvesThatNothingFits) {
  const Outcome planned = run({"plan", "gpt2", "-n", "2", "--search", "exact", "--memory", "1", "--out", "p.trp",
                               "--certificate", "none.certificate"});
  EXPECT_EQ(planned.code, 1) << planned.err;
  const Outcome verified = run({"plan", "verify", "none.certificate"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("proven: no way in its space fits in the memory of a rank\n"));
}

TEST_F(PlanTest, TellsOfStepsOfAnyLength) {
  const auto of_batch = [&](const char* batch) {
    return run({"plan", "gpt2", "-n", "1", "--search", "exact", "--memory", "100TB", "--machine",
                TRIREME_SOURCE_DIR "/machines/laptop.toml", "--batch", batch, "--top", "1", "--out", "long.trp"});
  };
  const Outcome planned = of_batch("1024");  // above 2^53 ps
  EXPECT_EQ(planned.code, 0) << planned.err;
  const Outcome verified = run({"plan", "verify", "long.trp"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(of_batch("2000000000").err, HasSubstr("train.batch counts samples, not tokens"));
}

TEST_F(PlanTest, DrawsTheBestOfEverySearch) {
  const Outcome compiled =
      plan({"--only", "pp=2 schedule=1f1b recompute=none", "--why-not", "tp=2", "--html", "compiled.html"});
  EXPECT_EQ(compiled.code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("wrote compiled.html\n"));
  const std::string page = read(path("compiled.html"));
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("why not tp=2: the best way that keeps it"));
  const Outcome exact = plan({"--search", "exact", "--html", "exact.html"});
  EXPECT_EQ(exact.code, 0) << exact.err;
  const size_t step = exact.out.find("\nstep ");
  ASSERT_NE(step, std::string::npos);
  const size_t number = exact.out.find_first_of("0123456789", step);
  const std::string ms = exact.out.substr(number, exact.out.find(" ms", number) - number);
  EXPECT_THAT(read(path("exact.html")), HasSubstr("<b>" + ms + " ms</b>"));
  const Outcome nothing = plan({"--memory", "1", "--set", "model.width=512", "--html", "nothing.html"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_FALSE(std::filesystem::exists(path("nothing.html")));
}

TEST_F(PlanTest, Advises) {
  const Outcome advice = plan({"--advise"});
  EXPECT_EQ(advice.code, 0) << advice.err;
  EXPECT_TRUE(advice.out.starts_with("advice for ")) << advice.out;
  EXPECT_THAT(advice.out, HasSubstr("\ntake "));
  EXPECT_THAT(advice.out, HasSubstr("\ntensor parallelism: "));
  EXPECT_EQ(plan({"--advise"}).out, advice.out);
  EXPECT_EQ(plan({"--advise", "--memory", "1", "--set", "model.width=512"}).code, 1);
  EXPECT_THAT(plan({"--advise", "--out", "x.trp"}).err,
              HasSubstr("plan: --advise prints advice and no plan, so --out would do nothing"));
}

TEST_F(PlanTest, KeepsToTheNumberOfRanksThatTheJobSays) {
  for (const char* search : {"compiled", "exact"}) {
    const auto with = [&](const char* key) {
      return plan({"--search", search, "--only", "tp=1 zero=0 recompute=none", "--set", key});
    };
    EXPECT_THAT(with("parallel.device_num=4").err,
                HasSubstr("parallel.device_num = 4 but the job has 2 ranks; start 4 ranks, or change the key"));
    const Outcome same = with("parallel.device_num=2");
    EXPECT_EQ(same.code, 0);
    EXPECT_EQ(same.err, "");
    EXPECT_THAT(with("parallel.sum_micro_batch_losses=true").err, HasSubstr("and with them the loss; leave it out"));
    EXPECT_THAT(with("parallel.rates=rates.toml").err, HasSubstr("'rates.toml' are of 2 ranks, but a plan prices"));
  }
}

TEST_F(PlanTest, RefusesWhatCannotBeAsked) {
  EXPECT_THAT(run({"plan", "-n", "2"}).err, HasSubstr("plan: config is required"));
  EXPECT_THAT(run({"plan", "gpt22", "-n", "2"}).err, HasSubstr("no model of this name. Did you mean 'gpt2'?"));
  EXPECT_THAT(plan({"--memory", "80"}).out, HasSubstr("80.0 MiB of memory a rank"));
  EXPECT_THAT(plan({"--memory", "80MiB"}).out, HasSubstr("80.0 MiB of memory a rank"));
  EXPECT_THAT(plan({"--memory", "80 G"}).err, HasSubstr("is no number of bytes with a unit, like '2GB' or '512MiB'"));
  EXPECT_THAT(plan({"--certificate", "x"}).err, HasSubstr("add --search exact"));
  EXPECT_THAT(plan({"--tables", "x"}).err, HasSubstr("only the exact search has tables to keep; add --search exact"));
  EXPECT_THAT(plan({"--search", "exact", "--machine", TRIREME_SOURCE_DIR "/machines/laptop.toml", "-n", "64"}).err,
              HasSubstr("plan: 64 ranks, but the machine 'laptop' has 8 devices"));
  EXPECT_THAT(plan({"--compile"}).err, HasSubstr("--compile is for the exact search"));
  EXPECT_THAT(plan({"--only", "pp=2 tp=2"}).err, HasSubstr("plan: no way over 2 ranks follows --only \"pp=2 tp=2\""));
  EXPECT_THAT(plan({"--why-not", "fsdp=1"}).err, HasSubstr("there is no 'fsdp'; name pp, tp"));
  EXPECT_THAT(plan({"--out-export", "x"}).err, HasSubstr("plan: --out-export needs --export, which names the system"));
  EXPECT_THAT(plan({"--sensitivities"}).err, HasSubstr("name one with --machine"));
  EXPECT_THAT(plan({"--why-not", ""}).err, HasSubstr("--why-not: it is empty; give a rule"));
  EXPECT_THAT(plan({"--out", ""}).err, HasSubstr("--out: it is empty; name a file"));
  EXPECT_THAT(plan({"--memory", "0"}).err, HasSubstr("'0' is no memory at all; give more than 0"));
  const Outcome unsaid = plan({"--only", "auto=true", "--export", "megatron"});
  EXPECT_NE(unsaid.code, 0);
  EXPECT_THAT(unsaid.err, HasSubstr("export to megatron: the plan cuts each op by itself (--auto)"));
}

}  // namespace
}  // namespace trireme::cli::plan_test
