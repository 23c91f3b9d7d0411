// Strategies in files: for the job that wrote them, for it with other clipping or another optimizer, for its evaluation
// and prediction.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/parallel/strategy/strategy_json.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::strategy_file_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRanks = 4;

// A small GPT over 2 x 2 ranks.
JobConfig job(const std::vector<std::string>& keys, const char* kind = "gpt") {
  std::vector<std::string> all{fmt::format("model.kind={}", kind), "model.layers=2", "model.width=16", "model.heads=4",
                               "data.seq=16"};
  all.insert(all.end(), keys.begin(), keys.end());
  return parse_config(
      "[data]\nkind = 'synthetic'\nvalidation = 0.25\n[train]\nsteps = 1\nbatch = 8\n[parallel]\nmode = "
      "'semi_auto_parallel'\n",
      "job.toml", all);
}

struct Made {
  std::string step, evaluation, inference, file;
};

Made compiled(const JobConfig& config) {
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, kRanks);
  JobGraphs graphs = graphs_of(assembly, kRanks);
  const CompileOptions how = compile_options(assembly, graphs.parallel, kRanks, 1);
  const CompiledJob made = compile(std::move(graphs.step), std::move(graphs.evaluation), how);
  const Compiled inference = compile_beside(made.step, inference_of(assembly, kRanks), how);
  return {to_string(made.step.plan()), to_string(made.evaluation->plan()), to_string(inference.plan()),
          strategy_file(made.step.graph, made.step.strategy)};
}

void expect_same(const Made& a, const Made& b) {
  EXPECT_TRUE(a.step == b.step);
  EXPECT_EQ(a.file, b.file);
  EXPECT_TRUE(a.evaluation == b.evaluation);
  EXPECT_TRUE(a.inference == b.inference);
}

class StrategyFile : public testing::Test {
 protected:
  std::string written(const std::vector<std::string>& keys, bool json = false) {
    const std::string text = compiled(job(keys)).file;
    const std::string path = directory_ / (json ? "strategy.json" : "strategy.txt");
    atomic_write(path, json ? strategy_to_json(text) : text);
    return "parallel.strategy=" + path;
  }
  static std::string error_of(const JobConfig& config) {
    try {
      compiled(config);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      return e.text();
    }
    return "";
  }
  TempDirectory directory_;
};

const std::vector<std::vector<std::string>> kCuts{
    {"parallel.tp=2"},
    {"parallel.tp=2", "parallel.sp=true"},
    {"parallel.zero=1", "parallel.zero_threshold_kb=0"},
    {"parallel.zero=3", "parallel.zero_threshold_kb=0"},
    {"parallel.cp=2", "parallel.cp_algorithm=ring"},
    {"parallel.tp=2", "parallel.gradient_accumulation_steps=2"},
    {"parallel.zero_threshold_kb=0", "parallel.gradient_accumulation_steps=2", "parallel.zero=1"},
    {"parallel.dataset=full_batch"},
};

std::vector<std::string> with(std::vector<std::string> keys, const std::string& more) {
  keys.push_back(more);
  return keys;
}

TEST_F(StrategyFile, gives_the_plans_that_it_was_made_of) {
  for (const auto& keys : kCuts) {
    SCOPED_TRACE(keys.back());
    const Made made = compiled(job(keys));
    for (const bool json : {false, true}) expect_same(compiled(job({written(keys, json)})), made);
  }
}

// Both are parts of a micro-batch, and in the strategy's mesh with it: chunks of positions, which the schedule makes,
// and copies that are interleaved.
TEST_F(StrategyFile, with_parts_of_micro_batches_lays_out_evaluation_too) {
  const std::vector<std::string> kPipeline{"parallel.pp=2", "parallel.gradient_accumulation_steps=2"};
  for (const auto& keys :
       {with(kPipeline, "parallel.schedule=seq-1f1b"), with(kPipeline, "parallel.interleave=2"),
        with({"parallel.gradient_accumulation_steps=2", "train.batch=16"}, "parallel.interleave=2")}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(keys, " ")));
    expect_same(compiled(job(with(keys, written(keys)))), compiled(job(keys)));
    const std::vector<std::string> searched = with(keys, "parallel.mode=auto_parallel");
    expect_same(compiled(job(with(keys, written(searched)))), compiled(job(searched)));
  }
}

// As many bytes over the same ranks, whatever the flags were; here every action is the same.
TEST_F(StrategyFile, of_random_jobs_gives_the_plans_that_it_was_made_of) {
  std::mt19937 random(7);
  const auto one_of = [&](const std::vector<std::string>& words) { return words[random() % words.size()]; };
  int made = 0, once = 0, each = 0;
  for (int i = 0; i < 24; ++i) {
    const std::vector<std::string> beside{"parallel.pp=" + one_of({"1", "1", "2"}),
                                          "parallel.gradient_accumulation_steps=" + one_of({"1", "2", "4"}),
                                          "train.clip=" + one_of({"0", "1"}), "train.dtype=" + one_of({"f32", "bf16"}),
                                          "model.experts=" + one_of({"0", "0", "4"})};
    std::vector<std::string> keys = beside;
    for (const std::string& key :
         {"parallel.zero=" + one_of({"0", "1", "1", "2", "3"}), "parallel.zero_threshold_kb=" + one_of({"0", "1"}),
          "parallel.zero_shard_size=" + one_of({"-1", "2"}), "parallel.tp=" + one_of({"1", "2"}),
          "parallel.gradient_accumulation_shard=" + one_of({"true", "false"})})
      keys.push_back(key);
    SCOPED_TRACE(fmt::format("{}", fmt::join(keys, " ")));
    std::string file;
    try {
      file = written(keys, i % 2 == 0);
    } catch (const Error&) {  // fewer micro-batches than the pipeline takes, and the like
      continue;
    }
    ++made;
    const std::string text = read_file(file.substr(file.find('=') + 1));
    once +=
        text.find("sums=once\ninput") != std::string::npos || text.find("\"sums\": \"once\"\n") != std::string::npos;
    each += text.find("sums=each") != std::string::npos || text.find("\"sums\": \"each\"") != std::string::npos;
    EXPECT_TRUE(compiled(job(with(beside, file))).step == compiled(job(keys)).step);
  }
  EXPECT_GE(made, 12);
  EXPECT_GE(once, 3);
  EXPECT_GE(each, 3);
}

// Of an earlier version: how often a gradient is summed was not in it.
TEST_F(StrategyFile, without_the_order_of_sums_goes_by_the_job) {
  const std::vector<std::string> keys{"parallel.zero=1", "parallel.zero_threshold_kb=0",
                                      "parallel.gradient_accumulation_steps=2"};
  const std::string file = written(keys), path = file.substr(file.find('=') + 1);
  std::string text = read_file(path);
  for (const std::string word : {" sums=once", " sums=each"}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word)) text.erase(at, word.size());
  }
  atomic_write(path, text);
  const std::string slices = compiled(job({file})).step;
  EXPECT_TRUE(slices != compiled(job(keys)).step);
  EXPECT_TRUE(compiled(job({file, "parallel.gradient_accumulation_shard=false"})).step == compiled(job(keys)).step);
}

TEST_F(StrategyFile, stays_valid_for_other_clipping_and_another_optimizer) {
  for (const auto& keys : kCuts) {
    for (const std::string change : {"train.clip=0", "train.clip=0.5", "train.optimizer=sgd", "train.weight_decay=0.5",
                                     "train.label_smoothing=0.1"}) {
      SCOPED_TRACE(keys.back() + " " + change);
      expect_same(compiled(job({written(keys), change})), compiled(job(with(keys, change))));
    }
  }
}

// ZeRO slices state that the file knows nothing of, and leaves the parameters where the file has them.
TEST_F(StrategyFile, of_an_optimizer_without_state_leaves_that_of_another_to_zero) {
  const std::vector<std::string> plain{"train.optimizer=sgd", "train.momentum=0", "parallel.zero_threshold_kb=0"};
  for (const std::string zero : {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2", "parallel.zero=3"}) {
    for (const std::string adds : {"train.optimizer=adamw", "train.momentum=0.9"}) {
      SCOPED_TRACE(zero + " " + adds);
      const std::string file = written(with(plain, zero));
      const std::vector<std::string> other{"train.optimizer=sgd", adds, zero, "parallel.zero_threshold_kb=0"};
      expect_same(compiled(job(with(other, file))), compiled(job(other)));
      EXPECT_THAT(remarks(job(with(other, file)), 2), testing::Not(testing::Contains(HasSubstr("parallel.strategy"))));
    }
  }
  const std::string uncut = written(with(plain, "parallel.zero=0"));
  const std::vector<std::string> sliced{"train.optimizer=adamw", "parallel.zero=1", "parallel.zero_threshold_kb=0"};
  expect_same(compiled(job(with(sliced, uncut))), compiled(job(sliced)));
}

// Whose state an input is cannot be read off its name, whatever the optimizer here is.
TEST_F(StrategyFile, that_does_not_say_whose_state_an_input_is_is_refused) {
  const std::string text = compiled(job({"parallel.zero=1"})).file;
  const std::string path = directory_ / "older.txt";
  atomic_write(path, std::regex_replace(text, std::regex(" state_of=\"[^\"]*\""), ""));
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {}, {"train.optimizer=sgd", "train.momentum=0.9"}, {"train.optimizer=sgd", "train.momentum=0"}}) {
    EXPECT_THAT(error_of(job(with(keys, "parallel.strategy=" + path))),
                AllOf(HasSubstr("is state of an optimizer, and its line does not say of which parameter (state_of=)"),
                      HasSubstr("save it again with parallel.save_strategy")));
  }
}

TEST_F(StrategyFile, of_another_model_says_what_differs) {
  const std::string file = written({"parallel.tp=2"});
  EXPECT_THAT(error_of(job({file, "model.width=32"})),
              AllOf(HasSubstr("the strategy is for another model than 'run': 'wte.weight' is f32[256,32] here and "
                              "f32[256,16] in the file; "),
                    HasSubstr("and 2"), HasSubstr(" more; save one of this job with parallel.save_strategy")));
  EXPECT_THAT(error_of(job({file, "model.layers=3"})), HasSubstr("the file has no 'h.2.ln_1.weight' f32[16]"));
  EXPECT_THAT(error_of(job({file, "model.layers=1"})),
              HasSubstr("the file has 'h.1.ln_1.weight' f32[16], which this model does not have"));
  EXPECT_THAT(error_of(job({file, "model.heads=2"})),
              HasSubstr("the model has other ops, or the same in another order"));
  EXPECT_THAT(error_of(job({file, "train.batch=16"})),
              HasSubstr("'tokens' is i32[16,16] here and i32[8,16] in the file"));
  EXPECT_THAT(error_of(job({file}, "llama")), HasSubstr("the file has no 'model.embed_tokens.weight'"));
}

TEST_F(StrategyFile, keys_beside_it_must_say_the_same_of_the_mesh_and_others_are_said) {
  const std::string file = written({"parallel.tp=2"});
  expect_same(compiled(job({file, "parallel.tp=2"})), compiled(job({"parallel.tp=2"})));
  EXPECT_THAT(error_of(job({file, "parallel.tp=4"})),
              AllOf(HasSubstr("is for the mesh 'dp=2,ep=1,cp=1,tp=2', and the keys beside it"),
                    HasSubstr("make 'dp=1,ep=1,cp=1,tp=4'")));
  EXPECT_THAT(remarks(job({file, "parallel.zero=1"}), 2),
              testing::ElementsAre(AllOf(HasSubstr("parallel.zero = 1 has no effect with parallel.strategy = '"),
                                         HasSubstr("which says how everything lies"))));
  EXPECT_THAT(remarks(job({file}), 2), testing::IsEmpty());
  const std::string parts = written({"parallel.gradient_accumulation_steps=2"});
  EXPECT_THAT(remarks(job({parts, "parallel.gradient_accumulation_shard=false"}), 2),
              testing::ElementsAre(
                  HasSubstr("parallel.gradient_accumulation_shard = false has no effect with parallel.strategy = '")));
}

TEST_F(StrategyFile, of_a_pipeline_is_for_as_many_stages_of_as_many_ranks) {
  const std::vector<std::string> two_parts{"parallel.pp=2", "parallel.tp=2", "parallel.gradient_accumulation_steps=2"};
  const std::string file = written(two_parts);
  const std::vector<std::string> same{file, "parallel.pp=2", "parallel.gradient_accumulation_steps=2"};
  EXPECT_TRUE(compiled(job(same)).step == compiled(job(two_parts)).step);
  EXPECT_EQ(error_of(job({file, "parallel.pp=4", "parallel.gradient_accumulation_steps=4"})),
            "the strategy is for parts of a pipeline of 2 ranks each (mesh 'dp=1,ep=1,cp=1,tp=2,micro_batch=2') but "
            "each of the 4 parts (parallel.pp) has 1; start 8 ranks");
  EXPECT_THAT(error_of(job({file, "parallel.gradient_accumulation_steps=2"})),
              HasSubstr("the strategy is for parts of a pipeline of 2 ranks each (mesh "
                        "'dp=1,ep=1,cp=1,tp=2,micro_batch=2') and the job has no pipeline; set parallel.pp = 2"));
  EXPECT_TRUE(compiled(job({file, "parallel.pp=2"})).step == compiled(job(two_parts)).step)
      << "the file says how many micro-batches there are";
  // Ranks of two stages more would have nothing to do.
  EXPECT_THAT(
      error_of(job({file, "parallel.pp=2", "parallel.schedule=zb-v", "parallel.gradient_accumulation_steps=2"})),
      HasSubstr("no part of the model is of stage 2; the pipeline has 4"));
  const std::string four =
      written({"parallel.pp=2", "parallel.schedule=zb-v", "model.layers=4", "parallel.gradient_accumulation_steps=2"});
  EXPECT_THAT(error_of(job({four, "model.layers=4", "parallel.pp=2", "parallel.gradient_accumulation_steps=2"})),
              HasSubstr("a part of the model is of stage 2, and the pipeline has the stages 0 to 1"));
}

TEST_F(StrategyFile, in_json_is_what_the_text_is_and_mistakes_are_told) {
  const std::string text = compiled(job({"parallel.tp=2"})).file;
  const std::string json = strategy_to_json(text);
  EXPECT_EQ(strategy_to_json(strategy_from_json(json, "s.json")), json);
  EXPECT_THAT(json, HasSubstr("\"op\": \"h.0.mlp.c_fc/matmul\""));
  const auto wrong = [](const std::string& of) -> std::string {
    try {
      strategy_from_json(of, "s.json");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      return e.text();
    }
    return "";
  };
  EXPECT_THAT(wrong("{"), HasSubstr("s.json"));
  EXPECT_EQ(wrong("{\"inputs\": []}"), "s.json has no 'mesh'");
  EXPECT_EQ(wrong("{\"mesh\": 2}"), "s.json: 'mesh' is number, not a string");
  EXPECT_EQ(wrong("{\"mesh\": \"dp=2\", \"inputs\": [1]}"), "s.json: 'inputs' has number, not an object");
  EXPECT_EQ(wrong("{\"mesh\": \"dp=2\\nnode\", \"inputs\": []}"), "s.json: 'mesh' has a quote or a second line");
}

}  // namespace
}  // namespace trireme::strategy_file_test
