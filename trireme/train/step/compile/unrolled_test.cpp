// Steps of pipelines of which a few micro-batches are compiled and the others are as these: the plans are those of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "trireme/partition/partition.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::unrolled_test {
namespace {

struct Job {
  std::string name;
  std::vector<std::string> keys;
  bool repeats = true;
};

constexpr int64_t kRanks = 4;

CompiledJob compiled_with_evaluation(const Job& job, size_t repeat_from) {
  std::vector<std::string> keys{"model.kind=gpt", "model.layers=4", "model.width=16",
                                "model.heads=4",  "data.seq=16",    "parallel.gradient_accumulation_steps=48"};
  keys.insert(keys.end(), job.keys.begin(), job.keys.end());
  const JobConfig config = parse_config(
      "[data]\nkind = 'synthetic'\n[train]\nsteps = 1\nbatch = 96\n[parallel]\nmode = 'semi_auto_parallel'\n",
      "job.toml", keys);
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, kRanks);
  JobGraphs graphs = graphs_of(assembly, kRanks);
  CompileOptions how = compile_options(assembly, graphs.parallel, kRanks, 1);
  how.repeat_from = repeat_from;
  return compile(std::move(graphs.step), std::move(graphs.evaluation), how);
}

Compiled compiled(const Job& job, size_t repeat_from) {
  return compiled_with_evaluation(job, repeat_from).step;
}

// Each on four ranks; `repeats`: whether a few micro-batches are enough.
const std::vector<Job> kJobs{
    {"1f1b", {"parallel.pp=2", "parallel.tp=2"}},
    {"1f1b of 4", {"parallel.pp=4", "parallel.gradient_accumulation_steps=96"}},
    {"zb-h1", {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=zb-h1"}},
    {"zb-h2 of 4", {"parallel.pp=4", "parallel.schedule=zb-h2", "parallel.gradient_accumulation_steps=96"}},
    {"zb-h2 of 4, 48", {"parallel.pp=4", "parallel.schedule=zb-h2"}},
    {"seq-1f1b", {"model.kind=llama", "parallel.pp=2", "parallel.schedule=seq-1f1b", "parallel.seq_chunks=2"}},
    {"seq-1f1b, learned positions",
     {"parallel.pp=2", "parallel.schedule=seq-1f1b", "parallel.seq_chunks=2", "model.vocabulary=32"}},
    {"zb-v", {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=zb-v"}},
    {"interleaved",
     {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=interleaved", "parallel.virtual_stages=2",
      "parallel.gradient_accumulation_steps=96"}},
    {"zero", {"parallel.pp=2", "parallel.zero=3", "parallel.zero_threshold_kb=0", "model.vocabulary=32"}},
    {"dropout and recompute",
     {"parallel.pp=2", "parallel.tp=2", "model.dropout=0.1", "train.recompute=full", "train.clip=1"}},
    {"interleave", {"parallel.pp=2", "parallel.tp=2", "parallel.interleave=2"}},
    {"bf16 and data parallel", {"parallel.pp=2", "train.dtype=bf16", "model.vocabulary=32", "train.clip=1"}},
    {"llama", {"model.kind=llama", "parallel.pp=2", "parallel.tp=2", "parallel.sp=true"}},
    {"accumulation", {"parallel.tp=2", "train.clip=1", "model.vocabulary=32"}},
    {"accumulation of interleaved copies",
     {"parallel.tp=4", "parallel.interleave=2", "model.dropout=0.1", "model.vocabulary=32"}},
    {"a list of rows that grows", {"parallel.pp=2", "train.optimizer=sgd"}, false},
    {"gpipe", {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=gpipe"}, false},
    {"invariant",
     {"parallel.pp=2", "parallel.tp=2", "train.numerics=invariant", "train.batch=128",
      "parallel.gradient_accumulation_steps=16"},
     false},
};

// The first line in which two texts differ, as both have it; "" where they are the same.
std::string first_difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  const auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const size_t begin = at == 0 ? 0 : a.rfind('\n', at - 1) + 1;
  return a.substr(begin, a.find('\n', at) - begin) + "\n" + b.substr(begin, b.find('\n', at) - begin);
}

class Unrolled : public testing::TestWithParam<Job> {};

TEST_P(Unrolled, a_step_of_which_a_few_micro_batches_are_compiled_is_that_of_all) {
  const Compiled all = compiled(GetParam(), static_cast<size_t>(-1));
  const Compiled few = compiled(GetParam(), 0);
  ASSERT_EQ(all.crews.size(), few.crews.size());
  EXPECT_EQ(all.repeated, 0);
  EXPECT_EQ(few.repeated > 0, GetParam().repeats);
  EXPECT_EQ(all.remarks, few.remarks);
  for (size_t crew = 0; crew < all.crews.size(); ++crew) {
    EXPECT_EQ(first_difference(to_string(all.crews[crew].program), to_string(few.crews[crew].program)), "");
    EXPECT_EQ(first_difference(to_string(all.crews[crew].plan), to_string(few.crews[crew].plan)), "");
  }
}

// Forward passes alone repeat as well.
TEST(UnrolledEvaluation, of_which_a_few_micro_batches_are_compiled_is_that_of_all) {
  for (const Job& job : {Job{"1f1b", {"parallel.pp=2", "parallel.tp=2"}},
                         Job{"interleaved",
                             {"parallel.pp=2", "parallel.tp=2", "parallel.schedule=interleaved",
                              "parallel.virtual_stages=2", "parallel.gradient_accumulation_steps=96"}}}) {
    const CompiledJob all = compiled_with_evaluation(job, static_cast<size_t>(-1));
    const CompiledJob few = compiled_with_evaluation(job, 0);
    ASSERT_TRUE(all.evaluation && few.evaluation);
    EXPECT_EQ(all.evaluation->repeated, 0);
    EXPECT_GT(few.evaluation->repeated, 0) << job.name;
    for (size_t crew = 0; crew < all.evaluation->crews.size(); ++crew) {
      const CompiledCrew &whole = all.evaluation->crews[crew], &repeated = few.evaluation->crews[crew];
      EXPECT_EQ(first_difference(to_string(whole.program), to_string(repeated.program)), "") << job.name;
      EXPECT_EQ(first_difference(to_string(whole.plan), to_string(repeated.plan)), "") << job.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, Unrolled, testing::ValuesIn(kJobs), [](const auto& each) {
  std::string name = each.param.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace trireme::unrolled_test
