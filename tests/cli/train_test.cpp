// `trireme train` from start to end: what it writes, that its bits repeat, that it stops and goes on.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/report/run_log.h"

namespace trireme::cli::train_test {
namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class TrainTest : public CliTest {
 protected:
  // Losses of the steps, in their order.
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> out;
    for (const RunRecord& record : read_run_log(path(run + "/metrics.jsonl"))) {
      for (const auto& [key, value] : record.values) {
        if (key != "loss") continue;
        EXPECT_EQ(record.step, static_cast<int64_t>(out.size()) + 1);
        out.push_back(value);
      }
    }
    return out;
  }

  void expect_same_checkpoint(const std::string& a, const std::string& b) const {
    const ckpt::Reader one(path(a + "/checkpoints"));
    const ckpt::Reader other(path(b + "/checkpoints"));
    EXPECT_EQ(one.step(), other.step());
    ASSERT_EQ(one.names(), other.names());
    EXPECT_THAT(one.names(), Not(IsEmpty()));
    for (const std::string& name : one.names()) {
      const HostTensor x = one.read(name);
      const HostTensor y = other.read(name);
      EXPECT_TRUE(std::ranges::equal(x.view().raw(), y.view().raw())) << name;
    }
  }

  // A loss is the mean of at most 64 log-sum-exps over 256 logits, each a dot product of 16. In f32, sums in another
  // order differ by at most a relative (64 + 256 + 16) u. Each SGD step moves the parameters apart by lr * |g| times as
  // much, which at lr * |g|^2 < 1 adds no more than that again to the next loss.
  static void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    const double once = (64 + 256 + 16) * std::ldexp(1.0, -24);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], static_cast<double>(i + 1) * once * a[i]) << "step " << i + 1;
    }
  }

  void expect_run_is_complete(const std::string& run, size_t steps) const {
    const std::vector<double> loss = losses(run);
    EXPECT_THAT(loss, SizeIs(steps));
    EXPECT_LT(loss.back(), loss.front());
    EXPECT_THAT(read(path(run + "/metrics.jsonl")), HasSubstr("\"val_loss\""));
    EXPECT_THAT(read(path(run + "/report.html")), HasSubstr("</html>"));
    bool events = false;
    for (const auto& entry : std::filesystem::directory_iterator(path(run + "/tensorboard"))) {
      events =
          events || (entry.path().filename().string().find("tfevents") != std::string::npos && entry.file_size() > 0);
    }
    EXPECT_TRUE(events);
    const ckpt::Reader reader(path(run + "/checkpoints"));
    reader.verify();
    EXPECT_EQ(reader.step(), static_cast<int64_t>(steps));
  }
};

const char* const kSgd = "optimizer = \"sgd\"\nmomentum = 0.0\nclip = 0.0\n";

TEST_F(TrainTest, OneAndTwoAndFourRanksTrainToTheEndAndAgreeOnTheLoss) {
  write_gpt(kSgd);
  const Outcome one = run({"train", "gpt.toml", "--out", "one", "--set", "train.lr=0.1"});
  const Outcome two = run({"train", "gpt.toml", "--out", "two", "--set", "train.lr=0.1", "-n", "2"});
  const Outcome four = run({"train", "gpt.toml", "--out", "four", "--set", "train.lr=0.1", "-n", "4"});

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  ASSERT_EQ(four.code, 0) << four.err;
  EXPECT_THAT(one.out, HasSubstr("1 rank x "));
  EXPECT_THAT(two.out, HasSubstr("2 ranks x "));
  EXPECT_THAT(two.out, HasSubstr("Checkpoint: two/checkpoints/step-000006"));
  expect_run_is_complete("one", 6);
  expect_run_is_complete("two", 6);
  expect_close(losses("one"), losses("two"));
  expect_close(losses("one"), losses("four"));
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(TrainTest, ABatchInMicroBatchesIsAnnouncedAndTrainsAsInOnePart) {
  write_gpt(kSgd);
  const auto train = [&](const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml", "--out", out, "--set", "train.lr=0.1", "-n", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome one = train("one", {});
  const Outcome two = train("two", {"--gradient-accumulation-steps", "2"});

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(one.out, HasSubstr(", batch 4, "));
  EXPECT_THAT(two.out, HasSubstr(", batch 4 in 2 micro-batches, "));
  expect_close(losses("one"), losses("two"));
  const std::string pipeline = "--pp=2";
  EXPECT_THAT(train("copies", {"--micro-batches", "1", "--interleave", "2"}).out, HasSubstr(", batch 4 in 2 copies, "));
  EXPECT_THAT(train("both", {pipeline, "--micro-batches", "2", "--interleave", "2"}).out,
              HasSubstr(", batch 4 in 2 micro-batches of 2 copies, "));
  EXPECT_THAT(train("chunks", {pipeline, "--micro-batches", "2", "--schedule", "seq-1f1b"}).out,
              HasSubstr(", batch 4 in 2 micro-batches of 2 chunks of positions, "));
}

// contracts 9.2: every rank has the loss; validation and checkpoints are those of one rank, and a run goes on with
// another number of stages, or none.
TEST_F(TrainTest, APipelineTrainsValidatesAndGoesOnAsOneRankDoes) {
  write_gpt(kSgd);
  const auto train = [&](const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml", "--out", out, "--set", "train.lr=0.1", "--set", "data.validation=0.1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome one = train("one", {});
  const Outcome two = train("two", {"-n", "2", "--pp", "2", "--micro-batches", "2", "--schedule", "zb-h1"});

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  expect_close(losses("one"), losses("two"));
  // The last crew has the first stage; validation goes by a written timetable, too, however few micro-batches it has.
  write("ours.txt",
        "# ours\n\ntimetable ours stages=3 micro_batches=4\r\n"
        "crew 0: F1.0 F1.1 B1.1 F1.3 F1.2 I1.0 B1.3 W1.0 B1.2\r\n"
        "crew 1: F0.0 F0.1 F2.1 F0.3 F2.0 I2.1 F0.2 B2.0 B0.1 F2.3 W2.1 B0.0 B2.3 F2.2 B2.2 B0.3 B0.2\n");
  write("few.txt", "timetable few stages=2 micro_batches=1\ncrew 0: F0.0 B0.0\ncrew 1: F1.0 B1.0\n");
  const Outcome ours = train("ours", {"-n", "2", "--pp", "2", "--micro-batches", "4", "--schedule", "ours.txt"});
  ASSERT_EQ(ours.code, 0) << ours.err;
  expect_close(losses("one"), losses("ours"));
  for (const char* ranks : {"1", "2"}) {
    Words more{"--resume", "--set", "train.steps=8", "-n", ranks};
    if (ranks == std::string("2"))
      more.insert(more.end(), {"--pp", "2", "--schedule", "few.txt", "--set", "train.steps=9"});
    const Outcome further = train("two", more);
    EXPECT_EQ(further.code, 0) << further.err;
  }
  const Outcome sample = run({"generate", "two/checkpoints", "--prompt", "a", "--tokens", "3"});
  EXPECT_EQ(sample.code, 0) << sample.err;
  EXPECT_THAT(left_over(), IsEmpty());
}

// All ranks and lanes, in a form that browsers show.
TEST_F(TrainTest, TracesSomeStepsOfAllRanks) {
  write_gpt(kSgd);
  const Outcome out = run({"train", "gpt.toml", "--out", "traced", "-n", "2", "--pp", "2", "--micro-batches", "2",
                           "--trace", "trace.json", "--trace-steps", "2"});
  ASSERT_EQ(out.code, 0) << out.err;
  std::map<int, std::map<std::string, int>> events;  // by rank and lane
  std::map<int, std::pair<int, int64_t>> rows;       // by row: whose it is, and when its last event ended
  const auto ns = [](const nlohmann::json& us) { return std::llround(1000 * us.get<double>()); };
  std::set<int> steps;
  const nlohmann::json trace = nlohmann::json::parse(read(path("trace.json")));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    ++events[event["pid"].get<int>()][event["cat"].get<std::string>()];
    steps.insert(event["args"]["step"].get<int>());
    auto& [rank, end_ns] = rows.emplace(event["tid"].get<int>(), std::pair{event["pid"].get<int>(), 0}).first->second;
    EXPECT_EQ(rank, event["pid"].get<int>()) << "two ranks have one row";
    EXPECT_GE(ns(event["ts"]), end_ns) << "events of one row overlap: viewers drop one of them";
    end_ns = ns(event["ts"]) + ns(event["dur"]);
  }
  EXPECT_EQ(steps, (std::set<int>{2, 3}));
  ASSERT_EQ(events.size(), 2U);
  for (auto& [rank, lanes] : events) {
    EXPECT_GT(lanes["compute"], 20) << rank;
    EXPECT_GE(lanes["message"], 2 * 2 * 2) << rank;  // to and fro, for each micro-batch and step
    EXPECT_GE(lanes["wait"], 2) << rank;
  }
  const std::string report = read(path("traced/report.html"));
  EXPECT_THAT(report, AllOf(HasSubstr("<h2>Timetable"), HasSubstr("as it ran: "), HasSubstr("as modelled: "),
                            HasSubstr("forward of micro-batch 1, stage 1"), HasSubstr("Model FLOPs utilisation")));
  const Outcome short_run = run({"train", "gpt.toml", "--out", "short", "--steps", "1", "--trace", "short.json"});
  EXPECT_THAT(short_run.err, HasSubstr("no trace is written: the run ended before its step 2"));
  EXPECT_THAT(short_run.out, Not(HasSubstr("short.json")));
  for (const auto& [flag, key] : {std::pair{"--trace", "train.trace"}, {"--save-strategy", "parallel.save_strategy"}}) {
    const auto refused = [&](const char* file) {
      const Outcome outcome = run({"train", "gpt.toml", "-n", "2", "--out", "lost", flag, file});
      EXPECT_EQ(outcome.code, 2);
      return outcome.err;
    };
    const std::string where = std::string("error: configuration: ") + key;
    EXPECT_THAT(refused("gone/t"), HasSubstr(where + ": there is no directory 'gone'; make it, or name a file"));
    EXPECT_THAT(refused("."), HasSubstr(where + ": '.' is a directory; name a file in it"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("lost")));
  const Outcome modelled = run({"explain", "gpt.toml", "-n", "2", "--pp", "2", "--micro-batches", "2", "--stage",
                                "time", "--trace", "modelled.json"});
  ASSERT_EQ(modelled.code, 0) << modelled.err;
  std::map<int, std::map<std::string, int>> of_model;  // by rank and lane
  const nlohmann::json modelled_trace = nlohmann::json::parse(read(path("modelled.json")));
  for (const auto& event : modelled_trace["traceEvents"]) {
    if (event["ph"] == "X") ++of_model[event["pid"].get<int>()][event["cat"].get<std::string>()];
  }
  ASSERT_EQ(of_model.size(), 2U);
  for (auto& [rank, lanes] : of_model) {
    for (const std::string lane : {"compute", "message"}) EXPECT_EQ(2 * lanes[lane], events[rank][lane]) << lane;
    EXPECT_GE(lanes["wait"], 1) << rank;
  }
}

// A checkpoint of a pipeline has the bits of one rank's here. It is judged through stages or on one rank, and written
// from, alike.
TEST_F(TrainTest, EvaluatesAndWritesWhatStagesTrained) {
  write_gpt(kSgd);
  const Words stages{"-n", "4", "--pp", "2", "--tp", "2", "--micro-batches", "2"};
  const auto train = [&](const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml", "--quiet", "--numerics", "invariant", "--sample-tokens", "0", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  train("one", {});
  train("four", stages);
  const auto judged = [&](const std::string& of, const Words& more) {
    Words words{"evaluate", of + "/checkpoints", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("loss").get<double>();
  };
  const double loss = judged("one", {});
  EXPECT_EQ(judged("four", {}), loss);
  EXPECT_EQ(judged("four", {"-n", "2", "--set", "parallel.mode=semi_auto_parallel", "--set", "parallel.pp=2", "--set",
                            "parallel.gradient_accumulation_steps=2"}),
            loss);
  const auto written = [&](const std::string& by) {
    return run({"generate", by + "/checkpoints", "--prompt", "line", "--tokens", "20", "--seed", "3"}).out;
  };
  EXPECT_EQ(written("four"), written("one"));
  EXPECT_GE(written("one").size(), 24U);
}

// Of every step; the summary and the report have the mean.
TEST_F(TrainTest, TellsHowMuchOfItsCommunicationIsHidden) {
  write_gpt(kSgd);
  const Outcome one = run({"train", "gpt.toml", "--out", "one"});
  const Outcome two = run({"train", "gpt.toml", "--out", "two", "-n", "2"});

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(one.out, Not(HasSubstr("Communication")));
  EXPECT_THAT(read(path("one/metrics.jsonl")), Not(HasSubstr("comm_")));
  EXPECT_THAT(
      two.out,
      ContainsRegex("Communication [0-9.]+ ms a step, [0-9]+ % hidden; most exposed on rank [01]: [0-9.]+ ms\n"));
  EXPECT_THAT(read(path("two/report.html")), HasSubstr("<dt>Communication</dt>"));
  int steps = 0;
  for (const RunRecord& record : read_run_log(path("two/metrics.jsonl"))) {
    const std::map<std::string, double> values(record.values.begin(), record.values.end());
    if (!values.contains("loss")) continue;
    ++steps;
    EXPECT_GT(values.at("comm_exposed_ms"), 0);
    EXPECT_LE(values.at("comm_exposed_ms"), values.at("comm_busy_ms"));
    EXPECT_LE(values.at("comm_busy_ms"), values.at("ms"));
  }
  EXPECT_EQ(steps, 6);
}

// A step is what metrics.jsonl has of it: neither validation, checkpoints nor the sample, which stand beside it.
TEST_F(TrainTest, TheReportHasTheCommandAsItWasGivenAndTheTimeOfStepsAlone) {
  write_gpt();
  const Outcome outcome = run({"train", "gpt.toml", "--out", "my run", "-n", "2", "--set", "data.paths=[\"text.txt\"]",
                               "--set", "train.eval_every=1", "--set", "train.save_every=1"});

  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string report = read(path("my run/report.html"));
  EXPECT_THAT(report, HasSubstr("trireme train gpt.toml --out &#39;my run&#39; -n 2 --set "
                                "&#39;data.paths=[&quot;text.txt&quot;]&#39; --set"));
  for (const char* fact :
       {"<dd>gpt, 1 layer of width 16, 2 heads</dd>", "<dt>Optimizer</dt><dd>AdamW, beta1 ", "<dt>Learning rate</dt>",
        "<dt>Host</dt>", "<dt>Ended</dt>", "<dt>Version</dt><dd>trireme 0."}) {
    EXPECT_THAT(report, HasSubstr(fact));
  }
  double ms = 0;
  int steps = 0;
  for (const RunRecord& record : read_run_log(path("my run/metrics.jsonl"))) {
    for (const auto& [key, value] : record.values) {
      if (key == "ms") ms += value;
      if (key == "ms") ++steps;
    }
  }
  ASSERT_EQ(steps, 6);
  const std::string before = "<h2>Time of a step<small>";
  const size_t at = report.find(before);
  ASSERT_NE(at, std::string::npos);
  EXPECT_NEAR(std::atof(report.c_str() + at + before.size()), ms / steps, 0.051);  // one digit after the point
  for (const char* part : {"6 steps</td>", "validation</td>", "checkpoints</td>", "the sample at the end</td>"}) {
    EXPECT_THAT(report, HasSubstr(part));
  }
}

TEST_F(TrainTest, ALlamaTrainsAsOneRankDoesWithItsWeightsCutAndWrites) {
  write_gpt(kSgd);
  const auto train = [&](const std::string& out, const Words& more) {
    Words words{"train", "gpt.toml",         "--out", out,
                "--set", "model.kind=llama", "--set", "model.dropout=0",
                "--set", "model.kv_heads=2", "--set", "model.mlp_width=40",
                "--set", "train.lr=0.1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome one = train("one", {});
  const Outcome cut = train("cut", {"-n", "4", "--tp", "2", "--sp", "--zero", "3"});

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(cut.code, 0) << cut.err;
  EXPECT_THAT(one.out, HasSubstr("llama with "));
  expect_run_is_complete("one", 6);
  expect_run_is_complete("cut", 6);
  expect_close(losses("one"), losses("cut"));
  const Outcome text = run({"generate", "cut/checkpoints", "--prompt", "line", "--tokens", "8"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, SizeIs(4 + 8 + 1));
}

TEST_F(TrainTest, AnMlpOnSyntheticImagesSaysItsAccuracy) {
  write_mlp();
  const Outcome outcome = run({"train", "mlp.toml", "--out", "mlp", "-n", "2"});

  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("accuracy "));
  EXPECT_THAT(losses("mlp"), SizeIs(6));  // 48 samples in batches of 8
}

TEST_F(TrainTest, TheSameJobTwiceGivesTheSameBits) {
  write_gpt();
  for (const char* ranks : {"1", "2"}) {
    const std::string a = fmt::format("a{}", ranks);
    const std::string b = fmt::format("b{}", ranks);
    ASSERT_EQ(run({"train", "gpt.toml", "--out", a, "-n", ranks, "--quiet"}).code, 0);
    ASSERT_EQ(run({"train", "gpt.toml", "--out", b, "-n", ranks, "--quiet"}).code, 0);
    EXPECT_EQ(losses(a), losses(b));
    expect_same_checkpoint(a, b);
  }
}

TEST_F(TrainTest, StoppedAndResumedItGivesTheBitsOfARunWithoutAStop) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "whole", "-n", "2", "--set", "train.steps=8"}).code, 0);
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "parts", "-n", "2", "--set", "train.steps=4"}).code, 0);
  const Outcome rest = run({"train", "gpt.toml", "--out", "parts", "-n", "2", "--set", "train.steps=8", "--resume"});

  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("steps 5 to 8"));
  EXPECT_EQ(losses("whole"), losses("parts"));
  expect_same_checkpoint("whole", "parts");
}

TEST_F(TrainTest, InBf16CheckpointsHoldF32AndARunGoesOnWithTheSameBits) {
  write_gpt();
  const auto train = [&](const char* out, const char* steps, bool resume) {
    std::vector<std::string> words{"train", "gpt.toml", "--dtype", "bf16", "--out", out, "-n", "2", "--set", steps};
    if (resume) words.emplace_back("--resume");
    return run(words);
  };
  ASSERT_EQ(train("whole", "train.steps=8", false).code, 0);
  ASSERT_EQ(train("parts", "train.steps=4", false).code, 0);
  const Outcome rest = train("parts", "train.steps=8", true);

  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(losses("whole"), losses("parts"));
  expect_same_checkpoint("whole", "parts");
  const ckpt::Reader reader(path("whole/checkpoints"));
  for (const std::string& name : reader.names()) EXPECT_EQ(reader.read(name).type().dtype, DType::kF32) << name;
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "wide", "-n", "2", "--set", "train.steps=8"}).code, 0);
  EXPECT_NE(losses("whole"), losses("wide"));
}

TEST_F(TrainTest, ARunGoesOnWithAnotherNumberOfRanks) {
  write_gpt(kSgd);
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "whole", "--set", "train.steps=8"}).code, 0);
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "parts", "-n", "2", "--set", "train.steps=4"}).code, 0);
  for (const char* ranks : {"1", "4"}) {
    std::filesystem::copy(path("parts"), path(ranks),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    const Outcome rest = run({"train", "gpt.toml", "--out", ranks, "-n", ranks, "--set", "train.steps=8", "--resume"});
    ASSERT_EQ(rest.code, 0) << rest.err;
    expect_close(losses("whole"), losses(ranks));
  }
}

TEST_F(TrainTest, CtrlCFinishesTheStepSavesAndSaysHowToGoOn) {
  for (const char* ranks : {"1", "2"}) {
    write_gpt();
    const std::string out = fmt::format("run{}", ranks);
    start({"train", "gpt.toml", "--out", out, "-n", ranks, "--set", "train.steps=1000000"});
    ASSERT_TRUE(wait_until([&] { return err_so_far().find("step ") != std::string::npos; })) << err_so_far();
    ASSERT_EQ(::kill(pid(), SIGINT), 0);
    const Outcome stopped = wait();

    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_THAT(stopped.out, HasSubstr("Stopped after step "));
    EXPECT_THAT(stopped.out, HasSubstr("everything is saved in " + out + "/checkpoints/step-"));
    EXPECT_THAT(stopped.out, HasSubstr("Go on with the same command and --resume."));
    EXPECT_THAT(stopped.err, Not(HasSubstr("error")));
    EXPECT_THAT(read(path(out + "/report.html")), HasSubstr("</html>"));
    EXPECT_THAT(left_over(), IsEmpty());

    const int64_t step = ckpt::Reader(path(out + "/checkpoints")).step();
    const std::string end = fmt::format("train.steps={}", step + 2);
    ASSERT_EQ(run({"train", "gpt.toml", "--out", out, "-n", ranks, "--set", end, "--resume", "--quiet"}).code, 0);
    ASSERT_EQ(run({"train", "gpt.toml", "--out", out + "whole", "-n", ranks, "--set", end, "--quiet"}).code, 0);
    EXPECT_EQ(losses(out), losses(out + "whole"));
    expect_same_checkpoint(out, out + "whole");
  }
}

TEST_F(TrainTest, ResumingAFinishedRunChangesNothingAndSaysSo) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run"}).code, 0);
  const std::string before = read(path("run/metrics.jsonl"));
  for (const char* ranks : {"1", "2"}) {
    const Outcome again = run({"train", "gpt.toml", "--out", "run", "--resume", "-n", ranks});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.out,
              "Nothing is left to train: run/checkpoints/step-000006 is at step 6 of 6.\n"
              "For more, raise the number of steps, as in --set train.steps=12.\n");
    EXPECT_EQ(read(path("run/metrics.jsonl")), before);
  }
}

TEST_F(TrainTest, ANewRunLeavesTheFilesOfAnEarlierOneInAFolderOfTheirOwn) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "-n", "2"}).code, 0);
  std::map<std::string, std::string> first;
  for (const auto& file : std::filesystem::recursive_directory_iterator(path("run"))) {
    const std::string name = std::filesystem::relative(file.path(), path("run")).string();
    if (file.is_regular_file() && !name.starts_with("logs")) first[name] = read(file.path().string());
  }
  const Outcome second = run({"train", "gpt.toml", "--out", "run", "-n", "2", "--set", "train.steps=2"});

  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(
      second.err,
      HasSubstr(
          "'run' held an earlier run; its curves, report and checkpoints are now in 'run/earlier-1', where they stay"));
  EXPECT_THAT(losses("run"), SizeIs(2));
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("run/tensorboard")), {}), 1);
  EXPECT_THAT(first, SizeIs(testing::Gt(4U)));
  for (const auto& [name, bytes] : first) EXPECT_EQ(read(path("run/earlier-1/" + name)), bytes) << name;
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--set", "train.steps=3", "--set", "train.keep=1"}).code, 0);
  EXPECT_EQ(ckpt::Reader(path("run/checkpoints")).step(), 3);
  EXPECT_EQ(ckpt::Reader(path("run/earlier-2/checkpoints")).step(), 2);
  EXPECT_EQ(ckpt::Reader(path("run/earlier-1/checkpoints")).step(), 6) << "what train.keep says is of one run";
}

TEST_F(TrainTest, AResumedRunGoesOnInItsFilesAndItsReportHasTheWholeCurve) {
  write_gpt("save_every = 2\neval_every = 2\n");
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--set", "train.steps=5"}).code, 0);
  std::filesystem::remove_all(path("run/checkpoints/step-000005"));
  const Outcome resumed = run({"train", "gpt.toml", "--out", "run", "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "whole"}).code, 0);
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_FALSE(std::filesystem::exists(path("run/earlier-1")));
  const auto steps_of = [&](const std::string& report) {  // the points that the page has of its first chart
    const std::string text = read(path(report));
    const size_t at = text.find("points&quot;:[");
    EXPECT_NE(at, std::string::npos);
    return text.substr(at, text.find('}', at) - at);
  };
  EXPECT_EQ(steps_of("run/report.html"), steps_of("whole/report.html"));
}

}  // namespace
}  // namespace trireme::cli::train_test
