// What `trireme explain` shows is what `trireme train` runs, to the byte: random jobs, drawn by seed.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <random>
#include <set>

#include "tests/cli/program.h"
#include "trireme/exec/analysis/traffic.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme::cli::explained_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
  out += fmt::format("layers = {}\nwidth = 16\nheads = 4\n", draw.of({1, 2, 4}));
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
  if (draw.chance(35))
    out += fmt::format("recompute = {}\n", draw.of<const char*>({"true", "\"full\"", "\"selective\"", "\"1\""}));
  if (text && draw.chance(20)) out += "loss_pieces = 3\n";
  if (draw.chance(15)) return out + "numerics = \"invariant\"\n";
  if (draw.chance(20)) out += "dtype = \"bf16\"\n";
  if (draw.chance(15)) out += "label_smoothing = 0.1\n";
  return out;
}

// Stages of so many crews, their schedule and micro-batches, or copies of micro-batches.
std::string pipeline_of(int crews, Draw& draw) {
  if (crews > 1) {
    const char* const schedule = draw.of<const char*>({"gpipe", "1f1b", "1f1b", "1f1b", "zb-h1", "zb-h2", "interleaved",
                                                       "zb-v", "v-min", "v-half", "dualpipe-v", "seq-1f1b"});
    return fmt::format("pp = {}\nschedule = \"{}\"\ngradient_accumulation_steps = 4\n{}", crews, schedule,
                       draw.of<const char*>({"", "", "slice_crossings = \"always\"\n"}));
  }
  std::string out = draw.chance(30) ? "gradient_accumulation_steps = 2\n" : "";
  return out + (draw.chance(20) ? "interleave = 2\n" : "");
}

// Where values lie while nothing reads them: as asked, or as a budget chooses.
std::string tiers_of(Draw& draw) {
  std::string out;
  if (draw.chance(35)) {
    out += fmt::format("home = [{}]\ndisk = \".\"\n",
                       draw.of<const char*>({"\"*/state = host\"", "\"* = host\"", "\"*/gradient = host\"",
                                             "\"*/state = disk\"", "\"* = disk\", \"*/state = host\""}));
  }
  if (draw.chance(15)) out += fmt::format("keep = [\"* = {}\"]\n", draw.of<const char*>({"host", "disk", "again"}));
  if (draw.chance(20)) out += fmt::format("device_memory = \"{}\"\n", draw.of<const char*>({"330KB", "2MB"}));
  return out;
}

// The ready-made cuts of a crew.
std::string cuts_of(const std::string& kind, int ranks, Draw& draw) {
  const bool text = kind == "gpt" || kind == "llama";
  std::string out;
  if (ranks > 1 && kind != "lenet" && draw.chance(60)) {
    out += "tp = 2\n";
    if (text && draw.chance(40)) out += "sp = true\n";
    if (text && draw.chance(30)) out += "vocabulary = true\n";
  } else if (ranks > 1 && text && draw.chance(60)) {
    out += fmt::format("cp = 2\ncp_algorithm = \"{}\"\n", draw.of<const char*>({"auto", "ring", "ulysses"}));
  }
  return out;
}

std::string parallel_of(const std::string& kind, int ranks, Draw& draw) {
  const bool text = kind == "gpt" || kind == "llama";
  std::string out = "[parallel]\n";
  const std::string mode = draw.of<const char*>(
      {"data_parallel", "semi_auto_parallel", "semi_auto_parallel", "hybrid_parallel", "auto_parallel"});
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
  out += tiers_of(draw);
  if (mode == "auto_parallel") {
    return out + fmt::format("search = \"{}\"\n", draw.of<const char*>({"recursive_programming", "dynamic_programming",
                                                                        "sharding_propagation"}));
  }
  if (mode == "data_parallel") return out + (draw.chance(30) ? "gradient_accumulation_steps = 2\n" : "");
  const int crews = text && ranks > 1 && draw.chance(60) ? draw.of({2, ranks, ranks}) : 1;
  out += pipeline_of(crews, draw);
  return out + (draw.chance(15) ? "dataset = \"full_batch\"\n" : cuts_of(kind, ranks / crews, draw));
}

DrawnJob draw_job(uint64_t seed) {
  Draw draw(seed);
  const std::string kind = draw.of<const char*>({"gpt", "llama", "gpt", "llama", "mlp", "lenet", "wide_deep"});
  const int ranks = draw.of({1, 2, 2, 4, 4});
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

// What stands after `before` in the first line of the log that begins so: "hash=" of `plan  of=step`.
std::string said_in(const std::string& log, const std::string& line, const std::string& before) {
  const size_t at = log.find(line);
  if (at == std::string::npos) return "none";
  const size_t from = log.find(before, at) + before.size();
  return log.substr(from, log.find_first_of(" \n", from) - from);
}

// What is shown of each crew of a job.
std::vector<std::string> crews_in(const std::string& shown) {
  if (!shown.starts_with("# crew ")) return {shown};
  std::vector<std::string> out;
  for (size_t at = 0; at != std::string::npos;) {
    const size_t begin = shown.find('\n', at) + 1;
    const size_t end = shown.find("\n\n# crew ", begin);
    out.push_back(shown.substr(begin, end == std::string::npos ? end : end + 1 - begin));
    at = end == std::string::npos ? end : end + 2;
  }
  return out;
}

int64_t bytes_of(const ExecutionPlan& plan, int64_t rank = kAnyRank) {
  int64_t bytes = 0;
  for (const PlanTraffic& t : traffic_per_step(plan, rank)) bytes += t.bytes;
  return bytes;
}

class ExplainedTest : public CliTest {
 protected:
  Outcome explain(const DrawnJob& job, Words more) {
    Words words{"explain", "job.toml"};
    words.insert(words.end(), job.words.begin(), job.words.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  // What `explain` shows of a graph is what each rank says that it runs: its plan, memory and bytes sent.
  void expect_graph_as_run(const DrawnJob& job, const std::string& of, const Words& rates, const std::string& log) {
    SCOPED_TRACE(of);
    const auto shown = [&](const std::string& stage) {
      Words asked = rates;
      asked.insert(asked.end(), {"--stage", stage, "--of", of});
      return crews_in(explain(job, asked).out);
    };
    const std::vector<std::string> plans = shown("actions"), memories = shown("memory"), traffics = shown("traffic");
    ASSERT_EQ(memories.size(), plans.size());
    ASSERT_EQ(traffics.size(), plans.size());
    crews_ = std::max(crews_, static_cast<int>(plans.size()));
    for (size_t crew = 0; crew < plans.size(); ++crew) {
      const ExecutionPlan plan = parse_plan(plans[crew]);
      EXPECT_EQ(to_string(plan), plans[crew]);
      for (const Tier tier : kEveryTier) {
        const std::string before = tier == Tier::kDevice ? "" : fmt::format("{} ", to_string(tier));
        if (plan.arena(tier).bytes == 0) continue;
        EXPECT_THAT("\n" + memories[crew], HasSubstr(fmt::format("\n{}arena {} bytes: {} persistent", before,
                                                                 plan.arena(tier).bytes, plan.arena(tier).persistent)));
        tiers_.insert(tier);
      }
      EXPECT_THAT(traffics[crew], HasSubstr(fmt::format("{:<36} {:>16}\n", "all", bytes_of(plan))));
      const int64_t size = plan.mesh.devices();
      for (int64_t place = 0; place < size; ++place) {
        const int64_t rank = static_cast<int64_t>(crew) * size + place;
        SCOPED_TRACE(fmt::format("rank {}", rank));
        const std::string says = rank == 0 ? log : read(path(fmt::format("run/logs/worker_{}.log", rank)));
        const std::string line = fmt::format("plan  of={} ", of);
        EXPECT_EQ(said_in(says, line, "hash="), fmt::format("{:016x}", hash(plan)));
        EXPECT_EQ(said_in(says, line, "arena_bytes="), std::to_string(plan.arena().bytes));
        EXPECT_EQ(said_in(says, line, "persistent_bytes="), std::to_string(plan.arena().persistent));
        if (size * static_cast<int64_t>(plans.size()) == 1) continue;
        const int64_t sent = std::stoll(said_in(says, fmt::format("sent  of={} ", of), "bytes="));
        const int64_t planned = bytes_of(plan, place);
        const int64_t runs = of == "step" || planned == 0 ? 1 : sent / planned;  // a validation has several batches
        EXPECT_EQ(sent, runs * planned);
        EXPECT_GE(runs, 1);
      }
    }
  }

  // Whether the job was accepted. Both commands refuse what cannot be, in the same words.
  bool expect_shown_as_run(const DrawnJob& job) {
    write("job.toml", job.toml);
    Words words{"train", "job.toml", "--quiet", "--out", "run"};
    words.insert(words.end(), job.words.begin(), job.words.end());
    std::filesystem::remove_all(path("run"));
    const Outcome trained = run(words, {"TRIREME_LOG=warn,train=debug"});
    Words rates;
    if (std::filesystem::exists(path("run/rates.toml"))) rates = {"--set", "parallel.rates=run/rates.toml"};
    if (trained.code != 0) {
      Words asked = rates;
      asked.insert(asked.end(), {"--stage", "memory"});  // which says what does not fit
      const Outcome refused = explain(job, asked);
      EXPECT_EQ(refused.code, trained.code) << refused.err << trained.err;
      return false;
    }
    expect_graph_as_run(job, "step", rates, trained.err);
    if (job.toml.find("validation = 0.0") != std::string::npos) {
      EXPECT_EQ(said_in(trained.err, "plan  of=evaluation ", "hash="), "none");
    } else {
      expect_graph_as_run(job, "evaluation", rates, trained.err);
    }
    return true;
  }

  int crews_ = 0;         // of the longest pipeline
  std::set<Tier> tiers_;  // in which something lay
};

TEST_F(ExplainedTest, RandomJobsRunWhatIsExplained) {
  constexpr uint64_t kFirst = 100;
  constexpr uint64_t kCases = 40;
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
  EXPECT_GE(crews_, 2);
  EXPECT_THAT(tiers_, ElementsAre(Tier::kDevice, Tier::kHost, Tier::kDisk));
}

// A dimension that both axes cut is cut by them in one order, and each order is looked at.
TEST_F(ExplainedTest, ASearchOfAllAxesFindsTheSamePriceInWhateverOrderTheMeshHasThem) {
  const DrawnJob job{
      "[model]\nkind = \"lenet\"\n[data]\nkind = \"synthetic\"\nsamples = 96\nvalidation = 0.5\n[train]\nsteps = "
      "1\nbatch "
      "= 48\n",
      {"-n", "6", "--auto", "--search", "dynamic_programming"}};
  write("job.toml", job.toml);
  const auto price_over = [&](const std::string& mesh) {
    const Outcome shown = explain(job, {"--set", "parallel.mesh=" + mesh, "--stage", "search"});
    const size_t at = shown.out.find("predicted to take ");
    EXPECT_NE(at, std::string::npos) << shown.out << shown.err;
    return at == std::string::npos ? "" : shown.out.substr(at, shown.out.find(" ms", at) - at);
  };
  const std::string price = price_over("dp=2,tp=3");
  for (const char* other : {"tp=3,dp=2", "tp=2,dp=3", "dp=3,tp=2"}) EXPECT_EQ(price_over(other), price) << other;
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
