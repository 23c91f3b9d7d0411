#include "trireme/train/plan/parts/model_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"

namespace trireme::model_parts_test {
namespace {

JobConfig job_of(std::string_view model, const std::vector<std::string>& keys) {
  JobConfig job;
  set_published_model(job, model);
  set_keys(job, {"train.batch=16", "data.validation=0"});
  set_keys(job, keys);
  return job;
}

Graph step_of(const JobConfig& job) {
  const auto model = make_model(job);
  return graphs_of(assembly_of(job, *model, 1), 1).step;
}

TEST(ModelParts, are_what_stands_before_the_blocks_the_blocks_and_what_stands_after) {
  const ModelParts parts = parts_of(step_of(job_of("gpt2", {"model.layers=4"})));

  EXPECT_EQ(parts.blocks, "h");
  EXPECT_EQ(parts.kinds, (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(parts.chain(), (std::vector<int64_t>{0, 1, 1, 1, 1, 2}));
  EXPECT_THAT(parts.before, testing::IsSupersetOf({"wte", "wpe"}));
  EXPECT_THAT(parts.after, testing::Contains("ln_f"));
  EXPECT_EQ(parts.stages_key({0}), "parallel.stages=[]");
  const std::string key = parts.stages_key({0, 3});
  EXPECT_THAT(key, testing::HasSubstr("\"h.0..1 = 0\", \"h.2..3 = 1\""));
  EXPECT_THAT(key, testing::HasSubstr("\"ln_f = 1\""));
}

TEST(ModelParts, of_models_with_dropout_are_alike_whatever_stream_they_draw_from) {
  const JobConfig job = job_of("gpt2", {"model.layers=4", "model.dropout=0.1"});
  EXPECT_EQ(parts_of(step_of(job)).kinds, (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(ModelParts, of_models_with_several_kinds_of_blocks_say_which_is_which) {
  const std::vector<std::string> blocks = {"model.layers=5", "model.dense_layers=2", "model.experts=4",
                                           "model.top_k=2"};
  const ModelParts parts = parts_of(step_of(job_of("deepseek-v2-lite", blocks)));
  EXPECT_EQ(parts.kinds, (std::vector<int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(parts.kind_count(), 2);
  EXPECT_EQ(parts.chain(), (std::vector<int64_t>{0, 1, 1, 2, 2, 2, 3}));
}

TEST(ModelParts, of_models_whose_blocks_are_unlike_are_refused_with_the_cure) {
  try {
    parts_of(step_of(job_of("resnet50", {})));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("use --search compiled"));
  }
}

}  // namespace
}  // namespace trireme::model_parts_test
