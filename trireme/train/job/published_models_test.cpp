#include "trireme/train/job/published_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"

namespace trireme::published_models_test {
namespace {

using testing::HasSubstr;

TEST(PublishedModels, have_the_parameters_that_their_authors_publish) {
  for (const PublishedModel& model : published_models()) {
    JobConfig config;
    set_published_model(config, model.name);
    const int64_t parameters = count(config).parameters;
    if (!model.is_rounded) {
      EXPECT_EQ(parameters, model.published) << model.name;
    } else {
      EXPECT_NEAR(static_cast<double>(parameters) / static_cast<double>(model.published), 1, 0.02) << model.name;
    }
  }
}

// 2 a multiplication with a weight and an addition, and attention's two products over half of the positions.
TEST(PublishedModels, arithmetic_is_that_of_their_products) {
  JobConfig config;
  set_published_model(config, "gpt3-175b");
  const ModelCounts counts = count(config);
  const double weights = 96.0 * 12 * 12288 * 12288 + 50257.0 * 12288;
  const double attention = 96.0 * 2 * 2 * 12288 * 2048 / 2;
  EXPECT_EQ(counts.positions, 2048);
  EXPECT_NEAR(counts.forward_flops / 2048, 2 * weights + attention, 0.01 * (2 * weights));
}

TEST(PublishedModels, names_are_different_and_their_jobs_read_back) {
  std::set<std::string_view> names;
  for (const PublishedModel& model : published_models()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    JobConfig config;
    set_published_model(config, model.name);
    config.train.fit.steps = 1;
    const std::string text = to_toml(config);
    EXPECT_EQ(to_toml(parse_config(text, "job.toml")), text) << model.name;
  }
}

TEST(PublishedModels, one_that_there_is_not_is_refused_with_the_likely_name) {
  JobConfig config;
  try {
    set_published_model(config, "gpt3-176b");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("there is no model 'gpt3-176b'. Did you mean 'gpt3-175b'?"));
  }
  EXPECT_EQ(find_published_model("gpt3"), nullptr);
}

}  // namespace
}  // namespace trireme::published_models_test
