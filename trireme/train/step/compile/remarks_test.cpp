// What of a compiled step is said to have no effect: each key once on a job that it changes nothing of, and once on one
// that it does.
#include "trireme/train/step/compile/remarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme::remarks_test {
namespace {

constexpr int64_t kRanks = 2;

std::vector<std::string> remarks_with(std::vector<std::string> keys) {
  const JobConfig config = parse_config(
      "[model]\nkind = 'gpt'\nlayers = 2\nwidth = 16\nheads = 4\nvocabulary = 32\n[data]\nkind = 'synthetic'\nseq = 8\n"
      "[train]\nsteps = 1\nbatch = 8\n[parallel]\nmode = 'semi_auto_parallel'\nzero_threshold_kb = 0\n",
      "job.toml", keys);
  const auto model = make_model(config);
  const Assembly assembly = assembly_of(config, *model, kRanks);
  JobGraphs graphs = graphs_of(assembly, kRanks);
  const CompileOptions how = compile_options(assembly, graphs.parallel, kRanks, 1);
  return remarks(compile(std::move(graphs.step), how), graphs.parallel, kRanks);
}

struct Setting {
  std::string key;
  std::vector<std::string> where_it_changes_nothing, where_it_does;
  std::string said;
};

const std::vector<Setting> kSettings{
    {"parallel.all_gather_fusion=off",
     {},
     {"parallel.zero=1"},
     "parallel.all_gather_fusion has no effect on this step: it has no two collectives all_gather that would be taken "
     "together"},
    {"parallel.all_gather_fusion_mb=64", {"parallel.tp=2"}, {"parallel.zero=3"}, "parallel.all_gather_fusion_mb has"},
    {"parallel.reduce_scatter_fusion=off", {}, {"parallel.zero=2"}, "parallel.reduce_scatter_fusion has no effect"},
    {"parallel.reduce_scatter_fusion_mb=64",
     {},
     {"parallel.zero=2"},
     "parallel.reduce_scatter_fusion_mb has no effect"},
    {"parallel.all_reduce_fusion=off",
     {"parallel.tp=2", "train.clip=0"},
     {},
     "parallel.all_reduce_fusion has no effect"},
    {"parallel.all_reduce_fusion_config=[2]",
     {"parallel.tp=2", "train.clip=0"},
     {},
     "parallel.all_reduce_fusion_config"},
    {"parallel.comm_fusion=false",
     {"parallel.tp=2", "train.clip=0"},
     {},
     "parallel.comm_fusion = false has no effect on this step"},
    {"parallel.fusion=['h.* = 2']",
     {"parallel.tp=2", "train.clip=0"},
     {},
     "parallel.fusion 'h.* = 2' has no effect on this step: of what it names there are no two collectives that would "
     "be taken together"},
    {"parallel.fusion=['h.* = 0']",
     {"parallel.pp=2", "parallel.gradient_accumulation_steps=2"},
     {},
     "'h.* = 0' has no"},
    {"parallel.collective_reuse=-1",
     {},
     {"parallel.tp=2"},
     "parallel.collective_reuse = -1 has no effect: no collective"},
    {"parallel.enable_alltoall=false",
     {"parallel.tp=2"},
     {"parallel.cp=2", "parallel.cp_algorithm=ulysses"},
     "parallel.enable_alltoall = false has no effect: what ranks of this step exchange is the same without it"},
    {"parallel.gradient_fp32_sync=false",
     {"train.dtype=bf16", "parallel.tp=2"},
     {"train.dtype=bf16"},
     "parallel.gradient_fp32_sync = false has no effect"}};

class Remarks : public testing::TestWithParam<Setting> {};

TEST_P(Remarks, say_what_changes_nothing_and_nothing_of_what_does) {
  const auto with_key = [](std::vector<std::string> keys) {
    keys.push_back(GetParam().key);
    return remarks_with(keys);
  };
  EXPECT_THAT(with_key(GetParam().where_it_changes_nothing), testing::ElementsAre(testing::HasSubstr(GetParam().said)));
  EXPECT_THAT(with_key(GetParam().where_it_does), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Settings, Remarks, testing::ValuesIn(kSettings), [](const auto& each) {
  std::string name = each.param.key;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace trireme::remarks_test
