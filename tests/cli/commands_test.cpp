// The commands other than train: what they print, and that misspelt words are told in one line.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trireme::cli::commands_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

class CommandTest : public CliTest {
 protected:
  // That make a step of the model a short one.
  static Words sizes_of(const std::string& model) {
    if (model == "mlp") return {"--hidden", "8"};
    if (model == "lenet") return {};
    return {"--layers", "1", "--width", "16", "--heads", "2", "--seq", "16", "--vocab", "64"};
  }
  void expect_error(const Words& words, int code, const testing::Matcher<std::string>& text) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(error_line(outcome), text);
    EXPECT_EQ(outcome.out, "");
  }
};

#ifndef __SANITIZE_ADDRESS__  // whose shadow is memory too
// What a rank's process grows by is the plan's arena and little else: weights, gradients and state are gathered into
// it.
TEST_F(CommandTest, PeakMemoryOfZero3IsThePlansWithin5Percent) {
  const Outcome outcome =
      run({"bench",    "step", "--model", "mlp",     "--hidden", "4096,4096,4096", "--batch", "8",           "--zero",
           "3",        "-n",   "2",       "--steps", "1",        "--warmup",       "0",       "--transport", "ucx",
           "--tuning", "off",  "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto record = nlohmann::json::parse(outcome.out);
  const double planned = record["arena_bytes"].get<double>() / 1048576.0;
  EXPECT_LE(record["rss_of_session_mb"].get<double>(), 1.05 * planned);
  EXPECT_GE(record["rss_of_session_mb"].get<double>(), 0.95 * planned);
  EXPECT_EQ(record["sent_bytes"], record["planned_bytes"]);
}
#endif

TEST_F(CommandTest, BenchTimesTheCompilerForRanksThatAreNotThere) {
  const auto compiled = [&](const char* layers, const char* ranks) {
    const Outcome outcome = run({"bench", "compile", "--layers", layers, "--width", "64", "--seq", "16", "--batch", "1",
                                 "--tp", "4", "-n", ranks, "--rounds", "2", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto two = compiled("2", "64");
  EXPECT_EQ(two.at("ranks"), 64);
  EXPECT_GT(two.at("graph_ms").get<double>(), 0);
  EXPECT_LE(two.at("graph_ms"), two.at("ms"));
  const auto four = compiled("4", "64");
  const auto three = compiled("3", "64");
  EXPECT_EQ(four.at("nodes").get<int>() - three.at("nodes").get<int>(),
            three.at("nodes").get<int>() - two.at("nodes").get<int>());
  EXPECT_GT(three.at("actions"), two.at("actions"));
  expect_error({"bench", "compile", "--rounds", "0"}, 2,
               "bench compile: -n 1 --threads 1 --rounds 0; each must be 1 or more");
  expect_error({"bench", "compile", "--model", "gpd"}, 2, "bench compile: no model 'gpd'. Did you mean 'gpt'?");
}

TEST_F(CommandTest, BenchTimesTheActionsOfAPlan) {
  const Outcome outcome = run({"bench", "executor", "--actions", "100", "--steps", "3", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto record = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(record.at("actions"), 100);
  EXPECT_GT(record.at("us_per_action").get<double>(), 0);
  EXPECT_LE(record.at("min_us_per_action"), record.at("us_per_action"));
}

// Of which nearly all are weights.
TEST_F(CommandTest, BenchDecodeInBf16ReadsHalfTheBytes) {
  const auto decoded = [&](const char* dtype) {
    const Outcome outcome = run({"bench", "decode", "--layers", "2", "--width", "64", "--heads", "2", "--seq", "32",
                                 "--before", "20", "--tokens", "2", "--dtype", dtype, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto f32 = decoded("f32"), bf16 = decoded("bf16");
  EXPECT_EQ(bf16["dtype"], "bf16");
  EXPECT_LT(bf16["bytes"].get<double>(), 0.6 * f32["bytes"].get<double>());
  EXPECT_GT(bf16["prompt_per_s"].get<double>(), 0);
  expect_error({"bench", "decode", "--dtype", "f16"}, 2, HasSubstr("--dtype: 'f16'; it must be 'f32' or 'bf16'"));
}

TEST_F(CommandTest, HelpIsThereForEveryCommandAndTopic) {
  for (const Words& words : {Words{}, Words{"help"}, Words{"--help"}, Words{"-h"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0);
    for (const char* command : {"train", "generate", "explain", "launch", "scheduler", "bench", "help"}) {
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("  {} ", command)));
    }
    EXPECT_EQ(outcome.err, "");
  }
  for (const char* command : {"train", "generate", "explain", "launch", "scheduler", "bench"}) {
    const Outcome outcome = run({"help", command});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("trireme {}", command)));
    EXPECT_EQ(run({command, "--help"}).code, 0);
  }
  EXPECT_THAT(run({"help", "bench", "step"}).out, HasSubstr("Usage: trireme bench step [OPTIONS]"));
  EXPECT_THAT(run({"help", "config"}).out, HasSubstr("train.batch"));
  EXPECT_THAT(run({"help", "env"}).out, HasSubstr("TRIREME_THREADS"));
  EXPECT_THAT(run({"--version"}).out, StartsWith("trireme 0."));
}

TEST_F(CommandTest, MisspeltWordsAreToldWithTheOnesMeant) {
  expect_error({"trian"}, 2,
               "trireme: no command or argument 'trian'. Did you mean 'train'? `trireme help` lists the commands.");
  expect_error({"train", "gpt.toml", "--rnaks", "2"}, 2,
               "train: no option '--rnaks'. Did you mean '--ranks'? See `trireme help train`.");
  expect_error({"generate", "run", "--promt", "a"}, 2,
               "generate: no option '--promt'. Did you mean '--prompt'? See `trireme help generate`.");
  expect_error({"bench", "stpe"}, 2,
               "bench: no command or argument 'stpe'. Did you mean 'step'? See `trireme help bench`.");
  expect_error(
      {"bench"}, 2,
      "bench: say what: 'step', 'collective', 'decode', 'compile', 'executor' or 'peak'. See `trireme help bench`.");
  expect_error(
      {"bench", "xyz"}, 2,
      "bench: there is no 'xyz'; it must be 'step', 'collective', 'decode', 'compile', 'executor' or 'peak'. See "
      "`trireme help bench`.");
  expect_error({"bench", "step", "--modle", "gpt"}, 2, HasSubstr("Did you mean '--model'?"));
  expect_error({"help", "trian"}, 2, "help: no topic 'trian'. Did you mean 'train'?");
  expect_error({"help", "bench", "stpe"}, 2, "help: no topic 'bench stpe'. Did you mean 'step'?");
  expect_error({"train"}, 2,
               "train: config is required: The job's TOML file; `trireme help config` lists its keys. See `trireme "
               "help train`.");
  expect_error(
      {"train", "gpt2"}, 2,
      "there is no file 'gpt2': it is a model, of which `trireme models gpt2 > gpt2.toml` writes a job's file");
  expect_error({"train", "gpt.toml", "--batch", "eight"}, 2, HasSubstr("--batch: 'eight' is not a whole number."));
  expect_error({"train", "gpt.toml", "--lr", "fast"}, 2, HasSubstr("--lr: 'fast' is not a number."));
  expect_error({"plan", "gpt2", "--search", "exakt"}, 2,
               HasSubstr("--search: 'exakt'; it must be 'auto', 'compiled' or 'exact' (did you mean 'exact'?)."));
  expect_error({"plan", "gpt2", "--dtype", "bf16"}, 2,
               HasSubstr("no option '--dtype'. It is the key train.dtype: --set train.dtype=VALUE."));
  expect_error({"plan", "gpt2", "--tp", "2"}, 2,
               HasSubstr("no option '--tp'. It is planned; --only \"tp=VALUE\" plans these ways alone."));
  expect_error({"bench", "step", "--model", "gtp"}, 2, HasSubstr("no model 'gtp'. Did you mean 'gpt'?"));
  expect_error({"train", "gpt.toml", "extra"}, 2, "train: no command or argument 'extra'. See `trireme help train`.");
  expect_error({"train", "gpt.toml", "-n", "two"}, 2,
               "train: -n two: it must be a number from 1, or two joined by a colon, as in 2:4");
}

// A flag for a key of models says what it is for every kind that has it, and what it is where it is not given.
TEST_F(CommandTest, BenchSaysTheModelsDefaults) {
  const std::string help = run({"bench", "step", "--help"}).out;
  EXPECT_THAT(help, testing::ContainsRegex("gpt, llama, [a-z0-9_, ]*: blocks [(]default 4[)]"));
  EXPECT_THAT(help, testing::ContainsRegex("gpt, llama, [a-z0-9_, ]*: width of the residual stream [(]default 256[)]; "
                                           "wide_deep: size of the vector"));
  EXPECT_THAT(help, HasSubstr("sizes of the hidden layers (default mlp ["));
}

TEST_F(CommandTest, AVariableThatMeansNothingIsWarnedAbout) {
  const Outcome outcome = run({"help", "env"}, {"TRIREME_THREDS=2"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("TRIREME_THREDS"));
}

TEST_F(CommandTest, GenerateWritesTheSameTextForTheSameSeed) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--quiet"}).code, 0);
  const auto text = [&](const Words& more) {
    Words words{"generate", "run/checkpoints", "--prompt", "line 1", "--tokens", "20"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, StartsWith("line 1"));
    EXPECT_THAT(outcome.out, SizeIs(6 + 20 + 1));  // the prompt, a byte a token, the line's end
    return outcome.out;
  };
  EXPECT_EQ(text({"--seed", "7"}), text({"--seed", "7"}));
  EXPECT_EQ(text({"--seed", "7"}), text({"--seed", "7", "--threads", "2"}));
  EXPECT_NE(text({"--seed", "7"}), text({"--seed", "8"}));
  EXPECT_EQ(text({"--temperature", "0", "--seed", "7"}), text({"--temperature", "0", "--seed", "8"}));
  EXPECT_EQ(run({"generate", "run", "--prompt", "line 1", "--tokens", "0"}).out, "line 1\n");

  expect_error({"generate", "run", "--prompt", ""}, 2, "generate: the prompt is empty; give it one character at least");
  expect_error({"generate", "run", "--prompt", "a", "--tokens", "-1"}, 2, "generate: -1 tokens; it must be 0 or more");
  expect_error({"generate", "run", "--prompt", "a", "--temperature", "-1"}, 2,
               "generate: temperature -1; it must be 0 or more, and finite");
  expect_error({"generate", "gone", "--prompt", "a"}, 2,
               "there is no checkpoint 'gone'; name the directory of a run, of its checkpoints, or one of them");
}

TEST_F(CommandTest, GenerateOnRanksThatShareTheModelWritesTheSame) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--quiet", "--zero", "3", "-n", "2"}).code, 0);
  const auto text = [&](const Words& more) {
    Words words{"generate", "run", "--prompt", "line 1", "--tokens", "12", "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string one = text({});
  EXPECT_EQ(text({"-n", "2"}), one);
  EXPECT_EQ(text({"-n", "2", "--set", "parallel.vocabulary=true"}), one);
  EXPECT_EQ(text({"-n", "2", "--set", "parallel.mesh = dp=1,tp=2"}), one);  // in the place of --tp
  EXPECT_EQ(text({"-n", "2", "--pp", "2"}), one);

  for (const Words& cut : {Words{"-n", "2", "--tp", "1"}, Words{"--pp", "2"}, Words{"-n", "4", "--tp", "2"}}) {
    Words words{"generate", "run", "--prompt", "a"};
    words.insert(words.end(), cut.begin(), cut.end());
    EXPECT_THAT(error_line(run(words)), HasSubstr("let their product be the ranks"));
  }
  expect_error({"generate", "run", "--prompt", "a", "-n", "2", "--set", "train.lr=1"}, 2,
               "generate: --set train.lr=1: only keys of [parallel] can be set, which say how ranks share the model; "
               "the rest comes from the checkpoint");
}

// What is given and changes nothing beside the other flags.
TEST_F(CommandTest, FlagsWithoutEffectAreRefusedOrSaid) {
  write_gpt();
  for (const Words& command : {Words{"train", "gpt.toml", "--out", "none"}, Words{"explain", "gpt.toml"},
                               Words{"simulate", "gpt.toml"}, Words{"launch", "-n", "1"}}) {
    for (const Words& flag : {Words{"--world", "4"}, Words{"--node-rank", "1"}, Words{"--secret-file", "secret"}}) {
      Words words = command;
      words.insert(words.end(), flag.begin(), flag.end());
      if (command.front() == "launch") words.emplace_back("true");
      expect_error(words, 2,
                   flag.front() +
                       " is for jobs on several nodes, and this job runs on this host alone; add --nnodes or --master, "
                       "or leave it out");
    }
  }
  EXPECT_THAT(run({"launch", "-n", "1:2", "true"}).err, HasSubstr("goes on with fewer only if --restarts is given"));
  write("mine", run({"timetable", "1f1b", "--pp", "2", "--micro-batches", "2", "--units"}).out);
  expect_error(
      {"timetable", "mine", "--pp", "4"}, 2,
      "timetable: --pp is for a schedule that is named, and 'mine' is a file with a whole timetable; leave it out");
  expect_error({"timetable", "1f1b", "--units", "--costs", "1,2,3"}, 2,
               "timetable: --costs changes the picture, and --units prints none; leave one out");
  expect_error({"timetable", "--pp", "4"}, 2, HasSubstr("timetable: no schedule is named"));
  expect_error({"simulate", "gpt.toml", "--failure-seed", "3"}, 2, HasSubstr("ranks fail by --mtbf"));
  expect_error({"plan", "gpt.toml", "-n", "2", "--advise", "--top", "5"}, 2, HasSubstr("so --top would do nothing"));
  expect_error({"bench", "collective", "--op", "all_gather", "--reduce", "max"}, 2,
               HasSubstr("all_gather adds nothing up, so that the reduction that is asked for changes nothing"));
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--quiet"}).code, 0);
  expect_error({"evaluate", "run", "--set", "train.lr=3"}, 2,
               "evaluate: train.lr is for training, and nothing is trained here; leave it out");
  EXPECT_THAT(run({"generate", "run", "--prompt", "a", "--tokens", "1", "--temperature", "0", "--seed", "3"}).err,
              HasSubstr("--seed changes nothing with --temperature 0"));
}

TEST_F(CommandTest, KeysOfTrainingAreRefusedWhereNothingIsTrained) {
  write_gpt();
  ASSERT_EQ(run({"train", "gpt.toml", "--out", "run", "--quiet"}).code, 0);
  for (const Words& command : {Words{"evaluate", "run"}, Words{"generate", "run", "--prompt", "a", "--tokens", "1"}}) {
    const auto with = [&](const Words& keys) {
      Words words = command;
      words.insert(words.end(), {"-n", "2"});
      for (const std::string& key : keys) words.insert(words.end(), {"--set", key});
      return words;
    };
    for (const auto& [key, of] : {std::pair{"parallel.zero=2", "parallel.zero"},
                                  {"parallel.save_strategy = s.txt", "parallel.save_strategy"},
                                  {"parallel.keep=[\"* = again\"]", "parallel.keep"},
                                  {"parallel.home=[\"*/state = host\"]", "parallel.home '*/state = host'"}}) {
      expect_error(with({key}), 2,
                   fmt::format("{}: {} is for training, and nothing is trained here; leave it out", command[0], of));
    }
    expect_error(with({"parallel.device_num=4"}), 2,
                 "configuration: parallel.device_num = 4 but the job has 2 ranks; start 4 ranks, or change the key");
    EXPECT_THAT(run(with({"parallel.schedule=gpipe"})).err,
                HasSubstr("parallel.schedule = 'gpipe' has no effect with parallel.pp = 1"));
  }
  expect_error({"evaluate", "run", "--set", "parallel.mode=auto_parallel", "--set", "parallel.search=exact"}, 2,
               HasSubstr("evaluate: parallel.search = 'exact' plans a job that trains, and nothing is trained here"));
}

TEST_F(CommandTest, GenerateOfAModelThatDoesNotWriteIsRefused) {
  write_mlp();
  ASSERT_EQ(run({"train", "mlp.toml", "--out", "run", "--quiet"}).code, 0);
  expect_error({"generate", "run", "--prompt", "a"}, 2, HasSubstr("it must be a language model over bytes"));
}

TEST_F(CommandTest, ExplainPrintsEveryStage) {
  write_gpt();
  std::vector<std::string> seen;
  for (const char* stage : {"graph", "grad", "plan", "partition", "passes", "memory", "actions"}) {
    const Outcome outcome = run({"explain", "gpt.toml", "-n", "2", "--stage", stage});
    EXPECT_EQ(outcome.code, 0) << stage << outcome.err;
    EXPECT_THAT(std::count(outcome.out.begin(), outcome.out.end(), '\n'), testing::Gt(10)) << stage;
    EXPECT_THAT(seen, Not(testing::Contains(outcome.out))) << stage;
    seen.push_back(outcome.out);
  }
  EXPECT_THAT(seen[3], HasSubstr("all_reduce"));
  EXPECT_THAT(seen[0], Not(HasSubstr("all_reduce")));
  EXPECT_THAT(seen[4], HasSubstr("fused 2 ops at 'h.0.mlp': add, gelu\n"));
  EXPECT_THAT(seen[5], StartsWith("arena "));
  expect_error({"explain", "gpt.toml", "--stage", "grph"}, 2, "explain: no stage 'grph'. Did you mean 'graph'?");
  expect_error({"explain", "gpt.toml", "-n", "3"}, 2, HasSubstr("does not divide over 3 ranks; use 3 or 6 samples"));
}

TEST_F(CommandTest, ExplainTellsHowLongAStepTakesAndWhatItHides) {
  write_gpt();
  const Words words{"explain", "gpt.toml", "-n", "2", "--stage", "time"};
  const auto with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const auto makespan = [](const Outcome& outcome) {
    const std::string begin = "modelled step of 2 ranks: ";
    EXPECT_THAT(outcome.out, StartsWith(begin)) << outcome.err;
    return std::stod(outcome.out.substr(begin.size()));
  };
  const Outcome alike = with({});
  EXPECT_THAT(alike.out, HasSubstr("\ncompute "));
  EXPECT_THAT(alike.out, HasSubstr("\ncomm "));
  EXPECT_THAT(alike.out, Not(HasSubstr("\nmessage ")));
  EXPECT_THAT(alike.out, HasSubstr(" exposed, "));
  EXPECT_THAT(alike.out, HasSubstr("most bytes in use: "));
  const Outcome slow = with({"--slow", "1=3"});
  EXPECT_GT(makespan(slow), makespan(alike));
  EXPECT_THAT(slow.out, HasSubstr("\n1 "));
  const Outcome late = with({"--late", "0=0.25"});
  EXPECT_NEAR(makespan(late), makespan(alike) + 250, 0.02);
  expect_error(
      {"explain", "gpt.toml", "-n", "2", "--stage", "time", "--slow", "2=3"}, 2,
      "explain: --slow '2=3'; give RANK=FIGURE with a rank from 0 to 1 and a figure from 1e-06 on, as --slow 0=1.5");
  expect_error({"explain", "gpt.toml", "-n", "2", "--stage", "time", "--late", "1"}, 2,
               HasSubstr("explain: --late '1'; give RANK=FIGURE"));
  expect_error({"explain", "gpt.toml", "--late", "0=1"}, 2,
               "explain: --slow and --late change the modelled step, which --stage time alone shows; add it");
}

TEST_F(CommandTest, ExplainShowsOneMicroBatchBeforeThePassesAndAllAfterThem) {
  write_gpt();
  const auto explained = [&](const char* stage) {
    return run({"explain", "gpt.toml", "-n", "2", "--gradient-accumulation-steps", "2", "--stage", stage}).out;
  };
  const std::string partition = explained("partition");
  EXPECT_THAT(partition, StartsWith("mesh \"dp=2,micro_batch=2\"\n"));
  EXPECT_THAT(partition, HasSubstr("i32[1,16] = data \"tokens\"  // [dp*micro_batch, -] of [4,16]"));
  const std::string passes = explained("passes");
  EXPECT_THAT(passes, StartsWith("mesh \"dp=2\" micro_batches 2\n"));
  EXPECT_THAT(passes, HasSubstr("i32[2,16] = data \"tokens\"  // [dp, -] of [4,16]"));
}

TEST_F(CommandTest, ExplainLeavesPassesOutStopsAfterOneAndWritesWhatEachMade) {
  write_gpt();
  const auto explained = [&](const Words& more) {
    Words words{"explain", "gpt.toml", "-n", "2", "--set", "train.clip=0", "--stage", "passes"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto sums = [](const std::string& text) {
    size_t out = 0;
    for (size_t at = text.find("= all_reduce("); at != std::string::npos; at = text.find("= all_reduce(", at + 1))
      ++out;
    return out;
  };
  const std::string all = explained({});
  const std::string apart = explained({"--disable-pass", "fuse_collectives"});
  EXPECT_GT(sums(apart), sums(all));
  EXPECT_TRUE(explained({"--disable-pass", "fuse_collectives", "--disable-pass", "early_updates"}) != apart);
  const std::string first = explained({"--stop-after", "fuse_collectives", "--dump", "made/passes"});
  EXPECT_TRUE(first != all);
  std::string last;
  for (const auto& entry : std::filesystem::directory_iterator(path("made/passes")))
    last = std::max(last, entry.path().string());
  EXPECT_THAT(last, testing::EndsWith("_fuse_collectives.program"));
  EXPECT_TRUE(first.starts_with(read(last) + "\ncollectives beside the ops, in ms"));

  const Outcome timed = run({"explain", "gpt.toml", "--stage", "passes"}, {"TRIREME_LOG=pass=debug"});
  EXPECT_THAT(timed.err, HasSubstr("early_updates changed nothing  ms="));
  EXPECT_THAT(run({"help", "explain"}).out, HasSubstr("fuse_collectives, "));
  expect_error({"explain", "gpt.toml", "--stage", "passes", "--disable-pass", "fuse"}, 2,
               HasSubstr("no pass named 'fuse'."));
  expect_error({"explain", "gpt.toml", "--stage", "passes", "--stop-after", "early_gather"}, 2,
               "no pass named 'early_gather'. Did you mean 'early_gathers'?");
  expect_error({"explain", "gpt.toml", "--value", "h.0.mlp/gelo"}, 2,
               "explain: nothing is named 'h.0.mlp/gelo'. Did you mean 'h.0.mlp/gelu'?");
  expect_error({"explain", "gpt.toml", "--disable-pass", "homes"}, 2,
               "explain: --disable-pass concerns the passes, and --stage plan shows the program before them; add "
               "--stage passes, or leave --disable-pass out");
  expect_error({"explain", "gpt.toml", "--stage", "grad", "--dump", "made/none"}, 2,
               HasSubstr("explain: --dump concerns the passes, and --stage grad shows"));
  expect_error(
      {"explain", "gpt.toml", "--stage", "memory", "--value", "wte.weight"}, 2,
      HasSubstr("explain: --value says why a tensor lies as it does, and --stage memory shows something else"));
}

TEST_F(CommandTest, LaunchStartsAnyProgramAsRanks) {
  const Outcome outcome = run({"launch", "-n", "2", "--log-dir", "logs", "sh", "-c", "echo $RANK of $WORLD_SIZE"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "0 of 2\n");
  EXPECT_EQ(read(path("logs/worker_1.log")), "1 of 2\n");

  const Outcome failing = run({"launch", "-n", "2", "sh", "-c", "test $RANK = 0 || exit 7"});
  EXPECT_EQ(failing.code, 7);
  EXPECT_THAT(error_line(failing), testing::MatchesRegex("rank 1 \\(pid [0-9]+\\) ended with exit code 7 .*"));

  const Outcome missing = run({"launch", "-n", "2", "./gone"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(error_line(missing), HasSubstr("could not be started: No such file or directory"));
  expect_error({"launch", "-n", "0", "true"}, 2,
               "launch: -n 0: it must be a number from 1, or two joined by a colon, as in 2:4");
  expect_error({"launch", "true"}, 2, "launch: -n is required. See `trireme help launch`.");
  expect_error({"launch", "-n", "2", "--tail", "1,2", "true"}, 2, "launch: --tail 2; this job's ranks go from 0 to 1");
  EXPECT_EQ(run({"launch", "-n", "1", "--", "sh", "-c", "echo $0 $1", "--", "--b"}).out, "-- --b\n");
  EXPECT_EQ(run({"launch", "-n", "1", "--", "sh", "-c", "echo $#", "sh", "a", "b"}).out, "2\n");
  EXPECT_THAT(left_over(), IsEmpty());
}

TEST_F(CommandTest, BenchStepPrintsOneLineOfJsonForEveryModel) {
  for (const std::string model : {"gpt", "llama", "mlp", "lenet"}) {
    for (const char* ranks : {"1", "2"}) {
      Words words{"bench", "step", "--model", model,     "--batch", "2",        "--dtype", "f32",   "--threads",
                  "1",     "-n",   ranks,     "--steps", "2",       "--warmup", "1",       "--json"};
      const Words sizes = sizes_of(model);
      words.insert(words.end(), sizes.begin(), sizes.end());
      const Outcome outcome = run(words);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("\"model\":\"{}\"", model)));
      EXPECT_THAT(outcome.out, HasSubstr("\"dtype\":\"f32\""));
      EXPECT_EQ(number_in(outcome.out, "world"), std::stod(ranks));
      EXPECT_EQ(number_in(outcome.out, "threads"), 1);
      for (const char* key : {"ms", "min_ms", "per_s", "first_step_s", "rss_mb", "loss", "flops", "arena_bytes"}) {
        EXPECT_GT(number_in(outcome.out, key), 0) << key;
      }
      EXPECT_LE(number_in(outcome.out, "min_ms"), number_in(outcome.out, "ms"));
    }
  }
  expect_error({"bench", "step", "--model", "gpd"}, 2, "bench step: no model 'gpd'. Did you mean 'gpt'?");
  expect_error({"bench", "step", "--dtype", "f16"}, 2,
               "bench step: --dtype 'f16'; layers compute in one of 'f32' or 'bf16'");
}

TEST_F(CommandTest, BenchStepRunsOnADevice) {
  const auto loss_on = [&](const char* device) {
    const Outcome outcome = run({"bench", "step", "--model", "mlp", "--hidden", "8", "--batch", "2", "--steps", "1",
                                 "--warmup", "0", "--device", device, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("\"device\":\"{}\"", device)));
    return number_in(outcome.out, "loss");
  };
  EXPECT_EQ(loss_on("guarded"), loss_on("cpu"));
  expect_error({"bench", "step", "--model", "mlp", "--device", "gpu"}, 2, HasSubstr("'gpu'"));
}

TEST_F(CommandTest, BenchStepTimesBf16) {
  for (const char* model : {"gpt", "mlp", "lenet"}) {
    Words words{"bench", "step",    "--model", model,      "--batch", "2",     "--dtype",
                "bf16",  "--steps", "1",       "--warmup", "0",       "--json"};
    const Words sizes = sizes_of(model);
    words.insert(words.end(), sizes.begin(), sizes.end());
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("\"dtype\":\"bf16\""));
    EXPECT_GT(number_in(outcome.out, "loss"), 0);
  }
}

TEST_F(CommandTest, BenchCollectivePrintsALineForEverySize) {
  const Outcome outcome =
      run({"bench", "collective", "--op", "all_reduce", "--bytes", "4096,65536", "-n", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  const std::string second = outcome.out.substr(outcome.out.find('\n') + 1);
  EXPECT_EQ(number_in(outcome.out, "bytes"), 4096);
  EXPECT_EQ(number_in(second, "bytes"), 65536);
  EXPECT_EQ(number_in(second, "world"), 2);
  EXPECT_GT(number_in(second, "bus_gb_per_s"), 0);
  expect_error({"bench", "collective", "--bytes", "3"}, 2,
               "bench collective: --bytes 3; elements are f32, so it must be a multiple of 4");
  expect_error({"bench", "collective", "-n", "1"}, 2, "bench collective: -n 1; it takes 2 ranks or more");
  expect_error({"bench", "collective", "--op", "al_reduce"}, 2, HasSubstr("Did you mean 'all_reduce'?"));
}

}  // namespace
}  // namespace trireme::cli::commands_test
