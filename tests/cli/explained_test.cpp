// What `trireme explain` shows is what `trireme train` runs, to the byte: random jobs, drawn by seed.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "tests/cli/program.h"
#include "trireme/exec/plan.h"

namespace trireme::cli::explained_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A job's file and the words after it.
struct DrawnJob {
  std::string toml;
  std::vector<std::string> words;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  bool chance(int percent) { return below(100) < static_cast<size_t>(percent); }
  template <class T>
  T of(std::initializer_list<T> from) {
    return from.begin()[below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

std::string model_of(const std::string& kind, Draw& draw) {
  std::string out = fmt::format("[model]\nkind = \"{}\"\n", kind);
  if (kind == "mlp")
    return out + fmt::format("hidden = {}\nclasses = 8\n", draw.of<const char*>({"[16]", "[16, 24]", "[32, 16, 8]"}));
  if (kind == "wide_deep") return out + "vocabulary = 30\nwidth = 4\nhidden = [16, 8]\n";
  if (kind == "lenet") return out;
  out += fmt::format("layers = {}\nwidth = 16\nheads = 4\n", 1 + draw.below(2));
  if (kind == "gpt" && draw.chance(50)) out += "dropout = 0.1\n";
  if (kind == "llama") out += draw.of<const char*>({"", "kv_heads = 2\n", "tied = true\n"});
  if (draw.chance(20)) out += "experts = 4\n";
  return out;
}

std::string train_of(bool text, Draw& draw) {
  std::string out =
      fmt::format("[train]\nsteps = 1\nbatch = {}\noptimizer = \"{}\"\nclip = {}\n", draw.of({4, 8}),
                  draw.of<const char*>({"sgd", "adam", "adamw", "lamb"}), draw.of<const char*>({"0.0", "1.0"}));
  if (draw.chance(40)) out += fmt::format("eval_batch = {}\n", draw.of({8, 16, 12}));
  if (draw.chance(25)) out += "recompute = true\n";
  if (text && draw.chance(20)) out += "loss_pieces = 3\n";
  if (draw.chance(15)) return out + "numerics = \"invariant\"\n";
  if (draw.chance(20)) out += "dtype = \"bf16\"\n";
  if (draw.chance(15)) out += "label_smoothing = 0.1\n";
  return out;
}

std::string parallel_of(const std::string& kind, int ranks, Draw& draw) {
  const bool text = kind == "gpt" || kind == "llama";
  std::string out = "[parallel]\n";
  const std::string mode =
      draw.of<const char*>({"data_parallel", "semi_auto_parallel", "semi_auto_parallel", "hybrid_parallel"});
  out += fmt::format("mode = \"{}\"\ntransport = \"{}\"\n", mode, ranks > 1 && draw.chance(25) ? "ucx" : "auto");
  if (draw.chance(30)) out += "gradients_mean = false\n";
  if (draw.chance(20)) out += "all_reduce_fusion_config = [2]\n";
  if (draw.chance(10)) out += "all_gather_fusion_mb = 1\nreduce_scatter_fusion = \"off\"\n";
  if (draw.chance(20)) out += "collective_reuse = -1\n";
  if (mode == "hybrid_parallel") return out;
  if (draw.chance(15)) out += "recompute_slice_activation = true\n";
  if (draw.chance(15)) out += "optimizer_comm_recompute = false\n";
  if (mode == "data_parallel" && kind == "mlp" && draw.chance(40)) return out + "layerwise = [\"layers.0.weight\"]\n";
  if (draw.chance(40)) out += fmt::format("zero = {}\nzero_threshold_kb = 0\n", 1 + draw.below(3));
  if (draw.chance(30)) out += "gradient_accumulation_steps = 2\n";
  if (mode == "data_parallel") return out;
  if (draw.chance(15)) return out + "dataset = \"full_batch\"\n";
  if (ranks > 1 && kind != "lenet" && draw.chance(60)) {
    out += "tp = 2\n";
    if (text && draw.chance(40)) out += "sp = true\n";
    if (text && draw.chance(30)) out += "vocabulary = true\n";
  } else if (ranks > 1 && text && draw.chance(60)) {
    out += fmt::format("cp = 2\ncp_algorithm = \"{}\"\n", draw.of<const char*>({"auto", "ring", "ulysses"}));
  }
  return out;
}

DrawnJob draw_job(uint64_t seed) {
  Draw draw(seed);
  const std::string kind = draw.of<const char*>({"gpt", "llama", "mlp", "lenet", "wide_deep"});
  const int ranks = draw.of({1, 2, 2, 4});
  const bool text = kind == "gpt" || kind == "llama";
  DrawnJob out;
  out.toml = "name = \"drawn\"\n" + model_of(kind, draw);
  out.toml += kind == "wide_deep" && draw.chance(50)
                  ? "[data]\nkind = \"csv\"\npath = \"table.csv\"\nfields = [\"label i32 = y\", \"dense = [a, b, c]\", "
                    "\"ids i32 = [u, v]\"]\n"
              : text && draw.chance(50) ? "[data]\nkind = \"text\"\npaths = [\"text.txt\"]\nseq = 16\n"
                                        : fmt::format("[data]\nkind = \"synthetic\"\nsamples = 64\n{}",
                                                      text || kind == "wide_deep" ? "seq = 16\n" : "");
  out.toml += fmt::format("validation = {}\n", draw.of<const char*>({"0.0", "0.25"}));
  out.toml += train_of(text, draw) + parallel_of(kind, ranks, draw);
  out.words = {"-n", std::to_string(ranks), "--threads", draw.of<const char*>({"1", "2"})};
  return out;
}

// The hash that a run says its plan has.
std::string hash_in(const std::string& log, const std::string& of) {
  const size_t at = log.find(fmt::format("plan  of={} hash=", of));
  if (at == std::string::npos) return "none";
  const size_t from = log.find("hash=", at) + 5;
  return log.substr(from, 16);
}

std::string hash_of(const std::string& plan_text) {
  return fmt::format("{:016x}", hash(parse_plan(plan_text)));
}

class ExplainedTest : public CliTest {
 protected:
  Outcome explain(const DrawnJob& job, Words more) {
    Words words{"explain", "job.toml"};
    words.insert(words.end(), job.words.begin(), job.words.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // Whether the job was accepted. Both commands refuse what cannot be, in the same words.
  bool expect_shown_as_run(const DrawnJob& job) {
    write("job.toml", job.toml);
    Words words{"train", "job.toml", "--quiet", "--out", "run"};
    words.insert(words.end(), job.words.begin(), job.words.end());
    std::filesystem::remove_all(path("run"));
    const Outcome trained = run(words, {"TRIREME_LOG=warn,train=debug"});
    Words more;
    if (std::filesystem::exists(path("run/rates.toml"))) more = {"--set", "parallel.rates=run/rates.toml"};
    const auto shown = [&](const std::string& stage, const std::string& of) {
      Words asked = more;
      asked.insert(asked.end(), {"--stage", stage, "--of", of});
      return explain(job, asked);
    };
    const Outcome step = shown("actions", "step");
    EXPECT_EQ(step.code, trained.code) << step.err << trained.err;
    if (trained.code != 0) return false;
    EXPECT_EQ(hash_of(step.out), hash_in(trained.err, "step"));
    const ExecutionPlan plan = parse_plan(step.out);
    EXPECT_EQ(to_string(plan), step.out);
    EXPECT_THAT(shown("memory", "step").out,
                StartsWith(fmt::format("arena {} bytes: {} persistent", plan.arena().bytes, plan.arena().persistent)));
    EXPECT_THAT(trained.err, HasSubstr(fmt::format("arena_bytes={} persistent_bytes={}", plan.arena().bytes,
                                                   plan.arena().persistent)));
    if (job.toml.find("validation = 0.0") != std::string::npos) {
      EXPECT_EQ(hash_in(trained.err, "evaluation"), "none");
    } else {
      EXPECT_EQ(hash_of(shown("actions", "evaluation").out), hash_in(trained.err, "evaluation"));
    }
    return true;
  }
};

TEST_F(ExplainedTest, RandomJobsRunWhatIsExplained) {
  constexpr uint64_t kFirst = 1;
  constexpr uint64_t kCases = 24;
  write_gpt();  // and its text
  std::string table = "a,u,b,v,c,y\n";
  for (int row = 0; row < 64; ++row) {
    table += fmt::format("{},{},{},{},0.5,{}\n", row % 7, row % 20, row % 3, 20 + row % 10, row % 2);
  }
  write("table.csv", table);
  int accepted = 0;
  for (uint64_t seed = kFirst; seed < kFirst + kCases; ++seed) {
    const DrawnJob job = draw_job(seed);
    std::string words;
    for (const std::string& word : job.words) words += " " + word;
    SCOPED_TRACE(fmt::format("seed {}:{}\n{}", seed, words, job.toml));
    accepted += expect_shown_as_run(job) ? 1 : 0;
  }
  EXPECT_GE(accepted, static_cast<int>(kCases) / 2);
}

TEST_F(ExplainedTest, ARunLeavesTheRatesThatItsPlanWasMadeBy) {
  const DrawnJob job{
      "[model]\nkind = \"mlp\"\n[data]\nkind = \"synthetic\"\nsamples = 16\nvalidation = 0.5\n[train]\nsteps = "
      "1\nbatch = 8\n"
      "[parallel]\ntransport = \"ucx\"\n",
      {"-n", "2", "--threads", "1"}};
  EXPECT_TRUE(expect_shown_as_run(job));
  EXPECT_THAT(explain(job, {}).err, HasSubstr("--set parallel.rates=runs/latest/rates.toml"));
  EXPECT_EQ(explain(job, {"--set", "parallel.rates=run/rates.toml"}).err, "");
  const Outcome other = run({"explain", "job.toml", "-n", "4", "--set", "parallel.rates=run/rates.toml"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(error_line(other), HasSubstr("'run/rates.toml' was measured on 2 ranks but the job has 4"));
}

}  // namespace
}  // namespace trireme::cli::explained_test
