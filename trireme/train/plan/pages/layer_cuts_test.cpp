#include "trireme/train/plan/pages/layer_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/axis_levels.h"
#include "trireme/train/plan/plan_job.h"

namespace trireme::layer_cuts_test {
namespace {

using testing::ElementsAre;

Compiled step_of(const Way& way, int64_t ranks) {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job,
           {"model.layers=3", "model.width=128", "model.heads=4", "data.seq=16", "train.batch=8", "data.validation=0"});
  return compile_way({.job = job, .ranks = ranks}, way);
}

const LayerCut* find(const std::vector<LayerCut>& cuts, std::string_view name) {
  const auto found = std::ranges::find(cuts, name, &LayerCut::name);
  return found == cuts.end() ? nullptr : &*found;
}

TEST(LayerCuts, say_what_is_alike_in_layers_once) {
  const Compiled step = step_of({.tp = 2, .zero = 1}, 4);
  const std::vector<LayerCut> weights = weight_cuts(step.graph, step.strategy);
  const LayerCut* const c_attn = find(weights, "h.0..2.attn.c_attn.weight");
  ASSERT_NE(c_attn, nullptr);
  EXPECT_EQ(c_attn->count, 3);
  EXPECT_EQ(c_attn->cut, "[-, -, tp]");
  EXPECT_THAT(c_attn->state, testing::HasSubstr("dp"));
  EXPECT_NE(find(weights, "wte.weight"), nullptr);
  EXPECT_EQ(find(weights, "h.0.attn.c_attn.weight"), nullptr);
  const LayerCut* const matmul = find(op_cuts(step.graph, step.strategy), "h.0..2.mlp.c_proj/matmul");
  ASSERT_NE(matmul, nullptr);
  EXPECT_THAT(matmul->cut, testing::HasSubstr("k=tp"));
  EXPECT_TRUE(stage_cuts(step.strategy).empty());
}

// As many weights as the graph has, however they are folded.
TEST(LayerCuts, count_every_weight) {
  for (const Way& way : {Way{}, Way{.tp = 2, .sp = true}, Way{.pp = 2, .micro_batches = 2}}) {
    const Compiled step = step_of(way, 2);
    int64_t counted = 0;
    for (const LayerCut& cut : weight_cuts(step.graph, step.strategy)) counted += cut.count;
    EXPECT_EQ(counted, std::ranges::count(step.graph.inputs(), Role::kParameter, &Input::role));
  }
}

TEST(LayerCuts, name_the_modules_of_stages) {
  const std::vector<LayerCut> stages = stage_cuts(step_of({.pp = 2, .micro_batches = 2}, 2).strategy);
  int64_t blocks = 0;
  for (const LayerCut& cut : stages) {
    EXPECT_THAT(cut.cut, testing::AnyOf("0", "1"));
    if (cut.name.starts_with("h.")) blocks += cut.count;
  }
  EXPECT_EQ(blocks, 3);
}

Machine two_hosts() {
  return {.name = "two", .hosts = 2, .devices_per_host = 4, .levels = {{"host", 4, 1e-6, 1e10}, {"net", 8, 1e-5, 1e9}}};
}

TEST(AxisLevels, are_the_smallest_that_join_the_ranks_along_an_axis) {
  EXPECT_THAT(axis_levels(two_hosts(), Mesh({{"dp", 2}, {"tp", 4}}), 1),
              ElementsAre(AxisLevel{"dp", 2, 1}, AxisLevel{"tp", 4, 0}));
  EXPECT_THAT(axis_levels(two_hosts(), Mesh({{"dp", 4}, {"tp", 2}}), 1),
              ElementsAre(AxisLevel{"dp", 4, 1}, AxisLevel{"tp", 2, 0}));
  // A pipeline of two hosts; and one whose crews are neighbours in a host, but for the second and the third.
  EXPECT_THAT(axis_levels(two_hosts(), Mesh({{"dp", 4}, {"tp", 1}}), 2),
              ElementsAre(AxisLevel{"dp", 4, 0}, AxisLevel{"pp", 2, 1}));
  EXPECT_THAT(axis_levels(two_hosts(), Mesh({{"dp", 2}}), 2),
              ElementsAre(AxisLevel{"dp", 2, 0}, AxisLevel{"pp", 2, 0}));
  EXPECT_THAT(axis_levels(two_hosts(), Mesh({{"dp", 2}}), 4),
              ElementsAre(AxisLevel{"dp", 2, 0}, AxisLevel{"pp", 4, 1}));
}

}  // namespace
}  // namespace trireme::layer_cuts_test
